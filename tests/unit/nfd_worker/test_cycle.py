"""One cycle: content of what was read, the last good of what could not be, and silence about what never was."""

import shutil
from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from feature_rules.load import load_rules
from feature_rules.model import Rule, RuleProblem
from nfd_worker.config.config import Settings, load_settings
from nfd_worker.config.rule_files import RuleSet
from nfd_worker.cycle import Outcome, run_cycle
from nfd_worker.host import Host
from tests.support.nfd_worker.trees import HOSTS, recorded

PREFIX = "feature.node.kubernetes.io"
NO_GPU: dict[str, Outcome] = {"gpu": Features()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy a recorded host, to break it."""
    return Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))


def break_source(root: Path, source: str) -> None:
    """Make a source unreadable: what it reads goes away, as with a missing mount."""
    if source == "pci":
        shutil.rmtree(root / "sys/bus")
    else:
        (root / {"kernel": "proc/sys/kernel/osrelease", "system": "etc/os-release"}[source]).unlink()


def rules(text: str) -> tuple[Rule, ...]:
    """Load rules that are all good."""
    loaded = load_rules(text, "r.yaml", dialect="rule")
    assert not loaded.problems
    return loaded.rules


def test_the_boot_is_named() -> None:
    """The controller compares it with what driver pods prove."""
    report = run_cycle(recorded("arm64-cloud"), Settings(), {})
    assert report.content.annotations == {
        "driverwright.io/boot-id": "9d2b7fe8-0d7b-4b60-9c2a-7e1f4a0f6a52",
        "driverwright.io/kernel-version": "6.1.109-118.189.amzn2023.aarch64",
    }
    assert not report.failed


def test_a_kernel_whose_name_no_label_holds_is_named_to_the_letter(root: Path) -> None:
    """The label has what fits, the annotation all of it."""
    release = "6.1.0+" + "a" * 58
    (root / "proc/sys/kernel/osrelease").write_text(f"{release}\n")
    content = run_cycle(Host(str(root)), Settings(), {}, scanned=NO_GPU).content
    assert content.labels[f"{PREFIX}/kernel-version.full"] == "6.1.0_" + "a" * 57
    assert content.annotations["driverwright.io/kernel-version"] == release


def test_without_a_boot_id_nothing_is_said(root: Path) -> None:
    """An unreadable boot id proves nothing, and is no reason to stop labelling."""
    file = root / "proc/sys/kernel/random/boot_id"
    file.unlink()
    assert "driverwright.io/boot-id" not in run_cycle(Host(str(root)), Settings(), {}).content.annotations
    file.mkdir()
    report = run_cycle(Host(str(root)), Settings(), {})
    assert "driverwright.io/boot-id" not in report.content.annotations
    assert report.content.labels


@pytest.mark.parametrize("source", ["kernel", "pci", "system"])
def test_labels_of_a_failed_source_stay_as_they_were(root: Path, source: str) -> None:
    """A failed read is not an absent feature."""
    host = Host(str(root))
    before = run_cycle(host, Settings(), {})
    break_source(root, source)
    after = run_cycle(host, Settings(), before.last_good)
    mine = {key: value for key, value in before.content.labels.items() if f"/{source}-" in key}
    assert mine
    assert mine.items() <= after.content.labels.items()
    assert source in after.failed
    assert after.unknown is None
    assert run_cycle(host, Settings(), after.last_good).content.labels == after.content.labels


@pytest.mark.parametrize("source", ["kernel", "pci", "system"])
def test_a_source_that_was_never_read_is_not_known(root: Path, source: str) -> None:
    """After a restart what the Node says about it must stay, and with it what rules may have made of it."""
    break_source(root, source)
    report = run_cycle(Host(str(root)), Settings(), {})
    assert report.unknown is not None
    assert f"{PREFIX}/{source}-" in report.unknown.prefixes
    assert f"{PREFIX}/{source}-" not in report.unknown.known_prefixes
    assert f"{PREFIX}/cpu-" in report.unknown.known_prefixes
    assert not any(f"/{source}-" in key for key in report.content.labels)


def test_a_source_that_shall_not_label_is_known_to_have_no_labels(root: Path) -> None:
    """Its labels go, whether it can be read or not; those of rules stay, which may depend on it."""
    break_source(root, "pci")
    settings = load_settings({"label-sources": "all,-pci"}, {})
    report = run_cycle(Host(str(root)), settings, {})
    assert report.unknown is not None
    assert f"{PREFIX}/pci-" in report.unknown.known_prefixes
    assert not any(f"{PREFIX}/my-rule".startswith(prefix) for prefix in report.unknown.known_prefixes)


def test_rule_files_that_were_never_usable_are_not_known() -> None:
    """And nothing else; custom rules that are switched off are known to make nothing."""
    report = run_cycle(recorded("intel-gpu-server"), Settings(), {}, RuleSet(unknown=("rules.d/a.yaml", "custom.d/b")))
    assert report.unknown is not None
    assert (report.unknown.prefixes, report.unknown.rules) == ((), {})
    assert report.unknown.origins == ("custom.d/b", "rules.d/a.yaml")
    settings = load_settings({"label-sources": "all,-custom"}, {})
    report = run_cycle(recorded("intel-gpu-server"), settings, {}, RuleSet(unknown=("custom.d/b",)))
    assert report.unknown is None


def test_it_is_recorded_what_made_what(tmp_path: Path) -> None:
    """Feature files and rules by the full keys that are on the Node; sources need no record."""
    it = Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))
    folder = it / "etc/kubernetes/node-feature-discovery/features.d"
    folder.mkdir(parents=True)
    (folder / "f").write_text("a=1\nvendor.io/b=2\nrefused=a b\n")
    (folder / "silent").write_text("# +no-label\nc=1\n")
    (folder / "empty").write_text("")
    text = """
    - {name: r, labels: {x: "1", kubernetes.io/no: "1"}, annotations: {y: "1"}, extendedResources: {z: "1"}}
    - {name: not here, labels: {w: "1"}, matchFeatures: [{feature: no.such}]}
    """
    cluster = tuple(rule._replace(file="rules.d/r.yaml") for rule in rules(text))
    given = RuleSet(cluster=cluster, custom=rules("[{name: c, labels: {a: '2'}}]"))
    assert run_cycle(Host(str(it)), Settings(), {}, given, NO_GPU).origins == {
        "features.d/f": (f"{PREFIX}/a", "vendor.io/b"),
        "features.d/silent": (),
        "rule built-in/rdma.capable": (f"{PREFIX}/rdma.capable",),
        "rule r.yaml/c": (f"{PREFIX}/a",),
        "rules.d/r.yaml": tuple(f"{PREFIX}/{name}" for name in "xyz"),
    }


def test_a_feature_file_that_was_never_read_is_not_known(tmp_path: Path) -> None:
    """The other files are, and their labels are there."""
    it = Path(shutil.copytree(HOSTS / "intel-gpu-server", tmp_path / "host"))
    folder = it / "etc/kubernetes/node-feature-discovery/features.d"
    folder.mkdir(parents=True)
    (folder / "a").write_text("a=1\n")
    (folder / "b").symlink_to("/proc/self/mem")
    report = run_cycle(Host(str(it)), Settings(), {}, scanned=NO_GPU)
    assert report.unknown is not None
    assert (report.unknown.origins, report.unknown.rules) == (("features.d/b",), {})
    assert report.content.labels[f"{PREFIX}/a"] == "1"
    assert report.failed == {}


def test_a_scan_that_is_under_way_is_neither_failed_nor_known() -> None:
    """None: the child has not answered yet."""
    report = run_cycle(recorded("intel-gpu-server"), Settings(), {}, scanned={"gpu": None})
    assert report.failed == {}
    assert report.unknown is not None
    assert not any(prefix.startswith("nvidia.com/") for prefix in report.unknown.known_prefixes)


def test_what_a_child_found_counts_as_any_source() -> None:
    """Its features are seen by rules, its failure is reported, and its last good features stand in."""
    host, settings = recorded("intel-gpu-server"), Settings()
    found = Features(attributes={"gpu.machine": {"name": "m"}})
    seen = RuleSet(cluster=rules("[{name: r, labels: {m: '@gpu.machine.name'}}]"))
    first = run_cycle(host, settings, {}, seen, {"gpu": found})
    assert first.content.labels[f"{PREFIX}/m"] == "m"
    assert first.unknown is None
    second = run_cycle(host, settings, first.last_good, seen, {"gpu": Failed("hangs")})
    assert second.failed == {"gpu": "hangs"}
    assert second.content.labels == first.content.labels


def test_only_chosen_sources_are_read_and_label() -> None:
    """Feature sources are read; of these the label sources make labels."""
    settings = load_settings({"feature-sources": "pci,system", "label-sources": "pci,cpu"}, {})
    report = run_cycle(recorded("intel-gpu-server"), settings, {})
    assert set(report.last_good) == set(report.source_seconds) == {"pci", "system"}
    assert "system.osrelease" in report.features.attributes
    assert {key.partition("/")[2].partition("-")[0] for key in report.content.labels} == {"pci"}


def test_fake_labels_need_no_fake_features() -> None:
    """As upstream: ``labelSources: [fake]`` alone makes the labels of the settings."""
    report = run_cycle(recorded("intel-gpu-server"), load_settings({"label-sources": "fake"}, {}), {}, scanned=NO_GPU)
    assert set(report.content.labels) == {f"{PREFIX}/fake-fakefeature{number}" for number in (1, 2, 3)}
    assert "fake.flag" not in report.features.flags


def test_the_whitelist_of_the_settings_is_used() -> None:
    """core.labelWhiteList filters the labels of a cycle."""
    settings = load_settings({"label-whitelist": "10de"}, {})
    assert set(run_cycle(recorded("intel-gpu-server"), settings, {}).content.labels) == {
        f"{PREFIX}/pci-0302_10de.present",
        f"{PREFIX}/pci-0302_10de.sriov.capable",
    }


def test_built_in_rules_see_all_features() -> None:
    """The built-in RDMA rule labels the recorded host, which has a Mellanox adapter."""
    report = run_cycle(recorded("intel-gpu-server"), Settings(), {})
    assert report.content.labels[f"{PREFIX}/rdma.capable"] == "true"
    assert report.matched == ("rdma.capable",)


def test_custom_rules_are_a_label_source() -> None:
    """They can be switched off as one; the cluster's rules cannot."""
    settings = load_settings({"label-sources": "all,-custom"}, {})
    given = RuleSet(
        custom=rules("[{name: mine, labels: {mine: '1'}}]"), cluster=rules("[{name: ours, labels: {ours: '1'}}]")
    )
    report = run_cycle(recorded("intel-gpu-server"), settings, {}, given)
    assert report.matched == ("ours",)


def test_custom_rules_run_in_their_order() -> None:
    """Built in, then of the configuration, then of files: a later one wins."""
    one, two, three = (rules(f"[{{name: n{value}, labels: {{x: '{value}'}}}}]") for value in "123")
    settings = Settings(custom_rules=one)
    report = run_cycle(recorded("arm64-cloud"), settings, {}, RuleSet(custom=two, cluster=three))
    assert report.matched == ("n1", "n2", "n3")
    assert report.content.labels[f"{PREFIX}/x"] == "3"
    assert run_cycle(recorded("arm64-cloud"), settings, {}, RuleSet(custom=two)).content.labels[f"{PREFIX}/x"] == "2"


def test_each_group_has_back_references_of_its_own() -> None:
    """A rule of the cluster does not see what a custom rule made, as with two programs."""
    makes = rules("[{name: makes, labels: {made: '1'}}]")
    text = """
    - {name: sees, labels: {saw: '1'}, matchFeatures: [{feature: rule.matched, matchExpressions: {made: {op: Exists}}}]}
    """
    apart = run_cycle(recorded("arm64-cloud"), Settings(), {}, RuleSet(custom=makes, cluster=rules(text)))
    assert apart.matched == ("makes",)
    together = run_cycle(recorded("arm64-cloud"), Settings(), {}, RuleSet(cluster=makes + rules(text)))
    assert together.matched == ("makes", "sees")


def test_a_dynamic_value_can_name_what_rules_made() -> None:
    """A dynamic value can refer to a variable that any rule set."""
    given = rules("""
    - {name: uses, labels: {count: "@rule.matched.count"}}
    - {name: makes, vars: {count: "2"}}
    """)
    report = run_cycle(recorded("arm64-cloud"), Settings(), {}, RuleSet(cluster=given))
    assert report.content.labels[f"{PREFIX}/count"] == "2"
    assert "rule.matched" not in report.features.attributes


def test_all_problems_and_refusals_are_reported() -> None:
    """Of the configuration, of files, and of running; what was left out is separate."""
    text = """
    - {name: fails, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Gt, value: ["1"]}}}]}
    - {name: works, labels: {kubernetes.io/x: "1"}, taints: [{key: a.b/c, effect: NoSchedule}]}
    """
    in_config, in_file = RuleProblem("c", "", "1"), RuleProblem("f", "", "2")
    settings = Settings(rule_problems=(in_config,))
    report = run_cycle(
        recorded("arm64-cloud"), settings, {}, RuleSet(cluster=rules(text), problems=(in_file,))
    )  # fmt: skip
    assert report.problems[:2] == (in_config, in_file)
    assert [problem.rule for problem in report.problems[2:]] == ["rule r.yaml/fails"]
    assert {refusal.reason for refusal in report.refusals} == {"ns-not-allowed", "not-enabled"}


def test_rules_give_all_four_kinds() -> None:
    """With taints enabled, rules create labels, annotations, extended resources and taints."""
    text = """
    - name: all
      labels: {l: "1"}
      annotations: {a: "some words"}
      extendedResources: {e: "4"}
      taints: [{key: a.b/c, value: v, effect: NoSchedule}]
    """
    settings = load_settings({"enable-taints": "true"}, {})
    content = run_cycle(recorded("arm64-cloud"), settings, {}, RuleSet(cluster=rules(text))).content
    assert content.labels[f"{PREFIX}/l"] == "1"
    assert content.annotations[f"{PREFIX}/a"] == "some words"
    assert content.extended_resources == {f"{PREFIX}/e": "4"}
    assert [str(taint) for taint in content.taints] == ["a.b/c=v:NoSchedule"]


def test_the_same_host_gives_the_same_report() -> None:
    """Nothing but time differs between two cycles."""
    host = recorded("debian-qemu-guest")
    first = run_cycle(host, Settings(), {})
    second = run_cycle(host, Settings(), first.last_good)
    assert first.content == second.content
    assert first.seconds > 0
