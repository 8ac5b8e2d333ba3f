"""Which pod a process is of, by its cgroup. Pure.

``/proc/PID/cgroup`` has a line ``NUMBER:CONTROLLERS:PATH`` for each hierarchy of cgroup v1, and one, ``0::PATH``, for
v2. What a container makes below its own cgroup stands further right in the path than its pod.
"""

from device_agent.users.pods import is_class, is_tree, pod_uid


def parse_pod_uid(text: str) -> str:
    """Return the UID of the process's pod, as :func:`device_agent.users.pods.plain_uid` writes it.

    Empty for a process in no pod, and where two hierarchies name different ones.
    """
    # Names of folders may hold what else str.splitlines takes for the end of a line.
    found = {uid for line in text.split("\n") if (uid := _outermost(line.split(":", 2)[-1]))}
    return found.pop() if len(found) == 1 else ""


_PEOPLE = "user.slice"
"""Where systemd has the processes of users, who may make folders of any name there."""


def _outermost(path: str) -> str:
    """Return the UID of the first pod in a path.

    Its folder is in the tree of pods, or in a class of service there, and nowhere else: a service of the node has no
    pod, whatever it calls its folders. Two ways of writing leave the tree out: a path from within a cgroup namespace
    begins with ``/..``, and the driver cgroupfs of containerd or runc reads a path of systemd's as one folder,
    ``kubepods-burstable-podUID.slice:cri-containerd:ID``.
    """
    is_inside = path.startswith("/..")
    for segment in path.split("/"):
        name = segment.partition(":")[0]
        if name == _PEOPLE and not is_inside:
            return ""
        if is_tree(name):
            is_inside = True
        elif (is_inside or "kubepods-" in name) and (uid := pod_uid(name)):
            return uid
        elif is_inside and name not in {"", ".."} and not is_class(name):
            return ""
    return ""
