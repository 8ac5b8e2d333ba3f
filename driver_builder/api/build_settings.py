"""What goes into an image, as rows and frozen values: ``source``, ``build``, ``signing``, ``userspace`` of a spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from driver_builder.api import spec_rules as rules
from driver_builder.api.spec_kinds import (
    AS_GIVEN,
    Cel,
    Kind,
    Row,
    choice,
    converted,
    duration,
    flag,
    lists,
    maybe,
    needed,
    objects,
    pairs,
    reference,
    references,
    row,
    table,
    text,
)
from driver_builder.api.spec_reader import Reader, shown
from driver_builder.model import quantities
from driver_builder.model.build import MIRROR_ARG, Signing, SourceArchive, SourceGit, SourceImage, SourcePackage
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.userspace import DEFAULT_SIZE, MAX_SIZE, Userspace, UserspaceArchive, UserspacePackages
from kube_api.text import first_few

Json = dict[str, Any]

MAX_SECRETS = 16
"""Secrets of a build."""
MAX_SYSTEMS, MAX_PACKAGES = 16, 32
"""Operating systems with further packages, and packages of one; also packages of a user space."""
_LEAST_SIZE = 1 << 20
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """One text of a ConfigMap in the DriverContainer's namespace."""

    name: str
    key: str


CA = table(
    ConfigMapKey,
    name=Row(needed(rules.OBJECT_NAME)),
    key=Row(text(rules.CONFIG_MAP_KEY), "Key of the PEM text.", default="ca.crt", is_filled=True),
)
_TEMPLATE_CONFIG_MAP = table(
    ConfigMapKey, name=Row(needed(rules.OBJECT_NAME)), key=Row(needed(rules.CONFIG_MAP_KEY), "Key of the template.")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapSource:
    """The driver's source files are the keys of this ConfigMap, in the DriverContainer's namespace."""

    name: str


SourceSpec = ConfigMapSource | SourceImage | SourceGit | SourceArchive | SourcePackage
"""Where a driver's source comes from. All but the ConfigMap are pinned, so that every build gets the same."""

_URL = Row(needed(rules.ARCHIVE_URL), "URL by https or http, without a password or a query.")
_SHA256 = Row(needed(rules.SHA256), "SHA-256 of the archive, in hex.")
_SOURCES: dict[str, Any] = {
    "configMap": Row(
        maybe(table(ConfigMapSource, name=Row(needed(rules.OBJECT_NAME)))),
        "The source files are the keys of this ConfigMap in the same namespace.",
    ),
    "image": Row(
        maybe(
            table(
                SourceImage,
                reference=Row(needed(rules.PINNED_IMAGE), "The image by digest, host/repository@sha256:..."),
                path=Row(
                    text(rules.ABSOLUTE_PATH),
                    "Absolute path of the source inside the image.",
                    default="/",
                    is_filled=True,
                ),
            )
        ),
        "The source is in a container image.",
    ),
    "git": Row(
        maybe(
            table(
                SourceGit,
                url=Row(
                    needed(rules.GIT_URL),
                    "URL by https, without a user or a password; not ssh, because builds get no key.",
                ),
                commit=Row(needed(rules.COMMIT), "The full hash of the commit; no branch or tag, which may move."),
                path=Row(
                    text(rules.RELATIVE_PATH), "The source's folder below the repository's root. Default is the root."
                ),
            )
        ),
        "The source is in a git repository.",
        more="A public one. With submodules: [Sources in git](distributions.md#sources-in-git).",
    ),
    "archive": Row(
        maybe(
            table(
                SourceArchive,
                url=_URL,
                sha256=_SHA256,
                path=Row(
                    text(rules.RELATIVE_PATH), "The source's folder below the archive's root. Default is the root."
                ),
            )
        ),
        "The source is in a tar archive.",
    ),
    "package": Row(
        maybe(
            table(
                SourcePackage,
                name=Row(needed(rules.PACKAGE), "Name of the package, such as v4l2loopback-dkms."),
                version=Row(
                    text(rules.PACKAGE_VERSION),
                    "Version of the package. Default is the newest when the driver is built.",
                ),
            )
        ),
        "A DKMS package of the nodes' distribution.",
    ),
}


def _one_source(source: Reader, _read: object) -> None:
    given = [kind for kind in source.given if source.has(kind)]
    if len(given) != 1:
        source.wrong(f"exactly one of {', '.join(_SOURCES)} is needed, given: {', '.join(map(str, given)) or 'none'}")
    elif given[0] not in _SOURCES:
        source.asked.add(given[0])
        source.wrong(f"{given[0]!r} is unknown: use one of {', '.join(_SOURCES)}")


def _source(**given: SourceSpec) -> SourceSpec:
    return next(iter(given.values()), ConfigMapSource(name=""))


SOURCE = table(
    _source,
    **_SOURCES,
    checks=[_one_source],
    rules=[
        Cel(
            "[has(self.configMap), has(self.image), has(self.git), has(self.archive), "
            "has(self.__package__)].filter(given, given).size() == 1",
            "exactly one of configMap, image, git, archive, package must be set",
        )
    ],
    # No maxProperties: where it refuses, the API server does not evaluate the rule, whose words are better.
    least=1,
)


class BuilderKind(StrEnum):
    """Who builds: the engine that the controller is connected to, or a Kubernetes Job."""

    DOCKER = "docker"
    JOB = "job"


def _names_no_proxy(proxy: Reader, _read: object) -> None:
    if not proxy.has("httpProxy") and not proxy.has("httpsProxy"):
        proxy.wrong("it names no proxy: write httpProxy, httpsProxy or both")


_PROXY = table(
    BuildProxy,
    http=Row(
        text(rules.PROXY), "Address for http, without user and password.", name="httpProxy", more="`http://host:port`."
    ),
    https=Row(text(rules.PROXY), "Address for https, without user and password.", name="httpsProxy"),
    no_proxy=Row(
        text(rules.NO_PROXY),
        "What is reached without the proxy; hosts, domains such as .example.com and addresses, with commas.",
    ),
    secret=Row(
        reference(),
        "Secret with the keys username and password (kubernetes.io/basic-auth) for the proxy.",
        name="secretRef",
        more="Default is no password. The commands of the build can read them; logs do not show them.",
    ),
    checks=[_names_no_proxy],
    rules=[Cel("has(self.httpProxy) || has(self.httpsProxy)", "httpProxy, httpsProxy or both must be set")],
)


def _arguments(args: Mapping[str, str], parent: Reader, name: str) -> Mapping[str, str]:
    if MIRROR_ARG in args:
        parent.check(args[MIRROR_ARG], rules.MIRROR, name, MIRROR_ARG)
    return args


ARGS = converted(pairs(rules.ARG, rules.ARG_VALUE), _arguments)


def _sorted(packages: Mapping[str, tuple[str, ...]], _parent: Reader, _name: str) -> Mapping[str, tuple[str, ...]]:
    """Sort the packages of each operating system: their order means nothing."""
    return {system: tuple(sorted(set(names))) for system, names in packages.items()}


def _quantities(parent: Reader, name: str) -> Json:
    """Read resources of a container, whose quantities the API server checks as well."""
    fields = parent.object(name)
    fields.asked.update(fields.given)
    for resource, value in fields.given.items():
        if isinstance(value, bool) or not isinstance(value, int):
            fields.check(value, rules.QUANTITY, resource)
    return dict(fields.given)


def _resources(**given: Json) -> Json:
    return {name: quantities for name, quantities in given.items() if quantities}


_QUANTITIES = Row(Kind(_quantities, AS_GIVEN))
_RESOURCES = table(_resources, requests=_QUANTITIES, limits=_QUANTITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """``spec.build``: ``template`` names one of ours, ``template_config_map`` has a custom one.

    ``secrets`` are names. ``packages`` are further ones that a build needs, by the ``ID`` of the operating system.
    ``tools_image`` is the Debian image of the tools that templates of other distributions need. ``ca_config_map`` has
    certificates, in PEM, that builds trust besides those of their images.
    """

    template: str | None = row(
        text(rules.TEMPLATE),
        "Name of the Dockerfile template. Default is the one of the nodes' distribution.",
        more="They are in `dockerfiles/driver/`.",
    )
    template_config_map: ConfigMapKey | None = row(
        maybe(_TEMPLATE_CONFIG_MAP),
        "ConfigMap in the same namespace with a custom Dockerfile template; see docs/templates.md.",
        more="Not together with `template`.",
    )
    base_image: str | None = row(
        text(rules.BASE_IMAGE),
        "Image the driver is built in, from a registry. Default is the one of the nodes' distribution.",
        more="Images that builds leave in the engine are refused.",
    )
    args: Mapping[str, str] = row(ARGS, "NAME=value arguments for the driver's make.")
    proxy: BuildProxy | None = row(
        maybe(_PROXY),
        "Proxy by which a build reaches package repositories, git servers and archives, and in a Job the registries of "
        "its base images. Not part of the image and its tag.",
        more="An engine pulls with its own settings. The daily kernel discovery (`preflight.followRepository`) uses it "
        "too. A custom template must not declare these names as `ARG`.",
    )
    ca_config_map: ConfigMapKey | None = row(
        maybe(CA),
        "ConfigMap in the same namespace with CAs in PEM that builds trust besides those of their images, for package "
        "repositories, git servers and archives, and in a Job the registries of its base images. Not part of the image "
        "and its tag.",
        more="The commands of a build are apt, dnf, yum, zypper (where the base image has `openssl`), curl and git. An "
        "engine pulls with its own settings, and gets at most 240,000 characters of certificates. Kernel discovery "
        "uses them too. A custom template must not declare `FTP_PROXY` or `ftp_proxy` as `ARG`.",
    )
    tools_image: str | None = row(
        text(rules.BASE_IMAGE),
        "Debian image from which templates of other distributions (rhel, fedora, amazon, sles) take dkms, and which "
        "fetches their sources. Default is debian:bookworm-slim.",
        more="A mirror's, where Docker Hub cannot be reached. If set, it is part of the build key of these templates.",
    )
    packages: Mapping[str, tuple[str, ...]] = row(
        converted(lists(rules.OPERATING_SYSTEM, rules.PACKAGE, MAX_SYSTEMS, MAX_PACKAGES), _sorted),
        "Further packages that the build needs, by the operating system's ID in os-release, such as debian: [g++] and "
        "rocky: [gcc-c++]. They are installed in the build only, from the repositories of the base image.",
        more="Flatcar's and `generic`'s base image is Debian. `lint --snapshot` names systems of nodes that have no "
        "entry.",
    )
    secrets: tuple[str, ...] = row(
        references(MAX_SECRETS),
        "Secrets whose keys a build in a Job can read as files, /run/secrets/NAME/KEY. No image contains them.",
        more="They need `builder: job`.",
    )
    resources: Json = row(
        _RESOURCES.always, "Resources of a build in a Job. Default is to request half a CPU and 512 MiB."
    )
    deadline_seconds: float | None = row(
        duration(),
        "A build that takes longer is stopped; such as 30m, 1h. Default is the controller's --build-deadline-seconds.",
        name="deadline",
        more="At most `--max-build-deadline-seconds` (4 hours).",
    )
    builder: BuilderKind | None = row(
        choice(BuilderKind),
        "The builder. docker is the engine of the controller, job a Kubernetes Job. Default is the controller's "
        "--builder.",
        more="[Builds in Jobs](#builds-in-jobs). It is `job` in `deploy/` and the chart.",
    )

    def parts(self, os_id: str) -> dict[str, Any]:
        """Return what is a part of the image as it is written here, by its field of ``BuildRequest``."""
        return {"packages": self.packages.get(os_id, ())}


def _check_build(build: Reader, read: Mapping[str, Any]) -> None:
    if build.has("templateConfigMap") and build.has("template"):
        build.wrong("template and templateConfigMap exclude each other: remove one of them")
    names = read["secrets"]
    if names and build.given.get("builder") != BuilderKind.JOB:
        build.wrong("can only be given to a build in a Job: set spec.build.builder: job, or remove them", "secrets")
    if len(set(names)) < len(names):
        build.wrong(f"{shown(list(names))} names a Secret twice: name each once", "secrets")


BUILD = table(
    BuildSettings,
    reuse_across_kernels=Row(
        flag(), "Deprecated: ignored since 0.2. The driver is built for every kernel.", is_ignored=True
    ),
    checks=[_check_build],
    rules=[
        Cel(
            "!has(self.secrets) || size(self.secrets) == 0 || (has(self.builder) && self.builder == 'job')",
            "secrets require a build in a Job: set builder: job",
        ),
        Cel(
            "!(has(self.template) && has(self.templateConfigMap))",
            "template and templateConfigMap are mutually exclusive",
        ),
    ],
)


def _check_signing(signing: Reader, _read: object) -> None:
    if signing.has("keySecretRef") != signing.has("certificateSecretRef"):
        signing.wrong("keySecretRef and certificateSecretRef must be set together: set both to sign modules")
    elif not signing.has("keySecretRef") and not signing.has("imageKeySecretRef"):
        signing.wrong("names no key: set keySecretRef and certificateSecretRef, or imageKeySecretRef")


SIGNING = table(
    Signing,
    key_secret=Row(
        reference(),
        "Secret with the RSA key of modules, as key or tls.key, in PEM or DER; in the same namespace.",
        name="keySecretRef",
    ),
    certificate_secret=Row(
        reference(), "Secret with its certificate, as cert or tls.crt, in PEM or DER.", name="certificateSecretRef"
    ),
    image_key_secret=Row(
        reference(),
        "Secret with the key of images (cosign's format), as key or tls.key, P-256 in PEM.",
        name="imageKeySecretRef",
    ),
    checks=[_check_signing],
    rules=[
        Cel(
            "has(self.keySecretRef) == has(self.certificateSecretRef)",
            "keySecretRef and certificateSecretRef must be set together",
        ),
        Cel(
            "has(self.keySecretRef) || has(self.imageKeySecretRef)",
            "at least one of keySecretRef, imageKeySecretRef must be set",
        ),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceSettings:
    """``spec.userspace``: what is built into the image, and where nodes have it; None for the place of every driver."""

    build: Userspace
    host_path: str | None = None


def _size(text: str | None, parent: Reader, name: str) -> int:
    size = DEFAULT_SIZE if text is None else int(quantities.amount(text))
    if not _LEAST_SIZE <= size <= MAX_SIZE:
        parent.wrong(f"{text!r} is too small or too large: write a size from 1Mi to 4Gi", name)
    return size


def _check_userspace(userspace: Reader, read: Mapping[str, Any]) -> None:
    if userspace.has("archive") == userspace.has("packages"):
        userspace.wrong("exactly one of archive, packages is needed")
    if userspace.has("archive"):
        if not userspace.has("versionFile"):
            userspace.wrong(
                "is missing: name the file of the archive with the driver's version in its first line, "
                "or a library that has it in its name, such as lib/libedu.so.1.2.3",
                "versionFile",
            )
        return
    packages = UserspacePackages(pins=read["packages"])
    if not packages.pins:
        userspace.wrong("name at least one package", "packages")
    if len(packages.versions) > 1 and not read["version_file"]:
        userspace.wrong(
            f"they have different versions, {first_few(packages.versions, _SHOWN)}: take all from one release of the "
            "driver, or name the file with its version in versionFile",
            "packages",
        )


def _userspace(
    *,
    packages: tuple[tuple[str, str], ...],
    size_limit: int,
    archive: UserspaceArchive | None = None,
    version_file: str = "",
    host_path: str | None = None,
) -> UserspaceSettings:
    content = UserspacePackages(pins=packages) if archive is None else archive
    build = Userspace(content=content, version_file=version_file, size_limit=size_limit)
    return UserspaceSettings(build=build, host_path=host_path)


def _pin(*, name: str, version: str) -> tuple[str, str]:
    return name, version


USERSPACE = table(
    _userspace,
    archive=Row(
        maybe(
            table(
                UserspaceArchive,
                url=_URL,
                sha256=_SHA256,
                path=Row(
                    text(rules.RELATIVE_PATH),
                    "The folder below the archive's root. Default is the root, or the one folder in it.",
                ),
            )
        ),
        "A tar archive.",
    ),
    packages=Row(
        objects(
            table(
                _pin,
                name=Row(needed(rules.PACKAGE), "The name."),
                version=Row(
                    needed(rules.PACKAGE_VERSION),
                    "The version of the package. Without versionFile, all are of one release.",
                ),
            ),
            MAX_PACKAGES,
            least=1,
        ),
        "Packages of the base image's distribution, without what they depend on.",
    ),
    version_file=Row(
        text(rules.RELATIVE_PATH),
        "File of the user space that has the version in its first line, or in its name: "
        "lib/libedu.so.1.2.3. Default is the version of the packages, without epoch and revision.",
    ),
    size_limit=Row(
        converted(text(rules.SIZE), _size),
        "How large it may be, from 1Mi to 4Gi; nodes have it in memory. Default is 512Mi.",
    ),
    host_path=Row(
        text(rules.USERSPACE_HOST_PATH), "Where nodes have it. Default is /run/driverwright/<namespace>.<name>."
    ),
    checks=[_check_userspace],
    rules=[
        Cel("has(self.archive) != has(self.packages)", "exactly one of archive, packages must be set"),
        Cel("!has(self.archive) || has(self.versionFile)", "archive requires versionFile"),
    ],
)
