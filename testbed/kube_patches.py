"""What must be changed in Debian's Kubernetes source before it is built and used here.

Kubernetes 1.20 is older than bookworm's Go 1.19, and two places of its vendored code do not survive that.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError

# reflect2 1.0.1 breaks with Go 1.18 and later: the first create of any custom resource kills the API server.
# Debian packages 1.0.2, which does not.
REFLECT2_PACKAGE = "golang-github-modern-go-reflect2-dev"
_REFLECT2_SOURCES = "usr/share/gocode/src/github.com/modern-go/reflect2"
_REFLECT2_VENDORED = "vendor/github.com/modern-go/reflect2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """One line of the source to be replaced, and why."""

    path: str
    old: str
    new: str
    why: str


_EQUALS_ZERO = "if data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data)) {"
_ZERO_REASON = "comparing two reflect.Values changed its meaning in Go 1.19: an empty string would be rejected as null"

MENDS = (
    Mend(
        path="vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go",
        old=_EQUALS_ZERO,
        new="if data == nil {",
        why=_ZERO_REASON,
    ),
    Mend(
        path="vendor/github.com/go-openapi/validate/type.go", old=_EQUALS_ZERO, new="if data == nil {", why=_ZERO_REASON
    ),
    Mend(
        path="vendor/github.com/google/cadvisor/container/docker/factory.go",
        old="const rootDirRetryPeriod time.Duration = 1000 * time.Millisecond",
        new="const rootDirRetryPeriod time.Duration = time.Millisecond",
        why="a kubelet on containerd would sleep 5 s at every start, waiting for a docker that never answers",
    ),
    Mend(
        path="pkg/kubelet/kubelet.go",
        old="ContainerGCPeriod = time.Minute",
        new="ContainerGCPeriod = 5 * time.Second",
        why="a deleted pod stays until its dead containers are collected: a minute that tests would wait each time",
    ),
)


def apply_mends(tree: Path, reflect2: Path) -> None:
    """Mend the source tree; `reflect2` is the unpacked package REFLECT2_PACKAGE."""
    vendored = tree / _REFLECT2_VENDORED
    shutil.rmtree(vendored)
    shutil.copytree(reflect2 / _REFLECT2_SOURCES, vendored)
    for mend in MENDS:
        file = tree / mend.path
        file.write_text(mended(file.read_text(), mend))


def mended(text: str, mend: Mend) -> str:
    """Return the text with the mend applied; a text that does not hold the line is an error, never ignored."""
    if text.count(mend.old) != 1:
        hint = f"the source package has changed: look at it and correct {Path(__file__).name}"
        raise TestbedError(f"{mend.path} holds {text.count(mend.old)} times the line to patch", hint=hint)
    return text.replace(mend.old, mend.new)
