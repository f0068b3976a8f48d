"""Bayesian attention on graphs: node classification with graph attention networks (BAM 2020, Sec. 4.1, Table 1).

    probattn train gat/wc-code --scale cora
    probattn compare gat --scale cora --num_seeds 20
    probattn compare gat --rows gat wc-ours                  # on a generated graph, in seconds
    probattn train gat/wc-code --scale cora graph.name=mine.npz   # your graph, Cora's hyperparameters

A scale is a graph; each has its own folder of rows in `recipes/configs/gat/`, with the paper's hyperparameters. A run
takes seconds to minutes, so it is not resumed inside; a comparison goes on with the runs that are missing.
"""

import math
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from tqdm import tqdm

from probattn.core import Elbo, Mean, Terms
from probattn.core.checks import content_checks
from probattn.data.graphs import NodeGraph, swapped_features
from probattn.kernels import native
from probattn.models.gat import GAT, neighbourhoods
from probattn.recipes.gat_classifier import NodeClassifier, load_classifier
from probattn.recipes.gat_eval import Inputs, compact, evaluate
from probattn.recipes.gat_gradients import kl_gradients
from probattn.recipes.gat_report import write_report
from probattn.recipes.gat_selection import RULES, Rule, Selection
from probattn.recipes.gat_settings import GatSettings, GraphSettings, build_model, kl_weights, load_graph
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult

_NOISE_SEED = 1_000_003  # of the noisy condition; one for all rows and seeds


def train(run: Run) -> RowResult:
    """Train and evaluate one row."""
    settings: GatSettings = run.settings
    graph, inputs = _prepared(settings.graph, settings.evaluation.feature_noise)
    num_features = graph.features.shape[1]
    model = build_model(settings, num_features=num_features, num_classes=graph.num_classes)
    trainer = GatTraining(settings, model, graph=graph, inputs=inputs["clean"])
    is_hidden = None if run.show_progress else True  # None: shown on a terminal
    progress = tqdm(range(settings.optimiser.max_epochs), desc=settings.row, leave=False, disable=is_hidden)
    curve: list[tuple[int, float]] = []
    started = time.perf_counter()
    for epoch in progress:
        trainer.update(epoch)
        loss, accuracy = trainer.validate()
        if epoch % 10 == 0:
            curve.append((epoch, _short(loss)))
            progress.set_postfix(validation_nll=f"{loss:.3f}", accuracy=f"{accuracy:.3f}", refresh=False)
        if trainer.selection.see(epoch, model, loss=loss, accuracy=accuracy):
            break
    seconds = time.perf_counter() - started
    metrics: dict[str, float] = {"epochs": epoch + 1, "seconds_per_epoch": seconds / (epoch + 1), **trainer.gradients()}
    metrics["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    for rule in RULES:
        chosen = trainer.selection.best[rule]
        model.load_state_dict(dict(chosen.weights))
        modes = _modes(rule, is_random=settings.site.posterior is not None)
        numbers = evaluate(model, inputs, modes=modes, draws=settings.evaluation.draws)
        numbers |= {"epoch": chosen.epoch, "validation_nll": chosen.loss, "validation_accuracy": chosen.accuracy}
        metrics |= {f"{rule}/{name}": value for name, value in numbers.items()}
    if run.keeps_model:
        model.load_state_dict(dict(trainer.selection.best["loss"].weights))
        classifier = NodeClassifier(model, settings, num_features=num_features)
        classifier.save(run.output / "model", run.plain, num_classes=graph.num_classes)
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts=_facts(settings, graph),
        metrics={name: _short(value) for name, value in metrics.items() if math.isfinite(value)},
        curve=curve,
    )


class GatTraining:
    """Full-batch training of one model.

    Args:
        settings: Optimiser, estimator, KL.
        model: With its initial weights.
        graph: Labels and splits.
        inputs: Clean features and neighbourhoods.
    """

    def __init__(self, settings: GatSettings, model: GAT, *, graph: NodeGraph, inputs: Inputs):
        self.settings, self.model, self.graph, self.inputs = settings, model, graph, inputs
        rates = settings.optimiser
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=rates.learning_rate, weight_decay=rates.weight_decay, fused=True
        )
        self.selection = Selection(rates.patience)
        self.has_kl = settings.site.prior is not None and settings.site.posterior is not None
        self._gradients: list[tuple[int, Mapping[str, float]]] = []

    def update(self, epoch: int) -> None:
        """One step on all training nodes."""
        self.model.train()
        if self.has_kl and epoch % self.settings.evaluation.gradient_every == 0:
            self._gradients.append((epoch, kl_gradients(self.model, lambda: self._terms(epoch))))
        with content_checks(epoch == 0):  # later it is enough to look at the loss
            loss = self._terms(epoch).loss.sum() / len(self.graph.train)
        if not math.isfinite(float(loss.detach())):
            raise ValueError(
                f"{self.settings.row}, seed {self.settings.seed}: the loss is {float(loss.detach())} in epoch {epoch}. "
                "A KL with E[S] = exp(scores) overflows when scores pass 88; use a smaller KL weight or learning rate, "
                "or the anchor 'softmax'."
            )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Mean NLL and accuracy on the validation nodes, with plug-in weights."""
        self.model.eval()
        estimators = dict.fromkeys(self.model.names, Mean())
        with content_checks(False):  # the data were checked in training, and the loss is
            logits = self.model.predict(self.inputs.features, self.inputs.support, estimators=estimators)
        labels = self.graph.labels[self.graph.valid]
        log_probs = torch.log_softmax(logits[self.graph.valid], dim=-1)
        nll = -log_probs.gather(-1, labels.unsqueeze(-1)).mean()
        return float(nll), float((log_probs.argmax(dim=-1) == labels).float().mean())

    def gradients(self) -> dict[str, float]:
        """Median and maximum of the KL's gradient relative to the likelihood's, up to the lowest validation loss."""
        last = self.selection.best["loss"].epoch if self.selection.best else 0
        seen = [one for epoch, one in self._gradients if epoch <= last]
        numbers: dict[str, float] = {}
        for name in seen[0] if seen else ():
            values = torch.tensor([one[name] for one in seen], dtype=torch.float64)
            numbers |= {name: float(values.median()), f"{name}_max": float(values.max())}
        return numbers

    def _terms(self, epoch: int) -> Terms:
        estimators = dict.fromkeys(self.model.names, self.settings.estimator)
        evaluation = self.model(
            self.inputs.features,
            self.inputs.support,
            labels=self.graph.labels,
            nodes=self.graph.train,
            estimators=estimators,
        )
        num_train = len(self.graph.train)
        weights = kl_weights(self.settings, self.model, self.inputs.support, num_train=num_train, epoch=epoch)
        return Elbo()(evaluation, weights)


def _modes(rule: Rule, *, is_random: bool) -> dict[str, list[str]]:
    """Modes of each condition. Draws are evaluated for one rule, and under noise as the paper does: all that is on."""
    if rule == "gat":
        return {"clean": ["mean"], "noisy": ["mean"]}
    if not is_random:
        return {"clean": ["mean", "dropout"], "noisy": ["mean", "dropout"]}
    return {"clean": ["mean", "dropout", "noise", "both"], "noisy": ["mean", "both"]}


@lru_cache(maxsize=2)
def _prepared(settings: GraphSettings, feature_noise: float) -> tuple[NodeGraph, dict[str, Inputs]]:
    """The graph, and its inputs in the clean and the noisy condition; kept for the next run of a process."""
    graph = load_graph(settings)
    support = neighbourhoods(graph.edges, graph.num_nodes)
    conditions = {"clean": graph, "noisy": swapped_features(graph, feature_noise, seed=_NOISE_SEED)}
    inputs = {
        name: Inputs(compact(one.features), support, one.labels, valid=one.valid, test=one.test)
        for name, one in conditions.items()
    }
    return graph, inputs


def _facts(settings: GatSettings, graph: NodeGraph) -> dict[str, Any]:
    has_kl = settings.site.prior is not None and settings.site.posterior is not None
    return {
        "kernels": "C++" if native.is_active() else "torch",
        "bound": "Elbo",
        "train_estimator": repr(settings.estimator),
        "test_estimator": "Mean() in mode 'mean', Pathwise in modes with noise",
        "kl_reduction": f"{settings.kl.reduction}, weight {settings.kl.weight!r}" if has_kl else "no KL",
        "draws": settings.evaluation.draws,
        "feature_noise": settings.evaluation.feature_noise,
        "graph": graph.name,
        "train_nodes": len(graph.train),
    }


def _short(value: float) -> float:
    """Five digits: result files hold hundreds of numbers."""
    return float(f"{value:.5g}")


RECIPE = Recipe(
    "gat",
    GatSettings,
    train,
    write_report,
    load_model=load_classifier,
    default_scale="generated",
    packs_seeds=True,
    keeps_runs=False,
)
