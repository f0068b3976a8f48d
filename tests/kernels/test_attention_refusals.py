"""What sampled attention refuses, with the words that say why; the same on both back ends."""

from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Dense, GumbelSoftmax, Lognormal, StraightThroughGumbel, Weibull
from probattn.distributions import NormalisedGamma, NormalisedLognormal
from probattn.kernels import is_active, sampled_attention
from probattn.kernels.attention import attention_plan

B, H, T, S, D = 2, 4, 3, 5, 6
GAMMA = NormalisedGamma(torch.ones(S), 1.0, support=Dense())
LOGNORMAL = NormalisedLognormal(torch.zeros(S), 1.0, support=Dense())
PER_QUERY = NormalisedGamma(torch.ones(B, H, T, S), 1.0, support=Dense())
TOO_LONG = NormalisedGamma(torch.ones(S + 1), 1.0, support=Dense())
PER_EXAMPLE = torch.ones(B, 1, 1, 1)
SHAPES = "expected query \\(B, H, T, D\\), key \\(B, G, S, D\\) and value \\(B, G, S, Dv\\) with H a multiple of G, got"
KINDS = "a KL is known for Weibull with a NormalisedGamma prior and for Lognormal with a NormalisedLognormal one, got"
NEEDS_ALL = "a prior must have one row for all queries, \\(B, H, 1, S\\), or be a SetPrior under a causal mask"


@pytest.fixture(autouse=True, params=["torch", "C++"])
def _back_end(request: pytest.FixtureRequest) -> None:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    assert is_active() == (request.param == "C++")


def good() -> dict[str, Any]:
    rows = {"query": torch.ones(B, H, T, D), "key": torch.ones(B, H, S, D), "value": torch.ones(B, H, S, 2)}
    return {**rows, "family": Weibull(2.0), "prior": GAMMA, "seed": torch.tensor(1)}


def test_good_inputs_are_taken() -> None:
    assert sampled_attention(**good()).context.shape == (1, B, H, T, 2)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"query": torch.ones(H, T, D)}, ValueError, SHAPES),
        ({"query": torch.ones(B, H, T, D + 1)}, ValueError, SHAPES),
        ({"query": torch.ones(B + 1, H, T, D)}, ValueError, SHAPES),
        ({"key": torch.ones(B, H, S - 1, D)}, ValueError, SHAPES),
        ({"key": torch.ones(B, 3, S, D), "value": torch.ones(B, 3, S, 2)}, ValueError, SHAPES),
        ({"key": torch.ones(B, 0, S, D), "value": torch.ones(B, 0, S, 2)}, ValueError, SHAPES),
        ({"value": torch.ones(B, 2, S, 2)}, ValueError, SHAPES),
        ({"query": torch.ones(B, H, T, D, dtype=torch.int64)}, TypeError, "must be float, got torch.int64"),
        ({"num_draws": 0}, ValueError, "num_draws must be at least 1, got 0"),
        ({"mask": torch.ones(T, S + 1, dtype=torch.bool)}, ValueError, "a mask must broadcast to .*\\(2, 4, 3, 5\\)"),
        ({"mask": torch.ones(B, T, S, dtype=torch.bool)}, ValueError, "got \\(2, 3, 5\\)"),
        ({"mask": torch.ones(1, B, H, T, S)}, ValueError, "a mask must broadcast"),
        ({"mask": torch.ones(T, S, dtype=torch.int64)}, TypeError, "a mask is bool .* or float .*, got torch.int64"),
        ({"mask": torch.zeros(T, S, requires_grad=True)}, ValueError, "a float mask gets no gradient here"),
        ({"family": "weibull"}, TypeError, "family must be Weibull, Lognormal, GumbelSoftmax or None, got str"),
        ({"family": StraightThroughGumbel(), "prior": None}, TypeError, "got StraightThroughGumbel"),
        ({"prior": "gamma"}, TypeError, f"{KINDS} Weibull and str"),
        ({"prior": LOGNORMAL}, TypeError, f"{KINDS} Weibull and NormalisedLognormal"),
        ({"family": Lognormal(1.0)}, TypeError, f"{KINDS} Lognormal and NormalisedGamma"),
        ({"family": GumbelSoftmax(1.0)}, TypeError, f"{KINDS} GumbelSoftmax and NormalisedGamma"),
        ({"family": None}, TypeError, f"{KINDS} NoneType and NormalisedGamma"),
        ({"family": Weibull(1.0, anchor="mean")}, ValueError, "anchor must be 'exp' or 'softmax', got 'mean'"),
        ({"prior": PER_QUERY}, ValueError, NEEDS_ALL),
        ({"prior": TOO_LONG}, ValueError, NEEDS_ALL),
        ({"family": Weibull(PER_EXAMPLE)}, ValueError, "must be one number or \\(H, 1, 1\\)"),
        ({"seed": torch.tensor([1, 2])}, TypeError, "a seed is an int64 tensor with one number, e.g. .*, got tensor"),
        ({"seed": torch.tensor(1.5)}, TypeError, "a seed is an int64 tensor with one number, e.g. .*, got tensor"),
        ({"seed": 3}, TypeError, r"a seed is an int64 tensor with one number, e.g. torch.tensor\(3\), got 3"),
    ],
)  # fmt: skip
def test_refusals(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sampled_attention(**(good() | changes))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["query", "key", "mask"])
@pytest.mark.parametrize("family", [None, Weibull(2.0)], ids=["soft", "weibull"])
def test_scores_that_are_not_finite(family: Weibull | None, name: str, number: float) -> None:
    arguments = good() | {"family": family, "prior": None, "mask": torch.zeros(T, S)}
    bad: Tensor = arguments[name]
    bad[..., 1, 2] = number
    with pytest.raises(ValueError, match="logsumexp of attention scores .* not finite. Look for a NaN or an infinity"):
        sampled_attention(**arguments)


def test_there_is_no_plan_for_what_needs_all_scores() -> None:
    """The facade asks before it calls."""
    rows = torch.ones(B, H, T, D), torch.ones(B, H, S, D)
    assert attention_plan(*rows, family=Weibull(2.0), prior=GAMMA, is_noisy=True) is not None
    for family, prior in ((Weibull(2.0), PER_QUERY), (Weibull(2.0), LOGNORMAL), (Weibull(PER_EXAMPLE), None)):
        assert attention_plan(*rows, family=family, prior=prior, is_noisy=True) is None
