"""Memory that a process has freed, kept for its next allocation."""

import ctypes
import sys

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h. It takes no block of the heap for a request above the first, and 32 MB is the most it may be.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_LARGEST_BLOCK = 32 * 1024 * 1024
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have this process keep what it frees instead of giving it back, for as long as it lives.

    By default glibc returns every large tensor to the system, which clears each page again for the next one: several
    percent of a training step on a CPU. No number changes; the process stays as large as it ever was. For processes
    that do one thing, as those of `probattn train` and `probattn compare`.

    Returns:
        Whether it took effect; only where glibc is.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
