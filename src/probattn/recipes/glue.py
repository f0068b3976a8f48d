"""Bayesian attention in pretrained transformers: fine-tuning on GLUE and SQuAD (BAM 2020, Sec. 4.5, Table 5).

    probattn train glue/wc --scale mrpc
    probattn compare glue --scale rte --num_seeds 3
    probattn compare glue --rows soft wc                     # a generated task and a tiny network, in seconds

A scale is a task, with the paper's k (Table 9). The network is MiniLM with its pretrained weights, where the paper has
ALBERT. A run takes minutes, so it is not resumed inside; a comparison goes on with the runs that are missing. The
predictions of every test example stay in the run's folder, `predictions.npz`.
"""

import io
import math
import os
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from probattn.kernels import native
from probattn.recipes.glue_eval import DRAWN_MODES, evaluate
from probattn.recipes.glue_model import Head, build_model, load_tokenizer
from probattn.recipes.glue_report import write_report
from probattn.recipes.glue_settings import EncoderSettings, GlueSettings, TaskSettings, family_of
from probattn.recipes.glue_tasks import Kind, Preparation, Splits, load_task
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.training.files import write_bytes
from probattn.training.memory import keep_freed_memory


def train(run: Run) -> RowResult:
    """Fine-tune and evaluate one row."""
    from probattn.recipes.glue_training import GlueTraining  # imports transformers, which `probattn ls` can do without

    settings: GlueSettings = run.settings
    keep_freed_memory()
    task, splits = _prepared(settings.task, settings.encoder, settings.evaluation.corruption)
    model = build_model(settings, task.head)
    training = GlueTraining(settings, model, train=splits.train)
    is_hidden = None if run.show_progress else True  # None: shown on a terminal
    progress = tqdm(range(settings.optimiser.epochs), desc=settings.row, leave=False, disable=is_hidden)
    started = time.perf_counter()
    for epoch in progress:
        training.run_epoch(epoch)
        if training.curve:
            progress.set_postfix(loss=f"{training.curve[-1][1]:.3f}", refresh=False)
    seconds = time.perf_counter() - started
    if training.diverged_at is not None:
        print(f"{settings.row}, seed {settings.seed}: diverged in update {training.diverged_at}", file=sys.stderr)
    started = time.perf_counter()
    found = evaluate(
        task.evaluator(model, settings.evaluation),
        splits.valid,
        splits.conditions,
        modes=_modes(settings, task.head) if training.diverged_at is None else [],  # draws would say nothing
        max_drawn=settings.evaluation.max_drawn,
        dropout_precision=settings.evaluation.dropout_precision,
    )
    _keep_examples(run.output, found.examples)
    metrics: dict[str, float] = {
        **training.metrics(),
        **found.numbers,
        "seconds_per_epoch": seconds / settings.optimiser.epochs,
        "evaluation_seconds": time.perf_counter() - started,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts=_facts(settings, task, splits),
        metrics={name: _short(value) for name, value in metrics.items() if math.isfinite(value)},
        curve=[(step, _short(loss)) for step, loss in training.curve],
    )


def _keep_examples(folder: Path, examples: Mapping[str, Tensor]) -> None:
    """Write `predictions.npz`, from which other numbers than ours can be had without training again."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **{name: value.cpu().numpy() for name, value in examples.items()})  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".unfinished-{os.getpid()}.npz"  # trials of a search share a folder
    write_bytes(hidden, packed.getvalue())
    hidden.replace(folder / "predictions.npz")


def _modes(settings: GlueSettings, head: Head) -> list[str]:
    has_noise = settings.attention.family is not None
    has_dropout = settings.encoder.dropout > 0.0 or (head.has_dropout and settings.encoder.classifier_dropout > 0.0)
    return [
        mode
        for mode, (needs_noise, needs_dropout) in DRAWN_MODES.items()
        if (has_noise or not needs_noise) and (has_dropout or not needs_dropout)
    ]


@lru_cache(maxsize=2)
def _prepared(settings: TaskSettings, encoder: EncoderSettings, corruption: float) -> tuple[Kind, Splits]:
    """The task and its encoded splits, kept for the next run of a process."""
    task = load_task(settings)
    tokenizer = load_tokenizer(encoder, task.head)
    return task, task.splits(Preparation(tokenizer, encoder.max_tokens, settings.max_train, corruption))


def _facts(settings: GlueSettings, task: Kind, splits: Splits) -> dict[str, Any]:
    attention, family = settings.attention, family_of(settings.attention)
    kl = f"mean over attention weights, then over examples; weight {attention.kl_weight!r}"
    drawn = settings.evaluation.max_drawn
    num_test = len(splits.conditions["clean"])
    return {
        "kernels": "C++" if native.is_active() else "torch",
        "bound": "Elbo",
        "train_estimator": "Mean()" if family is None else "Pathwise(num_samples=1)",
        "test_estimator": "Mean() in modes 'mean', 'plain' and 'dropout', Pathwise in modes with noise",
        "kl_reduction": "no KL" if attention.prior is None else kl,
        "family": "plain attention" if family is None else repr(family),
        "prior": "none" if attention.prior is None else f"contextual, {attention.prior!r}",
        "draws": settings.evaluation.draws,
        "corruption": settings.evaluation.corruption,
        "task": task.name,
        "metric": task.metric,
        "encoder": settings.encoder.name,
        "epochs": settings.optimiser.epochs,
        "precision": _precision(settings),
        "train_examples": splits.num_train,
        "test_examples": num_test,
        "drawn_examples": num_test if drawn is None else min(drawn, num_test),
    }


def _precision(settings: GlueSettings) -> str:
    if settings.optimiser.precision == settings.evaluation.dropout_precision == "no":
        return "float32"
    names = {"no": "float32", "bf16": "bfloat16"}
    training, drawing = names[settings.optimiser.precision], names[settings.evaluation.dropout_precision]
    if drawing == "float32":
        return f"{training} in training, float32 in evaluation"
    return f"{training} in training, {drawing} in draws with dropout, float32 in the rest of the evaluation"


def _short(value: float) -> float:
    """Five digits: result files hold hundreds of numbers."""
    return float(f"{value:.5g}")


RECIPE = Recipe(
    "glue", GlueSettings, train, write_report, default_scale="generated", packs_seeds=True, keeps_runs=False
)
