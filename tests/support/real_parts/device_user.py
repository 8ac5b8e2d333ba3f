"""A program that uses a device of one node, and that comes back when its pod is evicted."""

from demo.cluster import NAMESPACE, Json


def deployment(name: str, node: str, container: Json, volumes: tuple[Json, ...] = ()) -> Json:
    """Make a Deployment of one pod on a node, by an image that the node has; its pods have the label ``app``."""
    labels = {"app": name}
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "user", "imagePullPolicy": "IfNotPresent", **container}],
        "volumes": [*volumes],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
