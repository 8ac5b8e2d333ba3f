"""The fields of a resource's description, and what each may hold: one table for the parser and for schemas.

The words are those of squat/generic-device-plugin; ``health`` and ``environment`` are ours.
"""

from device_resources.kinds import Fields, Flag, Items, Number, Pairs, Text, Word

MAX_GROUPS = 16
MAX_PATHS = 32
MAX_SHARES = 1000
"""Of ``count`` and ``limit``."""
MAX_VARIABLES = 32
LONGEST_PATH = 255

_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"

NAME = Text(
    pattern=rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?",
    words="must be the full name of an extended resource, such as example.com/widget",
    longest=244 + 1 + 63,
)
"""Quotas put ``requests.`` before it, which takes 9 of the 253 characters of a domain."""

# Components of "." and "..", and empty ones, are excluded: what is compared with the host's files has one spelling.
_COMPONENT = r"(?:[^/.\x00-\x1f\\]|\.[^/.\x00-\x1f\\]|\.\.[^/\x00-\x1f\\])[^/\x00-\x1f\\]*"
PATH = Text(
    pattern=rf"(?:/{_COMPONENT})+",
    words="must be an absolute path, such as /dev/edu*, without backslashes, '..' and a slash at the end",
    longest=LONGEST_PATH,
)
MOUNT_PATH = Text(
    pattern=r"(?:/(?:[^/.*?\[\]:\x00-\x1f\\]|\.[^/.*?\[\]:\x00-\x1f\\])[^/*?\[\]:\x00-\x1f\\]*)+",
    words="must be an absolute path without wildcards and ':', such as /dev/edu0",
    longest=LONGEST_PATH,
)

PERMISSIONS = Text(pattern="[rwm]{1,3}", words="must be letters of 'mrw', each once", longest=3)

TYPES = ("Device", "Mount")

_ELSEWHERE = {
    **dict.fromkeys(("name", "groups", "health", "environment"), "the resource"),
    **dict.fromkeys(("count", "paths"), "groups[]"),
    **dict.fromkeys(("path", "mountPath", "permissions", "readOnly", "type", "limit", "optional"), "groups[].paths[]"),
    **dict.fromkeys(("driver", "pci", "command", "timeoutSeconds", "periodSeconds"), "health"),
}
"""Where a field belongs that stands at another place."""

PATH_FIELDS = Fields(
    kinds={
        "path": PATH,
        "mountPath": MOUNT_PATH,
        "permissions": PERMISSIONS,
        "readOnly": Flag(),
        "type": Word(words=TYPES),
        "limit": Number(low=1, high=MAX_SHARES),
        "optional": Flag(),
    },
    required=("path",),
    elsewhere=_ELSEWHERE,
)

GROUP_FIELDS = Fields(
    kinds={
        "count": Number(low=1, high=MAX_SHARES),
        "paths": Items(kind=PATH_FIELDS, most=MAX_PATHS),
    },
    required=("paths",),
    elsewhere=_ELSEWHERE,
)

HEALTH_FIELDS = Fields(
    kinds={
        "driver": Text(
            pattern="[A-Za-z0-9_][A-Za-z0-9_.-]*", words="must be the name of a driver, such as edu", longest=64
        ),
        "pci": Flag(),
        "command": Items(
            kind=Text(pattern=r"[^\x00]+", words="must not be empty, or contain a zero byte", longest=1024), most=32
        ),
        "timeoutSeconds": Number(low=1, high=60),
        "periodSeconds": Number(low=5, high=3600),
    },
    elsewhere=_ELSEWHERE,
)

ENVIRONMENT = Pairs(
    keys=Text(pattern="[A-Za-z_][A-Za-z0-9_]*", words="must be the name of an environment variable", longest=128),
    values=Text(pattern=r"[^\x00]*", words="must not contain a zero byte", longest=1024),
    most=MAX_VARIABLES,
)

RESOURCE_FIELDS = Fields(
    kinds={
        "name": NAME,
        "groups": Items(kind=GROUP_FIELDS, most=MAX_GROUPS),
        "health": HEALTH_FIELDS,
        "environment": ENVIRONMENT,
    },
    required=("name", "groups"),
    elsewhere=_ELSEWHERE,
)
