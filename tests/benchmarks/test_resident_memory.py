"""Peak memory of the process, on calls whose tensors are known."""

import sys

import pytest
import torch

from benchmarks.resident_memory import peak_resident_megabytes


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_a_large_tensor_is_seen() -> None:
    peak = peak_resident_megabytes(lambda: torch.ones(25_000_000))
    assert peak is not None
    assert peak == pytest.approx(100.0, abs=8.0)


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_what_was_there_before_does_not_count() -> None:
    kept = torch.ones(25_000_000)
    peak = peak_resident_megabytes(lambda: kept[:10].sum())
    assert peak is not None
    assert peak < 8.0
