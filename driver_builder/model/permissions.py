"""What authors of DriverContainers may use: the allow-lists and limits that the controller is started with. Pure.

Place in the flow: ``config`` reads them from flags, ``targets.permissions`` judges each driver by them. Without a
setting everything is allowed (docs/security.md).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from driver_builder.model import quantities
from driver_builder.model.images import COMPONENT, DOCKER_HUB, DOCKER_HUB_HOSTS, is_registry
from driver_builder.model.setting import Group, Setting
from kube_api import names

NOTHING = "none"
"""The value of an allow-list that allows nothing."""
MAX_PATTERNS = 256
SYSTEM_NAMESPACE = "kube-system"
MAX_NAMESPACE = 63

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_PORT = r":(?P<port>[1-9][0-9]{0,4})"
_LAST_PORT = 65535
_HOST = re.compile(rf"(?:\*\.)?{_DOMAIN}(?:{_PORT})?")
_REPOSITORY = re.compile(rf"{_DOMAIN}(?:{_PORT})?/(?:\*|{COMPONENT}(?:/{COMPONENT})*(?:/\*)?)")
_SWITCH = {"1": True, "true": True, "0": False, "false": False}
_PORTS = {"https": "443", "http": "80"}


_STANDARD = ("cpu", "memory", "ephemeral-storage")
_BYTES = ("memory", "ephemeral-storage")
_LEAST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What a driver may use. None stands for everything, an empty list for nothing.

    ``registries``, ``base_images`` and ``prebuilt_images`` are patterns of repositories, ``source_hosts`` of hosts. A
    driver must select by one of ``node_labels``, which are ``KEY=VALUE``, or ``KEY`` for any value. ``max_resources``
    are the largest amounts of builds in Jobs, by resource. Drains evict pods in ``drain_namespaces``. With
    ``protected_secrets`` no build may mount a Secret that a driver names for its registry or its signing.
    """

    registries: tuple[str, ...] | None = None
    base_images: tuple[str, ...] | None = None
    prebuilt_images: tuple[str, ...] | None = None
    source_hosts: tuple[str, ...] | None = None
    node_labels: tuple[str, ...] | None = None
    max_resources: Mapping[str, str] | None = None
    drain_namespaces: tuple[str, ...] | None = None
    custom_templates: bool = True
    protected_secrets: bool = False


def repository_patterns(text: str) -> tuple[str, ...]:
    """Read ``registry.example.com/drivers/*,docker.io/library/debian``.

    Raises:
        ValueError: names the word that is not a pattern.
    """
    return tuple(_checked_repository(word) for word in _words(text))


def host_patterns(text: str) -> tuple[str, ...]:
    """Read ``github.com,*.example.com,mirror.example.com:8443``.

    Raises:
        ValueError: names the word that is not a host.
    """
    return tuple(_checked_host(word) for word in _words(text))


def node_labels(text: str) -> tuple[str, ...]:
    """Read ``pool=gpu,example.com/fpga``.

    Raises:
        ValueError: names the word that is not a label.
    """
    return tuple(_checked_label(word) for word in _words(text))


def namespaces(text: str) -> tuple[str, ...]:
    """Read ``apps,jobs``.

    Raises:
        ValueError: names the word that is not a namespace.
    """
    return tuple(_checked_namespace(word) for word in _words(text))


def resources(text: str) -> Mapping[str, str]:
    """Read ``cpu=4,memory=8Gi``.

    Raises:
        ValueError: naming the word that is no resource with its amount.
    """
    found: dict[str, str] = {}
    for word in _words(text):
        name, equals, quantity = word.partition("=")
        if not equals or not names.is_qualified_name(name):
            raise ValueError(f"{word!r} is not the limit of a resource: write RESOURCE=QUANTITY,...")
        if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
            raise ValueError(f"{word!r}: Kubernetes has no resource {name}: write one of {', '.join(_STANDARD)}")
        if name in found:
            raise ValueError(f"{word!r}: {name} is there twice: write it once")
        if not quantities.amount(quantity):
            raise ValueError(f"{word!r} allows nothing: write an amount above 0")
        if name in _BYTES and quantities.amount(quantity) < _LEAST_BYTES:
            raise ValueError(f"{word!r} is too little for any build: write bytes with a unit, such as {name}=8Gi")
        found[name] = quantity
    return found


def allows_image(patterns: tuple[str, ...] | None, image: str) -> bool:
    """Return whether one of the patterns matches an image that an engine pulls, whatever its tag and digest."""
    return allows_repository(patterns, *_host_and_path(image))


def allows_repository(patterns: tuple[str, ...] | None, host: str, path: str) -> bool:
    """Return whether one of the patterns matches a repository whose host is given."""
    repository = _repository(host, path)
    return patterns is None or any(_is_below(repository, pattern) for pattern in patterns)


def allows_url(patterns: tuple[str, ...] | None, url: str) -> bool:
    """Return whether one of the patterns matches the host of a URL, which names neither user nor password."""
    return patterns is None or any(_is_host(url, pattern) for pattern in patterns)


def allows_selector(labels: tuple[str, ...] | None, selector: Mapping[str, str]) -> bool:
    """Return whether a selector contains one of the labels: more labels only select fewer nodes."""
    pairs = {word for key, value in selector.items() for word in (key, f"{key}={value}")}
    return labels is None or not pairs.isdisjoint(labels)


def allows_eviction(allowed: tuple[str, ...] | None, namespace: str, *, is_critical: bool) -> bool:
    """Return whether a drain may evict a pod of a namespace; the cluster's own need the namespace by name."""
    return namespace in allowed if allowed is not None else not (is_critical and namespace == SYSTEM_NAMESPACE)


def _host_and_path(image: str) -> tuple[str, str]:
    """Read an image as engines do: a first part without a dot, a port and capitals is no host."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    host, path = (first, rest) if slash and is_registry(first) else (DOCKER_HUB, name)
    return host, path.partition(":")[0]


def _repository(host: str, path: str) -> str:
    """Return ``host/path``, with what engines add to a short name of Docker Hub."""
    if host.lower() in DOCKER_HUB_HOSTS:
        return f"{DOCKER_HUB}/{path if '/' in path or path == '*' else f'library/{path}'}"
    return f"{host.lower()}/{path}"


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == [NOTHING]:
        return []
    if not words or NOTHING in [word.lower() for word in words]:
        raise ValueError(
            f"{text!r} is not a list: write what is allowed, or {NOTHING} alone, in lower case, to allow nothing"
        )
    if len(words) > MAX_PATTERNS:
        raise ValueError(f"it has {len(words)} entries: write at most {MAX_PATTERNS}")
    return words


def _checked_repository(word: str) -> str:
    host, slash, path = word.partition("/")
    if not is_registry(host) or not _matches(_REPOSITORY, host.lower() + slash + path):
        raise ValueError(
            f"{word!r} is not a pattern of repositories: write HOST[:PORT]/PATH for one, HOST[:PORT]/PATH/* for all"
            f" below it or HOST[:PORT]/* for a whole registry, without a tag, and a port from 1 to {_LAST_PORT} (Debian"
            f" of Docker Hub: {DOCKER_HUB}/library/debian)"
        )
    return _repository(host, path)


def _checked_host(word: str) -> str:
    if not _matches(_HOST, word.lower()):
        raise ValueError(
            f"{word!r} is not a host: write HOST[:PORT] or *.DOMAIN[:PORT], without a scheme and a path, and a port"
            f" from 1 to {_LAST_PORT}"
        )
    return word.lower()


def _matches(pattern: re.Pattern[str], word: str) -> bool:
    found = pattern.fullmatch(word)
    return found is not None and int(found["port"] or 1) <= _LAST_PORT


def _checked_label(word: str) -> str:
    key, _, value = word.partition("=")
    if not names.is_qualified_name(key) or not names.is_label_value(value):
        raise ValueError(f"{word!r} is not a label: write KEY=VALUE, or KEY for any value")
    return word


def _checked_namespace(word: str) -> str:
    if len(word) > MAX_NAMESPACE or not re.fullmatch(_LABEL, word):
        raise ValueError(f"{word!r} is not a namespace: write NAMESPACE,...")
    return word


def _is_below(repository: str, pattern: str) -> bool:
    return repository.startswith(pattern.removesuffix("*")) if pattern.endswith("/*") else repository == pattern


def _is_host(url: str, pattern: str) -> bool:
    scheme, _, rest = url.partition("://")
    name, _, port = rest.partition("/")[0].lower().partition(":")
    wanted, _, wanted_port = pattern.partition(":")
    own_port = _PORTS.get(scheme, "")
    if (port or own_port) != (wanted_port or own_port):
        return False
    return name.endswith(wanted.removeprefix("*")) if wanted.startswith("*") else name == wanted


def read(texts: Mapping[str, str | None], base: Permissions = Permissions()) -> Permissions:
    """Make the value of the settings' texts, by their names; one that is not given (None) is that of ``base``.

    Raises:
        ValueError: naming the flag, what is wrong with its value and what to write.
    """
    return replace(base, **dict(_values(texts)))


def _values(texts: Mapping[str, str | None]) -> Iterable[tuple[str, Any]]:
    for setting in SETTINGS:
        text = texts.get(setting.name)
        if text is None:
            continue
        try:
            yield setting.field, setting.read(text)
        except ValueError as error:
            raise ValueError(f"{setting.flag}: {error}") from error


def _is_on(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(f"{text!r} is neither true nor false: write one of them")
    return _SWITCH[text.lower()]


def _setting(flag: str, field: str, metavar: str, words: str, read: Callable[[str], Any]) -> Setting:
    """Make a row; ``field`` is that of :class:`Permissions`, which has the default."""
    return Setting(flag, metavar, words, read, None, group=Group.PERMISSIONS, field=field)


REGISTRIES = _setting(
    "--allowed-registries", "registries", "HOST/PATH[/*],...",
    "repositories that spec.image may name (default: any; none: no repository)", repository_patterns,
)  # fmt: skip
BASE_IMAGES = _setting(
    "--allowed-base-images", "base_images", "HOST/PATH[/*],...",
    "images that builds may start from or take the source from: spec.build.baseImage, the distributions' base images,"
    " spec.source.image (default: any; none: no image)",
    repository_patterns,
)  # fmt: skip
PREBUILT_IMAGES = _setting(
    "--allowed-prebuilt-images", "prebuilt_images", "HOST/PATH[/*],...",
    "images that spec.kernelMappings may name instead of a build (default: any; none: no prebuilt image)",
    repository_patterns,
)  # fmt: skip
SOURCE_HOSTS = _setting(
    "--allowed-source-hosts", "source_hosts", "HOST[:PORT],...",
    "hosts that spec.source.git, spec.source.archive and HEADERS_MIRROR may name, *.DOMAIN for all below a domain"
    " (default: any; none: no host)",
    host_patterns,
)  # fmt: skip
NODE_LABELS = _setting(
    "--allowed-node-labels", "node_labels", "KEY[=VALUE],...",
    "labels of which spec.nodeSelector must contain at least one (default: every node may be selected)",
    node_labels,
)  # fmt: skip
MAX_RESOURCES = _setting(
    "--max-build-resources", "max_resources", "RESOURCE=QUANTITY,...",
    "maximum of spec.build.resources, which may name no other resources, and the limits of build Jobs that set none"
    " (default: unlimited)",
    resources,
)  # fmt: skip
DRAIN_NAMESPACES = _setting(
    "--drain-namespaces", "drain_namespaces", "NAMESPACE,...",
    "namespaces whose pods spec.rollout.drain may evict; it waits for others that it selects (default: any, without"
    " pods of kube-system that have a critical priority class; none: no namespace)",
    namespaces,
)  # fmt: skip
CUSTOM_TEMPLATES = _setting(
    "--no-custom-templates", "custom_templates", "",
    "refuse spec.build.templateConfigMap: a custom template may start from any image", lambda text: not _is_on(text),
)  # fmt: skip
PROTECTED_SECRETS = _setting(
    "--protect-secrets", "protected_secrets", "",
    "refuse builds that mount a Secret which a driver of the namespace names in registry or signing", _is_on,
)  # fmt: skip
SETTINGS = (
    REGISTRIES, BASE_IMAGES, PREBUILT_IMAGES, SOURCE_HOSTS, NODE_LABELS, MAX_RESOURCES, DRAIN_NAMESPACES,
    CUSTOM_TEMPLATES, PROTECTED_SECRETS,
)  # fmt: skip
"""Every setting, in the order of the help."""
