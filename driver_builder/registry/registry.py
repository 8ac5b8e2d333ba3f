"""The client of an image registry: inspects, pushes and removes images.

Place in the flow: ``observe`` asks :meth:`RegistryClient.inspect`; after ``verify``, the pipeline calls ``push``, lets
``referrers`` attach what belongs to the image, and then calls ``tag``. An image is pushed by its digest first, whole;
the tag is moved last, so it never names an incomplete image.

Source: the OCI distribution specification 1.1; the media types of Docker's own manifests are accepted beside OCI's.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from driver_builder.archives.image_archive import INDEX_TYPE, MANIFEST_TYPE, ImageArchive, sha256
from driver_builder.base.boundary import contained
from driver_builder.base.errors import (
    DriverBuilderError,
    RegistryRefused,
    RegistryUnauthorized,
    RegistryUnavailable,
)
from driver_builder.model.image_state import Absent, ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.model.registry_reach import Reach
from driver_builder.registry.credentials import Credentials, registry_repository
from driver_builder.registry.image_store import Manifest, push_image
from driver_builder.registry.registry_responses import RegistryBusy, RegistrySilent, Response, refused
from driver_builder.registry.registry_transport import MAX_ANSWER, MAX_DOCUMENT, TIMEOUT_SECONDS, RegistryTransport

IMAGE_TYPES = (MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json")
INDEX_TYPES = (INDEX_TYPE, "application/vnd.docker.distribution.manifest.list.v2+json")
# Indexes are accepted too: a registry answers 404 for an index that the client does not accept.
_ACCEPT = {"Accept": ", ".join((*IMAGE_TYPES, *INDEX_TYPES))}
_UNKNOWN = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NEXT_PAGE = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')
_TAGS_OF_A_PAGE = 1000
_MAX_PAGES = 20

MAX_LAYER = 2 << 30
"""Bytes of a layer that is copied, which is in memory meanwhile."""
MAX_LABELS = 256
MAX_LABEL_NAME = 256
MAX_LABEL = 32 << 10
"""Characters. Our labels are far shorter; longer ones are ignored."""


class RegistryClient:
    """One registry, named ``host`` or ``host:port``; ``docker.io`` is Docker Hub.

    ``ca_file`` is a PEM file of the CA that signed its certificate; ``timeout`` in seconds, ``deadline`` for a whole
    request. If a registry asks for a pause, the client waits with ``wait``, up to ``patience`` seconds in one request.
    ``reach`` says where it may redirect to.

    Every method but ``inspect`` raises RegistryUnavailable, which is worth trying again (what was uploaded is kept by
    the registry), or RegistryRefused: wrong credentials, or the registry does not take, list or remove it.
    """

    def __init__(
        self,
        host: str,
        *,
        credentials: Credentials | None = None,
        plain_http: bool = False,
        ca_file: str | Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
        deadline: float | None = None,
        patience: float = 0,
        wait: Callable[[float], object] = time.sleep,
        reach: Reach | None = None,
    ) -> None:
        self._host = host
        self._transport = RegistryTransport(
            host,
            credentials=credentials,
            plain_http=plain_http,
            ca_file=ca_file,
            timeout=timeout,
            deadline=deadline,
            patience=patience,
            wait=wait,
            reach=reach,
        )

    def inspect(self, repository: str, reference: str, *, architecture: str = "") -> ImageState:
        """Return what the registry says about ``reference`` (a tag or a digest); never raises for a registry's failure.

        Where it names an index of several platforms, ``architecture`` (Kubernetes' word, such as ``arm64``) says whose
        labels are wanted; the digest is the index's own, which is what nodes pull.
        """
        image = ImageRef(self._host, repository, reference)
        return as_state(image, lambda: self._inspect(repository, reference, architecture))

    def granted(self, repository: str) -> frozenset[str] | None:
        """Return the actions that the token service grants in a repository; None where no token says it."""
        return self._transport.granted(self._name(repository))

    def push(self, repository: str, image: ImageArchive) -> str:
        """Upload what the registry lacks of an image and return its digest; no tag names it yet."""
        return push_image(self, repository, image)

    def tag(self, repository: str, digest: str, tag: str) -> None:
        """Let ``tag`` name the pushed image ``digest``, which has to be there; repeating it changes nothing."""
        answer = self._get(repository, "manifests", digest)
        if answer.status != 200 or sha256(answer.body) != digest:
            raise self._refused(f"cannot tag {repository}@{digest} as {tag}", answer)
        media_type = answer.headers.get("Content-Type", MANIFEST_TYPE)
        self.put_manifest(repository, answer.body, tag=tag, media_type=media_type)

    def fetch_manifest(self, repository: str, reference: str) -> dict[str, Any] | None:
        """The manifest or index of that tag or digest, None when none exists."""
        found = self.manifest(repository, reference)
        return None if found is None else dict(found.document)

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """The manifest or index of that tag or digest with its bytes, None when none exists."""
        answer = self._get(repository, "manifests", reference)
        document = self._manifest(answer, repository, reference)
        if document is None:
            return None
        media_type = answer.headers.get("Content-Type", MANIFEST_TYPE)
        return Manifest(content=answer.body, media_type=media_type, document=document)

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository, unless there are too many to be read."""
        pages = self._pages(repository, f"tags/list?n={_TAGS_OF_A_PAGE}")
        return tuple(tag for page in pages for tag in page.get("tags") or () if isinstance(tag, str))

    def referrers(self, repository: str, digest: str) -> tuple[str, ...]:
        """The digests of what refers to an image, as far as the registry keeps a list of that."""
        pages = self._pages(repository, f"referrers/{digest}")
        return tuple(found for page in pages for found in descriptor_digests(page))

    def delete_manifest(self, repository: str, reference: str) -> bool:
        """Remove an image, or what refers to one, by its digest, or a tag alone; False where it was not there."""
        answer = self._request("DELETE", repository, "manifests", reference)
        if answer.status == 404 and self._proves_absence(answer):
            return False
        if answer.status not in (200, 202, 204):
            raise self._refused(f"did not remove {reference} of {repository}", answer)
        return True

    def fetch_blob(self, repository: str, digest: str, *, limit: int = MAX_ANSWER) -> bytes:
        """The content of that digest, which has to be there, checked against it, at most ``limit`` bytes."""
        answer = self._request("GET", repository, "blobs", digest, limit=limit)
        if answer.status != 200 or sha256(answer.body) != digest:
            raise self._refused(f"did not return content {digest!r} of {repository}", answer)
        return answer.body

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether a blob is there."""
        return self._has(repository, "blobs", digest)

    def whole_blob(self, repository: str, digest: str) -> bytes | Path:
        """The content of that digest, up to the size of the largest layers."""
        return self.fetch_blob(repository, digest, limit=MAX_LAYER)

    def upload(self, repository: str, digest: str, body: bytes | Path) -> None:
        """Upload a blob that the registry does not have yet."""
        if self._has(repository, "blobs", digest):
            return
        begun = self._request("POST", repository, "blobs", "uploads/")
        if begun.status != 202 or "Location" not in begun.headers:
            raise self._refused(f"rejected an upload to {repository}", begun)
        done = self._transport.request(
            "PUT",
            _with_digest(self._transport.joined(begun.url, begun.headers["Location"]), digest),
            repository=self._name(repository),
            headers={"Content-Type": "application/octet-stream"},
            body=body,
        )
        if done.status != 201:
            raise self._refused(f"rejected {digest} for {repository}", done)

    def put_manifest(self, repository: str, content: bytes, *, tag: str = "", media_type: str = MANIFEST_TYPE) -> str:
        """Put a manifest whose blobs are there, under ``tag`` or by its digest alone; returns the digest."""
        digest = sha256(content)
        if tag or not self._has(repository, "manifests", digest):
            self._put_manifest(repository, tag or digest, content, media_type)
        return digest

    def put_referrer(self, repository: str, content: bytes) -> bool:
        """Put a manifest that has a ``subject``; False if the registry does not say that it keeps the list of those."""
        answer = self._put_manifest(repository, sha256(content), content, MANIFEST_TYPE)
        return "OCI-Subject" in answer.headers

    def _inspect(self, repository: str, reference: str, architecture: str) -> ImageState:
        answer = self._get(repository, "manifests", reference)
        manifest = self._manifest(answer, repository, reference)
        if manifest is None:
            return Absent()
        if "manifests" in manifest and architecture:
            manifest = self._platform(repository, reference, manifest, architecture)
        return Present(digest=sha256(answer.body), labels=self._labels(repository, manifest))

    def _pages(self, repository: str, listed: str) -> Iterator[dict[str, Any]]:
        """The pages of a list; none where the registry has no such list."""
        name = self._name(repository)
        path = f"/v2/{quote(name)}/{listed}"
        for _ in range(_MAX_PAGES):
            answer = self._transport.request("GET", path, repository=name)
            if answer.status == 404 and (self._proves_absence(answer) or listed.startswith("referrers/")):
                return
            page = answer.json()
            if answer.status != 200 or not isinstance(page, dict):
                raise self._refused(f"did not list {listed.partition('?')[0]} of {repository}", answer)
            yield page
            following = _NEXT_PAGE.search(answer.headers.get("Link", ""))
            if following is None:
                return
            path = self._transport.joined(answer.url, following[1])
        raise RegistryRefused(f"registry {self._host} lists more of {repository} than {_MAX_PAGES} pages")

    def _manifest(self, answer: Response, repository: str, reference: str) -> dict[str, Any] | None:
        if answer.status == 404 and self._proves_absence(answer):
            return None
        manifest = answer.json()
        if answer.status != 200 or not isinstance(manifest, dict) or manifest.get("schemaVersion") != 2:
            raise self._refused(f"did not return a manifest for {repository}:{reference}", answer)
        self._check_digest(answer, reference)
        return manifest

    def _platform(self, repository: str, reference: str, index: Mapping[str, Any], architecture: str) -> dict[str, Any]:
        """The image for one architecture out of an index; attestations beside the images have no known platform."""
        digests = index_digests(index)
        manifest = self.fetch_manifest(repository, digests[architecture]) if architecture in digests else None
        if manifest is None:
            known = ", ".join(sorted(digests)) or "none readable"
            raise RegistryRefused(
                f"registry {self._host} has no image for {architecture} at {repository}:{reference}, which is an index"
                f" of several platforms: {known}"
            )
        return manifest

    def _proves_absence(self, answer: Response) -> bool:
        """A 404 is believed if it has a registry's error code, or comes from a registry that answers at /v2/."""
        if answer.error_codes & _UNKNOWN:
            return True
        root = self._transport.request("GET", "/v2/")
        return root.status == 200 and root.headers.get("Docker-Distribution-Api-Version", "").startswith("registry/2")

    def _check_digest(self, answer: Response, reference: str) -> None:
        digest = sha256(answer.body)
        claimed = answer.headers.get("Docker-Content-Digest", digest)
        wanted = reference if reference.startswith("sha256:") else digest
        if not digest == claimed == wanted:
            raise RegistryRefused(
                f"registry {self._host} returned wrong content for {reference}: {digest} instead of"
                f" {claimed if wanted == digest else wanted}"
            )

    def _labels(self, repository: str, manifest: Mapping[str, Any]) -> dict[str, str]:
        """The labels in the image's config; an index (one image for each platform) has none of its own."""
        if "manifests" in manifest:
            return {}
        described = manifest.get("config")
        digest = described.get("digest") if isinstance(described, dict) else None
        digest = digest if isinstance(digest, str) else ""
        config = json_object(self.fetch_blob(repository, digest, limit=MAX_DOCUMENT))
        labels = json_object(config.get("config")).get("Labels")
        return clean_labels(json_object(labels))

    def _put_manifest(self, repository: str, reference: str, content: bytes, media_type: str) -> Response:
        headers = {"Content-Type": media_type}
        answer = self._request("PUT", repository, "manifests", reference, headers=headers, body=content)
        if answer.status not in (200, 201):
            raise self._refused(f"rejected the manifest {repository}:{reference}", answer)
        return answer

    def _get(self, repository: str, kind: str, name: str) -> Response:
        return self._request("GET", repository, kind, name, headers=_ACCEPT if kind == "manifests" else None)

    def _has(self, repository: str, kind: str, name: str) -> bool:
        headers = _ACCEPT if kind == "manifests" else None
        answer = self._request("HEAD", repository, kind, name, headers=headers)
        if answer.status not in (200, 404):
            raise self._refused(f"failed a request for {name} in {repository}", answer)
        return answer.status == 200

    def _request(
        self,
        method: str,
        repository: str,
        kind: str,
        name: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = MAX_DOCUMENT,
    ) -> Response:
        full_name = self._name(repository)
        path = f"/v2/{quote(full_name)}/{kind}/{quote(name, safe=':/')}"
        return self._transport.request(method, path, repository=full_name, headers=headers, body=body, limit=limit)

    def _name(self, repository: str) -> str:
        return registry_repository(self._host, repository)

    def _refused(self, what: str, answer: Response) -> RegistryRefused:
        return refused(self._host, what, answer)


def as_state(image: ImageRef, ask: Callable[[], ImageState]) -> ImageState:
    """The result of ``ask`` for an image; an error it raises becomes a state."""
    try:
        return contained(
            "image", str(image), ask, lambda error: Invalid(message=str(error)), passing=(DriverBuilderError,)
        )
    except RegistryUnauthorized as error:
        return Unauthorized(message=str(error))
    except RegistryBusy as error:
        return Unreachable(message=str(error), retry_after=error.retry_after)
    except RegistryUnavailable as error:
        return Unreachable(message=str(error), is_silent=isinstance(error, RegistrySilent))
    except RegistryRefused as error:
        return Invalid(message=str(error))


def index_digests(index: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each architecture's Linux image in an index; of several variants the first."""
    digests: dict[str, str] = {}
    entries = index.get("manifests")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(platform := entry.get("platform"), dict):
            architecture, digest = platform.get("architecture"), entry.get("digest")
            if platform.get("os") == "linux" and isinstance(architecture, str) and isinstance(digest, str):
                digests.setdefault(architecture, digest)
    return digests


def descriptor_digests(index: Mapping[str, Any]) -> tuple[str, ...]:
    """The digests that an index lists, of whatever they are."""
    entries = index.get("manifests")
    listed = entries if isinstance(entries, list) else ()
    digests = (entry.get("digest") for entry in listed if isinstance(entry, dict))
    return tuple(digest for digest in digests if isinstance(digest, str) and _DIGEST.fullmatch(digest))


def clean_labels(labels: Mapping[str, Any]) -> dict[str, str]:
    """The labels that are text of a sensible length, without characters that no output can hold."""
    texts = {
        _encodable(name): _encodable(value)
        for name, value in labels.items()
        if isinstance(value, str) and len(name) <= MAX_LABEL_NAME and len(value) <= MAX_LABEL
    }
    return dict(islice(texts.items(), MAX_LABELS))


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def json_object(content: Any) -> dict[str, Any]:
    """A JSON object out of text or out of a larger one; empty where there is another value."""
    try:
        value = json.loads(content) if isinstance(content, bytes) else content
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _with_digest(location: str, digest: str) -> str:
    """The upload's URL with the digest added to whatever query the registry keeps its state in."""
    parts = urlsplit(location)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), ("digest", digest)])))
