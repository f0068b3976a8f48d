"""A small attention model in float64, and the same quantities by brute-force enumeration in plain Python.

The model: a query at each step chooses a position of the memory, the context is that position's value, and the readout
gives a distribution over words. Steps do not influence each other.

Size letters: K particles, B examples, T steps, S positions, D features, V words.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core import Dense, Draw, Estimator, Evaluation, Latent
from probattn.distributions import MaskedOneHot, WeightsDistribution, kl

SEED = torch.tensor(2**41 + 9)


@dataclass(frozen=True)
class Toy:
    """Parameters and data of the model.

    Attributes:
        prior_scores: (B, T, S).
        posterior_scores: (B, T, S).
        values: (B, S, D).
        readout: (D, V).
        target: (B, T).
        memory_mask: (B, 1, S) bool.
        step_mask: (B, T) bool.
    """

    prior_scores: Tensor
    posterior_scores: Tensor
    values: Tensor
    readout: Tensor
    target: Tensor
    memory_mask: Tensor
    step_mask: Tensor

    @property
    def support(self) -> Dense:
        return Dense(self.memory_mask)

    @property
    def prior(self) -> MaskedOneHot:
        return MaskedOneHot(self.prior_scores, self.support)

    @property
    def posterior(self) -> MaskedOneHot:
        return MaskedOneHot(self.posterior_scores, self.support)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return self.prior_scores, self.posterior_scores, self.values, self.readout

    def log_lik(self, draw: Draw) -> Tensor:
        """(K, B, T) log-likelihood of the target under each particle, zero on padded steps."""
        context = self.support.read(draw, self.values)  # (K, B, T, D)
        log_probs = torch.log_softmax(context @ self.readout, dim=-1)  # (K, B, T, V)
        target = self.target.expand(log_probs.shape[:-1]).unsqueeze(-1)
        return log_probs.gather(-1, target).squeeze(-1).masked_fill(~self.step_mask, 0.0)

    def visit(
        self, estimator: Estimator, *, q: WeightsDistribution | None = None, is_prior: bool = False
    ) -> Evaluation:
        """One visit to the site: with its own posterior, with `q` in its place, or with q = p."""
        prior = self.prior
        posterior = prior if is_prior else (self.posterior if q is None else q)
        draw = estimator(posterior, prior, SEED)
        divergence = torch.zeros_like(draw.log_weight[0]) if is_prior else kl(posterior, prior)
        return Evaluation(self.log_lik(draw), (receipt("attention", draw, divergence),), mask=self.step_mask)

    def units(self, example: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(p, q, log f) of each real step of an example, over the positions that are there; written out by hand."""
        inside = self.memory_mask[example, 0].nonzero().flatten().tolist()
        for step in range(self.target.shape[1]):
            if not bool(self.step_mask[example, step]):
                continue
            p = torch.softmax(self.prior_scores[example, step, inside], dim=0)
            q = torch.softmax(self.posterior_scores[example, step, inside], dim=0)
            word = int(self.target[example, step])
            log_f = [torch.log_softmax(self.values[example, j] @ self.readout, dim=0)[word] for j in inside]
            yield p, q, torch.stack(log_f)

    def per_example(self, of_unit: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """(B) sum over the real steps of a function of (p, q, log f)."""
        sums = [
            sum((of_unit(*unit) for unit in self.units(example)), torch.zeros((), dtype=torch.float64))
            for example in range(self.target.shape[0])
        ]
        return torch.stack(sums)


def receipt(name: str, draw: Draw, divergence: Tensor | None = None, **fields) -> Latent:
    """A receipt with the usual fields."""
    divergence = torch.zeros_like(draw.log_weight[0]) if divergence is None else divergence
    return Latent(**{"unit": "step", "feeds_state": False, **fields}, name=name, draw=draw, kl=divergence, seed=SEED)


def toy(seed: int = 0, *, examples: int = 3, steps: int = 4, positions: int = 5, words: int = 4) -> Toy:
    """A random model with padded positions and padded steps; its parameters are leaves."""
    generator = torch.Generator().manual_seed(seed)

    def leaf(*shape: int) -> Tensor:
        return (1.5 * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()

    lengths = torch.tensor([positions, positions - 1, max(1, positions - 3)] * examples)[:examples]
    step_lengths = torch.tensor([steps, max(1, steps - 2), steps] * examples)[:examples]
    return Toy(
        prior_scores=leaf(examples, steps, positions),
        posterior_scores=leaf(examples, steps, positions),
        values=leaf(examples, positions, 3),
        readout=leaf(3, words),
        target=torch.randint(0, words, (examples, steps), generator=generator),
        memory_mask=(torch.arange(positions) < lengths.unsqueeze(-1)).unsqueeze(1),
        step_mask=torch.arange(steps) < step_lengths.unsqueeze(-1),
    )


def single(seed: int = 0, positions: int = 3) -> Toy:
    """One example with one step and nothing padded: small enough to enumerate tuples of samples."""
    return toy(seed, examples=1, steps=1, positions=positions)


def marginal(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
    """log sum_z p(z) f(z)."""
    return (p * log_f.exp()).sum().log()


def elbo(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
    """E_q[log f] - KL(q || p)."""
    return (q * (log_f + p.log() - q.log())).sum()


def jensen(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
    """E_p[log f]."""
    return (p * log_f).sum()


def importance_weighted(num_samples: int, kl_weight: float = 1.0) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """E over all tuples of K samples of log 1/K sum_k f (p / q)^kl_weight."""

    def expectation(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
        log_weight = log_f + kl_weight * (p.log() - q.log())
        total = torch.zeros((), dtype=torch.float64)
        for chosen in itertools.product(range(p.shape[0]), repeat=num_samples):
            index = list(chosen)
            value = torch.logsumexp(log_weight[index], dim=0) - math.log(num_samples)
            total = total + q[index].prod() * value
        return total

    return expectation


class Scripted(MaskedOneHot):
    """A one-hot distribution whose samples are given: the way to write an expectation as a sum over all outcomes.

    Args:
        scores: (M, T, S), one row per outcome.
        script: (K, M, T) the positions that `draw_index` returns.
    """

    def __init__(self, scores: Tensor, support: Dense, script: Tensor):
        super().__init__(scores, support)
        self.script = script

    def draw_index(self, num_samples: int, seed: Tensor, *, without: Tensor | None = None) -> Tensor:
        if self.script.shape[0] != num_samples:
            raise ValueError(f"{num_samples} samples were asked for, the script has {self.script.shape[0]}")
        return self.script


@dataclass(frozen=True)
class Outcomes:
    """Every outcome of K samples of a `single` model, as a batch.

    Attributes:
        evaluation: One example per outcome.
        probability: (M) how likely each one is; detached.
        leaves: Parameters that all outcomes share.
    """

    evaluation: Evaluation
    probability: Tensor
    leaves: tuple[Tensor, ...]

    def expected(self, per_outcome: Tensor) -> Tensor:
        """Exact expectation of a number per outcome."""
        return (self.probability * per_outcome).sum()

    def expected_gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Exact expectation of the gradient of minus a loss."""
        return torch.autograd.grad(-self.expected(loss), self.leaves, retain_graph=True)


def all_outcomes(model: Toy, estimator: Estimator, num_samples: int, *, is_prior: bool = False) -> Outcomes:
    """Run an estimator on every tuple of samples that it could have drawn.

    Args:
        model: From `single`.
        estimator: One that draws `num_samples` positions from all of them.
        num_samples: K.
        is_prior: Whether q = p.
    """
    positions = model.prior_scores.shape[-1]
    tuples = torch.tensor(list(itertools.product(range(positions), repeat=num_samples)))  # (M, K)
    scores = model.prior_scores if is_prior else model.posterior_scores
    log_q = torch.log_softmax(scores.detach()[0, 0], dim=0)
    probability = log_q[tuples].sum(dim=1).exp()
    return run_script(model, estimator, tuples.T.unsqueeze(-1), probability, is_prior=is_prior)


def run_script(
    model: Toy, estimator: Estimator, script: Tensor, probability: Tensor, *, is_prior: bool = False
) -> Outcomes:
    """Run an estimator with given samples (K, M, 1), each outcome as an example of its own."""
    count = script.shape[1]
    wide = Toy(
        prior_scores=model.prior_scores.expand(count, 1, -1),
        posterior_scores=model.posterior_scores.expand(count, 1, -1),
        values=model.values.expand(count, -1, -1),
        readout=model.readout,
        target=model.target.expand(count, 1),
        memory_mask=model.memory_mask.expand(count, 1, -1),
        step_mask=model.step_mask.expand(count, 1),
    )
    prior = wide.prior
    scores = wide.prior_scores if is_prior else wide.posterior_scores
    posterior = Scripted(scores, wide.support, script)
    draw = estimator(posterior, posterior if is_prior else prior, SEED)
    divergence = torch.zeros_like(draw.log_weight[0]) if is_prior else kl(posterior, prior)
    evaluation = Evaluation(wide.log_lik(draw), (receipt("attention", draw, divergence),), mask=wide.step_mask)
    leaves = model.parameters if not is_prior else (model.prior_scores, model.values, model.readout)
    return Outcomes(evaluation, probability, leaves)


def gradient(objective: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients that are zero where nothing depends on a leaf."""
    found = torch.autograd.grad(objective, leaves, allow_unused=True, retain_graph=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True))


def largest_difference(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> float:
    """Largest absolute difference of two gradients."""
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
