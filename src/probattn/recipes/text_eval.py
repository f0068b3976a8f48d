"""Evaluation of text models: reconstruction, bounds, what the latent carries, and text from scratch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from probattn.core import Elbo, Estimator, Evaluation, ImportanceWeighted, Mean, Pathwise, WithoutPrior
from probattn.data.text import EncodedSentences, TextBatch
from probattn.distributions import DiagonalGaussian
from probattn.metrics import (
    active_units,
    corpus_distinct,
    corpus_unigram_entropy,
    davam_ppl,
    elbo_ppl,
    iw_ppl,
    latent_mutual_information,
    repetition,
)
from probattn.models import SentenceVae
from probattn.nn import Codebook, SoftCodebook
from probattn.recipes.text_codes import code_metrics, length_nats, memory_iw_ppl, spaced_sentences
from probattn.recipes.text_data import Split, TextCorpus
from probattn.recipes.text_drawing import draws_words
from probattn.recipes.text_network import TextModel
from probattn.recipes.text_settings import SITE, TextSettings
from probattn.training.randomness import EVALUATION, seeded

if TYPE_CHECKING:
    from probattn.recipes.text_writer import TextWriter

_ONE_DRAW = Pathwise()
_ROWS_OF_DRAWS = 400
"""Rows, draws of one sentence counted, that are worked on at once for importance weights."""


@dataclass(frozen=True)
class Tally:
    """Sums over a text, in nats."""

    log_lik: float
    kl: float
    kl_over_positions: float
    tokens: int
    sentences: int


def batches_of(text: EncodedSentences, *, max_sentences: int = 64) -> Iterator[TextBatch]:
    """All sentences, sorted by length."""
    order = sorted(range(len(text)), key=lambda row: len(text.sentences[row]))
    for start in range(0, len(order), max_sentences):
        yield text.batch(order[start : start + max_sentences])


def first_sentences(text: EncodedSentences, count: int) -> EncodedSentences:
    """The first so many sentences."""
    return EncodedSentences(text.sentences[:count], text.name)


@torch.no_grad()
def tally(model: TextModel, text: EncodedSentences, estimator: Estimator = _ONE_DRAW) -> Tally:
    """Log-likelihood of the reconstruction by one draw, and the KL; positions are those of the latent, not words."""
    log_lik = kl = averaged = 0.0
    tokens = 0
    for batch in batches_of(text):
        moved = batch.to(model.device)
        read = model.encode(moved.words, moved.words_mask, {SITE: estimator})
        terms = Elbo()(
            model.decode(read, target_in=moved.target_in, target_out=moved.target_out, target_mask=moved.target_mask)
        )
        log_lik += float(terms.log_lik.sum())
        tokens += int(moved.target_mask.sum())
        for value in terms.kl.values():
            kl += float(value.sum())
            averaged += float((value / read.mask.sum(dim=-1)).sum())
    return Tally(log_lik, kl, averaged, tokens, len(text))


def evaluate_model(writer: "TextWriter", corpus: TextCorpus, *, split: Split = "test") -> dict[str, float]:
    """All metrics of a trained model on a split; draws are the same in every call."""
    settings, model = writer.settings, writer.model
    text = corpus.encoded[split]
    with seeded(EVALUATION, 0):
        found = tally(model, text)
        metrics = {
            "reconstruction": -found.log_lik / found.sentences,
            "elbo_ppl": elbo_ppl(found.log_lik - found.kl, found.tokens),
        }
        few = spaced_sentences(text, settings.sampling.num_weighted)
        metrics |= {
            "counted_ppl": _counted_ppl(writer, text, found),
            "probed_ppl": _counted_ppl(writer, few, tally(model, few)),  # to compare `iw_ppl` with
        }
        if settings.latent is not None:
            metrics |= {
                "kl": found.kl / found.sentences,
                "davam_ppl": davam_ppl(found.log_lik, found.kl_over_positions, found.tokens),
                "reconstruction_ppl": elbo_ppl(found.log_lik, found.tokens),
            }
            metrics |= _latent_metrics(writer, text, settings)
        for length in settings.sampling.lengths:
            metrics |= {f"{name}_{length}": value for name, value in _scratch_metrics(writer, length).items()}
            if not draws_words(settings.latent):
                drawn = _scratch_metrics(writer, length, word_temperature=1.0)
                metrics |= {f"{name}_drawn_{length}": value for name, value in drawn.items()}
    return metrics


def _counted_ppl(writer: "TextWriter", text: EncodedSentences, found: Tally) -> float:
    """The bound that pays for the length of a memory too."""
    latent = writer.settings.latent
    has_length = latent is not None and latent.positions is None
    nats = length_nats(writer.lengths, text) if has_length else 0.0
    return elbo_ppl(found.log_lik - found.kl - nats, found.tokens)


@torch.no_grad()
def code_posteriors(model: TextModel, text: EncodedSentences, *, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and log-variance (N, Z) of the latents of up to `limit` sentences, and the place (N) of each.

    Of a memory `limit` of its positions, from short and long sentences.
    """
    if model.latent is None:
        raise ValueError("this network has no latent")
    means, log_variances, places = [], [], []
    for batch in batches_of(first_sentences(text, limit)):
        moved = batch.to(model.device)
        read = model.encode(moved.words, moved.words_mask, {SITE: Mean()})
        if read.encoding is None:
            raise ValueError("this network has no encoder")
        posterior = model.latent.posterior(read.encoding, mask=read.mask)
        if not isinstance(posterior, DiagonalGaussian):
            raise ValueError(f"active units are counted for Gaussians, this is a {type(posterior).__name__}")
        means.append(posterior.mean[read.mask])
        log_variances.append(posterior.log_variance[read.mask])
        places.append(read.mask.nonzero()[:, 1])
    mean = torch.cat(means)
    chosen = torch.linspace(0, len(mean) - 1, min(limit, len(mean))).round().long()
    return mean[chosen], torch.cat(log_variances)[chosen], torch.cat(places)[chosen]


def information_metrics(mean: Tensor, log_variance: Tensor, place: Tensor) -> dict[str, float]:
    """Active units, and the mutual information of sentences and latents in nats, among latents of the same place.

    A prior knows the place of a latent, so what the latent says of it is no information about the sentence. Where each
    sentence has one latent, these are the usual numbers.

    Args:
        mean: (N, Z) of the posteriors.
        log_variance: (N, Z).
        place: (N) whole numbers.
    """
    centred, nats = torch.empty_like(mean), 0.0
    for number in place.unique():
        here = place == number
        centred[here] = mean[here] - mean[here].mean(dim=0)
        if int(here.sum()) > 1:
            nats += latent_mutual_information(mean[here], log_variance[here]) * int(here.sum())
    return {"active_units": float(active_units(centred)), "mutual_information": nats / len(mean)}


@torch.no_grad()
def importance_weighted(model: SentenceVae, text: EncodedSentences, *, draws: int) -> float:
    """Perplexity by `draws` importance-weighted draws of each sentence's latent."""
    nats, tokens = 0.0, 0
    for row in range(len(text)):
        moved = text.batch([row]).to(model.device)
        parts = []
        for start in range(0, draws, _ROWS_OF_DRAWS):
            count = min(_ROWS_OF_DRAWS, draws - start)
            bound = ImportanceWeighted()(_evaluated(model, moved, Pathwise(count))).bound
            parts.append(bound + math.log(count))
        nats += float(torch.stack(parts).logsumexp(dim=0) - math.log(draws))
        tokens += int(moved.target_mask.sum())
    return iw_ppl(nats, tokens)


def _latent_metrics(writer: "TextWriter", text: EncodedSentences, settings: TextSettings) -> dict[str, float]:
    model = writer.model
    if model.latent is None or settings.latent is None:
        return {}
    posterior = model.latent.site.posterior
    if isinstance(posterior, Codebook):
        return {"code_perplexity": posterior.perplexity, "codes_used": float(codes_used(model, text, posterior))}
    if isinstance(posterior, SoftCodebook):
        counts = writer.lengths if settings.latent.positions is None else None
        return code_metrics(model, text, settings.sampling, counts=counts)
    # a single sentence has nothing to vary against
    carried = information_metrics(*code_posteriors(model, text, limit=1000)) if len(text) > 1 else {}
    if isinstance(model, SentenceVae):
        few = spaced_sentences(text, settings.sampling.num_weighted)
        weighted = importance_weighted(model, few, draws=settings.sampling.num_importance)
    else:
        counts = writer.lengths if settings.latent.positions is None else None
        weighted = memory_iw_ppl(model, text, settings.sampling, counts=counts)
    return {**carried, "iw_ppl": weighted}


@torch.no_grad()
def codes_used(model: TextModel, text: EncodedSentences, book: Codebook) -> int:
    """How many codes of the book are the nearest one of some position of a text."""
    used = torch.zeros(len(book.codes), dtype=torch.bool)
    for batch in batches_of(text):
        moved = batch.to(model.device)
        read = model.encode(moved.words, moved.words_mask, {SITE: WithoutPrior(Mean())})
        if read.encoding is not None:
            used[torch.cdist(read.encoding[read.mask], book.codes).argmin(dim=-1).cpu()] = True
    return int(used.sum())


def _scratch_metrics(writer: "TextWriter", length: int, *, word_temperature: float | None = None) -> dict[str, float]:
    """Diversity and repetition of sentences from the prior, all of so many words."""
    sampling = writer.settings.sampling
    drawn = writer.sample(
        sampling.num_samples,
        length=length,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        word_temperature=word_temperature,
        min_words=length,
    )
    texts = [one.text for one in drawn]
    return {
        "entropy": corpus_unigram_entropy(texts),
        "dist1": corpus_distinct(texts, 1),
        "dist2": corpus_distinct(texts, 2),
        "repetition": repetition(texts, 2),
    }


def _evaluated(model: TextModel, batch: TextBatch, estimator: Estimator) -> Evaluation:
    evaluation: Evaluation = model(
        batch.words,
        batch.words_mask,
        target_in=batch.target_in,
        target_out=batch.target_out,
        target_mask=batch.target_mask,
        estimators={SITE: estimator},
    )
    return evaluation
