"""``spec.kernelMappings`` as rows and frozen values: what runs on which kernels, and how a vendor's image is run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import re2

from driver_builder.api import spec_rules as rules
from driver_builder.api.build_settings import ARGS, SIGNING
from driver_builder.api.environment import EnvironmentVariable, environment
from driver_builder.api.spec_kinds import (
    Cel,
    Row,
    choice,
    converted,
    duration,
    flag,
    maybe,
    needed,
    objects,
    row,
    table,
    text,
    texts,
)
from driver_builder.api.spec_reader import Reader, shown
from driver_builder.model import images
from driver_builder.model.build import Signing

MAX_REGEXPS = 16384
"""Characters of all expressions of a spec together: Unicode classes take a second for each few thousand."""
MAX_HOST_PATHS = 16
_LOADED_BY_US = ("parameters", "firmwarePath")

_RE2 = re2.Options()
_RE2.log_errors = False
# Groups are never read, and room for the groups of a hostile pattern is gigabytes.
_RE2.never_capture = True


class Pattern(Protocol):
    """A compiled regular expression of RE2: every pattern, however nested, takes linear time."""

    @property
    def pattern(self) -> str:
        """The text it was made of."""

    def fullmatch(self, text: str) -> object | None:
        """Match all of ``text``, or give None."""


class LoadedBy(StrEnum):
    """Who loads the modules of a prebuilt image: our loader, or the image's own program."""

    OURS = "ours"
    IMAGE = "image"


class Propagation(StrEnum):
    """How mounts below a folder of the node are seen on the other side, in Kubernetes' words."""

    NONE = "None"
    HOST_TO_CONTAINER = "HostToContainer"
    BIDIRECTIONAL = "Bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A folder of the node that an image's own program sees at ``mount_path``."""

    path: str
    mount_path: str
    read_only: bool = False
    propagation: Propagation | None = None


def _folder(path: str | None, _parent: Reader, _name: str) -> str | None:
    return path if path is None else path.rstrip("/") or "/"


def _check_host_path(fields: Reader, read: Mapping[str, Any]) -> None:
    if (read["mount_path"] or read["path"]) == "/":
        fields.wrong("would replace the image's own files: write another place, such as /host", "mountPath")


def _host_path(*, path: str = "", mount_path: str = "", **others: Any) -> HostPath:
    return HostPath(path=path, mount_path=mount_path or path, **others)


_HOST_PATH = table(
    _host_path,
    path=Row(converted(needed(rules.HOST_PATH), _folder), "On the node.", is_required=True),
    mount_path=Row(converted(text(rules.HOST_PATH), _folder), "In the container; as path without it."),
    read_only=Row(flag(), "Whether it cannot be written."),
    propagation=Row(
        choice(Propagation), "How mounts below it are seen on the other side, as mountPropagation of pods."
    ),
    checks=[_check_host_path],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """``kernelMappings[].container``: how an image's own program is run; empty words are those of the image.

    ``timeout_seconds`` is how long it may take until the modules are live.
    """

    command: tuple[str, ...] = row(texts(rules.TEXT), "Program, instead of the image's entry point.")
    args: tuple[str, ...] = row(texts(rules.TEXT), "Arguments, instead of those of the image.")
    env: tuple[EnvironmentVariable, ...] = row(environment(rules.ENV_NAME), "Variables of its environment.")
    host_paths: tuple[HostPath, ...] = row(
        objects(_HOST_PATH, MAX_HOST_PATHS), "Files and folders of the node that it sees."
    )
    timeout_seconds: float = row(
        duration(), "How long it may take until its modules are live; 20m without it.", name="timeout", default=1200.0
    )


def _check_container(container: Reader, read: Mapping[str, Any]) -> None:
    if len({item.mount_path for item in read["host_paths"]}) < len(read["host_paths"]):
        container.wrong("mounts two folders at one place: give each its own mountPath", "hostPaths")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSettings:
    """How the modules of a prebuilt image are loaded; ``dir_name`` is its folder with ``lib/modules/<kernel>``."""

    loader: LoadedBy = LoadedBy.OURS
    dir_name: str | None = None
    container: ContainerSettings = field(default_factory=ContainerSettings)

    @property
    def is_for_many_kernels(self) -> bool:
        """Return whether the image may be that of several kernels; one in our layout is built for one."""
        return self.loader is LoadedBy.IMAGE or self.dir_name is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMapping:
    """One rule of ``spec.kernelMappings``: ``pattern`` matches whole kernel releases; the first match wins.

    ``literal`` is the kernel release of a rule that names just one; ``signing`` replaces all of the spec's. ``vendor``
    says how the modules of ``image`` are loaded.
    """

    pattern: Pattern
    literal: str | None = None
    skip: bool = False
    image: str | None = None
    template: str | None = None
    args: Mapping[str, str]
    signing: Signing | None = None
    vendor: VendorSettings = field(default_factory=VendorSettings)


def compiled(regexp: str) -> Pattern:
    """Compile a regular expression.

    Raises:
        re2.error: when it is not one in the syntax of RE2.
    """
    made: Pattern = re2.compile(regexp, _RE2)
    return made


def literal(text: str) -> Pattern:
    """Make a pattern that matches this text and nothing else."""
    return compiled(re2.escape(text))


def _pattern(regexp: str | None, item: Reader, name: str) -> Pattern | None:
    try:
        return None if regexp is None else compiled(regexp)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        item.wrong(
            f"{shown(regexp)} is not a regular expression: {why}: write it in the syntax of RE2, which has no "
            "look-around and no back-references",
            name,
        )
        return literal("")


def _prebuilt(text: str | None, item: Reader, name: str) -> str | None:
    try:
        return text if text is None else str(images.parse_full_reference(text))
    except ValueError as error:
        item.wrong(str(error), name)
        return None


def _check_mapping(item: Reader, read: Mapping[str, Any]) -> None:
    if item.has("literal") == item.has("regexp"):
        item.wrong("exactly one of literal, regexp is needed")
    how = read["template"] or read["args"] or read["signing"]
    if read["skip"] and (read["image"] or how):
        item.wrong(
            "skip excludes image, template, args and signing, because no driver runs there: remove skip, or the others"
        )
    elif read["image"] and how:
        item.wrong("image excludes template, args and signing, which only a build uses: remove image, or the others")


def _check_vendor(item: Reader, read: Mapping[str, Any]) -> None:
    loader = read["loader"] or LoadedBy.OURS
    if not item.has("image"):
        for name in filter(item.has, ("loader", "dirName", "container")):
            item.wrong("is only for a prebuilt image: name it in image, or remove this field", name)
    elif loader is LoadedBy.IMAGE and item.has("dirName"):
        item.wrong("is only for loader: ours, because the image's own program has its modules: remove it", "dirName")
    elif loader is LoadedBy.OURS and item.has("container"):
        item.wrong("is only for loader: image, which runs the image's own program: set that, or remove it",
                   "container")  # fmt: skip


def _mapping(
    *,
    args: Mapping[str, str],
    literal: str | None = None,
    regexp: Pattern | None = None,
    image: str | None = None,
    loader: LoadedBy = LoadedBy.OURS,
    dir_name: str | None = None,
    container: ContainerSettings | None = None,
    template: str | None = None,
    signing: Signing | None = None,
    skip: bool = False,
) -> KernelMapping:
    container = container or ContainerSettings()
    return KernelMapping(
        pattern=compiled(re2.escape(literal or "")) if regexp is None else regexp,
        literal=literal,
        skip=skip,
        image=image,
        template=template,
        args=args,
        signing=signing,
        vendor=VendorSettings(loader=loader, dir_name=dir_name, container=container),
    )


_MAPPING = table(
    _mapping,
    literal=Row(text(rules.KERNEL), "Exactly this kernel release."),
    regexp=Row(
        converted(text(rules.REGEXP), _pattern),
        "Kernel releases that this regular expression (RE2 syntax) matches as a whole.",
    ),
    image=Row(
        converted(text(rules.PREBUILT_IMAGE), _prebuilt),
        "A prebuilt image to use instead of building, host/repository:tag or @digest.",
    ),
    loader=Row(
        choice(LoadedBy),
        "Who loads the modules of image: driverwright's loader (ours, the default), from the files that the image has, "
        "or the image's own program (image), which runs privileged as long as the pod.",
        more="[Vendors' images](#vendors-images).",
    ),
    dir_name=Row(
        converted(text(rules.ABSOLUTE_PATH), _folder),
        "Folder of image with lib/modules/<kernel>, if it is no image of driverwright's; /opt without it.",
        more="With `loader: ours`.",
    ),
    container=Row(
        maybe(table(ContainerSettings, checks=[_check_container])),
        "How the image's own program is run, with the loader image.",
    ),
    template=Row(text(rules.TEMPLATE), "Template for these kernels."),
    args=Row(ARGS, "Arguments for the driver's make; they override those of spec.build.args."),
    signing=Row(maybe(SIGNING), "Keys and certificate for these kernels, instead of all of spec.signing."),
    skip=Row(flag(), "Nodes on such a kernel get no driver."),
    checks=[_check_mapping, _check_vendor],
    rules=[
        Cel("has(self.literal) != has(self.regexp)", "exactly one of literal, regexp must be set"),
        Cel(
            "!(has(self.skip) && self.skip && (has(self.image) || has(self.template) || has(self.signing) || "
            "has(self.args) && self.args.size() > 0))",
            "image, template, args and signing must not be set with skip",
        ),
        Cel(
            "!(has(self.image) && (has(self.template) || has(self.signing) || has(self.args) && self.args.size() > 0))",
            "template, args and signing must not be set with image, because a prebuilt image is not built",
        ),
        Cel(
            "has(self.image) || !(has(self.loader) || has(self.dirName) || has(self.container))",
            "loader, dirName and container require image",
        ),
        Cel(
            "!has(self.loader) || self.loader == 'ours' ? !has(self.container) : !has(self.dirName)",
            "dirName is for the loader ours, container for the loader image",
        ),
    ],
)


def _may_be_compiled(spec: Reader, name: str) -> bool:
    items = spec.given.get(name) or ()
    texts = [item.get("regexp") for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    length = sum(len(text) for text in texts if isinstance(text, str) and len(text) <= rules.REGEXP.max_length)
    if length > MAX_REGEXPS:
        spec.wrong(f"their expressions have {length} characters together: write at most {MAX_REGEXPS}", name)
    return length <= MAX_REGEXPS


MAPPINGS = objects(_MAPPING, guard=_may_be_compiled)


def check_loaded_by_image(spec: Reader, mappings: Sequence[KernelMapping]) -> None:
    """Note the fields of ``spec`` and ``spec.module`` without effect where an image's own program loads."""
    number = next((index for index, item in enumerate(mappings) if item.vendor.loader is LoadedBy.IMAGE), None)
    if number is None:
        return
    if spec.has("userspace"):
        spec.wrong(
            f"is not exported from the image of kernelMappings[{number}] (loader: image), whose own program installs "
            "what belongs to its modules: remove it; kernels with another loader belong to another DriverContainer",
            "userspace",
        )
    module = spec.given.get("module")
    for name in filter(module.get, _LOADED_BY_US) if isinstance(module, Mapping) else ():
        spec.wrong(
            f"is not given to the image's own program, which loads the modules of kernelMappings[{number}] "
            "(loader: image): write it to container.args or container.env as that program expects it, and remove it "
            "here; kernels with another loader belong to another DriverContainer",
            "module",
            name,
        )
