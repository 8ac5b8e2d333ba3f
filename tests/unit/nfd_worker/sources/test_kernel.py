"""Source kernel: versions, configurations and where they are, modules."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features
from kube_api.names import is_label_value, label_value
from nfd_worker.errors import HostReadError
from nfd_worker.host import LONGEST_FILE
from nfd_worker.sources import discover
from nfd_worker.sources.kernel import (
    KernelConfig,
    config_paths,
    labels,
    parse_modules,
    parse_modules_builtin,
    parse_version,
    read_config,
)
from nfd_worker.sources.settings import KernelSettings, SourceSettings
from tests.support.nfd_worker.trees import host, recorded


@pytest.mark.parametrize(
    ("osrelease", "expected"),
    [
        ("6.1.0-55-cloud-amd64\n", ("6.1.0-55-cloud-amd64", "6", "1", "0")),
        ("6.8\n", ("6.8", "6", "8", "")),
        ("6", ("6", "6", "", "")),
        ("5.14.0-427.13.1.el9_4.x86_64", ("5.14.0-427.13.1.el9_4.x86_64", "5", "14", "0")),
        ("6.12.41+deb13-amd64", ("6.12.41_deb13-amd64", "6", "12", "41")),
        ("6.12.74+deb13+1-arm64", ("6.12.74_deb13_1-arm64", "6", "12", "74")),
        ("6.6.31+rpt-rpi-2712", ("6.6.31_rpt-rpi-2712", "6", "6", "31")),
        ("6.1.0+rpi~1-", ("6.1.0_rpi_1", "6", "1", "0")),
        ("6.6.30_1", ("6.6.30_1", "6", "6", "30")),
        ("5.15.153.1-microsoft-standard-WSL2", ("5.15.153.1-microsoft-standard-WSL2", "5", "15", "153")),
        ("6.1rc2", ("6.1rc2", "6", "1", "")),
        ("6.9~rc1", ("6.9_rc1", "6", "9", "")),
        ("6-custom", ("6-custom", "6", "", "")),
    ],
    ids=[
        "Debian",
        "no revision",
        "major alone",
        "RHEL",
        "Debian 13",
        "Debian 13 rebuilt",
        "Raspberry Pi OS",
        "tilde",
        "Void",
        "WSL2",
        "letters at once",
        "release candidate",
        "major and text",
    ],
)
def test_a_version_has_four_parts(osrelease: str, expected: tuple[str, ...]) -> None:
    """A part that is missing is the empty string."""
    assert tuple(parse_version(osrelease).values()) == expected


@pytest.mark.parametrize(
    ("osrelease", "full"), [("custom-kernel", "custom-kernel"), ("rt+6.1~", "rt_6.1"), ("v6.1", "v6.1")]
)
def test_a_version_that_is_none_has_only_its_full_name(osrelease: str, full: str) -> None:
    """Characters that no label value can hold become underscores."""
    assert parse_version(osrelease) == {"full": full}


def test_a_release_of_64_characters_is_labelled_with_its_first_63() -> None:
    """As the controller cuts it: both must name one kernel alike."""
    release = "6.1.0-" + "a" * 58
    assert len(release) == 64
    assert parse_version(release)["full"] == label_value(release) == release[:63]


@given(st.text(min_size=1, max_size=80))
def test_every_part_of_any_version_can_be_a_label_value(osrelease: str) -> None:
    """No kernel name makes an invalid label."""
    assert all(is_label_value(part) for part in parse_version(osrelease).values())


def test_modules_are_the_first_words() -> None:
    """The rest of a line is sizes and users."""
    assert parse_modules("a 1 0 - Live 0x0\nb 2 1 a, Live 0x0\n\n") == {"a", "b"}
    assert parse_modules_builtin("kernel/fs/ext4/ext4.ko\nkernel/x.txt\n") == {"ext4"}


def test_a_configuration_reads_like_a_mapping() -> None:
    """Options that are not set are not in it; quotes are dropped; the last one counts."""
    config = KernelConfig(b'CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C="text"\nCONFIG_D=\nCONFIG_A=m\nCONFIG_AA=1')
    assert dict(config) == {"A": "m", "C": "text", "D": "", "AA": "1"}
    assert len(config) == 4
    assert "B" not in config


@given(st.dictionaries(st.from_regex(r"[A-Z0-9_]+", fullmatch=True), st.sampled_from(["y", "m", "42", '"t"', "0x1"])))
def test_any_configuration_reads_back(options: dict[str, str]) -> None:
    """Option by option and as a whole."""
    config = KernelConfig("".join(f"CONFIG_{name}={value}\n" for name, value in options.items()).encode())
    assert dict(config) == {name: value.strip('"') for name, value in options.items()}


PLACES = config_paths("6.1", "")


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_configuration_is_found_wherever_upstream_looks(tmp_path: Path, place: str) -> None:
    """The kernel's configuration is found at each place that upstream looks at."""
    content = b"CONFIG_NO_HZ=y\n"
    it = host(tmp_path, {place: gzip.compress(content) if place.endswith(".gz") else content})
    config = read_config(it, PLACES)
    assert config is not None
    assert config["NO_HZ"] == "y"


def test_the_configured_file_comes_first(tmp_path: Path) -> None:
    """Before the running kernel's own."""
    it = host(tmp_path, {"etc/kconfig": "CONFIG_HZ=1\n", "proc/config.gz": gzip.compress(b"CONFIG_HZ=2\n")})
    config = read_config(it, config_paths("6.1", "/etc/kconfig"))
    assert config is not None
    assert config["HZ"] == "1"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"no gzip", "is not a gzip file", id="no gzip"),
        pytest.param(gzip.compress(b"CONFIG_HZ=1\n")[:-9], "is cut off", id="cut off"),
        pytest.param(gzip.compress(b"\n" * (LONGEST_FILE + 1)), f"more than {LONGEST_FILE} bytes", id="endless"),
        pytest.param(gzip.compress(b"hello\n"), "has no line CONFIG_", id="something else"),
    ],
)
def test_a_file_that_is_no_configuration_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    """The next place is read, and the log says why; a file that unpacks without end is not unpacked to its end."""
    it = host(tmp_path, {"proc/config.gz": content, "boot/config-6.1": "CONFIG_HZ=2\n"})
    config = read_config(it, PLACES)
    assert config is not None
    assert config["HZ"] == "2"
    assert reason in caplog.text


def test_an_empty_file_is_no_configuration(tmp_path: Path) -> None:
    """A pipe, or what a package left behind, does not hide the places after it."""
    it = host(tmp_path, {"usr/src/linux/.config": "", "boot/config-6.1": "CONFIG_HZ=2\n"})
    config = read_config(it, PLACES)
    assert config is not None
    assert config["HZ"] == "2"


def test_one_bad_place_takes_nothing_else(tmp_path: Path) -> None:
    """A directory and a link to itself among the places of the configuration and of the list of built-in modules."""
    it = host(tmp_path, {
        "proc/sys/kernel/osrelease": "6.1\n", "boot/config-6.1": "CONFIG_NO_HZ=y\n", "usr/src/linux/.config/x": "",
        "lib/modules/6.1/modules.builtin/x": "", "usr/lib/modules/6.1/modules.builtin": "kernel/fs/ext4.ko\n",
    })  # fmt: skip
    (tmp_path / "usr/lib/kernel").mkdir(parents=True)
    (tmp_path / "usr/lib/kernel/config-6.1").symlink_to("config-6.1")
    found = discover("kernel", it, SourceSettings())
    assert isinstance(found, Features)
    assert found.attributes["kernel.version"]["full"] == "6.1"
    assert found.attributes["kernel.config"]["NO_HZ"] == "y"
    assert found.flags["kernel.enabledmodule"] == {"ext4"}


def test_a_module_has_both_of_its_spellings(tmp_path: Path) -> None:
    """A built-in module is named by its file, a loaded one by the kernel: a rule need not know which it is."""
    it = host(tmp_path, {
        "proc/sys/kernel/osrelease": "6.1\n", "proc/modules": "nvmet_tcp 1 0 - Live 0x0\n",
        "lib/modules/6.1/modules.builtin": "kernel/drivers/vfio/pci/vfio-pci.ko\n",
    })  # fmt: skip
    found = discover("kernel", it, SourceSettings())
    assert isinstance(found, Features)
    assert found.flags["kernel.enabledmodule"] == {"nvmet_tcp", "nvmet-tcp", "vfio-pci", "vfio_pci"}
    assert found.flags["kernel.loadedmodule"] == {"nvmet_tcp"}


def test_an_option_is_labelled_in_either_spelling(tmp_path: Path) -> None:
    """``CONFIG_`` before the name of an option does not hide it."""
    files = {"proc/sys/kernel/osrelease": "6.1\n", "boot/config-6.1": "CONFIG_HZ=250\nCONFIG_NUMA=y\n"}
    settings = SourceSettings(kernel=KernelSettings(config_opts=("CONFIG_HZ", "NUMA")))
    found = discover("kernel", host(tmp_path, files), settings)
    assert isinstance(found, Features)
    made = labels(found, settings)
    assert (made["config.HZ"], made["config.NUMA"]) == ("250", "true")


def test_a_node_without_configuration_or_built_in_list_lacks_these_features(tmp_path: Path) -> None:
    """What is not there is absent, and not failed."""
    found = discover("kernel", host(tmp_path, {"proc/sys/kernel/osrelease": "6.1.0\n"}), SourceSettings())
    assert isinstance(found, Features)
    assert set(found.attributes) == {"kernel.version", "kernel.selinux", "kernel.kvm"}
    assert found.flags == {"kernel.loadedmodule": frozenset()}


def test_a_node_without_a_version_cannot_be_read(tmp_path: Path) -> None:
    """A node whose kernel version is missing is a failed read."""
    found = discover("kernel", host(tmp_path, {}), SourceSettings())
    assert isinstance(found, Failed)
    assert "osrelease: No such file" in found.reason


def test_enabled_modules_are_loaded_and_built_in_ones() -> None:
    """Enabled modules are the loaded ones and the built-in ones."""
    found = discover("kernel", recorded("intel-gpu-server"), SourceSettings())
    assert isinstance(found, Features)
    both = {"nvidia_uvm", "nvidia-uvm", "mlx5_core", "mlx5-core"}
    assert found.flags["kernel.enabledmodule"] == {"nvidia", "ext4", "kvm", *both}
    assert found.attributes["kernel.kvm"] == {"enabled": "true"}


def test_an_unreadable_list_of_modules_is_a_failure(tmp_path: Path) -> None:
    """When /proc/modules cannot be read the source fails, and its labels stay."""
    it = host(tmp_path, {"proc/sys/kernel/osrelease": "6.1.0\n", "proc/modules/x": ""})
    with pytest.raises(HostReadError):
        it.find("proc/modules")
    assert isinstance(discover("kernel", it, SourceSettings()), Failed)


def test_files_are_named_by_the_release_to_the_letter(tmp_path: Path) -> None:
    """A label cannot hold the plus sign; a file's name can."""
    it = host(tmp_path, {
        "proc/sys/kernel/osrelease": "6.12.9+deb12-amd64\n", "boot/config-6.12.9+deb12-amd64": "CONFIG_NO_HZ=y\n",
        "usr/lib/modules/6.12.9+deb12-amd64/modules.builtin": "kernel/a.ko\n",
    })  # fmt: skip
    found = discover("kernel", it, SourceSettings())
    assert isinstance(found, Features)
    assert found.attributes["kernel.version"]["full"] == "6.12.9_deb12-amd64"
    assert found.attributes["kernel.config"]["NO_HZ"] == "y"
    assert found.flags["kernel.enabledmodule"] == {"a"}


@pytest.mark.parametrize("release", ["", "../../etc", "6.1\0", "6.1 x", "9" * 65])
def test_what_names_no_kernel_is_a_failure(tmp_path: Path, release: str) -> None:
    """An invalid kernel release fails, and no path is made of it."""
    found = discover("kernel", host(tmp_path, {"proc/sys/kernel/osrelease": release}), SourceSettings())
    assert isinstance(found, Failed)
    assert "names no kernel" in found.reason


def test_a_configuration_that_stays_the_same_is_decompressed_once(tmp_path: Path) -> None:
    """It would be most of the CPU time of a scan."""
    it = host(tmp_path, {"proc/config.gz": gzip.compress(b"CONFIG_HZ=1\n")})
    config = read_config(it, PLACES)
    assert read_config(it, PLACES) is config
    host(tmp_path, {"proc/config.gz": gzip.compress(b"CONFIG_HZ=2\n")})
    changed = read_config(it, PLACES)
    assert changed is not None
    assert changed["HZ"] == "2"


def test_a_broken_gzip_file_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken file is logged once, and not in every cycle."""
    it = host(tmp_path, {"proc/config.gz": b"no gzip"})
    assert read_config(it, PLACES) is read_config(it, PLACES) is None
    assert len(caplog.records) == 1
