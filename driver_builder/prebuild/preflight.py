"""Would the drivers build for a kernel that no node runs yet? Each is built and verified, and nothing is rolled out.

The image is the same one that the plan would want for a node on that kernel: same inputs, same build key.
So the first node that boots the kernel finds an image that was pushed before. Reading, building and the clock
are arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import BuildFailed, ConfigurationError, DriverBuilderError
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.builds.failures import reason_of
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


class Verdict(StrEnum):
    """The result for a driver. The first three are good."""

    VERIFIED = "verified"
    PRESENT = "present"
    NOT_WANTED = "not wanted"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result for one driver; ``seconds`` is the time of its build.

    ``image`` is what a node would be given: by its digest, where that is known. ``notes`` are to be known besides.
    """

    driver: str
    kernel: str
    verdict: Verdict
    image: str = ""
    key: str = ""
    notes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    seconds: float = 0.0
    log_tail: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether a node may boot the kernel, for this driver."""
        return self.verdict is not Verdict.FAILED

    @property
    def is_temporary(self) -> bool:
        """Whether it may be otherwise later, without a change of the driver."""
        return not self.is_well and self.reason in TEMPORARY

    def as_document(self) -> Mapping[str, object]:
        """Return plain data, for programs."""
        return {
            "driver": self.driver,
            "kernel": self.kernel,
            "image": self.image,
            "key": self.key,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "message": self.message,
            "remedy": remedy_of(self.reason) if self.verdict is Verdict.FAILED else "",
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
        }


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

    def check(self, driver: DriverContainer) -> Result:
        """Build a driver for the target, unless its verified image exists already."""
        result = Result(driver=driver.key, kernel=self.target.kernel_version, verdict=Verdict.FAILED)
        if not isinstance(driver.spec, DriverSpec):
            return replace(result, reason=Reason.INVALID_SPEC.value, message=str(driver.spec))
        item = resolve_for(self.snapshot, driver, driver.spec, self.target, self.template_versions)
        return self.check_item(driver, driver.spec, item)

    def check_item(self, driver: DriverContainer, spec: DriverSpec, item: DesiredTarget | None) -> Result:
        """Build what a driver resolves to, unless its verified image exists already."""
        result = Result(driver=driver.key, kernel=self.target.kernel_version, verdict=Verdict.FAILED)
        if item is None:
            words = "spec.nodeSelector selects no node on this kernel, operating system and architecture"
            return replace(result, verdict=Verdict.NOT_WANTED, reason=Reason.NO_NODES.value, message=words)
        if isinstance(item, SkippedTarget | BlockedTarget):
            skipped = item.reason == Reason.SKIPPED_BY_MAPPING
            verdict = Verdict.NOT_WANTED if skipped else Verdict.FAILED
            return replace(result, verdict=verdict, reason=str(item.reason), message=item.message)
        result = replace(result, image=str(item.image), key=item.key)
        signed_by = image_trust.image_key(spec, item)
        architecture = self.target.architecture
        state = self.registries.inspect(driver.namespace, spec.registry, item.image, architecture, signed_by=signed_by)
        if isinstance(state, Present):
            return self._present(driver, spec, item, state, result)
        if isinstance(item, PrebuiltTarget):
            reason, why = _not_there(state)
            return replace(result, reason=reason.value, message=f"{item.image}: {why}")
        return self._build_with_symbols(driver, spec, item, result)

    def _present(
        self, driver: DriverContainer, spec: DriverSpec, item: ImageTarget, state: Present, result: Result
    ) -> Result:
        """Report an image that exists; one that no node would be given is a failure."""
        image = str(item.image.at(state.digest))
        refusal = image_trust.refusal(self.snapshot, driver, spec, item, state, before=None)
        if refusal is not None:
            return replace(result, image=image, reason=refusal.reason.value, message=refusal.message)
        return replace(result, verdict=Verdict.PRESENT, image=image, message=image)

    def _build_with_symbols(
        self, driver: DriverContainer, spec: DriverSpec, item: TargetToBuild, result: Result
    ) -> Result:
        exporters = []
        for exporter in item.exporters:
            architecture = self.target.architecture
            found = self.registries.inspect(driver.namespace, exporter.registry, exporter.image, architecture)
            if not isinstance(found, Present):
                words = f"the image of driver {exporter.driver}, whose symbols the build needs, does not exist yet"
                return replace(result, reason=Reason.WAITING_FOR_DEPENDENCY.value, message=words)
            exporters.append(replace(exporter, digest=found.digest))
        return self._build(start_build(driver, spec, item, item.request, exporters=tuple(exporters)), result)

    def _build(self, action: StartBuild, result: Result) -> Result:
        began = self.clock()
        try:
            digest = self.build(action)
        except DriverBuilderError as error:
            tail = error.log_tail if isinstance(error, BuildFailed) else ()
            return replace(
                result, reason=reason_of(error), message=str(error), seconds=self.clock() - began, log_tail=tail
            )
        image = str(action.image.at(digest) if digest else action.image)
        return replace(
            result, verdict=Verdict.VERIFIED, image=image, message=str(action.image), seconds=self.clock() - began
        )


def _not_there(state: Absent | NotAsked | NoAnswer) -> tuple[Reason, str]:
    """Return why a prebuilt image cannot be rolled out."""
    if isinstance(state, Absent | NotAsked):
        return Reason.IMAGE_MISSING, "it does not exist"
    return state.reason, state.message
