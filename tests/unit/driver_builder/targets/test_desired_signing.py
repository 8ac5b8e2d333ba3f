"""What the certificate of modules does to what a target should run, and to the build key."""

from collections.abc import Mapping

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model.build import BuildRequest, Signing
from driver_builder.snapshot import inventory
from driver_builder.snapshot.snapshot import Certificate, CertificateMissing, SigningCertificate
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    ImageTarget,
    SkippedTarget,
    TargetToBuild,
    TemplateVersions,
)
from driver_builder.targets.resolve import resolve_each
from driver_builder.targets.resolve_target import BuildInputs
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL, SOURCE, driver, node, spec_of

SIGNING = {"keySecretRef": {"name": "key"}, "certificateSecretRef": {"name": "public"}}
OTHERS = {"keySecretRef": {"name": "key-2"}, "certificateSecretRef": {"name": "public-2"}}
KNOWN = {f"{NAMESPACE}/public": SigningCertificate(der=b"1"), f"{NAMESPACE}/public-2": SigningCertificate(der=b"2")}


def wished(certificates: Mapping[str, Certificate] = KNOWN, **changes: object) -> dict[str, DesiredTarget]:
    """Return what two nodes on two kernels should run, by kernel."""
    container = driver(spec_changes=dict(changes))
    inputs = BuildInputs(
        container,
        spec_of(container),
        SOURCE,
        None,
        Rebuilds(requests={}, tokens={}),
        TemplateVersions(versions={"debian": "r"}),
        certificates,
    )
    items = resolve_each(inputs, inventory.take([node("a", KERNEL), node("b", OTHER_KERNEL)], {}))
    return {item.target.kernel_version: item for item in items}


def request(items: Mapping[str, DesiredTarget], kernel: str = KERNEL) -> BuildRequest:
    """The request of a target that is to be built."""
    item = items[kernel]
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    return item.request


def test_the_certificate_is_in_the_request_and_in_the_key() -> None:
    """Another certificate is another image; the place of the keys is given by name only."""
    plain, signed = request(wished()), request(wished(signing=SIGNING))
    assert (plain.signing_certificate, plain.signing) == (None, None)
    assert signed.signing_certificate == b"1"
    assert signed.signing == Signing(key_secret="key", certificate_secret="public")
    renewed = request(wished({f"{NAMESPACE}/public": SigningCertificate(der=b"3")}, signing=SIGNING))
    assert len({plain.key, signed.key, renewed.key}) == 3


def test_the_key_of_images_changes_no_image() -> None:
    """A signature lies beside it."""
    assert request(wished(signing={"imageKeySecretRef": {"name": "i"}})).key == request(wished()).key


def test_a_mapping_stands_in_for_the_spec() -> None:
    """For its kernels, and for nothing else."""
    rules = [{"literal": OTHER_KERNEL, "signing": OTHERS}, {"regexp": ".*"}]
    items = wished(signing=SIGNING, kernelMappings=rules)
    assert request(items).signing_certificate == b"1"
    other = request(items, OTHER_KERNEL)
    assert other.signing_certificate == b"2"
    assert other.signing == Signing(key_secret="key-2", certificate_secret="public-2")


def test_a_mapping_may_sign_nothing_but_images() -> None:
    """What it says stands in for all of the spec's."""
    rules = [{"regexp": ".*", "signing": {"imageKeySecretRef": {"name": "i"}}}]
    items = wished({}, signing=SIGNING, kernelMappings=rules)
    assert request(items).signing_certificate is None


@pytest.mark.parametrize(
    ("certificates", "reason", "message"),
    [
        pytest.param(
            {f"{NAMESPACE}/public": CertificateMissing(message="make it")},
            Reason.SIGNING_CERTIFICATE_MISSING,
            "make it",
            id="missing",
        ),
        pytest.param(
            {f"{NAMESPACE}/public": CertificateMissing(message="mend it", is_invalid=True)},
            Reason.INVALID_SIGNING_CERTIFICATE,
            "mend it",
            id="invalid",
        ),
        pytest.param(
            {}, Reason.SIGNING_CERTIFICATE_MISSING, "the signing certificate has not been read yet", id="unread"
        ),
    ],
)
def test_without_its_certificate_nothing_is_built(
    certificates: Mapping[str, Certificate], reason: Reason, message: str
) -> None:
    """The targets wait, and say for what; a kernel that is signed with another one does not."""
    rules = [{"literal": OTHER_KERNEL, "signing": OTHERS}, {"regexp": ".*"}]
    other = {f"{NAMESPACE}/public-2": KNOWN[f"{NAMESPACE}/public-2"]}
    items = wished({**certificates, **other}, signing=SIGNING, kernelMappings=rules)
    item = items[KERNEL]
    assert isinstance(item, SkippedTarget | BlockedTarget)
    assert (item.state, item.reason, item.message) == (TargetState.PENDING, reason, message)
    assert isinstance(items[OTHER_KERNEL], ImageTarget)
