"""All registries of a command in one OCI image layout: what is pushed goes there, and only what is there exists."""

import time
from collections.abc import Callable
from typing import Any

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.registry.image_store import ImageStore
from driver_builder.registry.layout_registry import LayoutRegistry
from driver_builder.registry.oci_layout import OciLayout
from driver_builder.registry.registry_access import Registries
from kube_api.client import Reader


class LayoutRegistries(Registries):
    """Registries whose images are in ``layout``; the passwords are for what the engine pulls."""

    def __init__(self, layout: OciLayout, client: Reader, **options: Any) -> None:
        super().__init__(client, **options)
        self._layout = layout

    def store(
        self,
        namespace: str,  # noqa: ARG002 - of Registries, as those below
        settings: RegistrySettings,  # noqa: ARG002
        host: str,
        repository: str,  # noqa: ARG002
        *,
        patience: float = 0,  # noqa: ARG002
        wait: Callable[[float], object] = time.sleep,  # noqa: ARG002
    ) -> ImageStore:
        """Give the images of a host in the layout."""
        return LayoutRegistry(self._layout, host)
