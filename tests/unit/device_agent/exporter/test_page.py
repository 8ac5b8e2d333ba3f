"""The page for Prometheus: DCGM's names, units and labels, and nothing of what is not known."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from device_agent.exporter.labels import Host
from device_agent.exporter.ours import REASONS, Health
from device_agent.exporter.page import MOST_SERIES, known_cards, render_health, render_use, with_lost
from device_agent.gpu_state.use import VALUES, CardUse, Use, XidCount
from device_agent.usage.attribution import Allocated
from device_agent.users.pod_resources import Holder
from tests.unit.device_agent.usage.examples import MIB, amd, card, held, instance, process, use

HOST = Host("Hostname", "node-1")
CARD = {"gpu": "0", "UUID": "GPU-0", "pci_bus_id": "00000000:3B:00.0", "device": "nvidia0",
        "modelName": "NVIDIA A100-SXM4-40GB", "Hostname": "node-1"}  # fmt: skip
NOBODY = {"namespace": "", "pod": "", "container": ""}
A = {"namespace": "default", "pod": "a", "container": "main"}
B = {**A, "pod": "b"}
LASTING = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", **NOBODY}


def families(said: Use | None, devices: Sequence[Allocated] | None = (), host: Host = HOST) -> dict[str, Metric]:
    """Read the page as Prometheus' own library does; by the names that the page has."""
    text, _ = render_use(said, devices, host)
    return {line.split()[2]: found for line, found in zip(
        [line for line in text.splitlines() if line.startswith("# TYPE")],
        text_string_to_metric_families(text), strict=True)}  # fmt: skip


def series(
    said: Use | None, name: str, devices: Sequence[Allocated] | None = ()
) -> list[tuple[Mapping[str, str], float]]:
    """Return the series of a metric; none if it is not there."""
    found = families(said, devices).get(name)
    return [(sample.labels, sample.value) for sample in found.samples] if found else []


@pytest.mark.parametrize(
    ("value", "name", "kind", "expected"),
    [
        pytest.param({"sm_clock_mhz": 1410}, "DCGM_FI_DEV_SM_CLOCK", "gauge", 1410, id="SM clock"),
        pytest.param({"memory_clock_mhz": 1215}, "DCGM_FI_DEV_MEM_CLOCK", "gauge", 1215, id="memory clock"),
        pytest.param({"temperature_c": 41}, "DCGM_FI_DEV_GPU_TEMP", "gauge", 41, id="temperature"),
        pytest.param({"memory_temperature_c": 39}, "DCGM_FI_DEV_MEMORY_TEMP", "gauge", 39, id="memory's temperature"),
        pytest.param({"power_w": 312.75}, "DCGM_FI_DEV_POWER_USAGE", "gauge", 312.75, id="power in W"),
        pytest.param({"energy_mj": 2**52 + 1}, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", 2**52 + 1,
                     id="energy in mJ, exactly"),
        pytest.param({"busy_percent": 50}, "DCGM_FI_DEV_GPU_UTIL", "gauge", 50, id="busy in percent"),
        pytest.param({"memory_busy_percent": 7}, "DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", 7, id="memory busy"),
        pytest.param({"encoder_percent": 3}, "DCGM_FI_DEV_ENC_UTIL", "gauge", 3, id="encoder"),
        pytest.param({"decoder_percent": 4}, "DCGM_FI_DEV_DEC_UTIL", "gauge", 4, id="decoder"),
        pytest.param({"memory_used": 3 * MIB - 1}, "DCGM_FI_DEV_FB_USED", "gauge", 2, id="used in whole MiB"),
        pytest.param({"memory_free": 3 * MIB}, "DCGM_FI_DEV_FB_FREE", "gauge", 3, id="free in MiB"),
        pytest.param({"memory_reserved": 500 * MIB}, "DCGM_FI_DEV_FB_RESERVED", "gauge", 500, id="reserved in MiB"),
        pytest.param({"pcie_replays": 2}, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", 2, id="replays"),
        pytest.param({"ecc_single_volatile": 1}, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", 1, id="single volatile"),
        pytest.param({"ecc_double_volatile": 1}, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", 1, id="double volatile"),
        pytest.param({"ecc_single_aggregate": 1}, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", 1, id="single in all"),
        pytest.param({"ecc_double_aggregate": 1}, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", 1, id="double in all"),
        pytest.param({"rows_correctable": 1}, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", 1, id="correctable"),
        pytest.param({"rows_uncorrectable": 2}, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", 2,
                     id="uncorrectable"),
        pytest.param({"rows_failed": 3}, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", 1, id="rows that failed: a flag"),
        pytest.param({"engine_active": 0.5}, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", 0.5, id="engine from 0 to 1"),
        pytest.param({"sm_active": 0.25}, "DCGM_FI_PROF_SM_ACTIVE", "gauge", 0.25, id="SM"),
        pytest.param({"tensor_active": 1e-5}, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", 1e-5, id="tensor cores"),
        pytest.param({"dram_active": 1}, "DCGM_FI_PROF_DRAM_ACTIVE", "gauge", 1, id="memory"),
        pytest.param({"memory_used": 3}, "device_agent_gpu_memory_used_bytes", "gauge", 3, id="used in bytes"),
        pytest.param({"memory_total": 3}, "device_agent_gpu_memory_total_bytes", "gauge", 3, id="total in bytes"),
        pytest.param({"busy_percent": 50}, "device_agent_gpu_busy_ratio", "gauge", 0.5, id="busy from 0 to 1"),
    ],
)  # fmt: skip
def test_a_value_has_the_name_and_the_unit_of_dcgm(
    value: dict[str, float], name: str, kind: str, expected: float
) -> None:
    """And its type; the card's labels, and those of the pod that has it."""
    page = families(use(card(values=value)), [held("GPU-0", "a")])
    assert page[name].type == kind
    assert [(sample.labels, sample.value) for sample in page[name].samples] == [({**CARD, **A}, expected)]
    of_dcgm = {key for key in page if key.startswith("DCGM")} - {"DCGM_FI_DEV_XID_ERRORS"}
    assert of_dcgm == ({name} if name.startswith("DCGM") else of_dcgm), "what is not known is no series"


def test_each_known_value_is_shown() -> None:
    """None is sampled for nothing."""
    whole = len(families(use(card(values=dict.fromkeys(VALUES, 1)))))
    for name in VALUES:
        assert len(families(use(card(values={key: 1 for key in VALUES if key != name})))) < whole


def test_a_shared_card_is_nobodys_and_its_pods_stand_beside_it() -> None:
    """The card's labels are there and empty: Prometheus would fill in those of the exporter's own pod."""
    said = use(card(0, process("a", 300 * MIB, 20), process("b", 200 * MIB, 10, pid=2)))
    devices = [held("GPU-0::0", "a"), held("GPU-0::1", "b")]
    text, _ = render_use(said, devices, HOST)
    assert 'Hostname="node-1",namespace="",pod="",container=""} 1000\n' in text
    assert series(said, "DCGM_FI_DEV_FB_USED", devices) == [
        ({**CARD, **NOBODY}, 1000), ({**CARD, **A}, 300), ({**CARD, **B}, 200)
    ]  # fmt: skip
    assert series(said, "DCGM_FI_DEV_GPU_UTIL", devices) == [
        ({**CARD, **NOBODY}, 50), ({**CARD, **A}, 20), ({**CARD, **B}, 10)
    ]  # fmt: skip
    assert [value for _, value in series(said, "device_agent_gpu_memory_used_bytes", devices)] == [
        1000 * MIB, 300 * MIB, 200 * MIB
    ]  # fmt: skip
    assert [value for _, value in series(said, "device_agent_gpu_busy_ratio", devices)] == [0.5, 0.2, 0.1]


@pytest.mark.parametrize("devices", [pytest.param((), id="nobody has it"), pytest.param(None, id="not known who")])
def test_a_card_without_a_pod_has_empty_labels(devices: Sequence[Allocated] | None) -> None:
    """Whether it is known that nobody has it, or not known who does."""
    assert series(use(card()), "DCGM_FI_DEV_FB_USED", devices) == [({**CARD, **NOBODY}, 1000)]


def test_a_mig_device_has_the_labels_of_its_card_and_its_own() -> None:
    """Its own are its GPU instance and its profile; it has no Xid of its own."""
    said = use(card(), instance(7))
    own = {**CARD, **A, "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.5gb"}
    devices = [held("MIG-0-7", "a")]
    assert series(said, "DCGM_FI_DEV_FB_USED", devices) == [({**CARD, **NOBODY}, 1000), (own, 100)]
    assert series(said, "DCGM_FI_DEV_XID_ERRORS", devices) == [({**CARD, **NOBODY}, 0)]


def test_a_series_stands_on_the_page_once() -> None:
    """Two compute instances of one GPU instance have the same labels."""
    said = use(card(), instance(1), instance(2, gi=1, values={"memory_used": 7 * MIB}))
    assert [value for _, value in series(said, "DCGM_FI_DEV_FB_USED")] == [1000, 100]


def test_cards_of_other_vendors_have_our_series_and_none_of_dcgm() -> None:
    """By the same labels; their address stands for the UUID that they do not have."""
    page = families(use(amd(1)))
    assert not [name for name in page if name.startswith("DCGM")]
    (sample,) = page["device_agent_gpu_memory_used_bytes"].samples
    assert sample.labels == {"gpu": "1", "UUID": "0000:04:00.0", "pci_bus_id": "00000000:04:00.0", "device": "card1",
                             "modelName": "", "Hostname": "node-1", **NOBODY}  # fmt: skip


def test_xids_are_counted_and_the_last_one_is_shown() -> None:
    """By labels that stay the same whoever has the card; of one that no card has, its number counts."""
    said = use(card(), card(1), xids=(XidCount("GPU-0", 79, 2), XidCount("GPU-0", 31, 5), XidCount("", 13, 1)))
    assert [value for _, value in series(said, "DCGM_FI_DEV_XID_ERRORS", [held("GPU-0", "a")])] == [31, 0]
    nameless = {"gpu": "", "UUID": "", "Hostname": "node-1", "xid": "13", **NOBODY}
    assert series(said, "device_agent_gpu_xid_total", [held("GPU-0", "a")]) == [
        ({**LASTING, "xid": "79"}, 2), ({**LASTING, "xid": "31"}, 5), (nameless, 1)
    ]  # fmt: skip


def test_xids_of_a_lost_card_keep_their_labels() -> None:
    """NVML does not name it any more; of one without an Xid nothing is left, and nothing else of this one."""
    pods, xids = [held("GPU-0", "a")], (XidCount("GPU-0", 79, 1),)
    before = use(card(), card(1), card(2), xids=xids)
    after = with_lost(use(card(1), xids=xids), known_cards(before))
    for name in ("DCGM_FI_DEV_XID_ERRORS", "device_agent_gpu_xid_total"):
        assert series(after, name, pods)[-1:] == [one for one in series(before, name, pods) if one[1]]
    assert [labels["gpu"] for labels, _ in series(after, "DCGM_FI_DEV_FB_USED", pods)] == ["1"]
    assert known_cards(after).keys() == {"GPU-0", "GPU-1"}
    assert known_cards(with_lost(use(card(1)), known_cards(after))).keys() == {"GPU-1"}


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        pytest.param(0, set(), id="none"),
        pytest.param(0x1, {"gpu_idle"}, id="idle"),
        pytest.param(0x4 | 0x40, {"sw_power_cap", "hw_thermal_slowdown"}, id="power and temperature"),
        pytest.param(0x100, {"display_clock_setting"}, id="the last that is known"),
        pytest.param(0x1000, {"other"}, id="one of a newer driver"),
    ],
)
def test_each_reason_of_low_clocks_has_a_series(mask: int, reasons: set[str]) -> None:
    """1 if it is one now, 0 if it is not."""
    found = series(use(card(values={"throttle": mask}), card(1, values={})), "device_agent_gpu_throttle")
    assert {labels["reason"]: value for labels, value in found} == {
        name: float(name in reasons) for name in (*REASONS, "other")
    }
    assert all({**labels, "reason": ""} == {**LASTING, "reason": ""} for labels, _ in found)


def test_every_device_that_a_container_has_is_named() -> None:
    """Also where nothing is known of use."""
    devices = [held("GPU-0::1", "a"), held("edu0-1f0c2a9b", "b", resource="example.com/edu")]
    common = {"Hostname": "node-1"}
    assert series(None, "device_agent_device_allocated", devices) == [
        ({"resource": "nvidia.com/gpu.shared", "device": "GPU-0::1", **common, **A}, 1),
        ({"resource": "example.com/edu", "device": "edu0-1f0c2a9b", **common, **B}, 1),
    ]
    assert families(None, devices).keys() == {"device_agent_device_allocated"}
    assert families(None, None) == {}


def test_the_label_of_the_node_has_the_name_that_is_asked_for() -> None:
    """On each series."""
    page = families(use(card(values={"throttle": 0})), [held("GPU-0", "a")], Host("node", "n"))
    every = [sample.labels for family in page.values() for sample in family.samples]
    assert all(labels["node"] == "n" and "Hostname" not in labels for labels in every)


def test_too_many_series_are_left_out_and_counted() -> None:
    """A page that is too long would be refused as a whole; the cards' own come first."""
    devices = [held(f"GPU-9::{number}", "a") for number in range(MOST_SERIES + 7)]
    text, dropped = render_use(use(card()), devices, HOST)
    of_card = sum(len(one.samples) for one in families(use(card())).values())
    assert text.count("\ndevice_agent_device_allocated{") == MOST_SERIES - of_card
    assert dropped == 7 + of_card


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        pytest.param(Health(None, False, False, None, 0),
                     {"use_current": 0, "pod_resources_current": 0, "exporter_dropped_series": 0},
                     id="nothing is known"),
        pytest.param(Health(2.5, True, True, True, 3),
                     {"use_current": 1, "use_age_seconds": 2.5, "pod_resources_current": 1, "processes_known": 1,
                      "exporter_dropped_series": 3}, id="all is"),
        pytest.param(Health(7.25, False, True, False, 0),
                     {"use_current": 0, "use_age_seconds": 7.25, "pod_resources_current": 1, "processes_known": 0,
                      "exporter_dropped_series": 0}, id="use is old"),
    ],
)  # fmt: skip
def test_the_exporter_says_how_far_it_can_be_believed(health: Health, expected: dict[str, float]) -> None:
    """Whatever else is on the page."""
    found = {family.name: family.samples[0].value for family in text_string_to_metric_families(render_health(health))}
    assert found == {f"device_agent_{name}": value for name, value in expected.items()}


TEXTS = st.text(max_size=20)
CARDS = st.builds(
    CardUse,
    id=TEXTS, pci=TEXTS, driver=st.just("nvidia") | TEXTS, index=st.integers(0, 3), name=TEXTS, parent=TEXTS,
    profile=TEXTS, gi=st.none() | st.integers(0, 3),
    values=st.dictionaries(st.sampled_from(VALUES), st.floats(0, 2**53) | st.integers(0, 2**53)),
)  # fmt: skip
HELD = st.builds(Allocated, TEXTS, TEXTS, TEXTS, st.builds(Holder, TEXTS, TEXTS, TEXTS), st.frozensets(TEXTS))


@given(st.lists(CARDS, max_size=4), st.none() | st.lists(HELD, max_size=4), TEXTS)
def test_whatever_is_said_the_page_can_be_read(
    cards: list[CardUse], devices: list[Allocated] | None, node: str
) -> None:
    """Names from outside are escaped; each series stands there once."""
    text, _ = render_use(use(*cards), devices, Host("Hostname", node))
    found = [
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(found) == len(set(found)) == len([line for line in text.split("\n") if line and line[0] != "#"])
