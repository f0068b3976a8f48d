"""The drop-in for torch.nn.MultiheadAttention: same numbers without sampling, same weights, same signature.

Sizes: B batch, T queries, S keys, E embedding, H heads.
"""

import copy
import inspect
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

import probattn as pa
from probattn import (
    Elbo,
    Evaluation,
    Fixed,
    GammaPrior,
    KeyPrior,
    MultiheadAttention,
    Pathwise,
    Weibull,
    record_latents,
    sampling,
)
from probattn.core.records import Given
from probattn.nn.functional import AttentionResult
from tests.nn.families import CONFIGURATIONS, SAMPLED, Configuration

B, T, S, E, H = 2, 4, 5, 8, 2
EVERY_SAMPLED = pytest.mark.parametrize("row", SAMPLED.values(), ids=SAMPLED.keys())

CONSTRUCTORS = {
    "plain": {},
    "no bias": {"bias": False},
    "kdim, vdim": {"kdim": 6, "vdim": 7},
    "kdim": {"kdim": 6},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True},
    "bias_kv, zero_attn, vdim": {"add_bias_kv": True, "add_zero_attn": True, "vdim": 7},
    "float64": {"dtype": torch.float64},
    "one head": {"num_heads": 1},
}


def build(batch_first: bool = True, **arguments: object) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    """torch's module with biases that are not zero, and ours with its weights."""
    num_heads = arguments.pop("num_heads", H)
    theirs = nn.MultiheadAttention(E, num_heads, batch_first=batch_first, **arguments)
    for parameter in theirs.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    mine = MultiheadAttention(E, num_heads, batch_first=batch_first, **arguments)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def inputs(module: nn.MultiheadAttention, *, is_batched: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    dtype = module.out_proj.weight.dtype
    widths = ((T, module.embed_dim), (S, module.kdim), (S, module.vdim))
    if not is_batched:
        return tuple(torch.randn(*shape, dtype=dtype) for shape in widths)
    query, key, value = (torch.randn(B, *shape, dtype=dtype) for shape in widths)
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    return query, key, value


def masks(num_heads: int = H, dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Every kind and pair of torch's masks; all queries see the first key: torch gives NaN where nothing is seen."""
    blocked = torch.rand(T, S) < 0.4
    blocked[:, 0] = False
    per_head = torch.rand(B * num_heads, T, S) < 0.4
    per_head[..., 0] = False
    padding = torch.tensor([[False] * S, [False, False, False, True, True]])

    def as_float(mask: Tensor) -> Tensor:
        return torch.randn(mask.shape, dtype=dtype).masked_fill(mask, -torch.inf)

    attention = {
        "none": None,
        "bool 2-D": blocked,
        "bool 3-D": per_head,
        "float 2-D": as_float(blocked),
        "float 3-D": as_float(per_head),
        "causal": torch.ones(T, S, dtype=torch.bool).triu(1),
    }
    keys = {"none": None, "bool": padding, "float": as_float(padding)}
    for name, attn_mask in attention.items():
        for other, key_padding_mask in keys.items():
            yield f"{name} + {other}", {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}


# Without a family it is torch's module


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("arguments", CONSTRUCTORS.values(), ids=CONSTRUCTORS.keys())
def test_equals_torch_for_every_mask(arguments: dict[str, object], batch_first: bool) -> None:
    theirs, mine = build(batch_first, **arguments)
    query, key, value = inputs(theirs)
    for name, mask in masks(theirs.num_heads, query.dtype):
        expected, weights = theirs(query, key, value, average_attn_weights=False, **mask)
        found, found_weights = mine(query, key, value, average_attn_weights=False, **mask)
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")
        torch.testing.assert_close(found_weights, weights, msg=lambda text, name=name: f"{name}: {text}")
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("is_batched", [True, False])
def test_returns_what_torch_returns(is_batched: bool, average: bool, need_weights: bool) -> None:
    theirs, mine = build()
    query, key, value = inputs(theirs, is_batched=is_batched)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    (expected, weights), (found, found_weights) = (module(query, key, value, **options) for module in (theirs, mine))
    torch.testing.assert_close(found, expected)
    assert (found_weights is None) == (weights is None)
    if weights is not None:
        torch.testing.assert_close(found_weights, weights)


@pytest.mark.parametrize("key_padding", [None, torch.bool, torch.float32])
@pytest.mark.parametrize("attn_dims", [None, 2, 3])
def test_unbatched_masks(key_padding: torch.dtype | None, attn_dims: int | None) -> None:
    theirs, mine = build()
    query, key, value = inputs(theirs, is_batched=False)
    padding = torch.tensor([False, False, False, True, True])
    if key_padding == torch.float32:
        padding = torch.zeros(S).masked_fill(padding, -torch.inf)
    blocked = torch.rand(*([H] if attn_dims == 3 else []), T, S) < 0.4
    blocked[..., 0] = False
    mask = {"key_padding_mask": None if key_padding is None else padding, "attn_mask": blocked if attn_dims else None}
    for expected, found in zip(theirs(query, key, value, **mask), mine(query, key, value, **mask), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("batch_first", [True, False])
def test_self_attention_with_a_causal_hint(batch_first: bool) -> None:
    theirs, mine = build(batch_first)
    x = inputs(theirs)[0]
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    for need_weights in (True, False):
        options = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
        torch.testing.assert_close(mine(x, x, x, **options)[0], theirs(x, x, x, **options)[0])


@pytest.mark.parametrize("arguments", CONSTRUCTORS.values(), ids=CONSTRUCTORS.keys())
def test_gradients_equal_torch(arguments: dict[str, object]) -> None:
    theirs, mine = build(**arguments)
    query, key, value = inputs(theirs)
    padding = torch.tensor([[False] * S, [False, False, False, True, True]])
    for module in (theirs, mine):
        module(query, key, value, key_padding_mask=padding)[0].sin().sum().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_acts_in_training_only() -> None:
    _, mine = build(dropout=0.5)
    query, key, value = inputs(mine)
    _, weights = mine(query, key, value, average_attn_weights=False)
    assert 0 < (weights == 0).float().mean() < 1
    mine.eval()
    assert torch.equal(mine(query, key, value)[0], mine(query, key, value)[0])


@EVERY_SAMPLED
@pytest.mark.parametrize("kind", ["none + none", "bool 3-D + bool", "float 2-D + float", "causal + bool"])
def test_without_sampling_every_family_equals_torch(row: Configuration, kind: str) -> None:
    theirs, _ = build()
    mine = MultiheadAttention.from_torch(theirs, **row.arguments(E // H, H))
    query, key, value = inputs(theirs)
    mask = dict(masks())[kind]
    with sampling(mine, False):
        for expected, found in zip(theirs(query, key, value, **mask), mine(query, key, value, **mask), strict=True):
            torch.testing.assert_close(found, expected)


def test_signature() -> None:
    """Constructor and forward take torch's arguments, in torch's order, with torch's defaults."""
    for method in ("__init__", "forward"):
        theirs = list(inspect.signature(getattr(nn.MultiheadAttention, method)).parameters.values())
        mine = list(inspect.signature(getattr(MultiheadAttention, method)).parameters.values())[: len(theirs)]
        assert [(p.name, p.default, p.kind) for p in mine] == [(p.name, p.default, p.kind) for p in theirs]


# Weights


@pytest.mark.parametrize("arguments", CONSTRUCTORS.values(), ids=CONSTRUCTORS.keys())
def test_state_dict_keys_are_those_of_torch(arguments: dict[str, object]) -> None:
    theirs, mine = build(**arguments)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(mine.state_dict())  # and back


def test_state_dict_keys_of_a_prior() -> None:
    mine = MultiheadAttention(E, H, family=Weibull(), prior=KeyPrior(E // H, GammaPrior(), num_heads=H))
    added = [name for name in mine.state_dict() if name not in nn.MultiheadAttention(E, H).state_dict()]
    assert added == ["prior.hidden_weight", "prior.hidden_bias", "prior.out_weight"]


def test_weights_of_torch_load_into_a_module_with_a_prior() -> None:
    """Strictly: the prior, which the checkpoint does not have, keeps its weights."""
    theirs, _ = build()
    mine = MultiheadAttention(E, H, family=Weibull(), prior=KeyPrior(E // H, GammaPrior()), batch_first=True)
    before = {name: tensor.clone() for name, tensor in mine.prior.state_dict().items()}
    checkpoint = theirs.state_dict()
    keys = set(checkpoint)
    result = mine.load_state_dict(checkpoint, strict=True)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert set(checkpoint) == keys  # the caller's checkpoint is left alone
    assert all(torch.equal(before[name], tensor) for name, tensor in mine.prior.state_dict().items())
    assert all(torch.equal(mine.state_dict()[name], tensor) for name, tensor in theirs.state_dict().items())


def test_the_prior_of_a_checkpoint_is_loaded() -> None:
    first, second = (
        nn.Sequential(MultiheadAttention(E, H, family=Weibull(), prior=KeyPrior(E // H, GammaPrior())))
        for _ in range(2)
    )
    second.load_state_dict(first.state_dict())
    assert torch.equal(first[0].prior.hidden_weight, second[0].prior.hidden_weight)


def test_half_a_prior_is_an_error() -> None:
    mine = MultiheadAttention(E, H, family=Weibull(), prior=KeyPrior(E // H, GammaPrior()))
    checkpoint = mine.state_dict()
    del checkpoint["prior.hidden_bias"]
    with pytest.raises(RuntimeError, match=r"Missing key.*prior\.hidden_bias"):
        mine.load_state_dict(checkpoint)


def test_missing_weights_are_an_error_beside_a_prior() -> None:
    mine = MultiheadAttention(E, H, family=Weibull(), prior=KeyPrior(E // H, GammaPrior()))
    with pytest.raises(RuntimeError, match=r"Missing key.*out_proj\.weight"):
        mine.load_state_dict({})


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("arguments", CONSTRUCTORS.values(), ids=CONSTRUCTORS.keys())
def test_from_torch(arguments: dict[str, object], batch_first: bool) -> None:
    theirs, _ = build(batch_first, **arguments)
    theirs.eval()
    mine = MultiheadAttention.from_torch(theirs, family=Weibull(), estimator=Pathwise(), name="here")
    assert not mine.training
    assert (mine.name, mine.estimator) == ("here", Pathwise())
    query, key, value = inputs(theirs)
    with sampling(mine, False):
        torch.testing.assert_close(mine(query, key, value)[0], theirs(query, key, value)[0])
    theirs.out_proj.weight.data.zero_()
    assert mine.out_proj.weight.abs().max() > 0  # a copy, not a view


# Draws


def stochastic(row: Configuration, **arguments: object) -> MultiheadAttention:
    return MultiheadAttention(E, H, batch_first=True, **arguments, **row.arguments(E // H, H))


@EVERY_SAMPLED
def test_copies_draw_alike(row: Configuration) -> None:
    """deepcopy, pickle, and torch.save of the state_dict."""
    module = stochastic(row)
    x = torch.randn(B, T, E)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    reloaded = stochastic(row)
    reloaded.load_state_dict(torch.load(file, weights_only=True))
    results = []
    for copied in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module)), reloaded):
        torch.manual_seed(5)
        results.append(copied(x, x, x)[0])
    for result in results[1:]:
        assert torch.equal(result, results[0])


def test_a_pickle_keeps_the_switch_and_the_seed() -> None:
    module = stochastic(CONFIGURATIONS["weibull"])
    x = torch.randn(B, T, E)
    with sampling(module, seed=3):
        expected = module(x, x, x)[0]
        copied = pickle.loads(pickle.dumps(module))
    assert torch.equal(copied(x, x, x)[0], expected)
    with sampling(module, False):
        assert not pickle.loads(pickle.dumps(module)).is_sampling


def test_forward_with_latents_is_forward() -> None:
    module = stochastic(CONFIGURATIONS["weibull-keys"])
    x = torch.randn(B, T, E)
    padding = torch.tensor([[False] * T, [False, False, True, True]])
    with sampling(module, seed=3):
        output, weights = module(x, x, x, key_padding_mask=padding, average_attn_weights=False)
        again, result = module.forward_with_latents(x, x, x, key_padding_mask=padding, need_weights=True)
    assert torch.equal(output, again)
    assert torch.equal(weights, result.weights)
    assert result.context.shape == (B, H, T, E // H)
    assert result.kl.shape == (B, H, T)
    assert module.forward_with_latents(x, x, x)[1].weights is None


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_layout_does_not_change_the_draw(batch_first: bool) -> None:
    module = MultiheadAttention(E, H, batch_first=batch_first, family=Weibull(2.0))
    x = torch.randn(B, T, E)
    own = x if batch_first else x.transpose(0, 1)
    with sampling(module, seed=1):
        output = module(own, own, own)[0]
        alone = module(x[0], x[0], x[0])[0]
    output = output if batch_first else output.transpose(0, 1)
    torch.testing.assert_close(alone, output[0])


@EVERY_SAMPLED
@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_changes_nothing(row: Configuration, is_causal: bool) -> None:
    """Self-attention on a longer padded batch, at the same seed: real positions have the same output and KL."""
    module = stochastic(row)
    x = torch.randn(B, T, E)
    results = []
    for extra in (0, 3):
        padded = nn.functional.pad(x, (0, 0, 0, extra), value=50.0)
        padding = nn.functional.pad(torch.zeros(B, T, dtype=torch.bool), (0, extra), value=True)
        mask = torch.ones(T + extra, T + extra, dtype=torch.bool).triu(1) if is_causal else None
        with sampling(module, seed=3):
            output, result = module.forward_with_latents(
                padded, padded, padded, key_padding_mask=padding, attn_mask=mask
            )
        assert not result.kl[..., T:].any()
        loss = output[:, :T].sin().sum() + result.kl.sum()
        grads = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
        results.append([output[:, :T], result.kl[..., :T], *(grad for grad in grads if grad is not None)])
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_padded_queries_of_self_attention_cost_nothing(kind: torch.dtype) -> None:
    module = stochastic(CONFIGURATIONS["weibull-keys"])
    x = torch.randn(B, T, E)
    padding = torch.tensor([[False] * T, [False, False, True, True]])
    mask = padding if kind == torch.bool else torch.zeros(B, T).masked_fill(padding, -torch.inf)
    _, result = module.forward_with_latents(x, x, x, key_padding_mask=mask)
    assert torch.equal(result.kl > 0, ~padding[:, None].expand(B, H, T))


def test_padded_queries_of_cross_attention_are_named() -> None:
    """There nothing says which queries are padding but the caller."""
    module = stochastic(CONFIGURATIONS["weibull-keys"])
    query, memory = torch.randn(B, T, E), torch.randn(B, S, E)
    padding = torch.tensor([[False] * T, [False, False, True, True]])
    _, result = module.forward_with_latents(query, memory, memory, query_padding_mask=padding)
    assert torch.equal(result.kl > 0, ~padding[:, None].expand(B, H, T))
    _, unbatched = module.forward_with_latents(query[1], memory[1], memory[1], query_padding_mask=padding[1])
    assert torch.equal(unbatched.kl > 0, ~padding[None, None, 1].expand(1, H, T))


@pytest.mark.parametrize("name", [n for n, row in SAMPLED.items() if row.prior is not None and n != "hard-same"])
def test_gradient_of_the_kl(name: str) -> None:
    """It reaches the prior and the projections of queries and keys, and not the values."""
    module = stochastic(SAMPLED[name])
    x = torch.randn(B, T, E)
    _, result = module.forward_with_latents(x, x, x)
    result.kl.sum().backward()
    query, key, value = module.in_proj_weight.grad.chunk(3)
    assert query.abs().max() > 0
    assert key.abs().max() > 0
    assert not value.any()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.prior.parameters())


@EVERY_SAMPLED
def test_the_receipt_goes_into_a_bound(row: Configuration) -> None:
    module, x = stochastic(row), torch.randn(B, T, E)
    output, result = module.forward_with_latents(x, x, x)
    log_lik = -output.square().flatten(1).sum(dim=-1)
    terms = Elbo()(Evaluation(log_lik.unsqueeze(0), [result.latent]), {"attention": 0.5})
    torch.testing.assert_close(terms.bound, (log_lik - result.kl.sum(dim=(1, 2))).detach())
    torch.testing.assert_close(terms.loss.detach(), (0.5 * result.kl.sum(dim=(1, 2)) - log_lik).detach())
    terms.loss.sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert module.in_proj_weight.grad.chunk(3)[0].abs().max() > 0


def test_add_bias_kv_and_add_zero_attn_are_keys_like_others() -> None:
    """The appended rows have random weights too, and every query may see them."""
    module = stochastic(CONFIGURATIONS["weibull-keys"], add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(B, T, E)
    padding = torch.tensor([[False] * T, [True] * T])
    with sampling(module, seed=1):
        _, weights = module(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    with sampling(module, seed=2):
        _, other = module(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (B, H, T, T + 2)
    assert not weights[1, ..., :T].any()
    assert bool((weights[1, ..., T:] > 0).all())
    assert bool((weights[..., T:] != other[..., T:]).all())


# Errors


def test_errors_of_the_constructor() -> None:
    with pytest.raises(ValueError, match="embed_dim must be a multiple of num_heads, got embed_dim=8 and num_heads=3"):
        MultiheadAttention(E, 3)
    with pytest.raises(ValueError, match="a prior or an estimator needs a family"):
        MultiheadAttention(E, H, prior=Fixed(GammaPrior(), 1.0))
    with pytest.raises(ValueError, match="a prior or an estimator needs a family"):
        MultiheadAttention(E, H, estimator=Pathwise())


def test_errors_of_the_call() -> None:
    module, x = MultiheadAttention(E, H, batch_first=True), torch.randn(B, T, E)
    with pytest.raises(ValueError, match=r"2 or 3 axes with widths \(8, 8, 8\), got \(2, 4, 8\), \(2, 4, 7\)"):
        module(x, x[..., :-1], x)
    with pytest.raises(ValueError, match="2 or 3 axes"):
        module(x, x[0], x[0])
    with pytest.raises(ValueError, match=r"expected key_padding_mask \(2, 4\), .* keys' 4 positions, got \(2, 3\)"):
        module(x, x, x, key_padding_mask=torch.zeros(B, 3, dtype=torch.bool))
    for padding in (torch.zeros(T, dtype=torch.bool), torch.zeros(T, B, dtype=torch.bool), torch.zeros(B, T)):
        with pytest.raises(ValueError, match=r"expected a bool query_padding_mask \(2, 4\), True for .*, got"):
            module.forward_with_latents(x, x, x, query_padding_mask=padding)
    with pytest.raises(ValueError, match="is_causal is only a hint about attn_mask, as in torch; pass attn_mask too"):
        module(x, x, x, is_causal=True)
    with pytest.raises(TypeError, match="attn_mask must be bool or float, got torch.int64"):
        module(x, x, x, attn_mask=torch.zeros(T, T, dtype=torch.int64))


def test_a_copy_of_a_frozen_module_stays_frozen_and_its_prior_has_the_dtype() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64).requires_grad_(False)
    module.out_proj.bias.requires_grad_(True)
    prior = pa.KeyPrior(4, pa.GammaPrior())
    own = pa.MultiheadAttention.from_torch(module, family=pa.Weibull(anchor="softmax"), prior=prior)
    trainable = {name for name, one in own.named_parameters() if one.requires_grad and not name.startswith("prior")}
    assert trainable == {"out_proj.bias"}
    assert {one.dtype for one in own.parameters()} == {torch.float64}
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    assert own(x, x, x)[0].dtype == torch.float64
    built = pa.MultiheadAttention(
        8, 2, dtype=torch.float64, family=pa.Weibull(), prior=pa.KeyPrior(4, pa.GammaPrior()), batch_first=True
    )
    assert {one.dtype for one in built.parameters()} == {torch.float64}


class Counting(KeyPrior):
    """Counts how often it is asked."""

    asked = 0

    def forward(self, given: Given) -> Distribution:
        self.asked += 1
        return super().forward(given)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_kl_that_nobody_can_see_is_not_computed(need_weights: bool) -> None:
    prior = Counting(4, GammaPrior(rate=1.0))
    module = MultiheadAttention(8, 2, batch_first=True, family=Weibull(10.0), prior=prior)
    x = torch.randn(2, 5, 8)

    def run() -> Tensor:
        torch.manual_seed(3)
        found: Tensor = module(x, x, x, need_weights=need_weights)[0]
        return found

    with torch.no_grad():
        alone = run()
        assert prior.asked == 0
        with record_latents() as record:
            heard = run()
        assert prior.asked == 1 and record.kl().shape == (2,)
        module.forward_with_latents(x, x, x)
    assert prior.asked == 2
    assert torch.equal(alone, heard) and torch.equal(alone, run().detach())  # the same draw in each of them
    assert prior.asked == 3  # with gradients, checkpointing may come back when the record is closed


def test_a_subclass_with_receipts_of_its_own_is_always_asked() -> None:
    class Doubling(MultiheadAttention):
        def forward_with_latents(self, *args: Any, **options: Any) -> tuple[Tensor, AttentionResult]:
            output, result = super().forward_with_latents(*args, **options)
            return 2.0 * output, result

    module = Doubling(8, 2, batch_first=True, family=Weibull(10.0), prior=KeyPrior(4, GammaPrior(rate=1.0)))
    plain = MultiheadAttention.from_torch(module, family=module.family, prior=module.prior)
    x = torch.randn(2, 5, 8)
    found = []
    for one in (module, plain):
        torch.manual_seed(3)
        with torch.no_grad():
            found.append(one(x, x, x)[0])
    torch.testing.assert_close(found[0], 2.0 * found[1])
