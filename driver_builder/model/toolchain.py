"""A toolchain: compiler and headers of one kernel, kept as an image in the repository of a driver. Pure.

It is the stage ``headers`` of a template. A build that finds it takes it as the base of its stage ``build``: no package
manager runs, and the archive may have dropped the headers (docs/decisions/0131-toolchain-images.md). Here is what it is
called and when it is the right one; ``builds/templates/toolchain_stage`` makes Dockerfiles of it and with it,
``builds/pipeline/toolchain_image`` looks for it and pushes it.
"""

import hashlib
import json
import re

from driver_builder.model import images
from driver_builder.model.build import MIRROR_ARG, BuildRequest
from driver_builder.model.images import ImageRef

FORM = 1
"""Part of the key. It takes the next number when a toolchain has to hold something else although no recipe changes."""
_TAG = re.compile(r"toolchain-[0-9a-f]{20}")


def toolchain_key(request: BuildRequest) -> str | None:
    """Return the digest of what goes into the toolchain of a build, 20 hex digits; None for a custom template.

    Nothing of it is the driver's but its namespace: drivers of one namespace and repository share it, and nobody builds
    from what another tenant's settings made. What a custom template installs before the driver's source is not known,
    and it may be a secret.
    """
    if request.own_template is not None:
        return None
    own = {"form": FORM, "namespace": request.driver.namespace, "mirror": request.args.get(MIRROR_ARG, "")}
    parts = {**request.toolchain_parts, **own}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def toolchain_image(request: BuildRequest, image: ImageRef) -> ImageRef | None:
    """Return the toolchain of a build by its tag, in the repository of the driver's ``image``; None if it has none."""
    key = toolchain_key(request)
    return None if key is None else ImageRef(image.host, image.repository, f"toolchain-{key}")


def is_toolchain(image: ImageRef) -> bool:
    """Whether a tag is a toolchain's. A driver's has its kernel between its version and its key."""
    return _TAG.fullmatch(image.reference) is not None


def toolchain_labels(request: BuildRequest) -> dict[str, str]:
    """Return the labels of a toolchain: its key, and what it is for."""
    return {
        images.TOOLCHAIN_LABEL: toolchain_key(request) or "",
        images.KERNEL_LABEL: request.target.kernel_version,
        images.OS_LABEL: request.target.os,
        images.ARCHITECTURE_LABEL: request.target.architecture,
        images.BUILD_IMAGE_LABEL: request.base_image,
    }
