"""Evaluation of a translation model: likelihoods, BLEU, entropies, alignment error rates."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core import (
    Bound,
    Elbo,
    Enumerate,
    Estimator,
    Evaluation,
    ImportanceWeighted,
    Mean,
    NoBaseline,
    Pathwise,
    ScoreFunction,
)
from probattn.distributions import Categorical
from probattn.metrics import alignment_error_rate, elbo_ppl, iw_ppl, predictive_ppl
from probattn.metrics.bleu import bleu, chrf
from probattn.models.seq2seq import Seq2Seq
from probattn.nn import FromScores, InferenceNetwork
from probattn.recipes.translation_alignment import Aligner, alignment_weights, available_aligners, word_links
from probattn.recipes.translation_data import Corpus
from probattn.recipes.translation_run import batches_of, choosing, run
from probattn.recipes.translation_search import DecodingSettings, search
from probattn.training.randomness import EVALUATION, seeded

NUM_IMPORTANCE_SAMPLES = 20


@dataclass(frozen=True)
class Tally:
    """Sums over a split."""

    nats: float = 0.0
    kl: float = 0.0
    tokens: int = 0


@torch.no_grad()
def likelihood(model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator) -> Tally:
    """Log-likelihood of a split under the predictive distribution: see `predictive_log_lik`."""
    nats, tokens = 0.0, 0
    for batch in batches_of(corpus.encoded[split], corpus.subwords):
        nats += float(predictive_log_lik(run(model, batch, estimator, bound=None, use_posterior=False)).sum())
        tokens += int(batch.target_mask.sum())
    return Tally(nats=nats, tokens=tokens)


@torch.no_grad()
def lower_bound(model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator, bound: Bound) -> Tally:
    """A bound over a split, with draws of the posterior and every KL at weight one."""
    nats = kl = 0.0
    tokens = 0
    for batch in batches_of(corpus.encoded[split], corpus.subwords):
        terms = bound(run(model, batch, estimator, bound=None, use_posterior=True))
        nats += float(terms.bound.sum())
        kl += sum(float(value.sum()) for value in terms.kl.values())
        tokens += int(batch.target_mask.sum())
    return Tally(nats=nats, kl=kl, tokens=tokens)


def predictive_log_lik(evaluation: Evaluation) -> Tensor:
    """(B) log of the mixture over particles, word by word, as decoding mixes them.

    Exact where positions are enumerated, the plug-in value for `Mean`, a Monte Carlo estimate for samples.
    """
    log_weight = evaluation.latents[0].draw.log_weight
    mixed = torch.logsumexp(log_weight + evaluation.log_lik, dim=0)
    return mixed.masked_fill(~evaluation.mask, 0.0).sum(dim=-1) if evaluation.mask is not None else mixed.sum(dim=-1)


def ppl_kind(estimator: Estimator) -> str:
    """What a perplexity of the predictive distribution is, in a word or two."""
    if isinstance(estimator, Enumerate):
        return "exact" if estimator.top_k is None else f"{estimator.top_k}-max"
    if isinstance(estimator, Mean):
        return "plug-in"
    count = getattr(estimator, "num_samples", None)
    return "Monte Carlo" if count is None else f"{count} draws"


def mean_entropy(model: Seq2Seq, corpus: Corpus, split: str, *, aligner: Aligner) -> float:
    """Mean entropy of the expected weights over target words, in nats (Deng et al., Table 3)."""
    total = count = 0.0
    for batch in batches_of(corpus.encoded[split], corpus.subwords):
        weights = alignment_weights(model, batch, aligner)
        entropy = -torch.xlogy(weights, weights).sum(dim=-1)
        total += float(entropy[batch.target_mask].sum())
        count += float(batch.target_mask.sum())
    return total / count


def entropies_of(model: Seq2Seq, corpus: Corpus, split: str) -> dict[str, float]:
    """Mean entropies of the prior's weights, and of the inference network's where there is one."""
    found = {"entropy": mean_entropy(model, corpus, split, aligner=Aligner.PRIOR)}
    if Aligner.POSTERIOR in available_aligners(model):
        found["posterior_entropy"] = mean_entropy(model, corpus, split, aligner=Aligner.POSTERIOR)
    return found


def aer(model: Seq2Seq, corpus: Corpus, *, aligner: Aligner) -> float:
    """Alignment error rate on the test split, where gold links are known; a target subword links to one source word."""
    if corpus.gold is None:
        raise ValueError("this corpus has no gold alignments")
    text = corpus.encoded["test"]
    sentences = []
    for batch in batches_of(text, corpus.subwords):
        weights = alignment_weights(model, batch, aligner)
        for matrix, row in zip(weights, batch.index.tolist(), strict=True):
            predicted = word_links(matrix, corpus.subwords, text.source[row], text.target[row])
            sentences.append((predicted, *corpus.gold[row]))
    return alignment_error_rate(sentences)


def evaluate_model(
    model: Seq2Seq,
    corpus: Corpus,
    *,
    estimator: Estimator,
    decoding: DecodingSettings,
    train_estimator: Estimator,
    split: str = "test",
) -> Mapping[str, float | str]:
    """All metrics of a trained model on a split; draws are the same in every call.

    Args:
        model: In evaluation mode.
        corpus: Text and subwords.
        estimator: Of the predictive distribution.
        decoding: Search settings.
        train_estimator: For the ELBO, where q cannot be enumerated.
        split: Which part of the corpus.
    """
    with seeded(EVALUATION, 0):
        metrics: dict[str, float | str] = dict(predictive_metrics(model, corpus, split, estimator=estimator))
        metrics |= entropies_of(model, corpus, split)
        metrics |= elbo_metrics(model, corpus, split, train_estimator=train_estimator)
        aligners = available_aligners(model)
        if Aligner.EXACT in aligners:
            metrics["exact_entropy"] = mean_entropy(model, corpus, split, aligner=Aligner.EXACT)
        if Aligner.POSTERIOR in aligners:
            weighted = importance_weighted_ppl(model, corpus, split)
            metrics |= {} if weighted is None else {"iw_ppl": weighted}
        if corpus.gold is not None and split == "test":
            names = {Aligner.PRIOR: "aer", Aligner.POSTERIOR: "posterior_aer", Aligner.EXACT: "exact_aer"}
            metrics |= {names[aligner]: aer(model, corpus, aligner=aligner) for aligner in aligners}
        return {**metrics, **translation_metrics(model, corpus, split, estimator=estimator, decoding=decoding)}


def predictive_metrics(model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator) -> dict[str, float]:
    """Log-likelihood of the predictive distribution (`ppl_kind` says what it is), and how long it takes."""
    started = time.perf_counter()
    tally = likelihood(model, corpus, split, estimator=estimator)
    return {
        "nll_per_token": -tally.nats / tally.tokens,
        "ppl": predictive_ppl(tally.nats, tally.tokens),
        "tokens": tally.tokens,
        "likelihood_seconds": time.perf_counter() - started,
    }


def elbo_metrics(model: Seq2Seq, corpus: Corpus, split: str, *, train_estimator: Estimator) -> dict[str, float]:
    """Perplexity by the ELBO and the KL; exact over q where q is categorical.

    Gumbel-softmax is evaluated with the choice behind its relaxed draws: their own likelihood has no bound.
    """
    with choosing(model):
        posterior = model.weights.prior if model.weights.posterior is None else model.weights.posterior
        family = posterior.family if isinstance(posterior, FromScores | InferenceNetwork) else None
        is_enumerable = isinstance(family, Categorical) and not isinstance(train_estimator, Mean)
        estimator = Enumerate() if is_enumerable else train_estimator
        tally = lower_bound(model, corpus, split, estimator=estimator, bound=Elbo())
    return {"elbo_ppl": elbo_ppl(tally.nats, tally.tokens), "kl_per_token": tally.kl / tally.tokens}


def importance_weighted_ppl(model: Seq2Seq, corpus: Corpus, split: str) -> float | None:
    """Perplexity from draws of the inference network, an upper bound in expectation that falls with their number.

    None where q and p are of different kinds, so that no ratio of their densities exists.
    """
    with choosing(model):
        prior, posterior = model.weights.prior, model.weights.posterior
        if not (isinstance(prior, FromScores) and isinstance(posterior, InferenceNetwork)):
            return None
        if type(prior.family) is not type(posterior.family):
            return None
        is_hard = isinstance(prior.family, Categorical)
        count = NUM_IMPORTANCE_SAMPLES
        estimator: Estimator = ScoreFunction(count, NoBaseline()) if is_hard else Pathwise(count)
        tally = lower_bound(model, corpus, split, estimator=estimator, bound=ImportanceWeighted())
        return iw_ppl(tally.nats, tally.tokens)


def translation_metrics(
    model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator, decoding: DecodingSettings
) -> dict[str, float | str]:
    """BLEU and chrF of the best translations, and how long they take."""
    started = time.perf_counter()
    found = search(model, corpus.subwords, corpus.encoded[split].source, estimator=estimator, settings=decoding)
    seconds = time.perf_counter() - started
    translations = [best[0].text if best else "" for best in found]
    references = list(corpus.texts[split].target)
    quality, characters = bleu(translations, references), chrf(translations, references)
    return {
        "bleu": quality.score,
        "bleu_signature": quality.signature,
        "chrf": characters.score,
        "decoding_seconds": seconds,
    }


def estimator_by_name(name: str) -> Estimator:
    """How the next word is predicted, by its name on the command line.

    Args:
        name: "soft", "exact" or "kmax:K", e.g. "kmax:5".

    Raises:
        ValueError: If there is no such name.

    Example:
        >>> estimator_by_name("kmax:5")
        Enumerate(top_k=5, rest='renormalise')
    """
    if name == "soft":
        return Mean()
    if name == "exact":
        return Enumerate()
    kind, _, number = name.partition(":")
    if kind == "kmax" and number.isdecimal() and int(number) > 0:
        return Enumerate(int(number))
    raise ValueError(f"expected soft, exact or kmax:K (e.g. kmax:5), got '{name}'")
