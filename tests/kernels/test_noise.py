"""Noise in C++: the bits of the tensor form, and who uses it when."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from probattn.core import noise
from probattn.core.noise import exponential, uniform
from probattn.kernels import native_uniform, switched

SEEDS = [0, 1, 2**32 - 1, 2**40 + 3, 2**62 - 1]
EMPTY = [(0,), (3, 0), (0, 3), (2, 3, 0)]
SHAPES = [*EMPTY, (), (1,), (6,), (3, 6), (2, 3, 5), (2, 3, 5, 7), (2, 2, 3, 4, 9), (1, 333, 8)]


def in_torch(*arguments: object, **options: object) -> Tensor:
    with switched(False):
        return uniform(*arguments, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for seed in SEEDS:
        for stream in (0, 1, 17):
            made = uniform(torch.tensor(seed), shape, stream=stream, dtype=dtype)
            expected = in_torch(torch.tensor(seed), shape, stream=stream, dtype=dtype)
            assert made.dtype == dtype and made.shape == shape
            assert torch.equal(made, expected), (seed, stream)


@pytest.mark.usefixtures("native_kernels")
def test_threads_change_no_bit() -> None:
    made = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        made.append(uniform(torch.tensor(3), (2, 3000, 37)))
    torch.set_num_threads(before)
    assert torch.equal(made[0], made[1]) and torch.equal(made[0], made[2])


@pytest.mark.usefixtures("native_kernels")
def test_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_philox_in_place", None)  # the tensor form would fail
    assert exponential(torch.tensor(3), (2, 5)).shape == (2, 5)
    with switched(False), pytest.raises(TypeError, match="not callable"):
        uniform(torch.tensor(3), (2, 5))


@pytest.mark.usefixtures("native_kernels")
def test_other_devices_and_fake_tensors_are_left_to_torch() -> None:
    assert uniform(torch.tensor(3, device="meta"), (2, 5)).is_meta
    with FakeTensorMode():
        made = uniform(torch.tensor(3), (2, 5))
    assert made.shape == (2, 5) and type(made) is not Tensor


@pytest.mark.usefixtures("native_kernels")
def test_compiled_code_is_left_to_torch() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda seed: uniform(seed, (3, 9)), fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.tensor(4)), uniform(torch.tensor(4), (3, 9)))


def test_without_a_back_end_there_is_nothing() -> None:
    with switched(False):
        assert native_uniform(torch.tensor(3), (1, 1, 1, 4), 0, 0, torch.float32) is None
