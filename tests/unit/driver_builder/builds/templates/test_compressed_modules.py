"""dkms leaves modules compressed as its distribution has them; what follows in a build takes plain ones."""

import gzip
import lzma
import subprocess
from pathlib import Path

from tests.support.programs import require_program
from tests.unit.driver_builder.builds.templates.test_debian_template import dockerfile


def test_whatever_dkms_compresses_is_decompressed(tmp_path: Path) -> None:
    """By xz, gzip or zstd; a plain module stays."""
    require_program("zstd")
    contents = {name: name.encode() for name in ("plain", "xz", "gz", "zst")}
    for name, content in contents.items():
        (tmp_path / f"{name}.ko").write_bytes(content)
    (tmp_path / "xz.ko.xz").write_bytes(lzma.compress((tmp_path / "xz.ko").read_bytes()))
    (tmp_path / "gz.ko.gz").write_bytes(gzip.compress((tmp_path / "gz.ko").read_bytes()))
    subprocess.run(["zstd", "--quiet", "--rm", tmp_path / "zst.ko"], check=True)
    for name in ("xz", "gz"):
        (tmp_path / f"{name}.ko").unlink()
    lines = (line.strip().removesuffix("; \\") for line in dockerfile().splitlines())
    (command,) = (line for line in lines if line.startswith('find "$tree" -name "*.ko.'))
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], check=True, env={"tree": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f"{name}.ko": content for name, content in contents.items()
    }
