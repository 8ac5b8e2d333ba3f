"""The record of the images that this cluster pushed, and of the day each was last needed. Pure.

It is one ConfigMap in the first namespace of the controller, with a key for each digest of a repository. That an image
is in it is the proof that this cluster pushed it: a tag or a label could be another cluster's. ``recorder`` writes the
record, ``driver-builder gc`` reads it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import accumulate
from typing import Any

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.model.driver_key import DriverKey, parse_driver_key
from driver_builder.model.images import ImageRef, parse_reference

CONFIG_MAP = "driver-builder-images"
MAX_BYTES = 700_000
"""The images that were needed last stay in the record, some 2000: a ConfigMap has at most 1 MiB."""
MAX_GAP_DAYS = 7
"""Without a record of so many days nobody knows what was needed meanwhile."""

_OBSERVED, _NAMESPACES = "observed", "namespaces"
_KEY = re.compile(r"(?P<hex>[0-9a-f]{64})-[0-9a-f]{8}")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedImage:
    """An image that this cluster pushed under a tag of its own, for a ``driver`` (``namespace/name``).

    ``registry`` is how the driver's spec connected to it. ``last_needed`` is the last day that somebody needed it.
    """

    image: ImageRef
    digest: str
    driver: DriverKey
    registry: RegistrySettings
    last_needed: date

    @property
    def namespace(self) -> str:
        """The namespace of the driver, which has the Secret and the ConfigMap of ``registry``."""
        return self.driver.namespace

    @property
    def key(self) -> str:
        """The key in the ConfigMap: the same digest may be in several repositories."""
        place = hashlib.sha256(f"{self.image.host}/{self.image.repository}".encode()).hexdigest()[:8]
        return f"{self.digest.removeprefix('sha256:')}-{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The images that were pushed; what was needed in ``namespaces`` was last ``observed`` on that day."""

    observed: date | None = None
    namespaces: tuple[str, ...] = ()
    images: tuple[PushedImage, ...] = ()

    def is_current(self, today: date) -> bool:
        """Return whether it says what was needed lately."""
        return self.observed is not None and abs((today - self.observed).days) <= MAX_GAP_DAYS


def day_of(seconds: float) -> date:
    """Return the day of a time (seconds since the epoch), in UTC."""
    return datetime.fromtimestamp(seconds, UTC).date()


def parse(data: Mapping[str, str]) -> Record:
    """Read the ConfigMap; an entry of another shape is left out, and its image is never removed."""
    found = (_parse_image(key, text) for key, text in sorted(data.items()) if _KEY.fullmatch(key))
    return Record(
        observed=_parse_day(data.get(_OBSERVED)),
        namespaces=tuple(name for name in data.get(_NAMESPACES, "").split(",") if name),
        images=tuple(image for image in found if image is not None),
    )


def render(record: Record) -> dict[str, str]:
    """Write the data of the ConfigMap."""
    return {
        **({_OBSERVED: record.observed.isoformat()} if record.observed else {}),
        _NAMESPACES: ",".join(record.namespaces),
        **{image.key: render_image(image) for image in record.images},
    }


def render_image(image: PushedImage) -> str:
    """Write one entry."""
    registry: Json = {
        **({"secret": image.registry.secret} if image.registry.secret else {}),
        **({"plainHttp": True} if image.registry.plain_http else {}),
    }
    if image.registry.ca_config_map is not None:
        ca = image.registry.ca_config_map
        registry["caConfigMap"] = {"name": ca.name, "key": ca.key}
    entry = {"driver": image.driver, "image": str(image.image), "lastNeeded": image.last_needed.isoformat()}
    return json.dumps({**entry, **({"registry": registry} if registry else {})}, sort_keys=True)


def refreshed(
    record: Record, is_needed: Callable[[PushedImage], bool], *, today: date, namespaces: Iterable[str]
) -> Record:
    """Record what is needed today.

    After a gap, also one of a wrong clock, every image counts as needed until today: what was needed meanwhile is not
    known.
    """
    is_known = record.is_current(today)
    images = [
        replace(image, last_needed=today) if not is_known or image.last_needed > today or is_needed(image) else image
        for image in record.images
    ]
    latest = sorted(images, key=lambda image: (image.last_needed, image.key), reverse=True)
    ends = accumulate(len(image.key) + len(render_image(image)) for image in latest)
    kept = tuple(image for image, end in zip(latest, ends, strict=True) if end <= MAX_BYTES)
    return Record(observed=today, namespaces=tuple(namespaces), images=kept)


def _parse_image(key: str, text: str) -> PushedImage | None:
    try:
        entry = json.loads(text)
        last_needed, registry = _parse_day(entry["lastNeeded"]), entry.get("registry") or {}
        ca = registry.get("caConfigMap")
        image, driver = parse_reference(entry["image"]), parse_driver_key(entry["driver"])
        if last_needed is None or driver is None:
            return None
        found = PushedImage(
            image=image,
            digest=f"sha256:{key.partition('-')[0]}",
            driver=driver,
            registry=RegistrySettings(
                secret=registry.get("secret"),
                plain_http=registry.get("plainHttp") is True,
                ca_config_map=ConfigMapKey(name=ca["name"], key=ca["key"]) if ca else None,
            ),
            last_needed=last_needed,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    # The key of another repository: somebody changed the entry.
    return found if found.key == key else None


def _parse_day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None
