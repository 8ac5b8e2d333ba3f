"""Renders the plain manifests of ``deploy/`` from the Helm chart, and what the chart has of them: ``make manifests``.

The chart's templates have the names of the manifests: ``templates/nfd-worker/rbac.yaml`` is ``nfd-worker/rbac.yaml``.
Of the definition and the admission policies the chart has copies. The definition's ``spec`` comes from the rows of
``driver_builder.api.driver_spec``, the table of the chart's README from the schema of its values.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from driver_builder.api.driver_spec import SPEC

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
DEFINITION = DEPLOY / "crds" / "drivercontainers.yaml"
_SPEC = re.compile(r"(?<=# spec: begin\n).*(?= {12}# spec: end)", re.DOTALL)
_WIDTH = 120
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
    policies = {path: path.read_text() for path in sorted((DEPLOY / "admission").glob("*.yaml"))}
    sources = {DEFINITION: definition(), **policies}
    copies = {CHART / source.relative_to(DEPLOY): text for source, text in sources.items()}
    return {**rendered, DEFINITION: sources[DEFINITION], **copies, CHART / "README.md": _readme()}


def definition() -> str:
    """Return the text of the definition with the schema of ``spec``."""
    plain = json.loads(json.dumps({"spec": SPEC.schema()}))
    schema = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return _SPEC.sub(lambda _: textwrap.indent(schema, " " * 12), DEFINITION.read_text())


class _Dumper(yaml.SafeDumper):
    """Indents lists, and writes what fits into a line in one."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: ARG002
        return super().represent_mapping(tag, mapping, flow_style=_is_short(mapping, mapping.values()))

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:  # noqa: ARG002
        return super().represent_sequence(tag, sequence, flow_style=_is_short(sequence, sequence))

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write what stands at several places at each."""
        return True


def _is_short(value: object, inner: Iterable[object]) -> bool:
    return len(json.dumps(value)) <= _WIDTH - 30 and not any(isinstance(one, dict) for one in inner)


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
