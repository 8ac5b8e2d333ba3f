"""Settings: upstream's defaults and files, which layer wins, and which sources run."""

from pathlib import Path

import pytest

from feature_rules.keys.namespaces import NamespaceOptions
from nfd_worker.config.config import (
    DEFAULT_FILE,
    LABEL_SOURCES,
    Settings,
    build_settings,
    choose_sources,
    load_settings,
)
from nfd_worker.errors import ConfigurationError
from nfd_worker.sources import SOURCES
from nfd_worker.sources.settings import CPUID_BLACKLIST

UPSTREAM_SAMPLE = """
#core:
core:
  labelWhiteList:
  noPublish: false
  noOwnerRefs: true
  ownerRefs: [pod, ds]
  sleepInterval: 90s
  featureSources: [all]
  labelSources: ["all", "-pci"]
  noPublishFeatures: [kernel.config]
  klog:
    addDirHeader: false
    v: 0
sources:
  cpu:
    cpuid:
      attributeBlacklist:
        - "AVX10"
      attributeWhitelist:
  kernel:
    kconfigFile: "/path/to/kconfig"
    configOpts:
      - "NO_HZ"
      - "X86"
  pci:
    deviceClassWhitelist:
      - "0200"
      - "03"
    deviceLabelFields:
      - "class"
      - "device"
  usb:
    deviceClassWhitelist: ["0e"]
    deviceLabelFields: [class]
  local:
  fake:
    labels: {a: b}
  custom:
    - name: "my.kernel.feature"
      labels: {my.kernel.feature: "true"}
      matchFeatures:
        - feature: kernel.loadedmodule
          matchExpressions: {example_kmod1: {op: Exists}}
"""

MASTER_SAMPLE = """
noPublish: true
extraLabelNs: ["added.ns.io"]
denyLabelNs: ["denied.ns.io", "*.denied.io"]
labelWhiteList: "foo"
enableTaints: true
resyncPeriod: "2h"
restrictions:
  disableLabels: true
  disableAnnotations: true
  disableExtendedResources: true
  disableTaints: false
  allowOverwrite: false
  denyNodeFeatureLabels: true
  nodeFeatureNamespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: "node-feature-discovery"}
leaderElection: {leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
nfdApiParallelism: 10
informerPageSize: 200
klog: {v: 4}
"""

DEFAULT_SOURCES = tuple(name for name in SOURCES if name != "fake")


def load(
    tmp_path: Path, text: str, *, flags: dict[str, str] | None = None, environment: dict[str, str] | None = None
) -> Settings:
    """Load settings with a file of this text."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text(text)
    return load_settings({"config": str(file), **(flags or {})}, environment or {})


def test_without_anything_the_defaults_are_upstreams() -> None:
    """Without file, flags and variables the settings are upstream's defaults."""
    settings = load_settings({}, {})
    assert settings == Settings()
    assert settings.config_file == DEFAULT_FILE
    assert (settings.sleep_interval, settings.resync_seconds, settings.removal_grace) == (60, None, 60)
    assert settings.feature_sources == DEFAULT_SOURCES
    assert settings.label_sources == (*DEFAULT_SOURCES, "custom")
    assert settings.namespaces == NamespaceOptions()
    assert not settings.namespaces.enable_taints
    assert settings.rules_dir == "/etc/kubernetes/node-feature-discovery/rules.d"
    assert settings.sources.cpu.cpuid_blacklist == CPUID_BLACKLIST
    assert settings.sources.pci == (("03", "0b40", "12"), ("class", "vendor"))
    assert settings.sources.usb == (("0e", "ef", "fe", "ff"), ("class", "vendor", "device"))
    assert settings.sources.kernel == ("", ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"))
    assert settings.sources.gpu.mig_strategy == "none"


def test_upstreams_file_is_accepted_as_it_is(tmp_path: Path) -> None:
    """What exists here takes effect; what does not is named in the notes."""
    settings = load(tmp_path, UPSTREAM_SAMPLE)
    assert settings.sleep_interval == 90
    assert settings.label_sources == (*(name for name in DEFAULT_SOURCES if name != "pci"), "custom")
    assert settings.feature_sources == DEFAULT_SOURCES
    assert settings.sources.cpu == (("AVX10",), ())
    assert settings.sources.kernel == ("/path/to/kconfig", ("NO_HZ", "X86"))
    assert settings.sources.pci == (("0200", "03"), ("class", "device"))
    assert settings.sources.usb == (("0e",), ("class",))
    assert settings.sources.fake.labels == {"a": "b"}
    assert [rule.name for rule in settings.custom_rules] == ["my.kernel.feature"]
    assert settings.rule_problems == ()
    named = {note.split(": ")[1].split(" ")[0] for note in settings.notes}
    assert named == {"core.klog", "core.noOwnerRefs", "core.ownerRefs", "core.noPublishFeatures"}


def test_the_masters_file_may_be_pasted_below(tmp_path: Path) -> None:
    """Each worker does for its node what the master does for all."""
    settings = load(tmp_path, UPSTREAM_SAMPLE + MASTER_SAMPLE)
    assert settings.namespaces == NamespaceOptions(
        deny_label_ns=("denied.ns.io", "*.denied.io"), extra_label_ns=("added.ns.io",), label_whitelist="foo",
        enable_taints=True, disable_labels=True, disable_annotations=True, disable_extended_resources=True,
    )  # fmt: skip
    assert settings.resync_seconds == 7200
    assert settings.no_publish
    named = {note.split(": ")[1].split(" ")[0] for note in settings.notes}
    assert named >= {
        "leaderElection", "nfdApiParallelism", "informerPageSize", "klog", "restrictions.allowOverwrite",
        "restrictions.denyNodeFeatureLabels", "restrictions.nodeFeatureNamespaceSelector", "restrictions.disableTaints",
    }  # fmt: skip


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    """Inline options win over the file, the environment over both, flags over all."""
    text = (
        "core: {sleepInterval: 10s, featureSources: [pci], noPublish: true}\nlabelWhiteList: f\nresyncPeriod: 1m\n"
        "denyLabelNs: [f]"
    )
    inline = "{core: {sleepInterval: 20s, featureSources: [usb]}, labelWhiteList: o, resyncPeriod: 2m}"
    environment = {
        "NFD_WORKER_OPTIONS": inline, "NFD_WORKER_SLEEP_INTERVAL": "30s", "NFD_WORKER_LABEL_WHITELIST": "e",
    }  # fmt: skip
    settings = load(tmp_path, text, environment=environment, flags={"sleep-interval": "40s", "no-publish": "false"})
    assert settings.sleep_interval == 40
    assert settings.namespaces.label_whitelist == "e"
    assert settings.resync_seconds == 120
    assert settings.feature_sources == ("usb",)
    assert settings.namespaces.deny_label_ns == ("f",)
    assert not settings.no_publish


@pytest.mark.parametrize(
    ("flags", "environment", "place"),
    [
        ({"options": "core: {x: 1}"}, {}, "flag --options:1: core.x is not a setting"),
        ({}, {"NFD_WORKER_OPTIONS": "core: {x: 1}"}, "environment variable NFD_WORKER_OPTIONS:1: core.x is not"),
    ],
)
def test_a_mistake_in_inline_options_names_where_they_stand(
    flags: dict[str, str], environment: dict[str, str], place: str
) -> None:
    """A mistake in inline options is reported with their source and line."""
    with pytest.raises(ConfigurationError, match=place):
        load_settings(flags, environment)


def test_inline_rules_replace_those_of_the_file(tmp_path: Path) -> None:
    """Lists replace, they never merge; so do the problems."""
    inline = "{sources: {custom: [{name: r, labels: {a: b}}]}}"
    settings = load(tmp_path, "sources: {custom: [{labels: {a: b}}]}", flags={"options": inline})
    assert [rule.name for rule in settings.custom_rules] == ["r"]
    assert settings.rule_problems == ()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("{core: {sources: [usb]}}", id="alone"),
        pytest.param("{core: {sources: [usb], labelSources: [cpu]}}", id="beside the new name"),
    ],
)
def test_the_old_name_of_the_label_sources_works_in_inline_options(tmp_path: Path, options: str) -> None:
    """Upstream heeds ``core.sources`` in the file only; here it wins over the file's label sources."""
    settings = load(tmp_path, "core: {labelSources: [pci]}", flags={"options": options})
    assert settings.label_sources == ("usb",)
    assert settings.feature_sources == DEFAULT_SOURCES


def test_the_pods_variables_are_read() -> None:
    """The variables that the DaemonSet sets are read."""
    settings = load_settings({}, {"NODE_NAME": "n1", "HOST_ROOT": "/host", "NFD_WORKER_RULES_DIR": "/rules"})
    assert (settings.node_name, settings.root, settings.rules_dir) == ("n1", "/host", "/rules")
    assert settings.sources.system.node_name == "n1"


def test_flags_of_the_master_are_options_of_the_worker() -> None:
    """Flags of nfd-master are accepted, as a migrated DaemonSet may have them."""
    flags = {"deny-label-ns": "a,*.b", "extra-label-ns": "c", "enable-taints": "true", "resync-period": "10m",
             "feature-gates": "NodeFeatureAPI=true,DisableAutoPrefix=true", "take-over": "true"}  # fmt: skip
    settings = load_settings(flags, {})
    assert settings.namespaces == NamespaceOptions(("a", "*.b"), ("c",), enable_taints=True, auto_prefix=False)
    assert settings.resync_seconds == 600
    assert settings.take_over


def test_flags_without_effect_are_noted() -> None:
    """A flag without effect is accepted and noted with its reason."""
    settings = load_settings({"owner-refs": "pod", "no-owner-refs": "false", "v": "4"}, {})
    assert [note.partition(" has no effect: ")[0] for note in settings.notes] == [
        "flag --no-owner-refs", "flag --owner-refs", "flag --v",
    ]  # fmt: skip
    assert settings._replace(notes=()) == Settings()


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("port", "-1", "flag --port: '-1' is not a port from 0 to 65535"),
        ("port", "65536", "flag --port: '65536' is not a port"),
        ("port", "9" * 5000, "is not a port"),
        ("oneshot", "maybe", "flag --oneshot: 'maybe' is neither true nor false"),
        ("log-level", "loud", "flag --log-level: 'loud' is not one of"),
        ("sleep-interval", "60", "flag --sleep-interval: '60' is not a duration"),
        ("removal-grace", "2h", "flag --removal-grace: '2h' is not a duration from 0 to 1h"),
        ("removal-grace", "-1s", "flag --removal-grace: '-1s' is not a duration from 0 to 1h"),
        ("removal-grace", "soon", "flag --removal-grace: 'soon' is not a duration"),
        ("label-whitelist", "(", r"flag --label-whitelist: '\(' is not a regular expression"),
        ("label-sources", "pcii", r"there is no source 'pcii'; did you mean pci\?"),
        ("feature-gates", "Nope=true", "flag --feature-gates: there is no feature gate 'Nope'; there are AllAlpha"),
        ("feature-gates", "NodeFeatureAPI", "flag --feature-gates: '' is neither true nor false"),
        ("config", "/nonexistent/file", "there is no configuration file /nonexistent/file"),
        ("config", "/proc", "cannot read the configuration file /proc"),
    ],
)
def test_a_wrong_flag_is_named(flag: str, text: str, message: str) -> None:
    """A wrong flag or environment variable is named in the message."""
    with pytest.raises(ConfigurationError, match=message):
        load_settings({flag: text}, {})


def test_a_wrong_variable_is_named() -> None:
    """The message carries the variable and not the flag."""
    with pytest.raises(ConfigurationError, match="environment variable NFD_WORKER_PORT: 'x' is not a port"):
        load_settings({}, {"NFD_WORKER_PORT": "x"})


@pytest.mark.parametrize(
    ("entries", "chosen"),
    [
        (["all"], (*DEFAULT_SOURCES, "custom")),
        (["all", "-cpu"], (*(name for name in DEFAULT_SOURCES if name != "cpu"), "custom")),
        (["-cpu", "all"], (*DEFAULT_SOURCES, "custom")),
        (["all", "fake", "-custom"], tuple(SOURCES)),
        (["system", "cpu"], ("cpu", "system")),
        (["fake", "all", "-all"], ()),
        (["custom", "pci", "-memory"], ("pci", "custom")),
        ([], ()),
    ],
)
def test_source_lists_are_read_from_left_to_right(entries: list[str], chosen: tuple[str, ...]) -> None:
    """``all`` leaves out what is off by default."""
    assert choose_sources(entries, LABEL_SOURCES) == chosen


def test_custom_rules_have_no_features() -> None:
    """To name them among feature sources is no mistake, and means nothing."""
    assert choose_sources(["all", "custom"]) == DEFAULT_SOURCES


def test_unknown_label_fields_are_noted_and_dropped() -> None:
    """Unknown label fields cause a note and are ignored, as in upstream."""
    values = {"pci.device_label_fields": ("class", "colour"), "usb.device_label_fields": ("size",)}
    notes = build_settings(values).notes
    assert [note.partition(" is not one of ")[0] for note in notes] == [
        "sources.pci.deviceLabelFields: colour", "sources.usb.deviceLabelFields: size",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "entry", "note"),
    [
        pytest.param("pci.device_class_whitelist", "03*", "'03*' is no device class: write its first", id="pattern"),
        pytest.param("pci.device_class_whitelist", "030200", "'030200' counts as 0302", id="programming interface"),
        pytest.param("usb.device_class_whitelist", "ef02", "'ef02' counts as ef", id="subclass"),
        pytest.param("usb.device_class_whitelist", "video", "such as 03", id="name of a class"),
        pytest.param(
            "cpu.cpuid_whitelist", "avx512f", "flag 'avx512f'; did you mean AVX512F?", id="flag in lower case"
        ),
        pytest.param("cpu.cpuid_blacklist", "sse4_1", "flag 'sse4_1'; did you mean SSE4?", id="the kernel's name"),
        pytest.param("cpu.cpuid_blacklist", "AVX512", "no CPU has the flag 'AVX512'; did you mean", id="no flag"),
    ],
)
def test_an_entry_of_a_list_that_cannot_match_is_noted(setting: str, entry: str, note: str) -> None:
    """What matches nothing, or other devices than it says, is named in the log, with what is meant."""
    (found,) = build_settings({setting: (entry,)}).notes
    assert note in found


@pytest.mark.parametrize("entry", ["03", "0x0302", "0302 ", "0B40", "", "0"], ids=repr)
def test_a_class_that_can_match_is_not_noted(entry: str) -> None:
    """Any beginning of a class, with 0x or without, in either case."""
    assert build_settings({"pci.device_class_whitelist": (entry,)}).notes == ()


def test_all_default_flags_are_known() -> None:
    """The default blacklist causes no note."""
    assert build_settings({"cpu.cpuid_blacklist": CPUID_BLACKLIST}).notes == ()


def test_one_setting_labels_hardware_as_upstream_does(tmp_path: Path) -> None:
    """It reaches the sources; off by default."""
    assert not load(tmp_path, "").sources.upstream_hardware_labels
    assert load(tmp_path, "core: {upstreamHardwareLabels: true}").sources.upstream_hardware_labels
