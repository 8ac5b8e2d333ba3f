"""A real Kubernetes proving ground on one Debian machine, for tests, for the demo, and by hand.

    with ProvingGround.start() as ground:
        print(ground.kubeconfig, ground.registry.host, ground.engine.socket)

By hand: `python -m tests.proving_ground --help`.
"""

from tests.proving_ground.errors import (
    CommandError,
    NotReadyError,
    ProvingGroundError,
    UnsupportedMachineError,
)
from tests.proving_ground.ground import ProvingGround
from tests.proving_ground.guest.guest import Guest
from tests.proving_ground.kernels import KernelPackage
from tests.proving_ground.progress import PlainLines, Progress, RichSteps, Silent, Step, for_terminal

__all__ = [
    "CommandError",
    "Guest",
    "KernelPackage",
    "NotReadyError",
    "PlainLines",
    "Progress",
    "ProvingGround",
    "ProvingGroundError",
    "RichSteps",
    "Silent",
    "Step",
    "UnsupportedMachineError",
    "for_terminal",
]
