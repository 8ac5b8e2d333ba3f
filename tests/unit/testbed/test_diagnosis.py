"""What is said of a testbed when a test fails: short, and what is wrong first of all."""

from testbed.diagnosis import event_line, node_line, pod_line


def test_a_node_in_order_is_said_to_be() -> None:
    """Pressure conditions are in order when they are False, Ready when it is True."""
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    assert node_line({"metadata": {"name": "a"}, "status": {"conditions": conditions}}) == "node a: in order"


def test_a_nodes_wrong_conditions_are_named() -> None:
    """With the reason, and when the kubelet last confirmed them."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastHeartbeatTime": "noon"}
    line = node_line({"metadata": {"name": "a"}, "status": {"conditions": [ready]}})
    assert line == "node a: Ready=Unknown (NodeStatusUnknown, heard of noon)"


def test_a_pod_says_what_each_container_waits_for() -> None:
    """And since when it should be gone."""
    pod = {
        "metadata": {"namespace": "n", "name": "p", "deletionTimestamp": "noon"},
        "spec": {"nodeName": "guest-b"},
        "status": {
            "phase": "Pending",
            "initContainerStatuses": [{"name": "load", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
            "containerStatuses": [{"name": "hold", "state": {"waiting": {"reason": "PodInitializing"}}}],
        },
    }
    line = "pod n/p, guest-b, Pending, load: Error 1, hold: PodInitializing, to be gone at noon"
    assert pod_line(pod) == line


def test_a_pod_that_nobody_took_in_has_no_containers() -> None:
    """Neither a node nor a status is there yet."""
    assert pod_line({"metadata": {"namespace": "n", "name": "p"}, "spec": {}}) == "pod n/p, on no node, ?"


def test_an_event_is_one_line() -> None:
    """An Event is shown in one line with time, object and reason."""
    event = {
        "lastTimestamp": "noon",
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Failed",
        "message": "pull failed",
    }
    assert event_line(event) == "event noon Pod/p Failed: pull failed"
