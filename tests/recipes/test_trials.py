"""Trials of a search: kept, resumed, and run again when their row changes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes import gat_search, gat_search_plan, glue_search
from probattn.recipes.engine_run import last_logged
from probattn.recipes.trials import Trial, run_trials

FAST = {"graph.num_nodes": 120, "optimiser.max_epochs": 2, "evaluation.draws": 2}
TRIALS = [Trial("gat", seed, FAST) for seed in (0, 1)]
METRICS = ["loss/validation_nll"]


def test_finished_trials_are_not_run_again(tmp_path: Path) -> None:
    output = tmp_path / "trials.json"
    first = run_trials("gat", "generated", TRIALS[:1], output=output, metrics=METRICS)
    marked = json.loads(output.read_text())
    marked[TRIALS[0].key]["metrics"]["loss/validation_nll"] = 123.0
    output.write_text(json.dumps(marked))
    both = run_trials("gat", "generated", TRIALS, output=output, metrics=METRICS)
    assert both[TRIALS[0].key] == {"loss/validation_nll": 123.0}
    assert 0.0 < both[TRIALS[1].key]["loss/validation_nll"] != first[TRIALS[0].key]["loss/validation_nll"]
    marked[TRIALS[0].key]["settings"] = "other"
    output.write_text(json.dumps(marked))
    assert run_trials("gat", "generated", TRIALS[:1], output=output, metrics=METRICS) == first


def test_weights_chooses_the_best_that_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(recipe: str, scale: str, trials: list[Trial], **rest: object) -> dict[str, dict[str, float]]:
        found = {}
        for trial in trials:
            weight = float(trial.overrides["kl.weight.init_args.value"])
            place = gat_search_plan.WEIGHTS[trial.row[0]].index(weight)
            nll = (0.1, 0.5, 0.3, 0.9)[place]  # the smallest weight is best but does not act
            found[trial.key] = {
                "loss/validation_nll": nll,
                "loss/validation_accuracy": 0.8,
                "kl_gradient_scores": 0.01 if nll == 0.1 else 0.2,
            }
        return found

    monkeypatch.setattr(gat_search, "run_trials", fake)
    table = gat_search.weights("generated", output=tmp_path)
    chosen = [line for line in table.splitlines() if "chosen" in line]
    assert len(chosen) == 4 and all("| 0.3000 |" in " ".join(line.split()) for line in chosen)
    best = [" ".join(line.split()) for line in table.splitlines() if "best" in line]
    assert len(best) == 4 and all("| 0.1000 |" in line for line in best)


def test_regimes_are_ranked_and_the_best_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(recipe: str, scale: str, trials: list[Trial], **rest: object) -> dict[str, dict[str, float]]:
        found = {}
        for trial in trials:
            helps = trial.row == "wc-ours" and trial.overrides.get("graph.labels_per_class") == 3
            accuracy = 0.8 + (0.05 if helps else 0.0) + 0.001 * (trial.seed % 7)
            metrics = dict.fromkeys((*gat_search_plan.KEPT, *gat_search_plan.TESTED), 0.5)
            accuracies = {name: accuracy for name in metrics if name.endswith("accuracy")}
            found[trial.key] = {**metrics, **accuracies}
        return found

    monkeypatch.setattr(gat_search, "run_trials", fake)
    table = gat_search.regimes("generated", output=tmp_path)
    assert table.splitlines()[2].startswith("| 3 labels a class")
    confirmed = gat_search.confirm("generated", output=tmp_path)
    first = confirmed.splitlines()[2]
    assert "wc-ours" in first and "+5.00 ± 0.00" in first


def test_one_failing_trial_costs_no_other(tmp_path: Path) -> None:
    output = tmp_path / "trials.json"
    wrong = Trial("gat", 0, {**FAST, "graph.labels_per_class": 1000})
    with pytest.raises(RuntimeError, match="1 of 2 trials failed.*ask for 1 to 20; got 1000"):
        run_trials("gat", "generated", [wrong, TRIALS[1]], output=output, metrics=METRICS)
    assert list(json.loads(output.read_text())) == [TRIALS[1].key]


def test_confirm_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="run `regimes --graph generated` first"):
        gat_search.confirm("generated", output=tmp_path)
    (tmp_path / "generated-best.json").write_text('[["no such regime", "wc-ours"]]')
    with pytest.raises(SystemExit, match="no such regime"):
        gat_search.confirm("generated", output=tmp_path)


def test_the_best_k_stands_first_also_where_a_metric_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    quality = {2.0: 0.8, 5.0: math.nan, 10.0: 0.7, 20.0: 0.9}

    def fake(recipe: str, scale: str, trials: list[Trial], *, metrics: list[str], **rest: object) -> dict[str, Any]:
        found: dict[str, dict[str, float]] = {}
        for trial in trials:
            value = quality.get(trial.overrides.get("attention.k", 2.0), 0.1)
            found[trial.key] = {metrics[1]: 0.5} | ({} if math.isnan(value) else {metrics[0]: value})
        return found

    monkeypatch.setattr(glue_search, "KS", tuple(quality))
    monkeypatch.setattr(glue_search, "run_trials", fake)
    lines = [[cell.strip() for cell in line.split("|")] for line in glue_search.search("stsb").splitlines()]
    found = [[*line[1:3], line[5]] for line in lines if line[1] == "no-kl"]
    assert found[0] == ["no-kl", "20", "90.00"] and found[-1] == ["no-kl", "5", "nan"]


def test_the_last_finite_value_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"kind": "train", "update": 1, "kl": 2.5}\n{"kind": "train", "update": 2, "kl": "inf"}\n')
    assert last_logged(log, "kl") == {"kl": 2.5} and last_logged(log, "update") == {"update": 2}
    assert last_logged(log, "other") == {}
