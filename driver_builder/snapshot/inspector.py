"""Who says whether images exist. Pure plans and commands are given one, and do not know how registries are reached."""

from typing import Protocol

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.image_state import ImageState
from driver_builder.model.images import ImageRef


class Inspector(Protocol):
    """Reports whether images exist."""

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Say what is known of an image; ``signed_by`` names the Secret with the key that it must be signed with."""
