"""A text model as the training engine sees it: where its products may be rounded."""

import importlib

import pytest

from probattn.recipes.text_settings import engine_stages
from probattn.recipes.text_vae import RECIPE
from tests.recipes.tiny_text import task_of

readout_module = importlib.import_module("probattn.kernels.latent_cross_entropy")  # not the function


@pytest.mark.parametrize("row", ["lstm-lm", "davam-128"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_factors_are_rounded_in_training_alone(row: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = readout_module.row_readout

    def watched(*args: object, may_halve: bool, **more: object) -> object:
        asked.append(may_halve)
        return original(*args, may_halve=may_halve, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(readout_module, "row_readout", watched)
    task = task_of(row, readout_precision=precision)
    task.step(task.batches(0)[0], engine_stages(task.settings)[0], 0).loss.backward()  # type: ignore[no-untyped-call]
    assert asked and all(one is (precision == "bf16") for one in asked)
    asked.clear()
    task.validate()
    assert asked and not any(asked)


def test_a_run_is_not_resumed_with_another_precision() -> None:
    plain = {"readout_precision": "bf16", "batch_size": 16}
    tasks = [task_of("lstm-lm", readout_precision=precision) for precision in ("no", "bf16")]
    for task in tasks:
        task.plain = plain
    assert tasks[0].identity() != tasks[1].identity()


@pytest.mark.parametrize("scale", ["ptb", "captions", "yahoo"])
def test_scales_with_large_vocabularies_round_factors(scale: str) -> None:
    settings, _ = RECIPE.load(RECIPE.configs("davam-512", scale), {})
    assert settings.readout_precision == "bf16"
