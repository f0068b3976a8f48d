"""Translation with latent alignment: Deng et al. 2018 complete, and Bayesian attention, on one network.

    probattn train translation/variational-enum --scale demo
    probattn compare translation --rows soft marginal variational-enum --scale demo

A row is a YAML file in `recipes/configs/translation/`, a scale one in its folder `scale/`. A run is resumed where it
stopped.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from probattn.core import Elbo
from probattn.data.buckets import TokenBuckets
from probattn.metrics import predictive_ppl
from probattn.models import Seq2Seq
from probattn.recipes.engine_run import announce, last_logged, row_result, train_to_end
from probattn.recipes.later_settings import without_added
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.recipes.translation_data import Corpus, load_corpus
from probattn.recipes.translation_eval import entropies_of, likelihood, ppl_kind
from probattn.recipes.translation_pictures import alignment_examples
from probattn.recipes.translation_report import write_report
from probattn.recipes.translation_run import run as run_model
from probattn.recipes.translation_settings import TranslationSettings, build_model
from probattn.recipes.translator import Translator, load_translator
from probattn.training import Stage, StepOutput, TrainResult


class TranslationTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: TranslationSettings, corpus: Corpus, *, plain: Mapping[str, Any] | None = None):
        self.settings = settings
        self.corpus = corpus
        self.plain = {} if plain is None else plain
        self._model = build_model(settings, corpus.subwords)

    def identity(self) -> Mapping[str, Any]:
        """The text, and the settings that training depends on."""
        plain = without_added(self.settings, dict(self.plain))
        sections = {name: plain[name] for name in ("network", "site", "max_tokens", "test_estimator") if name in plain}
        return {
            "text": self.corpus.digest,
            "order": self.settings.corpus.seed,
            "use_posterior": json.dumps({stage.name: stage.use_posterior for stage in self.settings.stages}),
            **{name: json.dumps(value, default=str) for name, value in sections.items()},
        }

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
        pairs = self.corpus.subwords.to_output(self.corpus.encoded["train"].batch(batch))
        bound = Elbo() if stage.bound is None else stage.bound
        use_posterior = next(one.use_posterior for one in self.settings.stages if one.name == stage.name)
        estimator = stage.estimators[self.model.weights.name]
        evaluation = run_model(self.model, pairs, estimator, bound=bound, use_posterior=use_posterior)
        weights = stage.weights_at(update)
        terms = bound(evaluation, weights)
        sentences, tokens = len(batch), int(pairs.target_mask.sum())
        kl = sum(float(value.sum()) for value in terms.kl.values())
        logs: dict[str, tuple[Tensor | float, float]] = {
            "bound": (float(terms.bound.sum()), tokens),
            "kl_per_token": (kl, tokens),
            "tokens": (float(tokens), 1.0),
        }
        loss, cost = terms.loss.sum() / sentences, terms.cost.sum() / sentences
        # there is no KL where q = p, and none beside the likelihood where it is inside the bound, as in wake-sleep
        has_kl = use_posterior and self.model.weights.posterior is not None and float(cost.detach()) != 0.0
        parts = {"likelihood": loss - cost, "kl": cost} if has_kl else {}
        return StepOutput(loss=loss, weight=float(sentences), logs=logs, parts=parts)

    def validate(self) -> Mapping[str, float]:
        """Perplexity of the predictive distribution on the validation split, and entropies of the alignment."""
        tally = likelihood(self.model, self.corpus, "valid", estimator=self.settings.test_estimator)
        entropies = entropies_of(self.model, self.corpus, "valid")
        return {"ppl": predictive_ppl(tally.nats, tally.tokens), **entropies}

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Row numbers and texts, for the report of a failure."""
        text = self.corpus.texts["train"]
        rows = batch.tolist()
        return {
            "rows": rows,
            "source": [text.source[row] for row in rows],
            "target": [text.target[row] for row in rows],
        }


def engine_stages(settings: TranslationSettings) -> list[Stage]:
    """The stages with their lengths: whole epochs, one or more for each, the rest of a division to the last."""
    shares = [stage.share for stage in settings.stages]
    if not all(0.0 < share < math.inf for share in shares):
        raise ValueError(f"stages need shares above zero, got {shares}")
    if settings.epochs < len(shares):
        raise ValueError(f"{len(shares)} stages need at least {len(shares)} epochs, got {settings.epochs}")
    spare = settings.epochs - len(shares)
    lengths = [1 + int(spare * share / sum(shares)) for share in shares]
    lengths[-1] += settings.epochs - sum(lengths)
    return [
        Stage(
            stage.name,
            epochs=length,
            bound=stage.bound,
            estimators=stage.estimators,
            weights=stage.weights,
            trainable=stage.trainable,
        )
        for stage, length in zip(settings.stages, lengths, strict=True)
    ]


def train(run: Run) -> RowResult:
    """Train a row (or go on with it), keep its best model in `model/` and evaluate that on the test split."""
    settings: TranslationSettings = run.settings
    if settings.trainer.select_by not in (None, "ppl"):
        raise ValueError(f"trainer.select_by={settings.trainer.select_by}: a validation gives ppl; use that, or null")
    corpus = load_corpus(settings.corpus)
    announce(corpus, run)
    task = TranslationTask(settings, corpus, plain=run.plain)
    result = train_to_end(task, run, settings=settings.trainer, stages=engine_stages(settings), seed=settings.seed)
    translator = Translator(task.model, corpus.subwords, settings=settings)
    translator.save(run.output / "model", run.plain, text=corpus.digest)
    metrics = translator.evaluate(corpus)
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return row_result(
        settings,
        result,
        model=task.model,
        facts={**_facts(settings, result), "signature": metrics["bleu_signature"]},
        metrics=numbers | last_logged(result.log, "effective_kl_gradient"),
        curve="ppl",
        examples=alignment_examples(translator, corpus),
    )


def _facts(settings: TranslationSettings, result: TrainResult) -> dict[str, Any]:
    return {
        "bound": " then ".join(type(stage.bound).__name__ for stage in settings.stages),
        "train_estimator": {name: repr(value) for name, value in settings.stages[-1].estimators.items()},
        "test_estimator": repr(settings.test_estimator),
        "ppl_kind": ppl_kind(settings.test_estimator),
        "skip_below": settings.network.skip_below,
        "kl_reduction": "sum over tokens, divided by sentences in the loss",
        "corpus": settings.corpus.name,
        "updates": result.updates,
        "epochs": result.epochs,
        "stages": [stage.name for stage in settings.stages],
        "best_checkpoint": result.best.name,
    }


RECIPE = Recipe(
    "translation", TranslationSettings, train, write_report, load_model=load_translator, default_scale="demo"
)
