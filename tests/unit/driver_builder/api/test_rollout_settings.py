"""How fast working drivers are replaced, as an admin writes it."""

from typing import Any

import pytest

from driver_builder.api.rollout_settings import Order, RolloutSettings, Share, Strategy, Window
from driver_builder.api.spec_parser import parse_spec, read_spec
from tests.support.driver_builder.factories import spec


def rollout(**fields: Any) -> RolloutSettings:
    """Read these fields of ``spec.rollout``."""
    return parse_spec(spec(rollout=fields)).rollout


def problems(**fields: Any) -> list[str]:
    """Read these fields of ``spec.rollout`` and return what is wrong."""
    return [str(problem) for problem in read_spec(spec(rollout=fields)).problems]


def window(**fields: Any) -> dict[str, Any]:
    """Make the fields of a rollout with one window, which is good but for these."""
    return {"windows": [{"cron": "0 22 * * 6", "duration": "4h", **fields}]}


def test_every_field_becomes_a_value() -> None:
    """Durations in seconds, numbers of nodes with what they are counted in."""
    settings = rollout(
        strategy="immediate",
        order="nodeLabel",
        canary="10%",
        soak="1h30m",
        maxUnavailable="25%",
        maxFailed=3,
        windows=[
            {"cron": "0 22 * * 6", "duration": "4h"},
            {"cron": "30 1-3 * JAN sun", "duration": "1m", "timeZone": "Europe/Berlin"},
        ],
    )
    assert settings == RolloutSettings(
        strategy=Strategy.IMMEDIATE,
        order=Order.NODE_LABEL,
        canary=Share(10, is_percent=True),
        soak_seconds=5400.0,
        max_unavailable=Share(25, is_percent=True),
        max_failed=Share(3),
        windows=(
            Window(cron="0 22 * * 6", duration_seconds=14400.0),
            Window(cron="30 1-3 * JAN sun", duration_seconds=60.0, time_zone="Europe/Berlin"),
        ),
    )


def test_a_canary_may_be_chosen_by_labels() -> None:
    """As a driver's nodes are, and it may be soaked as well."""
    settings = rollout(canaryNodeSelector={"example.com/tier": "test"}, soak="168h")
    assert (settings.canary, settings.canary_node_selector) == (None, {"example.com/tier": "test"})
    assert (settings.has_canary, settings.soak_seconds) == (True, 7 * 86400.0)


@pytest.mark.parametrize("written", [None, {}, {"windows": [], "canaryNodeSelector": {}}, {"canary": None}])
def test_without_a_word_it_is_one_node_at_a_time(written: Any) -> None:
    """In waves, by name, at any time, and no more once one has failed."""
    assert parse_spec(spec(rollout=written)).rollout == RolloutSettings()


@pytest.mark.parametrize(
    ("written", "settings"),
    [
        ({"maxUnavailable": 2, "canary": 0}, RolloutSettings(max_unavailable=Share(2), canary=Share(0))),
        ({"maxUnavailable": "100%", "canary": 10000},
         RolloutSettings(max_unavailable=Share(100, is_percent=True), canary=Share(10000))),
        ({"canary": 1}, RolloutSettings(canary=Share(1))),
    ],
)  # fmt: skip
def test_what_was_stored_while_it_was_reserved_stays_good(written: dict[str, Any], settings: RolloutSettings) -> None:
    """A cluster's DriverContainers do not become invalid when driver-builder is updated."""
    reading = read_spec(spec(rollout=written))
    assert reading.spec is not None
    assert (reading.spec.rollout, reading.spec.unused, reading.unknown) == (settings, (), ())


def test_a_canary_of_no_node_is_none() -> None:
    """It was the way to write that there is no canary."""
    assert not rollout(canary=0).has_canary


@pytest.mark.parametrize(
    ("written", "field", "words"),
    [
        pytest.param({"maxUnavailable": "101%"}, "maxUnavailable", "'101%' is neither", id="more than all"),
        pytest.param({"maxUnavailable": 0}, "maxUnavailable", "0 is not a whole number from 1 to", id="none at all"),
        pytest.param({"canary": "1"}, "canary", "write 1, without quotes, or 10%", id="canary in quotes"),
        pytest.param({"canary": "0%"}, "canary", "'0%' is neither", id="canary of nothing"),
        pytest.param({"canary": True}, "canary", "True is not a whole number", id="canary is a flag"),
        pytest.param({"maxFailed": -1}, "maxFailed", "-1 is not a whole number from 0 to 10000", id="less than none"),
        pytest.param({"maxFailed": 1.5}, "maxFailed", "1.5 is not a whole number", id="one and a half"),
        pytest.param({"strategy": "fast"}, "strategy", "'fast' is unknown: use one of waves, immediate", id="strategy"),
        pytest.param({"strategy": ["waves"]}, "strategy", "['waves'] is unknown", id="strategies"),
        pytest.param({"order": "zone"}, "order", "'zone' is unknown: use one of nodeName, nodeLabel", id="order"),
        pytest.param({"canaryNodeSelector": {"a b": ""}}, "canaryNodeSelector['a b']", "write [prefix/]name", id="key"),
        pytest.param({"soak": "1h"}, "soak", "there is nothing to soak without canary or canaryNod", id="no canary"),
        pytest.param({"soak": "1h", "canary": 0}, "soak", "there is nothing to soak", id="canary of no node"),
        pytest.param({"soak": "1h", "canaryNodeSelector": {}}, "soak", "there is nothing to soak", id="no labels"),
        pytest.param({"soak": "9s", "canary": 1}, "soak", "write a duration from 10s to 168h", id="soak too short"),
        pytest.param({"soak": "7d", "canary": 1}, "soak", "such as 1h, 30m", id="soak in days"),
        pytest.param({"soak": "168h1s", "canary": 1}, "soak", "from 10s to 168h", id="soak too long"),
        pytest.param({"windows": {}}, "windows", "{} is not a list", id="one window"),
        pytest.param({"windows": [*window()["windows"]] * 17}, "windows", "17 entries: write at most 16", id="windows"),
        pytest.param({"windows": [{"duration": "1h"}]}, "windows[0].cron", "must be a cron expression", id="no cron"),
        pytest.param({"windows": [{"cron": "0 22 * * 6"}]}, "windows[0].duration", "such as 4h", id="no duration"),
        pytest.param(window(duration="59s"), "windows[0].duration", "from 1m to 168h", id="window too short"),
        pytest.param(window(duration="169h"), "windows[0].duration", "from 1m to 168h", id="window too long"),
    ],
)
def test_a_wrong_field_is_named_with_value_and_remedy(written: dict[str, Any], field: str, words: str) -> None:
    """One problem for one fault."""
    (problem,) = problems(**written)
    assert problem.startswith(f"spec.rollout.{field}: ")
    assert words in problem


def test_two_ways_to_choose_a_canary_exclude_each_other() -> None:
    """The two may choose different nodes."""
    words = "canary and canaryNodeSelector exclude each other: write one of them"
    assert problems(canary=1, canaryNodeSelector={"a": "b"}) == [f"spec.rollout: {words}"]


@pytest.mark.parametrize(
    "cron",
    [
        "0 22 * * 6", "*/15 0-6,22,23 1-7 * 0", "0 22 * * 7", "0 22 * jan,DEC Mon-Fri", "0 0 29 2 *", "5/20 * * * *",
        "0 0 31 * *", "0  0  *  *  *", "0 0 30 2 1", "0 0 */2 * */2", ",".join(map(str, range(60))) + " * * * *",
    ],
)  # fmt: skip
def test_what_a_cronjob_takes_is_taken(cron: str) -> None:
    """Lists, ranges, steps and names; and a day of the week next to a day that no month has."""
    assert problems(**window(cron=cron)) == []


@pytest.mark.parametrize(
    "cron",
    [
        "", "* * * *", "* * * * * *", "@daily", "@every 1h", "TZ=UTC 0 0 * * *", "0 0 L * *", "0 0 LW * *",
        "0 0 * * 5L", "0 0 * * 1#2", "0 0 ? * 1", "H 0 * * *", "1-2-3 * * * *", "1/2/3 * * * *",
        "0 22 * * 6\n", "0 22 * * \uff16", "0 0 * * 4/2", "* " * 5000, ",".join(["1"] * 5000) + " * * * *",
    ],
)  # fmt: skip
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    """Also what cronsim or other programs take and CronJobs do not, whatever its length."""
    (problem,) = problems(**window(cron=cron))
    assert "must be a cron expression: write five fields" in problem
    assert len(problem) < 400


@pytest.mark.parametrize(
    "cron",
    [
        "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "5-3 * * * *", "*/0 * * * *",
        "0 0 * * FRI-MON", "0 0 * * JAN", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 */1",
    ],
)  # fmt: skip
def test_a_time_that_never_comes_is_refused(cron: str) -> None:
    """Its window would never open, and nothing would say so."""
    (problem,) = problems(**window(cron=cron))
    assert f"{cron!r} names no time that ever comes (Bad " in problem


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "US/Pacific"])
def test_a_zone_of_the_iana_is_taken(zone: str) -> None:
    """Also an older name: admins have them in their CronJobs."""
    assert rollout(**window(timeZone=zone)).windows[0].time_zone == zone


@pytest.mark.parametrize(
    "zone",
    [
        "", "../../etc/passwd", "/etc/localtime", "Europe/../../etc/passwd", "localtime", "posix/UTC", "right/UTC",
        "Local", "Europe", "Europe/Nowhere", "utc", "UTC\n", "UTC\x00", "Zürich", "A" * 10000, "E/" * 5000,
    ],
)  # fmt: skip
def test_another_zone_is_refused(zone: str) -> None:
    """Whatever lies beside the zones in the file system, and whatever its length."""
    (problem,) = problems(**window(timeZone=zone))
    assert "write a name of the IANA such as UTC or Europe/Berlin" in problem
    assert len(problem) < 400
