"""Bias and variance of every gradient estimator for a categorical alignment, against exact enumeration.

    python -m probattn.recipes.estimators --output results/estimators.json

A small random model in float64 has few enough alignments that the gradient of each objective is known exactly. Each
estimator's gradient is drawn many times; its mean against the exact gradient is its bias, its spread is its variance.
Both are relative to the exact gradient's norm, so that rows can be compared; readouts are what an estimator costs.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jsonargparse import auto_cli
from torch import Tensor
from tqdm import tqdm

from probattn.core import (
    Bound,
    Dense,
    Elbo,
    Enumerate,
    Estimator,
    Evaluation,
    Given,
    ImportanceWeighted,
    LeaveOneOut,
    Memory,
    NoBaseline,
    Pathwise,
    ScoreFunction,
    SoftAttention,
    TopKAndSample,
    WakeSleep,
)
from probattn.distributions import Categorical, Family, GumbelSoftmax, StraightThroughGumbel
from probattn.nn import Conditional, FromScores, Site

EXAMPLES, STEPS, SLOTS, WIDTH, SYMBOLS = 3, 2, 5, 4, 6


class _OwnScores(Conditional):
    """A posterior with free scores: the inference network of this model."""

    def __init__(self, scores: Tensor, family: Family):
        super().__init__()
        self.scores, self.family = scores, family

    def forward(self, given: Given) -> torch.distributions.Distribution:
        return self.family(self.scores, given.memory.support)


class ToyModel:
    """Random scores for p and q, random values, a softmax readout; all parameters in `parameters`."""

    def __init__(self, seed: int):
        draw = torch.Generator().manual_seed(seed)

        def random(*shape: int, scale: float = 1.0) -> Tensor:
            return scale * torch.randn(*shape, generator=draw, dtype=torch.float64)

        self.prior_scores = random(EXAMPLES, STEPS, SLOTS).requires_grad_()
        self.posterior_scores = random(EXAMPLES, STEPS, SLOTS).requires_grad_()
        self.readout = random(WIDTH, SYMBOLS, scale=1.5).requires_grad_()
        self.values = random(EXAMPLES, SLOTS, WIDTH)
        self.target = torch.randint(SYMBOLS, (EXAMPLES, STEPS), generator=draw)
        mask = torch.ones(EXAMPLES, 1, SLOTS, dtype=torch.bool)
        mask[-1, :, -2:] = False
        self.support = Dense(mask)
        self.parameters = [self.prior_scores, self.posterior_scores, self.readout]

    def log_lik(self, context: Tensor) -> Tensor:
        """(K, B, T) from contexts (K, B, T, D)."""
        log_probs = torch.log_softmax(context @ self.readout, dim=-1)
        return log_probs.gather(-1, self.target.expand(context.shape[:-1]).unsqueeze(-1)).squeeze(-1)

    def loss(self, family: Family, estimator: Estimator, bound: Bound, seed: Tensor) -> Tensor:
        """The summed loss of one visit."""
        memory = Memory(keys=self.values, values=self.values, support=self.support)
        site = Site("weights", prior=FromScores(Categorical()), posterior=_OwnScores(self.posterior_scores, family))
        latent = site(Given(memory=memory, scores=self.prior_scores), estimator, seed=seed)
        log_lik = self.log_lik(self.support.read(latent.draw, self.values))
        return bound(Evaluation(log_lik=log_lik, latents=(latent,))).loss.sum()

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Tables of log f, log p and log q of every slot, (S, B, T); log p and log q are -inf outside the support."""
        every = self.values.movedim(1, 0).unsqueeze(2).expand(-1, -1, STEPS, -1)  # (S, B, T, D)
        log_prior = self.support.log_softmax(self.prior_scores).movedim(-1, 0)
        log_posterior = self.support.log_softmax(self.posterior_scores).movedim(-1, 0)
        return self.log_lik(every), log_prior, log_posterior


def exact_elbo(model: ToyModel) -> Tensor:
    """The negative ELBO, summed over the support by hand."""
    log_f, log_p, log_q = model.tables()
    q = log_q.exp()
    terms = torch.where(q > 0, q * (log_f + _finite(log_p) - _finite(log_q)), 0.0)
    return -terms.sum()


def exact_pair_bound(model: ToyModel) -> Tensor:
    """The negative expected importance-weighted bound of two samples, over all pairs of slots."""
    log_f, log_p, log_q = model.tables()
    log_w = log_f + _finite(log_p) - _finite(log_q)
    q = log_q.exp()
    pair = torch.logaddexp(log_w.unsqueeze(0), log_w.unsqueeze(1)) - math.log(2.0)
    return -(q.unsqueeze(0) * q.unsqueeze(1) * pair).sum()


def exact_wake_sleep(model: ToyModel) -> Tensor:
    """What wake-sleep's loss tends to with many samples: the posterior's expectations of both log-probabilities."""
    log_f, log_p, log_q = model.tables()
    share = torch.softmax((log_f + log_p).detach(), dim=0)
    return -torch.where(share > 0, share * (log_f + _finite(log_p) + _finite(log_q)), 0.0).sum()


@dataclass(frozen=True)
class Row:
    """An estimator under test."""

    name: str
    estimator: Estimator
    bound: Bound
    exact: Callable[[ToyModel], Tensor]
    family: Family = Categorical()  # noqa: RUF009  (frozen, without state)
    is_unbiased: bool = True
    readouts: str = "1"


ROWS = (
    Row("Enumerate()", Enumerate(), Elbo(), exact_elbo, readouts="S"),
    Row("ScoreFunction(1, NoBaseline)", ScoreFunction(1, NoBaseline()), Elbo(), exact_elbo),
    Row("ScoreFunction(1, SoftAttention)", ScoreFunction(1, SoftAttention()), Elbo(), exact_elbo, readouts="2"),
    Row("ScoreFunction(4, NoBaseline)", ScoreFunction(4, NoBaseline()), Elbo(), exact_elbo, readouts="4"),
    Row("ScoreFunction(4, SoftAttention)", ScoreFunction(4, SoftAttention()), Elbo(), exact_elbo, readouts="5"),
    Row("ScoreFunction(4, LeaveOneOut)", ScoreFunction(4, LeaveOneOut()), Elbo(), exact_elbo, readouts="4"),
    Row("TopKAndSample(1)", TopKAndSample(1), Elbo(), exact_elbo, readouts="2"),
    Row("TopKAndSample(3)", TopKAndSample(3), Elbo(), exact_elbo, readouts="4"),
    Row(
        "ScoreFunction(2), VIMCO", ScoreFunction(2, NoBaseline()), ImportanceWeighted(), exact_pair_bound, readouts="2"
    ),
    Row("Enumerate(top_k=2)", Enumerate(2), Elbo(), exact_elbo, is_unbiased=False, readouts="2"),
    Row("GumbelSoftmax(1.0)", Pathwise(), Elbo(), exact_elbo, GumbelSoftmax(1.0), is_unbiased=False),
    Row("GumbelSoftmax(0.1)", Pathwise(), Elbo(), exact_elbo, GumbelSoftmax(0.1), is_unbiased=False),
    Row("StraightThroughGumbel(1.0)", Pathwise(), Elbo(), exact_elbo, StraightThroughGumbel(1.0), is_unbiased=False),
    Row(
        "WakeSleep, 2 samples",
        ScoreFunction(2, NoBaseline()),
        WakeSleep(),
        exact_wake_sleep,
        is_unbiased=False,
        readouts="2",
    ),
    Row(
        "WakeSleep, 10 samples",
        ScoreFunction(10, NoBaseline()),
        WakeSleep(),
        exact_wake_sleep,
        is_unbiased=False,
        readouts="10",
    ),
)


def measure(row: Row, *, repetitions: int, seed: int = 0) -> Mapping[str, float | str | bool]:
    """Relative bias with its standard error, and relative variance, of one estimator."""
    model = ToyModel(seed)
    exact = _flat(torch.autograd.grad(row.exact(model), model.parameters, allow_unused=True), model)
    draws = torch.stack(
        [
            _flat(
                torch.autograd.grad(
                    model.loss(row.family, row.estimator, row.bound, torch.tensor(number)), model.parameters
                ),
                model,
            )
            for number in range(repetitions)
        ]
    )
    scale = float(exact.square().sum())
    error = draws.mean(dim=0) - exact
    variance = float(draws.var(dim=0).sum())
    # the noise of the mean adds variance / n to its squared error
    bias_squared = max(0.0, float(error.square().sum()) - variance / repetitions) / scale
    z_scores = error / (draws.std(dim=0) / math.sqrt(repetitions)).clamp(min=1e-12)
    return {
        "estimator": row.name,
        "bound": type(row.bound).__name__,
        "claims_unbiased": row.is_unbiased,
        "readouts": row.readouts,
        "relative_bias": math.sqrt(bias_squared),
        "bias_noise_floor": math.sqrt(variance / repetitions / scale),
        "mean_squared_z": float(z_scores[draws.std(dim=0) > 1e-10].square().mean()) if variance > 1e-18 else 0.0,
        "relative_variance": variance / scale,
    }


def main(output: Path = Path("results/estimators.json"), repetitions: int = 4000, seed: int = 0) -> None:
    """Measure all estimators and write the results.

    Args:
        output: JSON file.
        repetitions: Gradients drawn for every estimator.
        seed: Of the random model.
    """
    torch.set_num_threads(1)
    rows = [measure(row, repetitions=repetitions, seed=seed) for row in tqdm(ROWS, desc="estimators")]
    record = {
        "command": f"python -m probattn.recipes.estimators --repetitions {repetitions} --seed {seed}",
        "repetitions": repetitions,
        "seed": seed,
        "model": {"examples": EXAMPLES, "steps": STEPS, "slots": SLOTS, "width": WIDTH, "symbols": SYMBOLS},
        "rows": rows,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['estimator']:<34} bias {row['relative_bias']:.4f} (noise {row['bias_noise_floor']:.4f}) "
            f"mean z² {row['mean_squared_z']:.2f} variance {row['relative_variance']:.3f}"
        )


def _finite(x: Tensor) -> Tensor:
    return x.masked_fill(torch.isneginf(x), 0.0)


def _flat(gradients: tuple[Tensor | None, ...], model: ToyModel) -> Tensor:
    filled = [
        torch.zeros_like(parameter) if gradient is None else gradient
        for gradient, parameter in zip(gradients, model.parameters, strict=True)
    ]
    return torch.cat([gradient.flatten() for gradient in filled]).detach()


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
