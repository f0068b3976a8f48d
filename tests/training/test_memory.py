"""Memory that is kept: fewer pages are cleared, and numbers stay."""

import subprocess
import sys

import pytest

from probattn.training.memory import keep_freed_memory

COUNT_FAULTS = """
import resource
import torch
from probattn.training.memory import keep_freed_memory

def faults():
    sizes = [5_000_000, 700_000, 5_000_000, 300_000]  # floats; freed in the order of allocation, as in a network
    for number in range(12):
        if number == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        made = [torch.ones(size) for size in sizes]
        while made:
            made.pop(0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
assert keep_freed_memory()
print(given_back, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again() -> None:
    """Counts pages that the system had to clear; in a process of its own, since what is set stays set."""
    found = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    given_back, kept = (int(word) for word in found.stdout.split())
    assert 10 * kept < given_back


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
