"""What one release of Kubernetes takes and another refuses: flags and settings of its programs, by minor version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OLDEST = 20
"""The minor version that the other flags of the testbed are those of."""
DOCKERSHIM_UNTIL = 24
"""The first release whose kubelet does not speak to a Docker Engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """A flag or a setting of a program, and the minor versions that have it: from ``since``, before ``until``."""

    program: str
    since: int = OLDEST
    until: int | None = None
    flag: str = ""
    setting: tuple[str, Any] | None = None

    def is_in(self, program: str, minor: int) -> bool:
        """Tell whether the program of a release has it."""
        return self.program == program and self.since <= minor and (self.until is None or minor < self.until)


HOST, GUEST = "kubelet of the host", "kubelet of a guest"

TABLE = (
    # Without it they serve without TLS as well; it has no effect in 1.23, and is gone in 1.24.
    Varying(program="kube-controller-manager", until=23, flag="--port=0"),
    Varying(program="kube-scheduler", until=23, flag="--port=0"),
    *(
        Varying(program=HOST, until=DOCKERSHIM_UNTIL, flag=flag)
        for flag in (
            "--container-runtime=docker",
            "--docker-endpoint={engine}",
            "--docker={engine}",
            "--pod-infra-container-image={pause}",
            "--network-plugin=",
        )
    ),
    Varying(program=GUEST, until=24, flag="--container-runtime=remote"),
    # Emulation makes what an idle kubelet does expensive. The gate became a setting.
    Varying(program=GUEST, until=25, setting=("featureGates", {"LocalStorageCapacityIsolation": False})),
    Varying(program=GUEST, since=25, setting=("localStorageCapacityIsolation", False)),
    # From 1.35 on a kubelet does not start on control groups of the first version unless it is told to.
    *(Varying(program=program, since=31, setting=("failCgroupV1", False)) for program in (HOST, GUEST)),
)


def flags(program: str, minor: int, values: Mapping[str, str] | None = None) -> list[str]:
    """Return the flags that this release has and not each other one; ``values`` fill what stands in braces."""
    return [item.flag.format_map(values or {}) for item in TABLE if item.flag and item.is_in(program, minor)]


def settings(program: str, minor: int) -> dict[str, Any]:
    """Return what this release has in its KubeletConfiguration and not each other one."""
    return dict(item.setting for item in TABLE if item.setting and item.is_in(program, minor))


def parse_release(text: str) -> tuple[str, int] | None:
    """Read what ``kubelet --version`` prints: the release, and its minor version; None for anything else."""
    match = re.search(r"\bv(1\.(\d+)\.\S+)", text)
    return (match[1], int(match[2])) if match else None
