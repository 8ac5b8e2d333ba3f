"""What a driver puts on a node, as one digest: pods are compared by it. Pure.

A pod is replaced only when its fingerprint differs from the wanted one, and replacing a pod may reload a module. So the
fingerprint covers what is on the node and nothing else: the modules with their identities and parameters, firmware,
user space, blacklist, modules of the kernel that make room, and the token of a rebuild that was asked for. It does not
cover how the pod runs (tolerations, priority, pull secrets, resources, security context, the loader's image), the
version's name, or the digest of an image that says which modules it has.

The fields and their form are part of the version ``v2``: a new field enters only where it is set, so that the
fingerprints of drivers that do not use it stay as they are (docs/decisions/0040-fingerprint.md).
"""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.mapping_settings import ContainerSettings, LoadedBy, VendorSettings
from driver_builder.objects.loaded import plain

FORM = "v2:"


def fingerprint(
    spec: DriverSpec,
    *,
    identities: Mapping[str, str],
    needed: Mapping[str, str] = MappingProxyType({}),
    image_digest: str,
    firmware: str = "",
    userspace: str = "",
    rebuild: str = "",
    vendor: VendorSettings | None = None,
) -> str:
    """Return the digest of what a node gets of a driver.

    ``identities`` maps module to the srcversion or build id in the image, ``needed`` those that it has besides because
    these need them; ``firmware`` and ``userspace`` are digests of
    such files in it, ``rebuild`` the token of a rebuild for the whole driver. If the image does not say what it
    contains, ``image_digest`` replaces them. ``vendor`` says how the modules of a prebuilt image are loaded: how its
    own program is run counts, but not how long it may take.
    """
    says_all = names_all(spec, identities)
    has_program = vendor is not None and vendor.loader is LoadedBy.IMAGE
    fields: dict[str, Any] = {
        "modules": {plain(name): identity for name, identity in identities.items()},
        "needed": {plain(name): identity for name, identity in needed.items()},
        "parameters": {
            plain(module.name): list(module.parameters) for module in spec.module.load_order if module.parameters
        },
        "image": "" if says_all and not has_program else image_digest,
        "firmware": (firmware or image_digest) if spec.module.firmware_path else "",
        "userspace": [userspace or image_digest, spec.userspace.host_path or ""] if spec.userspace else "",
        "blacklist": sorted(spec.module.blacklist),
        "inTreeModulesToRemove": sorted(spec.module.in_tree_modules_to_remove),
        "inTreeModulesToLoad": list(spec.module.in_tree_modules_to_load),
        "firmwareHostPath": spec.module.firmware_host_path,
        "rebuild": rebuild,
        "dirName": vendor.dir_name if vendor is not None else None,
        "program": _program(vendor.container) if vendor is not None and has_program else None,
    }
    text = json.dumps({name: value for name, value in fields.items() if value}, sort_keys=True)
    return FORM + hashlib.sha256(text.encode()).hexdigest()[:16]


def names_all(spec: DriverSpec, identities: Mapping[str, str]) -> bool:
    """Return whether an image says which modules it has, for all that the spec names."""
    known = {plain(name) for name in identities}
    return all(plain(name) in known for name in spec.module.names)


def _program(container: ContainerSettings) -> dict[str, Any]:
    return {
        "command": list(container.command),
        "args": list(container.args),
        "env": [[item.name, item.value] for item in container.env],
        "hostPaths": [
            [item.path, item.mount_path, item.read_only, item.propagation or ""] for item in container.host_paths
        ],
    }


def is_of_this_form(value: str) -> bool:
    """Return whether a fingerprint has this list of fields; earlier ones covered the whole pod."""
    return value.startswith(FORM)
