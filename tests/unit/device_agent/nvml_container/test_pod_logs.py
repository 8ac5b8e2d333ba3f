"""Names of pods by their UID, as the folders of their logs have them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.nvml_container.pod_logs import MOST_FOLDERS, pod_names, read_pod_names

UID, PLAIN = "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e", "11e5bd563c424dbfa1c17b1c0dbb3d6e"
STATIC = "3f2ad0a6c3d5f1b7b6e0c8d4a1e2f3b4"


class Everything:
    """Every pod is wanted."""

    def __contains__(self, pod: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        pytest.param(f"team-a_train-0_{UID}", {PLAIN: "team-a/train-0"}, id="a pod"),
        pytest.param(f"kube-system_etcd-node.example.com_{STATIC}", {STATIC: "kube-system/etcd-node.example.com"},
                     id="a static pod, with the node's name"),
        pytest.param(f"train-0_{UID}", {}, id="no namespace"),
        pytest.param(f"a_b_c_{UID}", {}, id="four parts"),
        pytest.param("a_b_", {}, id="no UID"),
        pytest.param("a_b_../..", {}, id="a path as UID"),
        pytest.param(f"A_b_{UID}", {}, id="a namespace that is none"),
        pytest.param(f"a_b\n_{UID}", {}, id="a line break"),
        pytest.param(f"a.b_c_{UID}", {}, id="a namespace with a dot"),
        pytest.param(f"a_{'b' * 254}_{UID}", {}, id="a name that is too long"),
        pytest.param("lost+found", {}, id="another folder"),
        pytest.param("", {}, id="nothing"),
    ],
)  # fmt: skip
def test_a_folder_names_its_pod(folder: str, found: dict[str, str]) -> None:
    """What makes no sense is left out."""
    assert pod_names([folder], Everything()) == found


@given(st.lists(st.text(max_size=80) | st.from_regex(r"[a-z.]{1,5}_[a-z.-]{1,5}_[a-z0-9-]{1,5}"), max_size=5))
def test_any_names_are_read(folders: list[str]) -> None:
    """Nothing is raised."""
    assert len(pod_names(folders, Everything())) <= len(folders)


def test_only_pods_that_are_wanted_are_named(tmp_path: Path) -> None:
    """One that was made anew has two UIDs, as long as its old folder is there."""
    for folder in (f"team-a_train-0_{UID}", "team-a_train-0_other", f"team-b_train-0_{STATIC}", "team-a_train_x"):
        (tmp_path / "var/log/pods" / folder).mkdir(parents=True)
    wanted = {"team-a/train-0", "team-c/nobody"}
    assert read_pod_names(f"{tmp_path}/", wanted) == {PLAIN: "team-a/train-0", "other": "team-a/train-0"}


def test_a_folder_that_is_not_mounted_is_not_the_same_as_no_pods(tmp_path: Path) -> None:
    """Somebody has to be told."""
    assert read_pod_names(str(tmp_path), Everything()) is None
    (tmp_path / "var/log/pods").mkdir(parents=True)
    assert read_pod_names(str(tmp_path), Everything()) == {}


def test_more_folders_than_a_node_can_have_are_not_read() -> None:
    """The bound is far above what a kubelet runs."""
    assert MOST_FOLDERS > 10_000
