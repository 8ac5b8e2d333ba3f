"""Where each kind of object is below the API server's root."""

from typing import NamedTuple


class Resource(NamedTuple):
    """One REST resource: ``group`` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``, as written into an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Build the URL path of a collection, an object or a subresource.

        Without ``namespace`` a namespaced resource means all namespaces, which names no single object.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and name is not None and namespace is None:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = [root]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
OWN_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
"""What is posted to either is answered, and not stored."""
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DRIVER_CONTAINERS = Resource("driverwright.io", "v1alpha1", "drivercontainers", "DriverContainer")
NODE_FEATURE_RULES = Resource("nfd.k8s-sigs.io", "v1alpha1", "nodefeaturerules", "NodeFeatureRule", namespaced=False)
NODE_FEATURES = Resource("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature")

_ALL = (
    NODES, NAMESPACES, PODS, SECRETS, CONFIG_MAPS, EVENTS, SERVICE_ACCOUNTS, DAEMON_SETS, DEPLOYMENTS, JOBS, LEASES,
    ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, CUSTOM_RESOURCE_DEFINITIONS, DRIVER_CONTAINERS,
    NODE_FEATURE_RULES, NODE_FEATURES, RESOURCE_CLAIMS, RESOURCE_SLICES,
)  # fmt: skip


def of(obj: dict[str, object]) -> Resource:
    """Find the resource of an object by its apiVersion and kind.

    Raises:
        KeyError: for a kind that this project never handles.
    """
    for resource in _ALL:
        if (resource.api_version, resource.kind) == (obj.get("apiVersion"), obj.get("kind")):
            return resource
    raise KeyError(f"no resource known for {obj.get('apiVersion')} {obj.get('kind')}")
