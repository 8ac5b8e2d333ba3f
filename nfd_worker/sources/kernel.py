"""Source ``kernel``: version, build configuration, loaded and built-in modules, SELinux, KVM."""

import re
import zlib
from collections.abc import Iterator, Mapping

from feature_rules.features import Attributes, Features, Flags
from kube_api.names import label_value
from nfd_worker.errors import HostReadError
from nfd_worker.host import LONGEST_FILE, OS_RELEASE, Host
from nfd_worker.sources.settings import SourceSettings

_GZIP = zlib.MAX_WBITS | 16
"""What zlib calls a file of gzip; the module of that name is a third of a millisecond and more."""

_RELEASE = re.compile(r"[!-.0-~]{1,64}")
"""What ``uname -r`` can be, to be part of a file's name."""

_VERSION = re.compile(r"(\d{1,63})(?:\.(\d{1,63}))?(?:\.(\d{1,63}))?", re.ASCII)
"""The numbers that a release begins with. Distributions append what they like: ``6.12.41+deb13-amd64``."""


def discover(host: Host, settings: SourceSettings) -> Features:
    """Read all that is known of the running kernel; the version is never missing.

    Raises:
        HostReadError: without a version, or on an I/O error.
    """
    release = host.read(OS_RELEASE).strip()
    if not _RELEASE.fullmatch(release):
        raise HostReadError(f"{OS_RELEASE} below {host.root} holds {release[:70]!r}, which names no kernel")
    version = parse_version(release)
    loaded = parse_modules(host.find("proc/modules") or "")
    attributes: dict[str, Attributes] = {
        "kernel.version": version,
        "kernel.selinux": {"enabled": _bool((host.find("sys/fs/selinux/enforce") or "").startswith("1"))},
        "kernel.kvm": {"enabled": _bool(host.has("sys/devices/virtual/misc/kvm"))},
    }
    config = read_config(host, config_paths(release, settings.kernel.kconfig_file))
    if config is not None:
        attributes["kernel.config"] = config
    flags = {"kernel.loadedmodule": loaded}
    built_in = _find_built_in_modules(host, release)
    if built_in is not None:
        flags["kernel.enabledmodule"] = in_both_spellings(loaded | built_in)
    return Features(flags=flags, attributes=attributes)


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label the version, the wanted configuration options that are set, and SELinux where it is enforcing."""
    version = features.attributes["kernel.version"]
    found = {f"version.{part}": value for part, value in version.items()}
    config = features.attributes.get("kernel.config", {})
    for option in (option.removeprefix("CONFIG_") for option in settings.kernel.config_opts):
        if option in config:
            found[f"config.{option}"] = "true" if config[option] in ("y", "m") else config[option]
    if features.attributes["kernel.selinux"]["enabled"] == "true":
        found["selinux.enabled"] = "true"
    return found


def parse_version(osrelease: str) -> dict[str, str]:
    """Split a kernel version into full, major, minor and revision.

    ``full`` is ``uname -r`` as a label value: of a release of 64 characters, the longest there is,
    the first 63. The others are the numbers at its start, whatever follows them. A part that the
    version does not have is the empty string; one that does not start with a number has only ``full``.
    """
    full = label_value(osrelease.strip())
    match = _VERSION.match(osrelease.strip())
    if match is None:
        return {"full": full}
    major, minor, revision = (part or "" for part in match.groups())
    return {"full": full, "major": major, "minor": minor, "revision": revision}


def parse_modules(proc_modules: str) -> Flags:
    """Name the modules of ``/proc/modules``: the first word of each line."""
    return frozenset(line.split(None, 1)[0] for line in proc_modules.splitlines() if line.strip())


def parse_modules_builtin(text: str) -> Flags:
    """Name the modules of a ``modules.builtin`` file: one path ending in ``.ko`` a line."""
    names = (line.strip().rpartition("/")[2] for line in text.splitlines())
    return frozenset(name.removesuffix(".ko") for name in names if name.endswith(".ko"))


def in_both_spellings(modules: Flags) -> Flags:
    """Name each module with ``_`` and with ``-`` as well: the kernel says ``vfio_pci``, its file is ``vfio-pci.ko``."""
    names = (spelling for name in modules for spelling in (name, name.replace("-", "_"), name.replace("_", "-")))
    return frozenset(names)


class KernelConfig(Mapping[str, str]):
    """The options of a kernel configuration: ``NO_HZ`` -> ``y``; an option that is not set is not in it.

    A view of the file's text: ten thousand options as a dict would cost the resident process 2 MiB, for the four that
    become labels.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._asked: dict[str, str | None] = {}

    def __getitem__(self, option: str) -> str:
        if option not in self._asked:
            self._asked[option] = self._find(option)
        value = self._asked[option]
        if value is None:
            raise KeyError(option)
        return value

    def _find(self, option: str) -> str | None:
        assignment = b"CONFIG_%s=" % option.encode()
        start = self._text.rfind(b"\n" + assignment) + 1
        if not self._text.startswith(assignment, start):
            return None
        start += len(assignment)
        end = self._text.find(b"\n", start)
        return _config_value(self._text[start : end if end >= 0 else None])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(match[1].decode() for match in _CONFIG_LINE.finditer(self._text)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


_CONFIG_LINE = re.compile(rb"^CONFIG_(\w+)=", re.MULTILINE)


def _config_value(raw: bytes) -> str:
    return raw.decode(errors="replace").strip().strip('"')


def config_paths(release: str, kconfig_file: str) -> tuple[str, ...]:
    """List where a kernel's configuration may be, best first: the places where Node Feature Discovery looks.

    ``release`` is ``uname -r`` to the letter, and not as a label value: files are named ``config-6.12.9+deb12-amd64``.
    """
    places = (
        kconfig_file,
        "proc/config.gz",
        f"usr/src/linux-{release}/.config",
        f"usr/src/linux-rt-{release}/.config",
        "usr/src/linux/.config",
        f"usr/lib/modules/{release}/config",
        f"usr/lib/ostree-boot/config-{release}",
        f"usr/lib/kernel/config-{release}",
        f"usr/src/linux-headers-{release}/.config",
        f"lib/modules/{release}/build/.config",
        f"usr/src/linux-rt-headers-{release}/.config",
        f"boot/config-{release}",
    )
    return tuple(place for place in places if place)


def read_config(host: Host, paths: tuple[str, ...]) -> KernelConfig | None:
    """Read the first configuration that can be read; None where the node has none.

    Raises:
        HostReadError: on an I/O error.
    """
    for number, path in enumerate(paths, 1):
        found = host.find_first((path,))
        if found is None:
            continue
        config = host.parsed(path, found[1], _decompressed if path.endswith(".gz") else _parse_config)
        if isinstance(config, KernelConfig):
            return config
        host.warn_once(f"kernel: {path} {config}; trying {len(paths) - number} other places")
    return None


def _parse_config(text: bytes) -> KernelConfig | str:
    """Read a configuration, or say why a file is none."""
    return KernelConfig(text) if _CONFIG_LINE.search(text) else "has no line CONFIG_<option>=<value>"


def _decompressed(content: bytes) -> KernelConfig | str:
    """Unpack a configuration, no further than the longest file that is read otherwise."""
    reader = zlib.decompressobj(_GZIP)
    try:
        text = reader.decompress(content, LONGEST_FILE + 1)
    except zlib.error as error:
        return f"is not a gzip file ({error})"
    if len(text) > LONGEST_FILE:
        return f"unpacks to more than {LONGEST_FILE} bytes"
    return _parse_config(text) if reader.eof else "is cut off"


def _find_built_in_modules(host: Host, release: str) -> Flags | None:
    found = host.find_first((f"lib/modules/{release}/modules.builtin", f"usr/lib/modules/{release}/modules.builtin"))
    return (
        None
        if found is None
        else host.parsed(*found, lambda text: parse_modules_builtin(text.decode("utf-8", "replace")))
    )


def _bool(value: bool) -> str:
    return "true" if value else "false"
