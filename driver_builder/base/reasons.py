"""Every reason that driver_builder reports, with its meaning and remedy.

Status, Events, metrics, ``explain``, the circuit breaker and ``docs/reasons.md`` (``make docs``) are made from it.
A message describes one case; the remedy is in this table and is added where a message is printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class TargetState(StrEnum):
    """The state of a target."""

    PENDING = "Pending"
    BUILDING = "Building"
    FAILED = "Failed"
    BLOCKED = "Blocked"
    ROLLING_OUT = "RollingOut"
    READY = "Ready"
    SKIPPED = "Skipped"
    NOT_APPLICABLE = "NotApplicable"


WITHOUT_DRIVER = frozenset({TargetState.SKIPPED, TargetState.NOT_APPLICABLE})
"""States of targets whose nodes need no driver: the admin or the driver itself says so."""


IN_TROUBLE = frozenset({TargetState.FAILED, TargetState.BLOCKED, TargetState.PENDING})
"""States of targets that make their driver Degraded."""


class Suspends(StrEnum):
    """Whose builds are suspended when several fail in a row for one reason."""

    NONE = ""
    OF_DRIVER = "those of the driver"
    ALL = "all"


class Reason(StrEnum):
    """Why a target, a build, a load or a condition has its state. The values are public and do not change."""

    # A target.
    KERNEL_MISMATCH = "KernelMismatch"
    WAITING_FOR_NODES = "WaitingForNodes"
    WAITING_FOR_CANARY = "WaitingForCanary"
    SOAKING = "Soaking"
    ROLLOUT_WAITING = "RolloutWaiting"
    ROLLOUT_HALTED = "RolloutHalted"
    VALIDATION_FAILED = "ValidationFailed"
    ALL_NODES_READY = "AllNodesReady"
    NO_KERNEL_MAPPING = "NoKernelMapping"
    SKIPPED_BY_MAPPING = "SkippedByMapping"
    NOT_APPLICABLE = "NotApplicable"
    SOURCE_MISSING = "SourceMissing"
    SIGNING_CERTIFICATE_MISSING = "SigningCertificateMissing"
    INVALID_SIGNING_CERTIFICATE = "InvalidSigningCertificate"
    UNSUPPORTED_OS = "UnsupportedOS"
    IMAGE_MISSING = "ImageMissing"
    TAG_MOVED = "TagMoved"
    WRONG_BUILD_KEY = "WrongBuildKey"
    IMAGE_NOT_SIGNED = "ImageNotSigned"
    NO_IDENTITY = "NoIdentity"
    BUILDS_SUSPENDED = "BuildsSuspended"
    TARGET_NAME_TAKEN = "TargetNameTaken"
    MODULE_CONFLICT = "ModuleConflict"
    NOT_ALLOWED = "NotAllowed"
    DEPENDENCY_NOT_FOUND = "DependencyNotFound"
    DEPENDENCY_CYCLE = "DependencyCycle"
    WAITING_FOR_DEPENDENCY = "WaitingForDependency"
    # Its registry.
    REGISTRY_NOT_ASKED = "RegistryNotAsked"
    REGISTRY_UNAUTHORIZED = "RegistryUnauthorized"
    REGISTRY_UNREACHABLE = "RegistryUnreachable"
    REGISTRY_INVALID = "RegistryInvalid"
    REGISTRY_FULL = "RegistryFull"
    REGISTRY_REJECTED = "RegistryRejected"
    # A build.
    HEADERS_MISSING = "HeadersMissing"
    COMPILE_ERROR = "CompileError"
    COMPILER_MISMATCH = "CompilerMismatch"
    TEMPLATE_INVALID = "TemplateInvalid"
    SIGNING_FAILED = "SigningFailed"
    REPOSITORY_UNAVAILABLE = "PackageRepositoryUnavailable"
    BASE_IMAGE_MISSING = "BaseImageMissing"
    DISK_FULL = "DiskFull"
    OUT_OF_MEMORY = "OutOfMemory"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BUILDER_UNAVAILABLE = "BuilderUnavailable"
    INVALID_CONFIGURATION = "InvalidConfiguration"
    API_SERVER_UNAVAILABLE = "ApiServerUnavailable"
    CANCELLED = "Cancelled"
    BUILD_ERROR = "BuildError"
    # What was built.
    WRONG_VERMAGIC = "WrongVermagic"
    WRONG_SYMBOL_CRC = "WrongSymbolCRC"
    MISSING_SYMBOL = "MissingSymbol"
    MISSING_NAMESPACE = "MissingNamespaceImport"
    GPL_ONLY_SYMBOL = "GPLOnlySymbol"
    DUPLICATE_SYMBOL = "DuplicateSymbol"
    WRONG_ARCHITECTURE = "WrongArchitecture"
    MODULE_MISSING = "ModuleMissing"
    DEPENDENCY_MISSING = "ModuleDependencyMissing"
    MODULE_NOT_SIGNED = "ModuleNotSigned"
    WRONG_MODULE_SIGNER = "WrongModuleSigner"
    MODULE_SIGNATURE_BROKEN = "ModuleSignatureBroken"
    NO_MODULE_IDENTITY = "NoModuleIdentity"
    USERSPACE_MISMATCH = "UserspaceMismatch"
    IMAGE_INVALID = "ImageInvalid"
    # The load report of a driver pod.
    LOAD_FAILED = "LoadFailed"
    PARAMETERS_DIFFER = "ParametersDiffer"
    NO_DEVICE = "NoDevice"
    DEVICE_NODE_MISSING = "DeviceNodeMissing"
    WRONG_KERNEL = "WrongKernel"
    NOT_LIVE = "NotLive"
    OTHER_BUILD = "OtherBuild"
    # A driver as a whole.
    INVALID_SPEC = "InvalidSpec"
    ACTION_REFUSED = "ActionRefused"
    FIELD_IGNORED = "FieldIgnored"
    NAMESPACE_FORBIDDEN = "NamespaceForbidden"
    INTERNAL_ERROR = "InternalError"
    NO_NODES = "NoMatchingNodes"
    PAUSED = "Paused"
    TARGETS_PENDING = "TargetsPending"
    NOTHING_TO_DO = "NothingToDo"
    NOTHING_WRONG = "AsExpected"
    UNLOADING = "Unloading"
    IN_USE = "InUse"
    STAYS_LOADED = "StaysLoaded"
    WAITING_FOR_DEPENDENTS = "WaitingForDependents"
    DRAIN_TIMEOUT = "DrainTimeout"
    DEPENDENT_NOT_UNLOADED = "DependentNotUnloaded"
    # Its stages.
    STAGES_READY = "StagesReady"
    WAITING_FOR_STAGE = "WaitingForStage"
    NO_DEVICE_AGENT = "NoDeviceAgent"
    STAGE_NAME_TAKEN = "StageNameTaken"
    RESOURCE_CONFLICT = "ResourceConflict"
    DEVICE_PLUGIN_FAILED = "DevicePluginFailed"
    RESOURCE_MISSING = "ResourceMissing"
    DRA_NOT_SERVED = "DRANotServed"
    RESOURCE_SLICES_NOT_READ = "ResourceSlicesNotRead"
    PLUGIN_VALIDATION_FAILED = "PluginValidationFailed"
    SERVICE_ACCOUNT_NOT_ALLOWED = "ServiceAccountNotAllowed"
    SERVICE_ACCOUNT_NOT_FOUND = "ServiceAccountNotFound"
    # The newest kernel of a package repository.
    BUILT_AHEAD = "BuiltAhead"
    NEWEST_KERNEL_RUNS = "NewestKernelRuns"
    NOT_LOOKED_UP = "NotLookedUp"
    DISCOVERY_FAILED = "LookUpFailed"
    # Events about what goes well.
    BUILD_STARTED = "BuildStarted"
    ROLLING_OUT = "RollingOut"
    TARGET_READY = "TargetReady"
    READY_FOR_KERNEL = "ReadyForKernel"
    # A NodeFeatureRule.
    INVALID_RULE = "InvalidRule"
    # A NodeFeature.
    LABEL_REFUSED = "LabelRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of a reason: a sentence, and the remedy for an admin (empty if there is none).

    ``suspends`` says whose builds are suspended when several fail in a row for it: the cause is outside of the
    driver, so the next build is likely to fail in the same way. ``states`` are those of the targets
    with the reason, none if no target has it; a target that is blocked by it has the first.
    """

    summary: str
    remedy: str = ""
    suspends: Suspends = Suspends.NONE
    states: tuple[TargetState, ...] = ()


def _means(summary: str, remedy: str = "", *states: TargetState, suspends: Suspends = Suspends.NONE) -> Meaning:
    return Meaning(summary=summary, remedy=remedy, states=states, suspends=suspends)


_PENDING, _FAILED, _BLOCKED = TargetState.PENDING, TargetState.FAILED, TargetState.BLOCKED
_LOADING = TargetState.ROLLING_OUT
_ALL, _OF_DRIVER = Suspends.ALL, Suspends.OF_DRIVER
SUSPENDED_TRIES = "one build is retried every minute, the rest resume when it succeeds"
"""The remedy of suspended builds."""

_TRY_AGAIN = "Nothing: the controller tries again by itself. If it lasts, "

_TARGETS = {
    Reason.KERNEL_MISMATCH: _means(
        "Nodes run a kernel without a verified driver; it is queued or being built. As a condition: some node's labels"
        " do not name its kernel",
        "Wait for the build, whose log driver-builder logs shows; for a node without kernel labels, see its nfd-worker",
        TargetState.BUILDING,
    ),
    Reason.WAITING_FOR_NODES: _means(
        "The image exists and nodes load it; the message names the first node that is not ready",
        "If it lasts, run driver-builder explain NODE for the node in the message",
        _LOADING,
    ),
    Reason.WAITING_FOR_CANARY: _means(
        "The nodes that go first get the new image; the others wait until it is proven there",
        "If it lasts, run driver-builder explain NODE for one of them",
        _LOADING,
    ),
    Reason.SOAKING: _means("The new image is proven on the nodes that go first, and is watched there", "", _LOADING),
    Reason.ROLLOUT_WAITING: _means(
        "The wave waits for a maintenance window, or for an admin's label on a node; the message says for which",
        "Wait for the window, label the next node, or change spec.rollout (docs/upgrades.md)",
        _LOADING,
    ),
    Reason.ROLLOUT_HALTED: _means(
        "The new image does not work on more nodes than spec.rollout.maxFailed allows, or an admin has undone the wave",
        "Run driver-builder explain NODE for the nodes in the message; then correct the driver: another spec, source or"
        " rebuild begins a new wave (docs/upgrades.md)",
        _BLOCKED,
    ),
    Reason.VALIDATION_FAILED: _means(
        "The command of spec.validation failed on a node; its modules are loaded, and it has no ready label",
        "Run driver-builder explain NODE for the node in the message: it prints how to see the log, and to run the"
        " command again. It runs again by itself after the next boot, and with another driver or command",
        _BLOCKED,
    ),
    Reason.ALL_NODES_READY: _means("The driver is proven to work on every node", "", TargetState.READY),
    Reason.NO_KERNEL_MAPPING: _means(
        "No rule of spec.kernelMappings matches the kernel: its nodes get no driver",
        "If they should have one, add a rule that matches the whole kernel release",
        TargetState.SKIPPED,
    ),
    Reason.SKIPPED_BY_MAPPING: _means(
        "A rule of spec.kernelMappings skips the kernel: its nodes get no driver",
        "If they should have one, remove skip or put another rule before it",
        TargetState.SKIPPED,
    ),
    Reason.NOT_APPLICABLE: _means(
        "The driver says that it does not support this kernel (dkms.conf); it is not tried again",
        "If the nodes should have the driver, use a version that supports this kernel",
        TargetState.NOT_APPLICABLE,
    ),
    Reason.SOURCE_MISSING: _means(
        "The source of the driver, or its custom template, does not exist or cannot be fetched",
        "Create what the message names, or correct spec.source and spec.build.templateConfigMap",
        _PENDING, _FAILED,
    ),
    Reason.SIGNING_CERTIFICATE_MISSING: _means(
        "The Secret with the signing certificate does not exist",
        "Create the Secret that the message names (docs/signing.md)",
        _PENDING,
    ),
    Reason.INVALID_SIGNING_CERTIFICATE: _means(
        "The Secret of the signing certificate holds no certificate of an RSA key",
        "Put the X.509 certificate of an RSA key into the Secret (docs/signing.md)",
        _PENDING,
    ),
    Reason.UNSUPPORTED_OS: _means(
        "There is no template or base image for this distribution",
        "Set spec.build.template and spec.build.baseImage (docs/templates.md)",
        _FAILED,
    ),
    Reason.IMAGE_MISSING: _means(
        "The prebuilt image of a mapping does not exist",
        "Push it, or remove image from the mapping so that driver-builder builds it",
        _FAILED,
    ),
    Reason.TAG_MOVED: _means(
        "The tag names another image than the one that was rolled out, which stays",
        "Find out who moved the tag; the command in the message accepts the new image (docs/registry.md)",
        _BLOCKED,
    ),
    Reason.WRONG_BUILD_KEY: _means(
        "The image under the tag is not the one that was built for it; what runs stays",
        "Remove the tag from the registry: the image is built again",
        _BLOCKED,
    ),
    Reason.IMAGE_NOT_SIGNED: _means(
        "The image is not signed with the key of spec.signing.imageKeySecretRef; what runs stays",
        "Sign it with cosign sign --key, or rebuild it with annotation driverwright.io/rebuild (docs/signing.md)",
        _BLOCKED,
    ),
    Reason.NO_IDENTITY: _means(
        "The image does not say which modules it has, so nothing could prove that they run; what runs stays",
        "Label the image, or set spec.module.trustImage (docs/registry.md)",
        _BLOCKED,
    ),
    Reason.BUILDS_SUSPENDED: _means(
        "Five builds in a row failed for one reason outside the drivers",
        f"Fix the cause above; {SUSPENDED_TRIES}",
        _BLOCKED,
    ),
    Reason.TARGET_NAME_TAKEN: _means(
        "The objects of this target would have the names of another kernel's; nothing is rolled out to its nodes",
        "Check the kernel labels of its nodes, or skip the kernel in spec.kernelMappings",
        _BLOCKED,
    ),
    Reason.MODULE_CONFLICT: _means(
        "Another driver has one of the modules on these nodes, removes or blacklists it: nothing is touched there",
        "Let only one of the two drivers name the module, or select different nodes (spec.nodeSelector)",
        _BLOCKED, _LOADING, TargetState.BUILDING,
    ),
    Reason.NOT_ALLOWED: _means(
        "The settings of driver-builder do not allow what a field of the spec names; what runs stays",
        "Change the field that the message names, or have the setting in the message changed (docs/security.md)",
        _BLOCKED,
    ),
    Reason.DEPENDENCY_NOT_FOUND: _means(
        "A driver that spec.dependsOn names does not exist; what runs stays",
        "Create that DriverContainer in the same namespace, or correct spec.dependsOn",
        _BLOCKED,
    ),
    Reason.DEPENDENCY_CYCLE: _means(
        "Drivers depend on each other, so that none of them could be loaded first; what runs stays",
        "Remove spec.dependsOn from one driver of the cycle",
        _BLOCKED,
    ),
    Reason.WAITING_FOR_DEPENDENCY: _means(
        "A driver that spec.dependsOn names has no image yet, has not loaded its modules on the node, or has an invalid"
        " spec",
        "Wait for that driver: driver-builder explain NODE says what it lacks. If it is not meant for the node, correct"
        " the nodeSelector of one of the two",
        _BLOCKED, _LOADING,
    ),
}  # fmt: skip

_REGISTRIES = {
    Reason.REGISTRY_NOT_ASKED: _means(
        "The registry has not answered yet", "Wait: the controller continues when it answers", _PENDING
    ),
    Reason.REGISTRY_UNAUTHORIZED: _means(
        "The registry refused the credentials, or there are none, or the controller may not read their Secret",
        "Correct the Secret of spec.registry.secretRef: it must allow to push; or give the controller its Role",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.REGISTRY_UNREACHABLE: _means(
        "The registry gives no answer, a server error, or a limit on requests",
        _TRY_AGAIN + "check that the controller reaches the registry",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.REGISTRY_INVALID: _means(
        "What answers is not a registry, returns other content than it should, or its CA cannot be used",
        "Check spec.image, spec.registry.plainHttp, spec.registry.caConfigMap and proxies before the registry",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.REGISTRY_FULL: _means(
        "The registry has no room: its disk is full, or a quota is used up",
        "Remove images that no node needs and collect garbage, or enlarge the registry's disk or the project's quota",
        _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.REGISTRY_REJECTED: _means(
        "The registry does not accept the image: too large, or against one of its rules",
        "Change the limit or rule that the message quotes, of the registry or of a proxy before it",
        _FAILED,
    ),
}  # fmt: skip

_BUILDS = {
    Reason.HEADERS_MISSING: _means(
        "No package repository of the base image has headers for this kernel",
        "Move the nodes to a kernel whose headers are published, or name an archive that has them as HEADERS_MIRROR in"
        " spec.build.args or in spec.build.baseImage",
        _FAILED,
    ),
    Reason.COMPILE_ERROR: _means(
        "The source does not compile for this kernel, or does not build a module of the spec",
        "Use a version of the driver that supports this kernel, or fix its source: a change is built at once",
        _FAILED,
    ),
    Reason.COMPILER_MISMATCH: _means(
        "The kernel or the driver needs another compiler than the base image has",
        "Set spec.build.baseImage to an image with that compiler",
        _FAILED,
    ),
    Reason.TEMPLATE_INVALID: _means(
        "The template, or the Dockerfile made from it, is invalid or leaves out something that is needed",
        "Correct the template, or the field, that the message names (docs/templates.md)",
        _FAILED,
    ),
    Reason.SIGNING_FAILED: _means(
        "The signing key cannot be used: missing, encrypted, of another kind, expired, or not that of the certificate",
        "Correct the Secret that the message names (docs/signing.md)",
        _FAILED,
    ),
    Reason.REPOSITORY_UNAVAILABLE: _means(
        "A package repository of the distribution does not answer, or not as it should",
        "Check network, proxy and name resolution where builds run",
        _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.BASE_IMAGE_MISSING: _means(
        "The base image cannot be pulled",
        "Check spec.build.baseImage, the credentials for its registry, and that builds reach it",
        _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.DISK_FULL: _means(
        "A disk is full: the build engine's, that of the node that builds, or the controller's",
        "Give the disk that the message names more room; prune the build engine, or build on other nodes",
        _FAILED, suspends=_ALL,
    ),
    Reason.OUT_OF_MEMORY: _means(
        "The compiler or the linker ran out of memory",
        "Give the build engine more memory (for a Job: limits.memory of spec.build.resources), or lower make's -j",
        _FAILED,
    ),
    Reason.DEADLINE_EXCEEDED: _means(
        "The build did not end within its deadline",
        "Raise spec.build.deadline or --build-deadline-seconds, or give builds more CPU",
        _FAILED,
    ),
    Reason.BUILDER_UNAVAILABLE: _means(
        "The build engine does not answer or went away; or no node runs the build's Job, or its pod was lost",
        "Check that the build engine runs and is reachable (--docker-host); for a Job, what keeps its pod from running",
        _FAILED, suspends=_ALL,
    ),
    Reason.INVALID_CONFIGURATION: _means(
        "A file or Secret that the controller is configured with is invalid",
        "Correct what the message names",
        _FAILED, suspends=_OF_DRIVER,
    ),
    Reason.API_SERVER_UNAVAILABLE: _means(
        "The API server did not answer while the build read from it",
        _TRY_AGAIN + "check the API server",
        _FAILED, suspends=_ALL,
    ),
    Reason.CANCELLED: _means("The build was cancelled: no node needs its image any more, or the controller stops"),
    Reason.BUILD_ERROR: _means(
        "The build failed for a reason that is not known",
        "Find the first error in its log (driver-builder logs), and fix the source or the template",
        _FAILED,
    ),
}  # fmt: skip

_FIT = "Build the modules from source, against the headers of this kernel, together with the modules they use"
_VERSION = "Use a version of the driver for this kernel, or fix its source"
_SIGN = "Sign the modules with the key of the certificate, after they are stripped and before they are compressed"

_VERIFICATIONS = {
    Reason.WRONG_VERMAGIC: _means("A module was built for another kernel or configuration", _FIT, _FAILED),
    Reason.WRONG_SYMBOL_CRC: _means("A module was built against other declarations than the kernel's", _FIT, _FAILED),
    Reason.MISSING_SYMBOL: _means(
        "A module needs symbols that neither the kernel nor the image exports",
        "Add the module that exports them to the driver, or use a version of the driver for this kernel",
        _FAILED,
    ),
    Reason.MISSING_NAMESPACE: _means(
        "A module uses symbols of a namespace that it does not import: the kernel would refuse it",
        "Add MODULE_IMPORT_NS to its source, or use a version of the driver for this kernel",
        _FAILED,
    ),
    Reason.GPL_ONLY_SYMBOL: _means(
        "A module whose license is not compatible with the GPL uses GPL-only symbols: the kernel would refuse it",
        _VERSION,
        _FAILED,
    ),
    Reason.DUPLICATE_SYMBOL: _means(
        "A module exports symbols that the kernel or another module exports: the kernel would refuse it",
        "Remove one of the two modules from the driver, or rename its symbols",
        _FAILED,
    ),
    Reason.WRONG_ARCHITECTURE: _means(
        "A module was built for another architecture", "Build on a builder of the nodes' architecture", _FAILED
    ),
    Reason.MODULE_MISSING: _means(
        "The image lacks a module of spec.module.names",
        "Name the modules as their files are named, with _ for -, or correct the template",
        _FAILED,
    ),
    Reason.DEPENDENCY_MISSING: _means(
        "A module depends on one that is neither in the image nor part of the kernel",
        "Build that module with the driver and add it to spec.module.names",
        _FAILED,
    ),
    Reason.MODULE_NOT_SIGNED: _means("A module is not signed, and spec.signing asks for it", _SIGN, _FAILED),
    Reason.WRONG_MODULE_SIGNER: _means(
        "A module is signed by another key than that of the certificate",
        "Sign with the key of that certificate, or give the certificate of that key (docs/signing.md)",
        _FAILED,
    ),
    Reason.MODULE_SIGNATURE_BROKEN: _means(
        "A module was changed after it was signed, or its signature is of a kind that cannot be verified",
        "Sign as the kernel's sign-file does, with an RSA key, and change nothing in the file after that",
        _FAILED,
    ),
    Reason.NO_MODULE_IDENTITY: _means(
        "A module has neither srcversion nor build id, so it could not be recognised once loaded",
        "Add MODULE_VERSION to its source",
        _FAILED,
    ),
    Reason.USERSPACE_MISMATCH: _means(
        "The user space of spec.userspace has another version than the modules",
        "Take both from one release of the driver, or correct spec.userspace.versionFile",
        _FAILED,
    ),
    Reason.IMAGE_INVALID: _means(
        "A module or an index (modules.dep, modules.alias) in the image is damaged, missing, doubled or unreadable",
        "Correct the template: install each module once, under its own name, and run depmod -b after all are there",
        _FAILED,
    ),
}  # fmt: skip

_CHANGED = "Find out what else loads or unloads this module on the node; the pod loads it again"

_LOADS = {
    Reason.LOAD_FAILED: _means(
        "The kernel refused a module, or a module that has to go is in use: the message names what holds it",
        "End what uses it on the node, or correct what the kernel refuses: dmesg there has its own words",
        _LOADING,
    ),
    Reason.PARAMETERS_DIFFER: _means(
        "The module is live with other parameters than the spec's, and in use",
        "End what uses the module on the node: it is then loaded with the parameters of the spec",
        _LOADING,
    ),
    Reason.NO_DEVICE: _means(
        "The module is live, and no device is bound to it",
        "Check that the device is there and that no other driver has it: lspci -nnk on the node",
        _LOADING,
    ),
    Reason.DEVICE_NODE_MISSING: _means(
        "The modules are live, and a device node of spec.validation.deviceNodes is not there",
        "Check that the device is there, what udev or the driver calls its node, and spec.validation.deviceNodes",
        _LOADING,
    ),
    Reason.WRONG_KERNEL: _means(
        "The node runs another kernel than its labels say",
        "Wait for nfd-worker to label the node; if it lasts, see its pod on the node",
        _LOADING,
    ),
    Reason.NOT_LIVE: _means("A module that was loaded is not live any more", _CHANGED, _LOADING),
    Reason.OTHER_BUILD: _means("Another build of a module that was loaded is live", _CHANGED, _LOADING),
}

_DRIVERS = {
    Reason.INVALID_SPEC: _means(
        "A field of the spec is invalid; the message names it",
        "Correct the field (docs/drivercontainer.md)",
    ),
    Reason.ACTION_REFUSED: _means(
        "The API server refused a write of the controller",
        "Correct what its answer names: a field of the spec, an admission policy, or the controller's Role",
        _FAILED,
    ),
    Reason.NAMESPACE_FORBIDDEN: _means(
        "The controller, or you, cannot read the namespace: nothing changes for its drivers",
        "Grant the Role of deploy/driver-builder in that namespace, or remove the namespace from --namespace",
    ),
    Reason.INTERNAL_ERROR: _means(
        "A bug, or an unexpected value: nothing changes for this driver, others go on",
        "Report the traceback from the log, with the output of driver-builder snapshot; until it is fixed, revert the"
        " last change to what the message names",
        _FAILED,
    ),
    Reason.FIELD_IGNORED: _means(
        "The spec sets a field of an earlier version, which has no effect any more",
        "Remove the field that the message names: the next version does not have it (docs/drivercontainer.md)",
    ),
    Reason.NO_NODES: _means(
        "No selected node runs a kernel this driver supports",
        "Compare spec.nodeSelector and spec.kernelMappings with the nodes: driver-builder explain NODE",
        TargetState.SKIPPED,
    ),
    Reason.PAUSED: _means(
        "Annotation driverwright.io/pause is set: nothing is built, rolled out or loaded again",
        "Remove the annotation to resume",
    ),
    Reason.TARGETS_PENDING: _means("Images are being built or rolled out"),
    Reason.NOTHING_TO_DO: _means("Nothing is being built or rolled out"),
    Reason.NOTHING_WRONG: _means("Nothing is wrong"),
    Reason.UNLOADING: _means("The driver is being unloaded from nodes that it leaves"),
    Reason.IN_USE: _means(
        "The driver leaves nodes on which its modules are in use",
        "End what uses them: unloading is tried until --unload-deadline-seconds, then they stay until the next boot",
    ),
    Reason.WAITING_FOR_DEPENDENTS: _means(
        "The driver is deleted, and other drivers still depend on it: it stays until they are gone",
        "Delete the drivers that the message names, or remove this one from their spec.dependsOn",
    ),
    Reason.STAYS_LOADED: _means(
        "Modules of the driver stay loaded on nodes that it left", "Reboot the nodes when it suits you"
    ),
    Reason.DRAIN_TIMEOUT: _means(
        "Nodes were not drained before the deadline: they keep their driver, and the wave takes other nodes",
        "End the pods that the message names, or change their PodDisruptionBudget or the field of rollout.drain that it"
        " names: nodes are tried again, at once without driverwright.io/draining (docs/upgrades.md)",
    ),
    Reason.DEPENDENT_NOT_UNLOADED: _means(
        "A driver that depends on this one cannot be unloaded on nodes: they keep both, and the wave takes other nodes",
        "End what uses the modules that the message names, or name it in rollout.drain: the controller"
        " tries the nodes again, at once without their annotation driverwright.io/draining (docs/upgrades.md)",
    ),
}

_STAGES = {
    Reason.STAGES_READY: _means("Every node with the driver has the label of the last stage of spec.stages"),
    Reason.WAITING_FOR_STAGE: _means(
        "Nodes with the driver have not reached the last stage of spec.stages; the message names the first",
        "If it lasts, run driver-builder explain NODE for the node in the message",
    ),
    Reason.NO_DEVICE_AGENT: _means(
        "A resource is described for the device agent, and driver-builder has no image of the agent",
        "Set --device-agent-image of driver-builder, or name the image of another device plugin",
    ),
    Reason.STAGE_NAME_TAKEN: _means(
        "A DaemonSet or a ConfigMap with the name of the device plugin's exists, and the driver does not control it:"
        " it is left alone, and the driver has no device plugin",
        "Rename or delete the object that the message names, or give the driver another name",
    ),
    Reason.RESOURCE_CONFLICT: _means(
        "Another driver offers the same resource on the node, and keeps it: the stages of this one do not come there",
        "Name different resources (spec.stages.devicePlugin), or select different nodes (spec.nodeSelector)",
    ),
    Reason.DEVICE_PLUGIN_FAILED: _means(
        "The pod of the device plugin does not run on a node",
        "Check its pod on the node in the message: kubectl describe pod, kubectl logs",
    ),
    Reason.RESOURCE_MISSING: _means(
        "The device plugin runs on a node, and the kubelet has none of its resource; or a DRA driver runs there, and no"
        " ResourceSlice has a device of it",
        "Read the log of the plugin's pod on the node in the message: it found no healthy device, or could not"
        " register; a DRA driver also needs the right to create ResourceSlices",
    ),
    Reason.DRA_NOT_SERVED: _means(
        "The device plugin is a DRA driver, and the API server does not have resource.k8s.io/v1 (Kubernetes 1.34)",
        "Upgrade the cluster, or use a device plugin: spec.stages.devicePlugin without dra",
    ),
    Reason.RESOURCE_SLICES_NOT_READ: _means(
        "The device plugin is a DRA driver, and driver-builder may not read ResourceSlices: nodes keep the label .plug"
        " that they have, and get none",
        "Apply deploy/driver-builder/dra.yaml (chart: driverBuilder.draDriverAccounts)",
    ),
    Reason.PLUGIN_VALIDATION_FAILED: _means(
        "The command of spec.stages.pluginValidation failed on a node, which has no label .plgok",
        "Run driver-builder explain NODE for the node in the message: it prints how to see the log, and to run the"
        " command again",
    ),
    Reason.SERVICE_ACCOUNT_NOT_ALLOWED: _means(
        "The settings of driver-builder do not allow the account that spec.stages.devicePlugin.nvidia or .dra names in"
        " serviceAccountName: with nvidia, devices are there, and the label of a node selects no profile; a DRA driver"
        " is not started",
        "Name the account in --device-agent-accounts of driver-builder, that of a DRA driver in --dra-driver-accounts,"
        " or remove it from the spec",
    ),
    Reason.SERVICE_ACCOUNT_NOT_FOUND: _means(
        "The account that spec.stages.devicePlugin.nvidia or .dra names in serviceAccountName does not exist, or"
        " driver-builder may not read it: with nvidia, devices are there, and the label of a node selects no profile; a"
        " DRA driver is not started. Pods that had the account's token before it could not be read keep it",
        "Create the account, with its roles (device-agent admission-policy --account, or what the DRA driver's vendor"
        " says), and allow driver-builder to get it (docs/stages.md)",
    ),
}

_KERNELS = {
    Reason.BUILT_AHEAD: _means(
        "The newest kernel of the repository has a verified image, or needs none", "", TargetState.READY
    ),
    Reason.NEWEST_KERNEL_RUNS: _means(
        "No node runs an older kernel than the repository's newest", "", TargetState.READY
    ),
    Reason.NOT_LOOKED_UP: _means(
        "The newest kernel of the repository is not known yet",
        "Wait for kernel discovery; if the repository has no kernel of this stream, check the nodes' labels",
        _PENDING,
    ),
    Reason.DISCOVERY_FAILED: _means(
        "Kernel discovery failed, and has not succeeded yet",
        _TRY_AGAIN + "check that builds reach the package repository",
        _PENDING,
    ),
}

_NEWS = {
    Reason.BUILD_STARTED: _means("A build was queued or started", "", TargetState.BUILDING),
    Reason.ROLLING_OUT: _means("The image exists; the nodes get it", "", _LOADING),
    Reason.TARGET_READY: _means("The driver is proven to work on every node of the target", "", TargetState.READY),
    Reason.READY_FOR_KERNEL: _means("The newest kernel has a verified image", "", TargetState.READY),
    Reason.INVALID_RULE: _means(
        "A NodeFeatureRule is invalid and is not given to the workers", "Correct the rule that the message names"
    ),
    Reason.LABEL_REFUSED: _means(
        "A label of a NodeFeature is not set on its node",
        "Correct the label that the message names; where somebody else has set it, one of the two has to let it go",
    ),
}

SECTIONS: Mapping[str, Mapping[Reason, Meaning]] = MappingProxyType({
    "Targets": _TARGETS,
    "Registries": _REGISTRIES,
    "Builds": _BUILDS,
    "Verification of what was built": _VERIFICATIONS,
    "Load reports of driver pods": _LOADS,
    "The driver as a whole": _DRIVERS,
    "Stages": _STAGES,
    "Newest kernels": _KERNELS,
    "Events": _NEWS,
})  # fmt: skip
"""The table, in the sections of the printed page."""

REASONS: Mapping[Reason, Meaning] = MappingProxyType({
    reason: meaning for part in SECTIONS.values() for reason, meaning in part.items()
})  # fmt: skip


def meaning_of(word: str) -> Meaning | None:
    """Return the meaning of a word in a status or a log; None for a word of another version."""
    try:
        return REASONS[Reason(word)]
    except ValueError:
        return None


def remedy_of(word: str) -> str:
    """Return the remedy of a reason; empty if there is none, or the reason is unknown."""
    meaning = meaning_of(word)
    return meaning.remedy if meaning is not None else ""


def suspends(word: str) -> Suspends:
    """Return whose builds are suspended when several fail in a row for a reason."""
    meaning = meaning_of(word)
    return meaning.suspends if meaning is not None else Suspends.NONE


def with_remedy(word: str, message: str) -> str:
    """Add the remedy of its reason to a message."""
    remedy = remedy_of(word)
    if not (message and remedy):
        return message or remedy
    return f"{message}{' ' if message.endswith('.') else '. '}{remedy}"


def without_remedy(word: str, text: str) -> str:
    """Remove what :func:`with_remedy` added."""
    remedy = remedy_of(word)
    if not remedy or not text.endswith(remedy):
        return text
    return text.removesuffix(remedy).removesuffix(" ").removesuffix(".")
