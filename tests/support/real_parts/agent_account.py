"""An account of the agent on a real API server, with the roles that its own command prints; and a Node by its token."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout, suppress

from device_agent.cli.main import run as agent_cli
from device_agent.node.own_node import OwnNode
from kube_api.client import Client
from kube_api.resources import SERVICE_ACCOUNTS
from tests.support.real_parts.cluster_setup import FIELD_MANAGER, create_quietly, make_namespace, path_of
from tests.support.yaml_files import read_documents


def install_account(client: Client, account: str, *flags: str) -> None:
    """Make an account (``namespace/name``) with the roles of ``admission-policy --account``, without its policy."""
    namespace, _, name = account.partition("/")
    make_namespace(client, namespace)
    create_quietly(client, SERVICE_ACCOUNTS.path(namespace=namespace), {"metadata": {"name": name}})
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert agent_cli(["admission-policy", f"--account={account}", *flags], {}) == 0
    for obj in read_documents(printed.getvalue()):
        if "Policy" not in obj["kind"]:
            client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)


@asynccontextmanager
async def following(own: OwnNode) -> AsyncIterator[None]:
    """Follow a Node for a while."""
    task = asyncio.create_task(own.follow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
