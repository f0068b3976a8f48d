"""Visual question answering: latent alignment over regions (Deng et al. 2018) and Bayesian co-attention (BAM 2020).

    probattn train vqa/marginal                                        # generated scenes, a minute or two
    probattn compare vqa --rows question-only soft marginal --scale scenes
    probattn compare vqa --scale daquar --num_seeds 3

A row is a YAML file in `recipes/configs/vqa/`, a scale one in its folder `scale/`. All rows have the same updates; a
run is resumed where it stopped.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from probattn.core import Elbo
from probattn.metrics import mean_nll
from probattn.recipes.engine_run import announce, last_logged, row_result, selecting, train_to_end
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.recipes.vqa_answerer import Answerer, load_answerer
from probattn.recipes.vqa_data import VqaCorpus, blinded, load_corpus
from probattn.recipes.vqa_eval import VqaEvaluator, evaluate_model
from probattn.recipes.vqa_examples import answer_examples
from probattn.recipes.vqa_network import VqaModel, build_model, is_random, nll_kind, sites_with_kl
from probattn.recipes.vqa_network import run as run_model
from probattn.recipes.vqa_report import write_report
from probattn.recipes.vqa_settings import SITE, VqaSettings
from probattn.training import Stage, StepOutput, TrainResult


class VqaTask:
    """What the training engine sees of a row."""

    def __init__(self, settings: VqaSettings, corpus: VqaCorpus, *, plain: Mapping[str, Any] | None = None):
        self.settings = settings
        self.corpus = corpus
        self.plain = {} if plain is None else plain
        self._model = build_model(settings, corpus.vocabulary)
        self._sites = sites_with_kl(self._model)

    def identity(self) -> Mapping[str, Any]:
        """The questions and features, and the settings that training depends on."""
        names = ("network", "regions", "mcan", "site", "batch_size", "sees_picture")
        sections = {name: self.plain[name] for name in names if name in self.plain}
        return {"data": self.corpus.digest, **{name: json.dumps(one, default=str) for name, one in sections.items()}}

    @property
    def model(self) -> VqaModel:
        """The network."""
        return self._model

    def stage(self) -> Stage:
        """The one stretch of training."""
        settings = self.settings
        return Stage(
            "main",
            epochs=settings.epochs,
            bound=settings.bound,
            estimators={SITE: settings.estimator},
            weights=dict.fromkeys(self._sites, settings.kl_weight),
        )

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """(B, 2) numbers of questions and sampled answers, of every batch of an epoch.

        Where annotators differ, an answer is drawn anew in each epoch, in proportion to them.
        """
        questions = self.corpus.encoded["train"]
        places = questions.answerable[torch.randperm(len(questions.answerable))]
        answers = questions.sampled_answers(places, torch.rand(len(places)))
        return torch.stack([places, answers], dim=1).split(self.settings.batch_size)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        """Loss in nats per question; the KL is summed over sites, heads, queries and keys."""
        places, answers = batch.unbind(dim=1)
        inputs = self.corpus.inputs("train", places)
        inputs = inputs if self.settings.sees_picture else blinded(inputs)
        bound = Elbo() if stage.bound is None else stage.bound
        evaluation = run_model(self.model, inputs, answers, estimator=stage.estimators[SITE], bound=bound)
        terms = bound(evaluation, stage.weights_at(update))
        count = len(batch)
        kl = sum(float(value.sum()) for value in terms.kl.values())
        logs: dict[str, tuple[Tensor | float, float]] = {
            "bound": (float(terms.bound.sum()), count),
            "log_lik": (float(terms.log_lik.sum()), count),
            "kl": (kl, count),
        }
        loss, cost = terms.loss.sum() / count, terms.cost.sum() / count
        parts = {"likelihood": loss - cost, "kl": cost} if self._sites else {}
        return StepOutput(loss=loss, weight=float(count), logs=logs, parts=parts)

    def validate(self) -> Mapping[str, float]:
        """Likelihood and accuracy on the validation split."""
        evaluator = VqaEvaluator(self.model, self.corpus, settings=self.settings, split="valid")
        places = torch.arange(len(evaluator.questions))
        made = evaluator.answers(places)
        accuracy = evaluator.accuracy(places, made.log_probs.argmax(dim=-1))
        known = evaluator.encoded.answers
        rows, columns = (known >= 0).nonzero(as_tuple=True)
        return {
            "nll": mean_nll(made.log_probs[rows], known[rows, columns]),
            "accuracy": float(accuracy.double().mean()),
        }

    def describe_batch(self, batch: Tensor) -> Mapping[str, Any]:
        """Questions and pictures, for the report of a failure."""
        asked = [self.corpus.questions["train"][place] for place in batch[:, 0].tolist()]
        return {"questions": [one.question for one in asked], "pictures": [one.picture for one in asked]}


def train(run: Run) -> RowResult:
    """Train a row (or go on with it), keep its best model in `model/` and evaluate that on the test split."""
    settings: VqaSettings = run.settings
    trainer = selecting(settings.trainer, {"nll": "min", "accuracy": "max"})
    corpus = load_corpus(settings.corpus)
    announce(corpus, run)
    task = VqaTask(settings, corpus, plain=run.plain)
    result = train_to_end(task, run, settings=trainer, stages=[task.stage()], seed=settings.seed)
    answerer = Answerer(task.model, corpus.vocabulary, settings=settings)
    answerer.save(run.output / "model", run.plain)
    metrics = evaluate_model(task.model, corpus, settings)
    metrics |= last_logged(result.log, "effective_kl_gradient") | last_logged(result.log, "kl")
    return row_result(
        settings,
        result,
        model=task.model,
        facts=_facts(settings, corpus, task.model, result),
        metrics={name: float(f"{value:.6g}") for name, value in metrics.items() if math.isfinite(value)},
        curve="nll",
        examples=answer_examples(answerer, corpus),
    )


def _facts(settings: VqaSettings, corpus: VqaCorpus, model: VqaModel, result: TrainResult) -> dict[str, Any]:
    return {
        "bound": type(settings.bound).__name__,
        "train_estimator": repr(settings.estimator),
        "test_estimator": repr(settings.test_estimator),
        "nll_kind": nll_kind(settings),
        "drawn": "dropout and attention" if is_random(model) else "dropout",
        "draws": settings.evaluation.draws,
        "drawn_questions": min(
            settings.evaluation.max_drawn or len(corpus.questions["test"]), len(corpus.questions["test"])
        ),
        "kl_reduction": "sum over layers, heads, queries and keys, divided by questions in the loss",
        "corpus": corpus.name,
        "corpus_seed": settings.corpus.seed,
        "pictures": None if settings.corpus.pictures is None else str(settings.corpus.pictures),
        "train_questions": len(corpus.questions["train"]),
        "test_questions": len(corpus.questions["test"]),
        "left_out": corpus.num_unanswerable("train"),
        "answers": len(corpus.vocabulary.answers),
        "updates": result.updates,
        "epochs": result.epochs,
        "best_checkpoint": result.best.name,
    }


RECIPE = Recipe("vqa", VqaSettings, train, write_report, load_model=load_answerer, default_scale="scenes")
