"""The loader's verdict: read from any text, and doubted wherever it does not prove what it should."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.objects.load_report import LiveModule, LoadReport, doubt, parse
from tests.support.driver_builder.factories import BOOT_ID, IDENTITY, KERNEL, LOADED, OTHER_KERNEL, loaded

VERDICT = {
    "result": "Loaded",
    "kernel": KERNEL,
    "bootID": BOOT_ID,
    "modules": [{"name": "edudrv", "srcversion": IDENTITY, "devices": ["0000:00:04.0"]}],
}


def test_the_loaders_verdict_is_read() -> None:
    """The one JSON line of ``loader.sh`` becomes a proof."""
    assert parse(json.dumps(VERDICT) + "\n") == LOADED


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        pytest.param(
            {"result": "WrongKernel"}, LoadReport(result="WrongKernel", kernel="", boot_id=""), id="bare result"
        ),
        pytest.param(
            {"result": "LoadFailed", "kernel": "k", "bootID": "b", "message": "Exec format error", "module": "edudrv"},
            LoadReport(result="LoadFailed", kernel="k", boot_id="b", message="Exec format error"),
            id="failure with its message",
        ),
        pytest.param(
            {"result": "Loaded", "modules": [{"name": "edudrv", "buildID": "ab12"}]},
            LoadReport(
                result="Loaded",
                kernel="",
                boot_id="",
                modules=(LiveModule(name="edudrv", identity="ab12", devices=()),),
            ),
            id="build id instead of srcversion",
        ),
        pytest.param(
            {"result": "Loaded", "modules": [{"name": "edudrv"}]},
            LoadReport(
                result="Loaded", kernel="", boot_id="", modules=(LiveModule(name="edudrv", identity="", devices=()),)
            ),
            id="no identity",
        ),
    ],
)
def test_every_kind_of_verdict_is_read(verdict: dict[str, object], expected: LoadReport) -> None:
    """What a verdict leaves out is empty, not wrong."""
    assert parse(json.dumps(verdict)) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("insmod: can't insert", id="log lines instead"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a list"),
        pytest.param('"Loaded"', id="a word"),
        pytest.param("{}", id="no result"),
        pytest.param('{"result": "Loaded", "modules": 3}', id="modules are a number"),
        pytest.param('{"result": "Loaded", "modules": ["edudrv"]}', id="modules are words"),
        pytest.param('{"result": "Loaded", "modules": [{"srcversion": "A"}]}', id="module without name"),
        pytest.param('{"result": "Loaded", "modules": [{"name": "a", "devices": 4}]}', id="devices are a number"),
        pytest.param("[" * 4096, id="deeper than any parser goes"),
    ],
)
def test_anything_else_is_no_verdict(text: str) -> None:
    """What a pod says about itself can be anything at all; it is a verdict or it is nothing."""
    assert parse(text) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*VERDICT, "name", "devices", "message"]), inner),
)


@given(json_values.map(json.dumps) | st.text())
def test_no_text_makes_parsing_fail(text: str) -> None:
    """Reading a verdict gives one or None, and doubting it gives a sentence or None."""
    proof = parse(text)
    why = doubt(proof, kernel=KERNEL, boot_id=None, expected={"edudrv": IDENTITY})
    assert why is None or why


@pytest.mark.parametrize(
    ("proof", "boot_id", "expected", "why"),
    [
        pytest.param(LOADED, BOOT_ID, {"edudrv": IDENTITY}, None, id="proven"),
        pytest.param(LOADED, None, {"edudrv": IDENTITY}, None, id="proven, boot unknown"),
        pytest.param(LOADED, BOOT_ID, {}, None, id="proven, prebuilt image without identities"),
        pytest.param(None, BOOT_ID, {}, "the driver pod has not reported yet", id="no report"),
        pytest.param(
            LoadReport(result="NoDevice", kernel=KERNEL, boot_id=BOOT_ID),
            BOOT_ID,
            {},
            "NoDevice",
            id="failure, no words",
        ),
        pytest.param(
            LoadReport(result="LoadFailed", kernel=KERNEL, boot_id=BOOT_ID, message="Exec format error"),
            BOOT_ID,
            {},
            "LoadFailed: Exec format error",
            id="failure with words",
        ),
        pytest.param(
            loaded(OTHER_KERNEL),
            BOOT_ID,
            {},
            f"loaded on kernel {OTHER_KERNEL}, the node's labels say {KERNEL}",
            id="another kernel",
        ),
        pytest.param(LOADED, "a newer boot", {}, "loaded before the node's last boot", id="an older boot"),
        pytest.param(
            LOADED, BOOT_ID, {"edudrv": "FF"}, f"module edudrv is {IDENTITY}, the image has FF", id="another module"
        ),
        pytest.param(
            LOADED, BOOT_ID, {"helper": "FF"}, "module helper is not loaded, the image has FF", id="missing module"
        ),
    ],
)
def test_a_proof_is_doubted_for_a_reason(
    proof: LoadReport | None, boot_id: str | None, expected: dict[str, str], why: str | None
) -> None:
    """Only a load of these very modules on this boot of this kernel leaves no doubt."""
    assert doubt(proof, kernel=KERNEL, boot_id=boot_id, expected=expected) == why
