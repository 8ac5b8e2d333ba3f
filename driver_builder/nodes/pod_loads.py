"""What a driver pod has loaded on its node, or may have, as the Node's record has it. Pure."""

from collections.abc import Mapping

from driver_builder.base.reasons import Reason
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import loaded
from driver_builder.objects.load_report import HELD
from driver_builder.objects.loaded import Load
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.snapshot import DriverPod


def load_of(view: DriverView, node: Node, pod: DriverPod) -> Load | None:
    """Return what a pod has loaded on its node, or may have: None if it loads nothing, or unloads it by itself."""
    if not pod.leaves_modules or (pod.proof is not None and pod.proof.result in (Reason.WRONG_KERNEL, *HELD)):
        return None
    of_target = view.daemon_sets.get(pod.target)
    if pod.proof is None and of_target is not None and of_target.kernel != node.kernel_version:
        return None
    live = pod.proof.modules if pod.proof is not None else ()
    modules = [(module.name, module.identity) for module in live] or _in_load_order(view, pod.expected)
    return Load(
        target=pod.target,
        kernel=pod.proof.kernel if pod.proof is not None else node.kernel_version,
        boot_id=(pod.proof.boot_id if pod.proof is not None else node.boot_id) or "unknown",
        modules=tuple(module for module in modules if all(module)),
        firmware=pod.firmware,
        var_firmware=pod.var_firmware,
        blacklist=pod.blacklist,
        nvidia=pod.nvidia,
        fingerprint=pod.fingerprint,
    )


def _in_load_order(view: DriverView, expected: Mapping[str, str]) -> list[tuple[str, str]]:
    """Put the modules of an image, which it lists in any order, into the order of the spec."""
    order = [loaded.plain(module.name) for module in view.modules]

    def place(item: tuple[str, str]) -> int:
        name = loaded.plain(item[0])
        return order.index(name) if name in order else -1

    return sorted(expected.items(), key=place)
