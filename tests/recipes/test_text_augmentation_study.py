"""How the models of the study of augmentation are trained: to their best, in the same way in every cell."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from probattn.recipes.later_settings import without_added
from probattn.recipes.recipe import Run
from probattn.recipes.text_augmentation_study import JUDGED, ROWS, STUDIES, Study
from probattn.recipes.text_cells import train_on
from probattn.recipes.text_data import load_corpus
from probattn.recipes.text_settings import TextSettings, engine_stages
from probattn.recipes.text_task import TextTask
from probattn.recipes.text_vae import RECIPE
from probattn.training import Stage
from tests.recipes.tiny_text import TINY


def trained(row: str, scale: str = "captions", *, sees_all: bool = False) -> tuple[TextSettings, dict[str, Stage]]:
    overrides = STUDIES[scale].overrides(row, scale, sees_all=sees_all)
    settings, _ = RECIPE.load(RECIPE.configs(row, scale), overrides)
    return settings, {stage.name: stage for stage in engine_stages(settings)}


@pytest.mark.parametrize("scale", list(STUDIES))
def test_a_language_model_is_trained_until_its_validation_no_longer_improves(scale: str) -> None:
    settings, stages = trained("lstm-lm", scale)
    trainer, study = settings.trainer, STUDIES[scale]
    assert (trainer.lr_schedule, trainer.select_by, trainer.early_stop) == ("plateau", "elbo_ppl", study.early_stop)
    assert (trainer.validate_every, trainer.decay_patience) == (study.validate_every, study.decay_patience)
    assert study.early_stop > study.decay_patience + 1  # a lower rate is tried before the end
    assert [(stage.updates, stage.decays) for stage in stages.values()] == [(study.updates, True)]
    assert settings.fills_batches


def test_updates_of_a_language_model_are_a_maximum() -> None:
    """The most text has 625 batches an epoch; and the generating language model is the judged one."""
    assert STUDIES["captions"].updates > 10 * 625 and ROWS["lstm-small"] == JUDGED


def test_a_generator_with_codes_hands_over_its_best_weights() -> None:
    settings, stages = trained("davam-128-places")
    assert list(stages) == ["warm-up", "posterior", "prior"]
    assert [stage.hand_over for stage in stages.values()] == ["best"] * 3
    assert [stage.updates for stage in stages.values()] == [1200, 1200, 600]
    assert [stage.validate_every for stage in stages.values()] == [150, 150, 75]
    assert [stage.decays for stage in stages.values()] == [False, True, True]
    trainer = settings.trainer
    assert (trainer.lr_schedule, trainer.select_by, trainer.early_stop) == ("linear", "elbo_ppl", None)


def test_the_prior_is_trained_for_the_best_codes_of_the_stage_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = count(2.0)  # every validation is worse than the one before: the first of a stage is its best
    monkeypatch.setattr(TextTask, "validate", lambda task: {"elbo_ppl": next(values)})
    own = STUDIES["generated"].overrides("davam-128-places", "generated") | {"updates": 20, "trainer.keep_last": 50}
    settings, plain = RECIPE.load(RECIPE.configs("davam-128-places", "generated"), {**TINY, **own})
    writer, result = train_on(load_corpus(settings.corpus), Run(settings, plain, tmp_path, show_progress=False))
    handed = load_file(tmp_path / "checkpoints" / "update-000012" / "model.safetensors")  # of 8 + 8 + 4 updates
    last = load_file(tmp_path / "checkpoints" / "update-000016" / "model.safetensors")
    found = writer.model.state_dict()
    for name in ("latent.site.posterior.codes", "encoder.weight_ih_l0", "readout.weight"):
        assert torch.equal(found[name], handed[name]), name
        assert torch.equal(last[name], handed[name]), name  # the end of a stage saves what it hands over
    assert result.updates == 20


def test_all_text_has_a_budget_of_its_own() -> None:
    assert trained("davam-128-places", sees_all=True)[0].updates == Study().all_updates != Study().davam_updates


def test_stages_that_hand_over_their_last_weights_have_the_fingerprints_they_had() -> None:
    plain: dict[str, Any]
    settings, plain = RECIPE.load(RECIPE.configs("davam-128-places", "captions"), {})
    kept = without_added(settings, plain)["stages"]
    assert all("hand_over" in stage for stage in plain["stages"])
    assert not any("hand_over" in stage for stage in kept)
