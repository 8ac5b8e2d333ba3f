"""Configuration: upstream's file as it is, errors that name the place, and which layer wins."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.config import DEFAULT_FILE, OPTIONS, Settings, choose_sources, load_settings, parse_file
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


def load(
    tmp_path: Path, text: str, *, flags: dict[str, str] | None = None, environment: dict[str, str] | None = None
) -> Settings:
    """Load settings with a file of this text."""
    file = tmp_path / "nfd-worker.conf"
    file.write_text(text)
    return load_settings({"config": str(file), **(flags or {})}, environment or {})


def test_without_anything_the_defaults_are_upstreams() -> None:
    """No file, no flag, no variable."""
    settings = load_settings({}, {})
    assert settings == Settings()
    assert settings.config_file == DEFAULT_FILE
    assert settings.sleep_interval == 60
    assert settings.sources.cpu.cpuid_blacklist == CPUID_BLACKLIST
    assert settings.sources.pci == (("03", "0b40", "12"), ("class", "vendor"))
    assert settings.sources.kernel == ("", ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"))


def test_upstreams_file_is_accepted_as_it_is(tmp_path: Path) -> None:
    """What exists here takes effect; what does not is named in the notes."""
    settings = load(tmp_path, UPSTREAM_SAMPLE)
    assert settings.sleep_interval == 90
    assert settings.label_sources == ("cpu", "kernel", "system")
    assert settings.feature_sources == tuple(SOURCES)
    assert settings.sources.cpu == (("AVX10",), ())
    assert settings.sources.kernel == ("/path/to/kconfig", ("NO_HZ", "X86"))
    assert settings.sources.pci == (("0200", "03"), ("class", "device"))
    named = {note.split(": ")[1].split(" ")[0] for note in settings.notes}
    assert named == {
        "core.klog", "core.noOwnerRefs", "core.ownerRefs", "core.noPublishFeatures",
        "sources.custom", "sources.fake", "sources.local", "sources.usb",
    }  # fmt: skip


def test_keys_are_compared_without_regard_to_case(tmp_path: Path) -> None:
    """Upstream reads them so."""
    assert load(tmp_path, "CORE: {NoPublish: true}").no_publish


@pytest.mark.parametrize("text", ["", "# nothing\n", "core:\n", "core:\nsources:\n  pci:\n"])
def test_empty_sections_set_nothing(tmp_path: Path, text: str) -> None:
    """A file with everything commented out is usual."""
    assert load(tmp_path, text)._replace(config_file=DEFAULT_FILE) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "core:\n  sleepIntervall: 1s\n",
            r":2: core.sleepIntervall is .*; did you mean core.sleepInterval\?",
            id="misspelt key",
        ),
        pytest.param("sources:\n  pcie: {}\n", r":2: sources.pcie is not a setting", id="misspelt source"),
        pytest.param("zzzz: 1\n", r":1: zzzz is not a setting$", id="nothing near"),
        pytest.param("core:\n  noPublish: 'yes'\n", r":2: core.noPublish must be true or false", id="not a boolean"),
        pytest.param(
            "core:\n  sleepInterval: 60\n",
            r":2: core.sleepInterval must be a text; put it in quotes",
            id="number for duration",
        ),
        pytest.param(
            "core:\n  sleepInterval: soon\n", r":2: core.sleepInterval 'soon' is not a duration", id="bad duration"
        ),
        pytest.param(
            "core:\n  labelWhiteList: '('\n",
            r":2: core.labelWhiteList '\(' is not a regular expression",
            id="bad pattern",
        ),
        pytest.param(
            "sources:\n  pci:\n    deviceClassWhitelist: [03]\n",
            r":3: sources.pci.deviceClassWhitelist must be a list of texts; put",
            id="unquoted class",
        ),
        pytest.param("core: [1]\n", r":1: core must be a mapping", id="list for section"),
        pytest.param("- 1\n", r":1: the file must be a mapping", id="list for file"),
        pytest.param("core: {\n", r"is not YAML", id="not YAML"),
        pytest.param(
            "core:\n  labelSources: [pcii]\n", r"there is no source 'pcii'; did you mean pci\?", id="unknown source"
        ),
    ],
)
def test_a_mistake_in_the_file_names_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    """The operator finds it at once."""
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, text)


def test_flags_win_over_environment_and_environment_over_the_file(tmp_path: Path) -> None:
    """Each layer overwrites the one below."""
    text = "core: {sleepInterval: 10s, labelWhiteList: file, featureSources: [pci]}"
    environment = {"NFD_WORKER_SLEEP_INTERVAL": "20s", "NFD_WORKER_LABEL_WHITELIST": "env"}
    settings = load(tmp_path, text, environment=environment, flags={"sleep-interval": "30s"})
    assert settings.sleep_interval == 30
    assert settings.label_whitelist.pattern == "env"
    assert settings.feature_sources == ("pci",)


def test_the_pods_variables_are_read() -> None:
    """They come from the DaemonSet."""
    settings = load_settings({}, {"NODE_NAME": "n1", "HOST_ROOT": "/host"})
    assert (settings.node_name, settings.root) == ("n1", "/host")
    assert settings.sources.system.node_name == "n1"


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("port", "-1", "flag --port: '-1' is not a port from 0 to 65535"),
        ("port", "65536", "flag --port: '65536' is not a port"),
        ("oneshot", "maybe", "flag --oneshot: 'maybe' is neither true nor false"),
        ("log-level", "loud", "flag --log-level: 'loud' is none of"),
        ("sleep-interval", "60", "flag --sleep-interval: '60' is not a duration"),
        ("config", "/nonexistent/file", "there is no configuration file /nonexistent/file"),
        ("config", "/proc", "cannot read the configuration file /proc"),
    ],
)
def test_a_wrong_flag_is_named(flag: str, text: str, message: str) -> None:
    """So is a wrong environment variable."""
    with pytest.raises(ConfigurationError, match=message):
        load_settings({flag: text}, {})


def test_a_wrong_variable_is_named() -> None:
    """The message carries the variable and not the flag."""
    with pytest.raises(ConfigurationError, match="environment variable NFD_WORKER_PORT: 'x' is not a port"):
        load_settings({}, {"NFD_WORKER_PORT": "x"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", float("inf")), ("-1s", float("inf")), ("100ms", 1.0), ("5m", 300.0)],
    ids=["zero is for ever", "less is for ever", "never under a second", "as told"],
)
def test_sleep_intervals_have_upstreams_limits(tmp_path: Path, text: str, seconds: float) -> None:
    """In the file as on the command line."""
    assert load_settings({"sleep-interval": text}, {}).sleep_interval == seconds
    assert load(tmp_path, f"core: {{sleepInterval: {text}}}").sleep_interval == seconds


@pytest.mark.parametrize(
    ("entries", "chosen", "unbuilt"),
    [
        (["all"], tuple(SOURCES), ()),
        (["all", "-cpu"], ("kernel", "pci", "system"), ()),
        (["-cpu", "all"], tuple(SOURCES), ()),
        (["system", "cpu"], ("cpu", "system"), ()),
        (["all", "-all"], (), ()),
        (["pci", "usb", "-memory"], ("pci",), ("memory", "usb")),
        ([], (), ()),
    ],
)
def test_source_lists_are_read_from_left_to_right(
    entries: list[str], chosen: tuple[str, ...], unbuilt: tuple[str, ...]
) -> None:
    """Sources that are not built yet are no mistake."""
    assert choose_sources(entries) == (chosen, unbuilt)


def test_the_old_name_of_label_sources_wins_over_the_new_one(tmp_path: Path) -> None:
    """So it does upstream."""
    assert load(tmp_path, "core: {labelSources: [cpu], sources: [system]}").label_sources == ("system",)


def test_unknown_label_fields_are_noted_and_dropped(tmp_path: Path) -> None:
    """Upstream warns, too."""
    settings = load(tmp_path, "sources: {pci: {deviceLabelFields: [class, colour]}}")
    assert any("colour is none of class, vendor" in note for note in settings.notes)


def test_every_option_is_a_setting() -> None:
    """The tables cannot drift apart."""
    assert {option.setting for option in OPTIONS} <= set(Settings._fields)


@given(st.text())
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    """No configuration file makes the worker crash."""
    with suppress(ConfigurationError):
        assert "notes" in parse_file(text, "f")
