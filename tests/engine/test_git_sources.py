"""A driver's git repository as a build fetches it: by the template's own commands, with real git and real servers.

The commands run in a folder of the test; ``/fetched``, ``/source`` and ``/.git`` are in it.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from driver_builder.model.build import SourceGit
from tests.support.driver_builder.resolver import shell_commands
from tests.support.real_parts.web_server import served
from tests.unit.driver_builder.builds.templates.test_debian_template import dockerfile

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
URL = "https://git.example.com/driver.git"


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; returns what it prints."""
    argv = ["git", "-C", str(folder), "-c", "protocol.file.allow=always", *words]
    return subprocess.run(argv, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True, slots=True)
class Shop:
    """Repositories, as they are worked on and as they are served."""

    root: Path

    def make(self, name: str, **submodules: str) -> Path:
        """Make a repository with a file of its name, and submodules by their folders and URLs."""
        # Named as it is served: git looks for a relative URL beside it.
        folder = self.root / "work" / f"{name}.git"
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        (folder / f"{name}.c").write_text(f"int {name};\n")
        for path, url in submodules.items():
            git(folder, "submodule", "--quiet", "add", url, path)
        self.publish(folder)
        return folder

    def publish(self, folder: Path) -> str:
        """Commit what is there, and serve it; returns the commit."""
        git(folder, "add", ".")
        git(folder, "commit", "-q", "--allow-empty", "-m", "x")
        to = self.root / "served" / folder.name
        if not to.exists():
            git(self.root, "clone", "-q", "--bare", str(folder), str(to))
        git(folder, "push", "-q", "--force", "--tags", str(to), "HEAD")
        git(to, "update-server-info")
        return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A driver with a submodule that has one itself, both by relative URLs; and one that nobody needs."""
    shop = Shop(tmp_path / "shop")
    shop.make("inner")
    shop.make("headers", **{"deep/inner": "../inner.git"})
    driver = shop.make("driver", **{"src/headers": "../headers.git"})
    (driver / "src" / "module.c").symlink_to("headers/headers.c")
    shop.publish(driver)
    return shop


@contextmanager
def git_daemon(root: Path) -> Iterator[str]:
    """Serve repositories by git's own protocol, which gives single commits."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    argv = ["git", "daemon", f"--base-path={root}", "--export-all", "--listen=127.0.0.1", f"--port={port}", str(root)]
    with subprocess.Popen(argv, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except ConnectionRefusedError:
                    assert process.poll() is None, "git daemon has ended"
                    time.sleep(0.05)
                    continue
                break
            yield f"git://127.0.0.1:{port}"
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Fetched:
    """How the commands ended, and where."""

    root: Path
    code: int
    lines: tuple[str, ...]

    @property
    def files(self) -> set[str]:
        """All files and links of the source."""
        top = self.root / "source"
        return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_symlink() or path.is_file()}

    def git(self, *words: str, folder: str = "source") -> str:
        """Ask git something in a folder of the build."""
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        return git(self.root / folder, *words)


def fetch(server: str, commit: str, root: Path, *, path: str = "") -> Fetched:
    """Fetch the driver's commit as a build does."""
    commands = shell_commands(dockerfile(source=SourceGit(url=URL, commit=commit, path=path)), "GIT_ALLOW_PROTOCOL")
    commands = re.sub(r"(?<=[\s\"])(?=/(fetched|source|\.git)\b)", str(root), commands)
    root.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands.replace(URL, f"{server}/driver.git")],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return Fetched(root, done.returncode, tuple(done.stdout.splitlines()))


@pytest.mark.parametrize(
    "serve", [pytest.param(git_daemon, id="single commits"), pytest.param(served, id="files without git")]
)
def test_submodules_are_fetched_with_their_own(shop: Shop, serve: object, tmp_path: Path) -> None:
    """By URLs that are relative to the driver's; nothing of git is left in the source."""
    assert callable(serve)
    with serve(shop.root / "served") as server:
        got = fetch(server, git(shop.root / "work/driver.git", "rev-parse", "HEAD"), tmp_path / "build")
    assert got.code == 0, got.lines
    assert got.files == {
        *(".gitmodules", "driver.c", "src/module.c", "src/headers/headers.c", "src/headers/.gitmodules"),
        "src/headers/deep/inner/inner.c",
    }
    assert (got.root / "source/src/module.c").read_text() == "int headers;\n"


def test_a_submodule_that_cannot_be_fetched_ends_the_build(shop: Shop, tmp_path: Path) -> None:
    """With the code of a source that is missing; the sentence names the submodule, its commit and its URL."""
    commit = git(shop.root / "work/inner.git", "rev-parse", "HEAD")
    (shop.root / "served/inner.git").rename(shop.root / "gone.git")
    with served(shop.root / "served") as server:
        got = fetch(server, git(shop.root / "work/driver.git", "rev-parse", "HEAD"), tmp_path / "build")
    words = f"submodule src/headers/deep/inner: commit {commit} cannot be fetched from {server}/inner.git"
    assert (got.code, got.lines[-1]) == (68, f"driverwright: {words}")


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("git@git.example.com:inner.git", id="ssh"),
        pytest.param("/work/inner.git", id="a folder"),
        pytest.param("ext::sh -c id", id="a program"),
    ],
)
def test_submodules_come_by_the_protocols_of_the_driver_alone(shop: Shop, url: str, tmp_path: Path) -> None:
    """No key, no file of the machine that builds, no program."""
    driver = shop.root / "work/driver.git"
    git(driver, "config", "-f", ".gitmodules", "submodule.src/headers.url", url)
    commit = shop.publish(driver)
    with served(shop.root / "served") as server:
        got = fetch(server, commit, tmp_path / "build")
    assert (got.code, got.lines[-1].partition("cannot be")[2]) == (68, f" fetched from {url}")


def test_submodules_that_nobody_needs_are_not_fetched(shop: Shop, tmp_path: Path) -> None:
    """Outside of the wanted folder, switched off, or an entry that .gitmodules does not know: as git itself does."""
    driver = shop.root / "work/driver.git"
    url = str(shop.root / "served/inner.git")
    for name in ("tests", "src/off", "src/stale"):
        git(driver, "submodule", "--quiet", "add", "--name", name, url, name)
        git(driver, "config", "-f", ".gitmodules", f"submodule.{name}.url", "https://127.0.0.1:1/gone.git")
    git(driver, "config", "-f", ".gitmodules", "submodule.src/off.update", "none")
    git(driver, "config", "-f", ".gitmodules", "--remove-section", "submodule.src/stale")
    commit = shop.publish(driver)
    with served(shop.root / "served") as server:
        got = fetch(server, commit, tmp_path / "build", path="src")
        within = fetch(server, commit, tmp_path / "within", path="src/headers/deep/inner")
    assert got.code == 0, got.lines
    assert got.files == {"module.c", "headers/headers.c", "headers/.gitmodules", "headers/deep/inner/inner.c"}
    assert (within.code, within.files) == (0, {"inner.c"}), within.lines


@pytest.mark.parametrize("path", [pytest.param("", id="all of it"), pytest.param("src", id="a folder")])
def test_git_answers_in_every_folder_of_the_build(shop: Shop, path: str, tmp_path: Path) -> None:
    """What is built calls itself as it does elsewhere: by a tag of the commit, or by its hash, and is never changed."""
    driver = shop.root / "work/driver.git"
    tagged = git(driver, "rev-parse", "HEAD")
    git(driver, "tag", "-a", "v1.2", "-m", "x")
    git(driver, "tag", "-a", "v1.2$(id)", "-m", "x")
    untagged = shop.publish(driver)
    with git_daemon(shop.root / "served") as server:
        one = fetch(server, tagged, tmp_path / "one", path=path)
        other = fetch(server, untagged, tmp_path / "other", path=path)
    (one.root / "source/module.c").unlink(missing_ok=True)
    for folder in ("source", "var/lib/dkms/edu/1.0/build", "usr/src/linux"):
        assert one.git("describe", "--dirty", folder=folder) == "v1.2"
    assert (one.git("rev-parse", "HEAD"), one.git("tag")) == (tagged, "v1.2")
    assert other.git("describe", "--always", "--tags", "--dirty") == untagged[:12]
