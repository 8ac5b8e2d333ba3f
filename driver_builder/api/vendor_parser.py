"""What a kernel mapping may say of a prebuilt image besides its name: who loads its modules, and from where. Pure.

Place in the flow: ``spec_parser`` calls it. Fields without effect are refused by their names.
"""

from collections.abc import Sequence

from driver_builder.api.driver_spec import (
    ContainerSettings,
    HostPath,
    KernelMapping,
    LoadedBy,
    Propagation,
    VendorSettings,
)
from driver_builder.api.environment import read_env
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import ABSOLUTE_PATH, ENV_NAME, TEXT

MAX_HOST_PATHS = 16
_OF_AN_IMAGE = ("loader", "dirName", "container")
_LOADED_BY_US = ("parameters", "firmwarePath")


def read_vendor(mapping: Reader) -> VendorSettings:
    """Read ``loader``, ``dirName`` and ``container`` of a kernel mapping."""
    loader = mapping.choice("loader", LoadedBy) or LoadedBy.OURS
    dir_name = mapping.text("dirName", ABSOLUTE_PATH)
    container = _container(mapping.object("container"))
    if not mapping.has("image"):
        for name in filter(mapping.has, _OF_AN_IMAGE):
            mapping.wrong("is only for a prebuilt image: name it in image, or remove this field", name)
    elif loader is LoadedBy.IMAGE and mapping.has("dirName"):
        mapping.wrong("is only for loader: ours, because the image's own program has its modules: remove it", "dirName")
    elif loader is LoadedBy.OURS and mapping.has("container"):
        mapping.wrong("is only for loader: image, which runs the image's own program: set that, or remove it",
                      "container")  # fmt: skip
    return VendorSettings(loader=loader, dir_name=_folder(dir_name), container=container)


def check_given(spec: Reader, module: Reader, mappings: Sequence[KernelMapping]) -> None:
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
    for name in filter(module.given.get, _LOADED_BY_US):
        module.wrong(
            f"is not given to the image's own program, which loads the modules of kernelMappings[{number}] "
            "(loader: image): write it to container.args or container.env as that program expects it, and remove it "
            "here; kernels with another loader belong to another DriverContainer",
            name,
        )


def _folder(path: str | None) -> str | None:
    return path if path is None else path.rstrip("/") or "/"


def _container(container: Reader) -> ContainerSettings:
    default = ContainerSettings()
    timeout = container.duration("timeout")
    return ContainerSettings(
        command=container.words("command", TEXT),
        args=container.words("args", TEXT),
        env=read_env(container, ENV_NAME),
        host_paths=_host_paths(container),
        timeout_seconds=default.timeout_seconds if timeout is None else timeout,
    )


def _host_paths(container: Reader) -> tuple[HostPath, ...]:
    found = tuple(_host_path(item) for item in container.objects("hostPaths", most=MAX_HOST_PATHS))
    if len({item.mount_path for item in found}) < len(found):
        container.wrong("mounts two folders at one place: give each its own mountPath", "hostPaths")
    return found


def _host_path(item: Reader) -> HostPath:
    path = _folder(item.needed("path", ABSOLUTE_PATH)) or ""
    mount_path = _folder(item.text("mountPath", ABSOLUTE_PATH)) or path
    if mount_path == "/":
        item.wrong("would replace the image's own files: write another place, such as /host", "mountPath")
    return HostPath(
        path=path,
        mount_path=mount_path,
        read_only=item.flag("readOnly"),
        propagation=item.choice("propagation", Propagation),
    )
