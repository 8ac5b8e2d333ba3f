"""Why a build failed, as a reason and a sentence, from what it printed; and the reason of any error of ours.

Place in the flow: builders call :func:`classify` when a build ends without an image; reports of an error call
:func:`reason_of`. Pure: text in, reason out. The exit codes below 128 are those that our templates end commands with;
the texts are those of apt, make, GCC, modpost and of the container engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driver_builder.base.errors import (
    BuildFailed,
    ConfigurationError,
    DriverBuilderError,
    RegistryFull,
    RegistryRefused,
    RegistryRejected,
    RegistryUnauthorized,
    RegistryUnavailable,
    VerificationFailed,
)
from driver_builder.base.reasons import Reason
from driver_builder.builds.linear_patterns import Match, Pattern, compiled
from driver_builder.model.build_proxy import CA_FIELD
from kube_api.errors import KubeApiError

HEADERS_NOT_FOUND = 64
COMPILE_FAILED = 65
MODULE_NOT_BUILT = 66
REPOSITORY_UNREACHABLE = 67
SOURCE_NOT_FOUND = 68
NOT_FOR_THIS_KERNEL = 69
KILLED = 137

_FETCHING = (HEADERS_NOT_FOUND, REPOSITORY_UNREACHABLE, SOURCE_NOT_FOUND)
_UNTRUSTED = f"; the certificate of a server is not trusted: if a private CA signed it, name that in {CA_FIELD}"

_REASONS: tuple[tuple[type[DriverBuilderError], Reason], ...] = (
    (RegistryFull, Reason.REGISTRY_FULL),
    (RegistryUnavailable, Reason.REGISTRY_UNREACHABLE),
    (RegistryUnauthorized, Reason.REGISTRY_UNAUTHORIZED),
    (RegistryRejected, Reason.REGISTRY_REJECTED),
    (RegistryRefused, Reason.REGISTRY_INVALID),
    (ConfigurationError, Reason.INVALID_CONFIGURATION),
)
"""The first match counts: a subclass stands before its base class."""

_DISK_FULL = compiled(r"(?i)no space left on device|disk quota exceeded")
_OUT_OF_MEMORY = compiled(
    r"(?i)Killed signal terminated program|virtual memory exhausted|Cannot allocate memory|: out of memory"
)
_MISMATCH = compiled(
    r"(?P<text>unrecognized command[- ]line option.*|incompatible gcc/plugin versions.*|cannot load plugin .*"
    r"|Compiler version check failed.*|(?:make(?:\[\d+\])?: )?(?:\S*-)?(?:gcc|clang)(?:-[\d.]+)?:"
    r" (?:(?:command )?not found|No such file or directory))"
)
"""GCC about options and plugins of another GCC; make and the shell about a missing compiler."""
_COMPILER = compiled(r"(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)")
_MODPOST = compiled(r"ERROR: modpost: (?P<text>.*)")
_MAKE = compiled(r"make(?:\[\d+\])?: \*\*\* (?P<text>.*)")
_GAVE_UP = compiled(r"make(?:\[\d+\])?: \*\*\* .*Error \d+$")
"""What make prints of a failed command: the command itself has printed why."""
_OBJECT = compiled(r"make(?:\[\d+\])?: \*\*\* \[(?:[^\]]*: )?(?P<stem>[^\]\s]+)\.o\] Error \d+")
"""An object that make gave up on."""
_NO_MAKEFILE = compiled(r"No targets specified and no makefile found|(?:Makefile|Kbuild): No such file or directory")
_PACKAGE = compiled(r"E: (?:Unable to locate package|Couldn't find any package by \w+) '?(?P<package>[^\s']+)")
_NO_CANDIDATE = compiled(r"E: Package '(?P<package>[^']+)' has no installation candidate")
_FETCH = compiled(r"[EW]: (?:Failed to fetch|The repository) '?(?P<text>\S+ .*)")
_FATAL = compiled(r"^(?:fatal|E|tar): (?P<text>.*)")
"""Why git, apt and tar give up."""
_NOT_SAID = compiled(r"\s*\d* +\||(?:\[\d+/\d+\] )?(?:Step|STEP) \d+/\d+ ?:|Removing intermediate container| ---> ")
"""Source that GCC quotes (``  223 | text``), and commands that the engine announces: neither describes a failure."""
_NOT_TRUSTED = compiled(
    r"(?i)certificate (?:verification|verify) failed|SSL certificate problem|No system certificates available"
    r"|certificate is not trusted"
)
"""What apt, curl, git, dnf and zypper say of a server whose CA they do not know."""
_SAID = compiled(r"^driverwright: (?P<text>.*)")
"""What our templates print before they exit."""
_LOOKING = compiled(r"^driverwright: looking for ")
"""Printed before a failure is known."""
_NOWHERE = "is in none of these places"
"""How their last message ends after all places were searched."""
_LOOKED = compiled(r"^driverwright: looking for .*? in (?P<place>.*)")
_STEP = compiled(r"(?:Step|STEP) (?P<number>\d+)/\d+ ?: (?P<command>.*)")
_PULL = compiled(
    r"pull access denied for (?P<denied>[^\s,]+)|manifest for (?P<unknown>\S+) not found|manifest unknown"
    r"|repository \S+ not found|name unknown|failed to resolve reference|toomanyrequests|no basic auth credentials"
    r"|unauthorized|Get \"https?://(?P<host>[^/\"]+)|No such image: (?P<image>\S+)"
    r"|no stage or image found with that name|reading manifest \S+ in \S+: |pinging container registry "
)
"""What Docker, buildah 1.28 and buildah 1.43 say. The last says no more than ``authentication required`` of a 401."""
_COPY = compiled(
    r"(?:COPY|ADD) failed|file not found in build context|(?:stat|lstat):? \S+: (?:file does not exist|no such file)"
)
_DOCKERFILE = compiled(
    r"(?i)dockerfile parse error|unknown instruction|requires a FROM instruction|failed to reach build target"
)


def reason_of(error: DriverBuilderError | KubeApiError) -> str:
    """The reason of an error in status, Events and metrics; an error without a reason of its own is the builder's."""
    if isinstance(error, BuildFailed | VerificationFailed):
        return error.reason.value
    if isinstance(error, KubeApiError):
        return (Reason.API_SERVER_UNAVAILABLE if error.is_temporary else Reason.ACTION_REFUSED).value
    known = (reason for kind, reason in _REASONS if isinstance(error, kind))
    return next(known, Reason.BUILDER_UNAVAILABLE).value


@dataclass(frozen=True, slots=True)
class _Failure:
    """``said`` are the lines of ``log`` without those that _NOT_SAID names."""

    exit_code: int | None
    error: str
    log: Sequence[str]
    said: Sequence[str]

    def first(self, *patterns: Pattern) -> Match | None:
        """The first line of the log, then of the error, that matches one of the patterns."""
        lines = (*self.said, *(line for line in self.error.splitlines() if not _NOT_SAID.match(line)))
        return next((match for line in lines for pattern in patterns if (match := pattern.search(line))), None)

    def words(self) -> Match | None:
        """What a template printed about the failure, except where it looks for headers."""
        return self.without(_LOOKING).first(_SAID)

    def without(self, pattern: Pattern) -> "_Failure":
        """The same without the lines that match the pattern."""
        return replace(self, said=[line for line in self.said if not pattern.search(line)])

    def compiler_error(self) -> Match | None:
        """The first error in the source of the object that make gave up on last; without one, the first of all.

        Before they compile, drivers probe a kernel's interfaces with small sources, some of which are meant to fail.
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


def classify(exit_code: int | None, error: str, log: Sequence[str]) -> tuple[Reason, str]:
    """The reason of a failure, and a message that says what failed.

    ``exit_code`` is that of the failed command (None when no command failed), ``error`` the engine's own words, ``log``
    the lines printed so far.
    """
    said = [line for line in log if not _NOT_SAID.match(line)]
    failure = _Failure(exit_code, error.encode(errors="replace").decode(), log, said)
    if failure.first(_DISK_FULL):
        return Reason.DISK_FULL, "the disk of the build engine is full"
    if exit_code == KILLED or failure.first(_OUT_OF_MEMORY):
        return Reason.OUT_OF_MEMORY, "the build ran out of memory"
    by_code = {
        HEADERS_NOT_FOUND: _headers_missing,
        COMPILE_FAILED: _compile_error,
        MODULE_NOT_BUILT: _module_not_built,
        REPOSITORY_UNREACHABLE: _repository_unreachable,
        SOURCE_NOT_FOUND: _source_missing,
        NOT_FOR_THIS_KERNEL: _not_applicable,
    }
    if exit_code in by_code:
        reason, words = by_code[exit_code](failure)
        return reason, words + (_UNTRUSTED if exit_code in _FETCHING and failure.first(_NOT_TRUSTED) else "")
    return _engine_error(failure) if exit_code is None else _unknown(failure)


def _headers_missing(failure: _Failure) -> tuple[Reason, str]:
    match, said = failure.first(_PACKAGE, _NO_CANDIDATE), failure.words()
    places = ", ".join(dict.fromkeys(found["place"] for line in failure.log if (found := _LOOKED.match(line))))
    if said and not said["text"].endswith(_NOWHERE):
        return Reason.HEADERS_MISSING, said["text"]
    if said and places:
        return (
            Reason.HEADERS_MISSING,
            f"{said['text']} (looked in: {places})",
        )
    package = match["package"] if match else "with the kernel's headers"
    return (
        Reason.HEADERS_MISSING,
        f"package {package} is in no package repository of the base image",
    )


def _repository_unreachable(failure: _Failure) -> tuple[Reason, str]:
    match = failure.first(_FETCH) or failure.words()
    what = match["text"].strip() if match else "apt update failed"
    return (
        Reason.REPOSITORY_UNAVAILABLE,
        f"the package repositories failed: {what}",
    )


def _compile_error(failure: _Failure) -> tuple[Reason, str]:
    if match := failure.first(_MISMATCH):
        return (
            Reason.COMPILER_MISMATCH,
            f"the compiler is not the one that the kernel or the driver needs: {match['text'].strip()}",
        )
    if failure.first(_NO_MAKEFILE):
        return Reason.SOURCE_MISSING, "the source has no Makefile in its top folder; add one with obj-m := NAME.o"
    if match := failure.compiler_error():
        where = f"{match['file']}:{match['line']}: {match['text']}"
    elif match := failure.without(_GAVE_UP).first(_MODPOST, _MAKE):
        where = match["text"]
    else:
        where = _last_line(failure)
    return Reason.COMPILE_ERROR, f"the driver does not compile: {where}"


def _module_not_built(failure: _Failure) -> tuple[Reason, str]:
    match = failure.words()
    said = match["text"] if match else _last_line(failure)
    return (
        Reason.COMPILE_ERROR,
        f"a module of the spec was not built: {said}; compare spec.module.names with obj-m in the Makefile",
    )


def _source_missing(failure: _Failure) -> tuple[Reason, str]:
    said, fatal = failure.words(), failure.first(_FATAL)
    what = said["text"] if said else _last_line(failure)
    why = f" ({fatal['text']})" if fatal else ""
    # What is said of a field names it.
    words = what if "spec." in what else f"the driver's source cannot be used: {what}"
    return Reason.SOURCE_MISSING, f"{words}{why}"


def _not_applicable(failure: _Failure) -> tuple[Reason, str]:
    match = failure.words()
    return Reason.NOT_APPLICABLE, match["text"] if match else "the driver does not support this kernel"


def _engine_error(failure: _Failure) -> tuple[Reason, str]:
    if _DOCKERFILE.search(failure.error):
        return Reason.TEMPLATE_INVALID, f"the engine does not accept the Dockerfile: {failure.error}"
    if _COPY.search(failure.error):
        return (
            Reason.SOURCE_MISSING,
            f"{failure.step or 'a COPY'} found nothing: {failure.error}; check the path in the source image",
        )
    if _PULL.search(failure.error):
        return _cannot_pull(failure)
    return _unknown(failure)


def _cannot_pull(failure: _Failure) -> tuple[Reason, str]:
    """``FROM`` names the base image, ``COPY --from`` the source image; the engine's words are the same for both."""
    is_source = failure.step.startswith(("COPY", "ADD"))
    reason = Reason.SOURCE_MISSING if is_source else Reason.BASE_IMAGE_MISSING
    what = "source image" if is_source else "base image"
    return (
        reason,
        f"the {what} cannot be pulled ({failure.step}): {failure.error}",
    )


def _unknown(failure: _Failure) -> tuple[Reason, str]:
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    step = f" in {failure.step!r}" if failure.step else ""
    return Reason.BUILD_ERROR, f"the build failed{code}{step}: {failure.error or _last_line(failure)}"


def _last_line(failure: _Failure) -> str:
    return next((line.strip() for line in reversed(failure.said) if line.strip()), failure.error)
