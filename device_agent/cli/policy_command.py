"""``device-agent admission-policy``: what a token of an account of the agent may change of Nodes.

Nothing, whatever roles it is given; or, with ``--account``, the answer about the profile of its own Node, and with
``--mig`` also what a MIG change needs there, together with the roles for it.
"""

import sys
from typing import Any

from device_agent.errors import ConfigurationError
from device_agent.event import NODES_NAMESPACE
from device_agent.node_rights import PROGRAM, answering_rights, node_rights
from kube_api.node_policy import parse_account, render, to_yaml

Json = dict[str, Any]

_COMMENT = """\
# Made by "device-agent admission-policy": do not edit it, print it again (docs/security.md).
# Needs Kubernetes 1.30 or later, and tokens that name their pod's node, which is the default there.
"""

_ACCOUNT_COMMENT = """\
# Made by "device-agent admission-policy --account": do not edit it, print it again (docs/security.md).
# The policy needs Kubernetes 1.30 or later. Without it, this account may change every label of every node.
"""

_MIG_COMMENT = """\
# It also has what MIG changes need, the request to evict pods too (docs/security.md#what-mig-changes-may-do).
"""

_RBAC = "rbac.authorization.k8s.io"
_LONGEST_NAME = 253


def print_manifest(service_account: str, account: str | None, *, limits_memory: bool, changes_mig: bool) -> int:
    """Print the policy of the account without roles, or with ``account`` what that one needs.

    Raises:
        ConfigurationError: as :func:`print_policy` and :func:`print_rights`, or there is nobody to give rights to.
    """
    if account is not None:
        return print_rights(account, limits_memory=limits_memory, changes_mig=changes_mig)
    for flag, is_given in (("--memory-limits", limits_memory), ("--mig", changes_mig)):
        if is_given:
            raise ConfigurationError(f"{flag}: it adds to the rights of an account: set --account as well")
    return print_policy(service_account)


def print_policy(service_account: str) -> int:
    """Print policy and binding for the service account ``namespace/name``.

    Raises:
        ConfigurationError: when it is not so named.
    """
    account = parse_account(service_account)
    if account is None:
        raise ConfigurationError(f"--service-account: {service_account!r} is not of the form NAMESPACE/NAME")
    sys.stdout.write(to_yaml(render(node_rights(), *account), _COMMENT))
    return 0


def print_rights(account: str, *, limits_memory: bool = False, changes_mig: bool = False) -> int:
    """Print policy, roles and bindings for an account ``namespace/name`` that answers which profile a Node has.

    ``limits_memory``: it also writes Events on pods, in whatever namespace they are. ``changes_mig``: it also changes
    MIG layouts as the Node asks.

    Raises:
        ConfigurationError: when it is not so named, or the name is too long for those of roles and policy.
    """
    parsed = parse_account(account)
    if parsed is None:
        raise ConfigurationError(f"--account: {account!r} is not of the form NAMESPACE/NAME")
    # No namespace has a dot: two accounts never have one name.
    name = f"driverwright-{PROGRAM}.{parsed[0]}.{parsed[1]}"
    if len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"--account: {account!r} is too long: choose a shorter name")
    policy = render(answering_rights(changes_mig=changes_mig), *parsed, name)
    documents = (*policy, *_roles(name, *parsed, limits_memory=limits_memory))
    sys.stdout.write(to_yaml(documents, _ACCOUNT_COMMENT + (_MIG_COMMENT if changes_mig else "")))
    return 0


def _roles(name: str, namespace: str, account: str, *, limits_memory: bool) -> tuple[Json, ...]:
    """Make the roles and their bindings. RBAC cannot name the Node that a pod runs on: the policy does."""
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    cluster, local = {"name": name}, {"name": name, "namespace": NODES_NAMESPACE}
    return (
        _object("ClusterRole", cluster, rules=[nodes, *([_events()] if limits_memory else [])]),
        _object("ClusterRoleBinding", cluster, roleRef=_reference("ClusterRole", name), subjects=[subject]),
        _object("Role", local, rules=[_events()]),
        _object("RoleBinding", local, roleRef=_reference("Role", name), subjects=[dict(subject)]),
    )


def _events() -> Json:
    return {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}


def _object(kind: str, metadata: Json, **rest: object) -> Json:
    # Each has its own metadata: of one that two share, YAML would make an alias.
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": dict(metadata), **rest}


def _reference(kind: str, name: str) -> Json:
    return {"apiGroup": _RBAC, "kind": kind, "name": name}
