"""Asks registries about images that may be removed, and removes them.

A registry that does not answer or refuses to remove is asked no more: ``troubles`` has its words once.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from driver_builder.base.errors import DriverBuilderError, RegistryUnavailable
from driver_builder.registry.image_removal import TaggedManifests, documents_of, read_tags, remove
from driver_builder.registry.registry import RegistryClient
from driver_builder.retention.decide import Fate, GcResult, Holdings, Place
from driver_builder.retention.record import PushedImage
from kube_api.errors import KubeApiError
from kube_api.text import printable

Connect = Callable[[PushedImage], RegistryClient]

_FAILURES = (DriverBuilderError, KubeApiError)


class Sweep:
    """One run over the repositories of the images."""

    def __init__(self, connect: Connect, *, progress: Callable[[str], None] = lambda _words: None) -> None:
        self.troubles: dict[str, str] = {}
        """By host, why it is asked no more."""
        self._connect = connect
        self._progress = progress
        self._tagged: dict[Place, TaggedManifests] = {}
        self._clients: dict[Place, RegistryClient] = {}

    def look(self, verdicts: Iterable[GcResult]) -> Mapping[Place, Holdings | str]:
        """Read the repositories of condemned images; a text says why one could not be read."""
        images = [verdict.image for verdict in verdicts if verdict.is_condemned]
        places = {_place(image): image for image in sorted(images, key=lambda image: image.last_needed)}
        return {place: self._look(image) for place, image in places.items()}

    def remove(self, verdict: GcResult, *, protected: Container[str]) -> GcResult:
        """Remove a condemned image, and then what refers to it."""
        image = verdict.image
        host, repository = _place(image)
        if host in self.troubles:
            return verdict.kept("its registry failed before", unseen=True)
        self._progress(f"removing {image.image}")
        is_gone = False
        try:
            client = self._client(image)
            tagged = self._tagged[host, repository]
            documents = documents_of(client, repository, image.digest, tagged, protected=protected)
            was_there = remove(client, repository, image.digest, tagged)
            is_gone = True
            for digest in documents:
                remove(client, repository, digest, tagged)
        except _FAILURES as error:
            self.troubles[host] = printable(str(error))
            what = "removed without what refers to it" if is_gone else "its registry did not remove it"
            return verdict.kept(what, unseen=True)
        return replace(verdict, fate=Fate.DELETED, why=verdict.why if was_there else "was not in the registry any more")

    def _look(self, image: PushedImage) -> Holdings | str:
        host, repository = _place(image)
        if host in self.troubles:
            return "its registry did not answer before"
        self._progress(f"reading the tags of {host}/{repository}")
        try:
            found = read_tags(self._client(image), repository)
        except _FAILURES as error:
            words = printable(str(error))
            if not isinstance(error, RegistryUnavailable):
                return words
            self.troubles[host] = words
            return "its registry did not answer"
        self._tagged[host, repository] = found
        return Holdings(sizes=found.sizes, names=found.names)

    def _client(self, image: PushedImage) -> RegistryClient:
        """One for each repository, which keeps its tokens."""
        place = _place(image)
        if place not in self._clients:
            self._clients[place] = self._connect(image)
        return self._clients[place]


def _place(image: PushedImage) -> Place:
    return image.image.host, image.image.repository
