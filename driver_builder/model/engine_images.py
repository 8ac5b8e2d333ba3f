"""The names below which a builder keeps images of its own in a container engine. Pure.

``docker_builder`` makes them. What lies below them is other drivers' source and modules, so no image that an admin
names may: an engine takes a local image before it asks a registry.
"""

CACHE = "driverwright-cache"
HEADERS = "driverwright-headers"
IMAGE = "driverwright-build"
LOOK_UP = "driverwright-lookup"

_DEFAULT_HOSTS = ("docker.io/", "index.docker.io/")
"""An engine leaves them out of a name."""


def is_reserved(reference: str) -> bool:
    """Whether an image reference is below one of these names, however an engine lets it be written."""
    name = reference
    while host := next((host for host in _DEFAULT_HOSTS if name.startswith(host)), None):
        name = name.removeprefix(host)
    return name.partition("/")[0] in (CACHE, HEADERS, IMAGE, LOOK_UP)
