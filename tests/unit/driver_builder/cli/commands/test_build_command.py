"""``build``: files in, images in a registry or a folder out, with what became of each driver on each kernel."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.cli import main
from driver_builder.cli.commands import build_command
from driver_builder.cli.commands.build_command import exit_code, summary
from driver_builder.model.build import Builder
from driver_builder.model.driver_key import driver_key
from driver_builder.model.images import SIGNER_LABEL, ImageRef
from driver_builder.prebuild.preflight import Success, unchecked
from driver_builder.registry.image_signature import has_signature
from driver_builder.registry.layout_registry import LayoutRegistry
from driver_builder.registry.oci_layout import read_layout
from driver_builder.registry.referrers import referrers_of
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL
from tests.support.driver_builder.module_signing import a_signer, key_bytes
from tests.support.driver_builder.offline_files import HELPER, driver_file, ready_engine, source_folder
from tests.support.driver_builder.scripted_registry import MemoryRegistry, Reply, Request, scripted_registry

HOST, REPOSITORY = "registry.example.com", "team/helper"
PASSWORD = "a-password-of-a-registry"


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand in for an engine whose image fits one kernel; docker has no configuration."""
    monkeypatch.setattr(build_command, "engine_builder", ready_engine)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-docker"))


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., int]:
    """Run the command for a driver with its source, on one kernel."""

    def run(*words: str, spec: dict[str, Any] | None = None, kernels: str = KERNEL) -> int:
        file = driver_file(tmp_path, {**HELPER, **(spec or {})})
        source = f"edu-source={source_folder(tmp_path)}"
        given = ["-f", str(file), "--config-map", source, "--kernel", kernels, "--os", "debian:12"]
        return main.main(["build", *given, *words])

    return run


def results(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Read what ``-o json`` printed."""
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def failing_engine(error: Exception) -> Callable[..., Any]:
    """Make an engine that fails."""

    @contextmanager
    def engine(*_words: object) -> Iterator[Builder]:
        raise error
        yield

    return engine


def test_an_image_goes_into_a_folder_with_its_papers(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under its whole name, with a bill of materials; the result has its digest and key."""
    assert build("--oci-dir", str(tmp_path / "images"), "-o", "json") == 0
    (result,) = results(capsys)
    assert (result["driver"], result["kernel"], result["verdict"]) == ("driverwright/helper", KERNEL, "verified")
    layout = read_layout(tmp_path / "images")
    store = LayoutRegistry(layout, HOST)
    (name,) = [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in layout.entries()
               if "annotations" in entry]  # fmt: skip
    tag = name.rpartition(":")[2]
    assert name == f"{HOST}/{REPOSITORY}:{tag}"
    assert tag.endswith(result["key"])
    image = store.manifest(REPOSITORY, tag)
    assert image is not None
    assert result["image"] == f"{HOST}/{REPOSITORY}@{image.digest}"
    assert image.document["annotations"]["io.driverwright.build-key"] == result["key"]
    assert len(referrers_of(store, REPOSITORY, image.digest)) == 1


def test_an_image_that_is_there_is_not_built_again(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that was cut off goes on where it was."""
    build("--oci-dir", str(tmp_path / "images"))
    monkeypatch.setattr(build_command, "engine_builder", failing_engine(AssertionError("built again")))
    capsys.readouterr()
    assert build("--oci-dir", str(tmp_path / "images"), "-o", "json") == 0
    assert results(capsys)[0]["verdict"] == "present"


def test_modules_and_images_are_signed_with_keys_from_files(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Secrets would have them; no key is printed."""
    signer, image_key = a_signer("ours"), ec.generate_private_key(ec.SECP256R1())
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    keys = {"modules": {"key": key_bytes(signer), "cert": signer.pem}, "cosign": {"key": image_key.private_bytes(*pem)}}
    words = []
    for name, files in keys.items():
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_bytes(content)
        words += ["--secret", f"{name}={tmp_path / name}"]
    signing = {
        "keySecretRef": {"name": "modules"},
        "certificateSecretRef": {"name": "modules"},
        "imageKeySecretRef": {"name": "cosign"},
    }
    assert build(*words, "--oci-dir", str(tmp_path / "images"), "-o", "json", spec={"signing": signing}) == 0
    printed = capsys.readouterr()
    (result,) = json.loads(printed.out)
    digest = result["image"].partition("@")[2]
    store = LayoutRegistry(read_layout(tmp_path / "images"), HOST)
    assert has_signature(store, ImageRef(HOST, REPOSITORY, digest), image_key.public_key())
    image = store.manifest(REPOSITORY, digest)
    assert image is not None
    assert SIGNER_LABEL in image.document["annotations"]
    assert "PRIVATE KEY" not in printed.out + printed.err


@pytest.mark.parametrize("place", ["docker", "secret"])
def test_the_registrys_password_is_dockers_or_that_of_a_secret(
    build: Callable[..., int],
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Secret in a file goes before docker's configuration; neither is printed."""
    memory = MemoryRegistry()
    auth = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()

    def script(request: Request) -> Reply:
        if request.headers.get("Authorization") == f"Basic {auth}":
            return memory(request)
        return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})

    with scripted_registry(script) as server:
        right, wrong = ({"auths": {server.host: {"auth": text}}} for text in (auth, base64.b64encode(b"a:b").decode()))
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker" / "config.json").write_text(json.dumps(right if place == "docker" else wrong))
        (tmp_path / ".dockerconfigjson").write_text(json.dumps(right))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        words = ["--secret", f"push={tmp_path / '.dockerconfigjson'}"] if place == "secret" else []
        registry = {"plainHttp": True, "secretRef": {"name": "push"}}
        spec = {"image": f"{server.host}/{REPOSITORY}", "registry": registry}
        assert build("--push", "--registry-plain-http-passwords", "-o", "json", *words, spec=spec) == 0
    printed = capsys.readouterr()
    (result,) = json.loads(printed.out)
    assert result["image"].partition("@")[2] in memory.manifests
    assert PASSWORD not in printed.out + printed.err
    assert auth not in printed.out + printed.err


def test_without_a_place_nothing_is_kept(build: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """It is verified, and the registry has nothing of it."""
    with scripted_registry(memory := MemoryRegistry()) as server:
        spec = {"image": f"{server.host}/{REPOSITORY}", "registry": {"plainHttp": True}}
        assert build("-o", "json", spec=spec) == 0
    assert results(capsys)[0]["verdict"] == "verified"
    assert (memory.blobs, memory.manifests) == ({}, {})


def test_kernels_without_a_driver_are_summed_up(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has a line for each kernel; below it is why some have no driver, and what to do. The exit code is 1."""
    mappings = [{"literal": "5.10.0-1-amd64", "skip": True}, {"regexp": ".*"}]
    kernels = f"{KERNEL},{OTHER_KERNEL},5.10.0-1-amd64"
    assert build("--oci-dir", str(tmp_path / "i"), spec={"kernelMappings": mappings}, kernels=kernels) == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split() == ["DRIVER", "KERNEL", "VERDICT", "REASON", "SECONDS", "IMAGE"]
    assert [line.split()[1:4] for line in lines[1:4]] == [
        [KERNEL, "verified", "-"],
        [OTHER_KERNEL, "FAILED", "ModuleMissing"],
        ["5.10.0-1-amd64", "not", "wanted"],
    ]
    assert "driverwright/helper: 1 of 3 kernels have a driver" in lines
    assert f"  FAILED ModuleMissing: {OTHER_KERNEL}" in lines
    assert "  not wanted SkippedByMapping: 5.10.0-1-amd64" in lines
    assert printed.err.splitlines()[-1].startswith("3/3 driverwright/helper 5.10.0-1-amd64: not wanted")


def test_an_engine_that_is_away_ends_it_early(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3: what failed is none of the driver's. The kernels that were not tried say so."""
    monkeypatch.setattr(build_command, "engine_builder", failing_engine(TemporaryError("no engine")))
    kernels = ",".join(f"6.1.0-{number}-amd64" for number in range(5))
    assert build("--oci-dir", str(tmp_path / "i"), "-o", "json", kernels=kernels) == 3
    found = results(capsys)
    assert [item["reason"] for item in found] == ["BuilderUnavailable"] * 5
    assert [item["message"].startswith("not tried") for item in found] == [False] * 3 + [True] * 2


def test_what_a_build_prints_is_shown_without_passwords(
    build: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither message nor log of a failed build has the registry's password."""
    (tmp_path / "config.json").write_text(json.dumps({"auths": {HOST: {"username": "a", "password": PASSWORD}}}))
    error = BuildFailed(Reason.COMPILE_ERROR, f"edu.c:1: {PASSWORD}", log_tail=(f"make: {PASSWORD}",))
    monkeypatch.setattr(build_command, "engine_builder", failing_engine(error))
    code = build("--oci-dir", str(tmp_path / "i"), "--registry-config", str(tmp_path / "config.json"))
    printed = capsys.readouterr()
    assert code == 1
    assert PASSWORD not in printed.out + printed.err
    assert f"driverwright/helper {KERNEL}: make: ***" in printed.err
    assert "edu.c:1: ***" in printed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["-f", "FILE", "--kernel", "latest"], "--kernel, --os, --arch: 'latest'", id="no kernel"),
        pytest.param(["-f", "FILE", "--kernel", ","], "--kernel: there is no kernel in it", id="no kernel at all"),
        pytest.param(["-f", "FILE", "--kernels", "FILE"], "helper.json: it has no kernel of debian:12", id="no list"),
        pytest.param(["-f", "EMPTY", "--kernel", "6.1"], "no DriverContainer in", id="no driver"),
        pytest.param(["-f", "FILE", "-f", "FILE", "--kernel", "6.1"], "more than once", id="twice"),
        pytest.param(["-f", "WRONG", "--kernel", "6.1"], "nothing is built\nWHERE", id="an invalid driver"),
        pytest.param(["-f", "FILE", "-n", "a", "-n", "b", "--kernel", "6.1"], "--namespace: name one", id="namespaces"),
        pytest.param(["-f", "OTHER", "-n", "a", "--kernel", "6.1"], "is of namespace team, not a", id="namespace"),
        pytest.param(["-f", "FILE", "--kernel", "6.1", "--secret", "x"], "write NAME=PATH", id="no path"),
        pytest.param(["-f", "FILE", "--kernel", "6.1", "--config-map", "x=/no"], "--config-map x=/no", id="no folder"),
        pytest.param(["-f", "FILE", "--kernel", "6.1", "--snapshot", "FILE"], "--snapshot .*not a snapshot",
                     id="no snapshot"),
        pytest.param(["-f", "FILE", "--kernel", "6.1", "--registry-config", "/no"], "--registry-config", id="config"),
        pytest.param(["-f", "FILE", "--kernel", "6.1", "--oci-dir", "FOLDER"], "is not an OCI image layout",
                     id="a folder with something else"),
    ],
)  # fmt: skip
def test_wrong_usage_builds_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with what is wrong and where."""
    (tmp_path / "empty.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").touch()
    places = {
        "FILE": driver_file(tmp_path),
        "EMPTY": tmp_path / "empty.yaml",
        "WRONG": driver_file(tmp_path, {**HELPER, "imagee": "x"}, name="wrong"),
        "OTHER": driver_file(tmp_path, name="other", namespace="team"),
        "FOLDER": tmp_path / "folder",
    }
    given = [str(places.get(word, word)) for word in words]
    assert main.main(["build", "--os", "debian:12", *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(message, printed.err), printed.err


def test_results_that_fail_alike_are_told_together() -> None:
    """The kernel in a message does not make it another one; beyond five kernels they are counted."""
    key = driver_key("a", "b")
    alike = [unchecked(key, f"6.{n}").bad("HeadersMissing", f"none for 6.{n}") for n in range(7)]
    other = unchecked(key, "5.1").well(Success.PRESENT, "")
    lines = summary([*alike, other])
    assert lines[:3] == [
        "a/b: 1 of 8 kernels have a driver",
        "  FAILED HeadersMissing: 6.0, 6.1, 6.2, 6.3, 6.4 and 2 others",
        "    none for 6.0",
    ]
    assert lines[3].startswith("    next: ")
    assert exit_code([*alike, other]) == 1
