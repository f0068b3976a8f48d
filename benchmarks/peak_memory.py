"""Peak memory of a function call: what torch's allocator holds at most, above what it held before.

Taken from the memory events of torch's profiler: every allocation and release of a CPU tensor, in order of time. So it
is exact, the same in every run, and blind to what is not a tensor: scratch space of the matrix library, the
allocator's own reserve, the interpreter. Call the function once before, so that lasting state (an optimiser's moments)
is there already.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_megabytes"]


def peak_megabytes(call: Callable[[], object]) -> float:
    """Largest sum of tensors, in 10^6 bytes, that `call` had allocated and not yet released at a time."""
    with _silent_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    # The public views of a profile add up the memory of each operator; only the raw events keep the order.
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    changes = [int(event.nbytes()) for event in events]
    return max(accumulate(changes, initial=0)) / 1e6


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler of some torch releases writes two lines to file descriptor 2 whenever it is used."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
