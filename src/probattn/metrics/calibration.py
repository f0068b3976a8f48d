"""Whether predicted probabilities are right on average, and a temperature that makes them so.

Sizes: N examples, C classes, B bins.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.metrics.inputs import require_labels, require_log_probs, require_probs
from probattn.metrics.optional import import_for_eval

__all__ = [
    "MAX_TEMPERATURE",
    "MIN_TEMPERATURE",
    "ReliabilityBins",
    "at_temperature",
    "brier_score",
    "expected_calibration_error",
    "fit_temperature",
    "mean_nll",
    "reliability_bins",
]

MIN_TEMPERATURE = 0.01
MAX_TEMPERATURE = 100.0


@dataclass(frozen=True)
class ReliabilityBins:
    """A reliability diagram: predictions grouped by confidence, the probability of the predicted class.

    Attributes:
        edges: (B + 1) from 0 to 1; bin b holds confidences from edges[b] up to, but without, edges[b + 1]; the last
            one holds 1 too.
        count: (B) int64, examples in each bin.
        confidence: (B) mean confidence; 0 where the bin is empty.
        accuracy: (B) share of right predictions; 0 where the bin is empty.
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def expected_calibration_error(probs: Tensor, labels: Tensor, *, num_bins: int = 15) -> float:
    """Σ_b count_b / N · |accuracy_b - confidence_b| over bins of equal width (Guo et al. 2017, Sec. 2).

    Args:
        probs: (N, C) with C ≥ 2.
        labels: (N) int64.
        num_bins: B.

    Returns:
        A number between 0 and 1; 0 is perfect. It moves with the number of bins: say it with the number.

    Raises:
        ValueError: If probs are no distributions, labels out of range, or there are no bins.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
        >>> round(expected_calibration_error(probs, torch.tensor([0, 1, 1, 1])), 4)
        0.375
    """
    _require_binnable(probs, labels, num_bins)
    functions = import_for_eval("torchmetrics.functional.classification")
    error = functions.multiclass_calibration_error(
        _below_one(probs), labels.long(), num_classes=probs.shape[-1], n_bins=num_bins, norm="l1"
    )
    return float(error)


def reliability_bins(probs: Tensor, labels: Tensor, *, num_bins: int = 15) -> ReliabilityBins:
    """The bins whose weighted gaps are the `expected_calibration_error` of the same arguments.

    Args:
        probs: (N, C) with C ≥ 2.
        labels: (N) int64.
        num_bins: B.

    Example:
        >>> bins = reliability_bins(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), num_bins=2)
        >>> bins.count, bins.accuracy
        (tensor([0, 2]), tensor([0.0000, 0.5000]))
    """
    _require_binnable(probs, labels, num_bins)
    confidence, predicted = _below_one(probs).max(dim=-1)
    edges = torch.linspace(0.0, 1.0, num_bins + 1, device=probs.device)
    index = torch.bucketize(confidence, edges, right=True) - 1
    count = index.bincount(minlength=num_bins)
    filled = count.clamp(min=1)
    return ReliabilityBins(
        edges=edges,
        count=count,
        confidence=index.bincount(confidence, minlength=num_bins) / filled,
        accuracy=index.bincount((predicted == labels).float(), minlength=num_bins) / filled,
    )


def brier_score(probs: Tensor, labels: Tensor) -> float:
    """Squared distance of the probabilities from the one-hot label: summed over classes, mean over examples.

    Args:
        probs: (N, C).
        labels: (N) int64.

    Returns:
        A number between 0 and 2; 0 is perfect. Some authors divide by C.

    Example:
        >>> round(brier_score(torch.tensor([[0.8, 0.2]]), torch.tensor([0])), 4)
        0.08
    """
    require_probs(probs)
    require_labels(labels, probs)
    one_hot = torch.nn.functional.one_hot(labels.long(), probs.shape[-1])
    return float((probs.detach().double() - one_hot).square().sum(dim=-1).mean())


def mean_nll(log_probs: Tensor, labels: Tensor) -> float:
    """Mean negative log-probability of the labels in nats; infinite if a label has probability zero.

    Args:
        log_probs: (N, C).
        labels: (N) int64.

    Example:
        >>> round(mean_nll(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log(), torch.tensor([0, 0])), 4)
        1.0397
    """
    require_log_probs(log_probs)
    require_labels(labels, log_probs)
    return -float(_of_labels(log_probs, labels).mean())


def at_temperature(log_probs: Tensor, temperature: float) -> Tensor:
    """Log-probabilities divided by a temperature and normalised again (Guo et al. 2017, Sec. 4.2).

    Above 1 they get flatter, below 1 sharper; the most probable class stays.

    Args:
        log_probs: (*unit, C).
        temperature: Positive.

    Returns:
        (*unit, C).

    Example:
        >>> at_temperature(torch.tensor([0.8, 0.2]).log(), 2.0).exp()
        tensor([0.6667, 0.3333])
    """
    if not 0.0 < temperature < math.inf:
        raise ValueError(f"expected a positive, finite temperature, got {temperature}; 1.0 changes nothing")
    return (log_probs / temperature).log_softmax(dim=-1)


def fit_temperature(log_probs: Tensor, labels: Tensor) -> float:
    """The temperature T with the lowest `mean_nll` (Guo et al. 2017, Sec. 4.2); use validation examples.

    The loss is convex in 1/T, so its slope changes sign once, and halving an interval of log T finds where.

    Args:
        log_probs: (N, C).
        labels: (N) int64.

    Returns:
        T between `MIN_TEMPERATURE` and `MAX_TEMPERATURE`. A result equal to one of them says that the loss falls up to
        there: to the lower one if every label is the most probable class (no T > 0 is best), to the upper one if a
        uniform prediction is better than any sharper one. 1.0 if every prediction is uniform: then all T are alike.

    Raises:
        ValueError: If a label has probability zero, since then no temperature has a finite loss.

    Example:
        >>> log_probs = torch.tensor([0.9, 0.1]).log().expand(4, 2)  # says 0.9 and is right 3 times of 4
        >>> round(fit_temperature(log_probs, torch.tensor([0, 0, 0, 1])), 4)
        2.0
    """
    require_log_probs(log_probs)
    require_labels(labels, log_probs)
    impossible = int(_of_labels(log_probs, labels).isinf().sum())
    if impossible:
        raise ValueError(
            f"expected labels of positive probability, got {impossible} of {len(labels)} with log-probability -inf; "
            "take the log-probabilities from scores.log_softmax(-1), which does not underflow"
        )
    # (N, C) how far each class is above the label; the loss is the mean of logsumexp(gaps / T)
    gaps = log_probs.detach().double() - _of_labels(log_probs, labels).unsqueeze(-1)
    if bool((gaps == 0.0).all()):
        return 1.0
    if _slope(gaps, MIN_TEMPERATURE) <= 0.0:
        return MIN_TEMPERATURE
    if _slope(gaps, MAX_TEMPERATURE) >= 0.0:
        return MAX_TEMPERATURE
    low, high = math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)
    for _ in range(50):
        middle = (low + high) / 2.0
        if _slope(gaps, math.exp(middle)) > 0.0:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2.0)


def _slope(gaps: Tensor, temperature: float) -> float:
    """Derivative of the mean loss with respect to 1/T; positive where the predictions are too sharp."""
    weights = (gaps / temperature).softmax(dim=-1)
    # classes of probability zero have weight 0 and gap -inf, whose product would be NaN
    return float((weights * gaps.masked_fill(gaps.isinf(), 0.0)).sum(dim=-1).mean())


def _of_labels(log_probs: Tensor, labels: Tensor) -> Tensor:
    """(N) log-probabilities of the labels, in float64 and without gradients."""
    return log_probs.detach().double().gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)


def _require_binnable(probs: Tensor, labels: Tensor, num_bins: int) -> None:
    require_probs(probs)
    require_labels(labels, probs)
    if probs.shape[-1] < 2:
        raise ValueError("expected probs of two or more classes, got one; for a yes-no question pass both columns")
    if num_bins < 1:
        raise ValueError(f"expected num_bins of at least 1, got {num_bins}")


def _below_one(probs: Tensor) -> Tensor:
    """Probabilities in [0, 1) and in float32, as torchmetrics bins them.

    It has an extra bin for a confidence of exactly 1, which confident models reach, and takes probabilities that
    rounding has put above 1 or below 0 for scores.
    """
    return probs.detach().float().clamp(0.0, 1.0 - torch.finfo(torch.float32).eps / 2)
