"""What the scripts of a build's pod give to buildah, whatever its release."""

import os
import subprocess
import tomllib
from pathlib import Path

from driver_builder.builds.job.job_manifest import job_script


def test_buildah_finds_the_helper_that_it_never_runs(tmp_path: Path) -> None:
    """Without a program netavark, buildah 1.43 builds nothing, also where a build has the network of its pod.

    Its words in an image of Debian sid, which has none: ``Error: creating build container: could not find "netavark"``.
    """
    fake = tmp_path / "bin" / "buildah"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ncat "$CONTAINERS_CONF_OVERRIDE"\n')
    fake.chmod(0o755)
    script = job_script("storage.sh").replace("/building", str(tmp_path / "building")) + "\nbuildah version\n"
    path = f"{fake.parent}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True, env={"PATH": path})
    (folder,) = tomllib.loads(done.stdout)["engine"]["helper_binaries_dir"]
    assert os.access(Path(folder) / "netavark", os.X_OK)
