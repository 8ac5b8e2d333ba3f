"""Every reason that driver_builder reports, with its meaning and remedy.

Status, Events, metrics, ``explain``, the circuit breaker and ``docs/reasons.md`` (``make docs``) are made from it.
A message describes one case; the remedy is in this table and is added where a message is printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of a reason: a sentence, and the remedy for an admin (empty if there is none).

    ``section`` is where the printed page has it. ``suspends`` says whose builds are suspended when several fail in a
    row for it: the cause is outside of the driver, so the next build is likely to fail in the same way. ``states`` are
    those of the targets with the reason, none if no target has it; a target that is blocked by it has the first.
    """

    word: str
    section: str
    summary: str
    remedy: str = ""
    suspends: Suspends = Suspends.NONE
    states: tuple[TargetState, ...] = ()


def _row(
    section: str, word: str, summary: str, remedy: str = "", *states: TargetState, suspends: Suspends = Suspends.NONE
) -> Meaning:
    return Meaning(word=word, section=section, summary=summary, remedy=remedy, states=states, suspends=suspends)


_SECTIONS = (
    "Targets",
    "Registries",
    "Builds",
    "Verification of what was built",
    "Load reports of driver pods",
    "The driver as a whole",
    "Stages",
    "Newest kernels",
    "Events",
)
(
    _target, _registry, _build, _verification, _load, _driver, _stage, _kernel, _news,
) = (partial(_row, section) for section in _SECTIONS)  # fmt: skip
_PENDING, _FAILED, _BLOCKED = TargetState.PENDING, TargetState.FAILED, TargetState.BLOCKED
_LOADING = TargetState.ROLLING_OUT
_ALL, _OF_DRIVER = Suspends.ALL, Suspends.OF_DRIVER
SUSPENDED_TRIES = "one build is retried every minute, the rest resume when it succeeds"
"""The remedy of suspended builds."""

_TRY_AGAIN = "Nothing: the controller tries again by itself. If it lasts, "
_FIT = "Build the modules from source, against the headers of this kernel, together with the modules they use"
_VERSION = "Use a version of the driver for this kernel, or fix its source"
_SIGN = "Sign the modules with the key of the certificate, after they are stripped and before they are compressed"
_CHANGED = "Find out what else loads or unloads this module on the node; the pod loads it again"


class Reason(StrEnum):
    """Why a target, a build, a load or a condition has its state. The words are public and do not change."""

    _value_: str
    meaning: Meaning

    def __new__(cls, meaning: Any) -> "Reason":
        """Make the word of a row; a reason is called with its word."""
        made = str.__new__(cls, meaning.word)
        made._value_, made.meaning = meaning.word, meaning
        return made

    # fmt: off
    # The rows are in the order of the page: exploded, the table would be half as long again.
    KERNEL_MISMATCH = _target("KernelMismatch",
        "Nodes run a kernel without a verified driver; it is queued or being built. As a condition: some node's labels"
        " do not name its kernel",
        "Wait for the build, whose log driver-builder logs shows; for a node without kernel labels, see its nfd-worker",
        TargetState.BUILDING,
    )
    WAITING_FOR_NODES = _target("WaitingForNodes",
        "The image exists and nodes load it; the message names the first node that is not ready",
        "If it lasts, run driver-builder explain NODE for the node in the message",
        _LOADING,
    )
    WAITING_FOR_CANARY = _target("WaitingForCanary",
        "The nodes that go first get the new image; the others wait until it is proven there",
        "If it lasts, run driver-builder explain NODE for one of them",
        _LOADING,
    )
    SOAKING = _target("Soaking",
        "The new image is proven on the nodes that go first, and is watched there", "", _LOADING)
    ROLLOUT_WAITING = _target("RolloutWaiting",
        "The wave waits for a maintenance window, or for an admin's label on a node; the message says for which",
        "Wait for the window, label the next node, or change spec.rollout (docs/upgrades.md)",
        _LOADING,
    )
    ROLLOUT_HALTED = _target("RolloutHalted",
        "The new image does not work on more nodes than spec.rollout.maxFailed allows, or an admin has undone the wave",
        "Run driver-builder explain NODE for the nodes in the message; then correct the driver: another spec, source or"
        " rebuild begins a new wave (docs/upgrades.md)",
        _BLOCKED,
    )
    VALIDATION_FAILED = _target("ValidationFailed",
        "The command of spec.validation failed on a node; its modules are loaded, and it has no ready label",
        "Run driver-builder explain NODE for the node in the message: it prints how to see the log, and to run the"
        " command again. It runs again by itself after the next boot, and with another driver or command",
        _BLOCKED,
    )
    ALL_NODES_READY = _target("AllNodesReady", "The driver is proven to work on every node", "", TargetState.READY)
    NO_KERNEL_MAPPING = _target("NoKernelMapping",
        "No rule of spec.kernelMappings matches the kernel: its nodes get no driver",
        "If they should have one, add a rule that matches the whole kernel release",
        TargetState.SKIPPED,
    )
    SKIPPED_BY_MAPPING = _target("SkippedByMapping",
        "A rule of spec.kernelMappings skips the kernel: its nodes get no driver",
        "If they should have one, remove skip or put another rule before it",
        TargetState.SKIPPED,
    )
    NOT_APPLICABLE = _target("NotApplicable",
        "The driver says that it does not support this kernel (dkms.conf); it is not tried again",
        "If the nodes should have the driver, use a version that supports this kernel",
        TargetState.NOT_APPLICABLE,
    )
    SOURCE_MISSING = _target("SourceMissing",
        "The source of the driver, or its custom template, does not exist or cannot be fetched",
        "Create what the message names, or correct spec.source and spec.build.templateConfigMap",
        _PENDING, _FAILED,
    )
    SIGNING_CERTIFICATE_MISSING = _target("SigningCertificateMissing",
        "The Secret with the signing certificate does not exist",
        "Create the Secret that the message names (docs/signing.md)",
        _PENDING,
    )
    INVALID_SIGNING_CERTIFICATE = _target("InvalidSigningCertificate",
        "The Secret of the signing certificate holds no certificate of an RSA key",
        "Put the X.509 certificate of an RSA key into the Secret (docs/signing.md)",
        _PENDING,
    )
    UNSUPPORTED_OS = _target("UnsupportedOS",
        "There is no template or base image for this distribution",
        "Set spec.build.template and spec.build.baseImage (docs/templates.md)",
        _FAILED,
    )
    IMAGE_MISSING = _target("ImageMissing",
        "The prebuilt image of a mapping does not exist",
        "Push it, or remove image from the mapping so that driver-builder builds it",
        _FAILED,
    )
    TAG_MOVED = _target("TagMoved",
        "The tag names another image than the one that was rolled out, which stays",
        "Find out who moved the tag; the command in the message accepts the new image (docs/registry.md)",
        _BLOCKED,
    )
    WRONG_BUILD_KEY = _target("WrongBuildKey",
        "The image under the tag is not the one that was built for it; what runs stays",
        "Remove the tag from the registry: the image is built again",
        _BLOCKED,
    )
    IMAGE_NOT_SIGNED = _target("ImageNotSigned",
        "The image is not signed with the key of spec.signing.imageKeySecretRef; what runs stays",
        "Sign it with cosign sign --key, or rebuild it with annotation driverwright.io/rebuild (docs/signing.md)",
        _BLOCKED,
    )
    NO_IDENTITY = _target("NoIdentity",
        "The image does not say which modules it has, so nothing could prove that they run; what runs stays",
        "Label the image, or set spec.module.trustImage (docs/registry.md)",
        _BLOCKED,
    )
    BUILDS_SUSPENDED = _target("BuildsSuspended",
        "Five builds in a row failed for one reason outside the drivers",
        f"Fix the cause above; {SUSPENDED_TRIES}",
        _BLOCKED,
    )
    TARGET_NAME_TAKEN = _target("TargetNameTaken",
        "The objects of this target would have the names of another kernel's; nothing is rolled out to its nodes",
        "Check the kernel labels of its nodes, or skip the kernel in spec.kernelMappings",
        _BLOCKED,
    )
    MODULE_CONFLICT = _target("ModuleConflict",
        "Another driver has one of the modules on these nodes, removes or blacklists it: nothing is touched there",
        "Let only one of the two drivers name the module, or select different nodes (spec.nodeSelector)",
        _BLOCKED, _LOADING, TargetState.BUILDING,
    )
    NOT_ALLOWED = _target("NotAllowed",
        "The settings of driver-builder do not allow what a field of the spec names; what runs stays",
        "Change the field that the message names, or have the setting in the message changed (docs/security.md)",
        _BLOCKED,
    )
    DEPENDENCY_NOT_FOUND = _target("DependencyNotFound",
        "A driver that spec.dependsOn names does not exist; what runs stays",
        "Create that DriverContainer in the same namespace, or correct spec.dependsOn",
        _BLOCKED,
    )
    DEPENDENCY_CYCLE = _target("DependencyCycle",
        "Drivers depend on each other, so that none of them could be loaded first; what runs stays",
        "Remove spec.dependsOn from one driver of the cycle",
        _BLOCKED,
    )
    WAITING_FOR_DEPENDENCY = _target("WaitingForDependency",
        "A driver that spec.dependsOn names has no image yet, has not loaded its modules on the node, or has an invalid"
        " spec",
        "Wait for that driver: driver-builder explain NODE says what it lacks. If it is not meant for the node, correct"
        " the nodeSelector of one of the two",
        _BLOCKED, _LOADING,
    )
    REGISTRY_NOT_ASKED = _registry("RegistryNotAsked",
        "The registry has not answered yet", "Wait: the controller continues when it answers", _PENDING
    )
    REGISTRY_UNAUTHORIZED = _registry("RegistryUnauthorized",
        "The registry refused the credentials, or there are none, or the controller may not read their Secret",
        "Correct the Secret of spec.registry.secretRef: it must allow to push; or give the controller its Role",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    )
    REGISTRY_UNREACHABLE = _registry("RegistryUnreachable",
        "The registry gives no answer, a server error, or a limit on requests",
        _TRY_AGAIN + "check that the controller reaches the registry",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    )
    REGISTRY_INVALID = _registry("RegistryInvalid",
        "What answers is not a registry, returns other content than it should, or its CA cannot be used",
        "Check spec.image, spec.registry.plainHttp, spec.registry.caConfigMap and proxies before the registry",
        _BLOCKED, _FAILED, suspends=_OF_DRIVER,
    )
    REGISTRY_FULL = _registry("RegistryFull",
        "The registry has no room: its disk is full, or a quota is used up",
        "Remove images that no node needs and collect garbage, or enlarge the registry's disk or the project's quota",
        _FAILED, suspends=_OF_DRIVER,
    )
    REGISTRY_REJECTED = _registry("RegistryRejected",
        "The registry does not accept the image: too large, or against one of its rules",
        "Change the limit or rule that the message quotes, of the registry or of a proxy before it",
        _FAILED,
    )
    HEADERS_MISSING = _build("HeadersMissing",
        "No package repository of the base image has headers for this kernel",
        "Move the nodes to a kernel whose headers are published, or name an archive that has them as HEADERS_MIRROR in"
        " spec.build.args or in spec.build.baseImage",
        _FAILED,
    )
    COMPILE_ERROR = _build("CompileError",
        "The source does not compile for this kernel, or does not build a module of the spec",
        "Use a version of the driver that supports this kernel, or fix its source: a change is built at once",
        _FAILED,
    )
    COMPILER_MISMATCH = _build("CompilerMismatch",
        "The kernel or the driver needs another compiler than the base image has",
        "Set spec.build.baseImage to an image with that compiler",
        _FAILED,
    )
    TEMPLATE_INVALID = _build("TemplateInvalid",
        "The template, or the Dockerfile made from it, is invalid or leaves out something that is needed",
        "Correct the template, or the field, that the message names (docs/templates.md)",
        _FAILED,
    )
    SIGNING_FAILED = _build("SigningFailed",
        "The signing key cannot be used: missing, encrypted, of another kind, expired, or not that of the certificate",
        "Correct the Secret that the message names (docs/signing.md)",
        _FAILED,
    )
    REPOSITORY_UNAVAILABLE = _build("PackageRepositoryUnavailable",
        "A package repository of the distribution does not answer, or not as it should",
        "Check network, proxy and name resolution where builds run",
        _FAILED, suspends=_OF_DRIVER,
    )
    BASE_IMAGE_MISSING = _build("BaseImageMissing",
        "The base image cannot be pulled",
        "Check spec.build.baseImage, the credentials for its registry, and that builds reach it",
        _FAILED, suspends=_OF_DRIVER,
    )
    DISK_FULL = _build("DiskFull",
        "A disk is full: the build engine's, that of the node that builds, or the controller's",
        "Give the disk that the message names more room; prune the build engine, or build on other nodes",
        _FAILED, suspends=_ALL,
    )
    OUT_OF_MEMORY = _build("OutOfMemory",
        "The compiler or the linker ran out of memory",
        "Give the build engine more memory (for a Job: limits.memory of spec.build.resources), or lower make's -j",
        _FAILED,
    )
    DEADLINE_EXCEEDED = _build("DeadlineExceeded",
        "The build did not end within its deadline",
        "Raise spec.build.deadline or --build-deadline-seconds, or give builds more CPU",
        _FAILED,
    )
    BUILDER_UNAVAILABLE = _build("BuilderUnavailable",
        "The build engine does not answer or went away; or no node runs the build's Job, or its pod was lost",
        "Check that the build engine runs and is reachable (--docker-host); for a Job, what keeps its pod from running",
        _FAILED, suspends=_ALL,
    )
    INVALID_CONFIGURATION = _build("InvalidConfiguration",
        "A file or Secret that the controller is configured with is invalid",
        "Correct what the message names",
        _FAILED, suspends=_OF_DRIVER,
    )
    API_SERVER_UNAVAILABLE = _build("ApiServerUnavailable",
        "The API server did not answer while the build read from it",
        _TRY_AGAIN + "check the API server",
        _FAILED, suspends=_ALL,
    )
    CANCELLED = _build("Cancelled",
        "The build was cancelled: no node needs its image any more, or the controller stops")
    BUILD_ERROR = _build("BuildError",
        "The build failed for a reason that is not known",
        "Find the first error in its log (driver-builder logs), and fix the source or the template",
        _FAILED,
    )
    WRONG_VERMAGIC = _verification("WrongVermagic",
        "A module was built for another kernel or configuration", _FIT, _FAILED)
    WRONG_SYMBOL_CRC = _verification("WrongSymbolCRC",
        "A module was built against other declarations than the kernel's", _FIT, _FAILED)
    MISSING_SYMBOL = _verification("MissingSymbol",
        "A module needs symbols that neither the kernel nor the image exports",
        "Add the module that exports them to the driver, or use a version of the driver for this kernel",
        _FAILED,
    )
    MISSING_NAMESPACE = _verification("MissingNamespaceImport",
        "A module uses symbols of a namespace that it does not import: the kernel would refuse it",
        "Add MODULE_IMPORT_NS to its source, or use a version of the driver for this kernel",
        _FAILED,
    )
    GPL_ONLY_SYMBOL = _verification("GPLOnlySymbol",
        "A module whose license is not compatible with the GPL uses GPL-only symbols: the kernel would refuse it",
        _VERSION,
        _FAILED,
    )
    DUPLICATE_SYMBOL = _verification("DuplicateSymbol",
        "A module exports symbols that the kernel or another module exports: the kernel would refuse it",
        "Remove one of the two modules from the driver, or rename its symbols",
        _FAILED,
    )
    WRONG_ARCHITECTURE = _verification("WrongArchitecture",
        "A module was built for another architecture", "Build on a builder of the nodes' architecture", _FAILED
    )
    MODULE_MISSING = _verification("ModuleMissing",
        "The image lacks a module of spec.module.names",
        "Name the modules as their files are named, with _ for -, or correct the template",
        _FAILED,
    )
    DEPENDENCY_MISSING = _verification("ModuleDependencyMissing",
        "A module depends on one that is neither in the image nor part of the kernel",
        "Build that module with the driver and add it to spec.module.names",
        _FAILED,
    )
    MODULE_NOT_SIGNED = _verification("ModuleNotSigned",
        "A module is not signed, and spec.signing asks for it", _SIGN, _FAILED)
    WRONG_MODULE_SIGNER = _verification("WrongModuleSigner",
        "A module is signed by another key than that of the certificate",
        "Sign with the key of that certificate, or give the certificate of that key (docs/signing.md)",
        _FAILED,
    )
    MODULE_SIGNATURE_BROKEN = _verification("ModuleSignatureBroken",
        "A module was changed after it was signed, or its signature is of a kind that cannot be verified",
        "Sign as the kernel's sign-file does, with an RSA key, and change nothing in the file after that",
        _FAILED,
    )
    NO_MODULE_IDENTITY = _verification("NoModuleIdentity",
        "A module has neither srcversion nor build id, so it could not be recognised once loaded",
        "Add MODULE_VERSION to its source",
        _FAILED,
    )
    USERSPACE_MISMATCH = _verification("UserspaceMismatch",
        "The user space of spec.userspace has another version than the modules",
        "Take both from one release of the driver, or correct spec.userspace.versionFile",
        _FAILED,
    )
    IMAGE_INVALID = _verification("ImageInvalid",
        "A module or an index (modules.dep, modules.alias) in the image is damaged, missing, doubled or unreadable",
        "Correct the template: install each module once, under its own name, and run depmod -b after all are there",
        _FAILED,
    )
    LOAD_FAILED = _load("LoadFailed",
        "The kernel refused a module, or a module that has to go is in use: the message names what holds it",
        "End what uses it on the node, or correct what the kernel refuses: dmesg there has its own words",
        _LOADING,
    )
    PARAMETERS_DIFFER = _load("ParametersDiffer",
        "The module is live with other parameters than the spec's, and in use",
        "End what uses the module on the node: it is then loaded with the parameters of the spec",
        _LOADING,
    )
    NO_DEVICE = _load("NoDevice",
        "The module is live, and no device is bound to it",
        "Check that the device is there and that no other driver has it: lspci -nnk on the node",
        _LOADING,
    )
    DEVICE_NODE_MISSING = _load("DeviceNodeMissing",
        "The modules are live, and a device node of spec.validation.deviceNodes is not there",
        "Check that the device is there, what udev or the driver calls its node, and spec.validation.deviceNodes",
        _LOADING,
    )
    WRONG_KERNEL = _load("WrongKernel",
        "The node runs another kernel than its labels say",
        "Wait for nfd-worker to label the node; if it lasts, see its pod on the node",
        _LOADING,
    )
    NOT_LIVE = _load("NotLive", "A module that was loaded is not live any more", _CHANGED, _LOADING)
    OTHER_BUILD = _load("OtherBuild", "Another build of a module that was loaded is live", _CHANGED, _LOADING)
    INVALID_SPEC = _driver("InvalidSpec",
        "A field of the spec is invalid; the message names it",
        "Correct the field (docs/drivercontainer.md)",
    )
    ACTION_REFUSED = _driver("ActionRefused",
        "The API server refused a write of the controller",
        "Correct what its answer names: a field of the spec, an admission policy, or the controller's Role",
        _FAILED,
    )
    NAMESPACE_FORBIDDEN = _driver("NamespaceForbidden",
        "The controller, or you, cannot read the namespace: nothing changes for its drivers",
        "Grant the Role of deploy/driver-builder in that namespace, or remove the namespace from --namespace",
    )
    INTERNAL_ERROR = _driver("InternalError",
        "A bug, or an unexpected value: nothing changes for this driver, others go on",
        "Report the traceback from the log, with the output of driver-builder snapshot; until it is fixed, revert the"
        " last change to what the message names",
        _FAILED,
    )
    FIELD_IGNORED = _driver("FieldIgnored",
        "The spec sets a field of an earlier version, which has no effect any more",
        "Remove the field that the message names: the next version does not have it (docs/drivercontainer.md)",
    )
    NO_NODES = _driver("NoMatchingNodes",
        "No selected node runs a kernel this driver supports",
        "Compare spec.nodeSelector and spec.kernelMappings with the nodes: driver-builder explain NODE",
        TargetState.SKIPPED,
    )
    PAUSED = _driver("Paused",
        "Annotation driverwright.io/pause is set: nothing is built, rolled out or loaded again",
        "Remove the annotation to resume",
    )
    TARGETS_PENDING = _driver("TargetsPending", "Images are being built or rolled out")
    NOTHING_TO_DO = _driver("NothingToDo", "Nothing is being built or rolled out")
    NOTHING_WRONG = _driver("AsExpected", "Nothing is wrong")
    UNLOADING = _driver("Unloading", "The driver is being unloaded from nodes that it leaves")
    IN_USE = _driver("InUse",
        "The driver leaves nodes on which its modules are in use",
        "End what uses them: unloading is tried until --unload-deadline-seconds, then they stay until the next boot",
    )
    WAITING_FOR_DEPENDENTS = _driver("WaitingForDependents",
        "The driver is deleted, and other drivers still depend on it: it stays until they are gone",
        "Delete the drivers that the message names, or remove this one from their spec.dependsOn",
    )
    STAYS_LOADED = _driver("StaysLoaded",
        "Modules of the driver stay loaded on nodes that it left", "Reboot the nodes when it suits you"
    )
    DRAIN_TIMEOUT = _driver("DrainTimeout",
        "Nodes were not drained before the deadline: they keep their driver, and the wave takes other nodes",
        "End the pods that the message names, or change their PodDisruptionBudget or the field of rollout.drain that it"
        " names: nodes are tried again, at once without driverwright.io/draining (docs/upgrades.md)",
    )
    DEPENDENT_NOT_UNLOADED = _driver("DependentNotUnloaded",
        "A driver that depends on this one cannot be unloaded on nodes: they keep both, and the wave takes other nodes",
        "End what uses the modules that the message names, or name it in rollout.drain: the controller"
        " tries the nodes again, at once without their annotation driverwright.io/draining (docs/upgrades.md)",
    )
    STAGES_READY = _stage("StagesReady", "Every node with the driver has the label of the last stage of spec.stages")
    WAITING_FOR_STAGE = _stage("WaitingForStage",
        "Nodes with the driver have not reached the last stage of spec.stages; the message names the first",
        "If it lasts, run driver-builder explain NODE for the node in the message",
    )
    NO_DEVICE_AGENT = _stage("NoDeviceAgent",
        "A resource is described for the device agent, and driver-builder has no image of the agent",
        "Set --device-agent-image of driver-builder, or name the image of another device plugin",
    )
    STAGE_NAME_TAKEN = _stage("StageNameTaken",
        "A DaemonSet or a ConfigMap with the name of the device plugin's exists, and the driver does not control it:"
        " it is left alone, and the driver has no device plugin",
        "Rename or delete the object that the message names, or give the driver another name",
    )
    RESOURCE_CONFLICT = _stage("ResourceConflict",
        "Another driver offers the same resource on the node, and keeps it: the stages of this one do not come there",
        "Name different resources (spec.stages.devicePlugin), or select different nodes (spec.nodeSelector)",
    )
    DEVICE_PLUGIN_FAILED = _stage("DevicePluginFailed",
        "The pod of the device plugin does not run on a node",
        "Check its pod on the node in the message: kubectl describe pod, kubectl logs",
    )
    RESOURCE_MISSING = _stage("ResourceMissing",
        "The device plugin runs on a node, and the kubelet has none of its resource; or a DRA driver runs there, and no"
        " ResourceSlice has a device of it",
        "Read the log of the plugin's pod on the node in the message: it found no healthy device, or could not"
        " register; a DRA driver also needs the right to create ResourceSlices",
    )
    DRA_NOT_SERVED = _stage("DRANotServed",
        "The device plugin is a DRA driver, and the API server does not have resource.k8s.io/v1 (Kubernetes 1.34)",
        "Upgrade the cluster, or use a device plugin: spec.stages.devicePlugin without dra",
    )
    RESOURCE_SLICES_NOT_READ = _stage("ResourceSlicesNotRead",
        "The device plugin is a DRA driver, and driver-builder may not read ResourceSlices: nodes keep the label .plug"
        " that they have, and get none",
        "Apply deploy/driver-builder/dra.yaml (chart: driverBuilder.draDriverAccounts)",
    )
    PLUGIN_VALIDATION_FAILED = _stage("PluginValidationFailed",
        "The command of spec.stages.pluginValidation failed on a node, which has no label .plgok",
        "Run driver-builder explain NODE for the node in the message: it prints how to see the log, and to run the"
        " command again",
    )
    SERVICE_ACCOUNT_NOT_ALLOWED = _stage("ServiceAccountNotAllowed",
        "The settings of driver-builder do not allow the account that spec.stages.devicePlugin.nvidia or .dra names in"
        " serviceAccountName: with nvidia, devices are there, and the label of a node selects no profile; a DRA driver"
        " is not started",
        "Name the account in --device-agent-accounts of driver-builder, that of a DRA driver in --dra-driver-accounts,"
        " or remove it from the spec",
    )
    SERVICE_ACCOUNT_NOT_FOUND = _stage("ServiceAccountNotFound",
        "The account that spec.stages.devicePlugin.nvidia or .dra names in serviceAccountName does not exist, or"
        " driver-builder may not read it: with nvidia, devices are there, and the label of a node selects no profile; a"
        " DRA driver is not started. Pods that had the account's token before it could not be read keep it",
        "Create the account, with its roles (device-agent admission-policy --account, or what the DRA driver's vendor"
        " says), and allow driver-builder to get it (docs/stages.md)",
    )
    BUILT_AHEAD = _kernel("BuiltAhead",
        "The newest kernel of the repository has a verified image, or needs none", "", TargetState.READY
    )
    NEWEST_KERNEL_RUNS = _kernel("NewestKernelRuns",
        "No node runs an older kernel than the repository's newest", "", TargetState.READY
    )
    NOT_LOOKED_UP = _kernel("NotLookedUp",
        "The newest kernel of the repository is not known yet",
        "Wait for kernel discovery; if the repository has no kernel of this stream, check the nodes' labels",
        _PENDING,
    )
    DISCOVERY_FAILED = _kernel("LookUpFailed",
        "Kernel discovery failed, and has not succeeded yet",
        _TRY_AGAIN + "check that builds reach the package repository",
        _PENDING,
    )
    BUILD_STARTED = _news("BuildStarted", "A build was queued or started", "", TargetState.BUILDING)
    ROLLING_OUT = _news("RollingOut", "The image exists; the nodes get it", "", _LOADING)
    TARGET_READY = _news("TargetReady",
        "The driver is proven to work on every node of the target", "", TargetState.READY)
    READY_FOR_KERNEL = _news("ReadyForKernel", "The newest kernel has a verified image", "", TargetState.READY)
    INVALID_RULE = _news("InvalidRule",
        "A NodeFeatureRule is invalid and is not given to the workers", "Correct the rule that the message names"
    )
    LABEL_REFUSED = _news("LabelRefused",
        "A label of a NodeFeature is not set on its node",
        "Correct the label that the message names; where somebody else has set it, one of the two has to let it go",
    )
    # fmt: on


SECTIONS: Mapping[str, Mapping[Reason, Meaning]] = MappingProxyType({
    section: {reason: reason.meaning for reason in Reason if reason.meaning.section == section}
    for section in _SECTIONS
})  # fmt: skip
"""The table, in the sections of the printed page."""

REASONS: Mapping[Reason, Meaning] = MappingProxyType({reason: reason.meaning for reason in Reason})


def meaning_of(word: str) -> Meaning | None:
    """Return the meaning of a word in a status or a log; None for a word of another version."""
    try:
        return Reason(word).meaning
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
