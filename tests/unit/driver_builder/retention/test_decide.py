"""Which images may be removed, as tables."""

from dataclasses import replace
from datetime import date

import pytest

from driver_builder.model.images import ImageRef
from driver_builder.retention.decide import (
    Fate,
    GcResult,
    Holdings,
    Rules,
    blindness,
    by_need,
    by_tags,
    still_condemned,
)
from driver_builder.retention.needed import Needed
from driver_builder.retention.record import Record
from tests.unit.driver_builder.retention.test_record import DIGEST, IMAGE, LONG_AGO, TODAY, pushed

NOTHING = Needed(tags=frozenset(), digests=frozenset(), unreadable=frozenset())
RULES = Rules(repositories=("registry.example.com/drivers/*",), keep_days=90, today=TODAY)
PLACE = (IMAGE.host, IMAGE.repository)
CONDEMNED = GcResult(image=pushed(), fate=Fate.DELETE, why="not needed since 2026-07-01")


@pytest.mark.parametrize(
    ("rules", "needed", "last_needed", "why"),
    [
        pytest.param(RULES, NOTHING, LONG_AGO, "", id="not needed for long"),
        pytest.param(RULES, NOTHING, date(2026, 8, 26), "", id="not needed for 90 days"),
        pytest.param(RULES, NOTHING, date(2026, 8, 27), "needed in the last 90 days", id="for 89"),
        pytest.param(RULES, NOTHING, date(2027, 8, 27), "needed in the last 90 days", id="needed in the future"),
        pytest.param(RULES, replace(NOTHING, tags=frozenset({IMAGE})), LONG_AGO, "a driver wants it", id="wanted"),
        pytest.param(
            RULES,
            replace(NOTHING, digests=frozenset({DIGEST})),
            LONG_AGO,
            "a DriverContainer, a DaemonSet or a pod names it",
            id="rolled out",
        ),
        pytest.param(
            RULES,
            replace(NOTHING, unreadable=frozenset({"driverwright/edu"})),
            LONG_AGO,
            "what driverwright/edu wants cannot be read",
            id="unreadable driver",
        ),
        pytest.param(replace(RULES, repositories=()), NOTHING, LONG_AGO, "not in --gc-repositories", id="no setting"),
        pytest.param(
            replace(RULES, repositories=("registry.example.com/drivers/ed",)),
            NOTHING,
            LONG_AGO,
            "not in --gc-repositories",
            id="another repository",
        ),
        pytest.param(
            replace(RULES, repositories=("registry.example.com:5000/drivers/*",)),
            NOTHING,
            LONG_AGO,
            "not in --gc-repositories",
            id="another port",
        ),
        pytest.param(replace(RULES, blind="no view"), NOTHING, LONG_AGO, "no view", id="part of the cluster unread"),
    ],
)
def test_an_image_stays_unless_everything_says_that_it_may_go(
    rules: Rules, needed: Needed, last_needed: date, why: str
) -> None:
    """One reason to keep it is enough."""
    (verdict,) = by_need(Record(images=(pushed(last_needed=last_needed),)), needed, rules)
    assert verdict.is_condemned == (why == "")
    assert verdict.why == (why or f"not needed since {last_needed}")
    assert verdict.unseen == bool(rules.blind)


@pytest.mark.parametrize(
    ("observed", "forbidden", "words"),
    [
        pytest.param(TODAY, [], "", id="today"),
        pytest.param(date(2026, 11, 17), [], "", id="a week ago"),
        pytest.param(date(2026, 11, 16), [], "the controller recorded last on 2026-11-16", id="longer ago"),
        pytest.param(date(2027, 1, 1), [], "the controller recorded last on 2027-01-01", id="in the future"),
        pytest.param(None, [], "the controller has not recorded yet", id="never"),
        pytest.param(TODAY, ["namespace a may not be read", "b"], "namespace a may not be read", id="forbidden"),
    ],
)
def test_what_is_needed_is_known_only_from_a_current_record_and_a_whole_view(
    observed: date | None, forbidden: list[str], words: str
) -> None:
    """Otherwise nothing is removed."""
    found = blindness(Record(observed=observed), forbidden, TODAY)
    assert found.startswith(words)
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        pytest.param({DIGEST: frozenset({"1-k"})}, "", id="its own tag"),
        pytest.param({}, "", id="no tag"),
        pytest.param({DIGEST: frozenset({"1-k", "stable"})}, "also named by stable", id="another tag"),
        pytest.param({DIGEST: frozenset({"index"})}, "also named by index", id="an index"),
        pytest.param({f"sha256:{'b' * 64}": frozenset({"x"})}, "", id="another digest"),
    ],
)
def test_a_digest_that_has_another_name_stays(names: dict[str, frozenset[str]], why: str) -> None:
    """Somebody gave it that name."""
    held = Holdings(sizes={DIGEST: 7}, names=names)
    (verdict,) = by_tags([CONDEMNED], {PLACE: held})
    assert (verdict.is_condemned, verdict.unseen) == (why == "", False)
    assert verdict.why == (why or CONDEMNED.why)
    assert verdict.size == (None if why else 7)


def test_an_image_stays_whose_repository_could_not_be_read() -> None:
    """A tag may be there that was not seen."""
    (verdict,) = by_tags([CONDEMNED], {PLACE: "no answer"})
    assert verdict == replace(CONDEMNED, fate=Fate.KEEP, why="no answer", unseen=True)


def test_what_became_needed_meanwhile_stays() -> None:
    """Of two condemned images one is wanted again."""
    other = replace(CONDEMNED, image=pushed("2-k", "b"))
    needed = replace(NOTHING, tags=frozenset({ImageRef(*PLACE, "2-k")}))
    record = Record(images=(CONDEMNED.image, other.image))
    later = by_need(record, needed, RULES)
    assert [item.is_condemned for item in still_condemned([CONDEMNED, other], later)] == [True, False]
