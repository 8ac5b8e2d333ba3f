"""States for tests, and Hypothesis' strategies of them."""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from device_agent.errors import StateInvalid
from device_agent.gpu_state.mig_change import DONE, OUTCOMES
from device_agent.gpu_state.state import (
    ABSENT,
    FAILED,
    OK,
    CardState,
    GpuInstanceState,
    InstanceState,
    MigChanged,
    MigProfileState,
    NodeState,
    State,
    XidEvent,
)
from kube_api.text import printable

INSTANCE = InstanceState(uuid="MIG-1", profile="1g.10gb+me", gi=7, ci=0, memory_mib=9856)
CARD = CardState(
    index=0,
    uuid="GPU-1",
    name="NVIDIA A100-SXM4-40GB",
    pci="0000:3b:00.0",
    minor=0,
    memory_mib=40960,
    mig_mode=1,
    links=(("GPU-2", 12),),
    recovery_action=0,
    numa_node=1,
    instances=(INSTANCE,),
    pci_id="0x20b010de",
    mig_pending=1,
    gpu_instances=(GpuInstanceState(7, "1g.10gb+me", 4, 2, (1,)), GpuInstanceState(2, "3g.20gb", 0, 4, (2, 1))),
    mig_profiles=(MigProfileState("3g.20gb", (0, 4), 4, 2),),
)
LOST = CardState(index=1, uuid="GPU-2", pci="0000:4b:00.0", minor=1, why="GPU 1 cannot be read: lost", error=15)
STATE = State(
    session="a1b2",
    boot="3f1c2a4e-0b1d-4c6e-9a44-1f2e3d4c5b6a",
    load="12345",
    status=OK,
    driver="550.54.15",
    cards=(CARD, LOST),
    xids=(XidEvent(1, 12.5, "GPU-1", 79), XidEvent(2, 13.0, "GPU-1", 31, 7, 0)),
    nodes=(NodeState("/dev/nvidia0", 195, 0), NodeState("/dev/nvidia1", 195, 1, "there is none")),
    mig_changes=(MigChanged(7, "GPU-1", DONE, "", 11.5),),
)

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,127}", fullmatch=True)
_maybe_words = st.just("") | words
_texts = st.text(max_size=500).map(printable)
_numbers = st.integers(min_value=0, max_value=2**53)
_u32 = st.integers(min_value=0, max_value=2**32 - 1)
_minors = st.integers(min_value=0, max_value=2**20 - 1)
_starts, _sizes = st.integers(min_value=0, max_value=7), st.integers(min_value=1, max_value=8)
_several_sizes = st.lists(_sizes, max_size=8).map(tuple)
_gpu_instances = st.builds(GpuInstanceState, _numbers, words, _starts, _sizes, _several_sizes)
_profiles = st.builds(MigProfileState, words, st.lists(_starts, max_size=8).map(tuple), _sizes, _sizes)
_instances = st.builds(InstanceState, _maybe_words, _maybe_words, _numbers, _numbers, _numbers)
_cards = st.builds(
    CardState,
    index=st.integers(min_value=0, max_value=63),
    uuid=_maybe_words,
    name=_texts,
    pci=_maybe_words,
    minor=st.none() | _minors,
    memory_mib=st.none() | _numbers,
    mig_mode=st.none() | st.integers(min_value=0, max_value=1),
    links=st.lists(st.tuples(_maybe_words, _numbers), max_size=3).map(tuple),
    why=_texts,
    error=_u32,
    recovery_action=st.none() | _u32,
    row_remap_failed=st.booleans(),
    fabric=_texts,
    numa_node=st.none() | _numbers,
    instances=st.lists(_instances, max_size=2).map(tuple),
    pci_id=st.just("") | st.from_regex(r"0x[0-9a-f]{8}", fullmatch=True),
    mig_pending=st.none() | st.integers(min_value=0, max_value=1),
    gpu_instances=st.lists(_gpu_instances, max_size=3).map(tuple),
    mig_profiles=st.lists(_profiles, max_size=3).map(tuple),
)
_xids = st.builds(
    XidEvent,
    number=st.integers(min_value=1, max_value=2**53),
    at=st.floats(min_value=0, max_value=2**53),
    uuid=_maybe_words,
    xid=_u32,
    gi=st.none() | _numbers,
    ci=st.none() | _numbers,
)
_nodes = st.builds(
    NodeState,
    path=st.from_regex(r"/dev/[A-Za-z0-9/_:-]{1,40}", fullmatch=True),
    major=st.integers(min_value=0, max_value=4095),
    minor=_minors,
    why=_texts,
    capability=_maybe_words,
)
_mig_changes = st.builds(
    MigChanged,
    id=st.integers(min_value=1, max_value=2**53),
    card=words,
    outcome=st.sampled_from(OUTCOMES),
    why=_texts,
    at=st.floats(min_value=0, max_value=2**53),
)
states = st.builds(
    State,
    session=_maybe_words,
    boot=_maybe_words,
    load=_maybe_words,
    status=st.sampled_from([OK, ABSENT, FAILED]),
    reason=_texts,
    driver=_maybe_words,
    cards=st.lists(_cards, max_size=3, unique_by=lambda card: card.index).map(tuple),
    xids=st.lists(_xids, max_size=3).map(tuple),
    nodes=st.lists(_nodes, max_size=3).map(tuple),
    read_at=st.floats(min_value=0, max_value=2**53),
    mig_changes=st.lists(_mig_changes, max_size=3).map(tuple),
)


def assert_refused(parse: Callable[[bytes], object], line: bytes, message: str) -> None:
    """Have a line refused, with these words in a message that is printable and short."""
    with pytest.raises(StateInvalid) as refused:
        parse(line)
    assert message in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500
