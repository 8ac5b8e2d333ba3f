"""What the containers that load and unload kernel modules may do on their node. Pure.

Place in the flow: ``config`` reads the setting, ``manifests`` and ``unload_pod`` write it into pods. It is no part of a
driver's fingerprint: pods that run keep what they were created with (docs/decisions/0040-fingerprint.md).
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]


class LoaderPrivileges(StrEnum):
    """Everything that root may do on the node, or no more than the loader needs."""

    PRIVILEGED = "privileged"
    LEAST = "least"


CAPABILITIES = ("SYS_MODULE", "SYSLOG")
"""To load and unload modules, and to quote the kernel's log when it refuses one."""

_CONTEXTS: Mapping[LoaderPrivileges, Json] = MappingProxyType({
    LoaderPrivileges.PRIVILEGED: {"privileged": True},
    LoaderPrivileges.LEAST: {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
        # The runtimes' default profiles allow the system calls for modules with SYS_MODULE.
        "seccompProfile": {"type": "RuntimeDefault"},
        # The type of privileged containers: that of others may not load modules. Ignored without SELinux.
        "seLinuxOptions": {"type": "spc_t"},
    },
})  # fmt: skip


def security_context(privileges: LoaderPrivileges) -> Json:
    """Return the ``securityContext`` of a container that loads or unloads modules."""
    return dict(_CONTEXTS[privileges])
