"""Text generation with a variational encoder-decoder: what the recipes of Bahuleyan et al. 2018 share.

The recipes `question_generation`, `dialogue` and `pilot_vae` differ in text and rows; a row is a YAML file in
`recipes/configs/`, and a run is resumed where it stopped.
"""

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from probattn.core import Bound, Elbo
from probattn.data.buckets import TokenBuckets
from probattn.metrics import elbo_ppl, predictive_ppl
from probattn.models import Ved
from probattn.recipes.engine_run import announce, row_result, train_to_end
from probattn.recipes.generation_data import load_corpus
from probattn.recipes.generation_eval import tally, text_metrics
from probattn.recipes.generation_run import at_mean, run, with_last_kl
from probattn.recipes.generation_settings import GenerationSettings, build_model
from probattn.recipes.generation_units import count_active_units
from probattn.recipes.generator import Generator
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult
from probattn.recipes.translation_data import Corpus
from probattn.training import CollapseWarning, Stage, StepOutput, TrainResult, warn_of_collapse

NUM_EXAMPLES = 6
"""Sources whose texts are kept for the report."""


class GenerationTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: GenerationSettings, corpus: Corpus, *, plain: Mapping[str, Any] | None = None):
        self.settings = settings
        self.corpus = corpus
        self.plain = {} if plain is None else plain
        self.warned: set[str] = set()
        self._model = build_model(settings, corpus.subwords)

    def identity(self) -> Mapping[str, Any]:
        """The text, and the settings that training depends on."""
        names = (
            "network",
            "code",
            "attention",
            "starts_from",
            "attention_from",
            "kl_steps",
            "likelihood",
            "free_nats",
            "batch_size",
        )
        sections = {name: self.plain[name] for name in names if name in self.plain}
        return {
            "text": self.corpus.digest,
            "order": self.settings.corpus.seed,
            **{name: json.dumps(value, default=str) for name, value in sections.items()},
        }

    @property
    def model(self) -> Ved:
        """The network."""
        return self._model

    @cached_property
    def buckets(self) -> TokenBuckets:
        """Batches of pairs with equal source lengths."""
        text, corpus = self.corpus.encoded["train"], self.settings.corpus
        longest = max(corpus.max_source, corpus.max_target + 1)
        return TokenBuckets(
            text.source_lengths,
            text.target_lengths,
            max_tokens=self.settings.batch_size * longest,
            max_sentences=self.settings.batch_size,
            seed=corpus.seed,
        )

    @property
    def updates(self) -> int:
        """Of the whole training; an update may take several batches, or one of every process."""
        batches = self.settings.trainer.accumulate * int(os.environ.get("WORLD_SIZE", "1"))
        return self.settings.epochs * math.ceil(len(self.buckets) / batches)

    def stage(self) -> Stage:
        """The training, with the KL weights of its length."""
        estimators, weights = self.settings.estimators, self.settings.schedules(self.updates)
        bound = Elbo(self.settings.free_bits)
        return Stage("main", epochs=self.settings.epochs, bound=bound, estimators=estimators, weights=weights)

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Row numbers of every batch of an epoch."""
        return self.buckets.epoch(epoch)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        """Loss in nats per sentence: eq. 8, summed over words and steps, divided by sentences."""
        pairs = self.corpus.subwords.to_output(self.corpus.encoded["train"].batch(batch))
        attends = update >= self.settings.attention_from * self.updates
        evaluation = run(self.model, pairs, stage.estimators, attends=attends)
        counted = with_last_kl(evaluation) if self.settings.kl_steps == "last" else evaluation
        visited = {latent.name for latent in evaluation.latents}
        sentences, tokens = len(batch), int(pairs.target_mask.sum())
        factor = tokens / sentences if self.settings.likelihood == "token-mean" else 1.0
        weights = {name: factor * weight for name, weight in stage.weights_at(update).items() if name in visited}
        bound: Bound = Elbo() if stage.bound is None else stage.bound
        terms = bound(counted, weights)
        logs: dict[str, tuple[Tensor | float, float]] = {
            "log_lik": (float(terms.log_lik.sum()), tokens),
            "tokens": (float(tokens), 1.0),
            **{f"kl_{name}": (float(terms.kl[name].sum()), sentences) for name in weights},
        }
        loss, cost = terms.loss.sum() / sentences, terms.cost.sum() / sentences
        has_kl = float(cost.detach()) != 0.0
        parts = {"likelihood": loss - cost, "kl": cost} if has_kl else {}
        return StepOutput(loss=loss, weight=float(sentences), logs=logs, parts=parts)

    def validate(self) -> Mapping[str, float]:
        """Perplexities and KLs on the validation split, and quality and diversity of texts for its first sources."""
        settings, text, words = self.settings, self.corpus.encoded["valid"], self.corpus.subwords
        plain = tally(self.model, text, words, at_mean(self.model))
        found = {"map_ppl": predictive_ppl(plain.log_lik, plain.tokens)}
        if settings.stochastic_sites:
            drawn = tally(self.model, text, words, settings.estimators)
            found["elbo_ppl"] = elbo_ppl(drawn.bound, drawn.tokens)
            kl = {name: drawn.kl[name] / drawn.examples for name in settings.stochastic_sites}
            found |= {f"kl_{name}": value for name, value in kl.items()}
            found |= self._watch(kl)
        texts = text_metrics(
            self.model, self.corpus, settings, split="valid", max_sources=settings.sampling.validation_sources
        )
        return {**found, **texts}

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Row numbers and texts, for the report of a failure."""
        text, rows = self.corpus.texts["train"], batch.tolist()
        return {
            "rows": rows,
            "source": [text.source[row] for row in rows],
            "target": [text.target[row] for row in rows],
        }

    def _watch(self, kl: Mapping[str, float]) -> dict[str, float]:
        """Count active units, and warn once of each site that has collapsed."""
        counts = count_active_units(self.model, self.corpus.encoded["valid"], self.corpus.subwords, sites=kl)
        for message in warn_of_collapse(kl, counts):
            site = message.split("'")[1]
            if site not in self.warned:
                self.warned.add(site)
                warnings.warn(message, CollapseWarning, stacklevel=2)
        return {f"active_{name}": float(count) for name, count in counts.items()}


def train(recipe: str, run_: Run) -> RowResult:
    """Train a row (or go on with it), keep its last model in `model/` and evaluate that on the test split."""
    settings: GenerationSettings = run_.settings
    corpus = load_corpus(settings.corpus)
    announce(corpus, run_)
    task = GenerationTask(settings, corpus, plain=run_.plain)
    result = train_to_end(task, run_, settings=settings.trainer, stages=[task.stage()], seed=settings.seed)
    generator = Generator(task.model, corpus.subwords, settings=settings)
    generator.save(run_.output / "model", run_.plain, recipe=recipe, text=corpus.digest)
    return row_result(
        settings,
        result,
        model=task.model,
        facts=_facts(settings, result),
        metrics=generator.evaluate(corpus),
        curve="map_ppl",
        examples=text_examples(generator, corpus),
    )


def text_examples(generator: Generator, corpus: Corpus) -> list[dict[str, Any]]:
    """Sources of the test split with their reference and five texts each, side by side in the report (Tables 1, 3)."""
    text = corpus.texts["test"]
    step = max(1, len(text) // NUM_EXAMPLES)
    rows = list(range(0, len(text), step))[:NUM_EXAMPLES]
    found = generator.generate([text.source[row] for row in rows], num_samples=5 if generator.sites else 1)
    return [
        {"source": text.source[row], "reference": text.target[row], "texts": [one.text for one in texts]}
        for row, texts in zip(rows, found, strict=True)
    ]


def _facts(settings: GenerationSettings, result: TrainResult) -> dict[str, Any]:
    return {
        "bound": "Elbo",
        "train_estimator": {name: repr(value) for name, value in settings.estimators.items()},
        "test_estimator": f"Mean (map_), {settings.sampling.num_samples} draws (sample_)",
        "kl_reduction": f"sum over {settings.kl_steps} step(s) and sites, divided by sentences in the loss",
        "kl_weights": dict(settings.weights),
        "annealing": repr(settings.annealing),
        "draws": settings.sampling.num_samples,
        "corpus": settings.corpus.name,
        "updates": result.updates,
        "epochs": result.epochs,
    }
