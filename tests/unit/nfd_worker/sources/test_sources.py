"""The table of sources: their order, and whose a label is."""

from pathlib import Path

import pytest

from feature_rules.features import Failed, Features
from nfd_worker.errors import HostReadError
from nfd_worker.labels.labels import label_key
from nfd_worker.sources import SOURCES, discover
from nfd_worker.sources.settings import SourceSettings
from tests.support.nfd_worker.trees import RECORDED, host, recorded


def test_feature_files_come_last() -> None:
    """Labels of a later source overwrite those of an earlier one."""
    assert list(SOURCES) == [*sorted(set(SOURCES) - {"local"}), "local"]


def test_all_sources_of_upstream_are_here() -> None:
    """``custom`` is rules and not a source; others are ours."""
    upstream = {"cpu", "kernel", "local", "memory", "network", "pci", "storage", "system", "usb", "fake"}
    assert set(SOURCES) >= upstream


@pytest.mark.parametrize("name", RECORDED)
def test_every_label_begins_as_its_source_says(name: str) -> None:
    """So that labels of a source that was never read can be told from others on the Node."""
    for name_of_source, source in SOURCES.items():
        found = discover(name_of_source, recorded(name), SourceSettings())
        assert isinstance(found, Features)
        for label in source.labels(found, SourceSettings()) if source.prefixes else ():
            assert label_key(name_of_source, label).startswith(source.prefixes)


def test_a_failed_read_is_a_value(tmp_path: Path) -> None:
    """A source that cannot read raises an error, which discover() turns into Failed."""
    it = host(tmp_path, {})
    failed = [name for name in SOURCES if isinstance(discover(name, it, SourceSettings()), Failed)]
    assert failed == ["kernel", "memory", "network", "pci", "storage", "system", "usb"]
    with pytest.raises(HostReadError):
        SOURCES["kernel"].discover(it, SourceSettings())
