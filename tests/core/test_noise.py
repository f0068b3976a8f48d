"""Counter-based noise against an integer reference, its laws, its independence and its invariances."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from probattn.core import noise
from probattn.core.noise import exponential, fold_seed, fresh_seed, gumbel, normal, uniform

WORD = 2**32 - 1
SEEDS = [0, 1, 2**31, 2**32 - 1, 2**32, 0x9E3779B97F4A7C15 & (2**62 - 1), 2**62 - 1]
Sampler = Callable[..., Tensor]


def philox_reference(seed: int, counter: tuple[int, int, int, int], rounds: int) -> tuple[int, ...]:
    """Philox4x32 in Python integers, written from the paper (Salmon et al. 2011, Sec. 3.3)."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & WORD, (seed >> 32) & WORD
    for _ in range(rounds):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def words_of(seed: int, counter: tuple[int, int, int, int]) -> tuple[int, ...]:
    tensors = tuple(torch.tensor(word) for word in counter)
    return tuple(int(word) for word in noise._philox(torch.tensor(seed), tensors))


def correlation(x: Tensor, y: Tensor) -> float:
    """z-score of the sample correlation under independence."""
    x, y = x.flatten().double(), y.flatten().double()
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1]) * math.sqrt(x.numel())


def test_reference_knows_the_published_answers():
    # kat_vectors of the Random123 distribution, philox4x32 with 10 rounds
    assert philox_reference(0, (0, 0, 0, 0), 10) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = philox_reference(2**64 - 1, (WORD, WORD, WORD, WORD), 10)
    assert ones == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "counter", [(0, 0, 0, 0), (1, 2, 3, 4), (WORD, WORD, WORD, WORD), (2**31, 7, 2**31 + 5, 2**20 * 17 + 3)]
)
def test_philox_agrees_with_integer_reference(seed, counter):
    assert words_of(seed, counter) == philox_reference(seed, counter, 7)


@pytest.mark.parametrize("seed", [5, 2**62 - 1])
def test_ten_rounds_of_our_rounds_give_the_published_answers(monkeypatch, seed):
    monkeypatch.setattr(noise, "_ROUNDS", 10)
    assert words_of(0, (0, 0, 0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert words_of(seed, (9, 8, 7, 6)) == philox_reference(seed, (9, 8, 7, 6), 10)


@pytest.mark.parametrize("seed", [3, 2**62 - 1])
def test_float32_numbers_come_from_the_documented_counters(seed):
    shape, stream = (2, 3, 2, 5), 4  # K = 2, lead = 3, I = 2, J = 5
    made = uniform(torch.tensor(seed), shape, stream=stream)
    for k, lead, i, j in np.ndindex(*shape):
        words = philox_reference(seed, (j // 4, i, lead, k + stream * 2**20), 7)
        assert float(made[k, lead, i, j]) == ((words[j % 4] >> 9) + 0.5) * 2.0**-23


def test_float64_numbers_come_from_the_documented_counters():
    made = uniform(torch.tensor(11), (2, 3, 3), dtype=torch.float64)
    for k, i, j in np.ndindex(2, 3, 3):
        words = philox_reference(11, (j // 2, i, 0, k), 7)
        high, low = words[2 * (j % 2)], words[2 * (j % 2) + 1]
        assert float(made[k, i, j]) == (((high << 20) | (low >> 12)) + 0.5) * 2.0**-52


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_lie_strictly_inside_the_unit_interval(dtype):
    zero, full = torch.tensor(0), torch.tensor(WORD)
    lowest = noise._to_unit_interval((zero, zero, zero, zero), dtype)
    highest = noise._to_unit_interval((full, full, full, full), dtype)
    bits = 24 if dtype == torch.float32 else 53
    assert lowest.dtype == dtype and float(lowest.min()) == 2.0**-bits
    assert float(highest.max()) == 1.0 - 2.0**-bits
    for extreme in (lowest, highest):
        assert torch.isfinite(-extreme.log()).all() and (-extreme.log() > 0).all()
        assert torch.isfinite((-extreme.log()).log()).all()
        assert torch.isfinite(torch.erfinv(2.0 * extreme - 1.0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "sampler, law",
    [(uniform, "uniform"), (normal, "norm"), (exponential, "expon"), (gumbel, "gumbel_r")],
    ids=["uniform", "normal", "exponential", "gumbel"],
)
def test_laws(sampler: Sampler, law, dtype):
    numbers = sampler(torch.tensor(101), (4, 50, 250), dtype=dtype)
    assert numbers.dtype == dtype and torch.isfinite(numbers).all()
    assert scipy.stats.kstest(numbers.flatten().numpy().astype(np.float64), law).pvalue > 1e-3


def test_uniform_is_uniform_along_every_axis():
    numbers = uniform(torch.tensor(5), (6, 5, 7, 400), dtype=torch.float64).numpy()
    for axis in range(3):
        for part in np.moveaxis(numbers, axis, 0):
            assert scipy.stats.kstest(part.flatten(), "uniform").pvalue > 1e-4


def test_numbers_do_not_repeat():
    numbers = uniform(torch.tensor(1), (3, 5, 40, 41), dtype=torch.float64)
    assert numbers.unique().numel() == numbers.numel()


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_neighbours_are_uncorrelated(axis, lag):
    numbers = uniform(torch.tensor(17), (12, 10, 14, 20))
    first = numbers.narrow(axis, 0, numbers.shape[axis] - lag)
    second = numbers.narrow(axis, lag, numbers.shape[axis] - lag)
    assert abs(correlation(first, second)) < 4.0
    assert abs(correlation((first - 0.5).square(), (second - 0.5).square())) < 4.0


@pytest.mark.parametrize("other", [1, 2, 15, 16])
def test_streams_are_independent(other):
    shape = (3, 40, 100)
    first, second = uniform(torch.tensor(9), shape), uniform(torch.tensor(9), shape, stream=other)
    assert (first == second).float().mean() < 1e-4
    assert abs(correlation(first, second)) < 4.0


@pytest.mark.parametrize("difference", [1, 2, 2**31, 2**32, 2**61])
def test_seeds_are_independent(difference):
    shape = (3, 40, 100)
    first, second = uniform(torch.tensor(77), shape), uniform(torch.tensor(77 + difference), shape)
    assert abs(correlation(first, second)) < 4.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sampler", [uniform, normal, exponential, gumbel])
def test_padding_changes_no_number(sampler: Sampler, dtype):
    seed = torch.tensor(2**40 + 3)
    small = sampler(seed, (2, 3, 4, 5), dtype=dtype)
    assert torch.equal(small, sampler(seed, (2, 3, 4, 9), dtype=dtype)[..., :5])
    assert torch.equal(small, sampler(seed, (2, 3, 11, 5), dtype=dtype)[:, :, :4])
    assert torch.equal(small, sampler(seed, (7, 3, 4, 5), dtype=dtype)[:2])
    assert torch.equal(small, sampler(seed, (2, 8, 4, 5), dtype=dtype)[:, :3])
    assert torch.equal(small, sampler(seed, (5, 3, 8, 14), dtype=dtype)[:2, :, :4, :5])


def test_batch_axes_are_flattened_into_one_counter():
    seed = torch.tensor(4)
    assert torch.equal(uniform(seed, (2, 6, 4, 5)).view(2, 2, 3, 4, 5), uniform(seed, (2, 2, 3, 4, 5)))


@pytest.mark.parametrize("shape", [(), (1,), (6,), (3, 6), (0,), (3, 0), (0, 3), (2, 0, 3), (2, 3, 0), (0, 2, 3)])
def test_any_shape(shape):
    numbers = uniform(torch.tensor(3), shape)
    assert numbers.shape == shape and ((numbers > 0) & (numbers < 1)).all()


def test_fewer_axes_are_the_first_of_more_axes():
    seed = torch.tensor(3)
    full = uniform(seed, (2, 2, 3, 6))
    assert torch.equal(uniform(seed, (2, 3, 6))[0], full[0, 0])
    assert torch.equal(uniform(seed, (3, 6)), full[0, 0])
    assert torch.equal(uniform(seed, (6,)), full[0, 0, 0])
    assert torch.equal(uniform(seed, ()), full[0, 0, 0, 0])


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 10**9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunks_change_no_number(monkeypatch, chunk, dtype):
    monkeypatch.setattr(noise, "_backend", None)
    whole = uniform(torch.tensor(12), (3, 2, 5, 13), dtype=dtype)
    monkeypatch.setattr(noise, "_CHUNK", chunk)
    assert torch.equal(whole, uniform(torch.tensor(12), (3, 2, 5, 13), dtype=dtype))


def test_large_shapes_are_made_in_chunks(monkeypatch):
    calls = []
    original = noise._philox_in_place

    def counting(seed, counters):
        calls.append(counters)
        return original(seed, counters)

    monkeypatch.setattr(noise, "_backend", None)
    monkeypatch.setattr(noise, "_philox_in_place", counting)
    monkeypatch.setattr(noise, "_CHUNK", 8192)
    large = uniform(torch.tensor(12), (2, 400, 100))
    assert len(calls) == 3  # 327 rows of 25 blocks at a time
    monkeypatch.setattr(noise, "_CHUNK", 10**9)
    assert torch.equal(large, uniform(torch.tensor(12), (2, 400, 100)))


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**61 + 12345])
def test_rounds_in_place_give_the_same_words(seed):
    counters = [torch.arange(4).mul(2**30 + 7) & 0xFFFFFFFF, torch.tensor([[0], [2**32 - 1]])]
    counters += [torch.tensor([[3], [2**31]]), torch.tensor([[2**32 - 1], [1]])]
    before = [counter.clone() for counter in counters]
    first = noise._philox(torch.tensor(seed), tuple(counters))
    second = noise._philox_in_place(torch.tensor(seed), counters)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert all(torch.equal(*pair) for pair in zip(before, counters, strict=True))  # the caller's are left alone


def test_compiled_code_gives_the_same_bits():
    # Signed overflow and 32-bit index expressions gave other numbers here than eager mode.
    def noise_of(seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        folded = fold_seed(fold_seed(seed, 3), 2**32 - 1)
        return uniform(seed, (2, 3, 5, 300), stream=3), uniform(seed, (3, 70, 6), dtype=torch.float64), folded

    torch._dynamo.reset()
    compiled = torch.compile(noise_of, fullgraph=True)
    for seed in SEEDS:
        for made, expected in zip(compiled(torch.tensor(seed)), noise_of(torch.tensor(seed)), strict=True):
            assert torch.equal(made, expected), seed


@pytest.mark.parametrize("sampler", [uniform, normal, exponential, gumbel])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_meta_device(sampler: Sampler, dtype):
    seed = fresh_seed("meta")
    assert seed.device.type == "meta" and seed.dtype == torch.int64
    made = sampler(fold_seed(seed, 3), (2, 300, 70), dtype=dtype)
    assert made.device.type == "meta" and made.shape == (2, 300, 70) and made.dtype == dtype


def test_manual_seed_governs_fresh_seed():
    torch.manual_seed(1)
    first = [int(fresh_seed()) for _ in range(3)]
    torch.manual_seed(1)
    assert first == [int(fresh_seed()) for _ in range(3)]
    torch.manual_seed(2)
    assert int(fresh_seed()) not in first
    assert len(set(first)) == 3


def test_fresh_seed_is_a_scalar_below_two_to_the_62():
    seeds = torch.stack([fresh_seed() for _ in range(200)])
    assert seeds.shape == (200,) and seeds.dtype == torch.int64
    assert int(seeds.min()) >= 0 and 2**61 < int(seeds.max()) < 2**62


def test_fold_seed_is_a_function_of_seed_and_tag():
    seeds = [int(fold_seed(torch.tensor(seed), tag)) for seed in (0, 1, 2**62 - 1) for tag in (0, 1, 2, 2**32 - 1)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)
    again = [int(fold_seed(torch.tensor(seed), tag)) for seed in (0, 1, 2**62 - 1) for tag in (0, 1, 2, 2**32 - 1)]
    assert seeds == again


def test_folded_seeds_give_independent_noise():
    seed, shape = torch.tensor(31), (2, 40, 100)
    base = uniform(seed, shape)
    folded = [uniform(fold_seed(seed, tag), shape) for tag in range(4)]
    for tag, numbers in enumerate(folded):
        assert abs(correlation(base, numbers)) < 4.0
        for other in folded[:tag]:
            assert abs(correlation(numbers, other)) < 4.0


def test_folded_seeds_are_uniform():
    seeds = np.array([int(fold_seed(torch.tensor(31), tag)) for tag in range(600)]) / 2.0**62
    assert scipy.stats.kstest(seeds, "uniform").pvalue > 1e-3
    low_bits = np.array([int(fold_seed(torch.tensor(tag), 1)) % 1024 for tag in range(600)]) / 1024
    assert scipy.stats.kstest(low_bits, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=f"made in float32 or float64, got {dtype}; cast the result instead"):
        uniform(torch.tensor(0), (3,), dtype=dtype)


def test_a_back_end_makes_the_numbers_of_eager_code_or_leaves_them_to_torch(monkeypatch):
    monkeypatch.setattr(noise, "_backend", None)
    expected = uniform(torch.tensor(3), (2, 5))
    asked = []

    def backend(seed, sizes, stream, first_row, dtype):
        asked.append((int(seed), sizes, stream, first_row, dtype))
        return torch.full(sizes, 0.5) if stream == 1 else None

    noise.set_backend(backend)
    assert torch.equal(uniform(torch.tensor(3), (2, 5)), expected)
    assert torch.equal(uniform(torch.tensor(3), (2, 5), stream=1), torch.full((2, 5), 0.5))
    assert asked == [(3, (1, 1, 2, 5), stream, 0, torch.float32) for stream in (0, 1)]


@pytest.mark.parametrize("sampler", [uniform, normal])
def test_a_seed_for_each_example_under_vmap(sampler: Sampler):
    seeds = torch.tensor([3, 2**61 + 5])
    made = torch.func.vmap(lambda seed: sampler(seed, (2, 3, 5)))(seeds)
    assert torch.equal(made, torch.stack([sampler(seed, (2, 3, 5)) for seed in seeds]))
    fresh = torch.func.vmap(lambda x: x + sampler(fresh_seed(), (4,)), randomness="different")(torch.zeros(2, 4))
    assert not torch.equal(fresh[0], fresh[1])


@pytest.mark.parametrize("seed", [3, torch.tensor(3.0)])
def test_a_seed_is_a_tensor_of_whole_numbers(seed):
    with pytest.raises(TypeError, match=r"a seed is an int64 tensor, e\.g\. torch\.tensor\(3\), got"):
        uniform(seed, (2, 3))


def test_too_many_particles_are_refused():
    with pytest.raises(ValueError, match="at most 1048576 particles can be drawn at once, got 1048577"):
        uniform(torch.tensor(0), (2**20 + 1, 1, 1))


def test_fresh_seeds_of_ranks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """One torch seed on all ranks, as launchers give it; the first rank draws what a single process draws."""

    def drawn() -> int:
        torch.manual_seed(5)
        return int(fresh_seed())

    alone, seeds = drawn(), []
    monkeypatch.setattr(noise.dist, "is_initialized", lambda: True)
    for rank in range(4):
        monkeypatch.setattr(noise.dist, "get_rank", lambda rank=rank: rank)
        seeds.append(drawn())
        assert drawn() == seeds[-1]
    assert seeds[0] == alone and len(set(seeds)) == 4
    assert seeds[1] == int(fold_seed(torch.tensor(alone), 1))
