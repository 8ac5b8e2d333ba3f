"""What of the cache is kept."""

import os
from pathlib import Path

from testbed.cache import forget_old


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    """The one that is used now first of all; what another run is making has a name of its own, and stays."""
    for age, name in enumerate(("new", "middle", "used", ".being-made")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    forget_old(tmp_path / "used", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".being-made", "new", "used"]


def test_what_another_run_removes_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """It is listed, and then it is not there: a link that leads nowhere plays it."""
    for age, name in enumerate(("used", "middle", "old")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "gone").symlink_to("nowhere")
    forget_old(tmp_path / "used", 2)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used", "middle"}
