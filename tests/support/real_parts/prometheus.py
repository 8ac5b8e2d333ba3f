"""A Prometheus of Debian's package, unpacked into the cache and not installed, and its promtool."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.cache import cached_folder
from testbed.command import tail
from testbed.packages import refreshed_apt, release_codename, unpack
from testbed.ports import free_ports

Json = dict[str, Any]

_SECONDS = 120.0


def program(name: str) -> Path:
    """Return the path of ``prometheus`` or ``promtool``."""

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            (deb,) = refreshed_apt().download(["prometheus"], Path(work))
            unpack(deb, Path(work) / "files")
            for found in ("prometheus", "promtool"):
                shutil.copy2(Path(work) / "files" / "usr" / "bin" / found, folder / found)

    return cached_folder(f"prometheus-{release_codename()}", make) / name


class Prometheus:
    """A server that is asked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def query(self, expr: str) -> list[Json]:
        """Return the series of an instant query.

        Raises:
            AssertionError: with Prometheus' own words, when it refuses the query.
        """
        answer = requests.get(f"{self._url}/api/v1/query", params={"query": expr}, timeout=_SECONDS).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        found: list[Json] = answer["data"]["result"]
        return found

    def rules(self) -> dict[str, Json]:
        """Return the alerts by name, as they were evaluated last."""
        answer = requests.get(f"{self._url}/api/v1/rules", timeout=_SECONDS).json()
        return {rule["name"]: rule for group in answer["data"]["groups"] for rule in group["rules"]}

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        try:
            return requests.get(f"{self._url}/-/ready", timeout=_SECONDS).ok
        except requests.ConnectionError:
            return False


@contextmanager
def prometheus(
    folder: Path, ports: Iterable[int], rules: Path | None = None, *, honoring: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """Run one that asks the programs on these ports each second, all as one job, and evaluates rules as often.

    ``honoring``: labels of the targets, which count less than those of the series, as with a PodMonitor's honorLabels.
    """
    targets = {"targets": [f"127.0.0.1:{port}" for port in ports], "labels": dict(honoring or {})}
    job = {"job_name": "driverwright", "honor_labels": honoring is not None, "static_configs": [targets]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [job],
    }
    file, (port,), log = folder / "prometheus.yml", free_ports(1), folder / "log"
    file.write_text(yaml.safe_dump(config))
    argv = [
        str(program("prometheus")), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, cwd=folder)
    try:
        server, began = Prometheus(port), time.monotonic()
        while not server.is_ready():
            assert process.poll() is None, f"prometheus ended: {tail(log)}"
            assert time.monotonic() - began < _SECONDS, f"prometheus does not answer: {tail(log)}"
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()
