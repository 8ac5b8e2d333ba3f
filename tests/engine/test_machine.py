"""tools/machine with its real tree: what a command sees there, what stays of it, and what is reported.

These tests run in the tree already; with its mark out of sight they enter it once more, as one does from outside.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from testbed import places
from testbed.cache import cache_root
from testbed.packages import why_unsupported

ROOT = Path(__file__).parents[2]
WITHOUT_MARK = 'mount -t tmpfs none /etc/driverwright-machine && exec tools/machine "$@"'
PATIENCE = 300.0

pytestmark = pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))


def entering(*command: str) -> list[str]:
    """Return the command line that enters the tree and runs a command."""
    return ["unshare", "--mount", "--propagation", "private", "--", "bash", "-c", WITHOUT_MARK, "-", *command]


def enter(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in the tree."""
    return subprocess.run(
        entering("bash", "-c", script),
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_each_run_starts_from_the_same_tree() -> None:
    """What a run writes into the tree, packages included, no later one sees; the checkout and the cache stay."""
    kept = cache_root() / "test-machine"
    first = enter(f"touch /usr/bin/by-hand /etc/by-hand && echo kept >{kept} && rm /usr/bin/jq")
    second = enter(f"ls /usr/bin/by-hand /etc/by-hand; cat {kept}; command -v jq; rm {kept}")
    assert first.returncode == 0, first.stderr
    assert second.stdout.split() == ["kept", "/usr/bin/jq"]


def test_a_command_runs_as_it_would_outside() -> None:
    """Its status is that of the run, its folder the caller's, its words whole; what leads outside is not passed on."""
    done = enter(
        'echo "$PWD"; printf "<%s>" "a  b" "*"; echo; echo "${PYTHONPATH-none}"; exit 7', PYTHONPATH="/outside"
    )
    assert done.stdout.split("\n")[:3] == [str(ROOT), "<a  b><*>", "none"]
    assert done.returncode == 7


def test_a_run_says_what_it_leaves() -> None:
    """A process that outlives its command is named, with its namespace; a run that leaves nothing says nothing."""
    left = enter("sleep 321 >/dev/null 2>&1 & exit 0")
    named = [line.split() for line in left.stderr.splitlines() if " process " in f"{line} "]
    try:
        assert "this run has left on the machine:" in left.stderr
        assert [words[2:] for words in named] == [["sleep", "321"]]
        assert "namespace mnt:[" in left.stderr
    finally:
        for words in named:
            os.kill(int(words[1]), signal.SIGKILL)
    assert "left on the machine" not in enter("true").stderr


def test_a_run_that_is_ended_ends_its_command() -> None:
    """SIGTERM reaches the command, which can clean up, and the run ends after it."""
    # In the checkout: /tmp of the tree is another one.
    begun = ROOT / "build" / "test-machine-begun"
    begun.parent.mkdir(exist_ok=True)
    begun.unlink(missing_ok=True)
    script = f"trap 'echo cleaned; exit 5' TERM; touch {begun}; while :; do sleep 0.1; done"
    with subprocess.Popen(
        entering("bash", "-c", script),
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not begun.exists():
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.terminate()
        output, _ = running.communicate(timeout=PATIENCE)
    begun.unlink()
    assert (running.returncode, output) == (5, "cleaned\n")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        pytest.param(
            "mkdir /var/tmp/c && export XDG_CACHE_HOME=/var/tmp/c", "overlays cannot be mounted", id="overlay"
        ),
        pytest.param("mount -t tmpfs -o nodev none /mnt && export XDG_CACHE_HOME=/mnt", "mounted nodev", id="nodev"),
        pytest.param("mount -t tmpfs -o noexec none /mnt && export XDG_CACHE_HOME=/mnt", "mounted noexec", id="noexec"),
        pytest.param("set -- unshare --user --map-root-user tools/machine", "a rootless container?", id="rootless"),
        pytest.param(
            "mount --bind /dev/null /usr/sbin/debootstrap", "apt-get install debootstrap", id="no debootstrap"
        ),
        pytest.param("set -- setpriv --bounding-set=-sys_admin tools/machine", "with --privileged", id="may not mount"),
    ],
)
def test_a_machine_that_cannot_have_the_tree_says_why(before: str, said: str) -> None:
    """Real mounts, namespaces and capabilities: one line that says what is wrong, and exit status 2."""
    script = f'mount -t tmpfs none /etc/driverwright-machine && set -- tools/machine && {before} && exec "$@" true'
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "--", "bash", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr


def test_testbeds_and_the_cache_are_on_one_mount() -> None:
    """Files of the cache can be linked into a testbed's folder, which both have the same name outside."""
    kept, linked = cache_root() / "test-machine-linked", places.base() / "test-machine-linked"
    kept.touch()
    try:
        linked.hardlink_to(kept)
        assert enter(f"stat --format %h {kept} {linked}").stdout.split() == ["2", "2"]
    finally:
        kept.unlink()
        linked.unlink(missing_ok=True)


def test_what_the_list_lacks_is_named() -> None:
    """A package that the tree does not have is an error with its name and the place where it belongs."""
    script = "from testbed.packages import ensure_packages; ensure_packages(('jq', 'no-such-package'))"
    done = subprocess.run(
        ["python", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    assert "the tree has no no-such-package" in done.stderr
    assert "tools/tree/packages" in done.stderr


def test_settings_of_pip_and_certificates_hold_in_the_tree(tmp_path: Path) -> None:
    """Local folders that pip is told of can be read there; variables for certificates name a bundle that is there."""
    wheels = ROOT / "build" / "test-machine-wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("a certificate\n")
    script = 'ls -d "$PIP_FIND_LINKS"; cat "$SSL_CERT_FILE"'
    done = enter(script, PIP_FIND_LINKS=str(wheels), SSL_CERT_FILE=str(bundle))
    assert done.stdout.splitlines() == [str(wheels), "a certificate"]
