"""Attention with zero, one and two sites, and every row of the papers' tables as a configuration of it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import probattn as pa
from probattn.core import (
    Dense,
    Elbo,
    Enumerate,
    Mean,
    Memory,
    NoBaseline,
    Pathwise,
    ScoreFunction,
    Segments,
    TopKAndSample,
    fold_seed,
)
from probattn.distributions import Categorical, GammaPrior, Weibull
from probattn.nn import (
    Attention,
    AttentionOutput,
    Bilinear,
    BiLSTM,
    Dot,
    FromContext,
    FromScores,
    GraphAdditive,
    InferenceNetwork,
    KeyPrior,
    Site,
    StandardNormal,
)
from tests.nn.rows import ROWS, Row, Toy, make_batch
from tests.nn.zoo import B, D, S, T, make_given

EVERY_ROW = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def hard_site(name: str = "weights") -> Site:
    return Site(name, prior=FromScores(Categorical()), posterior=None)


def bayesian_site(name: str = "weights") -> Site:
    return Site(name, prior=KeyPrior(D, GammaPrior()), posterior=FromScores(Weibull(2.0)))


def context_site(name: str = "context") -> Site:
    return Site(name, prior=StandardNormal(D), posterior=FromContext(D))


def soft_by_hand(query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Weights (B, T, S) and contexts (B, T, D), one query at a time, over the positions that are there."""
    weights, contexts = torch.zeros(B, T, S), torch.zeros(B, T, D)
    for b in range(B):
        (seen,) = memory.support.mask[b, 0].nonzero(as_tuple=True)
        for t in range(T):
            scores = torch.stack([(query[b, t] * memory.keys[b, s]).sum() / D**0.5 for s in seen])
            weights[b, t, seen] = scores.softmax(dim=0)
            contexts[b, t] = sum(weights[b, t, s] * memory.values[b, s] for s in seen)
    return weights, contexts


# One mechanism


def test_no_site_is_soft_attention() -> None:
    given = make_given()
    output = Attention(Dot())(given.query, given.memory)
    weights, contexts = soft_by_hand(given.query, given.memory)
    torch.testing.assert_close(output.weights, weights)
    torch.testing.assert_close(output.context, contexts[None])
    torch.testing.assert_close(output.expected_context, contexts)
    assert output.latents == ()


@pytest.mark.parametrize("site", [hard_site(), bayesian_site()], ids=["hard", "bayesian"])
def test_mean_is_soft_attention(site: Site) -> None:
    given = make_given()
    output = Attention(Dot(), weights=site)(given.query, given.memory, estimators={"weights": Mean()})
    weights, contexts = soft_by_hand(given.query, given.memory)
    torch.testing.assert_close(output.latents[0].draw.value[0], weights)
    torch.testing.assert_close(output.context, contexts[None])
    torch.testing.assert_close(output.expected_context, contexts)
    torch.testing.assert_close(output.weights, weights)


def graph() -> tuple[Tensor, Memory]:
    nodes = torch.randn(4, 2, D)
    support = Segments(torch.tensor([0, 0, 2, 2, 2]), 4, torch.tensor([1, 3, 0, 2, 3]))
    return nodes, Memory(keys=nodes, values=nodes, support=support)


def test_no_site_on_a_graph() -> None:
    nodes, memory = graph()
    score = GraphAdditive(D, 2)
    output = Attention(score)(nodes, memory)
    scores = score(nodes, memory)
    expected = torch.zeros(4, 2, D)
    for i in range(4):
        edges = (memory.support.index == i).nonzero()[:, 0]
        weights = scores[edges].softmax(dim=0)
        expected[i] = (weights.unsqueeze(-1) * nodes[memory.support.source[edges]]).sum(dim=0)
    torch.testing.assert_close(output.context[0], expected)
    assert output.context.shape == (1, 4, 2, D)


def test_a_site_on_a_graph() -> None:
    """BAM's graph rows: one weight per edge and head, a KL per node and head."""
    nodes, memory = graph()
    attention = Attention(GraphAdditive(D, 2), weights=bayesian_site())
    output = attention(nodes, memory, estimators={"weights": Pathwise(3)})
    (latent,) = output.latents
    assert output.context.shape == (3, 4, 2, D)
    assert latent.kl.shape == (4, 2)
    assert not latent.kl[1].any()  # no edge leads there
    assert not output.context[:, 1].any()
    (latent.kl.sum() + output.context.sum()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in attention.parameters())


@pytest.mark.parametrize(
    "estimator", [Enumerate(), Enumerate(2), ScoreFunction(3, NoBaseline()), TopKAndSample(2)], ids=repr
)
def test_positions_read_their_rows(estimator: object) -> None:
    given = make_given()
    output = Attention(Dot(), weights=hard_site())(given.query, given.memory, estimators={"weights": estimator})
    draw = output.latents[0].draw
    for k in range(draw.num_particles):
        for b in range(B):
            for t in range(T):
                s = int(draw.index[k, b, t])
                is_real = bool(given.memory.support.mask[b, 0, s])
                expected = given.memory.values[b, s] if is_real else torch.zeros(D)
                assert torch.equal(output.context[k, b, t], expected)


def test_the_soft_baseline_is_read_behind_the_samples() -> None:
    given = make_given()
    output = Attention(Dot(), weights=hard_site())(given.query, given.memory, estimators={"weights": ScoreFunction(2)})
    assert output.context.shape == (3, B, T, D)
    torch.testing.assert_close(output.context[-1], soft_by_hand(given.query, given.memory)[1])


def test_drawn_weights_are_contracted_with_the_values() -> None:
    given = make_given()
    attention = Attention(Dot(), weights=bayesian_site())
    output = attention(given.query, given.memory, estimators={"weights": Pathwise(4)})
    weights = output.latents[0].draw.value  # (K, B, T, S)
    torch.testing.assert_close(output.context, torch.einsum("kbts,bsd->kbtd", weights, given.memory.values))
    torch.testing.assert_close(output.expected_context, soft_by_hand(given.query, given.memory)[1])


def test_expectations_are_under_the_predictive_distribution() -> None:
    """Variational attention feeds its state with the context under p, also while it trains with q."""
    given = make_given()
    site = Site("weights", prior=FromScores(Categorical()), posterior=InferenceNetwork(Bilinear(D, D), Categorical()))
    output = Attention(Dot(), weights=site)(
        given.query, given.memory, estimators={"weights": Mean()}, target=given.target
    )
    weights, contexts = soft_by_hand(given.query, given.memory)
    torch.testing.assert_close(output.weights, weights)
    torch.testing.assert_close(output.expected_context, contexts)
    assert not torch.allclose(output.context[0], contexts)


def test_without_a_target_sites_predict() -> None:
    given = make_given()
    site = Site("weights", prior=FromScores(Categorical()), posterior=InferenceNetwork(Bilinear(D, D), Categorical()))
    output = Attention(Dot(), weights=site)(given.query, given.memory, estimators={"weights": Mean()})
    torch.testing.assert_close(output.context[0], soft_by_hand(given.query, given.memory)[1])
    assert not output.latents[0].kl.any()


# Two sites


def test_two_sites() -> None:
    """The context site is Gaussian around the context that was read with the drawn weights."""
    given, seed = make_given(), torch.tensor(3)
    attention = Attention(Dot(), weights=bayesian_site(), context=context_site())
    output = attention(given.query, given.memory, estimators={"weights": Pathwise(), "context": Pathwise(3)}, seed=seed)
    first, second = output.latents
    assert (first.name, second.name) == ("weights", "context")
    assert torch.equal(first.seed, seed)
    assert torch.equal(second.seed, fold_seed(seed, 1))  # noise of its own
    assert output.context.shape == (3, B, T, D)
    assert torch.equal(output.context, second.draw.value)
    read = first.draw.value[0] @ given.memory.values
    replayed = attention.context.posterior(replace(given, context=read))
    torch.testing.assert_close(second.draw.value, replayed.draw_raw(3, second.seed))
    torch.testing.assert_close(output.expected_context, output.weights @ given.memory.values)


def test_the_seed_governs_both_sites() -> None:
    given = make_given()
    attention = Attention(Dot(), weights=bayesian_site(), context=context_site())
    estimators = {"weights": Pathwise(), "context": Pathwise()}

    def run(seed: Tensor | None) -> AttentionOutput:
        return attention(given.query, given.memory, estimators=estimators, seed=seed)

    assert torch.equal(run(torch.tensor(1)).context, run(torch.tensor(1)).context)
    assert not torch.equal(run(torch.tensor(1)).context, run(torch.tensor(2)).context)
    torch.manual_seed(0)
    first, other = run(None), run(None)
    torch.manual_seed(0)
    assert torch.equal(first.context, run(None).context)
    assert not torch.equal(first.context, other.context)
    assert not torch.equal(first.latents[0].seed, first.latents[1].seed)


@pytest.mark.parametrize("estimator", [Pathwise(2), ScoreFunction(1), Enumerate()], ids=repr)
def test_a_context_site_reads_one_context(estimator: object) -> None:
    given = make_given()
    weights = bayesian_site() if isinstance(estimator, Pathwise) else hard_site()
    attention = Attention(Dot(), weights=weights, context=context_site())
    with pytest.raises(ValueError, match="context site 'context' reads one context, but the weights site gave"):
        attention(given.query, given.memory, estimators={"weights": estimator, "context": Pathwise()})


def test_two_sites_need_two_names() -> None:
    with pytest.raises(ValueError, match="two sites of an attention need different names, both are called 'a'"):
        Attention(Dot(), weights=hard_site("a"), context=context_site("a"))


def test_a_context_site_draws_vectors() -> None:
    given = make_given()
    site = Site("context", prior=FromScores(Categorical()), posterior=None)
    with pytest.raises(ValueError, match="context site 'context' must draw vectors, got positions"):
        Attention(Dot(), context=site)(given.query, given.memory, estimators={"context": Enumerate()})


@pytest.mark.parametrize(("estimators", "have"), [(None, "none"), ({"other": Mean()}, r"\['other'\]")])
def test_a_site_without_an_estimator(estimators: dict[str, Mean] | None, have: str) -> None:
    given = make_given()
    match = rf"site 'weights' needs an estimator: pass estimators=\{{'weights': \.\.\.\}}; got {have}"
    with pytest.raises(KeyError, match=match):
        Attention(Dot(), weights=hard_site())(given.query, given.memory, estimators=estimators)


# Robustness


@pytest.mark.parametrize("site", [None, hard_site(), bayesian_site()], ids=["soft", "hard", "bayesian"])
def test_a_nan_is_named_where_it_enters(site: Site | None) -> None:
    given = make_given()
    with pytest.raises(ValueError, match=r"attention scores of shape \(2, 3, 4\) has 4 value.*not finite"):
        query = given.query.clone()
        query[0, 1, 0] = float("nan")
        Attention(Dot(), weights=site)(query, given.memory, estimators={"weights": Mean()})


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["soft", "hard", "bayesian"])
def test_what_stands_behind_padding_does_not_matter(kind: str, is_causal: bool, junk: float) -> None:
    site = {"soft": None, "hard": hard_site(), "bayesian": bayesian_site()}[kind]
    estimators = {"weights": ScoreFunction(2) if kind == "hard" else Pathwise()}
    attention = Attention(Bilinear(D, D), weights=site)
    results = []
    for extra in (0, 2):
        given = make_given(extra, junk=junk)
        memory = given.memory
        if is_causal:
            rows = torch.ones(T, S + extra, dtype=torch.bool).tril(1)
            memory = replace(memory, support=Dense(memory.support.mask & rows))
        query = given.query.clone().requires_grad_()
        output = attention(query, memory, estimators=estimators, seed=torch.tensor(7))
        total = output.context.square().sum() + output.expected_context.square().sum()
        for latent in output.latents:
            total = total + latent.kl.sum() + (0.0 if latent.draw.score is None else latent.draw.score.sum())
        grads = torch.autograd.grad(total, [query, *attention.parameters()], allow_unused=True)
        results.append([output.context, output.expected_context, *(grad for grad in grads if grad is not None)])
    for plain, padded in zip(*results, strict=True):
        assert torch.isfinite(padded).all()
        torch.testing.assert_close(padded, plain)


def test_padded_steps_reach_nobody() -> None:
    """An encoder of the target does not read them, and a random context does not pay for them."""
    given = make_given()
    network = InferenceNetwork(Bilinear(2 * D, D), Categorical(), target_encoder=BiLSTM(D, D))
    weights = Site("weights", prior=FromScores(Categorical()), posterior=network)
    attention = Attention(Dot(), weights=weights, context=context_site())
    results = []
    for extra in (0, 2):
        query, target = (nn.functional.pad(x, (0, 0, 0, extra), value=9.0) for x in (given.query, given.target))
        mask = nn.functional.pad(torch.ones(B, T, dtype=torch.bool), (0, extra), value=False)
        output = attention(
            query,
            given.memory,
            estimators={"weights": Mean(), "context": Pathwise()},
            target=target,
            mask=mask,
            seed=torch.tensor(1),
        )
        assert not output.latents[1].kl[:, T:].any()
        results.append((output.context[:, :, :T], *(latent.kl[:, :T] for latent in output.latents)))
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain)


def test_nothing_to_attend_to() -> None:
    """A row without positions reads zeros, costs nothing and has finite gradients."""
    given = make_given()
    mask = given.memory.support.mask.expand(B, T, S).clone()
    mask[0, 1] = False
    memory = replace(given.memory, support=Dense(mask))
    for site, estimator in (
        (hard_site(), ScoreFunction(2)),
        (bayesian_site(), Pathwise(2)),
        (hard_site(), Enumerate()),
    ):
        attention = Attention(Bilinear(D, D), weights=site)
        output = attention(given.query, memory, estimators={"weights": estimator})
        assert not output.context[:, 0, 1].any()
        assert output.latents[0].kl[0, 1] == 0
        draw = output.latents[0].draw
        score = 0.0 if draw.log_posterior is None else draw.log_posterior[torch.isfinite(draw.log_posterior)].sum()
        (output.context.sum() + output.latents[0].kl.sum() + score).backward()
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in attention.parameters())


# The papers' rows


@EVERY_ROW
def test_row_has_a_finite_loss_and_gradients(row: Row) -> None:
    batch, model = make_batch(), Toy(row)
    evaluation = model(batch, row.estimators)
    terms = row.bound(evaluation, row.kl_weights)
    assert terms.loss.shape == (4,)
    terms.loss.sum().backward()
    site = model.attention.weights
    reads_target = site is not None and site.posterior is not None and "target" in site.posterior.needs
    for name, parameter in model.named_parameters():
        if name == "embed.weight" and not reads_target:
            assert parameter.grad is None, name
            continue
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


@EVERY_ROW
def test_row_predicts_without_a_target(row: Row) -> None:
    """With the plug-in value the context is the expected one, which is what decoding starts from."""
    batch, model = make_batch(), Toy(row)
    output = model.attend(batch, dict.fromkeys(row.estimators, Mean()), use_target=False)
    assert torch.isfinite(output.context).all()
    torch.testing.assert_close(output.context[0], output.expected_context)


@EVERY_ROW
def test_row_overfits(row: Row) -> None:
    """From a loss near chance to almost none on four examples, in a few dozen steps."""
    torch.manual_seed(1)
    batch, model = make_batch(), Toy(row)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    history = []
    for _ in range(40):
        optimizer.zero_grad()
        evaluation = model(batch, row.estimators)
        row.bound(evaluation, row.kl_weights).loss.sum().backward()
        optimizer.step()
        history.append(Elbo()(evaluation).log_lik.sum().item() / int(batch.mask.sum()))
    assert sum(history[:2]) / 2 < -0.8
    assert sum(history[-5:]) / 5 > -0.35


def test_soft_rows_agree() -> None:
    """Elbo with Mean, Marginal with Mean and attention without a site are the same loss."""
    batch, row = make_batch(), ROWS["soft"]
    model = Toy(row)
    plain = Toy(Row(estimators={}))
    plain.load_state_dict(model.state_dict())
    loss = Elbo()(plain(batch, {})).loss
    torch.testing.assert_close(Elbo()(model(batch, row.estimators)).loss, loss)
    torch.testing.assert_close(ROWS["marginal"].bound(model(batch, row.estimators)).loss, loss)


def test_the_order_of_the_bounds() -> None:
    """Marginal >= ELBO of any q, and >= the hard bound q = p, for the same model."""
    batch = make_batch()
    variational = Toy(ROWS["variational-enum"])
    hard = Toy(ROWS["hard-enum"])
    hard.load_state_dict({k: v for k, v in variational.state_dict().items() if "posterior" not in k})
    estimators = {"weights": Enumerate()}
    marginal = ROWS["marginal"].bound(hard(batch, estimators)).bound
    assert bool((marginal >= Elbo()(hard(batch, estimators)).bound).all())
    assert bool((marginal >= Elbo()(variational(batch, estimators)).bound).all())


def test_state_dict_of_an_attention_with_sites() -> None:
    attention = Attention(Bilinear(D, D), weights=bayesian_site(), context=context_site())
    copy = Attention(Bilinear(D, D), weights=bayesian_site(), context=context_site())
    copy.load_state_dict(attention.state_dict())
    given = make_given()
    estimators = {"weights": Pathwise(), "context": Pathwise()}
    first, second = (
        m(given.query, given.memory, estimators=estimators, seed=torch.tensor(1)) for m in (attention, copy)
    )
    assert torch.equal(first.context, second.context)
    assert isinstance(attention.weights, nn.Module)


def test_the_expected_context_of_two_sites_sees_neither_draw_nor_target() -> None:
    torch.manual_seed(0)
    weights = pa.Site(
        "w",
        prior=pa.FromScores(pa.Categorical()),
        posterior=pa.InferenceNetwork(Bilinear(4, 4), pa.Categorical()),
    )
    context = pa.Site("c", prior=pa.StandardNormal(4), posterior=pa.FromContext(4))
    attention = pa.Attention(Bilinear(4, 4), weights=weights, context=context)
    query, keys = torch.randn(1, 2, 4), torch.randn(1, 5, 4)
    memory = pa.Memory(keys, keys, pa.Dense())
    estimators = {"w": pa.ScoreFunction(1, pa.NoBaseline()), "c": pa.Pathwise()}
    for target in (torch.zeros(1, 2, 4), 5.0 * torch.randn(1, 2, 4), None):
        found = attention(query, memory, estimators=estimators, target=target)
        torch.testing.assert_close(
            found.expected_context, found.weights @ keys
        )  # the mean of FromContext is its context


@pytest.mark.parametrize("estimator", [pa.Mean(), pa.Pathwise()])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_prior_over_keys_predicts_for_every_query(estimator: pa.Mean | pa.Pathwise, is_causal: bool) -> None:
    posterior = pa.InferenceNetwork(Bilinear(4, 4), pa.Weibull())
    site = pa.Site("w", prior=pa.KeyPrior(4, pa.GammaPrior()), posterior=posterior)
    attention = pa.Attention(Bilinear(4, 4), weights=site)
    query, keys = torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    support = pa.Dense(torch.ones(5, 5, dtype=torch.bool).tril()) if is_causal else pa.Dense()
    found = attention(query, pa.Memory(keys, keys, support), estimators={"w": estimator})
    assert found.context.shape == (1, 2, 5, 4) and found.expected_context.shape == (2, 5, 4)
    value = found.latents[0].draw.value
    assert value is not None and value.shape == (1, 2, 5, 5)
    torch.testing.assert_close(value.sum(dim=-1), torch.ones(1, 2, 5))
    if isinstance(estimator, pa.Pathwise):  # one draw for each query, not one for all
        assert not torch.allclose(value[0, :, 3], value[0, :, 4])
