"""How fast working drivers are replaced: ``spec.rollout``. Pure."""

from driver_builder.api.rollout_settings import DrainSettings, Order, RolloutSettings, Share, Strategy, Window
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import (
    CRON,
    DRA_DRIVER,
    LABEL_KEY,
    LABEL_VALUE,
    PAUSED_LABEL,
    PERCENTAGE,
    RESOURCE_PATTERN,
    TIME_ZONE,
)

MAX_NODES = 10000
"""Nodes that a field may name at most."""
MAX_WINDOWS = 16


def read_rollout(rollout: Reader) -> RolloutSettings:
    """Read ``spec.rollout``, with defaults for what is not given."""
    _check_canary(rollout)
    default = RolloutSettings()
    return RolloutSettings(
        strategy=rollout.choice("strategy", Strategy) or default.strategy,
        order=rollout.choice("order", Order) or default.order,
        canary=_share(rollout, "canary", low=0),
        canary_node_selector=rollout.pairs("canaryNodeSelector", LABEL_KEY, LABEL_VALUE),
        soak_seconds=rollout.duration("soak", "10s", "168h") or default.soak_seconds,
        max_unavailable=_share(rollout, "maxUnavailable", low=1) or default.max_unavailable,
        max_failed=_share(rollout, "maxFailed", low=0) or default.max_failed,
        windows=tuple(_window(item) for item in rollout.objects("windows", most=MAX_WINDOWS)),
        drain=_drain(rollout.object("drain")) if rollout.has("drain") else None,
    )


def _drain(drain: Reader) -> DrainSettings:
    if not any(drain.given.get(name) for name in ("resources", "draDrivers", "podSelector", "pauseLabels")):
        drain.wrong("it does not say what has to leave: write resources, draDrivers, podSelector or pauseLabels")
    return DrainSettings(
        resources=drain.words("resources", RESOURCE_PATTERN),
        dra_drivers=drain.words("draDrivers", DRA_DRIVER),
        pod_selector=drain.pairs("podSelector", LABEL_KEY, LABEL_VALUE),
        wait_for=drain.pairs("waitFor", LABEL_KEY, LABEL_VALUE),
        deadline_seconds=drain.duration("deadline", "10s", "24h") or DrainSettings().deadline_seconds,
        force=drain.flag("force"),
        delete_empty_dir_data=drain.flag("deleteEmptyDirData"),
        pause_labels=drain.words("pauseLabels", PAUSED_LABEL),
    )


def _check_canary(rollout: Reader) -> None:
    canary, selector = rollout.given.get("canary"), rollout.given.get("canaryNodeSelector")
    if canary is not None and selector is not None:
        rollout.wrong("canary and canaryNodeSelector exclude each other: write one of them")
    if rollout.has("soak") and canary in (None, 0) and not selector:
        rollout.wrong("there is nothing to soak without canary or canaryNodeSelector: write one of them", "soak")


def _share(rollout: Reader, name: str, *, low: int) -> Share | None:
    if isinstance(rollout.raw(name), str):
        text = rollout.text(name, PERCENTAGE)
        return Share(int(text.removesuffix("%")), is_percent=True) if text else None
    number = rollout.number(name, low=low, high=MAX_NODES)
    return None if number is None else Share(number)


def _window(window: Reader) -> Window:
    if not window.has("duration"):
        window.wrong("is missing: write how long the window is open, such as 4h", "duration")
    return Window(
        cron=window.needed("cron", CRON),
        duration_seconds=window.duration("duration", "1m", "168h") or 0.0,
        time_zone=window.text("timeZone", TIME_ZONE) or "UTC",
    )
