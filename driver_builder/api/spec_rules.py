"""Patterns for the strings of a DriverContainer, each with the message for one that does not match. Pure.

Place in the flow: ``spec_parser`` reads a spec by these rules, and ``template_values`` applies the same ones again to
what reaches a Dockerfile. The patterns of the CRD may allow more, never less (``tests/contract/test_spec_rules.py``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from driver_builder.model import cron, images, quantities, resource_claim
from driver_builder.model.engine_images import is_reserved
from driver_builder.model.images import COMPONENT
from driver_builder.model.kernels import KERNEL_VERSION, OS_ID
from driver_builder.model.userspace import FIRMWARE_FOLDER, NVIDIA_PATH
from kube_api.names import GROUP

Json = dict[str, Any]

PROGRAM_VARIABLE = "DRIVERWRIGHT_DRIVER"
"""The variable of an image's own program that driver-builder sets itself."""
STAGE_VARIABLES = ("NODE_NAME", "POD_NAMESPACE", "POD_UID")
"""The variables of a DRA driver that driver-builder sets itself."""
MAX_ITEMS = 64
"""Entries of a list or a mapping, at most."""

RULES = "x-kubernetes-validations"
"""What a schema calls its rules in CEL."""
PAUSE_LABEL = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9_.-]*[.])?deploy[.][A-Za-z0-9_.-]*[A-Za-z0-9]"
"""Keys of labels by which operators deploy their DaemonSets to a node, such as ``nvidia.com/gpu.deploy.device-plugin``.

Who writes a DriverContainer may change no other label of a Node: the admission policy has the same expression.
"""

_IS_SET = "is set by driver-builder: leave it out"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a string may be: a pattern for all of it, and the message for another one, with the remedy.

    ``also`` checks what a pattern cannot express; it returns a message, or an empty string. ``stored``: the limits in
    the CRD, where they are wider: RE2 cannot express the pattern, or objects were stored under another one.
    """

    pattern: re.Pattern[str]
    words: str
    max_length: int = 253
    also: Callable[[str], str] | None = None
    stored: Json | None = None

    def schema(self) -> Json:
        """Write it as an OpenAPI schema."""
        pattern = "^" + self.pattern.pattern.replace("(?:", "(") + "$"
        limits = {"maxLength": self.max_length, "pattern": pattern} if self.stored is None else self.stored
        return {"type": "string", **limits}

    def wrong_with(self, text: str) -> str:
        """Return what is wrong with a string; empty if nothing is."""
        if len(text) > self.max_length or not self.pattern.fullmatch(text):
            return self.words
        return self.also(text) if self.also else ""


def _reserved(reference: str) -> str:
    if is_reserved(reference):
        return "is reserved for the builder's own images: name an image of a registry"
    return ""


def _label_of_ours(key: str) -> str:
    domain = key.partition("/")[0]
    return "is a label of driver-builder: name one of another operator" if f".{domain}".endswith(f".{GROUP}") else ""


def _variable_of_ours(name: str) -> str:
    return _IS_SET if name == PROGRAM_VARIABLE else ""


def _variable_of_a_stage(name: str) -> str:
    return _IS_SET if name in STAGE_VARIABLES else ""


def _limits(longest: int, pattern: str, *, climbs: bool = True) -> Json:
    """Return limits in the CRD; with ``climbs`` as False also the rule that a path does not."""
    no_climb = {
        "rule": "!self.matches('(^|/)[.][.]?(/|$)')",
        "message": "must not contain '.' or '..' as a path segment",
    }
    return {"maxLength": longest, "pattern": f"^{pattern}$", **({} if climbs else {RULES: [no_climb]})}


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?"
_COMPONENTS = rf"{COMPONENT}(?:/{COMPONENT})*"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@sha256:[0-9a-f]{64}"
_SEGMENTS = r"[A-Za-z0-9._+@-]+(?:/[A-Za-z0-9._+@-]+)*"
_NO_CLIMB = r"(?!(?:.*/)?\.\.?(?:/|\Z))"
_URL_PATH = r"/[A-Za-z0-9._~/+%@-]+"
_STORED_HOST = "[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?"
_STORED_SEGMENTS = "[A-Za-z0-9._+@-]+(/[A-Za-z0-9._+@-]+)*"
_STORED_REFERENCE = "[A-Za-z0-9][A-Za-z0-9._:/@-]*"

VERSION = Rule(
    re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"),
    "cannot be a label value: use at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or "
    "digit",
    63,
)
LABEL_VALUE = Rule(re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"), VERSION.words, 63)
LABEL_KEY = Rule(
    re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"),
    "is not a label key: write [prefix/]name",
    317,
)
OBJECT_NAME = Rule(
    re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"),
    "is not the name of an object: use lower case letters, digits, '-' and '.'",
)
CONFIG_MAP_KEY = Rule(
    re.compile(r"[A-Za-z0-9._-]+"), "is not a key of a ConfigMap: use letters, digits, '-', '_' and '.'"
)
REPOSITORY = Rule(
    re.compile(images.REPOSITORY),
    "must be a repository: write host[:port]/path without a tag; the tag is made by driver-builder from everything "
    "that goes into the image",
    512,
    images.wrong_registry,
    _limits(512, "[a-zA-Z0-9.-]+(:[0-9]+)?/[a-z0-9]+(([./]|__?|-+)[a-z0-9]+)*"),
)
BASE_IMAGE = Rule(
    re.compile(rf"(?:{_HOST}/)?{_COMPONENTS}(?:{_TAG})?(?:{_DIGEST})?"),
    "is not an image reference: write one such as debian:bookworm-slim",
    512,
    _reserved,
    _limits(512, "[a-zA-Z0-9][a-zA-Z0-9._:/@-]*"),
)
IMAGE = replace(BASE_IMAGE, stored=_limits(512, _STORED_REFERENCE))
PINNED_IMAGE = Rule(
    re.compile(rf"{_HOST}/{_COMPONENTS}{_DIGEST}"),
    "must be pinned: write host/repository@sha256:<64 hex digits>",
    512,
    _reserved,
    _limits(512, "[a-zA-Z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}"),
)
PREBUILT_IMAGE = Rule(
    re.compile(r"(?s:.*)"),
    "is too long: write at most 512 characters",
    512,
    stored=_limits(
        512,
        "[A-Za-z0-9.-]+(:[0-9]+)?/[a-z0-9]+(([./]|__?|-+)[a-z0-9]+)*"
        "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})",
    ),
)
ABSOLUTE_PATH = Rule(
    re.compile(rf"{_NO_CLIMB}/(?:{_SEGMENTS}/?)?"),
    "must be absolute and without '..', of letters, digits and . _ + @ - /",
    1024,
    stored=_limits(1024, f"/({_STORED_SEGMENTS}/?)?", climbs=False),
)
HOST_PATH = replace(ABSOLUTE_PATH, stored=_limits(1024, f"/({_STORED_SEGMENTS}/?)?"))
FIRMWARE_PATH = replace(ABSOLUTE_PATH, stored=_limits(1024, "(/[A-Za-z0-9._+@-]+)+/?", climbs=False))
ENV_NAME = Rule(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "is not a variable's name: use letters, digits and '_', not beginning with a digit",
    128,
    _variable_of_ours,
)
STAGE_ENV_NAME = replace(ENV_NAME, also=_variable_of_a_stage)
DEVICE_NODE = Rule(
    re.compile(rf"/dev/{_NO_CLIMB}[A-Za-z0-9._+@:-]+(?:/[A-Za-z0-9._+@:-]+)*"),
    "is not a device node: write its absolute path below /dev without '..', such as /dev/nvidia0, of letters, digits "
    "and . _ + @ : - /",
    stored=_limits(253, "/dev(/[A-Za-z0-9._+@:-]+)+"),
)
RELATIVE_PATH = Rule(
    re.compile(rf"{_NO_CLIMB}{_SEGMENTS}"),
    "must be relative and without '..', of letters, digits and . _ + @ - /: write a folder of the source such as src",
    1024,
    stored=_limits(1024, _STORED_SEGMENTS, climbs=False),
)
GIT_URL = Rule(
    re.compile(rf"https://{_HOST}{_URL_PATH}"),
    "must be a URL by https, without a user or a password: write https://host/path (not ssh: builds are given no key; "
    "a private repository's source goes into a ConfigMap or an image)",
    1024,
    stored=_limits(1024, f"https://{_STORED_HOST}{_URL_PATH}"),
)
COMMIT = Rule(
    re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?"),
    "must be a full commit hash, 40 or 64 hex digits, because a branch or tag may move: git rev-parse REF prints it",
    stored={"pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"},
)
ARCHIVE_URL = Rule(
    re.compile(rf"https?://{_HOST}{_URL_PATH}"),
    "must be a URL by https or http, without a user, a password and a query: write https://host/path.tar.gz",
    1024,
    stored=_limits(1024, f"https?://{_STORED_HOST}{_URL_PATH}"),
)
SHA256 = Rule(
    re.compile(r"[0-9a-f]{64}"),
    "must be the archive's SHA-256, 64 hex digits: sha256sum FILE prints it",
    stored={"pattern": "^[0-9a-f]{64}$"},
)
PACKAGE = Rule(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*"),
    "must be a name of a distribution's package: write one such as v4l2loopback-dkms",
    128,
)
PACKAGE_VERSION = Rule(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_-]*"),
    "is not a package version: write one such as 0.12.7-2",
    128,
)
OPERATING_SYSTEM = Rule(
    OS_ID, "is not an operating system: write the ID of its os-release, such as debian or rocky", 63
)
TEMPLATE = Rule(re.compile(r"[a-z0-9-]+"), "is not a template: write its name, lower case letters, digits and '-'", 63)
ARG = Rule(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "is not an argument's name: use letters, digits and '_', not beginning with a digit",
)
ARG_VALUE = Rule(
    re.compile(r"[A-Za-z0-9_./:=,@%+^-]*"),
    "is not an argument's value: use letters, digits and . / : = , @ % + ^ _ -",
    1024,
)
MIRROR = Rule(
    re.compile(rf"(?:https?://{_HOST}(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._+@-]+)*/?)?"),
    "is not the address of a package repository: write https://host/path (or http), without a user and a query",
    1024,
)
PROXY = Rule(
    re.compile(rf"https?://{_HOST}/?"),
    "is not the address of a proxy: write http://host:port, without a user and a password, which are in a Secret "
    "(spec.build.proxy.secretRef)",
    512,
    stored=_limits(512, f"https?://{_STORED_HOST}/?"),
)
NO_PROXY = Rule(
    re.compile(r"[A-Za-z0-9.:/*_,[\]-]+"),
    "is not a list of hosts: write names, domains such as .example.com and addresses, with commas and without blanks",
    4096,
    stored=_limits(4096, r"[A-Za-z0-9.:/*_,\[\]-]+"),
)
MODULE = Rule(
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*"),
    "is not a module name: use letters, digits, '_' and '-', not beginning with '-'",
    55,
    stored=_limits(55, "[A-Za-z0-9_-]{1,55}"),
)
MODULE_TO_LOAD = replace(MODULE, stored=_limits(55, "[A-Za-z0-9_][A-Za-z0-9_-]{0,54}"))
PARAMETER = Rule(
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:=[]A-Za-z0-9!#%()*+,./:=?@[^_{}~-]*)?"),
    "is not a parameter: write name=value in ASCII, without blanks, quotes and any of $ ` \\ ; | & < >",
    1024,
    stored={"maxLength": 1024},
)
KERNEL = Rule(KERNEL_VERSION, "is not a kernel release: write what uname -r prints, such as 6.1.0-55-cloud-amd64", 128)
DURATION = Rule(
    re.compile(r"(?=.)(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,6}s)?"),
    "is not a duration: write hours, minutes and seconds such as 1h, 30m or 1m30s",
)
EXTENDED_RESOURCE = Rule(
    re.compile(resource_claim.RESOURCE),
    "is not an extended resource: write domain/name, such as nvidia.com/gpu",
    resource_claim.MAX_NAME,
)
RESOURCE_PATTERN = Rule(
    resource_claim.PATTERN,
    "is not an extended resource: write domain/name, or domain/BEGIN* for all names that begin so, such as"
    " nvidia.com/gpu or nvidia.com/mig-*",
    resource_claim.MAX_NAME,
)
DRA_DRIVER = Rule(
    OBJECT_NAME.pattern,
    "is not the name of a driver of devices (DRA): write a domain name, such as gpu.nvidia.com",
    63,
)
DRA_PLUGIN = replace(DRA_DRIVER, stored=DRA_DRIVER.schema() | {"minLength": 1})
ACCOUNT = replace(OBJECT_NAME, stored=_limits(253, f"(?:{OBJECT_NAME.pattern.pattern})"))
PAUSED_LABEL = Rule(
    re.compile(PAUSE_LABEL),
    "is not a label by which DaemonSets are deployed: write domain/deploy.NAME, such as "
    "nvidia.com/gpu.deploy.device-plugin",
    317,
    also=_label_of_ours,
)
PERCENTAGE = Rule(
    re.compile(r"(?:[1-9][0-9]?|100)%"),
    "is neither a number of nodes nor a percentage: write 1, without quotes, or 10%",
)
CRON = Rule(
    cron.PATTERN,
    "must be a cron expression: write five fields such as '0 22 * * 6', as for a CronJob",
    also=cron.problem,
    stored=_limits(253, "[0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}"),
)
TIME_ZONE = Rule(
    cron.ZONE_PATTERN,
    "must be a time zone: write a name of the IANA such as UTC or Europe/Berlin",
    cron.MAX_ZONE_LENGTH,
    cron.zone_problem,
)
QUANTITY = Rule(quantities.PATTERN, "is not a quantity: write one such as 500m, 2 or 1Gi", quantities.MAX_LENGTH)
SIZE = Rule(re.compile(r"[1-9][0-9]{0,9}(?:[KMG]i)?"), "is not a size: write one such as 512Mi or 2Gi", 12)
USERSPACE_HOST_PATH = Rule(
    re.compile(NVIDIA_PATH),
    f"is not allowed: write {NVIDIA_PATH}, or leave it out for /run/driverwright/NAMESPACE.NAME",
    stored={"enum": [NVIDIA_PATH]},
)
FIRMWARE_HOST_PATH = Rule(
    re.compile(FIRMWARE_FOLDER),
    f"is not allowed: write {FIRMWARE_FOLDER}, or leave it out for /lib/firmware/updates/KERNEL",
    stored={"enum": [FIRMWARE_FOLDER]},
)
REGEXP = Rule(
    re.compile(r"(?s:.+)"),
    "is empty or longer than 65536 characters: split it into several mappings",
    65536,
    stored={"minLength": 1, "maxLength": 65536},
)
TEXT = Rule(re.compile(r"(?s:.*)"), "is too long", 4096, stored={"maxLength": 4096})


def seconds(duration: str) -> float:
    """Read a string that DURATION allows."""
    parts = re.findall(r"([0-9]+)([hms])", duration)
    return float(sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts))
