"""What the tag of a build names: asked before the build, and again right before the tag is moved.

Place in the flow: ``pipeline`` builds only where there is no image yet. Two controllers, or a controller and somebody
who calls ``preflight --push``, may build the same key at the same time: the one that comes second takes the image of
the first, because nodes may run it already.
"""

from dataclasses import dataclass
from typing import assert_never

from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.base.errors import RegistryRefused, RegistryUnauthorized, RegistryUnavailable
from driver_builder.model import images
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_signature import has_signature
from driver_builder.registry.image_store import ImageStore


@dataclass(frozen=True, slots=True)
class TaggedImage:
    """The image under the tag of ``action``; with a ``trusted`` key it must be signed with that."""

    action: StartBuild
    registry: ImageStore
    trusted: ec.EllipticCurvePublicKey | None

    def digest(self) -> str | None:
        """The digest of the image of this very build, None where the tag names none.

        Raises:
            RegistryUnavailable: when the registry does not say.
            RegistryRefused: when the tag names something else: it is not moved away from that.
        """
        image = self.action.image
        match self.registry.inspect(image.repository, image.reference):
            case Present() as state:
                return self._checked(state)
            case Absent():
                return None
            case Unauthorized(message=message):
                raise RegistryUnauthorized(message)
            case Unreachable(message=message):
                raise RegistryUnavailable(message)
            case Invalid(message=message):
                raise RegistryRefused(message)
            case NotAsked():
                raise RegistryUnavailable(f"registry {image.host} has not answered")
            case _ as never:
                assert_never(never)

    def _checked(self, state: Present) -> str:
        image, key = self.action.image.at(state.digest), self.action.request.key
        if state.labels.get(images.KEY_LABEL) != key:
            raise RegistryRefused(
                f"{self.action.image} names {state.digest}, which does not have the label {images.KEY_LABEL}={key}:"
                " remove that tag, or find out what moved it"
            )
        if self.trusted is not None and not has_signature(self.registry, image, self.trusted):
            raise RegistryRefused(
                f"{self.action.image} names {state.digest}, which is not signed with our key: remove that tag, or find"
                " out what moved it"
            )
        return state.digest
