"""A captioning row as the training engine sees it: batches, steps, validation."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from probattn.core import Bound, Elbo, Estimator, Evaluation, Mean, Terms
from probattn.core.checks import content_checks
from probattn.data.buckets import TokenBuckets
from probattn.data.caption_batches import CaptionBatch
from probattn.metrics import predictive_ppl
from probattn.metrics.captions import caption_bleu
from probattn.models.captioner import Captioner, with_sampled_kl, with_trajectory_baseline
from probattn.recipes.captioning_data import CaptionCorpus, CaptionSplit, references_of
from probattn.recipes.captioning_search import find_captions
from probattn.recipes.captioning_settings import SITE, CaptioningSettings, InputSizes, build_model
from probattn.training import Stage, StepOutput
from probattn.training.randomness import capture, restore

IDENTITY = ("network", "site", "estimator", "kl_weight", "kl", "baseline", "batch_size")


class CaptioningTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: CaptioningSettings, corpus: CaptionCorpus, *, plain: Mapping[str, Any] | None = None):
        self.settings = settings
        self.corpus = corpus
        self.plain = {} if plain is None else plain
        self.inputs = InputSizes(corpus.tokenizer.vocabulary_size, corpus.features.dim, corpus.feature_scale)
        self._model = build_model(settings, self.inputs)

    def identity(self) -> Mapping[str, Any]:
        """The captions, and the settings that training depends on."""
        sections = {name: self.plain[name] for name in IDENTITY if name in self.plain}
        return {
            "captions": self.corpus.digest,
            "order": self.settings.corpus.seed,
            **{name: json.dumps(value, default=str) for name, value in sections.items()},
        }

    @property
    def model(self) -> Captioner:
        """The network."""
        return self._model

    @cached_property
    def buckets(self) -> TokenBuckets:
        """Batches of captions of equal lengths."""
        lengths, size = self.corpus.splits["train"].encoded.lengths, self.settings.batch_size
        return TokenBuckets(
            lengths, lengths, max_tokens=size * max(lengths), max_sentences=size, seed=self.settings.corpus.seed
        )

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Row numbers of every batch of an epoch."""
        return self.buckets.epoch(epoch)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        """Loss in nats per caption: likelihood and KL summed over words and regions, divided by captions."""
        captions = self.corpus.splits["train"].encoded.batch(batch)
        # where a failure is the result, numbers that are not finite must reach the engine, which keeps the update
        with content_checks(self.settings.on_failure == "raise"):
            terms = self._terms(captions, stage, update)
        count, words = len(batch), int(captions.target_mask.sum())
        logs: dict[str, tuple[Tensor | float, float]] = {
            "log_lik": (float(terms.log_lik.sum()), words),
            "tokens": (float(words), 1.0),
        }
        loss, cost = terms.loss.sum() / count, terms.cost.sum() / count
        if not self.settings.has_kl:
            return StepOutput(loss=loss, weight=float(count), logs=logs)
        logs["kl_per_word"] = (float(terms.kl[SITE].sum()), words)
        parts = {"likelihood": loss - cost, "kl": cost}
        return StepOutput(loss=loss, weight=float(count), logs=logs, parts=parts)

    def _terms(self, captions: CaptionBatch, stage: Stage, update: int) -> Terms:
        bound = Elbo() if stage.bound is None else stage.bound
        before = capture() if self.settings.baseline == "soft" else None
        evaluation = run(self.model, captions, stage.estimators[SITE], bound=bound)
        if self.settings.kl == "sampled":
            evaluation = with_sampled_kl(evaluation)
        if before is not None:  # the same dropout masks: sample and baseline differ in nothing but the draw
            after = capture()
            restore(before)
            with torch.no_grad():
                soft = run(self.model, captions, Mean())
            restore(after)
            evaluation = with_trajectory_baseline(evaluation, soft)
        return bound(evaluation, stage.weights_at(update))

    def validate(self) -> Mapping[str, float]:
        """Perplexity and BLEU-4 of greedy captions, with plug-in weights."""
        split = self.corpus.splits["valid"]
        nats, words = log_likelihood(self.model, split, Mean())
        greedy = find_captions(
            self.model, split.features, split.rows, tokenizer=self.corpus.tokenizer, decoding=self.settings.decoding
        )
        scores = caption_bleu([one[0].text for one in greedy], references_of(split))
        return {"ppl": predictive_ppl(nats, words), "bleu4": scores[4].score}

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Row numbers and captions, for the report of a failure."""
        encoded = self.corpus.splits["train"].encoded
        texts = [self.corpus.tokenizer.decode(encoded.captions[row]) for row in batch.tolist()]
        pictures = [encoded.features.names[encoded.images[row]] for row in batch.tolist()]
        return {"rows": batch.tolist(), "pictures": pictures, "captions": texts}


def run(model: Captioner, batch: CaptionBatch, estimator: Estimator, *, bound: Bound | None = None) -> Evaluation:
    """The model's evaluation of a batch."""
    moved = batch.to(model.device)
    evaluation: Evaluation = model(
        moved.features,
        moved.region_mask,
        target_in=moved.target_in,
        target_out=moved.target_out,
        target_mask=moved.target_mask,
        estimators={SITE: estimator},
        bound=bound,
    )
    return evaluation


@torch.no_grad()
def log_likelihood(model: Captioner, split: CaptionSplit, estimator: Estimator) -> tuple[float, int]:
    """Nats of all captions of a split, and how many words they have."""
    nats, words = 0.0, 0
    for rows in split.encoded.batches():
        batch = split.encoded.batch(rows)
        evaluation = run(model, batch, estimator)
        nats += float(evaluation.log_lik[0].sum())
        words += int(batch.target_mask.sum())
    return nats, words
