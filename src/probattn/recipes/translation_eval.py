"""Evaluation of a translation model: likelihoods, BLEU, entropies, alignment error rates."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from probattn.core import (
    Bound,
    Elbo,
    Enumerate,
    Estimator,
    ImportanceWeighted,
    Marginal,
    Mean,
    NoBaseline,
    Pathwise,
    ScoreFunction,
)
from probattn.distributions import Categorical
from probattn.metrics import alignment_error_rate, elbo_ppl, exact_ppl, iw_ppl
from probattn.metrics.bleu import bleu, chrf
from probattn.models.seq2seq import Seq2Seq
from probattn.nn import FromScores, InferenceNetwork
from probattn.recipes.translation_alignment import Aligner, alignment_weights, available_aligners, word_links
from probattn.recipes.translation_data import Corpus
from probattn.recipes.translation_run import batches_of, run
from probattn.recipes.translation_search import DecodingSettings, search

NUM_IMPORTANCE_SAMPLES = 20


@dataclass(frozen=True)
class Tally:
    """Sums over a split."""

    nats: float = 0.0
    kl: float = 0.0
    tokens: int = 0


@torch.no_grad()
def likelihood(
    model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator, bound: Bound, use_posterior: bool
) -> Tally:
    """Sum of a bound over a split.

    Without the posterior it is the log-likelihood of the predictive distribution: exact for `Marginal` with
    `Enumerate`, and without a KL, which regularises training but is no part of a prediction.
    """
    nats = kl = 0.0
    tokens = 0
    for batch in batches_of(corpus.encoded[split], corpus.subwords):
        terms = bound(run(model, batch, estimator, bound=None, use_posterior=use_posterior))
        nats += float((terms.bound if use_posterior else terms.log_lik).sum())
        kl += sum(float(value.sum()) for value in terms.kl.values())
        tokens += int(batch.target_mask.sum())
    return Tally(nats=nats, kl=kl, tokens=tokens)


def mean_entropy(model: Seq2Seq, corpus: Corpus, split: str, *, aligner: Aligner) -> float:
    """Mean entropy of the expected weights over target words, in nats (Deng et al., Table 3)."""
    total = count = 0.0
    for batch in batches_of(corpus.encoded[split], corpus.subwords):
        weights = alignment_weights(model, batch, aligner)
        entropy = -torch.xlogy(weights, weights).sum(dim=-1)
        total += float(entropy[batch.target_mask].sum())
        count += float(batch.target_mask.sum())
    return total / count


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
    train_estimator: Estimator | None = None,
    split: str = "test",
) -> Mapping[str, float | str]:
    """All metrics of a trained model on a split.

    Args:
        model: In evaluation mode.
        corpus: Text and subwords.
        estimator: Of the predictive distribution.
        decoding: Search settings.
        train_estimator: For the ELBO column; None leaves it out.
        split: Which part of the corpus.
    """
    metrics: dict[str, float | str] = dict(predictive_metrics(model, corpus, split, estimator=estimator))
    metrics["entropy"] = mean_entropy(model, corpus, split, aligner=Aligner.PRIOR)
    if train_estimator is not None:
        elbo = likelihood(model, corpus, split, estimator=train_estimator, bound=Elbo(), use_posterior=True)
        metrics |= {"elbo_ppl": elbo_ppl(elbo.nats, elbo.tokens), "kl_per_token": elbo.kl / elbo.tokens}
    aligners = available_aligners(model)
    if Aligner.POSTERIOR in aligners:
        metrics["posterior_entropy"] = mean_entropy(model, corpus, split, aligner=Aligner.POSTERIOR)
        weighted = importance_weighted_ppl(model, corpus, split)
        metrics |= {} if weighted is None else {"iw_ppl": weighted}
    if corpus.gold is not None and split == "test":
        names = {Aligner.PRIOR: "aer", Aligner.POSTERIOR: "posterior_aer", Aligner.EXACT: "exact_aer"}
        metrics |= {names[aligner]: aer(model, corpus, aligner=aligner) for aligner in aligners}
    return {**metrics, **translation_metrics(model, corpus, split, estimator=estimator, decoding=decoding)}


def predictive_metrics(model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator) -> dict[str, float]:
    """Log-likelihood of the predictive distribution, and how long it takes."""
    started = time.perf_counter()
    tally = likelihood(
        model, corpus, split, estimator=estimator, bound=predictive_bound(estimator), use_posterior=False
    )
    return {
        "nll_per_token": -tally.nats / tally.tokens,
        "ppl": exact_ppl(tally.nats, tally.tokens),
        "tokens": tally.tokens,
        "likelihood_seconds": time.perf_counter() - started,
    }


def importance_weighted_ppl(model: Seq2Seq, corpus: Corpus, split: str) -> float | None:
    """Perplexity from draws of the inference network, an upper bound in expectation that falls with their number.

    None where q and p are of different kinds, so that no ratio of their densities exists (Gumbel-softmax).
    """
    prior, posterior = model.weights.prior, model.weights.posterior
    if not (isinstance(prior, FromScores) and isinstance(posterior, InferenceNetwork)):
        return None
    if type(prior.family) is not type(posterior.family):
        return None
    is_hard = isinstance(prior.family, Categorical)
    count = NUM_IMPORTANCE_SAMPLES
    estimator: Estimator = ScoreFunction(count, NoBaseline()) if is_hard else Pathwise(count)
    tally = likelihood(model, corpus, split, estimator=estimator, bound=ImportanceWeighted(), use_posterior=True)
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


def predictive_bound(estimator: Estimator) -> Bound:
    """Log-likelihood of a mixture over particles: exact if enumerated, a lower bound in expectation for samples."""
    return ImportanceWeighted() if isinstance(estimator, Pathwise) else Marginal()


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
    if kind == "kmax" and number.isdigit() and int(number) > 0:
        return Enumerate(int(number))
    raise ValueError(f"expected soft, exact or kmax:K (e.g. kmax:5), got '{name}'")
