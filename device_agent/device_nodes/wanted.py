"""Decides which nodes of NVIDIA's driver there have to be. Pure.

Where each number comes from:

- Major numbers: /proc/devices. GPUs are ``nvidia`` (since 550; nv.c registers minors 0 to 247 under this name, 255 as
  ``nvidiactl``, and ``nvidia-modeset`` registers 254), before ``nvidia-frontend`` for all of them. ``nvidia-uvm``
  (``uvm.c``) and ``nvidia-caps`` (``nv-caps.c``) get theirs from ``alloc_chrdev_region``: another one at each load.
- ``nvidiactl`` is minor 255, ``nvidia-modeset`` 254, GPUs have 0 to 247: nv-chardev-numbers.h.
- ``nvidia-uvm`` is minor 0, ``nvidia-uvm-tools`` 1: uvm_common.h.
- A GPU's minor: ``Device Minor`` of /proc/driver/nvidia/gpus/ADDRESS/information (nv-procfs.c).
- A capability's minor and mode: its file's ``DeviceFileMinor`` and ``DeviceFileMode`` (nv-caps.c).
- Owner and mode of the others: /proc/driver/nvidia/params, decimal numbers, as nvidia-modprobe reads them
  (``init_device_file_parameters`` of nvidia-modprobe-utils.c, with its defaults).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from device_agent.device_nodes.parse import MAX_ID, MAX_MINOR, parse_fields, parse_majors, parse_number
from device_agent.device_nodes.values import CardFiles, MajorNames, Wanted, WantedNode
from kube_api.text import first_few, printable, quoted

CONTROL_MINOR = 255
MODESET_MINOR = 254
LAST_CARD_MINOR = 247
UVM_MINOR = 0
UVM_TOOLS_MINOR = 1

CAPABILITIES_FOLDER = "/dev/nvidia-caps"

_CARDS = ("nvidia", "nvidia-frontend")
_MODESET = ("nvidia-modeset", "nvidia-frontend")
_UVM = ("nvidia-uvm",)
_CAPABILITIES = ("nvidia-caps",)

_MAX_SHOWN = 3
_DEFAULT_MODE = 0o666
_MODE_BITS = 0o777
_PARAMS = "/proc/driver/nvidia/params"


class _Access(NamedTuple):
    """Owner and mode of a node, and why it must not be made."""

    mode: int = _DEFAULT_MODE
    uid: int = 0
    gid: int = 0
    forbidden: str = ""


def wanted_nodes(
    devices_text: str,
    params_text: str,
    cards: Sequence[CardFiles],
    capabilities: Mapping[str, str],
    unread: str = "",
) -> Wanted:
    """Decide which nodes the loaded driver has, from what :func:`device_agent.device_nodes.read.read_proc` read.

    ``capabilities``: path below /proc/driver/nvidia/capabilities -> text. ``unread``: what could not be read.
    """
    majors = parse_majors(devices_text)
    if _major(majors, _CARDS) is None:
        return Wanted((), majors, may_remove=True, why=unread or "no driver of NVIDIA's is loaded: /proc/devices "
                      "has no character device named nvidia")  # fmt: skip
    troubles = [unread] if unread else []
    try:
        access = _parse_access(params_text)
    except ValueError as error:
        return Wanted((), majors, may_remove=False, why=_joined([*troubles, str(error)]))
    nodes = [*_control_nodes(majors, access), *_card_nodes(majors, access, cards, troubles)]
    nodes += _capability_nodes(majors, access, capabilities, troubles)
    return Wanted(tuple(nodes), majors, may_remove=not access.forbidden, why=_joined(troubles))


def capability_paths(card_minor: int, gi: int, ci: int) -> tuple[str, str]:
    """Name the two capabilities that open a MIG instance: of its GPU instance, and of its compute instance.

    Paths below /proc/driver/nvidia/capabilities, by the tables of nv-caps.c; the card is named by its minor number.
    """
    instance = f"gpu{card_minor}/mig/gi{gi}"
    return f"{instance}/access", f"{instance}/ci{ci}/access"


def drivers_of(path: str) -> tuple[str, ...]:
    """Return the names in /proc/devices whose devices may stand at a path, such as ``/dev/nvidia-uvm``."""
    name = path.removeprefix("/dev/")
    if name.startswith("nvidia-uvm"):
        return _UVM
    if name.startswith("nvidia-caps/"):
        return _CAPABILITIES
    return ("nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset")


def strangers(path: str, major: int, majors: MajorNames) -> frozenset[str]:
    """Return the drivers whose device a node is now, when none of them belongs at its path.

    A node whose major number no driver has is nobody's: it cannot be opened, and is none of a stranger's.
    """
    names = majors.get(major, frozenset())
    return frozenset() if names & set(drivers_of(path)) else names


def _major(majors: MajorNames, names: Sequence[str]) -> int | None:
    """Return the first major number that a driver has under one of the names."""
    return next((major for name in names for major in sorted(majors) if name in majors[major]), None)


def _parse_access(params_text: str) -> _Access:
    """Read owner, mode and permission from the driver's parameters.

    Raises:
        ValueError: when they are not there, or make no sense: whether nodes may be made is not known then.
    """
    fields = parse_fields(params_text)
    if not fields:
        raise ValueError(f"{_PARAMS} is empty or cannot be read: whether device nodes may be made is not known")
    access = _Access(
        mode=_field(fields, "DeviceFileMode", _DEFAULT_MODE) & _MODE_BITS,
        uid=_field(fields, "DeviceFileUID", 0),
        gid=_field(fields, "DeviceFileGID", 0),
    )
    if (modify := _field(fields, "ModifyDeviceFiles", 1)) == 1:
        return access
    forbidden = f"the driver's parameter ModifyDeviceFiles is {modify}: device nodes have to be made by the node itself"
    return access._replace(forbidden=forbidden)


def _field(fields: Mapping[str, str], name: str, default: int | None = None, most: int = MAX_ID) -> int:
    if name not in fields and default is not None:
        return default
    if name not in fields:
        raise ValueError(f"it has no {name}")
    number = parse_number(fields[name], most)
    if number is None:
        raise ValueError(f"{name} is {quoted(fields[name], 40)} instead of a number up to {most}")
    return number


def _control_nodes(majors: MajorNames, access: _Access) -> Iterator[WantedNode]:
    """Give the nodes that do not depend on a card.

    nvidia-modprobe makes those of ``nvidia-uvm`` with its defaults whatever the parameters say, and NVIDIA's libraries
    do the same in it: with another mode, both would change it for ever.
    """
    if (major := _major(majors, _CARDS)) is not None:
        yield _node("/dev/nvidiactl", major, CONTROL_MINOR, access)
    if (major := _major(majors, _MODESET)) is not None:
        yield _node("/dev/nvidia-modeset", major, MODESET_MINOR, access)
    if (major := _major(majors, _UVM)) is not None:
        own = _Access(forbidden=access.forbidden)
        yield _node("/dev/nvidia-uvm", major, UVM_MINOR, own)
        yield _node("/dev/nvidia-uvm-tools", major, UVM_TOOLS_MINOR, own)


def _card_nodes(
    majors: MajorNames, access: _Access, cards: Sequence[CardFiles], troubles: list[str]
) -> Iterator[WantedNode]:
    major = _major(majors, _CARDS)
    for card in cards:
        minor = parse_number(parse_fields(card.information).get("Device Minor", ""), LAST_CARD_MINOR)
        if minor is None:
            troubles.append(f"the driver does not say the minor number of card {card.pci}")
        elif major is not None:
            yield _node(f"/dev/nvidia{minor}", major, minor, access)


def _capability_nodes(
    majors: MajorNames, access: _Access, capabilities: Mapping[str, str], troubles: list[str]
) -> Iterator[WantedNode]:
    """Give the nodes of MIG's capabilities: each file has a mode of its own, and belongs to root."""
    major = _major(majors, _CAPABILITIES)
    if major is None:
        return
    for path in sorted(capabilities):
        fields = parse_fields(capabilities[path])
        try:
            minor = _field(fields, "DeviceFileMinor", most=MAX_MINOR)
            mode = _field(fields, "DeviceFileMode", _DEFAULT_MODE) & _MODE_BITS
            modify = _field(fields, "DeviceFileModify", 1)
        except ValueError as error:
            troubles.append(f"capability {path}: {error}")
            continue
        forbidden = access.forbidden or ("" if modify == 1 else f"DeviceFileModify of capability {path} is {modify}")
        node = _node(f"{CAPABILITIES_FOLDER}/nvidia-cap{minor}", major, minor, _Access(mode, 0, 0, forbidden))
        yield node._replace(capability=path)


def _node(path: str, major: int, minor: int, access: _Access) -> WantedNode:
    return WantedNode(path, major, minor, access.mode, access.uid, access.gid, access.forbidden)


def _joined(troubles: Sequence[str]) -> str:
    return printable(first_few(troubles, _MAX_SHOWN, separator="; "))
