"""What was found, kept as JSON lines: one per build, one per driver and kernel that it was tried on.

A line is written when its work has ended, so whatever ends the run loses the work at hand only. A build is known again
by its build key, which changes with the package's version, the recipe, the kernel and the wanted modules: what was
found for other inputs is not believed.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from testbed.cache import cache_root


class Outcome(StrEnum):
    """How a build ended."""

    BUILT = "built"
    NOT_APPLICABLE = "not applicable"
    FAILED = "failed"


class Verdict(StrEnum):
    """What a running kernel did with a driver's modules."""

    LOADED = "loaded"
    NEEDS_HARDWARE = "needs hardware"
    REFUSED = "refused"
    DIED = "kernel died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One driver for one kernel. ``verified`` is how many modules fit, None where there are none to look at.

    ``image_bytes`` is that of all layers, ``seconds`` wall time.
    """

    driver: str
    version: str
    kernel: str
    key: str
    outcome: Outcome
    seconds: float
    reason: str = ""
    message: str = ""
    verified: int | None = None
    image_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The modules of one build on one running kernel.

    ``refused_by_us`` is what verification says against it, empty when it has nothing against it; ``said`` the kernel's
    own words.
    """

    driver: str
    kernel: str
    key: str
    running: str
    verdict: Verdict
    said: str = ""
    refused_by_us: str = ""

    @property
    def agrees(self) -> bool:
        """Whether kernel and verification say the same; where hardware is missing the kernel has taken the module."""
        return (self.verdict in (Verdict.LOADED, Verdict.NEEDS_HARDWARE)) == (not self.refused_by_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """What plain dkms of the same base image did with a package: its release and exit code (77, 9: "not for it")."""

    driver: str
    kernel: str
    key: str
    dkms: str
    code: int

    @property
    def outcome(self) -> Outcome:
        """The code in the words of a build."""
        return {0: Outcome.BUILT, 9: Outcome.NOT_APPLICABLE, 77: Outcome.NOT_APPLICABLE}.get(self.code, Outcome.FAILED)


def default_path() -> Path:
    """Return where results are kept unless somebody names a file."""
    return cache_root() / "driver-matrix" / "results.jsonl"


class Results:
    """The results in a file, and the modules of each build in a folder beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.builds: dict[str, Build] = {}
        self.trials: dict[tuple[str, str], Trial] = {}
        self.plains: dict[str, Plain] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            fields: dict[str, Any] = json.loads(line)
            match fields.pop("kind"):
                case "build":
                    self._keep(Build(**{**fields, "outcome": Outcome(fields["outcome"])}))
                case "plain":
                    self._keep(Plain(**fields))
                case _:
                    self._keep(Trial(**{**fields, "verdict": Verdict(fields["verdict"])}))
        except (ValueError, KeyError, TypeError):
            # Half a line, of a run that was killed, or a line of an older form: its work is done again.
            return

    def _keep(self, record: Build | Trial | Plain) -> None:
        if isinstance(record, Build):
            self.builds[record.key] = record
        elif isinstance(record, Plain):
            self.plains[record.key] = record
        else:
            self.trials[record.key, record.running] = record

    def add(self, record: Build | Trial | Plain) -> None:
        """Keep a result, in the file too."""
        self._keep(record)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kind = type(record).__name__.lower()
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, **asdict(record)}) + "\n")

    def modules_folder(self, key: str) -> Path:
        """Return the folder for the modules of a build."""
        return self._path.parent / f"{self._path.stem}-modules" / key
