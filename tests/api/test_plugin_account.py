"""A plugin on a real API server: what its spec may say of the use of devices, and its account.

Who may read the account, how it gets into a DaemonSet and out of it.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import suppress

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.cluster.plugin_accounts import PluginAccounts
from driver_builder.cluster.read_daemon_sets import read_plugin_set
from driver_builder.controller.execute import Executor
from driver_builder.nodes.changes import ApplyObject
from driver_builder.objects import agent_token, plugin
from kube_api.client import Client
from kube_api.errors import Invalid, NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import (
    Json,
    admin,
    as_service_account,
    create_quietly,
    granting,
    install,
)

NAMESPACE = "driverwright"
NAME, ACCOUNT = "plugin-account", "gpu-profiles"
LIMITS: Json = {"mode": "driver", "limits": {"nvidia.com/gpu": "10Gi", "example.com/a": 1 << 30}}


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Client:
    """Install the accounts; give the administrator."""
    client = admin(control_plane_ground)
    install(client)
    return client


@pytest.fixture(scope="module")
def builder(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as driver-builder."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "driver-builder")


@pytest.fixture
def driver(root: Client) -> Iterator[DriverContainer]:
    """Make a driver whose plugin has an account."""
    made = factories.driver_object(NAME, finalizer=False)
    del made["metadata"]["uid"]
    create_quietly(root, DRIVER_CONTAINERS.path(namespace=NAMESPACE), made)
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=NAME)
    nvidia = {"profiles": {"configMap": "p"}, "serviceAccountName": ACCOUNT}
    container = factories.driver(NAME, spec_changes={"stages": {"devicePlugin": {"nvidia": nvidia}}})
    yield dataclasses.replace(container, uid=root.get(path)["metadata"]["uid"])
    root.delete(path)


def _manifest(container: DriverContainer, *, has_token: bool) -> Json:
    spec = factories.spec_of(container)
    assert spec.device_plugin is not None
    return plugin.daemon_set(container, spec, spec.device_plugin, agent_image="r.io/a:1", has_token=has_token)


def _allow(root: Client) -> None:
    """Give driver-builder the right that docs/stages.md names."""
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [ACCOUNT], "verbs": ["get"]}
    metadata = {"name": NAME, "namespace": NAMESPACE}
    role, binding = granting("Role", metadata, rule, f"{NAMESPACE}/driver-builder")
    create_quietly(root, ROLES.path(namespace=NAMESPACE), role)
    create_quietly(root, ROLE_BINDINGS.path(namespace=NAMESPACE), binding)


def _with_use(use: Json, nvidia: Json | None = None) -> Json:
    """Make a driver whose plugin is ours, with an exporter or limits of memory, or with more of NVIDIA's devices."""
    plugged = {"nvidia": nvidia or {}, **use}
    made = factories.driver_object(
        "use-of-devices", spec_changes={"stages": {"devicePlugin": plugged}}, finalizer=False
    )
    del made["metadata"]["uid"]
    return made


@pytest.mark.parametrize(
    "use",
    [
        pytest.param({"memory": {"mode": "watch", "default": "none", "graceSeconds": 3600}}, id="a watch"),
        pytest.param({"memory": {**LIMITS, "dryRun": True}}, id="limits by the driver, tried"),
        pytest.param({"memory": {"mode": "off"}}, id="off"),
        pytest.param({"memory": {"mode": False}}, id="a bare off of YAML"),
        pytest.param({"exporter": {"enabled": True, "port": 9401, "perPod": True, "hostnameLabel": "node"}},
                     id="an exporter"),
        pytest.param({"exporter": {"enabled": True}, "memory": LIMITS}, id="both"),
    ],
)  # fmt: skip
def test_a_spec_of_the_devices_use_is_kept_as_it_is_written(root: Client, use: Json) -> None:
    """Each field, in its type; the controller reads it."""
    made = root.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), _with_use(use))
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=made["metadata"]["name"])
    try:
        kept = root.get(path)["spec"]["stages"]["devicePlugin"]
        assert kept == {"nvidia": {}, **use}
        plugged = factories.spec_of(factories.driver(spec_changes={"stages": {"devicePlugin": kept}})).device_plugin
        assert plugged is not None
        assert (plugged.use is not None) is (use.get("memory") not in ({"mode": "off"}, {"mode": False}))
    finally:
        root.delete(path)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param({"memory": {"mode": "kill"}}, r'memory\.mode: Unsupported value: "kill"', id="a mode"),
        pytest.param({"memory": {"mode": True}}, r"memory\.mode: Unsupported value: true", id="a bare on of YAML"),
        pytest.param({"memory": {"limits": {"a/b": "much"}}}, r"memory\.limits\.a/b: Invalid value", id="no quantity"),
        pytest.param({"memory": {"limits": {"a/b": 10}}}, r"memory\.limits\.a/b: Invalid value", id="ten bytes"),
        pytest.param({"memory": {"graceSeconds": 0}}, r"memory\.graceSeconds: Invalid value", id="no grace"),
        pytest.param({"memory": {"default": "all"}}, r'memory\.default: Unsupported value: "all"', id="a default"),
        pytest.param({"memory": {"dryRun": "yes"}}, r"memory\.dryRun: Invalid value", id="a text for a switch"),
        pytest.param({"exporter": {"port": 65536}}, r"exporter\.port: Invalid value", id="a port"),
        pytest.param({"exporter": {"hostnameLabel": "node-name"}}, r"exporter\.hostnameLabel: Invalid value",
                     id="a label"),
    ],
)  # fmt: skip
def test_a_wrong_spec_of_the_devices_use_is_refused(root: Client, use: Json, words: str) -> None:
    """By the definition, before any controller sees it; the message names the field."""
    with pytest.raises(Invalid, match=rf"spec\.stages\.devicePlugin\.{words}"):
        root.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), _with_use(use))


@pytest.mark.parametrize(
    "mig",
    [
        pytest.param({"enabled": True, "drain": True, "configMap": "layouts"}, id="with a drain"),
        pytest.param({"enabled": False}, id="off"),
    ],
)
def test_a_spec_of_mig_layouts_is_kept_as_it_is_written(root: Client, mig: Json) -> None:
    """The controller reads it."""
    nvidia = {"mig": mig, "serviceAccountName": ACCOUNT}
    made = root.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), _with_use({}, nvidia))
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=made["metadata"]["name"])
    try:
        kept = root.get(path)["spec"]["stages"]["devicePlugin"]
        assert kept == {"nvidia": nvidia}
        plugged = factories.spec_of(factories.driver(spec_changes={"stages": {"devicePlugin": kept}})).device_plugin
        assert plugged is not None
        assert (plugged.mig is not None) is mig["enabled"]
    finally:
        root.delete(path)


@pytest.mark.parametrize(
    ("mig", "words"),
    [
        pytest.param({"enabled": "yes"}, r"enabled: Invalid value", id="a word for a switch"),
        pytest.param({"drain": 1}, r"drain: Invalid value", id="a number for a switch"),
        pytest.param({"configMap": "A_b"}, r"configMap: Invalid value", id="no name"),
    ],
)
def test_a_wrong_spec_of_mig_layouts_is_refused(root: Client, mig: Json, words: str) -> None:
    """By the definition; the message names the field."""
    with pytest.raises(Invalid, match=rf"spec\.stages\.devicePlugin\.nvidia\.mig\.{words}"):
        root.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), _with_use({}, {"mig": mig}))


def test_whether_an_account_exists_is_known_by_one_right_more(
    builder: Client, root: Client, driver: DriverContainer
) -> None:
    """Without it there is a reason and no error; with it, a missing account is told from one that is there."""
    account = f"{NAMESPACE}/{ACCOUNT}"

    def asked() -> str:
        found = PluginAccounts(builder, {account}, lambda: 0.0).read([driver])[account]
        return found.message if found is not None else ""

    assert asked().startswith(f"ServiceAccount {account} may not be read: ")
    try:
        _allow(root)
        assert asked() == f"ServiceAccount {account} does not exist"
        create_quietly(root, SERVICE_ACCOUNTS.path(namespace=NAMESPACE), {"metadata": {"name": ACCOUNT}})
        assert asked() == ""
    finally:
        for resource, name in ((SERVICE_ACCOUNTS, ACCOUNT), (ROLE_BINDINGS, NAME), (ROLES, NAME)):
            with suppress(NotFound):
                root.delete(resource.path(namespace=NAMESPACE, name=name))


def test_an_account_leaves_a_daemon_set_by_the_default_one(
    builder: Client, root: Client, driver: DriverContainer
) -> None:
    """What the API server fills in is no drift; an apply that names no account would leave the one that is there."""
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=plugin.name_of(driver))
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    executor = Executor(builder, queue)

    def applied(manifest: Json, uid: str = "") -> plugin.PluginSet:
        bring = ApplyObject(
            resource=DAEMON_SETS, namespace=NAMESPACE, name=plugin.name_of(driver), manifest=manifest, uid=uid,
            force=bool(uid), why="bring it",
        )  # fmt: skip
        assert executor.perform((bring,)) == ()
        return read_plugin_set(root.get(path))

    try:
        with_token, without = _manifest(driver, has_token=True), _manifest(driver, has_token=False)
        first = applied(with_token)
        assert plugin.is_as_wanted(first, with_token)
        assert agent_token.has_token(plugin.pod_of(first))
        left = applied(without, first.uid)
        assert plugin.pod_of(left)["serviceAccountName"] == ACCOUNT
        wanted = plugin.replacing(left, without)
        assert not plugin.is_as_wanted(left, wanted)
        second = applied(wanted, first.uid)
        assert plugin.pod_of(second)["serviceAccountName"] == "default"
        assert not agent_token.has_token(plugin.pod_of(second))
        assert plugin.is_as_wanted(second, plugin.replacing(second, without))
        third = applied(plugin.replacing(second, with_token), first.uid)
        assert plugin.pod_of(third)["serviceAccountName"] == ACCOUNT
        assert plugin.is_as_wanted(third, plugin.replacing(third, with_token))
    finally:
        queue.stop()
        root.delete(path)
