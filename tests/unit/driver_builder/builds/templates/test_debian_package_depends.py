"""What the Debian template installs of what a package of modules depends on: what compiles them, nothing else."""

import re
import subprocess

import pytest

from driver_builder.model.build import SourcePackage
from tests.unit.driver_builder.builds.templates.test_debian_template import dockerfile

DPKG_DEB = 'dpkg-deb() { echo "$DEPENDS"; }; '


def needed(depends: str) -> str:
    """Run the template's own shell over a field Depends."""
    text = dockerfile(source=SourcePackage(name="edu-dkms"))
    found = re.search(r'^ +(left_out=.*?\n +needed=.*?"\)); \\$', text, re.MULTILINE | re.DOTALL)
    assert found is not None
    script = f'{DPKG_DEB}{found[1]}; printf %s "$needed"'
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env={"DEPENDS": depends, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("depends", "expected"),
    [
        pytest.param("dkms (>= 2.1.0.0)", "", id="dkms is there already"),
        pytest.param(
            "dkms (>= 2.8.4-3~), libc6-dev, libxtables-dev, pkg-config, libc6 (>= 2.3.4)",
            "libc6-dev,libxtables-dev,pkg-config,libc6 (>= 2.3.4)",
            id="headers and tools are needed",
        ),
        pytest.param(
            "firmware-nvidia-gsp (= 535.261.03) | firmware-nvidia-gsp-535.261.03, nvidia-open-kernel-support--v1, dkms",
            "",
            id="firmware and support are for the driver that runs",
        ),
        pytest.param("xtables-addons-dkms (>= 3.13), make", "xtables-addons-dkms (>= 3.13),make", id="other modules"),
    ],
)
def test_only_what_compiles_the_modules_is_installed(depends: str, expected: str) -> None:
    """Firmware alone is 60 MB for NVIDIA, and not always installable beside the headers."""
    assert needed(depends) == expected
