"""Whether the service accounts exist whose tokens device plugins of ours are to have: asked from time to time.

A pod with an account that does not exist is refused, and its node has no devices. Only accounts that the controller
allows are asked for, and only these may it read.
"""

from collections.abc import Callable, Iterable, Mapping, Set

from driver_builder.api.driver_container import DriverContainer
from driver_builder.snapshot.snapshot import AccountMissing
from kube_api.client import Reader
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import SERVICE_ACCOUNTS
from kube_api.text import printable

SECONDS = 30.0
"""How long an answer counts."""


class PluginAccounts:
    """Reads accounts. ``allowed`` are those that drivers may name, as ``namespace/name``."""

    def __init__(self, client: Reader, allowed: Set[str], clock: Callable[[], float]) -> None:
        self._client = client
        self._allowed = allowed
        self._clock = clock
        self._known: dict[str, tuple[float, AccountMissing | None]] = {}

    def read(self, drivers: Iterable[DriverContainer]) -> Mapping[str, AccountMissing | None]:
        """Return, by account that drivers name and may have, why it cannot be used; None if it can.

        Raises:
            KubeApiError: the API server does not answer.
        """
        before, self._known = self._known, {}
        now = self._clock()
        for account in {driver.plugin_account for driver in drivers} & self._allowed:
            known = before.get(account)
            is_fresh = known is not None and known[0] <= now < known[0] + SECONDS
            self._known[account] = known if known is not None and is_fresh else (now, self._ask(account))
        return {account: answer for account, (_, answer) in self._known.items()}

    def _ask(self, account: str) -> AccountMissing | None:
        namespace, _, name = account.partition("/")
        try:
            self._client.get(SERVICE_ACCOUNTS.path(namespace=namespace, name=name))
        except NotFound:
            return AccountMissing(message=f"ServiceAccount {account} does not exist")
        except Forbidden as error:
            words = printable(f"ServiceAccount {account} may not be read: {error}")
            return AccountMissing(message=words, is_unread=True)
        return None
