"""Whether the device agent of a driver gets the token that it is to have. Pure.

Whoever writes a DriverContainer could have a pod run with any account of its namespace: the controller names those that
may be. Without a token devices are there all the same, by the default profile and as MIG instances are, and the status
says why.
"""

from dataclasses import dataclass

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.objects import agent_token, plugin
from driver_builder.objects.plugin import PluginSet
from driver_builder.observed.snapshot import AccountMissing
from driver_builder.planning.plan_view import DriverView
from driver_builder.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAccount:
    """Whether the agent ``has_token``; ``reason`` and ``words`` say what is wrong with its account."""

    has_token: bool = False
    reason: Reason | None = None
    words: str = ""


NO_ACCOUNT = AgentAccount()
"""Of a plugin that is to have none."""


def agent_account(view: DriverView, known: PluginSet | None) -> AgentAccount:
    """Decide on the account that the driver's spec names, if it names one; ``known`` is the DaemonSet that is there.

    One that cannot be read is not gone: pods that have its token keep it, as without it nodes may get other devices.
    """
    account = view.driver.agent_account
    if not account:
        return NO_ACCOUNT
    if account not in view.settings.device_agent_accounts:
        words = f"{account} is not allowed by --device-agent-accounts of driver-builder"
        return _without(view.driver, Reason.SERVICE_ACCOUNT_NOT_ALLOWED, words)
    unread = AccountMissing(message=f"ServiceAccount {account} was not read", is_unread=True)
    problem = view.snapshot.agent_accounts.get(account, unread)
    if problem is None:
        return AgentAccount(has_token=True)
    if problem.is_unread and _has_token_of(known, account):
        words = f"{problem.message}: the pods keep its token"
        return AgentAccount(has_token=True, reason=Reason.SERVICE_ACCOUNT_NOT_FOUND, words=words)
    return _without(view.driver, Reason.SERVICE_ACCOUNT_NOT_FOUND, problem.message)


def _has_token_of(known: PluginSet | None, account: str) -> bool:
    """Return whether pods of the DaemonSet have the token of an account (``namespace/name``)."""
    pod = plugin.pod_of(known) if known is not None else {}
    return agent_token.has_token(pod) and pod.get("serviceAccountName") == account.rpartition("/")[2]


def _without(driver: DriverContainer, reason: Reason, words: str) -> AgentAccount:
    settings = driver.spec.device_plugin if isinstance(driver.spec, DriverSpec) else None
    by_profiles = ["every node has the default profile"] if settings is not None and settings.profiles else []
    by_mig = ["no MIG layout is changed"] if settings is not None and settings.mig else []
    return AgentAccount(reason=reason, words=f"{words}: {' and '.join((*by_profiles, *by_mig))}")
