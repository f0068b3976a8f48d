"""Training steps of the benchmark are what their names say."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

import probattn.models.recurrence
from benchmarks.translation_steps import TrainingStep, row_settings, training_steps, typical_batch
from probattn.kernels import latent_cross_entropy
from probattn.recipes.translation import RECIPE, TranslationTask
from probattn.recipes.translation_data import load_corpus

SIGMA = 3.0


@pytest.fixture
def task() -> TranslationTask:
    overrides = importlib.import_module("translation").TINY.overrides
    settings = row_settings("soft", overrides)
    return TranslationTask(settings, load_corpus(settings.corpus))


@pytest.fixture
def steps(task: TranslationTask) -> dict[str, TrainingStep]:
    overrides = importlib.import_module("translation").TINY.overrides
    return training_steps(task.corpus, typical_batch(task), overrides=overrides, skip_below=1e-3, sigma=SIGMA)


def test_steps(steps: dict[str, TrainingStep], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def spy(*tensors: Tensor, skip_below: float, **options: Any) -> Tensor:
        asked.append(skip_below)
        return latent_cross_entropy(*tensors, skip_below=skip_below, **options)

    monkeypatch.setattr(probattn.models.recurrence, "latent_cross_entropy", spy)
    for name in ("soft", "marginal", "marginal, skipping", "hard-sample, skipping", "bayesian-wc"):
        steps[name]()
        assert asked.pop() == (1e-3 if "skipping" in name else 0.0), name
    sharp, plain = steps["marginal, skipping"], steps["marginal"]
    assert sharp.kept_share() < 0.9 < plain.kept_share()
    log_weight, credit = sharp._weights_and_credit()
    assert float(log_weight.std(dim=0).mean()) == pytest.approx(SIGMA, rel=0.3)  # dropout moves it
    torch.testing.assert_close(credit.sum(dim=0), torch.ones(credit.shape[1]))


def test_every_row_is_timed(steps: dict[str, TrainingStep]) -> None:
    assert {name for name in steps if "," not in name} == set(RECIPE.rows)
    for name in ("wake-sleep", "gumbel", "relaxed-lognormal", "bayesian-lc", "bayesian-wc-feeds-state"):
        steps[name]()


def test_updates_change_nothing(steps: dict[str, TrainingStep]) -> None:
    step = steps["variational-sample"]
    before = {name: value.clone() for name, value in step.model.state_dict().items()}
    step()
    torch.testing.assert_close(dict(step.model.state_dict()), before, rtol=0.0, atol=0.0)
    assert all(parameter.grad is None for parameter in step.model.parameters())
    assert all(state["exp_avg"].any() for state in list(step.optimizer.state.values())[:1])


def test_typical_batch(task: TranslationTask) -> None:
    text = task.corpus.encoded["train"]
    lengths = {len(text.source[int(row)]) for row in typical_batch(task)}
    shortest, longest = min(text.source_lengths), max(text.source_lengths)
    assert len(lengths) == 1
    assert shortest < lengths.pop() < longest
