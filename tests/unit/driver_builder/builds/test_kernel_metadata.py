"""What a stage leaves below /facts, as an engine gives it: a tar in chunks."""

import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds import kernel_metadata
from driver_builder.builds.kernel_metadata import LIMITS, fact, read_facts
from tests.support.driver_builder.image_tars import tar_of


def test_the_facts_that_are_known_are_read() -> None:
    """Wherever the chunks end; other files are not."""
    tar = tar_of({"facts/Module.symvers": b"0x1\ta\tvmlinux\n", "facts/compiler": b"gcc 12\nx", "facts/other": b"y"})
    chunks = (tar[start : start + 100] for start in range(0, len(tar), 100))
    assert read_facts(chunks) == {"Module.symvers": "0x1\ta\tvmlinux\n", "compiler": "gcc 12\nx"}


def test_a_fact_that_is_missing_is_the_templates_fault() -> None:
    """The message says where it must be."""
    with pytest.raises(BuildFailed, match=r"left no file /facts/compiler; copy it there") as caught:
        fact({}, "compiler")
    assert caught.value.reason is Reason.TEMPLATE_INVALID


def test_a_fact_has_a_limit() -> None:
    """A compiler's version is one line, and not a megabyte."""
    with pytest.raises(BuildFailed, match=r"left more than 4096 bytes in /facts/compiler") as caught:
        read_facts([tar_of({"facts/compiler": b"x" * (LIMITS["compiler"] + 1)})])
    assert caught.value.reason is Reason.TEMPLATE_INVALID


def test_all_of_them_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in no fact is not read to its end either."""
    monkeypatch.setattr(kernel_metadata, "MAX_TAR", 20_000)
    endless = (bytes(1000) if number else tar_of({"facts/a": b"x" * 19_000}) for number in range(10**9))
    with pytest.raises(BuildFailed, match="left more than 20000 bytes below /facts"):
        read_facts(chunk for chunk in endless)
