"""Memory that was needed to start and is not needed to run, given back to the node."""

import ctypes
import gc


def give_back_memory() -> None:
    """Collect what reading settings and rules left behind, and return free pages to the kernel.

    What is left lives as long as the process: the collector need not look at it again (and touch its pages).
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)
