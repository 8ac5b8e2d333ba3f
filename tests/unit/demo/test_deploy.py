"""``deploy/`` with an overlay laid over."""

from typing import Any

from demo.deploy import Overlay, manifests, path_of

IMAGES = {"nfd-worker": "r.example.com/driverwright/nfd-worker@sha256:00", "driver-builder": "r.example.com/b:1"}


def workload(overlay: Overlay, name: str) -> dict[str, Any]:
    """One workload's pod."""
    found = [
        obj
        for obj in manifests(overlay)
        if obj["kind"] in ("DaemonSet", "Deployment") and obj["metadata"]["name"] == name
    ]
    pod: dict[str, Any] = found[0]["spec"]["template"]["spec"]
    return pod


def test_images_are_exchanged_by_their_last_name() -> None:
    """A digest is an image reference like any other."""
    for name, image in IMAGES.items():
        assert [item["image"] for item in workload(Overlay(images=IMAGES), name)["containers"]] == [image]


def test_a_plain_overlay_keeps_what_the_manifests_say() -> None:
    """No host network, and a controller that needs no engine and is not root."""
    pod = workload(Overlay(images=IMAGES), "driver-builder")
    assert "hostNetwork" not in pod
    assert "imagePullSecrets" not in pod
    assert "nodeSelector" not in pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {"name": "DRIVER_BUILDER_BUILDER", "value": "job"} in pod["containers"][0]["env"]


def test_an_engine_builds_where_its_socket_is_named() -> None:
    """On a labelled node, as root, to which the socket belongs."""
    pod = workload(Overlay(images=IMAGES, engine_socket="/srv/docker.sock"), "driver-builder")
    assert pod["nodeSelector"] == {"driverwright.io/builder": "true"}
    assert pod["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in pod["securityContext"]
    assert {"name": "DOCKER_HOST", "value": "unix:///run/docker.sock"} in pod["containers"][0]["env"]
    assert {"name": "DRIVER_BUILDER_BUILDER", "value": "docker"} in pod["containers"][0]["env"]
    assert "/run/docker.sock" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}


def test_build_jobs_pull_with_the_same_credentials() -> None:
    """By their account: the controller makes their pods."""
    accounts = [obj for obj in manifests(Overlay(images=IMAGES, pull_secret="x")) if obj["kind"] == "ServiceAccount"]
    assert "driver-builder-job" in {account["metadata"]["name"] for account in accounts}
    assert all(account["imagePullSecrets"] == [{"name": "x"}] for account in accounts)


def test_an_odd_cluster() -> None:
    """Network, API server, port, socket, nodes and credentials can be others."""
    overlay = Overlay(
        images=IMAGES,
        host_network=True,
        environment={"driver-builder": {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}},
        arguments={"driver-builder": ("--port=9810",)},
        probe_ports={"driver-builder": 9810},
        engine_socket="/srv/docker.sock",
        node_selectors={"driver-builder": {"kubernetes.io/hostname": "a"}},
        pull_secret="credentials",
    )
    pod = workload(overlay, "driver-builder")
    container = pod["containers"][0]
    assert pod["hostNetwork"] is True
    assert {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"} in container["env"]
    assert container["args"][-1] == "--port=9810"
    assert container["livenessProbe"]["httpGet"]["port"] == 9810
    assert [item["hostPath"]["path"] for item in pod["volumes"] if "hostPath" in item] == ["/srv/docker.sock"]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "a"}
    assert pod["imagePullSecrets"] == [{"name": "credentials"}]


def test_the_namespace_comes_first_and_every_object_has_a_path() -> None:
    """What lies in a namespace can be created in this order."""
    paths = [path_of(obj) for obj in manifests(Overlay(images={}))]
    assert paths[0] == "/api/v1/namespaces/driverwright"
    assert len(set(paths)) == len(paths)
