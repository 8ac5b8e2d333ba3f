"""Source fake: what the settings say."""

from pathlib import Path

from feature_rules.features import Features
from nfd_worker.sources import SOURCES, discover
from nfd_worker.sources.fake import labels
from nfd_worker.sources.settings import FakeSettings, SourceSettings
from tests.support.nfd_worker.trees import host


def test_features_and_labels_are_those_of_the_settings(tmp_path: Path) -> None:
    """The fake source returns the features and labels of its settings."""
    fake = FakeSettings({"a": "1"}, ("f",), {"k": "v"}, ({"name": "i"},))
    settings = SourceSettings(fake=fake)
    found = discover("fake", host(tmp_path, {}), settings)
    assert found == Features(
        {"fake.flag": frozenset("f")}, {"fake.attribute": {"k": "v"}}, {"fake.instance": ({"name": "i"},)}
    )
    assert isinstance(found, Features)
    assert labels(found, settings) == {"a": "1"}


def test_nobody_gets_it_without_asking() -> None:
    """The fake source is not part of ``all``."""
    assert not SOURCES["fake"].is_default
