"""What the texts of a DriverContainer may look like, each with the words for one that does not. Pure.

What reaches a Dockerfile is checked again, more closely, where that is rendered (``template_values``).
"""

import re

from driver_builder.api.spec_reader import Rule
from driver_builder.model.kernels import KERNEL_VERSION

_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?"
_SEGMENTS = r"[A-Za-z0-9._+@-]+(?:/[A-Za-z0-9._+@-]+)*"
_NO_CLIMB = r"(?!(?:.*/)?\.\.?(?:/|\Z))"
_URL_PATH = r"/[A-Za-z0-9._~/+%@-]+"

VERSION = Rule(
    re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"),
    "cannot be a label value: use at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or "
    "digit",
    63,
)
LABEL_VALUE = Rule(re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"), VERSION.words, 63)
LABEL_KEY = Rule(
    re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"),
    "is no label key: write [prefix/]name",
    317,
)
OBJECT_NAME = Rule(
    re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"),
    "is no name of an object: use lower case letters, digits, '-' and '.'",
)
CONFIG_MAP_KEY = Rule(re.compile(r"[A-Za-z0-9._-]+"), "is no key of a ConfigMap: use letters, digits, '-', '_' and '.'")
REPOSITORY = Rule(
    re.compile(r"(?P<host>[a-zA-Z0-9.-]+(?::[0-9]+)?)/(?P<repository>[a-z0-9]+(?:[._/-][a-z0-9]+)*)"),
    "must be a repository: write host[:port]/path without a tag; the tag is made by driver-builder from everything "
    "that goes into the image",
    512,
)
BASE_IMAGE = Rule(
    re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/@-]*"), "is no image reference: write one such as debian:bookworm-slim", 512
)
PINNED_IMAGE = Rule(
    re.compile(r"[a-zA-Z0-9.-]+(?::[0-9]+)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}"),
    "must be pinned: write host/repository@sha256:<64 hex digits>",
    512,
)
ABSOLUTE_PATH = Rule(
    re.compile(rf"{_NO_CLIMB}/(?:{_SEGMENTS}/?)?"),
    "must be absolute and without '..', of letters, digits and . _ + @ - /",
    1024,
)
RELATIVE_PATH = Rule(
    re.compile(rf"{_NO_CLIMB}{_SEGMENTS}"),
    "must be relative and without '..', of letters, digits and . _ + @ - /: write a folder of the source such as src",
    1024,
)
GIT_URL = Rule(
    re.compile(rf"https://{_HOST}{_URL_PATH}"),
    "must be a URL by https, without a user or a password: write https://host/path (not ssh: builds are given no key; "
    "a private repository's source goes into a ConfigMap or an image)",
    1024,
)
COMMIT = Rule(
    re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?"),
    "must be a full commit hash, 40 or 64 hex digits, for a branch or tag may move: git rev-parse REF prints it",
)
ARCHIVE_URL = Rule(
    re.compile(rf"https?://{_HOST}{_URL_PATH}"),
    "must be a URL by https or http, without a password and a query: write https://host/path.tar.gz",
    1024,
)
SHA256 = Rule(re.compile(r"[0-9a-f]{64}"), "must be the archive's SHA-256, 64 hex digits: sha256sum FILE prints it")
PACKAGE = Rule(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*"),
    "must be a name of a distribution's package: write one such as v4l2loopback-dkms",
    128,
)
PACKAGE_VERSION = Rule(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_-]*"),
    "is no package version: write one such as 0.12.7-2",
    128,
)
TEMPLATE = Rule(re.compile(r"[a-z0-9-]+"), "is no template: write its name, lower case letters, digits and '-'", 63)
ARG = Rule(
    re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "is no argument's name: use letters, digits and '_', not beginning with a digit",
)
ARG_VALUE = Rule(
    re.compile(r"[A-Za-z0-9_./:=,@%+^-]*"),
    "is no argument's value: use letters, digits and . / : = , @ % + ^ _ -",
    1024,
)
MODULE = Rule(re.compile(r"[A-Za-z0-9_-]{1,55}"), "is no module name: use letters, digits, '_' and '-'", 55)
PARAMETER = Rule(
    re.compile(r"[A-Za-z0-9_.]+(=[^\s\"'\\$`;|&<>]*)?"),
    "is no parameter: write name=value, without blanks and quotes",
    1024,
)
KERNEL = Rule(KERNEL_VERSION, "is no kernel release: write what uname -r prints, such as 6.1.0-55-cloud-amd64", 128)
DURATION = Rule(
    re.compile(r"(?=.)(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,6}s)?"),
    "is no duration: write hours, minutes and seconds such as 1h, 30m or 1m30s",
)
PERCENTAGE = Rule(re.compile(r"(?:[1-9][0-9]?|100)%"), "is neither a number of nodes nor a percentage: write 1 or 10%")
QUANTITY = Rule(
    re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|k|Ki|[MGTPE]i?)?"), "is no quantity: write one such as 500m, 2 or 1Gi", 32
)
REGEXP = Rule(re.compile(r"(?s:.+)"), "is empty or longer than 65536 characters: split it into several mappings", 65536)
TEXT = Rule(re.compile(r"(?s:.*)"), "is too long", 4096)


def seconds(duration: str) -> float:
    """Read what DURATION allows."""
    parts = re.findall(r"([0-9]+)([hms])", duration)
    return float(sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts))
