"""The table of keys of Nodes: what the documentation shows, what the policies accept, and all that is written."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import driver_builder
from device_agent.node_rights import answering_rights
from driver_builder.objects.node_keys import NODE_KEYS, Kind, NodeKey, Writer
from kube_api import names
from kube_api.node_policy import render
from tests.fields_page import PAGE
from tests.node_keys_page import page
from tests.support.admission import Policy, Review
from tests.support.forbidden_changes import NODE, OWN_NODE, annotation, label, merged, taint
from tests.support.yaml_files import read_documents

ROOT = Path(driver_builder.__file__).parent
DEPLOY = ROOT.parent / "deploy" / "admission"
OF_DRIVER_CONTAINERS = {
    names.PAUSE_ANNOTATION, names.UNDO_ROLLOUT_ANNOTATION, names.ACCEPT_DIGEST_ANNOTATION,
}  # fmt: skip
OF_OTHER_OBJECTS = {
    "api/driver_container.py": "a finalizer of DriverContainers",
    "builds/build_logs.py": "ConfigMaps",
    "builds/job/job_manifest.py": "Jobs",
    "cluster/snapshot_file.py": "a version of files",
    "objects/device_use.py": "pods",
    "objects/manifests.py": "DaemonSets and pods",
    "objects/plugin.py": "DaemonSets and pods",
    "tasks/task_kind.py": "pods",
}
"""Where a key is made of our domain, and what has it."""
OF_NODES = {
    "objects/loaded.py", "objects/node_keys.py", "objects/stage_labels.py", "objects/validated.py",
    "objects/yielding.py", "snapshot/inventory.py",
}  # fmt: skip
"""Where the same is done for Nodes, of which all is in the table."""

ROWS = [pytest.param(row, id=f"{row.kind} {row.key}") for row in NODE_KEYS]


def example(row: NodeKey, driver: str = "ns.gpu") -> str:
    """Name a key that a row is for."""
    key = row.key.replace("<namespace>.<name>", driver).replace("<kernel>", "6.1.0-2-amd64")
    return key.replace("<stage>", row.stages[-1] if row.stages else "")


def test_the_page_has_the_table() -> None:
    """``make docs`` writes it."""
    assert page() == PAGE.read_text()


def test_a_key_has_one_row_for_each_kind() -> None:
    """A label and an annotation may have one name."""
    assert len({(row.kind, row.key) for row in NODE_KEYS}) == len(NODE_KEYS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_everything(row: NodeKey) -> None:
    """In words that fit a cell of the page."""
    for text in (row.form, row.meaning, row.loss, row.admin):
        assert text
        assert text.isascii()
        assert not set(text) & set("|\n")
        assert not text.endswith((".", " "))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_for_its_own_keys(row: NodeKey) -> None:
    """No row is for a key of another one."""
    assert [other for other in NODE_KEYS if re.match(other.pattern, example(row)) and other.kind is row.kind] == [row]
    assert names.is_qualified_name(example(row))


# --- the policies -----------------------------------------------------------------------------------------------------


@cache
def policy(writer: Writer) -> Policy:
    """Compile the policy of a program; that of an agent that changes MIG layouts."""
    if writer is Writer.AGENT:
        return Policy(render(answering_rights(changes_mig=True), "driverwright", writer)[0])
    made, _ = read_documents((DEPLOY / f"{writer}.yaml").read_text())
    return Policy(made)


def accepts(writer: Writer, row: NodeKey, *, is_set: bool) -> bool:
    """Return whether a program may set a key of a row, or remove it."""
    key, value = example(row), names.MIG_STATES[0]
    there = {
        Kind.LABEL: label(key, value), Kind.ANNOTATION: annotation(key, value), Kind.TAINT: taint(key, "NoSchedule")
    }[row.kind]  # fmt: skip
    gone = merged(
        NODE, {Kind.LABEL: label(key, None), Kind.ANNOTATION: annotation(key, None), Kind.TAINT: {}}[row.kind]
    )
    new, old = merged(gone, there), gone
    user = f"system:serviceaccount:driverwright:{writer}"
    return policy(writer).review(Review(user, *((new, old) if is_set else (old, new)), OWN_NODE)) == ()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("writer", [Writer.BUILDER, Writer.WORKER, Writer.AGENT])
def test_a_program_may_write_what_the_table_says(writer: Writer, row: NodeKey) -> None:
    """With its admission policy, and nothing else of this domain."""
    assert accepts(writer, row, is_set=True) is (writer in row.writers)
    if names.GROUP in row.key:
        assert accepts(writer, row, is_set=False) is (writer in (*row.writers, *row.removers))


# --- what is written --------------------------------------------------------------------------------------------------


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Parse the modules of driver_builder."""
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def named(module: ast.Module) -> set[str]:
    """Return which names of ``kube_api.names`` a module has."""
    found = {alias.name for node in ast.walk(module) if isinstance(node, ast.ImportFrom)
             if node.module == "kube_api.names" for alias in node.names}  # fmt: skip
    attributes = (node for node in ast.walk(module) if isinstance(node, ast.Attribute))
    return found | {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "names"}


def test_every_name_of_a_key_that_the_code_has_is_of_a_row() -> None:
    """A key of ours on a Node has one name, in ``kube_api.names``, and stands in the table."""
    known = {row.key for row in NODE_KEYS} | OF_DRIVER_CONTAINERS | {names.PENDING_TAINT}
    parts = {names.GROUP, names.PENDING_PREFIX, names.READY_FOR_PREFIX}
    every = {name: getattr(names, name) for _, module in sources() for name in named(module) if hasattr(names, name)}
    keys = {
        name: value("<namespace>", "<name>") if name.endswith(("_label", "_taint", "_record")) else value
        for name, value in every.items()
        if name.endswith(("_label", "_taint", "_record")) or isinstance(value, str)
    }
    assert {name: key for name, key in keys.items() if names.GROUP in key and key not in known | parts} == {}


def makes_a_key(node: ast.AST) -> bool:
    """Return whether an expression puts something after our domain and a slash."""
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return any(
        isinstance(domain, ast.FormattedValue)
        and ast.unparse(domain.value) in ("GROUP", "names.GROUP")
        and isinstance(rest, ast.Constant)
        and str(rest.value).startswith("/")
        for domain, rest in pairwise(parts)
    )


def test_keys_are_made_in_few_places() -> None:
    """Whoever makes one of our domain says here what has it; for Nodes it is a row of the table."""
    made = {place for place, module in sources() if any(map(makes_a_key, ast.walk(module)))}
    assert made == OF_NODES | set(OF_OTHER_OBJECTS)
