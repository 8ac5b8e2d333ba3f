"""An image registry: is the image there, and put it there.

Place in the flow: ``observe`` asks :meth:`RegistryClient.inspect`; after ``verify``, the pipeline calls ``push`` and
then ``tag``. An image is pushed by its digest first, whole; the tag that others look for is moved last, so at no moment
does it name something unfinished.

Source: the OCI distribution specification 1.0; the media types of Docker's own manifests are accepted beside OCI's.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit

from driver_builder.credentials import Credentials
from driver_builder.errors import RegistryRefused, RegistryUnavailable
from driver_builder.image_archive import MANIFEST_TYPE, ImageArchive, sha256
from driver_builder.image_state import Absent, ImageState, Invalid, Present, Unauthorised, Unreachable
from driver_builder.registry_transport import Answer, RegistryTransport, RegistryUnauthorised

IMAGE_TYPES = (MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json")
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
# Indexes are asked for too: a registry answers 404 for an index that the client did not say it understands.
_ACCEPT = {"Accept": ", ".join((*IMAGE_TYPES, *INDEX_TYPES))}
_UNKNOWN = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN"})


class RegistryClient:
    """One registry, named ``host`` or ``host:port``; ``docker.io`` is Docker Hub.

    ``ca_file`` is a PEM file of the CA that signed its certificate; ``timeout`` in seconds.
    """

    def __init__(
        self,
        host: str,
        *,
        credentials: Credentials | None = None,
        plain_http: bool = False,
        ca_file: str | Path | None = None,
        timeout: float = 30,
    ) -> None:
        self._host = host
        self._transport = RegistryTransport(
            host, credentials=credentials, plain_http=plain_http, ca_file=ca_file, timeout=timeout
        )

    def inspect(self, repository: str, reference: str) -> ImageState:
        """What the registry says about ``reference`` (a tag or a digest); never raises for what a registry can do."""
        try:
            return self._inspect(repository, reference)
        except RegistryUnauthorised as error:
            return Unauthorised(message=str(error))
        except RegistryUnavailable as error:
            return Unreachable(message=str(error))
        except RegistryRefused as error:
            return Invalid(message=str(error))

    def push(self, repository: str, image: ImageArchive) -> str:
        """Upload what the registry lacks of an image and give its digest; no tag names it yet.

        Raises:
            RegistryUnavailable: worth trying again; what was uploaded is kept by the registry.
            RegistryRefused: wrong credentials, or the registry does not take it.
        """
        for layer in image.layers:
            self._upload(repository, layer.digest, layer.path)
        manifest = json.loads(image.manifest_bytes)
        self._upload(repository, manifest["config"]["digest"], image.config_bytes)
        if not self._has(repository, "manifests", image.digest):
            self._put_manifest(repository, image.digest, image.manifest_bytes, MANIFEST_TYPE)
        return image.digest

    def tag(self, repository: str, digest: str, tag: str) -> None:
        """Let ``tag`` name the pushed image ``digest`` from now on; repeating it changes nothing.

        Raises:
            RegistryUnavailable, RegistryRefused: as for ``push``; refused also when there is no such image.
        """
        answer = self._get(repository, "manifests", digest)
        if answer.status != 200 or sha256(answer.body) != digest:
            raise self._refused(f"cannot tag {repository}@{digest} as {tag}", answer)
        self._put_manifest(repository, tag, answer.body, answer.headers.get("Content-Type", MANIFEST_TYPE))

    def _inspect(self, repository: str, reference: str) -> ImageState:
        answer = self._get(repository, "manifests", reference)
        if answer.status == 404 and self._proves_absence(answer):
            return Absent()
        manifest = answer.json()
        if answer.status != 200 or not isinstance(manifest, dict) or manifest.get("schemaVersion") != 2:
            raise self._refused(f"gave no manifest for {repository}:{reference}", answer)
        digest = self._proven_digest(answer, reference)
        return Present(digest=digest, labels=self._labels(repository, manifest))

    def _proves_absence(self, answer: Answer) -> bool:
        """A 404 is believed when it has a registry's error code, or comes from what is a registry at /v2/."""
        if answer.error_codes & _UNKNOWN:
            return True
        root = self._transport.request("GET", "/v2/")
        return root.status == 200 and root.headers.get("Docker-Distribution-Api-Version", "").startswith("registry/2")

    def _proven_digest(self, answer: Answer, reference: str) -> str:
        digest = sha256(answer.body)
        claimed = answer.headers.get("Docker-Content-Digest", digest)
        wanted = reference if reference.startswith("sha256:") else digest
        if not digest == claimed == wanted:
            raise RegistryRefused(
                f"registry {self._host} gave other content than it should for {reference}: {digest} instead of"
                f" {claimed if wanted == digest else wanted}"
            )
        return digest

    def _labels(self, repository: str, manifest: Mapping[str, Any]) -> dict[str, str]:
        """The labels in the image's config; an index (one image for each platform) has none of its own."""
        if "manifests" in manifest:
            return {}
        digest = (manifest.get("config") or {}).get("digest", "")
        answer = self._get(repository, "blobs", digest)
        config = answer.json()
        if answer.status != 200 or not isinstance(config, dict) or sha256(answer.body) != digest:
            raise self._refused(f"gave no config {digest!r} for an image in {repository}", answer)
        return dict((config.get("config") or {}).get("Labels") or {})

    def _upload(self, repository: str, digest: str, body: bytes | Path) -> None:
        if self._has(repository, "blobs", digest):
            return
        begun = self._transport.request("POST", _path(repository, "blobs", "uploads/"), scope=repository)
        if begun.status != 202 or "Location" not in begun.headers:
            raise self._refused(f"does not let us upload to {repository}", begun)
        done = self._transport.request(
            "PUT",
            _with_digest(urljoin(begun.url, begun.headers["Location"]), digest),
            scope=repository,
            headers={"Content-Type": "application/octet-stream"},
            body=body,
        )
        if done.status != 201:
            raise self._refused(f"did not take {digest} for {repository}", done)

    def _put_manifest(self, repository: str, reference: str, content: bytes, media_type: str) -> None:
        path = _path(repository, "manifests", reference)
        headers = {"Content-Type": media_type}
        answer = self._transport.request("PUT", path, scope=repository, headers=headers, body=content)
        if answer.status not in (200, 201):
            raise self._refused(f"did not take the manifest {repository}:{reference}", answer)

    def _get(self, repository: str, kind: str, name: str) -> Answer:
        headers = _ACCEPT if kind == "manifests" else None
        return self._transport.request("GET", _path(repository, kind, name), scope=repository, headers=headers)

    def _has(self, repository: str, kind: str, name: str) -> bool:
        headers = _ACCEPT if kind == "manifests" else None
        answer = self._transport.request("HEAD", _path(repository, kind, name), scope=repository, headers=headers)
        if answer.status not in (200, 404):
            raise self._refused(f"does not say whether it has {name} in {repository}", answer)
        return answer.status == 200

    def _refused(self, what: str, answer: Answer) -> RegistryRefused:
        return RegistryRefused(f"registry {self._host} {what}: {answer.reason}")


def _path(repository: str, kind: str, name: str) -> str:
    return f"/v2/{quote(repository)}/{kind}/{quote(name, safe=':/')}"


def _with_digest(location: str, digest: str) -> str:
    """The upload's URL with the digest added to whatever query the registry keeps its state in."""
    parts = urlsplit(location)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), ("digest", digest)])))
