"""Fine-tuning that goes wrong: numbers that are not finite end a run with an error, or as its result."""

from pathlib import Path

import pytest
import torch

from probattn.recipes.glue_model import Head, build_model
from probattn.recipes.glue_report import write_report
from probattn.recipes.glue_settings import GlueSettings
from tests.recipes.tiny_glue import result_of, training_of


def test_divergence_is_an_error_or_the_end() -> None:
    for row, has_error in (("wc", True), ("wc-exp", False)):
        training = training_of(row)
        with torch.no_grad():
            training.model.classifier.bias.fill_(torch.nan)  # type: ignore[union-attr, operator]
        if has_error:
            with pytest.raises(ValueError, match="wc, seed 0: loss nan and gradient norm nan in update 0"):
                training.run_epoch(0)
        else:
            training.run_epoch(0)
            assert training.metrics()["diverged_at"] == 0 and training.step == 0


def test_scores_that_overflow_are_an_error_or_the_end() -> None:
    """The library itself stops at a KL that is not finite, in the forward pass."""
    for row, has_error in (("wc", True), ("wc-exp", False)):
        training = training_of(row, **{"attention.anchor": "exp"} if has_error else {})
        with torch.no_grad():
            for name, parameter in training.model.named_parameters():
                if name.endswith("query.weight"):
                    parameter.mul_(1e4)
        if has_error:
            with pytest.raises(ValueError, match=r"wc, seed 0: .*not finite.* in update 0. Use the anchor 'softmax'"):
                training.run_epoch(0)
        else:
            training.run_epoch(0)
            assert training.metrics() == {"updates": 0, "diverged_at": 0}


def test_a_row_that_never_learnt_has_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoiled(settings: GlueSettings, head: Head) -> torch.nn.Module:
        model = build_model(settings, head)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(1e4 if name.endswith("query.weight") else 1.0)
        return model

    monkeypatch.setattr("probattn.recipes.glue.build_model", spoiled)
    diverged = result_of("wc-exp")
    assert diverged.metrics["diverged_at"] == 0 and diverged.curve == []
    assert 0.0 < diverged.metrics["clean/mean/nll"] < 10.0
    assert not any(name.startswith("clean/both/") for name in diverged.metrics)  # nothing is drawn for a lost cause
    assert "diverged in update 0" in capsys.readouterr().err
    write_report("glue", [diverged], tmp_path)  # alone, it has no curve to plot
    write_report("glue", [result_of("soft"), diverged], tmp_path)
    assert "wc-exp" in (tmp_path / "table.md").read_text()
    with pytest.raises(ValueError, match="wc, seed 0"):
        result_of("wc", **{"attention.anchor": "exp"})


def test_a_large_kl_does_not_hide_the_loss() -> None:
    training = training_of("wc-exp")
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            if name.endswith("query.weight"):
                parameter.mul_(20.0)
    training.update([0, 1, 2, 3])
    assert training.kl[0] > 1e8  # float32 has seven digits
    assert 0.1 < training.curve[0][1] < 5.0
