"""A registry's repository in a folder, as an OCI image layout, and back: the same bytes under the same digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests

Json = dict[str, Any]

TAG = "org.opencontainers.image.ref.name"
_TYPES = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"


def save(repository: str, folder: Path) -> None:
    """Write all that a repository has a tag for; it is given by its address below ``/v2``."""
    (folder / "blobs" / "sha256").mkdir(parents=True)
    tags = sorted(_answer("GET", f"{repository}/tags/list").json()["tags"])
    manifests = [{**_save_manifest(repository, tag, folder), "annotations": {TAG: tag}} for tag in tags]
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}, indent=1) + "\n")


def push(folder: Path, repository: str) -> None:
    """Push everything in a layout to a repository, including its tags."""
    for described in json.loads((folder / "index.json").read_text())["manifests"]:
        _push_manifest(folder, described, repository)
        _put_manifest(folder, described, repository, described["annotations"][TAG])


def _save_manifest(repository: str, reference: str, folder: Path) -> Json:
    answer = _answer("GET", f"{repository}/manifests/{reference}", headers={"Accept": _TYPES})
    manifest = answer.json()
    for child in manifest.get("manifests") or ():
        _save_manifest(repository, child["digest"], folder)
    for blob in _blobs(manifest):
        _save_blob(folder, _answer("GET", f"{repository}/blobs/{blob['digest']}").content)
    digest = _save_blob(folder, answer.content)
    return {"mediaType": answer.headers["Content-Type"], "digest": digest, "size": len(answer.content)}


def _save_blob(folder: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def _push_manifest(folder: Path, described: Json, repository: str) -> None:
    manifest = json.loads(_read(folder, described))
    for child in manifest.get("manifests") or ():
        _push_manifest(folder, child, repository)
    for blob in _blobs(manifest):
        place = _answer("POST", f"{repository}/blobs/uploads/").headers["Location"]
        address = urljoin(repository, place)
        separator = "&" if "?" in address else "?"
        _answer("PUT", f"{address}{separator}digest={blob['digest']}", data=_read(folder, blob))
    _put_manifest(folder, described, repository, described["digest"])


def _put_manifest(folder: Path, described: Json, repository: str, reference: str) -> None:
    headers = {"Content-Type": described["mediaType"]}
    _answer("PUT", f"{repository}/manifests/{reference}", data=_read(folder, described), headers=headers)


def _read(folder: Path, described: Json) -> bytes:
    digest: str = described["digest"]
    content = (folder / "blobs" / digest.replace(":", "/")).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest, "a recorded file was changed"
    return content


def _blobs(manifest: Json) -> list[Json]:
    return [manifest["config"], *manifest["layers"]] if "layers" in manifest else []


def _answer(method: str, address: str, **options: Any) -> requests.Response:
    answer = requests.request(method, address, timeout=30, **options)
    answer.raise_for_status()
    return answer
