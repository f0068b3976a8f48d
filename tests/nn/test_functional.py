"""scaled_dot_product_attention against torch's, and its random forms.

Sizes: B batch, H heads, T queries, S keys, D and V features.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.nn import functional as F

from probattn.core import Dense, Enumerate, Given, Mean, Memory, Pathwise, ScoreFunction
from probattn.distributions import Categorical, GammaPrior, Weibull
from probattn.nn import KeyPrior, scaled_dot_product_attention
from tests.nn.families import CONFIGURATIONS, SAMPLED, Configuration

B, H, T, S, D, V = 2, 3, 4, 5, 6, 7
EVERY = pytest.mark.parametrize("row", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
EVERY_SAMPLED = pytest.mark.parametrize("row", SAMPLED.values(), ids=SAMPLED.keys())
SEED = torch.tensor(17)


def tensors(*lead: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    lead = lead or (B, H)
    return tuple(torch.randn(*lead, n, width, dtype=dtype) for n, width in ((T, D), (S, D), (S, V)))


def masks(dtype: torch.dtype = torch.float32) -> dict[str, Tensor | None]:
    """Every kind of mask; each query may see something, because torch has no answer elsewhere."""
    some = torch.rand(B, H, T, S) < 0.6
    some[..., 0] = True
    padding = torch.ones(B, 1, 1, S, dtype=torch.bool)
    padding[1, ..., -2:] = False
    return {
        "none": None,
        "bool 2-D": some[0, 0],
        "bool 3-D": some[0],
        "bool per head": some,
        "bool padding": padding,
        "float 2-D": torch.randn(T, S, dtype=dtype),
        "float per head": torch.randn(B, H, T, S, dtype=dtype).masked_fill(~some, -torch.inf),
        "float padding": torch.zeros(B, 1, 1, S, dtype=dtype).masked_fill(~padding, -torch.inf),
    }


# Mean is torch's function


@pytest.mark.parametrize("kind", masks())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_equals_torch(kind: str, dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype=dtype)
    mask = masks(dtype)[kind]
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    result = scaled_dot_product_attention(q, k, v, mask, need_weights=True)
    torch.testing.assert_close(result.context, expected)
    assert result.context.dtype == dtype
    torch.testing.assert_close(result.weights @ v, expected)
    assert torch.equal(result.kl, torch.zeros(B, H, T, dtype=dtype))


@pytest.mark.parametrize("kind", masks())
@EVERY_SAMPLED
def test_the_plug_in_weights_of_every_family_equal_torch(row: Configuration, kind: str) -> None:
    q, k, v = tensors()
    mask = masks()[kind]
    arguments = row.arguments(D, H) | {"estimator": Mean(), "prior": None}
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, mask, **arguments).context, expected)


@pytest.mark.parametrize("num_queries", [3, 5, 7])
def test_causal(num_queries: int) -> None:
    q, k, v = torch.randn(B, H, num_queries, D), torch.randn(B, H, S, D), torch.randn(B, H, S, V)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, is_causal=True).context, expected)


@pytest.mark.parametrize("lead", [(), (B,), (B, H), (2, B, H)])
def test_leading_axes(lead: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(*lead, n, width) for n, width in ((T, D), (S, D), (S, V)))
    result = scaled_dot_product_attention(q, k, v, need_weights=True)
    torch.testing.assert_close(result.context, F.scaled_dot_product_attention(q, k, v))
    assert result.kl.shape == (*lead, T)
    assert result.weights.shape == (*lead, T, S)


def test_scale() -> None:
    q, k, v = tensors()
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, scale=0.3).context, expected)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_queries(groups: int) -> None:
    q, k, v = torch.randn(B, 4, T, D), torch.randn(B, groups, S, D), torch.randn(B, groups, S, V)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v, enable_gqa=True).context, expected)


def test_gradients_equal_torch() -> None:
    inputs = [x.requires_grad_() for x in tensors(dtype=torch.float64)]
    mask = masks()["bool per head"]
    mine = torch.autograd.grad(scaled_dot_product_attention(*inputs, mask).context.sin().sum(), inputs)
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(*inputs, mask).sin().sum(), inputs)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_float_mask_is_learned() -> None:
    """Position biases are float masks with a gradient; -inf in them has none."""
    q, k, v = tensors(dtype=torch.float64)
    bias = torch.randn(T, S, dtype=torch.float64).masked_fill(torch.eye(T, S, dtype=torch.bool), -torch.inf)
    bias.requires_grad_()
    mine = torch.autograd.grad(scaled_dot_product_attention(q, k, v, bias).context.sin().sum(), bias)[0]
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, bias).sin().sum(), bias)[0]
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("row", [CONFIGURATIONS["soft"], CONFIGURATIONS["weibull"]], ids=["soft", "weibull"])
def test_dropout(row: Configuration) -> None:
    """Weights are dropped and scaled as in torch, and the weights that come back are those that were used."""
    q, k, v = tensors(200, H)
    result = scaled_dot_product_attention(q, k, v, dropout_p=0.25, need_weights=True, seed=SEED, **row.arguments(D, H))
    kept = scaled_dot_product_attention(q, k, v, need_weights=True, seed=SEED, **row.arguments(D, H))
    is_dropped = result.weights == 0
    assert abs(is_dropped.float().mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / is_dropped.numel())
    torch.testing.assert_close(result.weights, (kept.weights / 0.75).masked_fill(is_dropped, 0.0))
    torch.testing.assert_close(result.context, result.weights @ v)


# Draws


@EVERY
def test_one_seed_one_result(row: Configuration) -> None:
    q, k, v = tensors()
    arguments = row.arguments(D, H)
    first, again, other = (
        scaled_dot_product_attention(q, k, v, seed=torch.tensor(seed), **arguments).context for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (row.family is None)
    torch.manual_seed(3)
    governed, fresh = (scaled_dot_product_attention(q, k, v, **arguments).context for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(governed, scaled_dot_product_attention(q, k, v, **arguments).context)
    assert torch.equal(governed, fresh) == (row.family is None)


@EVERY
def test_weights_are_those_that_were_used(row: Configuration) -> None:
    q, k, v = tensors()
    mask = masks()["bool per head"]
    arguments = row.arguments(D, H)
    result = scaled_dot_product_attention(q, k, v, mask, need_weights=True, seed=SEED, **arguments)
    assert result.weights.shape == (B, H, T, S)
    assert not result.weights[~mask].any()
    torch.testing.assert_close(result.weights.sum(dim=-1), torch.ones(B, H, T))
    torch.testing.assert_close(result.weights @ v, result.context)
    assert scaled_dot_product_attention(q, k, v, mask, **arguments).weights is None
    assert torch.equal(result.kl, result.latent.kl)
    assert torch.equal(result.latent.seed, SEED)
    assert result.latent.feeds_state


@pytest.mark.parametrize("name", ["hard", "hard-prior", "straight-through"])
def test_hard_weights_are_one_hot(name: str) -> None:
    q, k, v = tensors()
    result = scaled_dot_product_attention(q, k, v, need_weights=True, **CONFIGURATIONS[name].arguments(D, H))
    torch.testing.assert_close(result.weights.amax(dim=-1), torch.ones(B, H, T))
    torch.testing.assert_close(result.weights.sum(dim=-1), torch.ones(B, H, T))


# The KL


@EVERY_SAMPLED
@pytest.mark.parametrize("kind", ["none", "bool per head", "float padding"])
def test_kl_is_that_of_the_distributions(row: Configuration, kind: str) -> None:
    """Per head and query, against torch.distributions on the rows without their masked positions."""
    q, k, v = tensors()
    mask = masks()[kind]
    arguments = row.arguments(D, H)
    kl = scaled_dot_product_attention(q, k, v, mask, **arguments).kl
    assert kl.shape == (B, H, T)
    if arguments["prior"] is None:
        assert not kl.any()
        return
    scores = q @ k.transpose(-1, -2) / math.sqrt(D)
    allowed = torch.ones(B, H, T, S, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else mask > -torch.inf)
    memory = Memory(keys=k, values=v, support=Dense(allowed))
    given = Given(memory, query=q, scores=scores)
    posterior, prior = row.family(scores, memory.support), arguments["prior"](given)
    torch.testing.assert_close(kl, kl_divergence(posterior, prior).expand(B, H, T))
    assert bool((kl >= 0).all())
    assert (kl.max() > 0) == (row is not CONFIGURATIONS["hard-same"])


def test_kl_of_weibull_attention_by_hand() -> None:
    """BAM, Sec. 3.2, written out for one query: sum over its keys of KL(Weibull || Gamma)."""
    q, k, v = tensors()
    prior = KeyPrior(D, GammaPrior(rate=0.7))
    kl = scaled_dot_product_attention(q, k, v, family=Weibull(3.0), prior=prior).kl
    psi = prior.logits(k).softmax(dim=-1)  # (B, H, S)
    euler, shape = 0.57721566490153, 3.0
    for t in range(T):
        phi = (q[1, 2, t] * k[1, 2]).sum(dim=-1) / math.sqrt(D)
        scale = phi.exp() / math.gamma(1.0 + 1.0 / shape)
        a = psi[1, 2]
        terms = (
            euler * a / shape - a * scale.log() + math.log(shape) + 0.7 * scale * math.gamma(1.0 + 1.0 / shape)
            - euler - 1.0 - a * math.log(0.7) + torch.lgamma(a)
        )  # fmt: skip
        torch.testing.assert_close(kl[1, 2, t], terms.sum())


def test_padded_queries_cost_nothing() -> None:
    q, k, v = tensors()
    q.requires_grad_()
    real = torch.tensor([[True] * T, [True, True, False, False]])
    arguments = CONFIGURATIONS["weibull-keys"].arguments(D, H)
    everything = scaled_dot_product_attention(q, k, v, seed=SEED, **arguments)
    result = scaled_dot_product_attention(q, k, v, query_mask=real[:, None], seed=SEED, **arguments)
    assert torch.equal(result.kl, everything.kl * real[:, None])
    assert torch.equal(result.context, everything.context)
    (grad,) = torch.autograd.grad(result.kl.sum(), q)
    assert torch.equal(grad.abs().sum(dim=(1, 3)) > 0, real)


@pytest.mark.parametrize("name", [n for n, row in SAMPLED.items() if row.prior is not None and n != "hard-same"])
def test_gradient_of_the_kl(name: str) -> None:
    """It reaches the prior's parameters, the queries and the keys (BAM's released code detached it)."""
    q, k, v = (x.requires_grad_() for x in tensors())
    arguments = SAMPLED[name].arguments(D, H)
    kl = scaled_dot_product_attention(q, k, v, **arguments).kl.sum()
    for leaf in (q, k, *arguments["prior"].parameters()):
        (grad,) = torch.autograd.grad(kl, leaf, retain_graph=True)
        assert torch.isfinite(grad).all()
        assert grad.abs().max() > 0


def test_grouped_queries_have_a_prior_for_every_query_head() -> None:
    q, k, v = torch.randn(B, 4, T, D), torch.randn(B, 2, S, D), torch.randn(B, 2, S, V)
    prior = KeyPrior(D, GammaPrior(), num_heads=4)
    grouped = scaled_dot_product_attention(q, k, v, enable_gqa=True, family=Weibull(), prior=prior, seed=SEED)
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    plain = scaled_dot_product_attention(q, k, v, family=Weibull(), prior=prior, seed=SEED)
    assert torch.equal(grouped.context, plain.context)
    assert torch.equal(grouped.kl, plain.kl)


# Padding


@EVERY
@pytest.mark.parametrize("junk", [1e4, float("inf"), float("nan")])
def test_padding_changes_nothing(row: Configuration, junk: float) -> None:
    """Keys that nobody may see, and queries behind the last one, at the same seed: same draws, KLs and gradients."""
    arguments = row.arguments(D, H)
    parameters = [] if arguments["prior"] is None else list(arguments["prior"].parameters())
    plain = [x.requires_grad_() for x in tensors()]
    padded = [F.pad(x.detach(), (0, 0, 0, 3), value=junk if i > 0 else 1.0) for i, x in enumerate(plain)]
    padded = [x.requires_grad_() for x in padded]
    mask = masks()["bool per head"]
    results = []
    for inputs, allowed in ((plain, mask), (padded, F.pad(mask, (0, 3, 0, 3)))):
        result = scaled_dot_product_attention(*inputs, allowed, seed=SEED, **arguments)
        context, kl = result.context[..., :T, :], result.kl[..., :T]
        score = 0.0 if result.latent.draw.score is None else result.latent.draw.score[..., :T].sum()
        grads = torch.autograd.grad(context.sin().sum() + kl.sum() + score, [*inputs, *parameters], allow_unused=True)
        sizes = (T, S, S)
        grads = [grad if i > 2 or grad is None else grad[..., : sizes[i], :] for i, grad in enumerate(grads)]
        results.append([context, kl, *(grad for grad in grads if grad is not None)])
    for mine, theirs in zip(*results, strict=True):
        assert torch.isfinite(theirs).all()
        torch.testing.assert_close(theirs, mine)


@EVERY
def test_longer_sequences_begin_like_shorter_ones(row: Configuration) -> None:
    """Noise belongs to a position, not to an order of drawing."""
    q, k, v = torch.randn(B, H, S, D), torch.randn(B, H, S, D), torch.randn(B, H, S, V)
    arguments = row.arguments(D, H) | {"prior": None}
    long = scaled_dot_product_attention(q, k, v, is_causal=True, seed=SEED, need_weights=True, **arguments).weights
    q, k, v = (x[:, :, :3] for x in (q, k, v))
    short = scaled_dot_product_attention(q, k, v, is_causal=True, seed=SEED, need_weights=True, **arguments).weights
    torch.testing.assert_close(long[..., :3, :3], short, rtol=1e-6, atol=1e-7)


# Errors


def test_errors() -> None:
    q, k, v = tensors()
    with pytest.raises(ValueError, match=r"expected query \(\*lead, T, D\), key .* got \(2, 3, 4, 6\), \(2, 3, 5, 5\)"):
        scaled_dot_product_attention(q, k[..., :-1], v)
    with pytest.raises(ValueError, match=r"expected query"):
        scaled_dot_product_attention(q, k, v[..., :-1, :])
    with pytest.raises(ValueError, match="pass either attn_mask or is_causal=True, not both"):
        scaled_dot_product_attention(q, k, v, torch.ones(T, S, dtype=torch.bool), is_causal=True)
    with pytest.raises(TypeError, match="attn_mask must be bool or float, got torch.int64"):
        scaled_dot_product_attention(q, k, v, torch.ones(T, S, dtype=torch.int64))
    with pytest.raises(ValueError, match="attn_mask of shape .* NaN .* Use -inf for positions that may not be seen"):
        scaled_dot_product_attention(q, k, v, torch.full((T, S), float("nan")))
    with pytest.raises(ValueError, match="query heads to be a multiple of key heads, got 3 and 2"):
        scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, T, S), (1, 1, T, S), (T, S + 1), (3, T, S)])
def test_a_mask_must_not_change_the_shape_of_the_context(shape: tuple[int, ...], need_weights: bool) -> None:
    q, k, v = (one[:, 0] for one in tensors())  # (2, T, D), without heads
    mask = torch.ones(shape, dtype=torch.bool)
    with pytest.raises(ValueError, match=rf"attn_mask must broadcast .* = \(2, {T}, {S}\), got \({shape[0]}, "):
        scaled_dot_product_attention(q, k, v, mask, family=Weibull(), need_weights=need_weights)


@pytest.mark.parametrize("mask", [torch.ones(3, 2, T).bool(), torch.ones(2, T), torch.ones(2, T + 1).bool()])
def test_a_mask_of_queries_is_bool_and_of_queries(mask: Tensor) -> None:
    q, k, v = (one[:, 0] for one in tensors())
    with pytest.raises(ValueError, match=rf"query_mask must be bool, .* broadcast to \(\*lead, T\) = \(2, {T}\), got"):
        scaled_dot_product_attention(q, k, v, family=Weibull(), query_mask=mask)


@pytest.mark.parametrize(
    ("family", "estimator", "count"),
    [(Weibull(), Pathwise(2), 2), (Categorical(), ScoreFunction(1), 2), (Categorical(), Enumerate(), S)],
    ids=["two samples", "extra baseline", "enumeration"],
)
def test_one_particle(family: object, estimator: object, count: int) -> None:
    with pytest.raises(ValueError, match=rf"uses one particle, the estimator gave {count}.*probattn.nn.Attention"):
        scaled_dot_product_attention(*tensors(), family=family, estimator=estimator)


def test_a_hard_family_needs_its_estimator() -> None:
    with pytest.raises(TypeError, match="Pathwise needs a distribution with differentiable samples.*Use ScoreFunction"):
        scaled_dot_product_attention(*tensors(), family=Categorical())
