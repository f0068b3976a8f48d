"""Metrics of a translation model against brute force, on networks with their first weights."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from probattn import Enumerate, Mean, NoBaseline, Pathwise, ScoreFunction
from probattn.core import Estimator
from probattn.data.batches import EncodedText
from probattn.distributions import GumbelSoftmax
from probattn.nn import InferenceNetwork
from probattn.recipes.results import RowResult
from probattn.recipes.translation import RECIPE
from probattn.recipes.translation_alignment import Aligner, alignment_weights, available_aligners
from probattn.recipes.translation_data import Corpus, load_corpus
from probattn.recipes.translation_eval import aer, evaluate_model, likelihood, mean_entropy, ppl_kind
from probattn.recipes.translation_pictures import alignment_examples
from probattn.recipes.translation_report import write_report
from probattn.recipes.translation_run import batches_of
from probattn.recipes.translation_settings import build_model
from probattn.recipes.translator import Translator
from tests.toy_language import SMALL, write_toy_language


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_toy_language(tmp_path_factory.mktemp("text"), size=80)


def untrained(row: str, files: tuple[Path, Path]) -> tuple[Translator, Corpus]:
    text = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1]}
    settings, _ = RECIPE.load(RECIPE.configs(row, None), {**text, **SMALL, "corpus.test_size": 6})
    corpus = load_corpus(settings.corpus)
    model = build_model(settings, corpus.subwords)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # so that alignments and words differ
    return Translator(model, corpus.subwords, settings=settings), corpus


def brute_force(translator: Translator, text: EncodedText, row: int) -> tuple[Tensor, Tensor]:
    """(T, S) prior over positions, and (T, S) log-probability of each word at each position, step by step."""
    model = translator.model
    batch = translator.subwords.to_output(text.batch([row]))
    priors, log_liks = [], []
    with torch.no_grad():
        encoded = model.encode(batch.source, batch.source_mask)
        state = model.start(encoded)
        for step in range(batch.target_out.shape[1]):
            words = model.readout.embedding(batch.target_in[:, step])
            state, scores, _ = model.advance(state, words, encoded)
            priors.append(torch.softmax(scores[0], dim=-1))
            per_position = model.readout.logits(
                model.readout.hidden(state.hidden, encoded.readout_values[0].unsqueeze(1))
            )
            log_liks.append(per_position.log_softmax(dim=-1)[:, 0, batch.target_out[0, step]])
    return torch.stack(priors), torch.stack(log_liks)


def test_exact_posterior_and_likelihoods_by_brute_force(files: tuple[Path, Path]) -> None:
    translator, corpus = untrained("marginal", files)
    text = corpus.encoded["test"]
    log_lik = {"exact": 0.0, "two": 0.0}
    for row in range(len(text)):
        prior, per_position = brute_force(translator, text, row)
        joint = prior.log() + per_position
        log_lik["exact"] += float(joint.logsumexp(dim=-1).sum())
        top = prior.topk(2, dim=-1)
        kept = top.values.log() - top.values.sum(dim=-1, keepdim=True).log() + per_position.gather(-1, top.indices)
        log_lik["two"] += float(kept.logsumexp(dim=-1).sum())
        source, target = corpus.texts["test"].source[row], corpus.texts["test"].target[row]
        exact = translator.align([source], [target], aligner="exact")[0].weights
        assert torch.allclose(exact, joint.softmax(dim=-1), atol=1e-5)
        assert not torch.allclose(exact, prior, atol=1e-2)
        assert torch.allclose(translator.align([source], [target], aligner="prior")[0].weights, prior, atol=1e-5)
        assert translator.score([source], [target])[0] == pytest.approx(float(joint.logsumexp(-1).sum()), abs=1e-3)
    for name, estimator in {"exact": Enumerate(), "two": Enumerate(2)}.items():
        tally = likelihood(translator.model, corpus, "test", estimator=estimator)
        assert tally.nats == pytest.approx(log_lik[name], rel=1e-4), name
    # padding changes nothing: all pairs together, of different lengths
    pairs = corpus.texts["test"]
    together = translator.align(pairs.source, pairs.target, aligner="exact")
    alone = [translator.align([s], [t], aligner="exact")[0] for s, t in zip(pairs.source, pairs.target, strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(one.weights, other.weights, atol=1e-5)


def test_entropy_and_error_rate_by_hand(files: tuple[Path, Path]) -> None:
    translator, corpus = untrained("variational-enum", files)
    total, count = 0.0, 0
    for batch in batches_of(corpus.encoded["test"], corpus.subwords, max_sentences=1):
        for weights in alignment_weights(translator.model, batch, Aligner.POSTERIOR)[0]:
            total -= sum(float(weight) * math.log(float(weight)) for weight in weights if weight > 0)
            count += 1
    found = mean_entropy(translator.model, corpus, "test", aligner=Aligner.POSTERIOR)
    assert found == pytest.approx(total / count, rel=1e-4)
    everything = translator.evaluate(corpus)
    assert everything["posterior_entropy"] == pytest.approx(found, rel=1e-6)
    exact = mean_entropy(translator.model, corpus, "test", aligner=Aligner.EXACT)
    assert everything["exact_entropy"] == pytest.approx(exact, rel=1e-6) and exact != pytest.approx(found, rel=1e-3)
    pairs = corpus.texts["test"]
    own = [one.links for one in translator.align(pairs.source, pairs.target, aligner="prior")]
    right = replace(corpus, gold=[(links, links) for links in own])
    assert aer(translator.model, right, aligner=Aligner.PRIOR) == 0.0
    wrong = replace(corpus, gold=[(frozenset({(99, 99)}), frozenset({(99, 99)})) for _ in own])
    assert aer(translator.model, wrong, aligner=Aligner.PRIOR) == 1.0


def test_draws_of_a_bayesian_row_mix_to_its_likelihood(files: tuple[Path, Path]) -> None:
    translator, corpus = untrained("bayesian-wc", files)
    pairs = corpus.texts["test"]
    again = [translator.score(pairs.source, pairs.target, estimator=Pathwise(2)) for _ in range(2)]
    assert again[0] == again[1]  # drawn, and the same each time
    plug_in = translator.score(pairs.source, pairs.target, estimator=Mean())
    torch.manual_seed(0)
    mixed = translator.score(pairs.source, pairs.target, estimator=Pathwise(200))
    assert torch.tensor(mixed).sub(torch.tensor(plug_in)).abs().max() < 0.5  # the weights vary by a tenth
    assert available_aligners(translator.model) == [Aligner.PRIOR]
    with pytest.raises(ValueError, match="cannot align by 'exact'; it can by prior"):
        translator.align(pairs.source, pairs.target, aligner="exact")


@pytest.mark.parametrize("row", ["variational-sample", "relaxed-dirichlet", "wake-sleep", "gumbel"])
def test_evaluation_is_the_same_every_time(row: str, files: tuple[Path, Path]) -> None:
    translator, corpus = untrained(row, files)
    before = torch.get_rng_state()
    first, second = (dict(translator.evaluate(corpus)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    for metrics in (first, second):
        for name in ("likelihood_seconds", "decoding_seconds"):
            metrics.pop(name)
    assert first == second
    assert "iw_ppl" in first
    if row in ("variational-sample", "wake-sleep", "gumbel"):  # enumerated, so truly a bound
        assert first["ppl"] <= first["elbo_ppl"]
    if row == "gumbel":  # the choice behind its draws is evaluated, and the model is as before
        assert isinstance(translator.model.weights.posterior, InferenceNetwork)
        assert isinstance(translator.model.weights.posterior.family, GumbelSoftmax)


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (Enumerate(), "exact"),
        (Enumerate(5), "5-max"),
        (Mean(), "plug-in"),
        (Pathwise(16), "16 draws"),
        (ScoreFunction(4, NoBaseline()), "4 draws"),
    ],
)
def test_kinds_of_perplexity(estimator: Estimator, kind: str) -> None:
    assert ppl_kind(estimator) == kind


def test_report_from_results(files: tuple[Path, Path], tmp_path: Path) -> None:
    results = []
    for row in ("soft", "variational-enum"):
        translator, corpus = untrained(row, files)
        gold = replace(corpus, gold=[(frozenset({(0, 0)}), frozenset({(0, 0)}))] * len(corpus.texts["test"]))
        metrics = evaluate_model(
            translator.model,
            gold,
            estimator=Enumerate(),
            decoding=translator.settings.decoding,
            train_estimator=Enumerate(),
        )
        examples = alignment_examples(translator, gold)
        for example in examples:
            assert set(example["weights"]) == {str(one) for one in available_aligners(translator.model)}
            for weights in example["weights"].values():
                assert len(weights) == len(example["target"]) and len(weights[0]) == len(example["source"])
                assert all(sum(line) == pytest.approx(1.0, abs=0.01) for line in weights)
        facts = {
            "corpus": "toy",
            "epochs": 1,
            "updates": 1,
            "signature": "s",
            "kl_reduction": "sum",
            "ppl_kind": "exact",
            "bound": "Elbo",
            "train_estimator": {"weights": "Mean()"},
            "test_estimator": "Enumerate()",
        }
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        curve, curves = [(1, 9.0), (2, 8.0)], {"entropy": [(1, 2.0), (2, 1.5)]}
        results.append(RowResult(row, "", 0, facts, numbers, curve=curve, curves=curves, examples=examples))
    text = write_report("translation", results, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Before and after the target is seen (variational-enum)" in page
    assert "Soft attention and a latent alignment (soft, variational-enum)" in page
    assert "The same sentences translated" in page and "Alignment error rate" in page
    assert "Entropy of the alignment while training" in page
    assert "| soft " in text and "ppl is" in text
