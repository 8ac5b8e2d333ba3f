"""What a controller that does not build has not imported: each of these costs its memory for ever."""

import json
import subprocess
import sys

BUILDS_ALONE = {"cryptography", "docker", "elftools", "paramiko"}

LOOK = "import json, sys; import driver_builder.cli.main; print(json.dumps(sorted(sys.modules)))"


def test_a_controller_at_rest_has_nothing_that_only_builds_need() -> None:
    """Cryptography alone takes 7 MiB; who signs or builds imports it then."""
    found = subprocess.run([sys.executable, "-c", LOOK], check=True, stdout=subprocess.PIPE, text=True).stdout

    assert BUILDS_ALONE.isdisjoint(name.partition(".")[0] for name in json.loads(found))
