"""Makes a DriverContainer of a Module of Kernel Module Management (KMM), and says what it has no field for. Pure.

Place in the flow: the command ``convert`` reads the Modules and prints what comes out. What the new object may hold is
checked by the rules of DriverContainers afterwards, by ``lint``: nothing of that is repeated here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver_builder.api.spec_reader import Notes, Reader
from driver_builder.api.spec_rules import OBJECT_NAME, TEXT
from driver_builder.convert import kmm_images
from driver_builder.convert.kmm_stages import stages_of
from driver_builder.convert.remarks import Remarks
from driver_builder.objects.loaded import plain
from kube_api.resources import DRIVER_CONTAINERS

Json = dict[str, Any]

API_VERSIONS = frozenset(f"kmm.sigs.x-k8s.io/{version}" for version in ("v1beta1", "v1beta2"))
KIND = "Module"

NO_VERSION = "0"
"""What is written where a Module has no version."""
_DEFAULT_FOLDER = "/opt"
_KMM = "kmm.node.kubernetes.io/"
_NAMESPACE = "MOD_NAMESPACE"

_OF_A_LOADER = {
    "serviceAccountName": "driver pods have no token and need no service account of their own",
}
_OF_A_CONTAINER = {"imagePullPolicy": "nodes are given images by digest, so no policy is needed"}
_OF_A_COMMAND_LINE = {
    "args": "modules are loaded by the system call, without modprobe and never by force: drop the arguments, and write "
    "parameters of a module to spec.module.parameters",
    "rawArgs": "modules are loaded by the system call, without modprobe: write their names to modprobe.moduleName and "
    "modulesLoadingOrder, and convert again",
}
_OF_A_BUILD = {
    "dockerfileConfigMap": "the source is known to that Dockerfile alone: write it to spec.source (git, archive, "
    "image, configMap or package) and packages that it installs to spec.build.packages, or make a template of the "
    "Dockerfile (docs/migrate/kmm.md)",
    "buildArgs": "these are arguments of the Dockerfile, and spec.build.args are words for the driver's make: write "
    "there what make needs",
    "baseImageRegistryTLS": "the engine or the Job that builds has its own settings for registries (docs/registry.md)",
}
_DROPPED_OF_A_BUILD = {
    "kanikoParams": "builds do not use kaniko",
}
_EVERY_NODE = (
    "selects every node, control planes as well, and driver pods tolerate every taint unless spec.tolerations says "
    "which: select a label of the nodes that need the driver"
)
_SELECTOR_OF_A_BUILD = "nodes that build are chosen for all drivers by --job-node-selector"
_OF_A_SIGNATURE = {
    "unsignedImage": "an image that exists is not signed here: sign its modules where it is built, or have it built "
    "with spec.source",
    "unsignedImageRegistryTLS": "unsigned images are not read",
}
_DROPPED_OF_A_MODULE = {
    "imageRebuildTriggerGeneration": "the annotation driverwright.io/rebuild with a new value rebuilds a driver",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a Module does not say: the kernels that the nodes run, and the resource of its device plugin, by Module."""

    kernels: tuple[str, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A DriverContainer, or None where there is nothing to make one of, and what to say of the Module."""

    driver: Json | None
    remarks: Remarks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapping:
    """One kernel mapping with what it inherits; ``regexp`` is KMM's, searched for anywhere in a release."""

    fields: Reader
    literal: str | None
    regexp: str
    image: str
    is_built: bool

    def takes(self, kernel: str) -> bool:
        """Return whether it matches a kernel."""
        if self.literal is not None:
            return self.literal == kmm_images.trimmed(kernel)
        return kmm_images.matches(self.regexp, kernel)


def convert(module: Mapping[str, Any], known: Known) -> Conversion:
    """Convert one Module."""
    notes, remarks = Notes(), Remarks()
    top = Reader(module, (), notes)
    for name in ("apiVersion", "kind", "status"):
        top.raw(name)
    metadata = top.object("metadata")
    metadata.asked.update(map(str, metadata.given))
    name, namespace = metadata.needed("name", OBJECT_NAME), metadata.text("namespace", OBJECT_NAME)
    spec = _spec(top.object("spec"), namespace, name, known, remarks)
    for problem in notes.problems:
        remarks.error(problem.path, problem.message)
    for path in notes.unknown:
        remarks.error(path, "is not known to this version and was left out: look for it in KMM's documentation")
    driver = {
        "apiVersion": DRIVER_CONTAINERS.api_version,
        "kind": DRIVER_CONTAINERS.kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    return Conversion(driver=driver if name and spec else None, remarks=remarks)


def _spec(module: Reader, namespace: str | None, name: str, known: Known, remarks: Remarks) -> Json:
    """Return the spec of the driver; empty where there is no driver."""
    remarks.dropped(module, _DROPPED_OF_A_MODULE)
    loader = module.object("moduleLoader")
    container = loader.object("container")
    remarks.dropped(loader, _OF_A_LOADER)
    remarks.dropped(container, _OF_A_CONTAINER)
    modprobe = container.object("modprobe")
    mappings = list(_mappings(container, {"MOD_NAME": name, **({_NAMESPACE: namespace} if namespace else {})}))
    if any(_NAMESPACE in kmm_images.variables_of(mapping.image) for mapping in mappings):
        remarks.error(("metadata",), f"is missing, and an image is named by it (${{{_NAMESPACE}}}): write it",
                      "namespace")  # fmt: skip
    folder = modprobe.text("dirName", TEXT) or _DEFAULT_FOLDER
    secret = module.object("imageRepoSecret").text("name", TEXT)
    spec: Json = {
        "version": _version(container, remarks),
        "nodeSelector": _selector(module, remarks),
        "image": kmm_images.repository(kmm_images.reference(mappings[0].image)) if mappings else "",
        "registry": {
            "secretRef": {"name": secret} if secret else None,
            "plainHttp": _is_plain(container, mappings, remarks),
        },
        "source": {"configMap": {"name": f"{name}-source"}},
        "build": _build(container, mappings, remarks),
        "signing": _signing(container, mappings, remarks),
        "kernelMappings": list(_converted(mappings, known.kernels, folder, remarks)),
        "module": _module(container, modprobe, mappings, remarks),
        "stages": stages_of(module, known.resources.get(f"{namespace}/{name}", known.resources.get(name)), remarks),
        "tolerations": module.items("tolerations"),
        "imagePullSecrets": [{"name": secret}] if secret else [],
    }
    if not loader.given:
        remarks.error(module.path, "loads no module: run its device plugin as a DaemonSet of your own", "moduleLoader")
        return {}
    if not spec["module"]["names"] or not spec["kernelMappings"]:
        return {}
    return _without_empty(spec)


_MEANT_IF_EMPTY = ("nodeSelector", "stages")
"""Fields of which an empty object means something: every node, and the labels of stages without a plugin."""


def _without_empty(spec: Json) -> Json:
    """Leave out fields that are not set. Labels of ``nodeSelector`` stay as they are: many have no value."""
    cleaned = {
        key: _without_empty(value) if isinstance(value, dict) and key != "nodeSelector" else value
        for key, value in spec.items()
    }
    return {key: value for key, value in cleaned.items() if value or (key in _MEANT_IF_EMPTY and value is not None)}


def _version(container: Reader, remarks: Remarks) -> str:
    version = container.text("version", TEXT)
    if not version:
        return NO_VERSION
    remarks.warning(container.path, "nodes are upgraded in waves, not when they are labelled: for the latter write "
                    "spec.rollout.order: nodeLabel", "version")  # fmt: skip
    return version


def _selector(module: Reader, remarks: Remarks) -> dict[str, str]:
    selector = module.pairs("selector", TEXT, TEXT)
    if not module.raw("selector"):
        remarks.warning(module.path, _EVERY_NODE, "selector")
    for key in selector:
        if _KMM in key:
            remarks.error(module.path, "is a label of KMM and goes with it: select another one, and name a driver that "
                          "this one needs in spec.dependsOn", "selector", key)  # fmt: skip
    return selector


def _mappings(container: Reader, names: Mapping[str, str]) -> Iterator[_Mapping]:
    image, has_build = container.text("containerImage", TEXT) or "", bool(container.raw("build"))
    for item in container.objects("kernelMappings"):
        literal, regexp = item.text("literal", TEXT) or None, item.text("regexp", TEXT) or ""
        if (literal is None) == (not regexp):
            item.wrong("exactly one of literal, regexp is needed")
            continue
        yield _Mapping(
            fields=item,
            literal=literal,
            regexp=regexp,
            image=kmm_images.replaced(item.text("containerImage", TEXT) or image, names),
            is_built=has_build or bool(item.raw("build")),
        )


def _converted(mappings: list[_Mapping], kernels: tuple[str, ...], folder: str, remarks: Remarks) -> Iterator[Json]:
    """Write the mappings: one for each kernel where KMM puts the kernel's name into the image's."""
    owners = {kernel: next((item for item in mappings if item.takes(kernel)), None) for kernel in kernels}
    for index, mapping in enumerate(mappings):
        if not kmm_images.differs_by_kernel(mapping.image):
            yield {**_kernels_of(mapping), **_prebuilt(mapping.image, folder)}
            continue
        own = [kernel for kernel, owner in owners.items() if owner is mapping]
        if mapping.literal is not None:
            own = [*own, *([] if own else [mapping.literal])]
        for kernel in own:
            image = kmm_images.replaced(mapping.image, kmm_images.variables_for(kernel))
            yield {"literal": kernel, **_prebuilt(image, folder)}
        if mapping.literal is not None:
            continue
        _say_of_kernels(mapping, own, kernels, remarks)
        # Without it, an image of a later mapping would be taken for a kernel of this one.
        if mapping.is_built or index + 1 < len(mappings):
            yield _kernels_of(mapping)


def _kernels_of(mapping: _Mapping) -> Json:
    return {"regexp": kmm_images.whole(mapping.regexp)} if mapping.literal is None else {"literal": mapping.literal}


def _prebuilt(image: str, folder: str) -> Json:
    return {"image": kmm_images.reference(image), "dirName": folder}


def _say_of_kernels(mapping: _Mapping, own: list[str], kernels: tuple[str, ...], remarks: Remarks) -> None:
    path = mapping.fields.path
    if not kernels:
        remarks.error(path, "has an image for each kernel, which a mapping here has not: name the kernels of the nodes "
                      "with --kernels", "regexp")  # fmt: skip
    elif not own:
        remarks.warning(path, "matches none of the kernels in --kernels", "regexp")
    else:
        further = "is built once spec.source is its source" if mapping.is_built else "needs a mapping of its own"
        remarks.warning(path, f"its images were written for {len(own)} of the kernels in --kernels; a further kernel "
                        f"{further}", "regexp")  # fmt: skip


def _module(container: Reader, modprobe: Reader, mappings: list[_Mapping], remarks: Remarks) -> Json:
    remarks.lost(modprobe, _OF_A_COMMAND_LINE)
    name, order = modprobe.text("moduleName", TEXT), modprobe.words("modulesLoadingOrder", TEXT)
    is_ordered = name is not None and plain(name) in map(plain, order)
    names = [*reversed(order), *([name] if name and not is_ordered else [])]
    if not names and not modprobe.has("rawArgs"):
        remarks.error(modprobe.path, "is missing", "moduleName")
    parameters = list(modprobe.words("parameters", TEXT))
    common = _in_tree(container)
    each = [_in_tree(mapping.fields) or common for mapping in mappings]
    is_same = all(item == each[0] for item in each)
    for mapping in [] if is_same else mappings:
        if (own := _in_tree(mapping.fields)) and own != common:
            remarks.error(mapping.fields.path, "all kernels have one list, spec.module.inTreeModulesToRemove: write a "
                          "DriverContainer of their own for these kernels", "inTreeModulesToRemove")  # fmt: skip
    return {
        "names": names,
        "parameters": {_written(name, names): parameters} if parameters and names else {},
        "inTreeModulesToRemove": each[0] if each and is_same else common,
        "firmwarePath": modprobe.text("firmwarePath", TEXT),
        "trustImage": True,
    }


def _written(name: str | None, names: list[str]) -> str:
    """Return the name among those to load that is the module's, which may be written with ``-`` or ``_``."""
    return next((item for item in names if name and plain(item) == plain(name)), names[-1])


def _in_tree(fields: Reader) -> list[str]:
    single = fields.text("inTreeModuleToRemove", TEXT)
    return list(dict.fromkeys([*fields.words("inTreeModulesToRemove", TEXT), *([single] if single else [])]))


def _is_plain(container: Reader, mappings: list[_Mapping], remarks: Remarks) -> bool:
    """Return whether all images are in a registry without TLS."""
    levels = [container, *(mapping.fields for mapping in mappings if mapping.fields.raw("registryTLS"))]
    found = {}
    for level in levels:
        given = level.object("registryTLS")
        found[level.path] = given.flag("insecure")
        if given.flag("insecureSkipTLSVerify"):
            remarks.error(given.path, "certificates are always verified: write the registry's CA to "
                          "spec.registry.caConfigMap", "insecureSkipTLSVerify")  # fmt: skip
    each = {found.get(mapping.fields.path, found[container.path]) for mapping in mappings}
    if len(each) > 1:
        remarks.error(container.path, "there is one setting for all kernels, spec.registry.plainHttp: write a "
                      "DriverContainer of their own for those of the other registry", "registryTLS")  # fmt: skip
    return each == {True}


def _levels(container: Reader, mappings: list[_Mapping], name: str) -> list[Reader]:
    """Return an object of the container and those of its mappings, which stand in for it or add to it."""
    return [level.object(name) for level in (container, *(item.fields for item in mappings)) if level.raw(name)]


def _build(container: Reader, mappings: list[_Mapping], remarks: Remarks) -> Json:
    secrets: list[str] = []
    for build in _levels(container, mappings, "build"):
        remarks.lost(build, _OF_A_BUILD)
        remarks.dropped(build, _DROPPED_OF_A_BUILD)
        if build.raw("selector"):
            remarks.warning(build.path, _SELECTOR_OF_A_BUILD, "selector")
        secrets += [item.needed("name", TEXT) for item in build.objects("secrets")]
    named = [{"name": secret} for secret in dict.fromkeys(secrets)]
    return {"builder": "job", "secrets": named} if named else {}


def _signing(container: Reader, mappings: list[_Mapping], remarks: Remarks) -> Json:
    found = []
    for sign in _levels(container, mappings, "sign"):
        remarks.lost(sign, _OF_A_SIGNATURE)
        remarks.dropped(sign, {"filesToSign": "every module of an image is signed"})
        found.append(({"keySecretRef": _name(sign, "keySecret"), "certificateSecretRef": _name(sign, "certSecret")},
                      sign.path))  # fmt: skip
    signing = found[0][0] if found else {}
    for other, path in found:
        if other != signing:
            remarks.error(path, "has other keys than the first one: write them to signing of the kernel mapping that "
                          "builds for these kernels")  # fmt: skip
    return signing


def _name(fields: Reader, name: str) -> Json:
    given = fields.object(name).text("name", TEXT) if fields.raw(name) else None
    return {"name": given} if given else {}
