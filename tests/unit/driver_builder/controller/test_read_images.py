"""The images of a fleet at rest are there, and are not asked for one by one in each reconcile."""

from dataclasses import replace

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.controller.read_images import ASKED_SECONDS, ImageReader
from driver_builder.model.image_state import Absent, ImageState, NotAsked
from driver_builder.model.images import ImageRef
from driver_builder.snapshot.snapshot import Snapshot
from tests.support.driver_builder.factories import PRESENT, SETTINGS, driver, node, snapshot


class Cluster:
    """A snapshot, and registries that count questions; ``reader`` is the controller's."""

    def __init__(self) -> None:
        self.seen = snapshot(node(), drivers=(driver("one"), driver("two")))
        self.state: ImageState = PRESENT
        self.asked: list[str] = []
        self.news = 0
        self.now = 0.0
        versions = SETTINGS.template_versions
        self.reader = ImageReader(self, versions, news=lambda: self.news, clock=lambda: self.now)

    def inspect(
        self,
        namespace: str,  # noqa: ARG002
        settings: RegistrySettings,  # noqa: ARG002
        image: ImageRef,
        architecture: str = "",  # noqa: ARG002
        *,
        signed_by: str | None = None,  # noqa: ARG002
    ) -> ImageState:
        """Answer, and count."""
        self.asked.append(str(image))
        return self.state

    def read(self) -> Snapshot:
        """Read the images as a reconcile does."""
        return self.reader.read(self.seen, self.reader.resolve(self.seen))


@pytest.fixture
def cluster() -> Cluster:
    """Make a cluster of one node with two drivers."""
    return Cluster()


def test_images_that_are_there_are_not_asked_for_again_at_once(cluster: Cluster) -> None:
    """What all drivers know together is the very object of before, also where the registries say it again."""
    first = cluster.read()
    assert [*first.images.values()] == [PRESENT, PRESENT]
    assert len(cluster.asked) == 2
    assert cluster.read().images is first.images
    assert len(cluster.asked) == 2
    cluster.now = ASKED_SECONDS
    assert cluster.read().images is first.images
    assert len(cluster.asked) == 4


def test_news_of_any_image_is_asked_for(cluster: Cluster) -> None:
    """The answer that woke the reconcile is known to it."""
    cluster.read()
    cluster.state, cluster.news = Absent(), 1
    assert [*cluster.read().images.values()] == [Absent(), Absent()]


def test_another_driver_is_asked_for_alone(cluster: Cluster) -> None:
    """Of the one that did not change everything is known."""
    cluster.read()
    cluster.asked.clear()
    one, two = cluster.seen.drivers
    cluster.seen = replace(
        cluster.seen, drivers=(one, replace(driver("two", spec_changes={"version": "2"}), uid=two.uid))
    )
    assert len(cluster.read().images) == 2
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("state", [Absent(), NotAsked()])
def test_what_is_not_there_is_asked_for_each_time(cluster: Cluster, state: ImageState) -> None:
    """Whether its answer is fresh depends on the time."""
    cluster.state = state
    cluster.read()
    cluster.read()
    assert len(cluster.asked) == 4


def test_a_driver_that_is_gone_has_no_images(cluster: Cluster) -> None:
    """Nor has it when it comes back, until the registries are asked."""
    cluster.read()
    both = cluster.seen
    cluster.seen = replace(both, drivers=both.drivers[:1])
    assert len(cluster.read().images) == 1
    cluster.asked.clear()
    cluster.seen = both
    assert len(cluster.read().images) == 2
    assert len(cluster.asked) == 1


def test_a_command_asks_each_time(cluster: Cluster) -> None:
    """It is not told of news."""
    reader = ImageReader(cluster, SETTINGS.template_versions)
    for _ in range(2):
        reader.read(cluster.seen)
    assert len(cluster.asked) == 4
