"""Why a build failed, in one word and one sentence, out of what it printed; and the word for any error of ours.

Place in the flow: builders call :func:`classify` when a build ends without an image; whoever tells of an error asks
:func:`reason_of`. Pure: text in, words out. The exit codes below 128 are those our templates end their commands with;
the texts are those of apt, make, GCC, modpost and of the container engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driver_builder.building.linear_patterns import Match, Pattern, compiled
from driver_builder.errors import (
    BuildFailed,
    BuildFailure,
    ConfigurationError,
    DriverBuilderError,
    RegistryFull,
    RegistryRefused,
    RegistryRejected,
    RegistryUnauthorised,
    RegistryUnavailable,
    VerificationFailed,
)
from driver_builder.planning.status import Reason
from kube_api.errors import KubeApiError

HEADERS_NOT_FOUND = 64
COMPILE_FAILED = 65
MODULE_NOT_BUILT = 66
REPOSITORY_UNREACHABLE = 67
SOURCE_NOT_FOUND = 68
NOT_FOR_THIS_KERNEL = 69
KILLED = 137

_REASONS: tuple[tuple[type[DriverBuilderError], Reason], ...] = (
    (RegistryFull, Reason.REGISTRY_FULL),
    (RegistryUnavailable, Reason.REGISTRY_UNREACHABLE),
    (RegistryUnauthorised, Reason.REGISTRY_UNAUTHORIZED),
    (RegistryRejected, Reason.REGISTRY_REJECTED),
    (RegistryRefused, Reason.REGISTRY_INVALID),
    (ConfigurationError, Reason.INVALID_CONFIGURATION),
)
"""The first that an error is: a kind stands before the one it is a kind of."""

_DISK_FULL = compiled(r"(?i)no space left on device|disk quota exceeded")
_OUT_OF_MEMORY = compiled(
    r"(?i)Killed signal terminated program|virtual memory exhausted|Cannot allocate memory|: out of memory"
)
_MISMATCH = compiled(
    r"(?P<text>unrecognized command[- ]line option.*|incompatible gcc/plugin versions.*|cannot load plugin .*"
    r"|Compiler version check failed.*|(?:make(?:\[\d+\])?: )?(?:\S*-)?(?:gcc|clang)(?:-[\d.]+)?:"
    r" (?:(?:command )?not found|No such file or directory))"
)
"""GCC about options and plugins of another GCC, make and the shell about a compiler that is not there."""
_COMPILER = compiled(r"(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)")
_MODPOST = compiled(r"ERROR: modpost: (?P<text>.*)")
_MAKE = compiled(r"make(?:\[\d+\])?: \*\*\* (?P<text>.*)")
_GAVE_UP = compiled(r"make(?:\[\d+\])?: \*\*\* .*Error \d+$")
"""What make says of a command that failed: the command itself has said why."""
_OBJECT = compiled(r"make(?:\[\d+\])?: \*\*\* \[(?:[^\]]*: )?(?P<stem>[^\]\s]+)\.o\] Error \d+")
"""An object that make gave up on."""
_NO_MAKEFILE = compiled(r"No targets specified and no makefile found|(?:Makefile|Kbuild): No such file or directory")
_PACKAGE = compiled(r"E: (?:Unable to locate package|Couldn't find any package by \w+) '?(?P<package>[^\s']+)")
_NO_CANDIDATE = compiled(r"E: Package '(?P<package>[^']+)' has no installation candidate")
_FETCH = compiled(r"[EW]: (?:Failed to fetch|The repository) '?(?P<text>\S+ .*)")
_FATAL = compiled(r"^(?:fatal|E|tar): (?P<text>.*)")
"""Why git, apt and tar give up."""
_NOT_SAID = compiled(r"\s*\d* +\||(?:\[\d+/\d+\] )?(?:Step|STEP) \d+/\d+ ?:|Removing intermediate container| ---> ")
"""Source that GCC quotes (``  223 | text``), a command that the engine announces: text nobody says about a failure."""
_SAID = compiled(r"^driverwright: (?P<text>.*)")
"""What our templates say before they exit."""
_LOOKING = compiled(r"^driverwright: looking for ")
"""Said before a failure is known."""
_NOWHERE = "is in none of these places"
"""How they end what they say when they have looked everywhere."""
_LOOKED = compiled(r"^driverwright: looking for .*? in (?P<place>.*)")
_STEP = compiled(r"(?:Step|STEP) (?P<number>\d+)/\d+ ?: (?P<command>.*)")
_PULL = compiled(
    r"pull access denied for (?P<denied>[^\s,]+)|manifest for (?P<unknown>\S+) not found|manifest unknown"
    r"|repository \S+ not found|name unknown|failed to resolve reference|toomanyrequests|no basic auth credentials"
    r"|unauthorized|Get \"https?://(?P<host>[^/\"]+)|No such image: (?P<image>\S+)"
    r"|no stage or image found with that name"
)
_COPY = compiled(
    r"(?:COPY|ADD) failed|file not found in build context|(?:stat|lstat):? \S+: (?:file does not exist|no such file)"
)
_DOCKERFILE = compiled(r"(?i)dockerfile parse error|unknown instruction|failed to reach build target")


def reason_of(error: DriverBuilderError | KubeApiError) -> str:
    """The word for an error in status, Events and metrics; what is said of no class of its own is the builder's."""
    if isinstance(error, BuildFailed | VerificationFailed):
        return error.reason.value
    if isinstance(error, KubeApiError):
        return (Reason.API_SERVER_UNAVAILABLE if error.is_temporary else Reason.ACTION_REFUSED).value
    known = (reason for kind, reason in _REASONS if isinstance(error, kind))
    return next(known, BuildFailure.BUILDER_UNAVAILABLE).value


@dataclass(frozen=True, slots=True)
class _Failure:
    """``said`` are the lines of ``log`` without those that _NOT_SAID names."""

    exit_code: int | None
    error: str
    log: Sequence[str]
    said: Sequence[str]

    def first(self, *patterns: Pattern) -> Match | None:
        """The first line of the log, then of the error, that one of the patterns is found in."""
        lines = (*self.said, *(line for line in self.error.splitlines() if not _NOT_SAID.match(line)))
        return next((match for line in lines for pattern in patterns if (match := pattern.search(line))), None)

    def words(self) -> Match | None:
        """What a template said about the failure, other than where it looks for headers."""
        return self.without(_LOOKING).first(_SAID)

    def without(self, pattern: Pattern) -> "_Failure":
        """The same without the lines that the pattern is found in."""
        return replace(self, said=[line for line in self.said if not pattern.search(line)])

    def compiler_error(self) -> Match | None:
        """The first error in the source of the object that make gave up on last; without one, the first of all.

        Before they compile, drivers try out what a kernel has on small sources of which some are to fail.
        """
        errors = [match for line in self.said if (match := _COMPILER.search(line))]
        objects = [match["stem"] for line in self.said if (match := _OBJECT.search(line))]
        own = [match for match in errors if objects and match["file"].rpartition(".")[0] == objects[-1]]
        return next(iter(own or errors), self.first(_COMPILER))

    @property
    def step(self) -> str:
        """The Dockerfile's command that was running, as the engine announced it."""
        steps = [match["command"] for line in self.log if (match := _STEP.search(line))]
        return steps[-1] if steps else ""


def classify(exit_code: int | None, error: str, log: Sequence[str]) -> tuple[BuildFailure, str]:
    """The class of a failure, and a message that says what failed and what to do next.

    ``exit_code`` is that of the failed command (None when no command failed), ``error`` the engine's own words, ``log``
    the lines printed so far.
    """
    said = [line for line in log if not _NOT_SAID.match(line)]
    failure = _Failure(exit_code, error.encode(errors="replace").decode(), log, said)
    if failure.first(_DISK_FULL):
        return BuildFailure.DISK_FULL, "the disk of the build engine is full; prune it or give it more room"
    if exit_code == KILLED or failure.first(_OUT_OF_MEMORY):
        return BuildFailure.OUT_OF_MEMORY, "the build ran out of memory; give the build engine more, or lower make's -j"
    by_code = {
        HEADERS_NOT_FOUND: _headers_missing,
        COMPILE_FAILED: _compile_error,
        MODULE_NOT_BUILT: _module_not_built,
        REPOSITORY_UNREACHABLE: _repository_unreachable,
        SOURCE_NOT_FOUND: _source_missing,
        NOT_FOR_THIS_KERNEL: _not_applicable,
    }
    if exit_code in by_code:
        return by_code[exit_code](failure)
    return _engine_error(failure) if exit_code is None else _unknown(failure)


def _headers_missing(failure: _Failure) -> tuple[BuildFailure, str]:
    match, said = failure.first(_PACKAGE, _NO_CANDIDATE), failure.words()
    places = ", ".join(dict.fromkeys(found["place"] for line in failure.log if (found := _LOOKED.match(line))))
    if said and not said["text"].endswith(_NOWHERE):
        return BuildFailure.HEADERS_MISSING, said["text"]
    if said and places:
        return (
            BuildFailure.HEADERS_MISSING,
            f"{said['text']} (looked in: {places}); name a repository that has it as HEADERS_MIRROR in spec.build.args,"
            " or move the nodes to a kernel whose headers are published",
        )
    package = match["package"] if match else "with the kernel's headers"
    return (
        BuildFailure.HEADERS_MISSING,
        f"package {package} is in no package repository of the base image; add the archive that still has it to the"
        " base image, or move the nodes to a kernel whose headers are published",
    )


def _repository_unreachable(failure: _Failure) -> tuple[BuildFailure, str]:
    match = failure.first(_FETCH) or failure.words()
    what = match["text"].strip() if match else "apt update failed"
    return (
        BuildFailure.REPOSITORY_UNAVAILABLE,
        f"the package repositories failed: {what}; check network, proxy and name service of the build engine",
    )


def _compile_error(failure: _Failure) -> tuple[BuildFailure, str]:
    if match := failure.first(_MISMATCH):
        return (
            BuildFailure.COMPILER_MISMATCH,
            f"the compiler is not the one that kernel or driver ask for: {match['text'].strip()}; give a base image"
            " that has it in spec.build.baseImage",
        )
    if failure.first(_NO_MAKEFILE):
        return BuildFailure.SOURCE_MISSING, "the source has no Makefile in its top folder; add one with obj-m := NAME.o"
    if match := failure.compiler_error():
        where = f"{match['file']}:{match['line']}: {match['text']}"
        advice = "the driver's source does not fit this kernel's interfaces; use a version that supports it"
    elif match := failure.without(_GAVE_UP).first(_MODPOST, _MAKE):
        where, advice = match["text"], "mend the driver's source or its Makefile"
    else:
        where, advice = _last_line(failure), "read the log"
    return BuildFailure.COMPILE_ERROR, f"the driver does not compile: {where}; {advice}"


def _module_not_built(failure: _Failure) -> tuple[BuildFailure, str]:
    match = failure.words()
    said = match["text"] if match else _last_line(failure)
    return (
        BuildFailure.COMPILE_ERROR,
        f"a wanted module was not built: {said}; compare the names in the driver's spec with obj-m in its Makefile",
    )


def _source_missing(failure: _Failure) -> tuple[BuildFailure, str]:
    said, fatal = failure.words(), failure.first(_FATAL)
    what = said["text"] if said else _last_line(failure)
    why = f" ({fatal['text']})" if fatal else ""
    return BuildFailure.SOURCE_MISSING, f"the driver's source cannot be had: {what}{why}; check spec.source"


def _not_applicable(failure: _Failure) -> tuple[BuildFailure, str]:
    match = failure.words()
    return BuildFailure.NOT_APPLICABLE, match["text"] if match else "the driver is not for this kernel"


def _engine_error(failure: _Failure) -> tuple[BuildFailure, str]:
    if _DOCKERFILE.search(failure.error):
        return BuildFailure.TEMPLATE_INVALID, f"the engine does not accept the Dockerfile: {failure.error}"
    if _COPY.search(failure.error):
        return (
            BuildFailure.SOURCE_MISSING,
            f"{failure.step or 'a COPY'} found nothing: {failure.error}; check the path in the source image",
        )
    if _PULL.search(failure.error):
        return _cannot_pull(failure)
    return _unknown(failure)


def _cannot_pull(failure: _Failure) -> tuple[BuildFailure, str]:
    """``FROM`` names the base image, ``COPY --from`` the source image; the engine's words are the same for both."""
    is_source = failure.step.startswith(("COPY", "ADD"))
    reason = BuildFailure.SOURCE_MISSING if is_source else BuildFailure.BASE_IMAGE_MISSING
    what = "source image" if is_source else "base image"
    return (
        reason,
        f"the {what} cannot be pulled ({failure.step}): {failure.error}; check its name, that the build engine reaches"
        " its registry, and the credentials",
    )


def _unknown(failure: _Failure) -> tuple[BuildFailure, str]:
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    step = f" in {failure.step!r}" if failure.step else ""
    return BuildFailure.UNKNOWN, f"the build failed{code}{step}: {failure.error or _last_line(failure)}; read the log"


def _last_line(failure: _Failure) -> str:
    return next((line.strip() for line in reversed(failure.said) if line.strip()), failure.error)
