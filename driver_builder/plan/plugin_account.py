"""Whether the plugin of a driver gets the token of the service account that it is to have. Pure.

Whoever writes a DriverContainer could have a pod run with any account of its namespace: the controller names those that
may be, for our agent and for images of vendors apart. Without a token our agent offers devices all the same, by the
default profile and as MIG instances are, and a DRA driver offers none: it is not started. The status says why.
"""

from dataclasses import dataclass

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.status import Trouble
from driver_builder.base.reasons import Reason
from driver_builder.nodes.plan_view import DriverView
from driver_builder.objects import agent_token, plugin
from driver_builder.objects.plugin import PluginSet
from driver_builder.snapshot.snapshot import AccountMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginAccount:
    """Whether the plugin ``has_token``; ``trouble`` is what is wrong with its account."""

    has_token: bool = False
    trouble: Trouble | None = None


NO_ACCOUNT = PluginAccount()
"""Of a plugin that is to have none."""


def plugin_account(view: DriverView, known: PluginSet | None) -> PluginAccount:
    """Decide on the account that the driver's spec names, if it names one; ``known`` is the DaemonSet that is there.

    One that cannot be read is not gone: pods that have its token keep it, as without it nodes may get other devices.
    """
    account, is_dra = view.driver.plugin_account, bool(view.driver.dra_driver)
    if not account:
        return NO_ACCOUNT
    settings, flag = view.settings, "--dra-driver-accounts" if is_dra else "--device-agent-accounts"
    if account not in (settings.dra_driver_accounts if is_dra else settings.device_agent_accounts):
        words = f"{account} is not allowed by {flag} of driver-builder"
        return _without(view.driver, Reason.SERVICE_ACCOUNT_NOT_ALLOWED, words)
    unread = AccountMissing(message=f"ServiceAccount {account} was not read", is_unread=True)
    problem = view.snapshot.plugin_accounts.get(account, unread)
    if problem is None:
        return PluginAccount(has_token=True)
    if problem.is_unread and _has_token_of(known, account):
        words = f"{problem.message}: the pods keep its token"
        trouble = Trouble(reason=Reason.SERVICE_ACCOUNT_NOT_FOUND, message=words)
        return PluginAccount(has_token=True, trouble=trouble)
    return _without(view.driver, Reason.SERVICE_ACCOUNT_NOT_FOUND, problem.message)


def _has_token_of(known: PluginSet | None, account: str) -> bool:
    """Return whether pods of the DaemonSet have the token of an account (``namespace/name``)."""
    pod = plugin.pod_of(known) if known is not None else {}
    has_token = agent_token.has_token(pod) or pod.get("automountServiceAccountToken") is True
    return has_token and pod.get("serviceAccountName") == account.rpartition("/")[2]


def _without(driver: DriverContainer, reason: Reason, words: str) -> PluginAccount:
    settings = driver.spec.device_plugin if isinstance(driver.spec, DriverSpec) else None
    lost = {
        "the DRA driver is not started, or stays as it is": settings is not None and settings.dra is not None,
        "every node has the default profile": settings is not None and settings.profiles is not None,
        "no MIG layout is changed": settings is not None and settings.mig is not None,
    }
    without = " and ".join(name for name, is_lost in lost.items() if is_lost)
    return PluginAccount(trouble=Trouble(reason=reason, message=f"{words}: {without}"))
