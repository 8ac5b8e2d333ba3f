"""What counts as needed."""

from dataclasses import replace

import pytest

from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image
from driver_builder.retention.needed import Needed, needed
from driver_builder.snapshot.snapshot import CertificateMissing, Snapshot, SourceMissing
from driver_builder.targets.resolve_all import resolve_all
from tests.support.driver_builder import factories
from tests.unit.driver_builder.retention.test_record import pushed

MINE = pushed()
HOST, REPOSITORY = "registry.example.com:5000", "drivers/edu"


def of(seen: Snapshot) -> Needed:
    """What a snapshot needs."""
    versions = factories.SETTINGS.template_versions
    return needed(seen, resolve_all(seen, versions), versions)


def why(seen: Snapshot, image: str = str(MINE.image), digest: str = MINE.digest) -> str:
    """What an image is needed for."""
    host, _, rest = image.partition("/")
    repository, _, tag = rest.partition(":")
    return of(seen).why(replace(MINE, image=ImageRef(host, repository, tag), digest=digest))


def test_an_image_that_nothing_names_is_not_needed() -> None:
    """The driver wants another one."""
    assert why(factories.snapshot()) == ""


def test_an_image_that_a_target_wants_is_needed_before_any_registry_is_asked() -> None:
    """By its tag."""
    seen = factories.snapshot()
    (item,) = factories.wanted(seen)
    assert why(seen, str(item.image)) == "a driver wants it"


def test_the_toolchain_of_a_wanted_image_is_needed_with_it() -> None:
    """Its kernel may get another version, and its headers may have left the archives; that of another kernel is not."""
    seen = factories.snapshot()
    (item,) = factories.wanted(seen)
    assert item.request is not None
    toolchain = toolchain_image(item.request, item.image)
    assert why(seen, str(toolchain)) == "a driver wants it"
    assert of(seen).toolchains == {toolchain}
    other = replace(item.request, target=factories.target(factories.OTHER_KERNEL))
    assert why(seen, str(toolchain_image(other, item.image))) == ""


def test_a_version_may_be_called_like_a_toolchain() -> None:
    """Its image is a driver's: bundle does not take it for what may be absent."""
    seen = factories.snapshot(drivers=(factories.driver(spec_changes={"version": "toolchain-2"}),))
    (item,) = factories.wanted(seen)
    assert item.image.reference.startswith("toolchain-2-")
    assert item.request is not None
    assert of(seen).toolchains == {toolchain_image(item.request, item.image)}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(
            factories.snapshot(
                drivers=(factories.driver(spec_changes={"kernelMappings": [{"literal": "6.9", "image": image}]}),)
            ),
            id=name,
        )
        for name, image in (("tag", str(MINE.image)), ("digest", f"{HOST}/{REPOSITORY}@{MINE.digest}"))
    ],
)
def test_a_prebuilt_image_of_a_mapping_is_needed_also_without_a_node(seen: Snapshot) -> None:
    """A mapping may name an image that was pushed from here, by tag or digest."""
    assert why(seen)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"status": {"targets": [{"imageDigest": MINE.digest}]}}, id="rolled out"),
        pytest.param({"status": {"ahead": [{"imageDigest": MINE.digest}]}}, id="prebuilt"),
        pytest.param({"status": {"rollout": {"lastGood": {"x": f"r/e@{MINE.digest}"}}}}, id="whatever a wave records"),
        pytest.param({"accepted_digests": frozenset({MINE.digest})}, id="accepted"),
    ],
)
def test_a_digest_that_a_driver_names_is_needed(changes: dict[str, object]) -> None:
    """Wherever its status has it."""
    driver = replace(factories.driver(), **changes)  # type: ignore[arg-type]
    assert why(factories.snapshot(drivers=(driver,)))


def test_an_image_that_a_daemon_set_or_a_pod_has_is_needed() -> None:
    """A pod may run another one than its DaemonSet names."""
    seen = factories.ready_snapshot()
    image = f"{HOST}/{REPOSITORY}@{MINE.digest}"
    assert why(seen) == ""
    assert why(replace(seen, daemon_sets=(replace(seen.daemon_sets[0], image=image),)))
    assert why(replace(seen, pods=(replace(seen.pods[0], image=image),)))


SIGNED = {"signing": {"certificateSecretRef": {"name": "c"}, "keySecretRef": {"name": "k"}}}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(factories.snapshot(drivers=(factories.driver(spec_changes={"module": None}),)), id="invalid spec"),
        pytest.param(
            factories.snapshot(sources={"driverwright/edu": SourceMissing(message="gone")}), id="missing source"
        ),
        pytest.param(
            factories.snapshot(templates={"driverwright/edu": SourceMissing(message="gone")}), id="missing template"
        ),
        pytest.param(
            factories.snapshot(
                drivers=(factories.driver(spec_changes=SIGNED),),
                certificates={"driverwright/c": CertificateMissing(message="gone")},
            ),
            id="missing certificate",
        ),
    ],
)
def test_all_images_are_needed_of_a_driver_that_cannot_be_read(seen: Snapshot) -> None:
    """Nobody knows which ones it wants; those of other drivers are not concerned."""
    assert why(seen) == "what driverwright/edu wants cannot be read"
    assert of(seen).why(replace(MINE, driver=DriverKey("driverwright/other"))) == ""


def test_a_deleted_driver_needs_only_what_is_rolled_out() -> None:
    """It wants nothing any more."""
    assert why(factories.snapshot(drivers=(factories.driver(deleting=True),))) == ""
