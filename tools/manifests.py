"""Renders the plain manifests of ``deploy/`` from the Helm chart, and what the chart has of them: ``make manifests``.

The chart's templates have the names of the manifests: ``templates/nfd-worker/rbac.yaml`` is ``nfd-worker/rbac.yaml``.
Of the definition and the admission policies the chart has copies. The table of its README comes from the schema.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "chart" / "driverwright"
NAMESPACE = "driverwright"
VALUES: Json = {
    "namespace": {"create": True},
    "driverBuilder": {"drain": True},
    "deviceAgent": {"enabled": True},
}
"""Defaults, and what the manifests have beside the base of kustomize."""
ALONE: dict[str, Json] = {"driver-builder/dra.yaml": {"driverBuilder": {"draDriverAccounts": ["any/account"]}}}
"""Manifests that come with a value which others have in them: each is rendered by itself."""
HEADER = "# Rendered from deploy/chart by `make manifests`: edit the template there.\n"
_TEMPLATES = "driverwright/templates/"
_TABLE = re.compile(r"(?<=<!-- values -->\n).*(?=<!-- end -->)", re.DOTALL)


def render(values: Json | None = None, *, namespace: str = NAMESPACE) -> dict[str, str]:
    """Render the chart; gives the text of each template that makes something, by its name below ``templates/``.

    Raises:
        helm_python.HelmError: the schema, or a template, refuses the values.
    """
    # Not at the top: a Go runtime does not survive a fork, and tests fork with what they import (side_by_side.py).
    import helm_python

    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render(values or {}, name="driverwright", namespace=namespace)
    return {name.removeprefix(_TEMPLATES): text for name, text in texts.items() if text.strip()}


def files(values: Json = VALUES) -> dict[Path, str]:
    """Return every file that is made of others, as it has to be; ``values`` are those of the manifests."""
    texts = {**render(values), **{name: render(own)[name] for name, own in ALONE.items()}}
    rendered = {
        DEPLOY / name: HEADER + re.sub(" +$", "", text, flags=re.MULTILINE).strip() + "\n"
        for name, text in texts.items()
        if name.endswith(".yaml")
    }
    sources = [DEPLOY / "crds" / "drivercontainers.yaml", *sorted((DEPLOY / "admission").glob("*.yaml"))]
    copies = {CHART / source.relative_to(DEPLOY): source.read_text() for source in sources}
    return {**rendered, **copies, CHART / "README.md": _readme()}


def _readme() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [f"| `{name}` | {meaning} | {default} |\n" for name, meaning, default in _rows(schema, values, ())]
    table = "".join(["\n| value | meaning | default |\n|---|---|---|\n", *rows, "\n"])
    return _TABLE.sub(lambda _: table, (CHART / "README.md").read_text())


def _rows(schema: Json, values: Json, path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield from _rows(part, values[name], (*path, name))
        elif name in values:
            value = values[name]
            is_long = isinstance(value, str) and "\n" in value
            default = "see values.yaml" if is_long else f"`{json.dumps(value)}`" if value not in ("", [], {}) else ""
            yield ".".join((*path, name)), part["description"], default


def main() -> int:
    """Write what differs."""
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(path.relative_to(DEPLOY.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
