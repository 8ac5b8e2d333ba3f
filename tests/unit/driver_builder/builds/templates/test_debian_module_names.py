"""Modules that dkms installs under other names than their own get their own back."""

import re
import subprocess
from pathlib import Path

from tests.unit.driver_builder.builds.templates.test_debian_template import dockerfile

MODINFO = 'modinfo() { cat "${3%.ko}.own"; }; '
"""Each file's own name lies beside it."""


def test_dkms_modules_have_their_own_names(tmp_path: Path) -> None:
    """Debian's nvidia-current-open.ko is nvidia; a module without a name inside, or with - for _, stays as it is."""
    folder = tmp_path / "6.1.0-56-cloud-amd64" / "x86_64" / "module"
    folder.mkdir(parents=True)
    for file, own in [("nvidia-current-open", "nvidia"), ("dm-writeboost", "dm_writeboost"), ("old", "")]:
        (folder / f"{file}.ko").touch()
        (folder / f"{file}.own").write_text(own)
    found = re.search(r"( +for file in \"\$tree/.*? done); \\$", dockerfile(), re.MULTILINE | re.DOTALL)
    assert found is not None
    script = f"{MODINFO}tree={tmp_path}; {found[1]}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env={"PATH": "/usr/bin:/bin"}, check=True)
    assert sorted(path.name for path in folder.glob("*.ko")) == ["dm-writeboost.ko", "nvidia.ko", "old.ko"]
