"""The loop: stages, logs, validation, selection, accumulation, update rules."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import probattn.training.journal as journal
from probattn.core import Linear
from probattn.training import EveryBatch, Stage, StepOutput, Trainer, TrainerSettings, TrainResult
from tests.training.problems import Burst, ExactTask, NoisyTask, noisy_settings, noisy_stages, weights_of

QUIET: dict[str, Any] = {"tensorboard": False, "log_every": 1}


def train(task: Any, folder: Path, *stages: Stage, **settings: Any) -> TrainResult:
    chosen = TrainerSettings(**{**QUIET, **settings})
    return Trainer(task, chosen, stages=stages or [Stage("fit", epochs=1)], output=folder).run()


def lines(result: TrainResult, kind: str = "train") -> list[dict[str, Any]]:
    every = [json.loads(line) for line in result.log.read_text().splitlines()]
    return [line for line in every if line["kind"] == kind]


def close(first: Any, second: Any) -> bool:
    pairs = zip(weights_of(first).values(), weights_of(second).values(), strict=True)
    return all(torch.allclose(left, right, rtol=0.0, atol=1e-6) for left, right in pairs)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_loop_equals_a_loop_written_by_hand(optimizer: str, tmp_path: Path) -> None:
    task, other = ExactTask(), ExactTask()
    settings = {"optimizer": optimizer, "learning_rate": 0.1, "clip_norm": 0.5, "weight_decay": 0.01, "momentum": 0.9}
    train(task, tmp_path, Stage("fit", epochs=2), **settings)
    options = {"momentum": 0.9} if optimizer == "sgd" else {}
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
    hand = kind(other.model.parameters(), lr=0.1, weight_decay=0.01, **options)  # type: ignore[arg-type]
    for epoch in range(2):
        for batch in other.batches(epoch):
            hand.zero_grad()
            other.step(batch, Stage("fit", epochs=2), 0).loss.backward()
            torch.nn.utils.clip_grad_norm_(other.model.parameters(), 0.5)
            hand.step()
    assert close(task, other)


def test_accumulated_batches_are_one_big_batch(tmp_path: Path) -> None:
    """Batches of unequal size count by their weights; the epoch's remainder is a smaller group."""
    small, big = ExactTask((3, 1, 2, 2, 4)), ExactTask((6, 6))
    results = [train(small, tmp_path / "a", accumulate=3, clip_norm=None), train(big, tmp_path / "b", clip_norm=None)]
    assert [result.updates for result in results] == [2, 2]
    assert close(small, big)
    for left, right in zip(*(lines(result) for result in results), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-6)
        assert left["gradient_norm"] == pytest.approx(right["gradient_norm"], rel=1e-5)


def test_accumulation_without_weights_would_differ(tmp_path: Path) -> None:
    class Unweighted(ExactTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            return StepOutput(super().step(batch, stage, update).loss)

    task, big = Unweighted((3, 1, 2, 2, 4)), ExactTask((6, 6))
    train(task, tmp_path / "a", accumulate=3)
    train(big, tmp_path / "b")
    assert not close(task, big)


def test_log_averages_are_sums_over_counts(tmp_path: Path) -> None:
    task = ExactTask((3, 1, 2, 2, 4))
    result = train(task, tmp_path, log_every=2, learning_rate=1e-12)
    losses = [float(task.step(batch, Stage("fit", epochs=1), 0).loss.detach()) for batch in task.batches(0)]
    logged = lines(result)
    assert [line["update"] for line in logged] == [2, 4, 5]
    assert logged[0]["loss"] == pytest.approx((3 * losses[0] + 1 * losses[1]) / 4, rel=1e-5)
    assert logged[1]["examples"] == 2.0
    assert logged[2]["epoch"] == 1


def test_stage_freezes_overrides_rates_and_logs_weights(tmp_path: Path) -> None:
    task = NoisyTask()
    before = weights_of(task)
    stages = noisy_stages()
    first = Stage("first", updates=2, weights={"z": Linear(0.0, 1.0, steps=4)}, estimators=stages[0].estimators)
    only = Stage(
        "only",
        updates=3,
        trainable=["encoder.*"],
        learning_rates={"*.bias": 1e-9, "encoder.*": 0.5},
        weights=first.weights,
        estimators=stages[1].estimators,
    )
    result = train(task, tmp_path, only, learning_rate=0.25)
    after = weights_of(task)
    assert torch.equal(before["decoder.weight"], after["decoder.weight"])
    assert float((before["encoder.weight"] - after["encoder.weight"]).abs().max()) > 0.1
    assert float((before["encoder.bias"] - after["encoder.bias"]).abs().max()) < 1e-7
    assert [line["weight/z"] for line in lines(result)] == [0.0, 0.25, 0.5]


def test_second_stage_trains_what_the_first_froze_with_a_fresh_optimiser(tmp_path: Path) -> None:
    task = ExactTask()
    stages = [Stage("bias", updates=2, trainable=["bias"]), Stage("all", updates=1)]
    result = train(task, tmp_path, *stages, learning_rate=0.01, clip_norm=None)
    logged = lines(result)
    assert [line["stage"] for line in logged] == ["bias", "bias", "all"]
    # A fresh Adam moves every parameter by the learning rate, whatever its gradient.
    assert torch.allclose((task.model.weight - 0.5).abs(), torch.tensor(0.01), atol=1e-5)  # type: ignore[union-attr, operator]
    assert logged[-1]["epoch"] == 1, "a stage starts a new epoch"


def test_update_rule_moves_only_what_it_says(tmp_path: Path) -> None:
    task, stages = NoisyTask(), noisy_stages()
    seen = []

    class Watched(NoisyTask):
        def after_update(self, batch: torch.Tensor, output: StepOutput) -> None:
            super().after_update(batch, output)
            seen.append(self.model.decoder.weight.detach().clone())  # type: ignore[union-attr, operator]

    task = Watched()
    rule = Burst()
    start = weights_of(task)["decoder.weight"]
    train(task, tmp_path, Stage("a", updates=4, update_rule=rule, **shared(stages[0])), validate_every=2)
    assert torch.equal(seen[1], start)
    assert not torch.equal(seen[2], start)
    assert torch.equal(seen[3], seen[2])
    assert rule.position == 0, "the engine works on a copy"


def test_update_rule_hears_the_loss_by_length(tmp_path: Path) -> None:
    """Batches of long sentences have a larger loss a sentence; a rule compares batches."""
    heard: list[float] = []
    expected: list[float] = []

    class Listening(Burst):
        def after_update(self, loss: float) -> None:
            super().after_update(loss)
            heard.append(loss)

    class Lengths(NoisyTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            output = replace(super().step(batch, stage, update), unit_length=2.0 + update)
            expected.append(float(output.loss.detach()) / (2.0 + update))
            return output

    stage = Stage("a", updates=3, update_rule=Listening(), **shared(noisy_stages()[0]))
    train(Lengths(), tmp_path, stage, validate_every=3)
    assert len(heard) == 3 and heard == pytest.approx(expected, rel=1e-5)


def shared(stage: Stage) -> dict[str, Any]:
    return {"weights": stage.weights, "estimators": stage.estimators}


def test_rule_hears_losses_and_validations() -> None:
    rule = EveryBatch()
    rule.after_update(1.0)
    rule.after_validation({})
    rule.load_state_dict(rule.state_dict())
    assert rule.moves() == ("*",)


def test_a_stage_may_be_validated_more_often(tmp_path: Path) -> None:
    stages = [Stage("watched", updates=7, validate_every=3), Stage("rest", updates=6)]

    class Validated(ExactTask):
        def validate(self) -> dict[str, float]:
            return {"error": 1.0}

    result = train(Validated(), tmp_path, *stages, validate_every=6)
    assert [line["update"] for line in lines(result, "validation")] == [3, 6, 7, 12, 13]
    with pytest.raises(ValueError, match="validate_every must be at least 1, got 0"):
        Stage("watched", updates=7, validate_every=0)


def test_best_checkpoint_and_early_stop(tmp_path: Path) -> None:
    class Scripted(ExactTask):
        values = iter([3.0, 2.0, 2.5, float("nan"), 9.0, 1.0])

        def validate(self) -> dict[str, float]:
            return {"error": next(self.values)}

    result = train(Scripted(), tmp_path, Stage("fit", epochs=6), select_by="error", early_stop=3, keep_last=1)
    assert (result.best_value, result.best.name, result.updates) == (2.0, "update-000010", 25)
    assert result.is_finished
    assert (tmp_path / "checkpoints" / "best").read_text() == "update-000010\n"
    assert {path.name for path in (tmp_path / "checkpoints").glob("update-*")} == {"update-000010", "update-000025"}
    assert result.last.name == "update-000025"


def test_plateau_halves_down_to_the_floor(tmp_path: Path) -> None:
    class Worse(ExactTask):
        value = 0.0

        def validate(self) -> dict[str, float]:
            self.value += 1.0
            return {"error": self.value}

    settings = {"lr_schedule": "plateau", "decay_patience": 1, "min_learning_rate": 0.3, "learning_rate": 1.0}
    result = train(Worse((2,)), tmp_path, Stage("fit", epochs=9), select_by="error", **settings)
    assert [line["learning_rate"] for line in lines(result)] == [1.0, 1.0, 1.0, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3]


def test_linear_decay_and_warmup_follow_epochs(tmp_path: Path) -> None:
    settings = {"lr_schedule": "linear", "warmup_updates": 2, "learning_rate": 1e-3}
    result = train(ExactTask((1, 1)), tmp_path, Stage("fit", epochs=2), **settings)
    assert [line["learning_rate"] for line in lines(result)] == pytest.approx([0.5e-3, 0.75e-3, 0.5e-3, 0.25e-3])


def test_linear_decay_needs_a_length(tmp_path: Path) -> None:
    task = NoisyTask(is_streamed=True)
    with pytest.raises(ValueError, match="needs to know where the stage ends"):
        train(task, tmp_path, *noisy_stages()[1:], lr_schedule="linear")


def test_selected_metric_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"select_by is 'bleu', but task.validate\(\) gave \['error'\]"):
        train(ExactTask(), tmp_path, select_by="bleu")


def test_hand_over_needs_a_metric(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hands over its best weights; say by which metric"):
        train(ExactTask(), tmp_path, Stage("fit", epochs=1, hand_over="best"))


def test_hand_over_of_the_best_weights(tmp_path: Path) -> None:
    class Scripted(ExactTask):
        values = iter([1.0, 2.0, 3.0])

        def validate(self) -> dict[str, float]:
            return {"error": next(self.values)}

    stages = [Stage("a", epochs=2, hand_over="best"), Stage("b", epochs=1, trainable=["bias"])]
    task, short = Scripted(), ExactTask()
    train(task, tmp_path / "a", *stages, select_by="error")
    train(short, tmp_path / "b", Stage("a", epochs=1))
    assert torch.equal(weights_of(task)["weight"], weights_of(short)["weight"])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model: model.weight, "scalar that depends on trainable parameters, got shape"),
        (lambda model: torch.zeros(()), "requires_grad=False"),
    ],
)
def test_bad_losses(loss: Any, message: str, tmp_path: Path) -> None:
    class Bad(ExactTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            return StepOutput(loss(self.model))

    with pytest.raises(ValueError, match=message):
        train(Bad(), tmp_path)


def test_bad_outputs(tmp_path: Path) -> None:
    class Bad(ExactTask):
        answer: Any = 3.0

        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            return self.answer or StepOutput(self.model.weight.sum(), weight=0.0)  # type: ignore[union-attr, operator]

    with pytest.raises(TypeError, match="must return a StepOutput, got float"):
        train(Bad(), tmp_path / "a")
    task = Bad()
    task.answer = None
    with pytest.raises(ValueError, match="weight must be positive and finite, got 0"):
        train(task, tmp_path / "b")


def test_bf16_keeps_weights_in_float32(tmp_path: Path) -> None:
    class Watched(ExactTask):
        types: set[torch.dtype] = set()

        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            self.types.add(self.model(batch).dtype)
            return super().step(batch, stage, update)

    task = Watched()
    result = train(task, tmp_path, precision="bf16")
    assert task.types == {torch.bfloat16}
    assert task.model.weight.dtype == torch.float32  # type: ignore[union-attr]
    assert result.is_finished


def test_tensorboard_and_speed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = Trainer(
        NoisyTask(), noisy_settings(tensorboard=True, log_every=1), stages=noisy_stages(), output=tmp_path
    ).run()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = events.Tags()["scalars"]
    assert {"train/loss", "train/bound", "train/tokens_per_second", "validation/error"} <= set(scalars)
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, result.updates + 1))
    assert "tokens_per_second" not in result.log.read_text(), "the log must not depend on the clock"


def test_progress_bar_shows_averages_speed_and_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Bar:
        total: int | None = None

        def __init__(self, **options: Any) -> None:
            shown.append(("title", options["desc"], options["initial"]))

        def update(self) -> None:
            shown.append(("total", self.total))

        def set_postfix(self, texts: dict[str, str], refresh: bool) -> None:
            shown.append(("texts", set(texts)))

        def close(self) -> None:
            shown.append(("closed",))

    monkeypatch.setattr(journal, "tqdm", Bar)
    train(NoisyTask(), tmp_path, *noisy_stages()[1:], accumulate=2, log_every=12)
    assert ("title", "second", 0) in shown
    assert ("total", 12) in shown
    expected = {"loss", "bound", "tokens", "gradient_norm", "tokens_per_second", "effective_kl_gradient"}
    assert ("texts", expected) in shown
    assert shown[-1] == ("closed",)


def test_without_accelerate_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"pip install probattn\[train\]"):
        train(ExactTask(), tmp_path)


def test_no_batches(tmp_path: Path) -> None:
    class Empty(ExactTask):
        def batches(self, epoch: int) -> list[torch.Tensor]:
            return []

    with pytest.raises(ValueError, match=r"task.batches\(0\) gave no batch"):
        train(Empty(), tmp_path)
