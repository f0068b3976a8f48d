"""Random generators of Python, numpy and torch as one thing that is seeded, saved and restored together."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["DATA", "EVALUATION", "NOISE", "WEIGHTS", "RandomState", "capture", "restore", "seed_all", "seeded"]

RandomState = dict[str, Any]

# First word of a key: streams of different purpose never share a seed.
NOISE, DATA, EVALUATION, WEIGHTS = 0, 1, 2, 3


def seed_all(*key: int) -> None:
    """Seed all generators with a function of the key, for example (NOISE, seed, rank)."""
    words = np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in key]).generate_state(3, np.uint64)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]) & 0xFFFFFFFF)
    if torch.cuda.is_available():
        torch.manual_seed(int(words[2]) >> 1)
    else:
        torch.default_generator.manual_seed(int(words[2]) >> 1)  # a hundred times faster, and there is no other


def capture() -> RandomState:
    """The state of all generators, in types that `torch.load(weights_only=True)` accepts."""
    numpy_state = np.random.get_state(legacy=False)
    inner = numpy_state["state"]
    numpy_state["state"] = {**inner, "key": torch.from_numpy(inner["key"].astype(np.int64))}
    state: RandomState = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["devices"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: RandomState) -> None:
    """Put all generators back to what `capture` returned."""
    random.setstate(state["python"])
    inner = state["numpy"]["state"]
    np.random.set_state({**state["numpy"], "state": {**inner, "key": inner["key"].numpy().astype(np.uint32)}})
    torch.set_rng_state(state["torch"])
    if "devices" in state:
        torch.cuda.set_rng_state_all(state["devices"])


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Inside the block the generators follow a stream of their own; afterwards they are where they were.

    Example:
        >>> torch.manual_seed(0).initial_seed()
        0
        >>> before = torch.get_rng_state()
        >>> with seeded(EVALUATION, 7):
        ...     first = torch.rand(())
        >>> with seeded(EVALUATION, 7):
        ...     second = torch.rand(())
        >>> bool(first == second), torch.equal(before, torch.get_rng_state())
        (True, True)
    """
    before = capture()
    seed_all(*key)
    try:
        yield
    finally:
        restore(before)
