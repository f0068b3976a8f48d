"""Whole training steps of translation rows: forward, backward, clipping, fused Adam.

Size letters: K particles, B sentences.
"""

import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from probattn.nn import Additive, Bilinear, InferenceNetwork
from probattn.recipes.translation import RECIPE, TranslationTask, engine_stages
from probattn.recipes.translation_data import Corpus
from probattn.recipes.translation_run import run
from probattn.recipes.translation_settings import TranslationSettings

__all__ = ["ENUMERATED", "TrainingStep", "row_settings", "training_steps", "typical_batch"]

ENUMERATED = ("marginal", "variational-enum", "hard-enum")
SAMPLED = ("hard-sample", "variational-sample", "variational-loo", "variational-topk", "wake-sleep")
CONTINUOUS = (
    "bayesian-wc",
    "relaxed-dirichlet",
    "relaxed-lognormal",
    "gumbel",
    "bayesian-no-kl",
    "bayesian-wf",
    "bayesian-lf",
    "bayesian-lc",
    "bayesian-wc-feeds-state",
)

# Annealed KL weights have reached their end by then.
_UPDATE = 100_000


class TrainingStep:
    """One update of a row. The learning rate is zero, so every update does the same work.

    Args:
        task: Network and text of the row.
        rows: (B) sentence pairs of the batch, the same in every update.
    """

    def __init__(self, task: TranslationTask, rows: Tensor):
        self.task, self.rows = task, rows
        self.stage = engine_stages(task.settings)[-1]
        self.model = task.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, fused=True)

    def __call__(self) -> None:
        """Update."""
        self.task.step(self.rows, self.stage, _UPDATE).loss.backward()
        clip_grad_norm_(self.model.parameters(), self.task.settings.trainer.clip_norm or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def sharpen(self, sigma: float) -> None:
        """Scale the score that gives the alignment's weights until log-weights of a word vary by `sigma` nats.

        An untrained network has nearly uniform weights, of which none could be skipped.
        """
        weight = _last_weight(self.model.weights.posterior, self.model.score)
        for _ in range(5):  # the context comes back into the scores, so one scaling is not enough
            log_weight, _ = self._weights_and_credit()
            with torch.no_grad():
                weight.mul_(sigma / log_weight.std(dim=0).mean())

    def kept_share(self) -> float:
        """Share of alignments whose gradient is not skipped."""
        _, credit = self._weights_and_credit()
        return float((credit.abs() > self.task.settings.network.skip_below).float().mean())

    @torch.no_grad()
    def _weights_and_credit(self) -> tuple[Tensor, Tensor]:
        """(K, words) log-weights and credits of the batch."""
        corpus = self.task.corpus
        pairs = corpus.subwords.to_output(corpus.encoded["train"].batch(self.rows))
        estimator, bound = self.stage.estimators[self.model.weights.name], self.stage.bound
        evaluation = run(self.model, pairs, estimator, bound=None, use_posterior=True)
        draw = evaluation.latents[0].draw
        if bound is None:
            raise ValueError(f"row {self.task.settings.row!r} names no bound")
        credit = bound.credit(draw, evaluation.log_lik)
        return draw.log_weight[:, pairs.target_mask], credit[:, pairs.target_mask]


def training_steps(
    corpus: Corpus, rows: Tensor, *, overrides: Mapping[str, Any], skip_below: float, sigma: float
) -> dict[str, TrainingStep]:
    """All rows, by name; the first is the reference.

    Args:
        corpus: The text.
        rows: (B) sentence pairs of the batch.
        overrides: Of the settings of the scale `multi30k`.
        skip_below: Of the rows that skip.
        sigma: Of the alignments of enumerated rows that skip, see `TrainingStep.sharpen`.
    """

    def build(row: str, skip_below: float) -> TrainingStep:
        settings = row_settings(row, {**overrides, "network.skip_below": skip_below})
        return TrainingStep(TranslationTask(settings, corpus), rows)

    steps = {"soft": build("soft", 0.0)}
    for row in (*ENUMERATED, *SAMPLED):
        steps[row] = build(row, 0.0)
        steps[f"{row}, skipping"] = build(row, skip_below)
        if row in ENUMERATED:  # a sample's baseline has no credit in any case
            steps[f"{row}, skipping"].sharpen(sigma)
    return steps | {row: build(row, 0.0) for row in CONTINUOUS}


def row_settings(row: str, overrides: Mapping[str, Any]) -> TranslationSettings:
    """Settings of a row at the scale `multi30k`, with changes."""
    settings, _ = RECIPE.load(RECIPE.configs(row, "multi30k"), overrides)
    if not isinstance(settings, TranslationSettings):
        raise TypeError(f"expected TranslationSettings, got {type(settings).__name__}")
    return settings


def typical_batch(task: TranslationTask) -> Tensor:
    """(B) rows of a full batch whose source length is the median over batches."""
    text = task.corpus.encoded["train"]
    batches = list(task.batches(0))
    lengths = [len(text.source[int(rows[0])]) for rows in batches]
    median = statistics.median_low(lengths)
    return max((rows for rows, length in zip(batches, lengths, strict=True) if length == median), key=len)


def _last_weight(posterior: object, score: object) -> Tensor:
    """What the scores are linear in: of the inference network where there is one, else of the attention."""
    last = posterior.score if isinstance(posterior, InferenceNetwork) else score
    if isinstance(last, Additive):
        return last.energy.weight
    if isinstance(last, Bilinear):
        return last.project.weight
    raise TypeError(f"do not know which weights {type(last).__name__} is linear in")
