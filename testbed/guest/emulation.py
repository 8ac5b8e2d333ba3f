"""What every guest's command line has in common: QEMU without hardware help, and its kernel's command line."""

from collections.abc import Sequence

PACKAGES = ("qemu-system-x86",)

# A thread for each CPU would be faster, and ends QEMU 7.2 by a segmentation fault in one of a hundred boots (4 CPUs and
# an IOMMU). Unbounded, the cache of translated code would grow to a gigabyte.
QEMU = (
    *("qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=256"),
    *("-nodefaults", "-display", "none", "-no-reboot"),
)

# A busy machine emulates too slowly for the kernel's test of its timer: "timer doesn't work", and it panics. Without
# timers finer than its tick, and without guards against a real processor's speculation, an emulated node does the same
# work in two thirds of the time.
KERNEL_PARAMETERS = "console=ttyS0 panic=-1 no_timer_check highres=off mitigations=off"

# Each process of a testbed has a session of its own, and with CONFIG_SCHED_AUTOGROUP the sessions share the processors,
# whatever the nice values in them: a node would get as much as each of twenty others, lag behind, and be lost.
_BEFORE_OTHERS = 'echo -10 2>/dev/null >/proc/self/autogroup; exec "$@"'


def before_others(argv: Sequence[str]) -> list[str]:
    """Return a command that runs before the sessions of other processes do, where the kernel groups by session."""
    return ["sh", "-c", _BEFORE_OTHERS, "sh", *argv]
