"""The exceptions of nvml_inventory.

::

    NvmlInventoryError
    ├── LibraryUnusable     libnvidia-ml.so.1 is there and cannot be loaded
    ├── DriverUnreadable    NVML answers its start, or a question about the driver, with an error
    └── MigUnchanged        a change of MIG mode or instances was not made
        ├── MigInUse        somebody uses what would change
        └── MigWantsReset   the mode changes with a reset of the GPU, or a boot

A driver that is not there is no exception, and neither is a GPU that cannot be read: see
:mod:`nvml_inventory.inventory`.
"""


class NvmlInventoryError(Exception):
    """Root of everything nvml_inventory raises on purpose; the message says what to do next."""


class LibraryUnusable(NvmlInventoryError):
    """The driver's library is there and cannot be loaded."""


class DriverUnreadable(NvmlInventoryError):
    """NVML cannot start, or cannot say which driver and how many GPUs there are."""


class MigUnchanged(NvmlInventoryError):
    """A change of MIG mode or instances was not made."""


class MigInUse(MigUnchanged):
    """The driver has users of what would change."""


class MigWantsReset(MigUnchanged):
    """The mode is pending until the GPU is reset, or the machine boots."""
