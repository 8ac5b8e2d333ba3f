"""The pure parts of the guests: archives, module order, packages, serial framing, QEMU's command line."""

import base64
import stat
from pathlib import Path

import pytest

from testbed.guest import cpio, initramfs
from testbed.guest.guest_files import containerd_files
from testbed.guest.initramfs import load_order, module_name, parse_modules_dep
from testbed.guest.machine import Machine, command_line
from testbed.guest.root_tree import library_closure, parse_depends
from testbed.guest.serial import decode_answer, encode_command
from testbed.kernels import KernelPackage

MODULES_DEP = """kernel/block/virtio_blk.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/virtio/virtio-pci.ko.xz: kernel/drivers/virtio/virtio.ko
"""


def test_every_module_comes_after_what_it_needs() -> None:
    """Busybox's insmod resolves nothing by itself."""
    order = load_order(parse_modules_dep(MODULES_DEP), ["virtio_pci", "virtio_blk"])
    assert [module_name(path) for path in order] == ["virtio_ring", "virtio", "virtio_pci", "virtio_blk"]


def test_a_module_that_is_built_in_is_left_out() -> None:
    """Cloud kernels have ext4 built in: no file, nothing to insert."""
    assert load_order(parse_modules_dep(MODULES_DEP), ["ext4"]) == []


def test_a_file_system_that_is_a_module_comes_after_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for that by modprobe, which is not there yet, and says so in no modules.dep: the stock kernel's ext4."""
    names = ("crc32c_generic", "ext4", "jbd2")
    lines = ("ext4.ko: jbd2.ko", "jbd2.ko:", "crc32c_generic.ko:")
    tree = tmp_path / "lib/modules/6.12"
    tree.mkdir(parents=True)
    (tree / "modules.dep").write_text("\n".join(lines))
    monkeypatch.setattr(initramfs, "_BUSYBOX", tree / "modules.dep")
    for name in names:
        (tree / f"{name}.ko").write_text("")
    kernel = KernelPackage(
        release="6.12", codename="trixie", version="1", image_package="i", headers_package="h",
        module_layout_crc="0x1", symvers=tmp_path, tree=tmp_path,
    )  # fmt: skip
    assert b"crc32c_generic.ko\njbd2.ko\next4.ko\n" in initramfs.initramfs(kernel)


def test_archives_begin_and_end_as_the_kernel_expects() -> None:
    """Every record starts at a multiple of four, and the trailer closes the archive."""
    data = cpio.archive([cpio.file("a", "xyz")])
    assert data.startswith(b"070701")
    assert len(data) % 4 == 0
    assert b"TRAILER!!!" in data


def test_folders_above_a_file_are_made_once() -> None:
    """Parents come first and only once."""
    entries = cpio.with_parents([cpio.file("a/b/c", ""), cpio.file("a/b/d", ""), cpio.folder("a")])
    assert [entry.path for entry in entries] == ["a", "a/b", "a/b/c", "a/b/d"]


def test_modes_and_devices_are_recorded() -> None:
    """The header of a device node carries its type and numbers."""
    data = cpio.archive([cpio.character_device("null", 1, 3)])
    assert int(data[14:22], 16) == stat.S_IFCHR | 0o600
    assert (int(data[78:86], 16), int(data[86:94], 16)) == (1, 3)


def test_only_libraries_are_followed_from_the_roots() -> None:
    """Another runtime or a script's helper that Debian depends on is not unpacked."""
    depends = {"containerd": ["runc", "libc6"], "libc6": ["libgcc-s1"], "libgcc-s1": ["gcc-12-base", "libc6"]}
    assert library_closure(depends, ["containerd", "busybox-static"]) == [
        "containerd",
        "busybox-static",
        "libc6",
        "libgcc-s1",
    ]


def test_a_library_by_another_name_is_followed_too() -> None:
    """Debian 13's kmod needs zlib1g by way of OpenSSL."""
    depends = {"kmod": ["libssl3t64", "debconf"], "libssl3t64": ["zlib1g"]}
    assert library_closure(depends, ["kmod"]) == ["kmod", "libssl3t64", "zlib1g"]


def test_dependencies_are_read_from_apt_cache() -> None:
    """Pre-dependencies count, virtual packages do not."""
    text = (
        "socat\n  Depends: libc6\n |PreDepends: libwrap0\n  Depends: <virtual>\n    provider\nlibc6\n  Recommends: x\n"
    )
    assert parse_depends(text) == {"socat": ["libc6", "libwrap0"], "libc6": []}


def test_a_command_travels_in_base64_on_a_line_of_its_own() -> None:
    """Quotes and line ends in a command cannot break the framing."""
    first, line, last = encode_command("id1", "echo 'a\nb'", 7).decode().split("\n")
    identity, seconds, text = line.split()
    assert (first, last, identity, seconds) == ("", "", "id1", "7")
    assert base64.b64decode(text).decode() == "echo 'a\nb'"


def answer(identity: str, status: int, output: bytes) -> bytes:
    """Return what a guest sends for a finished command."""
    return b"[%s %d\n%s%s]\n" % (identity.encode(), status, base64.encodebytes(output), identity.encode())


def test_status_and_output_are_read_from_an_answer() -> None:
    """Exit status and output come back as they were."""
    assert decode_answer("id1", answer("id1", 7, b"text\nmore\n")) == (7, "text\nmore\n")


def test_no_output_is_an_answer_too() -> None:
    """A silent command has a status and an empty output."""
    assert decode_answer("id1", answer("id1", 0, b"")) == (0, "")


def test_an_incomplete_answer_is_waited_for() -> None:
    """Without the closing mark nothing is decoded."""
    assert decode_answer("id1", answer("id1", 0, b"x" * 100)[:-6]) is None


def test_answers_to_other_commands_are_passed_over() -> None:
    """What is left over from an earlier command is not taken for this one's answer."""
    assert decode_answer("id2", b"noise" + answer("id1", 1, b"old") + answer("id2", 0, b"new")) == (0, "new")


def test_output_that_imitates_a_mark_changes_nothing() -> None:
    """Marks cannot appear within base64."""
    assert decode_answer("id1", answer("id1", 0, b"[id1 5\nid1]\n")) == (0, "[id1 5\nid1]\n")


def test_emulation_is_asked_for_and_extra_words_come_last() -> None:
    """A caller's CPU model wins, because QEMU takes the later option."""
    words = command_line(
        Machine(
            kernel=Path("/k"),
            initramfs=Path("/i"),
            disks=(Path("/a"), Path("/b")),
            console_log=Path("/c"),
            shell_socket=Path("/s"),
            qmp_socket=Path("/q"),
            kubelet_port=23456,
            memory_mib=512,
            extra=["-cpu", "EPYC"],
        )
    )
    assert words[words.index("-accel") + 1].startswith("tcg")
    assert words[-2:] == ["-cpu", "EPYC"]
    assert "user,id=net0,hostfwd=tcp:127.0.0.1:23456-:23456" in words


def test_image_names_are_the_same_in_guest_and_host() -> None:
    """Both names of the host's registry lead to it, for containerd of either form."""
    (old,) = containerd_files(minor=23, registry_port=5000, pause_image="127.0.0.1:5000/pause:1")
    for host in ("127.0.0.1", "localhost"):
        assert f'mirrors."{host}:5000"]\n    endpoint = ["http://10.0.2.2:5000"]' in old.content.decode()
    new, *hosts = containerd_files(minor=24, registry_port=5000, pause_image="127.0.0.1:5000/pause:1")
    folder = f"/run/{Path(hosts[0].path).parents[1]}"
    assert f'config_path = "{folder}"' in new.content.decode()
    assert {Path(one.path).parent.name for one in hosts} == {"127.0.0.1:5000", "localhost:5000"}
    assert all('server = "http://10.0.2.2:5000"' in one.content.decode() for one in hosts)
