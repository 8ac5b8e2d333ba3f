"""What our short-lived pods have in common that do one thing on one node: unload, validate, prove, pull. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.model.driver_key import DriverKey
from driver_builder.objects.manifests import DRIVER_LABEL, owner_reference
from kube_api.resources import PODS

Json = dict[str, Any]


class PodKind(StrEnum):
    """What such a pod does."""

    UNLOAD = "unload"
    VALIDATION = "validation"
    PROOF = "proof"
    PULL = "pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """What is known of each such pod; ``driver`` is its driver's key."""

    kind: ClassVar[PodKind]
    namespace: str
    name: str
    uid: str
    driver: DriverKey
    node: str
    deleting: bool = False


def name_of(driver: DriverKey, verb: str, *parts: str, longest: int) -> str:
    """Return the name of a driver's (``namespace/name``) pod for a node, and what else: always the same.

    Of the driver's name it has the first ``longest`` characters.
    """
    digest = hashlib.sha256("\0".join((driver, *parts)).encode()).hexdigest()[:10]
    return f"{driver.name[:longest].rstrip('-.')}-{verb}-{digest}"


def manifest(
    driver: DriverKey,
    *,
    name: str,
    node: str,
    labels: Mapping[str, str],
    owner: DriverContainer | None,
    pod: Json,
) -> Json:
    """Build a pod that is bound to a node; ``pod`` is the rest of its spec.

    ``owner`` is the DriverContainer while it exists: the pod is deleted with it, and has its pull Secrets and priority.
    """
    spec = owner.spec if owner is not None and isinstance(owner.spec, DriverSpec) else None
    secrets = [{"name": secret} for secret in spec.image_pull_secrets] if spec is not None else []
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": driver.namespace,
            "labels": {"app.kubernetes.io/managed-by": "driver-builder", DRIVER_LABEL: driver.name, **labels},
            **({"ownerReferences": [owner_reference(owner, blocks_deletion=False)]} if owner is not None else {}),
        },
        "spec": {
            # Bound here: no scheduler refuses it a place on a node that is cordoned, full or tainted.
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "priorityClassName": (spec and spec.priority_class_name) or "system-node-critical",
            "restartPolicy": "Never",
            **pod,
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }
