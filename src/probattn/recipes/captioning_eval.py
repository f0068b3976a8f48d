"""Evaluation of a captioner: scores of its captions, perplexities, diversity, and where its attention points."""

from collections.abc import Sequence

import torch

from probattn.core import Elbo, Mean
from probattn.metrics import distinct, elbo_ppl, predictive_ppl, unigram_entropy, weights_entropy
from probattn.metrics.captions import (
    attention_hits,
    caption_bleu,
    caption_meteor,
    caption_scores,
    has_caption_scores,
)
from probattn.models.captioner import Captioner
from probattn.recipes.captioning_data import CaptionCorpus, CaptionSplit, Split, references_of
from probattn.recipes.captioning_search import Caption, find_captions, sample_captions
from probattn.recipes.captioning_settings import SITE, CaptioningSettings
from probattn.recipes.captioning_task import log_likelihood, run
from probattn.training.randomness import EVALUATION, seeded


def evaluate_model(
    model: Captioner, corpus: CaptionCorpus, settings: CaptioningSettings, *, split: Split = "test"
) -> dict[str, float]:
    """All metrics of a trained model on a split; draws are the same in every call.

    Args:
        model: In evaluation mode.
        corpus: Pictures and captions.
        settings: Of the row.
        split: Which part of the corpus.
    """
    part = corpus.splits[split]
    with seeded(EVALUATION, 0):
        metrics = caption_metrics(model, corpus, settings, part)
        metrics |= likelihood_metrics(model, part, settings)
        metrics |= diversity_metrics(model, corpus, settings, part)
        metrics |= attention_metrics(model, part)
    return metrics


def caption_metrics(
    model: Captioner, corpus: CaptionCorpus, settings: CaptioningSettings, part: CaptionSplit
) -> dict[str, float]:
    """BLEU-1 to 4 of greedy captions (as in the paper) and of beam search; CIDEr, ROUGE-L where installed; METEOR."""
    found: dict[str, float] = {}
    for kind, size in (("greedy", 1), ("beam", settings.decoding.beam_size)):
        captions = _first(
            find_captions(
                model,
                part.features,
                part.rows,
                tokenizer=corpus.tokenizer,
                decoding=settings.decoding,
                beam_size=size,
            )
        )
        texts, references = [one.text for one in captions], references_of(part)
        found |= {f"{kind}_bleu{n}": one.score for n, one in caption_bleu(texts, references).items()}
        if has_caption_scores():
            found |= {f"{kind}_{name}": score for name, score in caption_scores(texts, references).items()}
        found[f"{kind}_words"] = sum(len(one.words) for one in captions) / len(captions)
        found[f"{kind}_different"] = len(set(texts)) / len(texts)
        if kind == "greedy":
            found |= _entropy(captions)
            if settings.decoding.has_meteor:
                found["greedy_meteor"] = caption_meteor(texts, references)
    return found


def likelihood_metrics(model: Captioner, part: CaptionSplit, settings: CaptioningSettings) -> dict[str, float]:
    """Perplexities of reference captions: with plug-in weights; with draws; and by the ELBO, every KL at weight one."""
    nats, words = log_likelihood(model, part, Mean())
    metrics = {"ppl": predictive_ppl(nats, words)}
    if isinstance(settings.estimator, Mean):
        return metrics
    drawn, kl = 0.0, 0.0
    with torch.no_grad():
        for rows in part.encoded.batches():
            terms = Elbo()(run(model, part.encoded.batch(rows), settings.estimator))
            drawn += float(terms.log_lik.sum())
            kl += float(terms.kl[SITE].sum())
    metrics["drawn_ppl"] = predictive_ppl(drawn, words)
    if settings.has_kl:
        metrics |= {"kl_per_word": kl / words, "elbo_ppl": elbo_ppl(drawn - kl, words)}
    return metrics


def diversity_metrics(
    model: Captioner, corpus: CaptionCorpus, settings: CaptioningSettings, part: CaptionSplit
) -> dict[str, float]:
    """Entropy and distinct words of sampled captions, and their BLEU-4."""
    samples = [
        [one.text for one in of_picture]
        for of_picture in sample_captions(
            model,
            part.features,
            part.rows,
            tokenizer=corpus.tokenizer,
            decoding=settings.decoding,
            estimator=settings.estimator,
        )
    ]
    return {
        "sample_bleu4": caption_bleu([of_picture[0] for of_picture in samples], references_of(part))[4].score,
        "entropy": unigram_entropy(samples),
        "dist1": distinct(samples, 1),
        "dist2": distinct(samples, 2),
    }


@torch.no_grad()
def attention_metrics(model: Captioner, part: CaptionSplit) -> dict[str, float]:
    """Weight on the right regions, and share of words whose largest weight is on one, along the reference captions."""
    if part.gold is None:
        return {}
    mass, hits, words = 0.0, 0, 0
    for rows in part.encoded.batches():
        value = run(model, part.encoded.batch(rows), Mean()).latents[0].draw.value
        if value is None:
            raise ValueError("plug-in weights are expected of the site")
        for row, weights in zip(rows, value[0], strict=True):
            found = attention_hits(weights, part.gold[row])
            mass, hits, words = mass + found[0], hits + found[1], words + found[2]
    return {"attention_mass": mass / words, "attention_hits": hits / words}


def _first(found: Sequence[Sequence[Caption]]) -> list[Caption]:
    return [of_picture[0] for of_picture in found]


def _entropy(captions: Sequence[Caption]) -> dict[str, float]:
    """Of the weights, mean over words; negative weights, as unconstrained ones may be, have none."""
    weights = [one.weights for one in captions if len(one.weights)]
    if not weights or any(bool((one < 0).any()) for one in weights):
        return {}
    total = sum(float(weights_entropy(one)) * len(one) for one in weights)
    return {"attention_entropy": total / sum(len(one) for one in weights)}
