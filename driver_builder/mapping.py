"""Which rule of a DriverContainer a kernel falls under, and which template builds for its distribution. Pure."""

from driver_builder import driver_spec
from driver_builder.driver_spec import DriverSpec, KernelMapping
from driver_builder.kernels import KernelTarget, KernelVersion

ANY_KERNEL = KernelMapping(pattern=driver_spec.compiled(".*"), args={})
"""What a spec without mappings means."""

TEMPLATES = {"debian": "debian"}
"""os-release ID to template, for specs that name none."""

BASE_IMAGES = {("debian", "12"): "debian:bookworm-slim", ("debian", "13"): "debian:trixie-slim"}
"""(ID, VERSION_ID) to the image a driver is built in, for specs that name none."""


def mapping_for(spec: DriverSpec, kernel_version: KernelVersion) -> KernelMapping | None:
    """Find the first mapping that matches the whole kernel release; without mappings every kernel is wanted."""
    for mapping in spec.mappings or (ANY_KERNEL,):
        if mapping.pattern.fullmatch(kernel_version):
            return mapping
    return None


def template_for(spec: DriverSpec, mapping: KernelMapping, target: KernelTarget) -> str | None:
    """Name the template: the mapping's, else the build's, else the distribution's own."""
    return mapping.template or spec.template or TEMPLATES.get(target.os_id)


def base_image_for(spec: DriverSpec, target: KernelTarget) -> str | None:
    """Name the image a driver is built in: the build's, else the distribution's own."""
    return spec.base_image or BASE_IMAGES.get((target.os_id, target.os_version))
