"""What drivers name is read again when it may have changed, and not before."""

import pytest

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.named_contents import REFUSED_SECONDS, SECRET_SECONDS, NamedContents
from kube_api.client import Object
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import CONFIG_MAPS, SECRETS
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.memory_client import MemoryClient

SOURCE = CONFIG_MAPS.path(namespace=NAMESPACE, name="source")
SECRET = SECRETS.path(namespace=NAMESPACE, name="keys")


class Counting(MemoryClient):
    """An API server that counts what is read by name."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def get(self, path: str) -> Object:
        """Read an object."""
        self.reads.append(path)
        return super().get(path)


class Place:
    """A namespace with a ConfigMap and a Secret, whose ConfigMaps are followed."""

    def __init__(self) -> None:
        self.client = Counting()
        self.now = 0.0
        for path in (SOURCE, SECRET):
            self.change(path, "1")
        self.cache = ClusterCache(self.client, namespaces=(NAMESPACE,), clock=lambda: self.now)
        self.contents = NamedContents(self.client, self.cache, seconds=SECRET_SECONDS, clock=lambda: self.now)
        self.follow()

    def change(self, path: str, text: str) -> None:
        """Write an object."""
        collection, _, name = path.rpartition("/")
        self.client.objects.pop(path, None)
        self.client.create(collection, {"metadata": {"name": name}, "data": {"x": text}})
        self.client.reads.clear()

    def follow(self) -> int:
        """Let the watch say what there is; tells how much of that was news."""
        self.client.catch_up()
        news: list[None] = []
        follower = self.cache.namespaces[0].config_maps
        follower.repair()
        follower.watch(lambda: news.append(None), lambda: False)
        return len(news)

    def read(self, path: str) -> str:
        """Read a text."""
        return str(self.contents.get(path)["data"]["x"])


def test_a_config_map_is_read_again_when_its_version_changes() -> None:
    """However often it is asked for."""
    place = Place()
    assert [place.read(SOURCE) for _ in range(3)] == ["1"] * 3
    assert place.client.reads == [SOURCE]
    place.change(SOURCE, "2")
    place.follow()
    assert [place.read(SOURCE) for _ in range(3)] == ["2"] * 3
    assert place.client.reads == [SOURCE]


def test_only_config_maps_that_drivers_name_are_news() -> None:
    """Others change all the time: leases of other programs are among them."""
    place = Place()
    other = CONFIG_MAPS.path(namespace=NAMESPACE, name="other")
    place.change(other, "1")
    assert place.follow() == 0
    place.read(SOURCE)
    place.change(other, "2")
    assert place.follow() == 0
    place.change(SOURCE, "2")
    assert place.follow() > 0
    place.contents.sweep()
    place.contents.sweep()
    place.change(SOURCE, "3")
    assert place.follow() == 0, "no driver has named it since"


def test_a_config_map_that_is_not_followed_is_read_each_time() -> None:
    """As a command reads it, and a controller whose watch is silent."""
    place = Place()
    place.now += 3600.0
    assert [place.read(SOURCE) for _ in range(3)] == ["1"] * 3
    assert place.client.reads == [SOURCE] * 3


def test_a_config_map_that_comes_is_seen_at_once() -> None:
    """One that is missing costs no request until then."""
    place = Place()
    missing = CONFIG_MAPS.path(namespace=NAMESPACE, name="other")
    for _ in range(3):
        with pytest.raises(NotFound):
            place.contents.get(missing)
    assert len(place.client.reads) == 1
    place.change(missing, "now")
    place.follow()
    assert place.read(missing) == "now"


def test_a_secret_is_read_again_after_ten_minutes() -> None:
    """It is neither listed nor watched."""
    place = Place()
    assert place.read(SECRET) == "1"
    place.change(SECRET, "2")
    place.now += SECRET_SECONDS - 1.0
    assert place.read(SECRET) == "1"
    place.now += 1.0
    assert place.read(SECRET) == "2"


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_a_secret_that_cannot_be_read_is_tried_again_soon(is_forbidden: bool) -> None:
    """An admin who has just made it, or the Role, waits half a minute at most."""
    place = Place()
    place.client.forbidden = ("secrets",) if is_forbidden else ()
    there = place.client.objects.pop(SECRET)
    for _ in range(3):
        with pytest.raises((NotFound, Forbidden)):
            place.contents.get(SECRET)
    assert len(place.client.reads) == 1
    place.client.forbidden = ()
    place.client.objects[SECRET] = there
    place.now += REFUSED_SECONDS
    assert place.read(SECRET) == "1"


def test_what_nobody_names_any_more_is_forgotten() -> None:
    """A Secret's content stays no longer than it is used."""
    place = Place()
    place.read(SECRET)
    place.contents.sweep()
    place.contents.sweep()
    place.read(SECRET)
    assert place.client.reads == [SECRET] * 2
