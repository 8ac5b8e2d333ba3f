"""A real Kubernetes testbed on one Debian machine, for tests, for the demo, and by hand.

    with Testbed.start() as ground:
        print(ground.kubeconfig, ground.registry.host, ground.engine.socket)

By hand: `python -m testbed --help`.
"""

from testbed.errors import CommandError, NotReadyError, TestbedError, UnsupportedMachineError
from testbed.guest.guest import Guest
from testbed.kernels import KernelPackage
from testbed.progress import PlainLines, Progress, RichSteps, Silent, Step, for_terminal
from testbed.testbed import Testbed

__all__ = [
    "CommandError",
    "Guest",
    "KernelPackage",
    "NotReadyError",
    "PlainLines",
    "Progress",
    "RichSteps",
    "Silent",
    "Step",
    "Testbed",
    "TestbedError",
    "UnsupportedMachineError",
    "for_terminal",
]
