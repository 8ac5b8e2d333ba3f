"""What of a release is made of the source alone."""

import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.yaml_files import read_documents
from tools.product_images import EVERY
from tools.release.origin import Origin
from tools.release.source_files import (
    SUMS,
    ReleaseError,
    check_source,
    exchanged,
    make_chart,
    make_manifests,
    write_sums,
)

ORIGIN = Origin(version="1.2.3", revision="a" * 40, epoch=1_700_000_000)


@pytest.mark.parametrize("make", [make_chart, make_manifests])
def test_twice_the_same_bytes(tmp_path: Path, make: type) -> None:
    """Another time, another folder; of another commit, another time stamp."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    first, second, other = (
        make(folder, replace(ORIGIN, epoch=epoch)).read_bytes()
        for folder, epoch in zip(folders, (1_700_000_000, 1_700_000_000, 1_700_000_001), strict=True)
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize("of", ["defaults", "everything"])
def test_the_packed_chart_is_the_chart(tmp_path: Path, of: str) -> None:
    """By Helm, which reads it as it is; only the tag of the images is the version."""
    # Not at the top, or what is forked would have a Go runtime (tools/manifests.py).
    import helm_python as helm

    from tests.contract.chart import VALUES, objects

    values = VALUES[of]
    path = make_chart(tmp_path, ORIGIN)
    with helm.Chart.load(path) as chart:
        texts = chart.render(values, name="driverwright", namespace="driverwright")
        crds = chart.crds
    found = [item for name, text in sorted(texts.items()) if name.endswith(".yaml") for item in read_documents(text)]
    assert found == objects({**values, "images": {"tag": "1.2.3"}})
    assert [item["name"] for item in crds] == ["crds/drivercontainers.yaml"]


def test_the_chart_is_named_as_helm_names_it(tmp_path: Path) -> None:
    """By the version of the chart; all of it is below its name, the README with the tag that it has."""
    path = make_chart(tmp_path, ORIGIN)
    assert re.fullmatch(r"driverwright-[0-9]+\.[0-9]+\.[0-9]+\.tgz", path.name)
    with tarfile.open(path) as tar:
        assert {name.partition("/")[0] for name in tar.getnames()} == {"driverwright"}
        readme = tar.extractfile("driverwright/README.md")
        assert readme is not None
        assert '| `images.tag` | tag of all images | `"1.2.3"` |' in readme.read().decode()


def test_the_manifests_name_the_images_of_the_version(tmp_path: Path) -> None:
    """All of them, in the overlay as well; nothing is left that means the newest."""
    with tarfile.open(make_manifests(tmp_path, ORIGIN)) as tar:
        texts = {
            member.name: content.read().decode() for member in tar if (content := tar.extractfile(member)) is not None
        }
    assert {name.partition("/")[0] for name in texts} == {"driverwright-1.2.3"}
    names = set(re.findall(r"\bdriverwright/([a-z-]+):1\.2\.3\b", "".join(texts.values())))
    assert names == set(EVERY) - {"edu-workload"}
    assert [name for name, text in texts.items() if ":latest" in text] == []
    assert {"driverwright-1.2.3/deploy/kustomization.yaml", "driverwright-1.2.3/LICENSE"} <= texts.keys()
    assert "driverwright-1.2.3/examples/overlay/kustomization.yaml" in texts
    assert not [name for name in texts if "/chart/" in name]


def test_what_is_to_be_exchanged_has_to_be_there_once() -> None:
    """Or a release would keep the old text without a word."""
    assert exchanged("a: x\n", "a: x", "a: y", of="f") == "a: y\n"
    with pytest.raises(ReleaseError, match=r"values.yaml should have 'tag: latest' once, and has it 0 times"):
        exchanged("tag: new\n", "\n  tag: latest\n", "", of="values.yaml")


def test_digests_are_checked_by_sha256sum(tmp_path: Path) -> None:
    """And it finds a file that is damaged."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, text=True).stdout == "a: OK\nb: OK\n"
    (tmp_path / "b").write_text("c")
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (
            replace(ORIGIN, changed=("a.py",)),
            r"files differ from the commit \(a.py\): commit them, or set ALLOW_DIRTY=1",
        ),
        (replace(ORIGIN, changed=tuple("abcd")), r"\(a, b, c, \.\.\.\)"),
        (Origin(version="1.2.3"), "not a git repository"),
    ],
    ids=["changed", "much is changed", "no commit"],
)
def test_a_release_is_of_one_commit(origin: Origin, words: str) -> None:
    """The message names what differs; a trial can be made all the same, and has a time."""
    with pytest.raises(ReleaseError, match=words):
        check_source(origin, allow_dirty=False)
    assert check_source(origin, allow_dirty=True).created
    assert check_source(ORIGIN, allow_dirty=False) == ORIGIN
