"""The annotation on a Node that records what is loaded there of a driver, so that it can be unloaded. Pure.

Place in the flow: ``plan`` writes it together with the ready label when a pod has reported its load, and a removal
needs nothing else: DaemonSet, image and spec may be deleted by then. A node's kubelet may write annotations of its
Node, so everything that is read here has a limit and a pattern.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from driver_builder.base.memo import remembers_texts
from kube_api import names
from kube_api.text import printable
from kube_api.timestamps import LATEST

PREFIX = f"loaded.{names.GROUP}/"
"""Prefix of the annotations. With our own one, the longest driver name would leave no room for another word."""

MAX_BYTES = 4096
MAX_LOADS = 8
MAX_MODULES = 128
MAX_WORDS = 200

UNREADABLE = "the Node's annotation of loaded modules cannot be read"

_TARGET = re.compile(r"[0-9a-f]{8,16}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_IDENTITY = re.compile(r"[A-Za-z0-9]{1,64}")
_LONGEST_BOOT_ID = 80
_BOOT_ID = re.compile(rf"[A-Za-z0-9._+-]{{1,{_LONGEST_BOOT_ID}}}")
_SOME_BOOT = "some-boot"
_KERNEL = re.compile(r"(?!\.)[A-Za-z0-9._+~:-]{1,64}")
_FINGERPRINT = re.compile(r"[A-Za-z0-9:]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the pods of one target put on a node: ``modules`` are names with identities, in load order.

    The modules live as long as the boot ``boot_id``; firmware and blacklist are files, which stay. ``fingerprint`` is
    that of the pod that proved them, empty where it is not known.
    """

    target: str
    kernel: str
    boot_id: str
    modules: tuple[tuple[str, str], ...] = ()
    firmware: bool = False
    blacklist: bool = False
    var_firmware: bool = False
    """Whether firmware may be in ``/var/lib/firmware``, and the kernel's search path be ours."""
    nvidia: bool = False
    """Whether the user space may be at NVIDIA's place, until the node boots."""
    fingerprint: str = ""

    @property
    def has_files(self) -> bool:
        """Return whether something stays on the node after a reboot."""
        return self.firmware or self.var_firmware or self.blacklist

    def is_live(self, boot_id: str | None) -> bool:
        """Return whether modules of it are loaded on a boot of the node; None for one that is not known."""
        return bool(self.modules) and boot_id in (None, self.boot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The annotation's content. Times are whole seconds since the epoch.

    ``outside_since`` is when the driver first no longer selected the node, ``unload_since`` when its
    removal from the node began, ``held`` what prevented it at the last try, ``given_up`` why the modules stay loaded
    until the node boots again.
    """

    loads: tuple[Load, ...] = ()
    outside_since: int | None = None
    unload_since: int | None = None
    held: str = ""
    given_up: str = ""

    def with_load(self, load: Load, *, is_proven: bool = True) -> "Loaded":
        """Add what a pod reported, newest first; earlier loads that are still there are kept.

        After a load that is not proven, it is unknown whose build is live: both are kept.
        """
        load = load if is_proven else replace(load, fingerprint="")
        others = [_beside(old, load, is_proven) for old in self.loads if old.target != load.target]
        before = next((old for old in self.loads if old.target == load.target), None)
        merged = load if before is None else _merged(before, load, is_proven)
        kept = (item for item in others if item.modules or item.has_files)
        return replace(self, loads=(merged, *kept)[:MAX_LOADS])

    def without(self, target: str) -> "Loaded":
        """Drop what an unload pod has unloaded."""
        return replace(self, loads=tuple(load for load in self.loads if load.target != target), held="")

    def on_boot(self, boot_id: str | None) -> "Loaded":
        """Drop the modules of earlier boots; what was given up because of them starts anew."""
        if boot_id is None:
            return self
        loads = [load if load.boot_id == boot_id else replace(load, modules=()) for load in self.loads]
        kept = tuple(load for load in loads if load.modules or load.has_files)
        if kept == self.loads:
            return self
        return replace(self, loads=kept, unload_since=None, held="", given_up="")

    def as_written(self, before: "Loaded") -> "Loaded":
        """Leave out the fingerprints that a record of ``before`` has not, where the rest of a load is the same."""
        old = {load.target: load for load in before.loads if not load.fingerprint}
        loads = (
            old[load.target] if replace(load, fingerprint="") == old.get(load.target) else load for load in self.loads
        )
        return replace(self, loads=tuple(loads))

    @property
    def settled(self) -> "Loaded":
        """The same for a node that keeps its driver: no removal is under way."""
        return replace(self, outside_since=None, unload_since=None, held="", given_up="")


def annotation(driver: str) -> str:
    """Return the annotation of a driver, given by ``namespace/name``."""
    return PREFIX + driver.replace("/", ".", 1)


def parse(text: str | None) -> Loaded | None:
    """Read an annotation; None without one. One that cannot be read is given up, and says so."""
    if text is None:
        return None
    try:
        return _loaded(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Loaded(given_up=UNREADABLE)


def render(loaded: Loaded) -> str:
    """Write the annotation, within its limit: the oldest loads are left out."""
    text = _text(loaded)
    while len(text) > MAX_BYTES and loaded.loads:
        *kept, last = loaded.loads
        shorter = [replace(last, modules=last.modules[1:])] if not kept and last.modules else []
        loaded = replace(loaded, loads=(*kept, *shorter))
        text = _text(loaded)
    return text


@dataclass(frozen=True, slots=True)
class Around:
    """The annotation that records one load and nothing else, without its boot id: what nodes have in common.

    None ``before`` it if nothing is recorded.
    """

    before: str | None
    after: str = ""

    def is_of(self, text: str | None, boot_id: str) -> bool:
        """Return whether this is an annotation of a load on this boot, or of none."""
        return text is None if self.before is None else text == f"{self.before}{boot_id}{self.after}"


def around(load: Load | None) -> Around:
    """Return what the annotations of a load have in common on all boots; without a load, that there is none."""
    if load is None:
        return Around(None)
    before, _, after = _text(Loaded(loads=(replace(load, boot_id=_SOME_BOOT),))).rpartition(_SOME_BOOT)
    # A longer one is cut when it is written.
    return Around(before, after if len(before) + len(after) <= MAX_BYTES - _LONGEST_BOOT_ID else "\0")


def words(text: str) -> str:
    """Cut a text from a node to one line that can be shown."""
    return printable(text, MAX_WORDS)


@remembers_texts
def _loaded(text: str) -> Loaded:
    if len(text) > MAX_BYTES:
        raise ValueError("too long")
    content = json.loads(text)
    loads = content.get("loads") or []
    if len(loads) > MAX_LOADS:
        raise ValueError("too many loads")
    return Loaded(
        loads=tuple(_load(item) for item in loads),
        outside_since=_seconds(content.get("outsideSince")),
        unload_since=_seconds(content.get("unloadSince")),
        held=words(str(content.get("held") or "")),
        given_up=words(str(content.get("givenUp") or "")),
    )


def _load(item: Mapping[str, Any]) -> Load:
    modules = [module.split(":") for module in item.get("modules") or []]
    if len(modules) > MAX_MODULES:
        raise ValueError("too many modules")
    return Load(
        target=_matching(_TARGET, item["target"]),
        kernel=_matching(_KERNEL, item["kernel"]),
        boot_id=_matching(_BOOT_ID, item["bootID"]),
        modules=tuple((_matching(_NAME, name), _matching(_IDENTITY, identity)) for name, identity in modules),
        firmware=item.get("firmware") is True,
        var_firmware=item.get("varFirmware") is True,
        blacklist=item.get("blacklist") is True,
        nvidia=item.get("nvidia") is True,
        fingerprint=_matching(_FINGERPRINT, item["fingerprint"]) if "fingerprint" in item else "",
    )


def _matching(pattern: re.Pattern[str], value: str) -> str:
    if pattern.fullmatch(value) is None:
        raise ValueError("unexpected characters")
    return value


def _seconds(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < LATEST:
        raise ValueError("no time")
    return value


def _text(loaded: Loaded) -> str:
    content: dict[str, Any] = {"loads": [_item(load) for load in loaded.loads]}
    optional = {"outsideSince": loaded.outside_since, "unloadSince": loaded.unload_since}
    content |= {key: value for key, value in optional.items() if value is not None}
    said = {"held": words(loaded.held), "givenUp": words(loaded.given_up)}
    content |= {key: value for key, value in said.items() if value}
    return json.dumps(content, separators=(",", ":"))


def _item(load: Load) -> dict[str, Any]:
    item: dict[str, Any] = {"target": load.target, "kernel": load.kernel, "bootID": load.boot_id}
    if load.modules:
        item["modules"] = [f"{name}:{identity}" for name, identity in load.modules]
    if _FINGERPRINT.fullmatch(load.fingerprint):
        item["fingerprint"] = load.fingerprint
    files = {"firmware": load.firmware, "varFirmware": load.var_firmware}
    files |= {"blacklist": load.blacklist, "nvidia": load.nvidia}
    return item | {name: True for name, there in files.items() if there}


def _beside(old: Load, new: Load, is_proven: bool) -> Load:
    """Return the rest of another target's load: its modules only during this boot, and only those not replaced."""
    if old.boot_id != new.boot_id:
        return replace(old, modules=())
    return replace(old, modules=_others(old.modules, new.modules, is_proven))


def _merged(old: Load, new: Load, is_proven: bool) -> Load:
    """Add what an earlier image of the target left: its files, and the modules that the new one does not have."""
    files = replace(
        new,
        firmware=new.firmware or old.firmware,
        var_firmware=new.var_firmware or old.var_firmware,
        blacklist=new.blacklist or old.blacklist,
    )
    if old.boot_id != new.boot_id:
        return files
    others = _others(old.modules, new.modules, is_proven)
    modules = _in_order(old.modules, new.modules, others)
    return replace(files, modules=modules, nvidia=new.nvidia or old.nvidia)


_Modules = tuple[tuple[str, str], ...]


def _others(old: _Modules, new: _Modules, is_proven: bool) -> _Modules:
    """Return the modules of an earlier load that a later one does not replace."""
    names_now = {plain(name) for name, _ in new}
    return tuple(item for item in old if (plain(item[0]) not in names_now if is_proven else item not in new))


def _in_order(old: _Modules, new: _Modules, others: _Modules) -> _Modules:
    """Put each of the other modules right after the one that it followed in the old list."""
    merged = list(new)
    before = ""
    for module in old:
        if module in others:
            places = [plain(name) for name, _ in merged]
            merged.insert(places.index(before) + 1 if before in places else 0, module)
        before = plain(module[0])
    return tuple(merged)


def plain(module: str) -> str:
    """Write a module's name as the kernel does, without dashes."""
    return module.replace("-", "_")
