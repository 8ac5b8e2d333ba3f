"""Would the drivers build for a kernel that no node runs yet? Each is built and verified, and nothing is rolled out.

The image is the same one that the plan would want for a node on that kernel: same inputs, same build key.
So the first node that boots the kernel finds an image that was pushed before. Reading, building and the clock
are arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.check_result import CheckResult, Status
from driver_builder.base.errors import BuildFailed, ConfigurationError, DriverBuilderError
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.builds.failures import reason_of
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, NoAnswer, NotAsked, Present
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.nodes.changes import StartBuild
from driver_builder.rollout import image_trust
from driver_builder.rollout.plan_target import start_build
from driver_builder.snapshot.inspector import Inspector
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets.desired_target import (
    BlockedTarget,
    DesiredTarget,
    ImageTarget,
    PrebuiltTarget,
    SkippedTarget,
    TargetToBuild,
    TemplateVersions,
)
from driver_builder.targets.resolve_node import resolve_for

Build = Callable[[StartBuild], str]
"""Builds and verifies, and pushes if requested: then it returns the digest. Raises as the pipeline does."""

TEMPORARY = frozenset(
    {
        Reason.BUILDER_UNAVAILABLE, Reason.DISK_FULL, Reason.REGISTRY_FULL, Reason.REGISTRY_NOT_ASKED,
        Reason.REGISTRY_UNREACHABLE, Reason.REPOSITORY_UNAVAILABLE,
    }
)  # fmt: skip
"""Reasons that say nothing about the driver: the same build may succeed later."""


class Success(StrEnum):
    """How it is well with a driver: its image was built, was there, or is not for this kernel."""

    VERIFIED = "verified"
    PRESENT = "present"
    NOT_WANTED = "not wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResult(CheckResult):
    """The check of one driver, by its key, on one kernel; ``seconds`` is the time of its build.

    ``image`` is what a node would be given: by its digest, where that is known. ``notes``: further remarks.
    """

    kernel: str
    outcome: Success | None = None
    image: str = ""
    key: str = ""
    notes: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    log_tail: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The outcome, or that it has failed, in the word that users know."""
        return self.outcome or self.status

    @property
    def has_driver(self) -> bool:
        """Whether a node on the kernel gets the driver."""
        return self.is_ok and self.outcome is not Success.NOT_WANTED

    @property
    def is_temporary(self) -> bool:
        """Whether it may be otherwise later, without a change of the driver."""
        return not self.is_ok and self.reason in TEMPORARY

    def well(self, outcome: Success, message: str, **changes: Any) -> "PreflightResult":
        """Return that it is well with the driver."""
        return replace(self, status=Status.OK, outcome=outcome, message=message, remedy="", **changes)

    def bad(self, reason: str, message: str, **changes: Any) -> "PreflightResult":
        """Return why a node must not boot the kernel, for this driver."""
        return replace(
            self, status=Status.FAILED, reason=str(reason), message=message, remedy=remedy_of(reason), **changes
        )

    def fields(self) -> Mapping[str, object]:
        """Return plain data, for programs."""
        return {
            **self.as_document({"check": "driver", "message": "message", "remedy": "remedy"}),
            "kernel": self.kernel,
            "image": self.image,
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
        }


def unchecked(driver: DriverKey, kernel: str) -> PreflightResult:
    """Begin the result of a driver."""
    return PreflightResult(check=driver, kernel=kernel, status=Status.UNKNOWN, message="")


def parse_target(*, kernel: str, os: str, architecture: str) -> KernelTarget:
    """Read a target from the command line: ``os`` is ``debian:12``.

    Raises:
        ConfigurationError: naming the value that is wrong.
    """
    os_id, _, os_version = os.partition(":")
    try:
        return KernelTarget(
            kernel_version=KernelVersion(kernel), os_id=os_id, os_version=os_version, architecture=architecture
        )
    except ValueError as error:
        raise ConfigurationError(
            f"--kernel, --os, --arch: {error}; such as 6.1.0-55-amd64, debian:12, amd64"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Checks drivers against one target; ``push`` says that ``build`` pushes, ``clock`` counts seconds."""

    snapshot: Snapshot
    target: KernelTarget
    template_versions: TemplateVersions
    registries: Inspector
    build: Build
    clock: Callable[[], float]

    def check(self, driver: DriverContainer) -> PreflightResult:
        """Build a driver for the target, unless its verified image exists already."""
        if not isinstance(driver.spec, DriverSpec):
            return unchecked(driver.key, self.target.kernel_version).bad(Reason.INVALID_SPEC, str(driver.spec))
        item = resolve_for(self.snapshot, driver, driver.spec, self.target, self.template_versions)
        return self.check_item(driver, driver.spec, item)

    def check_item(self, driver: DriverContainer, spec: DriverSpec, item: DesiredTarget | None) -> PreflightResult:
        """Build what a driver resolves to, unless its verified image exists already."""
        result = unchecked(driver.key, self.target.kernel_version)
        if item is None:
            words = "spec.nodeSelector selects no node on this kernel, operating system and architecture"
            return result.well(Success.NOT_WANTED, words, reason=Reason.NO_NODES.value)
        if isinstance(item, SkippedTarget | BlockedTarget):
            if item.reason == Reason.SKIPPED_BY_MAPPING:
                return result.well(Success.NOT_WANTED, item.message, reason=str(item.reason))
            return result.bad(item.reason, item.message)
        result = replace(result, image=str(item.image), key=item.key)
        signed_by = image_trust.image_key(spec, item)
        architecture = self.target.architecture
        state = self.registries.inspect(driver.namespace, spec.registry, item.image, architecture, signed_by=signed_by)
        if isinstance(state, Present):
            return self._present(driver, spec, item, state, result)
        if isinstance(item, PrebuiltTarget):
            reason, why = _not_there(state)
            return result.bad(reason, f"{item.image}: {why}")
        return self._build_with_symbols(driver, spec, item, result)

    def _present(
        self, driver: DriverContainer, spec: DriverSpec, item: ImageTarget, state: Present, result: PreflightResult
    ) -> PreflightResult:
        """Report an image that exists; one that no node would be given is a failure."""
        image = str(item.image.at(state.digest))
        refusal = image_trust.refusal(self.snapshot, driver, spec, item, state, before=None)
        if refusal is not None:
            return result.bad(refusal.reason, refusal.message, image=image)
        return result.well(Success.PRESENT, image, image=image)

    def _build_with_symbols(
        self, driver: DriverContainer, spec: DriverSpec, item: TargetToBuild, result: PreflightResult
    ) -> PreflightResult:
        exporters = []
        for exporter in item.exporters:
            architecture = self.target.architecture
            found = self.registries.inspect(driver.namespace, exporter.registry, exporter.image, architecture)
            if not isinstance(found, Present):
                words = f"the image of driver {exporter.driver}, whose symbols the build needs, does not exist yet"
                return result.bad(Reason.WAITING_FOR_DEPENDENCY, words)
            exporters.append(replace(exporter, digest=found.digest))
        return self._build(start_build(driver, spec, item, item.request, exporters=tuple(exporters)), result)

    def _build(self, action: StartBuild, result: PreflightResult) -> PreflightResult:
        began = self.clock()
        try:
            digest = self.build(action)
        except DriverBuilderError as error:
            tail = error.log_tail if isinstance(error, BuildFailed) else ()
            return result.bad(reason_of(error), str(error), seconds=self.clock() - began, log_tail=tail)
        image = str(action.image.at(digest) if digest else action.image)
        return result.well(Success.VERIFIED, str(action.image), image=image, seconds=self.clock() - began)


def _not_there(state: Absent | NotAsked | NoAnswer) -> tuple[Reason, str]:
    """Return why a prebuilt image cannot be rolled out."""
    if isinstance(state, Absent | NotAsked):
        return Reason.IMAGE_MISSING, "it does not exist"
    return state.reason, state.message
