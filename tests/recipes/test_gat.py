"""Graph attention as a recipe: checkpoint rules, the KL's weight and gradient, evaluation, a comparison."""

from pathlib import Path

import pytest
import torch
from torch import nn

from probattn.core import Elbo, Mean, Segments, Terms
from probattn.nn import SparseRows
from probattn.recipes.comparison import Comparison, compare
from probattn.recipes.gat import RECIPE, GatTraining, _prepared
from probattn.recipes.gat_eval import compact, drawn_log_probs, evaluate, uncertainty_metrics
from probattn.recipes.gat_gradients import kl_gradients
from probattn.recipes.gat_selection import Selection
from probattn.recipes.gat_settings import GatSettings, build_model, kl_weights, load_graph
from probattn.recipes.gat_tables import difference_table
from probattn.recipes.results import RowResult

SMALL = {"graph.num_nodes": 160, "optimiser.max_epochs": 6, "evaluation.draws": 4}


def settings_of(row: str, **overrides: object) -> GatSettings:
    settings, _ = RECIPE.load(RECIPE.configs(row, None), {**SMALL, **overrides})
    assert isinstance(settings, GatSettings)
    return settings


def training_of(row: str, **overrides: object) -> GatTraining:
    settings = settings_of(row, **overrides)
    graph, inputs = _prepared(settings.graph, 0.5)
    return GatTraining(
        settings,
        build_model(settings, num_features=graph.features.shape[1], num_classes=graph.num_classes),
        graph=graph,
        inputs=inputs["clean"],
    )


@pytest.mark.parametrize("scale", RECIPE.scales)
def test_every_graph_has_every_row(scale: str) -> None:
    names = {path.stem for path in RECIPE.row_folder(scale).glob("*.yaml")}
    assert names == set(RECIPE.rows) and len(names) == 14
    for row in names:
        settings, _ = RECIPE.load(RECIPE.configs(row, scale), {})
        assert settings.row == row and settings.graph.name == scale


def test_the_two_checkpoint_rules() -> None:
    model = nn.Linear(1, 1)
    selection = Selection(patience=2)
    validations = [(1.0, 0.5), (0.9, 0.4), (0.95, 0.6), (0.8, 0.6), (0.9, 0.5), (0.85, 0.55)]
    stops = [selection.see(e, model, loss=loss, accuracy=accuracy) for e, (loss, accuracy) in enumerate(validations)]
    # 1: better loss, worse accuracy: "loss" only; 2: only accuracy; 3: both at least as good; 4, 5: neither
    assert selection.best["gat"].epoch == 3 and selection.best["loss"].epoch == 3
    assert stops == [False, False, False, False, False, True]


def test_a_better_loss_alone_moves_only_its_own_rule() -> None:
    selection = Selection(patience=9)
    model = nn.Linear(1, 1)
    selection.see(0, model, loss=1.0, accuracy=0.9)
    with torch.no_grad():
        model.weight.fill_(7.0)
    selection.see(1, model, loss=0.5, accuracy=0.8)
    assert (selection.best["gat"].epoch, selection.best["loss"].epoch) == (0, 1)
    assert float(selection.best["loss"].weights["weight"]) == 7.0
    assert float(selection.best["gat"].weights["weight"]) != 7.0


def test_the_code_averages_what_the_paper_sums() -> None:
    settings = settings_of("wc-code")
    graph = load_graph(settings.graph)
    support = Segments(torch.zeros(50, dtype=torch.int64), graph.num_nodes)
    model = build_model(settings, num_features=graph.features.shape[1], num_classes=graph.num_classes)
    averaged = kl_weights(settings, model, support, num_train=80, epoch=0)
    # the loss is divided by the 80 training nodes; what is left is sigmoid(0) = 0.5 over the entries of 8 + 1 heads
    assert averaged == {name: pytest.approx(80 * 0.5 / (50 * 9)) for name in ("layer1", "layer2")}
    summed = kl_weights(settings_of("wc-paper"), model, support, num_train=80, epoch=0)
    assert summed == {"layer1": 0.5, "layer2": 0.5}


def test_gradient_takes_the_ways_that_a_prior_opens() -> None:
    detached, attached, fixed = training_of("wc-ours"), training_of("wc-code"), training_of("wf-ours")
    for training in (detached, attached, fixed):
        training.update(0)
        training.selection.see(0, training.model, loss=1.0, accuracy=0.5)
    assert detached.gradients()["kl_gradient_scores"] > 1e-4
    assert detached.gradients()["kl_gradient_keys"] == 0.0 == fixed.gradients()["kl_gradient_keys"]
    assert attached.gradients()["kl_gradient_keys"] > 100.0 * attached.gradients()["kl_gradient_scores"]


def test_gradients_after_the_chosen_epoch_do_not_count() -> None:
    training = training_of("wc-ours", **{"evaluation.gradient_every": 1})
    training.update(0)
    training.selection.see(0, training.model, loss=1.0, accuracy=0.5)
    first = training.gradients()
    training.update(1)
    training.selection.see(1, training.model, loss=2.0, accuracy=0.4)
    assert training.gradients() == first


def test_gradient_measurement_by_hand_leaves_the_random_stream_alone() -> None:
    layer = nn.Linear(2, 1, bias=False)

    def evaluate_once() -> Terms:
        noise = torch.rand(())  # the same in every call, or the parts would not be comparable
        likelihood, cost = (layer.weight[0, 0] * noise).view(1), (3.0 * layer.weight[0, 1] * noise).view(1)
        return Terms(loss=likelihood + cost, cost=cost, bound=cost, log_lik=cost, kl={}, penalties={})

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    measured = kl_gradients(layer, evaluate_once)
    assert measured["kl_gradient"] == pytest.approx(3.0)
    assert torch.equal(torch.rand(1), expected)


def test_measuring_changes_no_training() -> None:
    weights = []
    for every in (1, 1000):
        training = training_of("wc-ours", **{"evaluation.gradient_every": every})
        torch.manual_seed(5)
        for epoch in range(3):
            training.update(epoch)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))
    assert torch.equal(*weights)


def test_noise_and_dropout_are_switched_separately() -> None:
    training = training_of("no-kl", **{"site.posterior.init_args.family.init_args.concentration": 1.0})
    model, inputs = training.model.eval(), training.inputs

    def varies(has_noise: bool, has_dropout: bool) -> bool:
        drawn = drawn_log_probs(model, inputs, has_noise=has_noise, has_dropout=has_dropout, draws=2)
        return not torch.equal(drawn[0], drawn[1])

    assert [varies(False, False), varies(False, True), varies(True, False), varies(True, True)] == [
        False,
        True,
        True,
        True,
    ]
    assert not model.training and not model.dropout.training


def test_metrics_name_condition_and_mode() -> None:
    training = training_of("wc-code")
    modes = {"clean": ["mean", "both"], "noisy": ["both"]}
    inputs = {"clean": training.inputs, "noisy": training.inputs}
    metrics = evaluate(training.model, inputs, modes=modes, draws=3)
    assert metrics["clean/both/accuracy"] == metrics["noisy/both/accuracy"]  # the same inputs and the same seed
    assert "clean/mean/mutual_information" not in metrics
    assert 0.0 <= metrics["clean/both/pavpu_0.05"] <= 1.0


def test_certain_and_right_predictions_have_full_pavpu() -> None:
    torch.manual_seed(0)
    noise = 0.01 * torch.randn(5, 2, 1) * torch.tensor([1.0, -1.0])
    probs = (torch.tensor([[0.9, 0.1], [0.2, 0.8]]) + noise).double()
    right, wrong = torch.tensor([True, True]), torch.tensor([True, False])
    numbers = uncertainty_metrics(probs, right, wrong)
    assert numbers["pavpu_0.05"] == 1.0
    assert numbers["paired_pavpu_0.01"] == 0.5  # the plug-in prediction is wrong and certain once


def test_equal_draws_have_no_ranking_by_mutual_information() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double().expand(5, 2, 2)
    numbers = uncertainty_metrics(probs, torch.tensor([True, False]), torch.tensor([True, False]))
    assert "mutual_information_auroc" not in numbers and numbers["mutual_information"] == 0.0


def test_a_loss_that_is_not_finite_is_told_with_row_seed_and_epoch() -> None:
    training = training_of("gat", seed=7)
    with torch.no_grad():
        training.model.layers[1].bias.fill_(torch.inf)  # type: ignore[union-attr, operator]
    with pytest.raises(ValueError, match="gat, seed 7: the loss is nan in epoch 3"):
        training.update(3)
    with pytest.raises(ValueError, match="validation loss is NaN in epoch 2"):
        Selection(patience=3).see(2, nn.Linear(1, 1), loss=float("nan"), accuracy=0.0)


def test_bags_of_words_are_kept_sparse() -> None:
    assert isinstance(compact(torch.eye(20)), SparseRows)
    assert isinstance(compact(torch.ones(20, 20)), torch.Tensor)


def test_changes_of_the_graph_reach_it() -> None:
    plain = load_graph(settings_of("gat").graph)
    few = load_graph(settings_of("gat", **{"graph.labels_per_class": 2}).graph)
    moved = load_graph(settings_of("gat", **{"graph.edge_noise": 0.5, "graph.feature_noise": 0.5}).graph)
    assert len(few.train) == 2 * plain.num_classes
    assert not torch.equal(moved.features, plain.features)
    assert moved.edges.shape != plain.edges.shape or not torch.equal(moved.edges, plain.edges)


def test_a_comparison_writes_tables_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison(RECIPE, ["gat", "wc-ours"], 2, None, {**SMALL}, tmp_path)
    text = compare(comparison, workers=1)
    assert "| gat" in text and "| wc-ours" in text and "± " in text
    report = (tmp_path / "report.html").read_text()
    assert "Calibration" in report and "What the KL does" in report and "<svg" in report
    before = (tmp_path / "gat.json").read_text()
    compare(comparison, workers=1)
    assert "4 of 4 results were there already" in capsys.readouterr().out
    assert (tmp_path / "gat.json").read_text() == before


def test_differences_are_paired_and_starred_after_holm() -> None:
    def result(row: str, seed: int, nll: float) -> RowResult:
        return RowResult(row, "", seed, {}, {"loss/clean/mean/scaled_nll": nll, "gat/noisy/mean/accuracy": -nll})

    noise = [0.1, -0.1, 0.05, -0.05, 0.0]
    results = [result("gat", seed, 1.0 + one) for seed, one in enumerate(noise)]
    results += [result("no-kl", seed, 0.5 + one + 0.001 * seed) for seed, one in enumerate(noise)]
    results += [result("wc-code", seed, 1.0 - one) for seed, one in enumerate(noise)]
    header, rows = difference_table(results)
    assert header[:3] == ["row", "checkpoint", "scaled NLL minus gat"]
    (_, noisy), (name, clean), _, (_, same) = ((row[:2], row[2:]) for row in rows)
    assert name == ["no-kl", "lowest loss"]
    assert clean == ["-0.4980 ± 0.0007 (p < 0.001) *", "-", "-", "-"]
    assert noisy == ["-", "-", "+49.80 ± 0.07 (p < 0.001) *", "-"]  # of the other rule, not mixed with this one
    assert same[0].startswith("+0.0000") and not same[0].endswith("*")


def test_a_row_repeats_with_its_seed() -> None:
    numbers = []
    for _ in range(2):
        training = training_of("lc-ours", seed=3)
        for epoch in range(2):
            training.update(epoch)
        numbers.append(training.validate())
    assert numbers[0] == numbers[1]


def test_the_soft_row_is_an_elbo_without_kl() -> None:
    training = training_of("gat")
    graph = training.graph
    evaluation = training.model(
        training.inputs.features,
        training.inputs.support,
        labels=graph.labels,
        nodes=graph.train,
        estimators=dict.fromkeys(training.model.names, Mean()),
    )
    terms = Elbo()(evaluation)
    assert float(terms.cost.detach()) == 0.0 and not training.has_kl


def test_rows_share_initial_weights_and_noise() -> None:
    plain, contextual = training_of("gat", seed=4), training_of("lc-ours", seed=4)
    shared = dict(plain.model.named_parameters())
    others = dict(contextual.model.named_parameters())
    assert set(shared) < set(others)
    assert all(torch.equal(shared[name], others[name]) for name in shared)
    assert torch.equal(torch.rand(3), _after_building("gat", seed=4))


def _after_building(row: str, seed: int) -> torch.Tensor:
    training_of(row, seed=seed)
    return torch.rand(3)
