"""What keeps the objects of a driver's plugin from being made or changed: what is there stays as it is. Pure."""

from collections.abc import Callable, Iterable

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.stage_settings import DevicePluginSettings
from driver_builder.api.status import Trouble
from driver_builder.base.reasons import Reason
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import plugin
from driver_builder.plan.plugin_account import PluginAccount
from driver_builder.plan.stage_view import StageView
from driver_builder.targets import permissions


def blocked(
    stages: StageView, view: DriverView, spec: DriverSpec, settings: DevicePluginSettings, account: PluginAccount
) -> Trouble | None:
    """Return the first of what is in the way; None if nothing is."""
    checks: Iterable[Callable[[], Trouble | None]] = (
        lambda: _by_settings(view, spec, settings),
        lambda: _by_others(stages, view),
        lambda: _of_dra(view, account) if settings.dra is not None else None,
    )
    return next((found for check in checks if (found := check()) is not None), None)


def _by_settings(view: DriverView, spec: DriverSpec, settings: DevicePluginSettings) -> Trouble | None:
    if refused := permissions.of_stages(spec, view.settings.template_versions.permissions):
        return Trouble(reason=Reason.NOT_ALLOWED, message=permissions.words(refused))
    if settings.is_of_agent and not view.settings.device_agent_image:
        words = "driver-builder has no image of the device agent: --device-agent-image is not set"
        return Trouble(reason=Reason.NO_DEVICE_AGENT, message=words)
    return None


def _by_others(stages: StageView, view: DriverView) -> Trouble | None:
    """Somebody else may have objects with the names that are wanted."""
    name, config = plugin.name_of(view.driver), view.snapshot.plugin_configs.get(view.driver.key)
    stray = view.snapshot.plugin_strays.get(view.driver.key)
    kind = None
    if config is not None and not config.is_own:
        kind = "ConfigMap"
    elif stages.plugin_set is None and stray is not None and not stray.is_ours:
        kind = "DaemonSet"
    if kind is None:
        return None
    words = f"{kind} {view.driver.namespace}/{name} exists, and the driver does not control it"
    return Trouble(reason=Reason.STAGE_NAME_TAKEN, message=words)


def _of_dra(view: DriverView, account: PluginAccount) -> Trouble | None:
    """A DRA driver has nothing to do without its API, and cannot publish without its token."""
    unread = view.snapshot.slices_unread
    if unread is not None and unread.is_unserved:
        words = f"{unread.message}: the DRA driver is not started, or stays as it is"
        return Trouble(reason=Reason.DRA_NOT_SERVED, message=words)
    return None if account.has_token else account.trouble
