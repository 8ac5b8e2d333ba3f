"""The Event of a limit, written by the account that the chart gives to the agent, on a real API server."""

import asyncio
import logging

import pytest

from device_agent.memory_limits.report import REASON
from device_agent.memory_limits.tell import Teller
from kube_api.client import Client
from kube_api.errors import Forbidden
from kube_api.resources import EVENTS, PODS, SERVICE_ACCOUNTS
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import (
    FIELD_MANAGER,
    admin,
    connect_as_agent,
    create_quietly,
    granting,
    make_namespace,
    path_of,
)
from tests.unit.device_agent.memory_limits.test_report import ENDING

NAMESPACE, ACCOUNT, TEAM = "memory-event", "device-agent", "team"
RULE = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
"""That of deploy/chart/driverwright/templates/device-agent/events.yaml."""


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """Install the account and its role; give the administrator."""
    client = admin(control_plane_ground)
    for name in (NAMESPACE, TEAM):
        make_namespace(client, name)
    create_quietly(client, SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": ACCOUNT}})
    for obj in granting("ClusterRole", {"name": NAMESPACE}, RULE, f"{NAMESPACE}/{ACCOUNT}"):
        client.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
    return client


@pytest.fixture(scope="module")
def agent(control_plane_ground: Testbed, root: Client, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Connect as the agent does, with the files that a kubelet mounts."""
    assert root
    return connect_as_agent(control_plane_ground, f"{NAMESPACE}/{ACCOUNT}", tmp_path_factory.mktemp("token"))


def test_the_pods_owner_finds_the_event(root: Client, agent: Client) -> None:
    """In the pod's namespace, about the pod."""
    asyncio.run(Teller(agent.create, "node-1")(ENDING))
    (found,) = root.list(EVENTS.path(namespace=TEAM), field_selector="involvedObject.name=a").items
    assert (found["reason"], found["type"], found["source"]["host"]) == (REASON, "Warning", "node-1")
    assert found["involvedObject"]["kind"] == "Pod"


def test_a_namespace_that_is_gone_holds_nothing_up(agent: Client, caplog: pytest.LogCaptureFixture) -> None:
    """That the Event could not be written is logged once."""
    other = ENDING.account.pod.replace(TEAM, "gone")
    ending = type(ENDING)(
        account=type(ENDING.account)(card="GPU-0", pod=other), process=ENDING.process, is_dry_run=True
    )
    teller = Teller(agent.create, "node-1")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            asyncio.run(teller(ending))
    assert caplog.text.count("an Event cannot be written") == 1


@pytest.mark.parametrize("path", [PODS.path(namespace=TEAM), EVENTS.path(namespace=TEAM)], ids=["pods", "events"])
def test_the_account_reads_nothing(agent: Client, path: str) -> None:
    """Neither pods nor what was reported of them."""
    with pytest.raises(Forbidden):
        agent.list(path)
