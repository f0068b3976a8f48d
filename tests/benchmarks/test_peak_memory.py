"""Peak memory of calls whose allocations are known."""

import pytest
import torch

from benchmarks.peak_memory import peak_megabytes

MILLION = 1_000_000


def test_counts_what_is_held_at_the_same_time() -> None:
    def call() -> None:
        first = torch.ones(MILLION)  # 4 MB
        second = first + 1.0  # 8 MB
        del first
        third = second + 1.0  # 8 MB again
        del second, third

    assert peak_megabytes(call) == pytest.approx(8.0, abs=0.01)


def test_counts_gradients() -> None:
    leaf = torch.ones(MILLION, requires_grad=True)
    assert peak_megabytes(lambda: leaf.sum().backward()) == pytest.approx(4.0, abs=0.01)


def test_does_not_count_what_was_there() -> None:
    held = torch.ones(MILLION)
    assert peak_megabytes(lambda: held.add_(1.0)) == pytest.approx(0.0, abs=0.01)


def test_standard_error_works_again(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    peak_megabytes(lambda: torch.ones(10))
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
