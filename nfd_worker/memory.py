"""Memory that was needed and is needed no more, given back to the node."""

import ctypes
import gc


def settle() -> None:
    """Give back what starting left behind; what is left now stays, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()  # off since the start
    _trim()


def give_back() -> None:
    """Collect garbage and the interpreter's free lists, which grow by 1 MiB in two thousand cycles; below 1 ms."""
    gc.collect()
    _trim()


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
    if trim is not None:
        trim(0)
