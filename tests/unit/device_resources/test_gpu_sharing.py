"""The file by which device-agent reports how GPUs are shared: what is written is read, and nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_resources.gpu_sharing import (
    FILE,
    LONGEST,
    MIG_STRATEGIES,
    MOST_REPLICAS,
    MOST_RESOURCES,
    STRATEGIES,
    GpuSharing,
    InvalidSharing,
    SharedResource,
    format_sharing,
    parse_sharing,
)
from kube_api.names import is_qualified_name
from nfd_worker.sources.gpu import SHARING_FILE
from nfd_worker.sources.settings import MIG_STRATEGIES as OF_THE_WORKER

names = st.from_regex(r"nvidia\.com/[A-Za-z0-9]([A-Za-z0-9._-]{0,44}[A-Za-z0-9])?", fullmatch=True)
resources = st.builds(
    SharedResource,
    replicas=st.integers(1, MOST_REPLICAS),
    strategy=st.sampled_from(STRATEGIES),
    is_renamed=st.booleans(),
)
reports = st.builds(
    GpuSharing,
    mig_strategy=st.sampled_from(MIG_STRATEGIES),
    resources=st.dictionaries(names, resources, max_size=MOST_RESOURCES),
)
LONGEST_REPORT = GpuSharing(
    "single",
    {f"nvidia.com/{'x' * 44}{number:02}": SharedResource(1000, "time-slicing") for number in range(MOST_RESOURCES)},
)
VALID: dict[str, Any] = {
    "version": 1,
    "migStrategy": "none",
    "resources": {"nvidia.com/gpu": {"replicas": 4, "strategy": "time-slicing", "renamed": False}},
}


def with_gpu(**changes: object) -> dict[str, Any]:
    """Change fields of the one resource of a good report."""
    return {**VALID, "resources": {"nvidia.com/gpu": {**VALID["resources"]["nvidia.com/gpu"], **changes}}}


@given(reports)
@example(LONGEST_REPORT)
def test_what_is_written_is_read(report: GpuSharing) -> None:
    """Within the length that a reader takes, and with names that fit into the keys of labels."""
    text = format_sharing(report).encode()
    assert len(text) <= LONGEST
    assert parse_sharing(text) == report
    assert all(is_qualified_name(f"{name}.sharing-strategy") for name in report.resources)


def test_the_file_is_as_agreed() -> None:
    """Other programs read it: the words and their order stay."""
    report = GpuSharing("none", {"nvidia.com/gpu": SharedResource(4, "time-slicing")})
    assert format_sharing(report) == json.dumps(VALID) + "\n"
    assert (f"/{SHARING_FILE}", OF_THE_WORKER) == (FILE, MIG_STRATEGIES)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from([*VALID, "nvidia.com/gpu", "replicas"]), inner, max_size=4)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
@example(b"[" * LONGEST)
@example(b"1" * LONGEST)
@example(b'{"version": 1e400}')
def test_any_other_text_is_refused_by_a_bounded_printable_sentence(text: bytes) -> None:
    """A broken file is an answer, and never an exception of the parser's own."""
    with pytest.raises(InvalidSharing) as refused:
        parse_sharing(text)
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param([], "must be an object with version 1", id="a list"),
        pytest.param({**VALID, "version": 2}, "must be an object with version 1", id="a later version"),
        pytest.param({**VALID, "version": True}, "must be an object with version 1", id="true is not one"),
        pytest.param({**VALID, "migStrategy": "all"}, "migStrategy must be one of none, single, mixed", id="strategy"),
        pytest.param({**VALID, "migStrategy": []}, "migStrategy must be one of none", id="a strategy of no text"),
        pytest.param({**VALID, "resources": None}, "resources must be an object", id="no resources"),
        pytest.param(
            {**VALID, "resources": {f"nvidia.com/{n}": {} for n in range(65)}}, "at most 64 entries", id="too many"
        ),
        pytest.param({**VALID, "resources": {"a.com/gpu": {}}}, "a.com/gpu must be named nvidia.com/", id="a domain"),
        pytest.param({**VALID, "resources": {"nvidia.com/a\x1bb": {}}}, r"'nvidia.com/a\x1bb' must be", id="control"),
        pytest.param({**VALID, "resources": {f"nvidia.com/{'x' * 47}": {}}}, "at most 46", id="a long name"),
        pytest.param({**VALID, "resources": {"nvidia.com/gpu": 4}}, "nvidia.com/gpu must be an object", id="a number"),
        pytest.param(with_gpu(replicas=0), "gpu.replicas must be a whole number from 1 to 1000", id="no replicas"),
        pytest.param(with_gpu(replicas=1001), "gpu.replicas must be", id="too many replicas"),
        pytest.param(with_gpu(replicas=True), "gpu.replicas must be", id="true replicas"),
        pytest.param(with_gpu(replicas=2.0), "gpu.replicas must be", id="a float"),
        pytest.param(with_gpu(strategy="mps"), "gpu.strategy must be one of none, time-slicing", id="MPS"),
        pytest.param(with_gpu(renamed="false"), "gpu.renamed must be true or false", id="a text"),
    ],
)
def test_a_field_that_is_wrong_is_named(document: object, words: str) -> None:
    """With what should be there."""
    with pytest.raises(InvalidSharing) as refused:
        parse_sharing(json.dumps(document).encode())
    assert words in str(refused.value)


def test_a_field_that_is_not_known_is_ignored() -> None:
    """A newer agent may say more to an older worker."""
    assert parse_sharing(json.dumps(with_gpu(more=1) | {"also": []}).encode()) == parse_sharing(
        json.dumps(VALID).encode()
    )
