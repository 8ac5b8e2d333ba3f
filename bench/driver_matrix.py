"""Which real drivers build for which real kernels, load there, and are refused elsewhere.

``python bench/driver_matrix.py`` takes three drivers and two kernels; ``make driver-matrix`` all of them, for hours.
Each driver is built by the product itself: ``DockerBuilder`` with the template of Debian in a real engine of its own
(``testbed``), then verified against the kernel's Module.symvers, as before every push. What was built for
a kernel is loaded on it in QEMU, and tried on kernels it was not built for: on the nearest one, and on the nearest
whose CRCs differ. There, verification and the kernel should say the same.

With ``--debian trixie`` the kernels, packages and base image are those of that Debian release and its backports, and a
driver is tried on the other kernels of the same run. With ``--plain`` each package is also given to plain dkms on the
same base image (:mod:`bench.matrix.plain`): both verdicts should be the same.

Results go to a file as they come (``--results``); what is in it is not done again. Ctrl-C ends the run and prints what
there is. The first build of a kernel installs its headers, the first of all the compiler too.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import docker

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.matrix import building, drivers, loading, plain, reporting  # noqa: E402
from bench.matrix.kernels import choose_kernels, elsewhere, known_kernels  # noqa: E402
from bench.matrix.results import Build, Outcome, Results, Trial, Verdict, default_path  # noqa: E402
from driver_builder.base.errors import TemporaryError  # noqa: E402
from driver_builder.builds.docker.docker_builder import DockerBuilder  # noqa: E402
from driver_builder.builds.docker.docker_engine import docker_engine  # noqa: E402
from driver_builder.model.build import BuildRequest  # noqa: E402
from testbed.base_image import ensure_base_image  # noqa: E402
from testbed.errors import TestbedError  # noqa: E402
from testbed.guest import emulation  # noqa: E402
from testbed.kernels import find_kernel, find_symvers, module_layout  # noqa: E402
from testbed.packages import ensure_packages  # noqa: E402
from testbed.progress import Progress, for_terminal  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the matrix and print it; 1 when an archive, a name or the engine does not do."""
    options = _parser().parse_args(arguments)
    debian = options.debian
    matrix = Matrix(results=Results(options.results), progress=for_terminal(), codename=debian, has_plain=options.plain)
    try:
        chosen_kernels = choose_kernels(options.kernels, debian)
        versions = drivers.choose_drivers(options.drivers, debian)
        wanted = {
            kernel: [drivers.request(name, version, kernel, debian) for name, version in versions.items()]
            for kernel in chosen_kernels
        }
        if not options.known:
            matrix.fill(wanted)
    except (TestbedError, TemporaryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: this is what there is; the next run goes on from here", file=sys.stderr)
    requests = [request for requests in wanted.values() for request in requests]
    print(_told([matrix.results.builds[r.key] for r in requests if r.key in matrix.results.builds], matrix, options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Build real third-party drivers for the kernels of Debian's archives, load them, see them refused."
    )
    names = ", ".join(drivers.DRIVERS)
    few = ",".join(drivers.FEW_DRIVERS)
    parser.add_argument("--drivers", default=few, help=f"all, or some of {names} (default %(default)s)")
    parser.add_argument(
        "--kernels",
        default="newest",
        help="all, newest (of the oldest series, cloud and generic), series (the newest cloud kernel of each), so many"
        " (the most telling first), or releases"
        " (default %(default)s)",
    )
    parser.add_argument(
        "--debian", default="", choices=[*drivers.DEBIANS], help="a Debian release (default: the tree's)"
    )
    parser.add_argument("--plain", action="store_true", help="give each package to plain dkms as well")
    parser.add_argument("--results", type=Path, default=default_path(), metavar="FILE", help="default %(default)s")
    parser.add_argument("--known", action="store_true", help="build and boot nothing: print what the file has")
    parser.add_argument("-o", "--output", choices=("table", "json", "markdown"), default="table")
    return parser


def _told(builds: Sequence[Build], matrix: "Matrix", options: argparse.Namespace) -> str:
    if options.output == "markdown":
        return reporting.markdown(builds, matrix.results)
    if options.output == "table":
        return reporting.text(builds, matrix.results)
    keys = {build.key for build in builds}
    trials = [asdict(trial) for trial in matrix.results.trials.values() if trial.key in keys]
    return json.dumps({"builds": [asdict(build) for build in builds], "trials": trials}, indent=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Fills the results, kernel by kernel, so that all drivers for one find its headers in the engine's cache."""

    results: Results
    progress: Progress
    codename: str = ""
    has_plain: bool = False

    def fill(self, wanted: Mapping[str, Sequence[BuildRequest]]) -> None:
        """Build what is not built, and try what is not tried."""
        ensure_packages(emulation.PACKAGES)
        symvers = find_symvers(list(wanted) if self.codename else known_kernels(), self.progress)
        layouts = {release: module_layout(path.read_text(), release) for release, path in symvers.items()}
        missing = sum(self._misses(request) for requests in wanted.values() for request in requests)
        done = 0
        with self._builder(is_needed=missing > 0) as builder:
            for kernel, requests in wanted.items():
                for request in requests:
                    if self._misses(request) and builder:
                        done += 1
                        self._build(builder, request, done, missing)
                for running in [kernel, *elsewhere(kernel, layouts)]:
                    self._try(requests, running)

    def _misses(self, request: BuildRequest) -> bool:
        lacks_plain = self.has_plain and plain.is_asked(request) and request.key not in self.results.plains
        return lacks_plain or request.key not in self.results.builds

    @contextmanager
    def _builder(self, *, is_needed: bool) -> Iterator[tuple[DockerBuilder, docker.APIClient] | None]:
        if not is_needed:
            yield None
            return
        with (
            Testbed.start(control_plane=False, nodes=False, host_node=False, progress=self.progress) as ground,
            docker_engine(ground.engine.socket) as api,
        ):
            if self.codename:
                ensure_base_image(api, self.codename, self.progress)
            yield DockerBuilder(api), api

    def _build(
        self, engine: tuple[DockerBuilder, docker.APIClient], request: BuildRequest, number: int, count: int
    ) -> None:
        name = f"[{number}/{count}] {request.driver.partition('/')[2]} for {request.target.kernel_version}"
        with self.progress.step(name) as step:
            step.percent(100 * (number - 1) / count)
            builder, api = engine
            if self.has_plain and plain.is_asked(request) and request.key not in self.results.plains:
                self.results.add(plain.ask(api, request))
            if request.key in self.results.builds:
                return
            keep = self.results.modules_folder(request.key)
            found = building.build(builder, request, keep=keep, log=step.detail)
        print(f"{name}: {found.outcome} {found.message}".rstrip(), file=sys.stderr, flush=True)
        if not building.is_outside(found):
            self.results.add(found)

    def _try(self, requests: Sequence[BuildRequest], running: str) -> None:
        """Boot a kernel once for all drivers that were not tried on it yet; again without one that it died of."""
        home = str(requests[0].target.kernel_version)
        while todo := list(self._untried(requests, running)):
            kernel = find_kernel(running, self.progress)
            name = f"Try {len(todo)} drivers for {home} on {running}"
            with self.progress.step(name), tempfile.TemporaryDirectory() as folder:
                found = loading.try_on(kernel, todo, Path(folder))
            for candidate in todo:
                verdict, said = found[candidate.driver]
                against = "" if running == home else loading.refused_by_us(candidate, kernel)
                trial = Trial(
                    driver=candidate.driver,
                    kernel=home,
                    key=candidate.key,
                    running=running,
                    verdict=verdict,
                    said=said,
                    refused_by_us=against,
                )
                self.results.add(trial)
                print(f"  {reporting.sentence(trial)}", file=sys.stderr, flush=True)
                if verdict is Verdict.DIED:
                    break

    def _untried(self, requests: Sequence[BuildRequest], running: str) -> Iterator[loading.Candidate]:
        for request in requests:
            build = self.results.builds.get(request.key)
            if build and build.outcome is Outcome.BUILT and (request.key, running) not in self.results.trials:
                yield loading.Candidate(
                    driver=build.driver,
                    key=build.key,
                    folder=self.results.modules_folder(build.key),
                    parameters={module.name: module.parameters for module in request.modules},
                )


if __name__ == "__main__":
    sys.exit(main())
