"""Names of the images that a builder keeps in a container engine. Pure.

``docker_builder`` makes them. They contain other drivers' source and modules, so an admin must not name one of them as
a base image: an engine takes a local image before it asks a registry.
"""

CACHE = "driverwright-cache"
HEADERS = "driverwright-headers"
IMAGE = "driverwright-build"
DISCOVERY = "driverwright-lookup"

_DEFAULT_HOSTS = ("docker.io/", "index.docker.io/")
"""An engine leaves them out of a name."""


def is_reserved(reference: str) -> bool:
    """Whether an image reference is below one of these names, in any form that an engine accepts."""
    name = reference
    while host := next((host for host in _DEFAULT_HOSTS if name.startswith(host)), None):
        name = name.removeprefix(host)
    return name.partition("/")[0] in (CACHE, HEADERS, IMAGE, DISCOVERY)
