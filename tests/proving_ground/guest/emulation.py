"""What every guest's command line has in common: QEMU without hardware help, and what its kernel is told."""

PACKAGES = ("qemu-system-x86",)

# A thread for each CPU would be faster, and ends QEMU 7.2 by a segmentation fault in one of a hundred boots (4 CPUs and
# an IOMMU). Unbounded, the cache of translated code would grow to a gigabyte.
QEMU = (
    *("qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=256"),
    *("-nodefaults", "-display", "none", "-no-reboot"),
)

# A busy machine emulates too slowly for the kernel's test of its timer: "timer doesn't work", and it panics.
KERNEL_PARAMETERS = "console=ttyS0 panic=-1 no_timer_check"
