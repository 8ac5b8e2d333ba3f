"""What the images of our programs have to be, as an engine has built them."""

from collections.abc import Mapping

import docker

from tools.release.image_sizes import LIMITS, too_large


def faults(engine: docker.APIClient, images: Mapping[str, str], base_image: str) -> list[str]:
    """Return what is wrong with size, label or user of each program's image; root is the device agent alone."""
    base = engine.inspect_image(base_image)["Size"]
    found = []
    for name in sorted(set(LIMITS).intersection(images)):
        image = engine.inspect_image(images[name])
        labels, user = image["Config"]["Labels"] or {}, image["Config"]["User"]
        found.append(too_large(name, image["Size"] - base))
        if labels.get("org.opencontainers.image.title") != name:
            found.append(f"{name} has the labels {labels}")
        if user != ("" if name == "device-agent" else "65534:65534"):
            found.append(f"{name} runs as {user or 'root'}")
    return [fault for fault in found if fault]
