"""How results are told: a line for each build, and the matrix of drivers and kernels for a page of docs. Pure."""

from collections.abc import Sequence
from statistics import median

from bench.matrix.drivers import DRIVERS
from bench.matrix.results import Build, Outcome, Results, Trial, Verdict
from driver_builder.cli.output import table

MIB = 1 << 20
HEADERS = ("DRIVER", "KERNEL", "RESULT", "VERIFIED", "LOADED", "REFUSED ELSEWHERE (verification / kernel)", "IMAGE", "SECONDS")  # fmt: skip # noqa: E501


def row(build: Build, results: Results) -> tuple[str, ...]:
    """One line of the table."""
    size = "-" if build.image_bytes is None else f"{build.image_bytes / MIB:.1f} MiB"
    verified = "-" if build.verified is None else f"{build.verified} of {len(DRIVERS[build.driver])}"
    result = f"{build.outcome}: {build.reason}" if build.outcome is Outcome.FAILED else build.outcome.value
    at_home = results.trials.get((build.key, build.kernel))
    loaded = "-" if at_home is None else " ".join([at_home.verdict.value, at_home.said]).strip()
    abroad = "; ".join(_abroad(trial) for trial in _trials_elsewhere(build, results)) or "-"
    return build.driver, build.kernel, result, verified, loaded, abroad, size, f"{build.seconds:.0f}"


def _trials_elsewhere(build: Build, results: Results) -> list[Trial]:
    return [trial for (key, running), trial in results.trials.items() if key == build.key and running != build.kernel]


def _abroad(trial: Trial) -> str:
    ours = trial.refused_by_us.partition(":")[0] or "CRCs equal"
    theirs = trial.verdict.value
    return f"{trial.running}: {ours} / {theirs}{'' if trial.agrees else ' (THEY DISAGREE)'}"


def sentence(trial: Trial) -> str:
    """Say what became of a driver on a kernel, as it happens."""
    words = f"{trial.driver} of {trial.kernel} on {trial.running}: {trial.verdict} {trial.said}".rstrip()
    return f"{words} | verification: {trial.refused_by_us or 'CRCs equal'}"[:400]


def text(builds: Sequence[Build], results: Results) -> str:
    """Lay out the table, the sums and what was said about each driver that was not built."""
    return "\n".join([
        table(HEADERS, [row(build, results) for build in builds]),
        "",
        sums(builds, results),
        *(f"\n{build.driver} for {build.kernel}: {build.message}" for build in builds if build.message),
    ])  # fmt: skip


def sums(builds: Sequence[Build], results: Results) -> str:
    """Count how builds and trials ended, and how often verification and kernel agree."""
    keys = {build.key: build.kernel for build in builds}
    trials = [trial for trial in results.trials.values() if trial.key in keys]
    home = [trial for trial in trials if trial.running == keys[trial.key]]
    abroad = [trial for trial in trials if trial.running != keys[trial.key]]
    return "\n".join([
        ", ".join(f"{sum(b.outcome is o for b in builds)} {o.value}" for o in Outcome) + f" of {len(builds)} builds",
        "on their own kernel: " + ", ".join(f"{sum(t.verdict is v for t in home)} {v.value}" for v in Verdict),
        f"on another kernel: {sum(bool(t.refused_by_us) for t in abroad)} of {len(abroad)} refused by verification,"
        f" {sum(t.verdict is Verdict.REFUSED for t in abroad)} by the kernel;"
        f" they agree in {sum(t.agrees for t in abroad)}",
        *_beside_plain(builds, results),
    ])  # fmt: skip


def _beside_plain(builds: Sequence[Build], results: Results) -> list[str]:
    """Say how many verdicts are those of plain dkms, and which are not."""
    pairs = [(build, results.plains[build.key]) for build in builds if build.key in results.plains]
    other = [
        f"{build.driver} for {build.kernel}: {build.outcome}, plain dkms {plain.outcome} ({plain.code})"
        for build, plain in pairs
        if build.outcome is not plain.outcome
    ]
    releases = ", ".join(sorted({plain.dkms for _, plain in pairs}))
    if not pairs:
        return []
    return [f"as plain dkms ({releases}) on the same base image: {len(pairs) - len(other)} of {len(pairs)}", *other]


def markdown(builds: Sequence[Build], results: Results) -> str:
    """Write the matrix of kernels and drivers, each driver's size and time, the refusals, and why builds failed."""
    kernels = list(dict.fromkeys(build.kernel for build in builds))
    drivers = [name for name in DRIVERS if any(build.driver == name for build in builds)]
    by_place = {(build.driver, build.kernel): build for build in builds}
    matrix = [[kernel, *(_cell(by_place.get((name, kernel)), results) for name in drivers)] for kernel in kernels]
    return "\n\n".join([
        _grid(["kernel", *(name.removesuffix("-dkms") for name in drivers)], matrix),
        _grid(["driver", "version", "built", "image, MiB", "seconds, median (range)"],
              [_of_driver([build for build in builds if build.driver == name]) for name in drivers]),
        _grid(["built for", "tried on", "drivers", "refused by verification", "refused by the kernel", "disagree"],
              _refusals(builds, results)),
        _grid(["driver", "why", "kernels"], _failures(builds)),
        "```\n" + sums(builds, results) + "\n```",
    ])  # fmt: skip


def _cell(build: Build | None, results: Results) -> str:
    if build is None:
        return "not run"
    if build.outcome is not Outcome.BUILT:
        return f"**{build.outcome}**" if build.outcome is Outcome.FAILED else build.outcome.value
    trial = results.trials.get((build.key, build.kernel))
    return "built, not tried" if trial is None else trial.verdict.value


def _of_driver(builds: Sequence[Build]) -> list[str]:
    sizes = [f"{build.image_bytes / MIB:.1f}" for build in builds if build.image_bytes]
    seconds = [build.seconds for build in builds]
    return [
        builds[0].driver,
        builds[0].version,
        f"{sum(build.outcome is Outcome.BUILT for build in builds)} of {len(builds)}",
        _range(sizes) if sizes else "-",
        f"{median(seconds):.0f} ({min(seconds):.0f} to {max(seconds):.0f})",
    ]


def _range(sizes: Sequence[str]) -> str:
    lowest, highest = min(sizes, key=float), max(sizes, key=float)
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _failures(builds: Sequence[Build]) -> list[list[str]]:
    """What was said, once for all kernels of which it was said; a message that names its kernel says KERNEL."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for build in builds:
        if build.outcome is not Outcome.BUILT:
            said = build.message.replace(build.kernel, "KERNEL")
            kernels.setdefault((build.driver, f"{build.reason}: {said}"), []).append(build.kernel)
    return [[driver, why, ", ".join(named)] for (driver, why), named in kernels.items()]


def _refusals(builds: Sequence[Build], results: Results) -> list[list[str]]:
    home = {build.key: build.kernel for build in builds}
    pairs: dict[tuple[str, str], list[Trial]] = {}
    for trial in results.trials.values():
        if trial.key in home and trial.running != home[trial.key]:
            pairs.setdefault((home[trial.key], trial.running), []).append(trial)
    return [
        [
            kernel,
            running,
            str(len(trials)),
            str(sum(bool(trial.refused_by_us) for trial in trials)),
            str(sum(trial.verdict is Verdict.REFUSED for trial in trials)),
            ", ".join(trial.driver for trial in trials if not trial.agrees) or "none",
        ]
        for (kernel, running), trials in pairs.items()
    ]


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
