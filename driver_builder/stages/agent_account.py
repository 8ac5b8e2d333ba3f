"""Whether the device agent of a driver gets the token that it is to have. Pure.

Whoever writes a DriverContainer could have a pod run with any account of its namespace: the controller names those that
may be. Without a token devices are there all the same, by the default profile, and the status says why.
"""

from dataclasses import dataclass

from driver_builder.planning.plan_view import DriverView
from driver_builder.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAccount:
    """Whether the agent ``has_token``; if it was to have one and has none, ``reason`` and ``words`` say why."""

    has_token: bool = False
    reason: Reason | None = None
    words: str = ""


NO_ACCOUNT = AgentAccount()
"""Of a plugin that is to have none."""


def agent_account(view: DriverView) -> AgentAccount:
    """Decide on the account that the driver's spec names, if it names one."""
    account = view.driver.agent_account
    if not account:
        return NO_ACCOUNT
    if account not in view.settings.device_agent_accounts:
        words = f"{account} is not allowed by --device-agent-accounts of driver-builder"
        return _without(Reason.SERVICE_ACCOUNT_NOT_ALLOWED, words)
    problem = view.snapshot.agent_accounts.get(account, f"ServiceAccount {account} was not read")
    return _without(Reason.SERVICE_ACCOUNT_NOT_FOUND, problem) if problem else AgentAccount(has_token=True)


def _without(reason: Reason, words: str) -> AgentAccount:
    return AgentAccount(reason=reason, words=f"{words}: every node has the default profile")
