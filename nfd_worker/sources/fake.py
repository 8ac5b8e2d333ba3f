"""Source ``fake``: features and labels as the settings name them, to try out rules; runs only where it is asked for."""

from feature_rules.features import Features
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings


def discover(_host: Host, settings: SourceSettings) -> Features:
    """Give the features of the settings."""
    fake = settings.fake
    return Features(
        flags={"fake.flag": frozenset(fake.flag_features)},
        attributes={"fake.attribute": fake.attribute_features},
        instances={"fake.instance": fake.instance_features},
    )


def labels(_features: Features, settings: SourceSettings) -> dict[str, str]:
    """Give the labels of the settings."""
    return dict(settings.fake.labels)
