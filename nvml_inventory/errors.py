"""The exceptions of nvml_inventory.

::

    NvmlInventoryError
    ├── LibraryUnusable     libnvidia-ml.so.1 is there and cannot be loaded
    └── DriverUnreadable    NVML answers its start, or a question about the driver, with an error

A driver that is not there is no exception, and neither is a GPU that cannot be read: see
:mod:`nvml_inventory.inventory`.
"""


class NvmlInventoryError(Exception):
    """Root of everything nvml_inventory raises on purpose; the message says what to do next."""


class LibraryUnusable(NvmlInventoryError):
    """The driver's library is there and cannot be loaded."""


class DriverUnreadable(NvmlInventoryError):
    """NVML cannot start, or cannot say which driver and how many GPUs there are."""
