"""What an admin asks for, as frozen values: the checked ``spec`` of a DriverContainer, a class for each object.

A field has the name of its field in the manifest, in snake_case, and its row beside it: what it may hold, and what
people read of it. A reference to an object that has only a name is that name: ``secretRef.name`` is ``secret``,
``imagePullSecrets[].name`` are ``image_pull_secrets``.

Place in the flow: ``spec_parser`` makes a :class:`DriverSpec` of JSON, ``targets`` says what follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from driver_builder.api import spec_rules as rules
from driver_builder.api.build_settings import (
    BUILD,
    CA,
    SIGNING,
    SOURCE,
    USERSPACE,
    BuildSettings,
    ConfigMapKey,
    SourceSpec,
    UserspaceSettings,
)
from driver_builder.api.mapping_settings import MAPPINGS, KernelMapping, check_loaded_by_image
from driver_builder.api.rollout_settings import ROLLOUT, RolloutSettings
from driver_builder.api.spec_kinds import (
    AS_GIVEN,
    Cel,
    Kind,
    Row,
    converted,
    duration,
    flag,
    lists,
    maybe,
    needed,
    number,
    pairs,
    reference,
    references,
    row,
    table,
    text,
    texts,
)
from driver_builder.api.spec_reader import Reader, shown
from driver_builder.api.stage_fields import STAGES
from driver_builder.api.stage_settings import MAX_RETRIES, DevicePluginSettings, StageSettings
from driver_builder.model.build import ModuleSpec, Signing
from driver_builder.model.images import ImageRepository
from driver_builder.model.userspace import FOLDER

Json = dict[str, Any]

MAX_DEVICE_NODES = 16
MAX_DEPENDENCIES = 8
"""Drivers that one driver depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """``spec.registry``: how the controller connects to it. ``secret`` names a dockerconfigjson Secret.

    ``ca_config_map`` has the only trusted certificates, in PEM; without it, the controller's are trusted.
    """

    secret: str | None = row(
        reference(),
        "Secret of type kubernetes.io/dockerconfigjson in the same namespace.",
        name="secretRef",
        more="Default is to be anonymous.",
    )
    ca_config_map: ConfigMapKey | None = row(
        maybe(CA),
        "ConfigMap in the same namespace with the CA of the registry, which replaces all others. Default is the "
        "controller's --registry-ca-file, or else the system's. Nodes have their own CA configuration.",
        more="The build engine has its own as well.",
    )
    plain_http: bool = row(
        flag(),
        "Use HTTP without TLS. Only for registries on the same machine or in a lab.",
        default=False,
        is_filled=True,
        more="Not together with `caConfigMap`.",
    )


def _check_registry(registry: Reader, read: Mapping[str, Any]) -> None:
    if read["ca_config_map"] and read["plain_http"]:
        registry.wrong(
            "plainHttp and caConfigMap exclude each other, because plain HTTP uses no certificate: remove one"
        )


_REGISTRY = table(
    RegistrySettings,
    checks=[_check_registry],
    rules=[
        Cel(
            "!(has(self.caConfigMap) && has(self.plainHttp) && self.plainHttp)",
            "plainHttp and caConfigMap are mutually exclusive",
        )
    ],
)


def _firmware_folder(path: str | None, module: Reader, name: str) -> str | None:
    if path == "/":
        module.wrong("'/' is the whole file system: name the firmware's folder, such as /source/firmware", name)
    return path.rstrip("/") if path else None


def _with_words(lists: Mapping[str, tuple[str, ...]], _parent: Reader, _name: str) -> Mapping[str, tuple[str, ...]]:
    return {name: words for name, words in lists.items() if words}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSettings:
    """``spec.module``: ``names`` in load order, ``parameters`` of those that have any.

    ``trust_image`` allows an image that does not say which modules it has. ``firmware_host_path`` is where firmware
    goes on nodes, None for ``/lib/firmware``.
    """

    names: tuple[str, ...] = row(texts(rules.MODULE, least=1), "Kernel modules in load order.", is_required=True)
    parameters: Mapping[str, tuple[str, ...]] = row(
        converted(lists(None, rules.PARAMETER), _with_words), "Module name to a list of name=value."
    )
    in_tree_modules_to_remove: tuple[str, ...] = row(
        texts(rules.MODULE),
        "Modules of the kernel to unload, in this order, before the driver is loaded. They are not loaded again when "
        "the driver is removed.",
        more="[Details](#what-else-happens-on-a-node).",
    )
    in_tree_modules_to_load: tuple[str, ...] = row(
        texts(rules.MODULE_TO_LOAD),
        "Modules of the kernel to load, in this order, before the driver. They stay loaded when the driver is removed.",
        more="[Details](#what-else-happens-on-a-node).",
    )
    blacklist: tuple[str, ...] = row(
        texts(rules.MODULE),
        "Modules that must not be loaded on the nodes while the driver is desired, by a file in the node's "
        "/etc/modprobe.d.",
        more="[Details](#what-else-happens-on-a-node).",
    )
    trust_image: bool = row(
        flag(),
        "Roll out an image that does not name its modules (label io.driverwright.modules), such as a prebuilt one: any "
        "module of that name then counts as proof.",
        more="Without it, only nodes that already run it keep it: [registry.md](registry.md#a-tag-is-not-believed).",
    )
    firmware_path: str | None = row(
        converted(text(rules.FIRMWARE_PATH), _firmware_folder),
        "Folder of the build with the firmware of the driver, such as /source/firmware, or of its user space, such as "
        "/userspace/lib/firmware; its files are below the node's /lib/firmware/updates/<kernel> while the driver is on "
        "the node.",
        more="An absolute path, also of a vendor's image. The source is in `/source`, the "
        "[user space](userspace.md#firmware-of-the-same-version) in `/userspace`. "
        "[Details](#what-else-happens-on-a-node).",
    )
    firmware_host_path: str | None = row(
        text(rules.FIRMWARE_HOST_PATH),
        "Where the firmware goes on the nodes instead of /lib/firmware, for nodes where that is read-only. The "
        "kernel's search path (firmware_class.path) is set to it.",
    )

    @property
    def load_order(self) -> tuple[ModuleSpec, ...]:
        """Each module with its parameters, the first one to load first."""
        return tuple(ModuleSpec(name=name, parameters=self.parameters.get(name, ())) for name in self.names)


def _check_module(module: Reader, read: Mapping[str, Any]) -> None:
    names = read["names"]
    if not module.has_items("names"):
        module.wrong("name at least one module, in load order", "names")
    given = module.given.get("parameters")
    for name in given if isinstance(given, Mapping) else ():
        if name not in names:
            module.wrong(f"{shown(name)} is not in spec.module.names {list(names)}", "parameters")
    if read["firmware_host_path"] and not module.has("firmwarePath"):
        words = "is where the firmware of firmwarePath goes: set that, or remove this field"
        module.wrong(words, "firmwareHostPath")


_MODULE = table(
    ModuleSettings,
    checks=[_check_module],
    rules=[
        Cel(
            "!has(self.parameters) || self.parameters.all(name, name in self.names)",
            "every module in parameters must be in names",
        ),
        Cel(
            "!has(self.firmwareHostPath) || has(self.firmwarePath)",
            "firmwareHostPath is only where the firmware of firmwarePath goes",
        ),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """``spec.preflight``: whether images are built for kernels that no node runs yet."""

    follow_repository: bool = row(
        flag(),
        "Once a day, discover the newest kernel in the nodes' package repository, prebuild for it, and label nodes "
        "driverwright.io/ready-for.<kernel> once they may boot it.",
        default=False,
        is_filled=True,
        more="See [operations.md](operations.md#kernel-updates-kured-system-upgrade-controller).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSettings:
    """``spec.validation``: what a ready label needs besides the load.

    ``device_nodes`` are files below ``/dev``. ``command`` runs once per node and boot in ``image``, and is tried again
    ``retries`` times; it is empty where there is no image. With ``taint`` nodes are tainted until the driver is proven
    there in this boot.
    """

    device_nodes: tuple[str, ...] = row(
        texts(rules.DEVICE_NODE, MAX_DEVICE_NODES),
        "Device nodes that must be there, such as /dev/nvidia0. The driver pod waits for them when it loads, and "
        "checks them as long as it runs.",
        more="[Validation](#validation).",
    )
    image: str | None = row(
        text(rules.IMAGE),
        "Image of the pod that runs command once per node and boot. Without it, command is not acted on.",
    )
    command: tuple[str, ...] = row(
        texts(rules.TEXT, least=1), "Program and arguments. The node is validated when it ends with 0."
    )
    timeout_seconds: float = row(
        duration(), "How long the pod may take, with the pull of its image; 5m without it.", name="timeout",
        default=300.0,
    )  # fmt: skip
    retries: int = row(
        number(0, MAX_RETRIES),
        "How often a command that failed is run again, with growing waits; 2 without it.",
        default=2,
    )
    privileged: bool = row(
        flag(default=True), "Run the pod privileged (the default). With false the command cannot open device nodes."
    )
    taint: bool = row(
        flag(),
        "Keep other pods away from a node, by the taint driverwright.io/NAMESPACE.NAME=pending:NoSchedule, until the "
        "driver is proven there, once per boot. Never added where the driver works.",
        more="[Details](#the-taint-of-a-node-that-is-not-proven).",
    )

    @property
    def has_command(self) -> bool:
        """Return whether a command has to succeed."""
        return self.image is not None

    @property
    def is_set(self) -> bool:
        """Return whether a ready label needs anything besides the load."""
        return self.has_command or bool(self.device_nodes)


def _check_validation(validation: Reader, read: Mapping[str, Any]) -> None:
    is_alone = not validation.has("image") and (validation.given.get("deviceNodes") or read["taint"])
    if not validation.has_items("command") and not is_alone:
        validation.wrong("name at least the program", "command")


def _validation(**given: Any) -> ValidationSettings:
    """Leave a command without an image out: it was reserved before images were read."""
    return ValidationSettings(**given if "image" in given else given | {"command": ()})


_VALIDATION = table(
    _validation,
    of=ValidationSettings,
    checks=[_check_validation],
    rules=[
        Cel(
            "has(self.command) || !has(self.image) && "
            "(has(self.deviceNodes) && self.deviceNodes.size() > 0 || has(self.taint) && self.taint)",
            "command is required with image, and without deviceNodes or taint",
        )
    ],
)


def _tolerations(parent: Reader, name: str) -> tuple[Json, ...]:
    """Read tolerations, whose fields the API server checks."""
    items = parent.items(name)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            parent.wrong(f"{shown(item)} is not a toleration: write fields such as operator: Exists", name, index)
    return tuple(items)


def _repository(text: str, _spec: Reader, _name: str) -> ImageRepository:
    match = rules.REPOSITORY.pattern.fullmatch(text)
    return ImageRepository(host=match["host"] if match else "", repository=match["repository"] if match else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """``spec`` of a DriverContainer, checked.

    ``depends_on`` are names of drivers of the same namespace whose modules are loaded before these, and unloaded after
    them. ``stages``: what follows on a node once the driver is proven there; None for nothing. ``unused`` names the
    fields that were set and that this version ignores: they have no values here.
    """

    version: str = row(needed(rules.VERSION), "Version of the driver; the value of the ready label on nodes.")
    node_selector: Mapping[str, str] = row(
        pairs(rules.LABEL_KEY, rules.LABEL_VALUE),
        "Labels a node must have to get the driver. Empty selects every node.",
        more="`lint` warns where it is missing, because control planes get the driver as well; `{}` says that every "
        "node is meant.",
    )
    image: ImageRepository = row(
        converted(needed(rules.REPOSITORY), _repository),
        "Repository of the driver images, host[:port]/path without a tag; the tag contains the build key.",
        is_required=True,
        more="A host has a dot or a port (`docker.io/linbit/drbd9`): nodes take `linbit/drbd9` for a name of Docker "
        "Hub, so it is refused.",
    )
    registry: RegistrySettings = row(
        _REGISTRY.always, "How driver-builder reaches the registry. Nodes pull with imagePullSecrets."
    )
    source: SourceSpec = row(
        SOURCE.always, "The driver's source; exactly one kind, and each is pinned.", is_required=True
    )
    build: BuildSettings = row(BUILD.always, "How the driver is built.")
    kernel_mappings: tuple[KernelMapping, ...] = row(
        MAPPINGS, "Rules by kernel release; the first that matches wins. Without any, the driver is for every kernel."
    )
    module: ModuleSettings = row(_MODULE.always, "The modules that are loaded on a node.", is_required=True)
    signing: Signing | None = row(
        maybe(SIGNING),
        "Keys and certificate that sign the modules and the images.",
        more="Default is not to sign: [signing.md](signing.md).",
    )
    validation: ValidationSettings = row(
        maybe(_VALIDATION),
        "What a node needs for its ready label besides the load. A node that is ready when it is first set keeps its "
        "label until the validation fails there.",
        default=ValidationSettings(),
    )
    userspace: UserspaceSettings | None = row(
        maybe(USERSPACE),
        "What the image has besides modules, of the same version: libraries and tools. Nodes have it below /run while "
        "the driver is there, and containers by a path of type Mount of the device plugin (docs/userspace.md).",
    )
    stages: StageSettings | None = row(
        maybe(STAGES),
        "What follows on a node once the driver is proven there. Also an empty object gives nodes the labels that "
        "DaemonSets of your own select: driverwright.io/<namespace>.<name>.run and .valid (docs/stages.md).",
    )
    rollout: RolloutSettings = row(
        ROLLOUT.always, "How fast working drivers are replaced. Nodes without a working driver do not wait for it."
    )
    preflight: PreflightSettings = row(table(PreflightSettings).always, "Builds for kernels that no node runs yet.")
    tolerations: tuple[Json, ...] = row(
        Kind(_tolerations, {"type": "array", "maxItems": rules.MAX_ITEMS, "items": AS_GIVEN}, empty=()),
        "Tolerations of the driver pods. Default tolerates everything.",
        more="Those that are set here also apply to build Jobs.",
    )
    priority_class_name: str | None = row(
        text(rules.OBJECT_NAME), "Priority class of the driver pods. Default is system-node-critical."
    )
    image_pull_secrets: tuple[str, ...] = row(references(), "Secrets that nodes use to pull the driver image.")
    depends_on: tuple[str, ...] = row(
        references(MAX_DEPENDENCIES),
        "DriverContainers of the same namespace whose modules this driver needs. On a node they are loaded before this "
        "driver, and unloaded after it.",
        more="Its build gets their symbols; see [below](#a-driver-that-needs-another).",
    )
    unused: tuple[str, ...] = ()

    @property
    def device_plugin(self) -> DevicePluginSettings | None:
        """The device plugin among the stages, None without one."""
        return self.stages.device_plugin if self.stages is not None else None

    @property
    def certificate_secrets(self) -> tuple[str, ...]:
        """Names of all Secrets with certificates that modules are signed with, for any kernel."""
        every = (self.signing, *(mapping.signing for mapping in self.kernel_mappings))
        names = {signing.certificate_secret for signing in every if signing}
        return tuple(sorted(name for name in names if name))


def _check_spec(spec: Reader, read: Mapping[str, Any]) -> None:
    check_loaded_by_image(spec, read["kernel_mappings"])
    firmware = read["module"].firmware_path
    if firmware and f"{firmware}/".startswith(f"{FOLDER}/") and not spec.has("userspace"):
        words = f"{firmware!r} is of the user space, which the driver does not have: set spec.userspace"
        spec.wrong(words, "module", "firmwarePath")
    names = read["depends_on"]
    if len(set(names)) < len(names):
        spec.wrong(f"{shown(list(names))} names a driver twice: name each once", "dependsOn")


def _driver(*, rollout: RolloutSettings, stages: StageSettings | None = None, **others: Any) -> DriverSpec:
    """A drain covers NVIDIA's devices unasked, as which resources these are is open, and what a DRA driver has."""
    plugin, drain = stages.device_plugin if stages is not None else None, rollout.drain
    if drain is not None and plugin is not None and plugin.nvidia is not None:
        drain = replace(drain, resources=(*drain.resources, plugin.claim))
    if drain is not None and plugin is not None and plugin.dra is not None:
        drivers = tuple(dict.fromkeys((*drain.dra_drivers, plugin.dra.driver)))
        drain = replace(drain, dra_drivers=drivers, plugin_leaves_last=True)
    return DriverSpec(rollout=replace(rollout, drain=drain), stages=stages, **others)


SPEC = table(
    _driver,
    of=DriverSpec,
    retention=Row(
        table(dict, versions=Row(number(1, 1000), "Ignored.")).always,
        "Deprecated: ignored since 0.2. driver-builder gc removes images that no node needs.",
        is_ignored=True,
    ),
    checks=[_check_spec],
)
