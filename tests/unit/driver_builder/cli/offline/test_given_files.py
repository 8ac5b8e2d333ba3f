"""The files of ``build``: ConfigMaps and Secrets as kubectl would make them, drivers in the order of dependencies."""

import argparse
import base64
from pathlib import Path
from typing import Any

import pytest

from driver_builder.base.errors import ConfigurationError
from driver_builder.cli.offline import given_files
from driver_builder.cli.offline.given_files import Given
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, SECRETS
from tests.support.driver_builder.offline_files import HELPER, driver_file

BINARY = b"\xff\xfe"


def read(*words: str, namespace: str = "team") -> Given:
    """Read what the flags name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--namespace", action="append")
    given_files.add_flags(parser)
    return given_files.read(parser.parse_args(words), namespace)


def data(given: Given, kind: Any, name: str, namespace: str = "team") -> dict[str, bytes]:
    """Return the contents of an object."""
    obj = given.objects.get(kind.path(namespace=namespace, name=name))
    texts = {} if kind is SECRETS else obj.get("data") or {}
    coded = obj.get("data") if kind is SECRETS else obj.get("binaryData")
    return {
        **{key: text.encode() for key, text in texts.items()},
        **{key: base64.b64decode(text) for key, text in (coded or {}).items()},
    }


@pytest.mark.parametrize(("flag", "kind"), [("--config-map", CONFIG_MAPS), ("--secret", SECRETS)])
def test_a_folder_becomes_an_object(flag: str, kind: Any, tmp_path: Path) -> None:
    """Each file is a key, also one that is no text; folders in it are left out."""
    folder = tmp_path / "source"
    (folder / "below").mkdir(parents=True)
    (folder / "a.c").write_text("int x;")
    (folder / "b.bin").write_bytes(BINARY)
    given = read("-f", str(driver_file(tmp_path)), flag, f"it={folder}", flag, f"other/one={folder / 'a.c'}")
    assert data(given, kind, "it") == {"a.c": b"int x;", "b.bin": BINARY}
    assert data(given, kind, "one", "other") == {"a.c": b"int x;"}


def test_manifests_of_all_kinds_are_read(tmp_path: Path) -> None:
    """Also in a List; ``stringData`` of a Secret is its data; what names no namespace is in that of the command."""
    driver_file(tmp_path, namespace="own")
    (tmp_path / "objects.yaml").write_text(
        """
apiVersion: v1
kind: List
items:
  - {kind: Secret, metadata: {name: push}, stringData: {a: text}, data: {b: Yg==}}
  - {kind: ConfigMap, metadata: {name: source, namespace: own}, data: {c: d}}
  - {kind: Service, metadata: {name: unrelated}}
"""
    )
    given = read("-f", str(tmp_path))
    assert data(given, SECRETS, "push") == {"a": b"text", "b": b"b"}
    assert data(given, CONFIG_MAPS, "source", "own") == {"c": b"d"}
    assert [driver.key for driver in given.drivers] == ["own/helper"]
    with pytest.raises(NotFound, match="--config-map source=DIRECTORY"):
        given.objects.get(CONFIG_MAPS.path(namespace="team", name="source"))


def test_a_driver_comes_after_those_that_it_depends_on(tmp_path: Path) -> None:
    """Their images exist by then. A cycle keeps no other driver from its build."""
    for name, first in (("a", "b"), ("b", "z"), ("z", None), ("x", "y"), ("y", "x")):
        spec = {**HELPER, "image": f"r.io/team/{name}", "dependsOn": [{"name": first}] if first else []}
        driver_file(tmp_path, spec, name=name)
    words = [word for name in ("a", "b", "z") for word in ("-f", str(tmp_path / f"{name}.json"))]
    assert [driver.name for driver in read(*words).drivers] == ["z", "b", "a"]


def test_all_errors_of_manifests_are_named_at_once(tmp_path: Path) -> None:
    """With file and line, as lint has them."""
    driver_file(tmp_path, {**HELPER, "imagee": "x"})
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ConfigurationError) as caught:
        read("-f", str(tmp_path))
    lines = str(caught.value).splitlines()
    assert lines[0] == "nothing is built"
    assert any("helper.json:1" in line and "spec.imagee: is not a field" in line for line in lines)
    assert any("broken.yaml:1" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("kind: ConfigMap\nmetadata: {name: a}\ndata: {b: 1}", "data: b has a value that is not a text",
                     id="a number"),
        pytest.param("kind: Secret\nmetadata: {name: a}\nstringData: [b]", "stringData is not a mapping", id="a list"),
        pytest.param("kind: Secret\nmetadata: {}", "has no metadata.name", id="no name"),
        pytest.param("kind: Secret\nmetadata: {name: a, annotations: {b: true}}", "annotations: b has a value",
                     id="an annotation"),
    ],
)  # fmt: skip
def test_what_an_api_server_would_refuse_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    """The object is named, its content is not quoted."""
    (tmp_path / "object.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        read("-f", str(driver_file(tmp_path)), "-f", str(tmp_path / "object.yaml"))
