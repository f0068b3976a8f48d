"""Whether a latent variable is used.

The encoder may leave it at its prior (`kl_per_unit`, `active_units`, `latent_mutual_information`), and the decoder may
do without it (`bypass`). The posteriors are diagonal Gaussians. A *latent unit* is one dimension of the latent
variable, the unit of "active units" (Burda et al. 2016).

Sizes: N examples (or steps: flatten them, and leave out padded ones), Z latent units, V words of the vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.metrics.inputs import require_labels, require_log_probs

__all__ = ["Bypass", "active_units", "bypass", "kl_per_unit", "latent_mutual_information"]

# Numbers in float64 that one chunk holds at once: 32 MB.
_CHUNK = 2**22


@dataclass(frozen=True)
class Bypass:
    """What changes in the output when the latent variable is replaced by a draw from its prior. Batches add up.

    Attributes:
        divergence_sum: Jensen-Shannon divergences in nats, summed over target words.
        nll_rise_sum: Rise of the negative log-likelihood in nats, summed over target words.
        words: Number of target words.

    Example:
        >>> total = sum([Bypass(0.5, 3.0, 2), Bypass(0.1, 1.0, 2)], start=Bypass())
        >>> total.divergence, total.nll_rise
        (0.15, 1.0)
    """

    divergence_sum: float = 0.0
    nll_rise_sum: float = 0.0
    words: int = 0

    def __add__(self, other: "Bypass") -> "Bypass":
        return Bypass(
            divergence_sum=self.divergence_sum + other.divergence_sum,
            nll_rise_sum=self.nll_rise_sum + other.nll_rise_sum,
            words=self.words + other.words,
        )

    @property
    def divergence(self) -> float:
        """Mean Jensen-Shannon divergence per word in nats: 0 if the latent variable is ignored, at most log 2."""
        return self.divergence_sum / self._count()

    @property
    def nll_rise(self) -> float:
        """Mean rise per word in nats; negative if the prior's draw predicts the target better."""
        return self.nll_rise_sum / self._count()

    def _count(self) -> int:
        if self.words == 0:
            raise ValueError("a mean over target words needs at least one word; add batches, or look at the mask")
        return self.words


def active_units(posterior_means: Tensor, *, threshold: float = 0.01) -> int:
    """Latent units whose posterior mean moves with the example: Var_x(E_q[z_d | x]) ≥ threshold (Burda et al. 2016).

    Args:
        posterior_means: (N, Z) with N ≥ 2.
        threshold: Of the variance (the one that divides by N - 1).

    Returns:
        A number from 0 to Z. A unit that only changes its variance with the example does not count.

    Raises:
        ValueError: If there are fewer than two examples, no latent units, or a mean is not finite.

    Example:
        >>> active_units(torch.tensor([[0.0, 1.0, 0.10], [0.0, -1.0, 0.05]]))
        1
    """
    _require_matrix("posterior_means", posterior_means)
    if len(posterior_means) < 2:
        raise ValueError("active_units needs the posterior means of at least 2 examples, got 1; collect more batches")
    return int((posterior_means.detach().double().var(dim=0) >= threshold).sum())


def kl_per_unit(
    mean: Tensor, log_variance: Tensor, *, prior_mean: Tensor | None = None, prior_log_variance: Tensor | None = None
) -> Tensor:
    """KL(q ‖ p) of every latent unit in nats, averaged over examples; their sum is the KL per example.

    ½ (log σ_p² - log σ² + (σ² + (μ - μ_p)²) / σ_p² - 1) for each dimension.

    Args:
        mean: (N, Z) of the posteriors.
        log_variance: (N, Z), log of σ².
        prior_mean: Anything that broadcasts to (N, Z); None for zeros.
        prior_log_variance: Anything that broadcasts to (N, Z); None for zeros.

    Returns:
        (Z) float64.

    Raises:
        ValueError: If shapes do not fit or a number is not finite.

    Example:
        >>> kl_per_unit(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.zeros(2, 2))
        tensor([2.5000, 0.0000], dtype=torch.float64)
    """
    mean, log_variance = _require_posteriors(mean, log_variance)
    zero = mean.new_zeros(())
    centre = zero if prior_mean is None else prior_mean.detach().double()
    spread = zero if prior_log_variance is None else prior_log_variance.detach().double()
    moved = (log_variance.exp() + (mean - centre).square()) * (-spread).exp()
    terms = 0.5 * (spread - log_variance + moved - 1.0)  # (N, Z)
    if terms.shape != mean.shape:
        raise ValueError(
            f"expected a prior that broadcasts to the posteriors' {tuple(mean.shape)}, got one that makes it "
            f"{tuple(terms.shape)}"
        )
    return terms.mean(dim=0)


def latent_mutual_information(mean: Tensor, log_variance: Tensor, *, num_samples: int = 1, seed: int = 0) -> float:
    """Mutual information of example and latent variable under the aggregate posterior of these examples, in nats.

    1/N Σ_i [log q(z_i | x_i) - log 1/N Σ_j q(z_i | x_j)] with z_i ~ q(z | x_i). Both terms see the same sample, so the
    estimate never exceeds log N, and is 0 where all posteriors are equal; it may be slightly negative. He et al. 2019
    (lagging inference networks) replace the first term by its expectation, minus the analytic entropy; the mean stays
    the same, but single estimates may exceed log N. It grows with N: say N with the number. Not to be confused with the
    `mutual_information` of `metrics.uncertainty`, which is that of a prediction and a draw.

    Args:
        mean: (N, Z) of the posteriors.
        log_variance: (N, Z), log of σ².
        num_samples: Samples for each example.
        seed: Of the noise, which is made on the CPU, so that every device has the same.

    Returns:
        At most log N.

    Raises:
        ValueError: If shapes do not fit, a number is not finite, or there are no samples.

    Example:
        >>> far = torch.tensor([[-50.0], [0.0], [50.0], [100.0]])
        >>> round(latent_mutual_information(far, torch.zeros(4, 1)), 4)  # log 4
        1.3863
    """
    mean, log_variance = _require_posteriors(mean, log_variance)
    if num_samples < 1:
        raise ValueError(f"latent_mutual_information needs at least 1 sample for each example, got {num_samples}")
    examples, units = mean.shape
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for _ in range(num_samples):
        noise = torch.randn(examples, units, generator=generator, dtype=torch.float64).to(mean.device)
        value = mean + (0.5 * log_variance).exp() * noise  # (N, Z)
        for rows in _row_chunks(examples, width=examples * units):
            log_density = _log_densities(value[rows], mean, log_variance)  # (rows, N)
            own = log_density[:, rows].diagonal()
            total += float((own - log_density.logsumexp(dim=1) + math.log(examples)).sum())
    return total / (num_samples * examples)


def bypass(log_probs_posterior: Tensor, log_probs_prior: Tensor, *, targets: Tensor, mask: Tensor) -> Bypass:
    """How much the predicted words change when the latent variable is drawn from the prior instead of the posterior.

    At each target word the two predictions P and Q, given the same previous words, are compared by their Jensen-Shannon
    divergence ½ KL(P ‖ M) + ½ KL(Q ‖ M), M = ½ (P + Q), and by the log-probability of the word. Zero says that the
    decoder goes around the latent variable, as it can where attention reads the source deterministically (Bahuleyan et
    al. 2018, Sec. 2.4).

    Args:
        log_probs_posterior: (*unit, V), with the latent variable from its posterior (or at the posterior's mean).
        log_probs_prior: (*unit, V), with a draw from the prior.
        targets: (*unit) int64.
        mask: (*unit) bool, False for padding, where everything else may be anything.

    Returns:
        Sums over the words of this batch, to be added to those of others. The rise is infinite where only the prior
        gives a target probability zero.

    Raises:
        ValueError: If shapes differ, or a word that counts has no distribution or no valid target.

    Example:
        >>> sure, unsure = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
        >>> one = bypass(sure, unsure, targets=torch.tensor([0]), mask=torch.tensor([True]))
        >>> round(one.divergence, 4), round(one.nll_rise, 4)
        (0.1017, 0.5878)
    """
    _require_predictions(log_probs_posterior, log_probs_prior, targets=targets, mask=mask)
    total = Bypass()
    position = mask.flatten().nonzero().squeeze(-1)  # (words)
    vocabulary = log_probs_posterior.shape[-1]
    for rows in _row_chunks(len(position), width=vocabulary):
        chosen = position[rows]
        words = targets.flatten()[chosen].long()
        first, second = (
            _checked(log_probs.detach().reshape(-1, vocabulary)[chosen], words)
            for log_probs in (log_probs_posterior, log_probs_prior)
        )
        of_first, of_second = (each.gather(-1, words.unsqueeze(-1)).squeeze(-1) for each in (first, second))
        # equal ones, also two of -inf, make no difference
        rise = torch.where(of_first == of_second, 0.0, of_first - of_second)
        total += Bypass(float(_jensen_shannon(first, second).sum()), float(rise.sum()), len(chosen))
    return total


def _jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """(rows) from log-probabilities (rows, V); rounding may not push it below 0 or above log 2."""
    middle = torch.logaddexp(first, second) - math.log(2.0)
    halves = [torch.where(each == -math.inf, 0.0, each.exp() * (each - middle)).sum(dim=-1) for each in (first, second)]
    return (0.5 * (halves[0] + halves[1])).clamp(min=0.0, max=math.log(2.0))


def _log_densities(value: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """(rows, N) log q(value_i | x_j) up to a constant, for values (rows, Z) and posteriors (N, Z)."""
    standard = (value.unsqueeze(1) - mean) * (-0.5 * log_variance).exp()  # (rows, N, Z)
    return -0.5 * (standard.square().sum(dim=-1) + log_variance.sum(dim=-1))


def _row_chunks(rows: int, *, width: int) -> Iterator[slice]:
    """Slices of as many rows of `width` numbers as fit in a chunk, at least one."""
    size = max(1, _CHUNK // width)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _checked(log_probs: Tensor, words: Tensor) -> Tensor:
    require_log_probs(log_probs)
    require_labels(words, log_probs)
    return log_probs.double()


def _require_predictions(posterior: Tensor, prior: Tensor, *, targets: Tensor, mask: Tensor) -> None:
    unit = posterior.shape[:-1]
    if posterior.dim() < 2 or prior.shape != posterior.shape or targets.shape != unit or mask.shape != unit:
        raise ValueError(
            "expected log-probabilities of one shape (*unit, V), targets and mask of shape (*unit), got "
            f"{tuple(posterior.shape)}, {tuple(prior.shape)}, {tuple(targets.shape)} and {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"expected a mask of booleans, True at the words that count, got {mask.dtype}")


def _require_posteriors(mean: Tensor, log_variance: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, without gradients."""
    _require_matrix("mean", mean)
    _require_matrix("log_variance", log_variance)
    if mean.shape != log_variance.shape:
        raise ValueError(
            f"expected mean and log_variance of one shape (N, Z), got {tuple(mean.shape)} and "
            f"{tuple(log_variance.shape)}; expand the one that is shared"
        )
    return mean.detach().double(), log_variance.detach().double()


def _require_matrix(name: str, tensor: Tensor) -> None:
    if tensor.dim() != 2 or tensor.numel() == 0:
        raise ValueError(
            f"expected {name} of shape (N, Z), none of them 0, got {tuple(tensor.shape)}; flatten steps into N"
        )
    if not bool(tensor.isfinite().all()):
        raise ValueError(
            f"expected {name} of finite numbers, got {int((~tensor.isfinite()).sum())} that are not; look for them in "
            "the model, and leave out padded positions"
        )
