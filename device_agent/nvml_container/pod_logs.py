"""Which pod has which UID, by the folders that the kubelet makes for the logs of pods: ``NAMESPACE_NAME_UID``."""

import os
from collections.abc import Container, Iterable
from itertools import islice

from device_agent.gpu_state.checks import is_pod, is_word
from device_agent.users.pods import plain_uid

MOST_FOLDERS = 1 << 14
_FOLDER = "var/log/pods"


def read_pod_names(root: str, wanted: Container[str]) -> dict[str, str] | None:
    """Return NAMESPACE/NAME of wanted pods by UID, as :func:`plain_uid` writes it; None where it cannot be read.

    ``root``: where the node's ``/`` is mounted. A pod that was made anew under its old name has two UIDs for a while.
    """
    try:
        with os.scandir(f"{root.rstrip('/')}/{_FOLDER}") as entries:
            return pod_names((entry.name for entry in islice(entries, MOST_FOLDERS)), wanted)
    except OSError:
        return None


def pod_names(folders: Iterable[str], wanted: Container[str]) -> dict[str, str]:
    """Return what folders say of wanted pods. Names that make no sense are left out."""
    return {uid: pod for folder in folders for uid, pod in _parse(folder) if pod in wanted}


def _parse(folder: str) -> list[tuple[str, str]]:
    """Return UID and pod of a folder, if it is one of a pod: neither has an underscore."""
    parts = folder.split("_")
    if len(parts) != 3 or not is_pod(f"{parts[0]}/{parts[1]}") or not is_word(parts[2]):
        return []
    return [(plain_uid(parts[2]), f"{parts[0]}/{parts[1]}")]
