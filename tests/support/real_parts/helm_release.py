"""A release of the chart, installed and taken away by Helm's library."""

import json
from pathlib import Path
from typing import Any

import helm_python as helm
from helm_python import _native

from demo.cluster import NAMESPACE

Json = dict[str, Any]

RELEASE = "driverwright"


class Release:
    """The release that docs/install.md names, in a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.helm = helm.Config(kubeconfig_path=str(kubeconfig), namespace=NAMESPACE)

    def install(self, chart: Path, values: Json | None = None, **options: bool) -> str:
        """Install it; returns the chart's notes.

        ``options`` are flags of ``helm install`` that the library has in its C interface only. The definition is not
        installed: API servers before 1.25 refuse the rules (CEL) in it.
        """
        path, reference = self.helm._chart_args(chart)
        of_release = RELEASE, json.dumps(values or {}), json.dumps({**options, "skip_crds": True})
        summary = _native.call_string(
            "helm_install", self.helm._raw(), self.helm._context_arg(None), path, reference, *of_release
        )
        notes: str = json.loads(summary)["notes"]
        return notes

    def uninstall(self) -> None:
        """Take it away."""
        self.helm.uninstall(RELEASE)

    def close(self) -> None:
        """Let go of the cluster."""
        self.helm.close()
