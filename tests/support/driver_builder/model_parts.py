"""Build queue, discoveries and registries without threads and sockets: what they know is what the world says."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.builds.build_queue import BuildQueue, BuildStates
from driver_builder.model.build import BuildRequest
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, ImageState, Present
from driver_builder.model.images import (
    ImageRef,
)
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import DiscoverKernels, StartBuild
from driver_builder.prebuild.discovery_queue import DiscoveryQueue, DiscoveryStates
from driver_builder.registry.registry_access import Registries
from driver_builder.snapshot.snapshot import FailedBuild


class ModelBuilds(BuildQueue):
    """A build queue without threads: builds end when the world says so."""

    def __init__(self) -> None:
        self.running: dict[str, StartBuild] = {}
        self.failed: dict[str, FailedBuild] = {}

    def states(self) -> BuildStates:
        """Return running keys and failures not yet reported."""
        return BuildStates(running=frozenset(self.running), failed=dict(self.failed))

    def submit(self, action: StartBuild) -> None:
        """Start a build unless it runs."""
        self.running.setdefault(action.request.key, action)

    def cancel(self, key: str) -> None:
        """Stop a build; it leaves nothing behind."""
        self.running.pop(key, None)
        self.failed.pop(key, None)

    def fail(self, key: str, failure: FailedBuild) -> None:
        """Let a build fail; what no status reports yet counts on."""
        before = self.failed.get(key)
        earlier = (*before.earlier, before.at) if before is not None else ()
        self.failed[key] = replace(failure, earlier=earlier)

    def dispatch(self) -> None:
        """Every build runs at once."""

    def forget(self, reported: Mapping[str, FailedBuild]) -> None:
        """Drop reported failures."""
        for key in reported:
            self.failed.pop(key, None)

    def forget_drivers(self, is_gone: Callable[[DriverKey], bool]) -> None:
        """Drop the failures of drivers that are gone."""
        self.failed = {key: failure for key, failure in self.failed.items() if not is_gone(failure.driver)}


class ModelDiscoveries(DiscoveryQueue):
    """Look-ups without threads: repositories answer when the world says so."""

    def __init__(self) -> None:
        self.running: set[Repository] = set()
        self.done: dict[Repository, Discovery] = {}

    def states(self) -> DiscoveryStates:
        """Return what is known and what is being asked."""
        return DiscoveryStates(done=dict(self.done), running=frozenset(self.running))

    def submit(self, action: DiscoverKernels) -> None:
        """Ask a repository."""
        self.running.add(action.repository)


class ModelRegistries(Registries):
    """Registries as a mapping from image to the labels of its config."""

    def __init__(self) -> None:
        self.images: dict[ImageRef, dict[str, str]] = {}
        self.answers: dict[ImageRef, ImageState] = {}

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Return whether an image was pushed, unless the test wants another answer."""
        assert architecture
        assert namespace
        assert settings
        if image in self.answers:
            return self.answers[image]
        if image not in self.images:
            return Absent()
        return Present(digest=digest_of(image), labels=self.images[image], is_signed=True if signed_by else None)


def digest_of(image: ImageRef) -> str:
    """Return an image's digest: different for different images."""
    return "sha256:" + image.reference.rpartition("-")[2].ljust(64, "0")[:64]


def identity_of(request: BuildRequest) -> str:
    """Return the srcversion of what a request builds: its key says everything that went in."""
    return request.key.upper()
