"""That the modules of an image were built for another kernel. A value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """Modules were used again: the ``kernel`` they were built for, the ``digest`` of the image they were taken from.

    ``compared`` is the number of symbol CRCs that agree.
    """

    kernel: str
    digest: str
    compared: int

    def __str__(self) -> str:
        return f"re-used the modules of kernel {self.kernel}: {self.compared} symbol CRCs agree"
