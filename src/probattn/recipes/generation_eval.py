"""Evaluation of a generating model: quality, diversity, bounds, and what its latent variables carry."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from probattn.core import Elbo, Estimator, Evaluation
from probattn.data.batches import EncodedText, TranslationBatch
from probattn.data.subwords import Subwords
from probattn.metrics import (
    Bypass,
    bypass,
    distinct,
    distinct_of_joined,
    elbo_ppl,
    iw_ppl,
    latent_mutual_information,
    predictive_ppl,
    self_bleu,
    unigram_entropy,
)
from probattn.metrics.bleu import bleu_by_order, mean_bleu_by_order
from probattn.models import Ved
from probattn.recipes.generation_run import at_mean, run
from probattn.recipes.generation_search import Generated, generate
from probattn.recipes.generation_settings import GenerationSettings
from probattn.recipes.generation_units import code_posteriors, count_active_units
from probattn.recipes.translation_data import Corpus
from probattn.recipes.translation_run import batches_of
from probattn.training.randomness import EVALUATION, seeded

NUM_IMPORTANCE_SAMPLES = 20
NUM_PROBED = 500
"""Test pairs that importance weights and the bypass are measured on, evenly over the split, and distinct sources, the
first ones, for mutual information."""


@dataclass(frozen=True)
class Tally:
    """Sums over a split, in nats."""

    log_lik: float
    kl: Mapping[str, float]
    tokens: int
    examples: int

    @property
    def bound(self) -> float:
        """The ELBO, every KL at weight one."""
        return self.log_lik - sum(self.kl.values())


@torch.no_grad()
def tally(model: Ved, text: EncodedText, words: Subwords, estimators: Mapping[str, Estimator]) -> Tally:
    """Log-likelihood and KLs of a text."""
    log_lik, tokens, kl = 0.0, 0, dict.fromkeys(model.sites, 0.0)
    for batch in batches_of(text, words):
        terms = Elbo()(run(model, batch, estimators))
        log_lik += float(terms.log_lik.sum())
        tokens += int(batch.target_mask.sum())
        for name, value in terms.kl.items():
            kl[name] += float(value.sum())
    return Tally(log_lik, kl, tokens, len(text))


def evaluate_model(
    model: Ved, corpus: Corpus, settings: GenerationSettings, *, split: str = "test"
) -> dict[str, float]:
    """All metrics of a trained model on a split; draws are the same in every call.

    Args:
        model: In evaluation mode.
        corpus: Text and words.
        settings: Of the row.
        split: Which part of the corpus.
    """
    with seeded(EVALUATION, 0):
        metrics = text_metrics(model, corpus, settings, split=split, max_sources=settings.sampling.max_sources)
        metrics |= likelihood_metrics(model, corpus, settings, split=split)
        if settings.stochastic_sites:
            metrics |= latent_metrics(model, corpus, settings, split=split)
    return metrics


def text_metrics(
    model: Ved, corpus: Corpus, settings: GenerationSettings, *, split: str, max_sources: int | None
) -> dict[str, float]:
    """BLEU-1 to 4 at the mean ("map_") and of samples ("sample_"), with the samples' diversity (Tables 2 and 4)."""
    source = corpus.encoded[split].source[:max_sources]
    references = corpus.texts[split].target[:max_sources]
    sampling = settings.sampling
    text_of = partial(
        generate, model, corpus.subwords, source, beam_size=sampling.beam_size, max_length=sampling.max_length
    )
    best = text_of(estimators=at_mean(model))
    found = {f"map_bleu{n}": one.score for n, one in bleu_by_order(_first(best), references).items()}
    found["map_words"] = _mean_words([[text] for text in _first(best)])
    if not settings.stochastic_sites:
        return found
    drawn = text_of(estimators=settings.estimators, num_samples=sampling.num_samples)
    samples = [[one.text for one in of_source] for of_source in drawn]
    found |= {f"sample_bleu{n}": one.score for n, one in mean_bleu_by_order(samples, references).items()}
    return found | {
        "entropy": unigram_entropy(samples),
        "dist1": distinct(samples, 1),
        "dist2": distinct(samples, 2),
        "joined_dist2": distinct_of_joined(samples, 2),
        "self_bleu": self_bleu(samples).score,
        "sample_words": _mean_words(samples),
    }


def likelihood_metrics(model: Ved, corpus: Corpus, settings: GenerationSettings, *, split: str) -> dict[str, float]:
    """Perplexities of the reference: with every site at its mean, by the ELBO, and importance-weighted."""
    text, words = corpus.encoded[split], corpus.subwords
    plain = tally(model, text, words, at_mean(model))
    metrics = {"map_ppl": predictive_ppl(plain.log_lik, plain.tokens)}
    if not settings.stochastic_sites:
        return metrics
    drawn = tally(model, text, words, settings.estimators)
    metrics |= {
        "elbo_ppl": elbo_ppl(drawn.bound, drawn.tokens),
        "reconstruction_nll": -drawn.log_lik / drawn.tokens,
        **{
            f"kl_{name}": value / drawn.examples
            for name, value in drawn.kl.items()
            if name in settings.stochastic_sites
        },
    }
    part = _probed(text)
    one = tally(model, part, words, settings.estimators)
    metrics["probed_elbo_ppl"] = elbo_ppl(one.bound, one.tokens)
    metrics["probed_iw_ppl"] = _importance_weighted_ppl(model, part, words, settings.estimators)
    return metrics


def _probed(text: EncodedText) -> EncodedText:
    """Pairs from all over a text: neighbours in a file are alike."""
    count = min(NUM_PROBED, len(text.source))
    rows = [number * len(text.source) // count for number in range(count)]
    source, target = (tuple(side[row] for row in rows) for side in (text.source, text.target))
    return EncodedText(source, target, text.name)


@torch.no_grad()
def latent_metrics(model: Ved, corpus: Corpus, settings: GenerationSettings, *, split: str) -> dict[str, float]:
    """What latents carry: active units, the code's mutual information, how much predictions change without the code."""
    if "code" not in settings.stochastic_sites:
        return {}
    text = corpus.encoded[split]
    part = _probed(text)
    changed = sum((_bypass(model, batch) for batch in batches_of(part, corpus.subwords)), Bypass())
    counts = count_active_units(model, text, corpus.subwords, sites=settings.stochastic_sites)
    return {
        "active_units": float(counts["code"]),
        **({"active_attention": float(counts["attention"])} if "attention" in counts else {}),
        "code_information": latent_mutual_information(*code_posteriors(model, _distinct(text), corpus.subwords)),
        "bypass_divergence": changed.divergence,
        "bypass_nll_rise": changed.nll_rise,
    }


def _distinct(text: EncodedText) -> EncodedText:
    """The first pairs with sources that differ: an example that is there twice cannot be told from itself."""
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    for source, target in zip(text.source, text.target, strict=True):
        first.setdefault(tuple(source), tuple(target))
    return EncodedText(tuple(first)[:NUM_PROBED], tuple(first.values())[:NUM_PROBED], text.name)


def _importance_weighted_ppl(
    model: Ved, text: EncodedText, words: Subwords, estimators: Mapping[str, Estimator]
) -> float:
    """Log-mean-exp over joint draws of the code and of all attention vectors of a sentence: whole trajectories."""
    nats, tokens = 0.0, 0
    with torch.no_grad():
        for batch in batches_of(text, words):
            draws = torch.stack(
                [_trajectory_log_weight(run(model, batch, estimators)) for _ in range(NUM_IMPORTANCE_SAMPLES)]
            )
            nats += float((draws.logsumexp(dim=0) - math.log(len(draws))).sum())
            tokens += int(batch.target_mask.sum())
    return iw_ppl(nats, tokens)


def _trajectory_log_weight(evaluation: Evaluation) -> Tensor:
    """(B) log p(y | z, a) + log p(z, a) - log q(z, a) of one draw of everything."""
    mask = evaluation.mask
    if mask is None:
        raise ValueError("trajectories need the mask of real words")
    total = evaluation.log_lik[0].masked_fill(~mask, 0.0).sum(dim=-1)
    for latent in evaluation.latents:
        draw = latent.draw
        if draw.log_prior is None or draw.log_posterior is None:
            continue  # at its mean: no random variable
        ratio = (draw.log_prior - draw.log_posterior)[0]
        total = total + (ratio if latent.unit == "example" else ratio.masked_fill(~mask, 0.0).sum(dim=-1))
    return total


def _bypass(model: Ved, batch: TranslationBatch) -> Bypass:
    """Predictions with the code at its posterior's mean against those with a code from the prior; attention at mean."""
    moved = batch.to(model.device)
    estimators = at_mean(model)
    source = model.encode(moved.source, moved.source_mask, estimators)
    if source.code is None:
        raise ValueError("this network has no code")
    swapped = replace(source, code=torch.randn_like(source.code))
    predictions = [
        model.log_probs(model.decode(one, moved.target_in, estimators=estimators)[0]) for one in (source, swapped)
    ]
    return bypass(*predictions, targets=moved.target_out, mask=moved.target_mask)


def _first(found: Sequence[Sequence[Generated]]) -> list[str]:
    return [texts[0].text if texts else "" for texts in found]


def _mean_words(samples: Sequence[Sequence[str]]) -> float:
    lengths = [len(text.split()) for texts in samples for text in texts]
    return sum(lengths) / max(1, len(lengths))
