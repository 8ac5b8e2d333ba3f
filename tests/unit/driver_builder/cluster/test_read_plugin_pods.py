"""What a pod of a device plugin says of itself: whether it has a token, and so reports on its Node."""

import pytest

from driver_builder.cluster.read_pods import read_owned_pod
from driver_builder.objects import plugin
from driver_builder.objects.plugin import PluginPod
from tests.support.driver_builder.factories import NAMESPACE, driver, spec_of

NVIDIA = {"profiles": {"configMap": "p"}, "serviceAccountName": "gpu"}


@pytest.mark.parametrize("has_token", [pytest.param(True, id="with it"), pytest.param(False, id="without it")])
def test_a_pod_says_whether_it_has_the_token(*, has_token: bool) -> None:
    """By its own spec: the template may be another one by now."""
    container = driver(spec_changes={"stages": {"devicePlugin": {"nvidia": NVIDIA}}})
    spec = spec_of(container)
    assert spec.device_plugin is not None
    made = plugin.daemon_set(container, spec, spec.device_plugin, agent_image="r.io/a:1", has_token=has_token)
    template = made["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": "uid-set", "controller": True}
    metadata = {"namespace": NAMESPACE, "name": "edu-plug-x", "uid": "uid-pod", "ownerReferences": [owner]}
    found = read_owned_pod(
        {
            "metadata": {**template["metadata"], **metadata},
            "spec": {**template["spec"], "nodeName": "node-a"},
            "status": {"phase": "Running"},
        }
    )
    assert found is not None
    assert isinstance(found.pod, PluginPod)
    assert found.pod.has_token is has_token
