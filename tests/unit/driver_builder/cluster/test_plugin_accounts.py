"""Which service accounts are asked for, how often, and what is said of those that cannot be used."""

from collections.abc import Iterator
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.cluster.plugin_accounts import SECONDS, PluginAccounts
from driver_builder.snapshot.snapshot import AccountMissing
from kube_api.errors import Forbidden, NotFound, Unreachable
from tests.support.driver_builder.factories import NAMESPACE, driver

GPU, OTHER = f"{NAMESPACE}/gpu", f"{NAMESPACE}/other"
MISSING = AccountMissing(message=f"ServiceAccount {GPU} does not exist")


class Accounts:
    """An API server that answers with the next of what it has, and at last always with the same."""

    def __init__(self, *answers: Exception | None) -> None:
        self.asked: list[str] = []
        self._answers: Iterator[Exception | None] = iter(answers)

    def get(self, path: str) -> dict[str, Any]:
        """Read an account."""
        self.asked.append(path)
        if (error := next(self._answers, None)) is not None:
            raise error
        return {"metadata": {"name": path.rpartition("/")[2]}}


def naming(account: str | None) -> DriverContainer:
    """Make a driver whose plugin is to have an account."""
    nvidia = {"profiles": {"configMap": "p"}, **({"serviceAccountName": account} if account else {})}
    return driver(spec_changes={"stages": {"devicePlugin": {"nvidia": nvidia}}})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(None, None, id="there"),
        pytest.param(NotFound("404"), MISSING, id="missing"),
        pytest.param(Forbidden("GET: 403"),
                     AccountMissing(message=f"ServiceAccount {GPU} may not be read: GET: 403", is_unread=True),
                     id="no right"),
    ],
)  # fmt: skip
def test_what_is_said_of_an_account(error: Exception | None, said: AccountMissing | None) -> None:
    """Nothing if it can be used."""
    server = Accounts(error)
    assert PluginAccounts(server, {GPU}, lambda: 0.0).read([naming("gpu")]) == {GPU: said}
    assert server.asked == [f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gpu"]


@pytest.mark.parametrize(
    ("drivers", "allowed"),
    [
        pytest.param([driver()], {GPU}, id="no stages"),
        pytest.param([naming(None)], {GPU}, id="no account"),
        pytest.param([naming("gpu")], {OTHER}, id="not allowed"),
        pytest.param([naming("gpu")], {"elsewhere/gpu"}, id="allowed in another namespace"),
    ],
)
def test_nobody_is_asked_for_an_account_that_is_not_used(drivers: list[DriverContainer], allowed: set[str]) -> None:
    """An author of DriverContainers makes the controller read no account that it does not allow."""
    server = Accounts()
    assert PluginAccounts(server, allowed, lambda: 0.0).read(drivers) == {}
    assert server.asked == []


def test_an_answer_counts_for_a_while() -> None:
    """Of several drivers with one account, one question."""
    now = [0.0]
    server = Accounts(NotFound("404"), None)
    accounts = PluginAccounts(server, {GPU}, lambda: now[0])
    missing = {GPU: MISSING}
    found = []
    for at in (0.0, SECONDS - 1, SECONDS, SECONDS + 1):
        now[0] = at
        found.append(accounts.read([naming("gpu"), naming("gpu")]))
    assert found == [missing, missing, {GPU: None}, {GPU: None}]
    assert len(server.asked) == 2


def test_a_server_that_does_not_answer_says_nothing() -> None:
    """The observation fails as a whole: an account that was there is not gone."""
    with pytest.raises(Unreachable):
        PluginAccounts(Accounts(Unreachable("no answer")), {GPU}, lambda: 0.0).read([naming("gpu")])
