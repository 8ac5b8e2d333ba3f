"""The record of pushed images: what is read from it, and what a day changes in it."""

import json
from dataclasses import replace
from datetime import date

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.retention import record
from driver_builder.retention.record import MAX_BYTES, PushedImage, Record

TODAY, LONG_AGO = date(2026, 11, 24), date(2026, 7, 1)
IMAGE = ImageRef("registry.example.com", "drivers/edu", "1-k")
DIGEST = f"sha256:{'a' * 64}"


def pushed(
    tag: str = "1-k", digit: str = "a", *, last_needed: date = LONG_AGO, registry: RegistrySettings | None = None
) -> PushedImage:
    """An image that was pushed."""
    return PushedImage(
        image=replace(IMAGE, reference=tag),
        digest=f"sha256:{digit * 64}",
        driver=DriverKey("driverwright/edu"),
        registry=registry or RegistrySettings(),
        last_needed=last_needed,
    )


@pytest.mark.parametrize(
    "registry",
    [
        pytest.param(RegistrySettings(), id="plain"),
        pytest.param(
            RegistrySettings(secret="push", plain_http=True, ca_config_map=ConfigMapKey(name="ca", key="ca.crt")),
            id="with all settings",
        ),
    ],
)
def test_a_record_is_read_as_it_was_written(registry: RegistrySettings) -> None:
    """All of it."""
    images = (pushed("1-a", "a", registry=registry), pushed("1-b", "b"))
    written = Record(observed=TODAY, namespaces=("a", "b"), images=images)
    assert record.parse(record.render(written)) == written


def test_the_same_digest_in_two_repositories_is_two_images() -> None:
    """One may be needed and the other not."""
    other = replace(pushed(), image=replace(IMAGE, repository="drivers/other"))
    assert len(record.render(Record(images=(pushed(), other)))) == 3


GOOD = json.loads(record.render_image(pushed()))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="a list"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(json.dumps({**GOOD, "image": "edu"}), id="no image"),
        pytest.param(json.dumps({**GOOD, "image": "registry.example.com/drivers/other:1-k"}), id="another repository"),
        pytest.param(json.dumps({**GOOD, "driver": "edu"}), id="no namespace"),
        pytest.param(json.dumps({**GOOD, "driver": 1}), id="no driver"),
        pytest.param(json.dumps({**GOOD, "lastNeeded": "soon"}), id="no day"),
        pytest.param(json.dumps({**GOOD, "registry": {"caConfigMap": {"name": "ca"}}}), id="half a CA"),
        pytest.param(json.dumps({**GOOD, "registry": 1}), id="no settings"),
    ],
)
def test_an_entry_of_another_shape_is_left_out(text: str) -> None:
    """What is not known to be pushed by this cluster is never removed."""
    assert record.parse({pushed().key: text, "x": "y", "observed": "x"}) == Record()


@pytest.mark.parametrize(
    ("last_needed", "is_needed", "observed", "after"),
    [
        pytest.param(LONG_AGO, True, date(2026, 11, 23), TODAY, id="needed"),
        pytest.param(LONG_AGO, False, date(2026, 11, 23), LONG_AGO, id="not needed"),
        pytest.param(LONG_AGO, False, date(2026, 11, 17), LONG_AGO, id="seen a week ago"),
        pytest.param(LONG_AGO, False, date(2026, 11, 16), TODAY, id="not seen for longer"),
        pytest.param(LONG_AGO, False, None, TODAY, id="never seen"),
        pytest.param(LONG_AGO, False, date(2027, 11, 16), TODAY, id="seen by a wrong clock"),
        pytest.param(date(2027, 1, 1), False, date(2026, 11, 23), TODAY, id="needed in the future"),
    ],
)
def test_what_a_day_changes(last_needed: date, is_needed: bool, observed: date | None, after: date) -> None:
    """Without a record of the days between, an image counts as needed."""
    before = Record(observed=observed, images=(pushed(last_needed=last_needed),))
    made = record.refreshed(before, lambda _image: is_needed, today=TODAY, namespaces=["a", "b"])
    assert made == Record(observed=TODAY, namespaces=("a", "b"), images=(pushed(last_needed=after),))


def test_a_record_has_a_limit() -> None:
    """Images that were needed last stay in it: a ConfigMap has at most 1 MiB."""
    many = [replace(pushed(), digest=f"sha256:{number:064x}") for number in range(4000)]
    before = Record(observed=TODAY, images=tuple(many))
    made = record.refreshed(before, lambda image: image in many[:3], today=TODAY, namespaces=["a"])
    size = sum(len(key) + len(text) for key, text in record.render(made).items())
    assert MAX_BYTES * 0.99 < size <= MAX_BYTES + 100
    assert {image.digest for image in many[:3]} <= {image.digest for image in made.images}
