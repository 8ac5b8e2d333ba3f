"""Whether an image that a registry has may run on nodes: a tag alone proves nothing. Pure.

Place in the flow: ``plan_target`` calls it before an image is rolled out, ``gate`` before a node may boot its kernel;
``observe`` asks which key an image must be signed with. A refusal changes nothing that runs.

- The label with the build key must equal the key. The key is public: this is a check against mistakes.
- The digest that was rolled out is kept in ``status.targets[].imageDigest``. A tag that names another one is accepted
  only if a build of this controller ended with it, the DaemonSet has it already, the new image is signed with the
  driver's image key, or an admin accepts its digest.
- With an image key every image must be signed, except one that the spec names by digest.
- An image must say which modules it has; otherwise any module of that name would prove that it works. One that the
  DaemonSet has already is left there.
"""

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import TargetStatus, Trouble
from driver_builder.base.reasons import Reason
from driver_builder.model import images
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.rollout.plan_rollout import identities
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import ImageTarget, PrebuiltTarget, TargetToBuild
from kube_api import names

_SHORT_DIGEST = len("sha256:") + 12


def image_key(spec: DriverSpec, item: ImageTarget) -> str | None:
    """Return the name of the Secret with the key that an image must be signed with; None if it need not be."""
    if isinstance(item, TargetToBuild):
        return item.request.signing.image_key_secret if item.request.signing else None
    if _is_digest(item.image):
        return None
    return spec.signing.image_key_secret if spec.signing else None


def pin(before: TargetStatus | None, image: ImageRef) -> str:
    """The digest of an image that was rolled out, or found, before; empty if there was none."""
    return before.digest if before is not None and before.image == str(image) else ""


def refusal(
    snapshot: Snapshot,
    driver: DriverContainer,
    spec: DriverSpec,
    item: ImageTarget,
    state: Present,
    *,
    before: TargetStatus | None,
) -> Trouble | None:
    """Return why an image may not run, None if it may; ``before`` is its target's previous status."""
    return (
        _moved(snapshot, driver, item, state, pin(before, item.image))
        or _foreign(item, state)
        or _unsigned(spec, item, state)
        or _without_identities(snapshot, driver, spec, item, state)
    )


def _moved(
    snapshot: Snapshot, driver: DriverContainer, item: ImageTarget, state: Present, pinned: str
) -> Trouble | None:
    if not pinned or pinned == state.digest or _is_digest(item.image):
        return None
    is_ours = snapshot.pushed.get(item.image) == state.digest or _is_rolled_out(snapshot, driver, item, state)
    if is_ours or state.is_signed or state.digest in driver.accepted_digests:
        return None
    command = (
        f"kubectl -n {driver.namespace} annotate drivercontainer {driver.name} --overwrite"
        f" {names.ACCEPT_DIGEST_ANNOTATION}={state.digest}"
    )
    return Trouble(
        reason=Reason.TAG_MOVED,
        # The command first: a message is cut at its end.
        message=(
            f"{command} accepts the new image, if the tag was moved on purpose: {pinned[:_SHORT_DIGEST]} was rolled out"
            f" and stays, and another image is under {item.image}"
        ),
    )


def _is_rolled_out(snapshot: Snapshot, driver: DriverContainer, item: ImageTarget, state: Present) -> bool:
    """Return whether the target's DaemonSet has the image already, which may be known before the status says so."""
    image = str(item.image.at(state.digest))
    return any(
        found.driver == driver.key and found.target == item.target.short_hash and found.image == image
        for found in snapshot.daemon_sets
    )


def _foreign(item: ImageTarget, state: Present) -> Trouble | None:
    if isinstance(item, PrebuiltTarget) or state.labels.get(images.KEY_LABEL) == item.request.key:
        return None
    return Trouble(
        reason=Reason.WRONG_BUILD_KEY,
        message=(
            f"{item.image.at(state.digest)} does not have the label {images.KEY_LABEL}={item.request.key}, so it is not"
            f" the image that was built as {item.image}"
        ),
    )


def _unsigned(spec: DriverSpec, item: ImageTarget, state: Present) -> Trouble | None:
    secret = image_key(spec, item)
    if secret is None or state.is_signed:
        return None
    return Trouble(
        reason=Reason.IMAGE_NOT_SIGNED,
        message=(
            f"{item.image.at(state.digest)} is not signed with the key of Secret {secret}"
            " (spec.signing.imageKeySecretRef)"
        ),
    )


def _without_identities(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, item: ImageTarget, state: Present
) -> Trouble | None:
    if spec.module.trust_image or identities(state.labels) or _is_rolled_out(snapshot, driver, item, state):
        return None
    return Trouble(
        reason=Reason.NO_IDENTITY,
        message=(
            f"{item.image.at(state.digest)} does not say which modules it has (label {images.MODULES_LABEL}), so"
            " nothing could prove that they run; what runs stays"
        ),
    )


def _is_digest(image: ImageRef) -> bool:
    return image.reference.startswith("sha256:")
