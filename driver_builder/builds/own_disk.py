"""The controller's own disk, on which images wait for their push: when it is full, a message says whose disk it is."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason


@contextmanager
def own_disk() -> Iterator[None]:
    """Translate that there is no room left.

    Raises:
        BuildFailed: DISK_FULL, the controller's temporary folder has no room.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        words = f"the controller's own disk is full ({error}); increase the size of its temporary folder"
        raise BuildFailed(Reason.DISK_FULL, words) from error
