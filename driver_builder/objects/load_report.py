"""What the loader of a driver pod reports about its node: the evidence for the ready label.

The init container ``load`` ends with one JSON line as its termination message, so the API server carries it in the
pod's status: ``{"result":"Loaded","kernel":"6.1.0-55-cloud-amd64","bootID":"...","modules":[{"name":"edudrv",
"srcversion":"...","devices":["0000:00:04.0"]}]}``. ``driver_builder/loader/loader.sh`` writes it.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.base.memo import remembers_texts
from driver_builder.base.reasons import Reason
from kube_api.text import printable

_LONGEST = 16384
"""Characters of a termination message: the kubelet keeps 4 KiB of one."""
_LONGEST_WORD = 128

LOADED = "Loaded"
HELD = frozenset({Reason.MODULE_CONFLICT, Reason.WAITING_FOR_DEPENDENCY})
"""Results of a load that another driver prevents: nothing was touched, and the pod tries again."""
CONTRARY = frozenset({Reason.NOT_LIVE, Reason.OTHER_BUILD, Reason.NO_DEVICE, Reason.DEVICE_NODE_MISSING})
"""Results that ``hold`` ends with when a module has changed: removed, another build, or without its device or node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModule:
    """A module found in the running kernel: ``identity`` is its srcversion, else its build id."""

    name: str
    identity: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """One result of the loader.

    ``result`` is :data:`LOADED` or a reason of load reports (:data:`driver_builder.base.reasons.SECTIONS`); that of
    ``hold`` is one of :data:`CONTRARY`.
    """

    result: str
    kernel: str
    boot_id: str
    modules: tuple[LiveModule, ...] = ()
    message: str = ""

    @property
    def words(self) -> str:
        """The result, and the message if there is one."""
        return f"{self.result}: {self.message}" if self.message else self.result


def parse(text: str) -> LoadReport | None:
    """Read a termination message; None if it is not a load report."""
    try:
        verdict = json.loads(text[:_LONGEST])
        return LoadReport(
            result=_word(verdict["result"]),
            kernel=_word(verdict.get("kernel", "")),
            boot_id=_word(verdict.get("bootID", "")),
            modules=_modules(json.dumps(verdict.get("modules") or [])),
            message=printable(str(verdict.get("message", ""))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


@remembers_texts
def _modules(text: str) -> tuple[LiveModule, ...]:
    """Read the modules of a report: those of a fleet with one driver are the same objects."""
    return tuple(
        LiveModule(
            name=_word(module["name"]),
            identity=_word(module.get("srcversion") or module.get("buildID") or ""),
            devices=tuple(_word(device) for device in module.get("devices") or ()),
        )
        for module in json.loads(text)
    )


def _word(value: object) -> str:
    return sys.intern(printable(str(value), _LONGEST_WORD))


def doubt(proof: LoadReport | None, *, kernel: str, boot_id: str | None, expected: Mapping[str, str]) -> str | None:
    """Return why a load report does not prove that these modules work on this boot of this kernel; None if it does."""
    if proof is None:
        return "the driver pod has not reported yet"
    if proof.result != LOADED:
        return proof.words or "the loader reported no result"
    if proof.kernel != kernel:
        return f"loaded on kernel {proof.kernel}, the node's labels say {kernel}"
    if boot_id is not None and proof.boot_id != boot_id:
        return "loaded before the node's last boot"
    live = {module.name: module.identity for module in proof.modules}
    for name, identity in expected.items():
        if live.get(name) != identity:
            return f"module {name} is {live.get(name, 'not loaded')}, the image has {identity}"
    return None
