"""What applies where neither a setting nor a spec says otherwise."""

from typing import NamedTuple

BUILD_DEADLINE_SECONDS = 1800.0
MAX_BUILD_DEADLINE_SECONDS = 14400.0
RETRY_MIN_SECONDS = 30.0
RETRY_MAX_SECONDS = 3600.0
UNLOAD_DEADLINE_SECONDS = 600.0
JOB_WORK_SIZE, JOB_OUTPUT_SIZE = "20Gi", "4Gi"
BUILD_NETWORK = "host"
LEASE_NAME = "driver-builder"


class Waits(NamedTuple):
    """Seconds. Only tests have others."""

    resync: float = 60.0
    """Between reconciles although nothing changed."""
    retry_min: float = RETRY_MIN_SECONDS
    """After the first failure of a build."""
    retry_max: float = RETRY_MAX_SECONDS
    """Between tries of a failing build, at most."""
