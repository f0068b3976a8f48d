"""Peak memory of a function call as the operating system sees it; Linux alone.

Unlike `peak_memory` it counts scratch space that is not a tensor: buffers of a C++ kernel, of the matrix library. It is
good to about a megabyte, as pages that were freed before may be used again.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path

__all__ = ["peak_resident_megabytes"]

_PROCESS = Path("/proc/self")
# Sets the process's peak to what it holds now; see `man 5 proc`.
_RESET_PEAK = "5"


def peak_resident_megabytes(call: Callable[[], object]) -> float | None:
    """Most pages, in 10^6 bytes, that the process held during `call`, above those before; None where it is not told.

    Call the function once before, so that lasting buffers are there already.
    """
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
        before = _megabytes("VmRSS")
    except (OSError, AttributeError):
        return None
    call()
    return max(0.0, _megabytes("VmHWM") - before)


def _megabytes(entry: str) -> float:
    lines = (_PROCESS / "status").read_text(encoding="utf-8").splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(f"{entry}:"))
    return int(kilobytes) * 1024 / 1e6
