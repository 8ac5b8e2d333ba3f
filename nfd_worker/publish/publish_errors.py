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
    NotFound: "node {node} does not exist: if it is not just joining, correct --node-name or NODE_NAME",
    Forbidden: "not allowed: a ClusterRole of the service account needs {rule}, as in deploy/nfd-worker/rbac.yaml",
    Unauthorized: "the credentials are not accepted: look at the service account's token, or at --kubeconfig",
    Invalid: "the API server does not accept what node {node} should carry: please report this as a bug of nfd-worker",
    Conflict: "node {node} was changed by others each time it was to be written",
    TooManyRequests: "the API server has too much to do",
    Unreachable: "the API server was not reached: see whether it is up, and its address and the credentials right",
}
_DENIED = (
    "not allowed, and not for a missing ClusterRole: the answer says which admission policy, webhook or proxy denies it"
)
_OTHERWISE = "the API server could not do it now"


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
