"""Which drivers are undecided together where an error keeps what they mean to each other from being known."""

from driver_builder.targets.shared_work import related
from tests.support.driver_builder.factories import driver, snapshot


def test_whoever_may_offer_one_of_nvidias_resources_is_related_to_the_others() -> None:
    """Which of them come with ``nvidia`` is not known; drivers of other resources are not related to each other."""
    plugins: dict[str, dict[str, object]] = {
        "cards": {"nvidia": {}},
        "vendor": {"image": "r.io/plugin:1", "resourceName": "nvidia.com/gpu"},
        "edu": {"image": "r.io/plugin:1", "resourceName": "example.com/edu"},
        "other": {"image": "r.io/plugin:1", "resourceName": "example.com/other"},
    }
    drivers = tuple(
        driver(name, spec_changes={"module": {"names": [name]}, "stages": {"devicePlugin": item}})
        for name, item in plugins.items()
    )
    groups = [{item.name for item in group} for group in related(snapshot(drivers=drivers))]
    assert sorted(groups, key=sorted) == [{"cards", "vendor"}, {"edu"}, {"other"}]
