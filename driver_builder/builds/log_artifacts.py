"""The log of a build that was pushed, attached to its image.

Place in the flow: the build queue calls it with the redacted lines when the tag is set. Unlike the bill of
materials, the log is attached after the tag: an image without it is complete.
"""

import logging
from collections.abc import Sequence

from driver_builder.archives.image_archive import canonical_json, sha256
from driver_builder.base.errors import DriverBuilderError, RegistryRefused
from driver_builder.builds.bounded_log import packed
from driver_builder.builds.build_logs import printable
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.referrers import push_referrer
from driver_builder.registry.registry_access import Registries
from kube_api.errors import KubeApiError

LOG_TYPE = "application/vnd.driverwright.build-log.v1+gzip"
MAX_PACKED = 1 << 20

logger = logging.getLogger(__name__)


class LogArtifacts:
    """Attaches logs to images."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries

    def attach(self, action: StartBuild, digest: str, lines: Sequence[str]) -> None:
        """Attach a log; if that fails, the image stays valid and a warning is logged."""
        try:
            self._attach(action, digest, lines)
        except (DriverBuilderError, KubeApiError) as error:
            logger.warning("build %s: cannot attach its log to the image: %s", action.request.key, error)

    def _attach(self, action: StartBuild, digest: str, lines: Sequence[str]) -> None:
        repository = action.image.repository
        registry = self._registries.connect(action.namespace, action.registry, action.image.host, repository)
        manifest = canonical_json(registry.fetch_manifest(repository, digest) or {})
        if sha256(manifest) != digest:
            raise RegistryRefused(f"{action.image.at(digest)} differs from what was pushed")
        content = packed(printable(lines), MAX_PACKED)
        push_referrer(registry, repository, subject=manifest, artifact_type=LOG_TYPE, content=content)
