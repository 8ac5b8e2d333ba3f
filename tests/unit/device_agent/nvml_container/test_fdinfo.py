"""What DRM drivers say of a client, and how busy its engines were."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.nvml_container.fdinfo import Client, Engines, list_descriptors, parse_client, read_client
from tests.unit.device_agent.nvml_container.node_folder import UID, NodeFolder

KIB, MIB = 1 << 10, 1 << 20
HEAD = "pos:\t0\nflags:\t0100002\nmnt_id:\t26\nino:\t1115\n"

# The keys are those of Documentation/gpu/drm-usage-stats.rst; which ones a driver writes is in its show_fdinfo
# (amdgpu_fdinfo.c, i915_drm_client.c, xe_drm_client.c).
AMDGPU = HEAD + (
    "drm-driver:\tamdgpu\ndrm-client-id:\t34\ndrm-pdev:\t0000:0a:00.0\npasid:\t32777\n"
    "drm-memory-vram:\t1048576 KiB\ndrm-memory-gtt: \t2048 KiB\ndrm-memory-cpu: \t0 KiB\n"
    "amd-evicted-vram:\t0 KiB\ndrm-engine-gfx:\t6000000000 ns\ndrm-engine-compute:\t0 ns\n"
)
AMDGPU_NEW = AMDGPU + "drm-total-vram:\t1148576 KiB\ndrm-resident-vram:\t1048570 KiB\ndrm-shared-vram:\t4096 KiB\n"
I915 = HEAD + (
    "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-total-system0:\t4 MiB\ndrm-shared-system0:\t0\n"
    "drm-resident-system0:\t3 MiB\ndrm-total-stolen-system0:\t0\ndrm-resident-stolen-system0:\t0\n"
    "drm-engine-render:\t9288864723 ns\ndrm-engine-copy:\t2035071108 ns\ndrm-engine-video:\t0 ns\n"
    "drm-engine-capacity-video:\t2\n"
)
XE = HEAD + (
    "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-system:\t8192\ndrm-resident-system:\t4096\n"
    "drm-total-vram0:\t512 KiB\ndrm-resident-vram0:\t256 KiB\n"
    "drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-cycles-vcs:\t0\ndrm-total-cycles-vcs:\t7655183225\ndrm-engine-capacity-vcs:\t2\n"
)


@pytest.mark.parametrize(
    ("text", "client"),
    [
        pytest.param(
            AMDGPU,
            Client("0000:0a:00.0", 34, 1048576 * KIB, {"gfx": (6000000000, None), "compute": (0, None)}, {}),
            id="amdgpu, older name of memory",
        ),
        pytest.param(
            AMDGPU_NEW,
            Client("0000:0a:00.0", 34, 1048570 * KIB, {"gfx": (6000000000, None), "compute": (0, None)}, {}),
            id="amdgpu, what is resident",
        ),
        pytest.param(
            I915,
            Client(
                "0000:00:02.0", 7, 3 * MIB,
                {"render": (9288864723, None), "copy": (2035071108, None), "video": (0, None)}, {"video": 2},
            ),
            id="i915, a card without memory of its own",
        ),
        pytest.param(
            I915 + "drm-total-local0:\t7 MiB\ndrm-resident-local0:\t6 MiB\n",
            Client(
                "0000:00:02.0", 7, 6 * MIB,
                {"render": (9288864723, None), "copy": (2035071108, None), "video": (0, None)}, {"video": 2},
            ),
            id="i915, a card with memory of its own",
        ),
        pytest.param(
            XE,
            Client(
                "0000:03:00.0", 3, 256 * KIB, {"rcs": (28257900, 7655183225), "vcs": (0, 7655183225)}, {"vcs": 2}
            ),
            id="xe, by cycles",
        ),
        pytest.param(
            HEAD + "drm-driver:\tnew\ndrm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\n",
            Client("0000:03:00.0", 1, None, {}, {}), id="a driver that says no more",
        ),
        pytest.param(HEAD, None, id="a file"),
        pytest.param("", None, id="a process that has ended"),
        pytest.param(HEAD + "drm-driver:\tv3d\ndrm-client-id:\t1\n", None, id="a card that is no PCI device"),
        pytest.param(AMDGPU.replace("\t34", "\t-34"), None, id="a client without a number"),
    ],
)  # fmt: skip
def test_a_descriptor_says_its_client(text: str, client: Client | None) -> None:
    """Memory is that of the card where it has some."""
    assert parse_client(text) == client


@given(st.text(max_size=200) | st.lists(st.from_regex(r"drm-[a-z-]{1,20}:\s?\d{0,30} ?(KiB|MiB|ns|GiB)?"), max_size=8)
       .map(lambda lines: AMDGPU + "\n".join(lines)))  # fmt: skip
def test_any_text_is_read(text: str) -> None:
    """What makes no sense is left out."""
    client = parse_client(text)
    assert client is None or client.memory is None or client.memory >= 0


def test_files_and_cards_are_looked_at_and_nothing_else(tmp_path: Path) -> None:
    """A card may have any path in a container; a socket's fdinfo is not read."""
    node = NodeFolder(tmp_path)
    node.process(17, UID)
    node.opened(17, 3, AMDGPU, "socket:[123]")
    node.opened(17, 4, AMDGPU, "/mnt/card (deleted)")
    found = [read_client(str(node.proc), 17, one) for one in sorted(list_descriptors(str(node.proc), 17, 10))]
    assert found == [None, parse_client(AMDGPU)]
    assert list_descriptors(str(node.proc), 18, 10) == []
    assert len(list_descriptors(str(node.proc), 17, 1)) == 1


def busy(before: dict[str, tuple[int, int | None]], now: dict[str, tuple[int, int | None]], **of: int) -> float | None:
    """Return how busy a client was in two seconds."""
    engines = Engines()
    assert engines.busy([Client("0000:0a:00.0", 1, None, before, of)], 10.0) is None
    engines.turn()
    return engines.busy([Client("0000:0a:00.0", 1, None, now, of)], 12.0)


SECOND = 10**9


@pytest.mark.parametrize(
    ("before", "now", "capacities", "percent"),
    [
        pytest.param({"gfx": (5, None)}, {"gfx": (5 + SECOND // 2, None)}, {}, 25.0, id="one engine"),
        pytest.param(
            {"gfx": (0, None), "copy": (0, None)}, {"gfx": (SECOND, None), "copy": (SECOND // 2, None)}, {}, 50.0,
            id="the busiest one",
        ),
        pytest.param({"vcs": (0, None)}, {"vcs": (3 * SECOND, None)}, {"vcs": 2}, 75.0, id="two engines of a name"),
        pytest.param({"gfx": (0, None)}, {"gfx": (9 * SECOND, None)}, {}, 100.0, id="never more than all"),
        pytest.param({"rcs": (10, 1000)}, {"rcs": (40, 1100)}, {}, 30.0, id="cycles"),
        pytest.param({"rcs": (10, 1000)}, {"rcs": (40, 1000)}, {}, 0.0, id="cycles without a clock"),
        pytest.param({"gfx": (SECOND, None)}, {"gfx": (5, None)}, {}, 0.0, id="a counter that is behind"),
        pytest.param({}, {"gfx": (SECOND, None)}, {}, None, id="a new engine"),
        pytest.param({}, {}, {}, None, id="a driver that does not say"),
    ],
)  # fmt: skip
def test_busy_is_the_growth_of_an_engines_time_over_the_time_between(
    before: dict[str, tuple[int, int | None]],
    now: dict[str, tuple[int, int | None]],
    capacities: dict[str, int],
    percent: float | None,
) -> None:
    """In percent, of the busiest engine."""
    assert busy(before, now, **capacities) == percent


def test_a_counter_that_was_behind_counts_from_where_it_was() -> None:
    """As the kernel's documentation asks for: the larger value stands until it is reached."""
    engines = Engines()
    for at, value, percent in ((10.0, 4, None), (11.0, 2, 0.0), (12.0, 4, 0.0), (13.0, 4 + SECOND // 4, 25.0)):
        assert engines.busy([Client("a", 1, None, {"gfx": (value, None)}, {})], at) == percent
        engines.turn()


def test_clients_of_a_process_are_added_by_engine() -> None:
    """Each may have a part of an engine's time."""
    engines = Engines()
    for at, value in ((10.0, 0), (11.0, SECOND // 4)):
        clients = [Client("a", number, None, {"gfx": (value, None)}, {}) for number in (1, 2)]
        percent = engines.busy(clients, at)
        engines.turn()
    assert percent == 50.0


def test_a_client_that_was_away_begins_anew() -> None:
    """Nothing is kept of those that are gone."""
    engines = Engines()
    client = Client("a", 1, None, {"gfx": (5, None)}, {})
    engines.busy([client], 10.0)
    engines.turn()
    engines.turn()
    assert engines.busy([client], 12.0) is None
