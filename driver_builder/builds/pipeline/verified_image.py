"""An image that is verified and ready to be pushed. Values."""

from dataclasses import dataclass

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.modules.verify import VerifiedModule


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedImage:
    """``module_symvers`` is that of the image's own kernel, ``compiler`` the one that made the ``modules``."""

    image: ImageArchive
    module_symvers: str
    compiler: str
    modules: tuple[VerifiedModule, ...]
