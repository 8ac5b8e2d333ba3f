"""Where rules come from, and what stays in force when a file goes bad."""

import os
from pathlib import Path

import pytest

from feature_rules.model import Rule
from nfd_worker.config.rule_files import CUSTOM_DIRECTORY, RuleFiles, RuleSet
from nfd_worker.guarded_file import MAX_YAML_FILE
from nfd_worker.host import Host


def rule(name: str) -> str:
    """Write a bare list with one rule."""
    return f"- name: {name}\n  labels: {{{name}: 'true'}}\n"


def names(rules: tuple[Rule, ...]) -> list[str]:
    """Name the rules, in order."""
    return [one.name for one in rules]


def write(directory: Path, **files: str) -> Path:
    """Write files; ``__`` in a name is a slash."""
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """Make an empty custom.d."""
    directory = tmp_path / CUSTOM_DIRECTORY
    directory.mkdir(parents=True)
    return directory


def read(root: Path, rules_dir: str = "", *files: str) -> RuleSet:
    """Read all once."""
    return RuleFiles(Host(str(root)), rules_dir, files).read()


def test_without_files_there_are_no_rules(tmp_path: Path) -> None:
    """Neither directory need be there; that is known."""
    assert read(tmp_path, str(tmp_path / "none")) == RuleSet()


def test_custom_rules_are_of_files_and_of_one_level_of_directories(tmp_path: Path, custom: Path) -> None:
    """In the order of names; a mounted ConfigMap's own machinery begins with two dots."""
    write(custom, b=rule("b"), a__z=rule("z"), a__y=rule("y"), a__deep__x=rule("x"), **{"..data__b": rule("hidden")})
    assert names(read(tmp_path).custom) == ["y", "z", "b"]


def test_hidden_directories_of_custom_rules_are_not_read(tmp_path: Path, custom: Path) -> None:
    """Neither a person's nor the kubelet's copy of a ConfigMap; what is wrong in them is no problem."""
    write(custom, a=rule("a"), **{".mine__b": rule("b"), "..2026_11_22_23_36_13.1__a": rule("a"), ".mine__bad": "{"})
    found = read(tmp_path)
    assert names(found.custom) == ["a"]
    assert found.problems == ()


def test_custom_rules_have_the_older_form(tmp_path: Path, custom: Path) -> None:
    """As sources.custom has it; a NodeFeatureRule has no place there."""
    write(custom, a="- {name: n, matchFeatures: [{feature: a.b, matchExpressions: {c: d}}]}")
    assert names(read(tmp_path).custom) == ["n"]
    assert read(tmp_path, str(custom)).problems


def test_cluster_rules_come_in_the_order_of_their_objects(tmp_path: Path) -> None:
    """``a`` before ``a-b``, though the files sort otherwise; hidden names and directories are no objects."""
    mounted = write(tmp_path / "m", **{"a.yaml": rule("a"), "a-b.yaml": rule("ab"), "..data__x": "!", "d__x": "!"})
    found = read(tmp_path, str(mounted))
    assert names(found.cluster) == ["a", "ab"]
    assert found.problems == ()


def test_files_that_are_named_follow(tmp_path: Path) -> None:
    """In the order they are named in; a path may be relative to the working directory."""
    write(tmp_path, m__a=rule("a"), z=rule("z"), y=rule("y"))
    found = read(tmp_path, str(tmp_path / "m"), os.path.relpath(tmp_path / "z"), str(tmp_path / "y"))
    assert names(found.cluster) == ["a", "z", "y"]


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """It was named, and what it would say is not known."""
    found = read(tmp_path, "", str(tmp_path / "none"))
    assert [problem.file for problem in found.problems] == [str(tmp_path / "none")]
    assert found.unknown == (str(tmp_path / "none"),)


def test_rules_of_an_unchanged_file_are_the_same_objects(tmp_path: Path, custom: Path) -> None:
    """Nothing is parsed, nor compiled, that did not change."""
    write(custom, a=rule("a"), b=rule("b"))
    files = RuleFiles(Host(str(tmp_path)))
    before = files.read().custom
    write(custom, b=rule("c"))
    after = files.read().custom
    assert after[0] is before[0]
    assert names(after) == ["a", "c"]


def test_rules_of_a_removed_file_go(tmp_path: Path, custom: Path) -> None:
    """Rules of a removed file are dropped; those of an unreadable one would stay."""
    write(custom, a=rule("a"))
    files = RuleFiles(Host(str(tmp_path)))
    assert names(files.read().custom) == ["a"]
    (custom / "a").unlink()
    assert files.read() == RuleSet()


@pytest.mark.parametrize("is_emptied", [False, True], ids=["deleted", "emptied"])
def test_rules_of_a_file_that_is_gone_stay_for_the_grace_and_in_their_place(tmp_path: Path, is_emptied: bool) -> None:
    """Somebody replaces an object or its ConfigMap: what a rule makes of another's labels must not change meanwhile."""
    custom, mounted = tmp_path / CUSTOM_DIRECTORY, tmp_path / "m"
    write(custom, a__z=rule("z"), b=rule("b"))
    write(mounted, **{"a.yaml": rule("a"), "a-b.yaml": rule("ab"), "c.yaml": rule("c")})
    files = RuleFiles(Host(str(tmp_path)), str(mounted))
    before = files.read(100.0, 60.0)
    for path in (custom / "a" / "z", mounted / "a-b.yaml"):
        path.write_text("") if is_emptied else path.unlink()
    assert files.read(110.0, 60.0) == before
    assert (files.due, files.has_let_go) == (170.0, False)
    assert files.read(169.0, 60.0) == before
    after = files.read(170.0, 60.0)
    assert (names(after.custom), names(after.cluster)) == (["b"], ["a", "c"])
    assert (files.due, files.has_let_go) == (float("inf"), True)
    assert files.read(171.0, 60.0) == after
    assert not files.has_let_go


def test_rules_that_come_back_count_at_once(tmp_path: Path, custom: Path) -> None:
    """In their new form, and with a new grace."""
    write(custom, a=rule("a"))
    files = RuleFiles(Host(str(tmp_path)))
    files.read(0.0, 60.0)
    (custom / "a").unlink()
    files.read(10.0, 60.0)
    write(custom, a=rule("c"))
    assert names(files.read(20.0, 60.0).custom) == ["c"]
    (custom / "a").unlink()
    assert names(files.read(75.0, 60.0).custom) == ["c"]


@pytest.mark.parametrize(
    "text", ["- {name: ", "[{name: a, matchFeatures: [{}]}]", "\ud800"], ids=["yaml", "rule", "utf8"]
)
def test_a_file_that_goes_bad_keeps_the_rules_it_had(tmp_path: Path, custom: Path, text: str) -> None:
    """Somebody is writing it; a mistake is reported once it is parsed."""
    write(custom, a=rule("a"))
    files = RuleFiles(Host(str(tmp_path)))
    before = files.read()
    (custom / "a").write_bytes(text.encode(errors="surrogatepass"))
    bad = files.read()
    assert bad.custom == before.custom
    assert bad.problems[-1].message == "none of its rules can be used; its previous rules stay in use"
    assert bad.unknown == ()
    assert files.read() == bad
    write(custom, a=rule("c"))
    assert files.read().problems == ()


def test_a_file_that_was_never_good_is_not_known(tmp_path: Path, custom: Path) -> None:
    """Until it is mended; bad twice is not known either."""
    write(custom, a="{")
    files = RuleFiles(Host(str(tmp_path)))
    assert (files.read().custom, files.read().unknown) == ((), ("custom.d/a",))
    write(custom, a="{{")
    assert files.read().unknown == ("custom.d/a",)
    write(custom, a=rule("a"))
    assert files.read().unknown == ()


def test_rules_know_their_file(tmp_path: Path, custom: Path) -> None:
    """It is what the record on the Node calls them by, wherever the directory is mounted."""
    write(custom, team__a=rule("a"))
    mounted = write(tmp_path / "m", **{"b.yaml": rule("b")})
    found = read(tmp_path, str(mounted))
    assert [one.file for one in (*found.custom, *found.cluster)] == ["custom.d/team/a", "rules.d/b.yaml"]


@pytest.mark.parametrize("kind", ["pipe", "device", "long"])
def test_what_is_no_file_of_rules_is_not_read(tmp_path: Path, custom: Path, kind: str) -> None:
    """It neither holds the worker nor fills its memory, and stops no other file."""
    write(custom, a=rule("a"))
    bad = custom / "b"
    if kind == "pipe":
        os.mkfifo(bad)
    elif kind == "device":
        bad.symlink_to("/dev/zero")
    else:
        bad.touch()
        os.truncate(bad, MAX_YAML_FILE + 1)
    found = read(tmp_path)
    assert names(found.custom) == ["a"]
    assert found.unknown == ("custom.d/b",)
    assert ("bytes" if kind == "long" else "not a regular file") in found.problems[0].message


def test_good_rules_of_a_file_count_though_others_are_bad(tmp_path: Path, custom: Path) -> None:
    """One mistake must not take the others away."""
    write(custom, a=rule("a") + "- {name: b, matchFeatures: [{}]}\n")
    found = read(tmp_path)
    assert names(found.custom) == ["a"]
    assert len(found.problems) == 1
    assert found.unknown == ()


def test_a_directory_that_cannot_be_listed_keeps_its_files(
    tmp_path: Path, custom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error of the host's disk passes; a directory that is gone is gone."""
    write(custom, a=rule("a"))
    files = RuleFiles(Host(str(tmp_path)))
    before = files.read()

    def fails(path: object) -> None:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", fails)
        during = files.read()
        never = read(tmp_path)
    assert during.custom == before.custom
    assert during.unknown == ()
    assert "Input/output error; the rules read there before stay in use" in during.problems[0].message
    assert never.unknown == ("custom.d/",)
    assert files.read() == before
