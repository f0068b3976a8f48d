"""Key-value recall: every method of the library on one small task, in minutes.

    probattn compare recall                                  # all rows, a table and an HTML report
    probattn compare recall --rows soft marginal --num_seeds 3
    probattn train recall/variational-sample seed=1

A row is a YAML file in `recipes/configs/recall/`. Rows differ in sites, estimators and bounds only; network, data,
updates and learning rate are the same for all. All numbers are nats per query on a fixed test set.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from probattn.core import Bound, Elbo, Estimator, Schedule
from probattn.data.recall import RecallBatch, RecallTask
from probattn.metrics import alignment_accuracy, gradient_noise, weights_entropy
from probattn.models.recall import RecallModel
from probattn.nn import Site
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.report import write_report
from probattn.recipes.results import RowResult


@dataclass
class RecallSettings:
    """One row of the comparison."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    estimators: Mapping[str, Estimator]
    """How each site's expectation is approximated in training, by site name."""
    bound: Bound
    """What is maximised."""
    test_estimators: Mapping[str, Estimator]
    """How the predictive distribution is formed at test time, by site name."""
    test_nll: str
    """What the test NLL is: "exact", "plug-in" (soft weights) or "Monte Carlo"."""
    weights: Site | None = None
    """Site of the attention weights; null for none."""
    context: Site | None = None
    """Site of the context vector; null for none."""
    kl_weights: Mapping[str, Schedule] = field(default_factory=dict)
    """KL weight of each site as a function of the update; one where absent."""
    pretrain_updates: int = 0
    """Updates with q = p before the posterior is used (Deng et al., Algorithm 2)."""
    updates: int = 400
    """Updates in all, the same for every row of a comparison."""
    batch_size: int = 64
    """Examples in a batch; each has several queries."""
    learning_rate: float = 3e-3
    """Adam's learning rate; it falls linearly to zero."""
    hidden_dim: int = 32
    """Width of the network."""
    task: RecallTask = field(default_factory=RecallTask)
    """The law of the data."""
    seed: int = 0
    """Seed of initial weights and of all noise. The data do not depend on it."""

    def __post_init__(self) -> None:
        for name, least in (("updates", 1), ("batch_size", 1), ("hidden_dim", 1), ("pretrain_updates", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


def train(run: Run) -> RowResult:
    """Train and evaluate one row; takes seconds, so nothing is kept."""
    settings: RecallSettings = run.settings
    torch.manual_seed(settings.seed)
    task = settings.task
    model = RecallModel(
        settings.weights,
        settings.context,
        dim=task.dim,
        hidden_dim=settings.hidden_dim,
        num_symbols=task.num_symbols,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1.0 - update / settings.updates)
    curve: list[tuple[int, float]] = []
    started = time.perf_counter()
    progress = tqdm(range(settings.updates), desc=f"{settings.row:>20}", leave=False, disable=not run.show_progress)
    for update in progress:
        loss, bound = _loss(settings, model, task.batch(settings.batch_size, update), update)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        decay.step()
        if update % 10 == 0 or update == settings.updates - 1:
            curve.append((update, bound))
            progress.set_postfix(bound=f"{bound:.3f}", refresh=False)
    seconds = time.perf_counter() - started
    metrics = evaluate(settings, model)
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts={
            "bound": type(settings.bound).__name__,
            "train_estimator": {name: repr(estimator) for name, estimator in settings.estimators.items()},
            "test_estimator": {name: repr(estimator) for name, estimator in settings.test_estimators.items()},
            "test_nll": settings.test_nll,
            "kl_reduction": "sum over queries, reported per query",
            "updates": settings.updates,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        },
        metrics={**metrics, "seconds": seconds},
        curve=curve,
        pictures=_pictures(settings, model),
        gold=task.batch(1, -3).slot[0].tolist(),
    )


def _loss(settings: RecallSettings, model: RecallModel, batch: RecallBatch, update: int) -> tuple[torch.Tensor, float]:
    """Loss and bound, both in nats per query."""
    is_pretraining = update < settings.pretrain_updates
    evaluation = model(batch, settings.estimators, use_posterior=not is_pretraining)
    weights = {name: schedule(update) for name, schedule in settings.kl_weights.items()}
    terms = (Elbo() if is_pretraining else settings.bound)(evaluation, weights)
    queries = batch.target.numel()
    return terms.loss.sum() / queries, float(terms.bound.sum()) / queries


def evaluate(settings: RecallSettings, model: RecallModel) -> dict[str, float]:
    """Metrics on the fixed test set, with noise of its own seed."""
    torch.manual_seed(1_000_000)
    batch = settings.task.batch(1000, -1)
    queries = batch.target.numel()
    with torch.no_grad():
        prediction = model.predict(batch, settings.test_estimators)
        target_log_prob = prediction.log_probs.gather(-1, batch.target.unsqueeze(-1))
        terms = settings.bound(model(batch, settings.estimators), {})
        metrics = {
            "nll": -float(target_log_prob.mean()),
            "bound": float(terms.bound.sum()) / queries,
            "kl": sum(float(kl.sum()) for kl in terms.kl.values()) / queries,
            "accuracy": float((prediction.log_probs.argmax(dim=-1) == batch.target).float().mean()),
            "alignment": float(alignment_accuracy(prediction.attention.weights, batch.slot)),
            "entropy": float(weights_entropy(prediction.attention.weights)),
        }
        posterior = model.posterior_weights(batch)
        if posterior is not None:
            metrics["posterior_alignment"] = float(alignment_accuracy(posterior, batch.slot))
            metrics["posterior_entropy"] = float(weights_entropy(posterior))
    small = settings.task.batch(64, -2)
    noise = gradient_noise(lambda: _loss(settings, model, small, settings.updates)[0], list(model.parameters()))
    return {**metrics, "gradient_variance": noise.variance, "gradient_squared_norm": noise.squared_norm}


@torch.no_grad()
def _pictures(settings: RecallSettings, model: RecallModel) -> dict[str, list[list[float]]]:
    """Weights of one test example under p and, where there is an inference network, under q."""
    batch = settings.task.batch(1, -3)
    weights = {"p": model.predict(batch, settings.test_estimators).attention.weights}
    posterior = model.posterior_weights(batch)
    if posterior is not None:
        weights["q"] = posterior
    return {kind: [[round(float(w), 4) for w in row] for row in weights[kind][0]] for kind in weights}


RECIPE = Recipe("recall", RecallSettings, train, write_report, keeps_runs=False)
