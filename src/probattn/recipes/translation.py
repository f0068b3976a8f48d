"""Translation with latent alignment: Deng et al. 2018 complete, and Bayesian attention, on one network.

    probattn train translation/variational-enum --scale demo
    probattn compare translation --rows soft marginal variational-enum --scale demo

A row is a YAML file in `recipes/configs/translation/`, a scale one in its folder `scale/`. A run is resumed where it
stopped.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probattn.core import Bound, Elbo, Estimator, Schedule
from probattn.data.buckets import TokenBuckets
from probattn.metrics import exact_ppl
from probattn.models import Readout, Seq2Seq
from probattn.nn import Additive, BiLSTM
from probattn.recipes.blueprints import SiteBlueprint, Sizes
from probattn.recipes.recipe import Recipe
from probattn.recipes.results import RowResult
from probattn.recipes.translation_data import Corpus, CorpusSettings, load_corpus
from probattn.recipes.translation_eval import (
    DecodingSettings,
    _predictive_bound,
    evaluate_model,
    likelihood,
    run,
    to_output_ids,
)
from probattn.recipes.translation_report import write_report
from probattn.training import Stage, StepOutput, Trainer, TrainerSettings, load_weights


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network."""

    embedding_dim: int = 192
    """Of source and target words; the readout is tied to the target embedding."""
    encoder_dim: int = 128
    """Of one direction of the encoder."""
    encoder_layers: int = 1
    """Of the encoder."""
    decoder_dim: int = 256
    """Of the decoder."""
    attention_dim: int = 128
    """Of the additive score's hidden layer."""
    dropout: float = 0.3
    """Of embeddings, encoder states and the readout."""


@dataclass(frozen=True)
class StageSettings:
    """One stretch of training."""

    name: str
    """In logs."""
    estimators: Mapping[str, Estimator]
    """How each site's expectation is approximated."""
    bound: Bound
    """What is maximised."""
    weights: Mapping[str, Schedule] = field(default_factory=dict)
    """KL weight of each site as a function of the update; one where absent."""
    use_posterior: bool = True
    """False: q = p, although the site has a posterior (Deng et al., Algorithm 2)."""


@dataclass
class TranslationSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    site: SiteBlueprint
    """The site of the alignment."""
    stages: Sequence[StageSettings]
    """What is maximised, and how; they share `epochs` evenly."""
    test_estimator: Estimator
    """How the next word is predicted."""
    epochs: int = 15
    """Passes over the data, all stages together."""
    max_tokens: int = 1600
    """Tokens of a batch, the larger side counted."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Sizes of the network."""
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    """The text."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Optimiser, learning rate, checkpoints."""
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    """Search."""
    seed: int = 0
    """Of initial weights and noise; the text does not depend on it."""


class TranslationTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: TranslationSettings, corpus: Corpus):
        self.settings = settings
        self.corpus = corpus
        self._model = build_model(settings, corpus)

    @property
    def model(self) -> Seq2Seq:
        """The network."""
        return self._model

    @cached_property
    def buckets(self) -> TokenBuckets:
        """Batches of sentences with equal source lengths."""
        text = self.corpus.encoded["train"]
        return TokenBuckets(
            text.source_lengths,
            text.target_lengths,
            max_tokens=self.settings.max_tokens,
            seed=self.settings.corpus.seed,
        )

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Row numbers of every batch of an epoch."""
        return self.buckets.epoch(epoch)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        """Loss in nats per sentence: summed over tokens, divided by sentences, as in Deng et al.'s code."""
        pairs = to_output_ids(self.corpus.encoded["train"].batch(batch), self.corpus)
        bound = Elbo() if stage.bound is None else stage.bound
        use_posterior = next(one.use_posterior for one in self.settings.stages if one.name == stage.name)
        estimator = stage.estimators[self.model.weights.name]
        evaluation = run(self.model, pairs, estimator, bound=bound, use_posterior=use_posterior)
        weights = stage.weights_at(update)
        terms = bound(evaluation, weights)
        sentences, tokens = len(batch), int(pairs.target_mask.sum())
        kl = sum(float(value.sum()) for value in terms.kl.values())
        logs: dict[str, tuple[Tensor | float, float]] = {
            "bound": (float(terms.bound.sum()), tokens),
            "kl_per_token": (kl, tokens),
            "tokens": (float(tokens), 1.0),
        }
        return StepOutput(loss=terms.loss.sum() / sentences, weight=float(sentences), logs=logs)

    def validate(self) -> Mapping[str, float]:
        """Perplexity of the predictive distribution on the validation split."""
        estimator = self.settings.test_estimator
        tally = likelihood(
            self.model,
            self.corpus,
            "valid",
            estimator=estimator,
            bound=_predictive_bound(estimator),
            use_posterior=False,
        )
        return {"ppl": exact_ppl(tally.nats, tally.tokens)}

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Row numbers and texts, for the report of a failure."""
        text = self.corpus.texts["train"]
        rows = batch.tolist()
        return {
            "rows": rows,
            "source": [text.source[row] for row in rows],
            "target": [text.target[row] for row in rows],
        }


def build_model(settings: TranslationSettings, corpus: Corpus) -> Seq2Seq:
    """The network with its initial weights, a function of the seed."""
    torch.manual_seed(settings.seed)
    sizes = settings.network
    target = nn.Embedding(len(corpus.outputs), sizes.embedding_dim)
    source = nn.Embedding(corpus.tokenizer.vocabulary_size, sizes.embedding_dim)
    for embedding in (source, target):  # tied to the readout: unit variance would make the first logits enormous
        nn.init.normal_(embedding.weight, std=sizes.embedding_dim**-0.5)
    context_dim = 2 * sizes.encoder_dim
    site = settings.site.build("weights", Sizes(sizes.embedding_dim, sizes.encoder_dim, sizes.dropout))
    return Seq2Seq(
        source,
        BiLSTM(sizes.embedding_dim, sizes.encoder_dim, num_layers=sizes.encoder_layers, dropout=sizes.dropout),
        score=Additive(sizes.decoder_dim, context_dim, hidden_dim=sizes.attention_dim),
        weights=site,
        decoder_dim=sizes.decoder_dim,
        readout=Readout(sizes.decoder_dim, context_dim, embedding=target, dropout=sizes.dropout),
        context_dim=context_dim,
        dropout=sizes.dropout,
    )


def engine_stages(settings: TranslationSettings) -> list[Stage]:
    """The stages with their lengths: whole epochs, the rest of a division to the last."""
    count = len(settings.stages)
    if settings.epochs < count:
        raise ValueError(f"{count} stages need at least {count} epochs, got {settings.epochs}")
    lengths = [settings.epochs // count] * count
    lengths[-1] += settings.epochs - sum(lengths)
    return [
        Stage(stage.name, epochs=length, bound=stage.bound, estimators=stage.estimators, weights=stage.weights)
        for stage, length in zip(settings.stages, lengths, strict=True)
    ]


def train(settings: TranslationSettings, output: Path, show_progress: bool = True) -> RowResult:
    """Train a row (or go on with it) and evaluate the best checkpoint on the test split."""
    corpus = load_corpus(settings.corpus)
    task = TranslationTask(settings, corpus)
    trainer = Trainer(
        task,
        replace(settings.trainer, seed=settings.seed),
        stages=engine_stages(settings),
        output=output,
        show_progress=show_progress,
    )
    result = trainer.run()
    if not result.is_finished:
        raise SystemExit(f"the time was up after {result.updates} updates; run the same command again to go on")
    load_weights(task.model, result.best)
    task.model.eval()
    metrics = evaluate_model(
        task.model,
        corpus,
        estimator=settings.test_estimator,
        decoding=settings.decoding,
        train_estimator=settings.stages[-1].estimators[task.model.weights.name],
    )
    facts = {
        "bound": " then ".join(type(stage.bound).__name__ for stage in settings.stages),
        "train_estimator": {name: repr(value) for name, value in settings.stages[-1].estimators.items()},
        "test_estimator": repr(settings.test_estimator),
        "kl_reduction": "sum over tokens, divided by sentences in the loss",
        "corpus": settings.corpus.name,
        "updates": result.updates,
        "epochs": result.epochs,
        "signature": metrics["bleu_signature"],
        "best_checkpoint": result.best.name,
    }
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    numbers["parameters"] = sum(parameter.numel() for parameter in task.model.parameters())
    numbers["train_seconds"] = result.train_seconds
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts=facts,
        metrics=numbers,
        curve=validation_curve(result.log),
    )


def validation_curve(log: Path) -> list[tuple[int, float]]:
    """(update, validation perplexity) pairs of a run's log."""
    lines = (json.loads(line) for line in log.read_text().splitlines())
    return [(line["update"], line["ppl"]) for line in lines if line["kind"] == "validation"]


RECIPE = Recipe("translation", TranslationSettings, train, write_report, default_scale="demo")
