"""The archive of ``doctor --report``: what is taken out of objects, and how large it may become."""

import gzip
import io
import json
import tarfile
from typing import Any

import pytest

from driver_builder.base.check_result import failed, ok
from driver_builder.builds.build_logs import Redactor
from driver_builder.checks import redaction
from driver_builder.checks import report_archive as report
from driver_builder.checks.finding import Unread
from driver_builder.checks.report_archive import File
from kube_api import names
from tests.support.driver_builder.factories import NOW, node_labels

SECRET = "correct-horse"
REDACT = Redactor([SECRET])


def unpacked(content: bytes) -> dict[str, bytes]:
    """Return the files of an archive, without the folder that all are in."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as tar:
        members = [(member.name.partition("/")[2], tar.extractfile(member)) for member in tar.getmembers()]
        return {name: file.read() for name, file in members if file is not None}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"message": f"it said {SECRET}"}, id="a password that is known"),
        pytest.param({"a": [{"b": f"x\nline two: {SECRET}"}]}, id="a later line of a text deep within"),
        pytest.param({"env": [{"name": "DB_PASSWORD", "value": "pony"}]}, id="a variable"),
        pytest.param({"env": [{"name": "ANYTHING", "value": "pony"}]}, id="a variable with a harmless name"),
        pytest.param({"env": [{"name": "DRIVER_BUILDER_TOKEN", "value": "pony"}]}, id="a setting that may be a secret"),
        pytest.param({"env": [{"name": "HTTPS_PROXY", "value": "http://u:pony@p:1"}]}, id="the URL of a proxy"),
        pytest.param({"args": ["--password", "pony"]}, id="an argument after its flag"),
        pytest.param({"command": ["x", "--api-token=pony"]}, id="an argument in its flag"),
        pytest.param({"build": {"args": {"LICENSE_PASSPHRASE": "pony"}}}, id="a build argument"),
        pytest.param({"source": {"git": {"url": "https://u:pony@git.example.com/x"}}}, id="a URL with a password"),
        pytest.param({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "pony"}}, id="a copy"),
        pytest.param({f"key-{SECRET}": 1}, id="a key"),
    ],
)
def test_secrets_are_taken_out_of_objects(value: Any) -> None:
    """By what is known, by the name of a field, and by what looks like one."""
    text = json.dumps(redaction.redacted(value, REDACT))
    assert SECRET not in text
    assert "pony" not in text


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"env": [{"name": "DRIVER_BUILDER_BUILDER", "value": "job"}]}, id="a setting"),
        pytest.param({"registry": {"secretRef": {"name": "regcred"}}}, id="the name of a Secret"),
        pytest.param({"volumes": [{"secret": {"secretName": "regcred"}}]}, id="a volume of a Secret"),
        pytest.param({"image": "r.io/x:1", "count": 3, "on": True, "none": None}, id="everything else"),
        pytest.param({"args": ["run", "--builder=job"]}, id="arguments"),
    ],
)
def test_what_explains_a_bug_stays(value: Any) -> None:
    """References to Secrets are not secret."""
    assert redaction.redacted(value, REDACT) == value


def test_a_node_is_reduced_to_what_is_ours() -> None:
    """Features and our own keys, conditions and taints; other people's labels and annotations are theirs."""
    obj = {
        "metadata": {
            "name": "node-a",
            "labels": {**node_labels(), "driverwright.io/a.b.ready": "1", "team": "blue"},
            "annotations": {names.BOOT_ID_ANNOTATION: "b", "loaded.driverwright.io/a.b": "{}", "other.io/x": "y"},
        },
        "spec": {"taints": [{"key": "t"}], "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [{"type": "Ready"}], "images": [{"names": ["x"]}], "addresses": [{"address": "1"}]},
    }
    made = redaction.node(obj)
    assert "team" not in made["labels"]
    assert {names.KERNEL_VERSION_LABEL, "driverwright.io/a.b.ready"} <= made["labels"].keys()
    assert made["annotations"].keys() == {names.BOOT_ID_ANNOTATION, "loaded.driverwright.io/a.b"}
    assert made["taints"] == [{"key": "t"}]
    assert made.keys() == {"name", "labels", "annotations", "unschedulable", "taints", "conditions", "nodeInfo"}


def test_an_archive_says_what_is_in_it() -> None:
    """And what could not be read, and that it has to be read before it is sent."""
    files = (
        *report.findings_files([ok("a", "fine"), failed("b", "bad", "do it")], REDACT),
        File(name="x", content=b"1"),
    )
    content = report.archive(files, {"pods.json": Unread(message="403")}, version="1", now=NOW)
    found = unpacked(content)
    about = found["README.txt"].decode()
    assert "x: 1 bytes" in about
    assert "pods.json: not read: 403" in about
    assert found["findings.txt"].decode().splitlines()[-1] == "1 ok, 1 FAILED"
    assert [item["verdict"] for item in json.loads(found["findings.json"])] == ["ok", "FAILED"]


def test_a_list_is_cut_between_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays JSON, and says how many are missing."""
    monkeypatch.setattr(report, "MAX_FILE", 100)
    file = report.list_file("x", [{"n": number, "text": "y" * 20} for number in range(9)], REDACT)
    made = json.loads(file.content)
    assert made["omitted"] + len(made["items"]) == 9
    assert 0 < len(made["items"]) < 9


def test_an_archive_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is named."""
    monkeypatch.setattr(report, "MAX_ARCHIVE", 5)
    found = unpacked(report.archive([File(name=name, content=b"1234") for name in "ab"], {}, version="1", now=NOW))
    assert found.keys() == {"README.txt", "a"}
    assert "b: 4 bytes, left out" in found["README.txt"].decode()


def test_a_log_keeps_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest lines matter, and each is redacted."""
    monkeypatch.setattr(report, "MAX_FILE", 20)
    file = report.text_file("x", f"{'old ' * 20}\ntoken=pony\nlast\x1b[31m line", REDACT)
    assert file.content.endswith(b"token=***\nlast line\n")


def test_a_finding_is_folded_to_the_terminal() -> None:
    """Below itself; without a width it is one line, and one for the remedy."""
    finding = failed("rights", "a b c d e f g h i j k l m n o p q r s t u v w x y z", "do it")
    assert len(report.lines(finding)) == 2
    folded = report.lines(finding, 60)
    assert len(folded) == 3
    assert all(len(line) <= 60 for line in folded)
    assert folded[-1].strip() == "next: do it"
