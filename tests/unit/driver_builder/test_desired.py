"""What each target should run, or why it should run nothing."""

from driver_builder import inventory
from driver_builder.build import SourceImage
from driver_builder.desired import Recipes, Unwanted, Wanted, desired
from driver_builder.rebuild import Rebuilds
from driver_builder.status import Reason
from tests.unit.driver_builder.factories import DIGEST, OTHER_KERNEL, SOURCE, driver, node, spec_of, target

NO_REBUILDS = Rebuilds(requests={}, tokens={})


def wished(*, rebuilds: Rebuilds = NO_REBUILDS, **spec_changes: object) -> tuple[Wanted | Unwanted, ...]:
    """Say what two nodes on two kernels should run."""
    container = driver(spec_changes=dict(spec_changes))
    return desired(
        container,
        spec_of(container),
        inventory=inventory.take([node("a"), node("b", OTHER_KERNEL)], {}),
        source=SOURCE,
        rebuilds=rebuilds,
        recipes=Recipes(digests={"debian": "r"}, deadline_seconds=5.0),
    )


def key_of(item: Wanted | Unwanted) -> str:
    """Give the build key of a target that is to be built."""
    assert isinstance(item, Wanted)
    assert item.request is not None
    return item.request.key


def test_each_kernel_has_an_image_of_its_own() -> None:
    """Same repository, another tag, and a request that would build it."""
    first, second = wished()
    assert isinstance(first, Wanted)
    assert isinstance(second, Wanted)
    assert first.image.repository == second.image.repository == "drivers/edu"
    assert first.image.reference != second.image.reference
    assert first.request is not None
    assert first.image.reference.endswith(first.request.key)
    assert (first.nodes, first.request.deadline_seconds) == (("b",), 5.0)


def test_arguments_of_a_mapping_go_before_those_of_the_build() -> None:
    """A mapping adds to the build's arguments and may change them."""
    rule = {"literal": OTHER_KERNEL, "args": {"V": "2", "X": "3"}}
    first, second = wished(build={"args": {"V": "1", "W": "1"}}, kernelMappings=[rule, {"regexp": ".*"}])
    assert isinstance(first, Wanted)
    assert isinstance(second, Wanted)
    assert first.request is not None
    assert second.request is not None
    assert first.request.args == {"V": "2", "W": "1", "X": "3"}
    assert second.request.args == {"V": "1", "W": "1"}


def test_a_rebuild_token_reaches_the_builder() -> None:
    """The request says that somebody asked, so that no cache answers in the builder's place."""
    plain, annotated = wished(), wished(rebuilds=Rebuilds(requests={}, tokens={target().id: "abc"}))
    assert key_of(plain[0]) == key_of(annotated[0])
    assert key_of(plain[1]) != key_of(annotated[1])
    assert isinstance(annotated[1], Wanted)
    assert annotated[1].request is not None
    assert annotated[1].request.rebuild == ".abc"


def test_a_source_in_an_image_is_passed_on() -> None:
    """A pinned image is a source like any other."""
    container = driver()
    source = SourceImage(reference="r/x@" + DIGEST, path="/")
    (item,) = desired(
        container,
        spec_of(container),
        inventory=inventory.take([node()], {}),
        source=source,
        rebuilds=NO_REBUILDS,
        recipes=Recipes(digests={"debian": "r"}),
    )
    assert isinstance(item, Wanted)
    assert item.request is not None
    assert item.request.source == source


def test_one_kernel_skipped_leaves_the_other() -> None:
    """Targets are decided one by one."""
    first, second = wished(kernelMappings=[{"literal": OTHER_KERNEL, "skip": True}, {"regexp": ".*"}])
    assert isinstance(first, Unwanted)
    assert first.reason is Reason.SKIPPED_BY_MAPPING
    assert isinstance(second, Wanted)
