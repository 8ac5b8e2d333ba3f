"""What each target should run, or why it should run nothing."""

import pytest

from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model.build import OwnTemplate, SourceImage
from driver_builder.model.driver_key import DriverKey
from driver_builder.snapshot import inventory
from driver_builder.snapshot.snapshot import SourceMissing
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    ImageTarget,
    SkippedTarget,
    TargetToBuild,
    TemplateVersions,
)
from driver_builder.targets.resolve import resolve_each
from driver_builder.targets.resolve_target import BuildInputs, First
from tests.support.driver_builder.factories import (
    DIGEST,
    OTHER_KERNEL,
    SOURCE,
    driver,
    node,
    snapshot,
    spec_of,
    target,
    wanted,
)

NO_REBUILDS = Rebuilds(requests={}, tokens={})


def wished(
    *,
    rebuilds: Rebuilds = NO_REBUILDS,
    template: OwnTemplate | SourceMissing | None = None,
    first: tuple[First, ...] = (),
    **spec_changes: object,
) -> tuple[DesiredTarget, ...]:
    """Return what two nodes on two kernels should run."""
    container = driver(spec_changes=dict(spec_changes))
    inputs = BuildInputs(
        container,
        spec_of(container),
        SOURCE,
        template,
        rebuilds,
        TemplateVersions(versions={"debian": "r"}, deadline_seconds=5.0),
        {},
        first=first,
    )
    return tuple(resolve_each(inputs, inventory.take([node("a"), node("b", OTHER_KERNEL)], {})))


def key_of(item: DesiredTarget) -> str:
    """Return the build key of a target that is to be built."""
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    return item.request.key


def test_each_kernel_has_an_image_of_its_own() -> None:
    """Same repository, another tag, and a request that would build it."""
    first, second = wished()
    assert isinstance(first, ImageTarget)
    assert isinstance(second, ImageTarget)
    assert first.image.repository == second.image.repository == "drivers/edu"
    assert first.image.reference != second.image.reference
    assert first.request is not None
    assert first.image.reference.endswith(first.request.key)
    assert (first.nodes, first.request.deadline_seconds) == (("b",), 5.0)


def test_arguments_of_a_mapping_go_before_those_of_the_build() -> None:
    """A mapping adds to the build's arguments and may change them."""
    rule = {"literal": OTHER_KERNEL, "args": {"V": "2", "X": "3"}}
    first, second = wished(build={"args": {"V": "1", "W": "1"}}, kernelMappings=[rule, {"regexp": ".*"}])
    assert isinstance(first, ImageTarget)
    assert isinstance(second, ImageTarget)
    assert first.request is not None
    assert second.request is not None
    assert first.request.args == {"V": "2", "W": "1", "X": "3"}
    assert second.request.args == {"V": "1", "W": "1"}


def test_a_rebuild_token_reaches_the_builder() -> None:
    """The request says that somebody asked, so that no cache answers in the builder's place."""
    plain, annotated = wished(), wished(rebuilds=Rebuilds(requests={}, tokens={target().id: "abc"}))
    assert key_of(plain[0]) == key_of(annotated[0])
    assert key_of(plain[1]) != key_of(annotated[1])
    assert isinstance(annotated[1], ImageTarget)
    assert annotated[1].request is not None
    assert annotated[1].request.rebuild == ".abc"


def test_a_source_in_an_image_is_passed_on() -> None:
    """A pinned image is a source like any other."""
    container = driver()
    source = SourceImage(reference="r/x@" + DIGEST, path="/")
    versions = TemplateVersions(versions={"debian": "r"})
    inputs = BuildInputs(container, spec_of(container), source, None, NO_REBUILDS, versions, {})
    (item,) = resolve_each(inputs, inventory.take([node()], {}))
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    assert item.request.source == source


def test_one_kernel_skipped_leaves_the_other() -> None:
    """Targets are decided one by one."""
    first, second = wished(kernelMappings=[{"literal": OTHER_KERNEL, "skip": True}, {"regexp": ".*"}])
    assert isinstance(first, SkippedTarget | BlockedTarget)
    assert first.reason is Reason.SKIPPED_BY_MAPPING
    assert isinstance(second, ImageTarget)


OWN = OwnTemplate(place="ConfigMap n/t/k", text="FROM x")


def test_an_own_template_is_built_by() -> None:
    """It reaches the builder, and its text is in the build key; where it lies is not."""
    (item, _) = wished(template=OWN)
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    assert item.request.own_template == OWN
    same = OwnTemplate(place="ConfigMap n/other/k", text="FROM x")
    known = OwnTemplate(place="", text="", known_digest=OWN.digest)
    other = OwnTemplate(place=OWN.place, text="FROM y")
    assert key_of(item) == key_of(wished(template=same)[0]) == key_of(wished(template=known)[0])
    keys = {key_of(item), key_of(wished()[0]), key_of(wished(template=other)[0])}
    assert len(keys) == 3


def test_a_mapping_may_name_one_of_ours_instead() -> None:
    """For some kernels, or while the ConfigMap is missing."""
    rules = [{"literal": OTHER_KERNEL, "template": "debian"}, {"regexp": ".*"}]
    first, second = wished(template=SourceMissing(message="it is missing"), kernelMappings=rules)
    assert isinstance(first, ImageTarget)
    assert first.request is not None
    assert (first.request.template, first.request.own_template) == ("debian", None)
    assert isinstance(second, SkippedTarget | BlockedTarget)
    assert (second.state, second.reason, second.message) == (
        TargetState.PENDING,
        Reason.SOURCE_MISSING,
        "it is missing",
    )


@pytest.mark.parametrize(
    ("module", "same"),
    [
        pytest.param({"firmwarePath": "/source/firmware"}, False, id="firmware is built in"),
        pytest.param({"blacklist": ["nouveau"]}, True, id="a blacklist is the pod's"),
        pytest.param({"inTreeModulesToRemove": ["nouveau"]}, True, id="what makes room is the pod's"),
    ],
)
def test_only_what_is_in_the_image_builds_anew(module: dict[str, object], same: bool) -> None:
    """What the loader does to a node comes with its pod."""
    item = wished(module={"names": ["edudrv"], **module})[0]
    assert (key_of(item) == key_of(wished()[0])) is same


def test_firmware_reaches_the_builder() -> None:
    """Without the slash at its end, which means nothing."""
    (item, _) = wished(module={"names": ["edudrv"], "firmwarePath": "/source/firmware/"})
    assert isinstance(item, ImageTarget)
    assert isinstance(item, TargetToBuild)
    assert item.request.firmware_path == "/source/firmware"


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(None, 1800.0, id="the controller's"),
        pytest.param("30m", 1800.0, id="its own"),
        pytest.param("24h", 14400.0, id="longer than is allowed"),
    ],
)
def test_a_build_holds_its_place_for_a_bounded_time(asked: str | None, given: float) -> None:
    """A spec may ask for less than the longest deadline, never for more."""
    container = driver(spec_changes={"build": {"deadline": asked}} if asked else {})
    (item,) = wanted(snapshot(drivers=(container,)))
    assert isinstance(item, TargetToBuild)
    assert item.request.deadline_seconds == given


@pytest.mark.parametrize(
    ("mapping", "exporters"),
    [
        pytest.param({}, 1, id="an image of ours"),
        pytest.param({"loader": "image"}, 0, id="a program"),
        pytest.param({"dirName": "/opt"}, 0, id="a folder of a vendor's"),
    ],
)
def test_what_a_vendors_modules_export_is_not_known(mapping: dict[str, str], exporters: int) -> None:
    """A driver that depends on such a one is built without its symbols, and loaded after it."""
    prebuilt = {"regexp": ".*", "image": f"r.io/a@{DIGEST}", **mapping}
    others = {item.target.group: item for item in wished(kernelMappings=[prebuilt])}
    registry = spec_of(driver()).registry
    built = wished(first=(First(driver=DriverKey("driverwright/a"), registry=registry, targets=others),))
    assert [len(item.exporters) for item in built if isinstance(item, TargetToBuild)] == [exporters] * 2
