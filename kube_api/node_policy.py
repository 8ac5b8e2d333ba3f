"""What one service account may change of a Node, as a ValidatingAdmissionPolicy for servers from 1.30. Pure.

RBAC allows a verb on all Nodes and all of their fields, or not at all. The policy limits what RBAC allows: by key, and
where ``own_node`` is set to the Node that the token's pod runs on. Each program makes its :class:`NodeRights` from what
it writes (``nfd_worker/publish/node_rights.py``, ``driver_builder/controller/node_rights.py``).

A key that is not allowed refuses the whole request. What a request leaves unchanged is not looked at. The policy has no
parameter object: while that was missing, every writer of Nodes would be refused.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

Json = dict[str, Any]

_GROUP_VERSION = "admissionregistration.k8s.io/v1"

_LONGEST_PLAIN = 80
"""Characters of a text that YAML does not fold."""

_NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"  # noqa: S105 - the name of a claim
"""Of a token that is bound to a pod: 1.30 and later put the pod's node there."""

NEVER = "false"
"""A condition on no key."""


class Keys(NamedTuple):
    """Which keys of a map may be written: CEL conditions on ``k``.

    ``change``: added, or given another value. ``remove``: taken away; for ``resources`` not narrower than ``change``.
    Of labels and annotations the value may be limited as well: :func:`becomes`, :func:`was`.
    """

    change: str = NEVER
    remove: str = NEVER


NOTHING = Keys()

_ALWAYS = ("labels", "annotations")
"""What is in no other condition; taints and resources are also compared with the rest of spec and status."""


class NodeRights(NamedTuple):
    """What an account writes to Nodes.

    ``program``: its name in messages; also that of the policy, with a prefix. ``taints``: by their keys.
    ``resources``: in ``status.capacity`` and ``status.allocatable``.
    ``own_node``: only the Node that the token's pod runs on.
    """

    program: str
    labels: Keys = NOTHING
    annotations: Keys = NOTHING
    taints: Keys = NOTHING
    resources: Keys = NOTHING
    own_node: bool = False


_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*")


def parse_account(text: str) -> tuple[str, str] | None:
    """Read ``namespace/name`` of a service account; None for anything else."""
    namespace, _, name = text.partition("/")
    return (namespace, name) if _ACCOUNT.fullmatch(text) else None


def render(rights: NodeRights, namespace: str, account: str, name: str = "") -> tuple[Json, Json]:
    """Make the policy for a service account, and the binding that puts it in force; ``name``: theirs."""
    name = name or f"driverwright-{rights.program}"
    user = f"system:serviceaccount:{namespace}:{account}"
    policy = {
        "apiVersion": _GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["nodes", "nodes/status"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "by-its-account", "expression": f"request.userInfo.username == {text_literal(user)}"}
            ],
            "variables": [{"name": key, "expression": expression} for key, expression in _variables(rights)],
            "validations": list(_validations(rights)),
        },
    }
    binding = {
        "apiVersion": _GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def to_yaml(documents: Iterable[Json], comment: str) -> str:
    """Write manifests below a comment, whose lines begin with ``#``."""
    texts = (
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for document in documents
    )
    return comment + "---\n".join(texts)


# --- CEL --------------------------------------------------------------------------------------------------------------


def text_literal(text: str) -> str:
    """Write a text as a string of CEL; JSON's escapes are among CEL's."""
    if text.isprintable() and "'" not in text and "\\" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)


def text_list(texts: Iterable[str]) -> str:
    """Write texts as a list of CEL, one a line."""
    lines = (f"  {text_literal(text)}" for text in texts)
    return "[\n{}\n]".format(",\n".join(lines))


def any_of(*conditions: str) -> str:
    """Join conditions, one a line."""
    return "\n|| ".join(conditions)


def is_key(key: str) -> str:
    """Make the condition that ``k`` is this key."""
    return f"k == {text_literal(key)}"


def begins_with(prefix: str) -> str:
    """Make the condition that ``k`` begins with these characters."""
    return f"k.startsWith({text_literal(prefix)})"


def becomes(name: str, *values: str) -> str:
    """Make the condition that ``k`` of ``labels`` or ``annotations`` gets one of these values; for ``change`` alone."""
    return _is_one_of(f"variables.{name}[k]", values)


def was(name: str, *values: str) -> str:
    """Make the condition that ``k`` of ``labels`` or ``annotations`` had one of these values."""
    return f"k in variables.{_old(name)} && {_is_one_of(f'variables.{_old(name)}[k]', values)}"


def is_there(name: str) -> str:
    """Make the condition that ``labels`` or ``annotations`` had ``k`` before."""
    return f"k in variables.{_old(name)}"


def _is_one_of(value: str, values: Iterable[str]) -> str:
    return f"{value} in [{', '.join(map(text_literal, values))}]"


def matches(*patterns: str) -> str:
    """Make the condition that ``k`` matches one of these expressions of RE2 from its beginning."""
    joined = patterns[0] if len(patterns) == 1 else f"({'|'.join(patterns)})"
    return f"k.matches({text_literal(f'^{joined}')})"


def in_namespaces(*patterns: str) -> str:
    """Make the condition that the namespace of ``k``, all before the slash, matches one of these expressions of RE2."""
    joined = patterns[0] if len(patterns) == 1 else f"({'|'.join(patterns)})"
    return f"k.matches({text_literal(f'^{joined}/')})"


def literal(text: str) -> str:
    """Write the namespace of a key, which has letters, digits, dots and dashes, as an expression of RE2."""
    return text.replace(".", "[.]")


def within(namespace: str) -> str:
    """Make the expression of RE2 for a namespace and all below it."""
    return f"([^/]+[.])?{literal(namespace)}"


# --- the policy -------------------------------------------------------------------------------------------------------


def _variables(rights: NodeRights) -> Iterator[tuple[str, str]]:
    if rights.own_node:
        claim = text_literal(_NODE_OF_TOKEN)
        # Empty for a token that is not bound to a pod on a node.
        has_node = f"has(request.userInfo.extra) && {claim} in request.userInfo.extra"
        yield "ownNode", f"{has_node}\n? request.userInfo.extra[{claim}][0] : ''"
    for name, keys in (("labels", rights.labels), ("annotations", rights.annotations)):
        yield from _both(name, f"metadata.{name}", "{}")
        yield from _changes(name)
        yield f"refused{_capital(name)}", _refused(name, keys)
    # As maps: later releases have more fields, and these may not be changed either.
    for name in ("spec", "status"):
        yield name, f"has(object.{name}) ? dyn(object.{name}) : dyn({{}})"
        yield _old(name), f"oldObject != null && has(oldObject.{name}) ? dyn(oldObject.{name}) : dyn({{}})"
    if rights.taints != NOTHING:
        yield from _both("taints", "spec.taints", "[]")
        yield "changedTaints", "variables.taints.filter(t, !(t in variables.oldTaints)).map(t, t.key)"
        yield "removedTaints", "variables.oldTaints.filter(t, !(t in variables.taints)).map(t, t.key)"
        yield "refusedTaints", _refused("taints", rights.taints)
    if rights.resources != NOTHING:
        for name in ("capacity", "allocatable"):
            yield from _both(name, f"status.{name}", "{}")
            yield from _changes(name)
        refused = f"{_refused('capacity', rights.resources)}\n+ {_refused('allocatable', _restored(rights.resources))}"
        yield "refusedResources", refused


def _both(name: str, field: str, empty: str) -> Iterator[tuple[str, str]]:
    parent = field.partition(".")[0]
    yield name, f"has(object.{parent}) && has(object.{field}) ? object.{field} : {empty}"
    is_there = f"oldObject != null && has(oldObject.{parent}) && has(oldObject.{field})"
    yield _old(name), f"{is_there}\n? oldObject.{field} : {empty}"


def _old(name: str) -> str:
    return f"old{_capital(name)}"


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


def _changes(name: str) -> Iterator[tuple[str, str]]:
    """List the keys of a map that are added or have another value, and those that are gone."""
    new, old = f"variables.{name}", f"variables.{_old(name)}"
    yield f"changed{_capital(name)}", f"{new}.filter(k,\n  !(k in {old}) || {old}[k] != {new}[k]\n)"
    yield f"removed{_capital(name)}", f"{old}.filter(k, !(k in {new}))"


def _refused(name: str, keys: Keys) -> str:
    """List the keys that may not be changed, or not removed."""
    changed, removed = f"variables.changed{_capital(name)}", f"variables.removed{_capital(name)}"
    if keys.change == keys.remove:
        return _but(f"({changed} + {removed})", keys.change)
    return f"{_but(changed, keys.change)}\n+ {_but(removed, keys.remove)}"


def _restored(keys: Keys) -> Keys:
    """Widen what may be set in ``allocatable``: what the kubelet drops there gets the value that capacity still has."""
    if keys.change == keys.remove:
        return keys
    is_there = "k in variables.oldCapacity && variables.oldCapacity[k] == variables.allocatable[k]"
    restored = f"{is_there} && (\n{_indented(keys.remove)}\n)"
    return Keys(restored if keys.change == NEVER else any_of(keys.change, restored), keys.remove)


def _but(keys: str, condition: str) -> str:
    return keys if condition == NEVER else f"{keys}.filter(k, !(\n{_indented(condition)}\n))"


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.split("\n"))


def _validations(rights: NodeRights) -> Iterator[Json]:
    program = rights.program
    if rights.own_node:
        no_node = f"{program} may change a Node only with the token of a pod that runs on it; this token names no node"
        yield _validation(
            "variables.ownNode != '' && request.name == variables.ownNode",
            f"{program} may change only the Node that it runs on",
            f"variables.ownNode == ''\n? {text_literal(no_node)}\n: {text_literal(f'{program} on node ')}"
            " + variables.ownNode + ' may not change node ' + request.name",
        )
    for name, keys in (
        ("labels", rights.labels),
        ("annotations", rights.annotations),
        ("taints", rights.taints),
        ("resources", rights.resources),
    ):
        if keys != NOTHING or name in _ALWAYS:
            may_not, refused = f"{program} may not change these {name}", f"variables.refused{_capital(name)}"
            yield _validation(
                f"{refused}.size() == 0", may_not, f"{text_literal(f'{may_not}: ')} + {refused}.join(', ')"
            )
    owns_taints, owns_resources = rights.taints != NOTHING, rights.resources != NOTHING
    # With an owner that does not exist, the garbage collector deletes the Node.
    yield _validation(
        "oldObject != null\n&& object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences\n"
        "&& object.metadata.?finalizers == oldObject.metadata.?finalizers\n"
        f"&& {_same('spec', ['taints'] if owns_taints else [])}",
        f"{program} may {_listed(rights)}",
    )
    yield _validation(
        _same("status", ["capacity", "allocatable"] if owns_resources else []),
        f"{program} may change extended resources in the status of a Node, and nothing else"
        if owns_resources
        else f"{program} may not change the status of a Node",
    )


def _listed(rights: NodeRights) -> str:
    """Say what may be changed at all."""
    parts = {
        "labels": rights.labels,
        "annotations": rights.annotations,
        "taints": rights.taints,
        "extended resources": rights.resources,
    }
    names = [name for name, keys in parts.items() if keys != NOTHING]
    if not names:
        return "not change a Node"
    *some, last = names
    return f"change {', '.join(some)} and {last} of a Node, and nothing else"


def _same(name: str, but: list[str]) -> str:
    """Make the condition that all fields of a part but these are as they were."""
    new, old = f"variables.{name}", f"variables.{_old(name)}"
    free = f"k in {[*but]} || " if but else ""
    return f"{new}.all(k,\n  {free}k in {old} && {old}[k] == {new}[k]\n)\n&& {old}.all(k, {free}k in {new})"


def _validation(expression: str, message: str, message_expression: str = "") -> Json:
    """``message`` stands in for a ``message_expression`` whose value is too long."""
    dynamic = {"messageExpression": message_expression} if message_expression else {}
    return {"expression": expression, "reason": "Forbidden", "message": message, **dynamic}


# --- YAML -------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes expressions line by line, and lists below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=indentless and flow)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else ">" if text.startswith("'") or len(text) > _LONGEST_PLAIN else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
