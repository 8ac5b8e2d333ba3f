"""The fields of ``nvidia:``, the devices of NVIDIA's driver, and what each may hold: for the parser and for schemas.

The words ``migStrategy`` and ``sharedDevicesAllocationPolicy`` are those of NVIDIA's own device plugin.
"""

from device_resources.fields import LONGEST_PATH, MOUNT_PATH
from device_resources.kinds import Fields, Flag, Number, Text, Word

MIG_STRATEGIES = ("none", "single", "mixed")
POLICIES = ("distributed", "packed")
MAX_HOLD_SECONDS = 86_400

_ELSEWHERE = {
    **dict.fromkeys(("migStrategy", "libraries", "sharedDevicesAllocationPolicy", "health", "mig"), "nvidia"),
    "path": "libraries",
    "holdSeconds": "health",
    "drain": "mig",
}
"""Where a field belongs that stands at another place."""

LIBRARIES_PATH = Text(
    pattern=f"{MOUNT_PATH.pattern.removesuffix('+')}{{2,}}",
    words="must be an absolute path of two or more folders without wildcards and ':', such as /run/nvidia/driver",
    longest=LONGEST_PATH,
)
"""The folder above it is mounted, which is never all of the node."""

MIG_KINDS = {"enabled": Flag(), "drain": Flag()}
"""Those of the agent. Where its pod gets the file with layouts from is said beside them, where the pod is made."""

_MOUNTED = "the chart and to a driver's stage: mount the file, and set --mig-config"

NVIDIA_FIELDS = Fields(
    kinds={
        "migStrategy": Word(words=MIG_STRATEGIES),
        "libraries": Fields(kinds={"path": LIBRARIES_PATH}, required=("path",), elsewhere=_ELSEWHERE),
        "sharedDevicesAllocationPolicy": Word(words=POLICIES),
        "health": Fields(kinds={"holdSeconds": Number(low=1, high=MAX_HOLD_SECONDS)}, elsewhere=_ELSEWHERE),
        "mig": Fields(kinds=MIG_KINDS, elsewhere={**_ELSEWHERE, "configMap": _MOUNTED}),
    },
    elsewhere=_ELSEWHERE,
)
