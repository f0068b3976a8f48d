"""Noise of sampled attention as both back ends make it: its law, its independence, and that it depends on nothing else.

A weight is read off by values that are the identity, and a row's logsumexp gives back its normaliser; where a query
sees one key, that logsumexp is the noise itself, to the last bit.
"""

import itertools
import math

import pytest
import scipy.stats
import torch
from torch import Tensor

from probattn import Lognormal, Weibull
from probattn.core import noise
from probattn.core.noise import uniform
from probattn.kernels import attention_chunked, is_active, sampled_attention
from probattn.kernels.attention import attention_plan
from probattn.kernels.attention_chunked import AttentionCall
from probattn.kernels.attention_operator import attend
from tests.core.test_noise import correlation

K, B, H, T, S = 2, 2, 3, 40, 70
LAWS = [Weibull(1.0), Lognormal(1.0)]
NAMES = ["weibull", "lognormal"]
Law = Weibull | Lognormal


@pytest.fixture(autouse=True, params=["torch", "C++"])
def _back_end(request: pytest.FixtureRequest) -> None:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    assert is_active() == (request.param == "C++")


def attended(law: Law, seed: int, rows: list[Tensor], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Context and logsumexp of all draws; query, key and value are the rows."""
    made = attention_plan(rows[0], rows[1], family=law, prior=None, is_noisy=True)
    assert made is not None
    call = AttentionCall(
        query=rows[0],
        key=rows[1],
        value=rows[2],
        mask=mask,
        weight=None,
        constant=None,
        noise_scale=made.noise_scale,
        seed=torch.tensor(seed),
        dropout_seed=None,
        shift=None,
        switches=(made.noise, made.prior, 0, 0, K),
        numbers=(1.0, made.sharpness, 0.0),
    )
    context, _, _, log_noisy, _ = attend(call)
    return context, log_noisy


def noise_of(law: Law, seed: int = 5) -> Tensor:
    """(K, B, H, T, S) numbers that the kernel added."""
    query, key = torch.zeros(B, H, T, 1), torch.zeros(B, H, S, 1)
    context, log_noisy = attended(law, seed, [query, key, torch.eye(S).expand(B, H, S, S)])
    return context.log() + log_noisy.unsqueeze(-1)


@pytest.mark.parametrize("seed", [0, 5, 2**32 + 1, 2**62 - 1])
@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_numbers_are_those_of_the_library(law: Law, seed: int) -> None:
    numbers = uniform(torch.tensor(seed), (K, B, H, T, S)).double()
    expected = math.sqrt(2.0) * torch.erfinv(2.0 * numbers - 1.0) if law is LAWS[1] else (-numbers.log()).log()
    torch.testing.assert_close(noise_of(law, seed).double(), expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_moments_and_law(law: Law) -> None:
    numbers = noise_of(law).flatten().double().numpy()
    # log E of an exponential E is minus a Gumbel number.
    name, sign = ("norm", 1.0) if law is LAWS[1] else ("gumbel_r", -1.0)
    assert scipy.stats.kstest(sign * numbers, name).pvalue > 1e-3
    mean, variance, skewness, kurtosis = getattr(scipy.stats, name).stats(moments="mvsk")
    count = len(numbers)
    assert abs(sign * numbers.mean() - mean) < 4.0 * math.sqrt(variance / count)
    assert abs(numbers.var() - variance) < 4.0 * variance * math.sqrt((kurtosis + 2.0) / count)
    assert abs(sign * scipy.stats.skew(numbers) - skewness) < 0.1
    assert abs(scipy.stats.kurtosis(numbers) - kurtosis) < 0.5


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_no_axis_is_correlated_with_itself(law: Law) -> None:
    """Lags over columns cross the batches of 64 numbers and the blocks of 4 in which they are made."""
    numbers = noise_of(law)
    lags = {-1: [1, 2, 3, 4, 5, 8, 16, 32, 64], -2: [1, 2, 3, 4, 8, 16, 32], 2: [1, 2], 1: [1], 0: [1]}
    found = []
    for axis, shifts in lags.items():
        size = numbers.shape[axis]
        for lag in shifts:
            found.append(correlation(numbers.narrow(axis, 0, size - lag), numbers.narrow(axis, lag, size - lag)))
    assert max(abs(z) for z in found) < 4.0, found
    assert sum(z * z for z in found) / len(found) < 2.2, found


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_seeds_are_independent(law: Law) -> None:
    made = [noise_of(law, seed) for seed in (0, 1, 2, 2**32, 2**61)]
    found = [correlation(one, other) for one, other in itertools.combinations(made, 2)]
    assert max(abs(z) for z in found) < 4.0, found


def seen_alone(law: Law, keys: int, queries: int, *, is_shared: bool, heads: int = 140) -> Tensor:
    """(K, 1, heads, queries) where head h sees key h alone."""
    query, key = torch.zeros(1, heads, queries, 1), torch.zeros(1, heads, keys, 1)
    mask = (torch.arange(keys) == torch.arange(heads).view(heads, 1, 1)).unsqueeze(0)  # (1, H, 1, S)
    mask = mask if is_shared else mask.expand(1, heads, queries, keys).clone()
    return attended(law, 5, [query, key, key], mask)[1]


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_numbers_have_the_same_bits_whatever_is_around_them(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys, more queries, keys at the end that nobody sees (which C++ leaves out), smaller chunks."""
    expected = seen_alone(law, 140, 3, is_shared=False)
    assert expected.unique().numel() > 0.99 * expected.numel()
    for keys, queries, is_shared in [(140, 3, True), (141, 3, False), (190, 2, False), (530, 4, False)]:
        made = seen_alone(law, keys, queries, is_shared=is_shared)
        rows = min(queries, 3)
        assert torch.equal(made[..., :rows], expected[..., :rows]), (keys, queries, is_shared)
    monkeypatch.setattr(attention_chunked, "_CHUNK_SCORES", 1)
    monkeypatch.setattr(noise, "_CHUNK", 300)
    assert torch.equal(seen_alone(law, 140, 3, is_shared=False), expected)


def test_rows_can_be_drawn_again() -> None:
    seed, shape = torch.tensor(9), (2, 3, 10, 13)
    for dtype in (torch.float32, torch.float64):
        whole = uniform(seed, shape, stream=3, dtype=dtype)
        for first, count in ((0, 10), (4, 1), (7, 3)):
            rows = uniform(seed, (2, 3, count, 13), stream=3, first_row=first, dtype=dtype)
            assert torch.equal(rows, whole[..., first : first + count, :])


def test_chunks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [torch.randn(1, 2, 30, 4) for _ in range(3)]
    expected = sampled_attention(*inputs, family=Weibull(2.0), seed=torch.tensor(1), is_causal=True).context
    monkeypatch.setattr(attention_chunked, "_CHUNK_SCORES", 500)
    made = sampled_attention(*inputs, family=Weibull(2.0), seed=torch.tensor(1), is_causal=True).context
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=1e-6)


def test_draws_and_examples_do_not_depend_on_how_many_there_are() -> None:
    inputs = [torch.randn(3, 2, 20, 4) for _ in range(3)]
    many = sampled_attention(*inputs, family=Weibull(2.0), seed=torch.tensor(1), num_draws=4).context
    for draws, batch in ((1, 3), (2, 3), (4, 1), (1, 2)):
        fewer = [one[:batch] for one in inputs]
        made = sampled_attention(*fewer, family=Weibull(2.0), seed=torch.tensor(1), num_draws=draws).context
        torch.testing.assert_close(made, many[:draws, :batch], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(many[0], many[1])
