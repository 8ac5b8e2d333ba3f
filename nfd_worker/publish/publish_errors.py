"""Why publishing failed, in words that say what to do about it."""

from kube_api.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeApiError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

_REMEDIES: dict[type[KubeApiError], str] = {
    NotFound: "node {node} does not exist: unless it is just joining, correct --node-name or NODE_NAME",
    Forbidden: "not allowed: a ClusterRole of the service account needs {rule}, as in deploy/nfd-worker/rbac.yaml",
    Unauthorized: "the credentials were rejected: check the service account's token, or --kubeconfig",
    Invalid: "the API server rejected the metadata of node {node}: please report this as a bug in nfd-worker",
    Conflict: "node {node} was changed by other clients at each attempt to write it",
    TooManyRequests: "the API server is overloaded",
    Unreachable: "the API server could not be reached: check that it is up, and check its address and the credentials",
}
_DENIED = "forbidden, but not by RBAC: the response names the admission policy, webhook or proxy that denies it"
_OTHERWISE = "the API server failed temporarily"


def explain(error: KubeApiError, node_name: str) -> str:
    """Turn an error of the API server into a sentence with its remedy."""
    is_denied = isinstance(error, Forbidden) and not error.lacks_permission
    remedy = _DENIED if is_denied else _REMEDIES.get(type(error), _OTHERWISE)
    return f"{remedy.format(node=node_name, rule=_rule(error.message))} ({error})"


def _rule(message: str) -> str:
    """Read from ``PATCH /api/v1/nodes/a/status?...: 403 ...`` which rule would have allowed it."""
    method, _, rest = message.partition(" ")
    path = rest.partition(":")[0].partition("?")[0]
    return f"the verb {method.lower()} on {'nodes/status' if path.endswith('/status') else 'nodes'}"
