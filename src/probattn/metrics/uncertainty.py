"""How uncertain predictions are over draws, and whether the uncertain ones are the wrong ones.

Sizes: K draws, N examples, C classes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.metrics.inputs import require_draws, require_flags, require_per_example
from probattn.metrics.optional import import_for_eval

__all__ = [
    "ErrorDetection",
    "PAvPU",
    "RiskCoverage",
    "error_detection",
    "expected_entropy",
    "mutual_information",
    "p_value_of_top_two",
    "pavpu",
    "predictive_entropy",
    "risk_coverage",
    "top_two",
    "top_two_p_value",
]


@dataclass(frozen=True)
class PAvPU:
    """Patch accuracy versus patch uncertainty, with the two conditional shares of Mukhoti and Gal 2018.

    Attributes:
        value: (n_ac + n_iu) / N, the share of examples that are accurate and certain or inaccurate and uncertain.
        accurate_if_certain: n_ac / (n_ac + n_ic); 1 if nothing is certain, since then no certain answer is wrong.
        uncertain_if_inaccurate: n_iu / (n_ic + n_iu); 1 if nothing is inaccurate, since then no error is missed.
    """

    value: float
    accurate_if_certain: float
    uncertain_if_inaccurate: float


@dataclass(frozen=True)
class ErrorDetection:
    """How well uncertainty tells wrong answers from right ones; both NaN if all are wrong or all are right.

    Attributes:
        auroc: Chance that a wrong answer is more uncertain than a right one, ties half; 0.5 is chance.
        aupr: Average precision with the wrong answers as positives; the share of wrong answers is chance.
    """

    auroc: float
    aupr: float


@dataclass(frozen=True)
class RiskCoverage:
    """Share of wrong answers among the least uncertain ones.

    Attributes:
        coverage: (N) float64, i / N for i = 1 to N.
        risk: (N) float64, share of wrong answers among the i least uncertain.
        area: Mean of the risk over i (AURC); lower is better. It falls with the share of wrong answers too.
    """

    coverage: Tensor
    risk: Tensor
    area: float


def predictive_entropy(probs: Tensor) -> Tensor:
    """Entropy of the mean prediction, H(1/K Σ_k p_k), in nats: the whole uncertainty.

    Args:
        probs: (K, N, C).

    Returns:
        (N) float64.

    Example:
        >>> predictive_entropy(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        tensor([0.6931], dtype=torch.float64)
    """
    require_draws(probs)
    return _entropy(probs.double().mean(dim=0))


def expected_entropy(probs: Tensor) -> Tensor:
    """Mean entropy of the predictions, 1/K Σ_k H(p_k), in nats: what is left when the draw is known.

    Args:
        probs: (K, N, C).

    Returns:
        (N) float64.

    Example:
        >>> expected_entropy(torch.tensor([[[0.5, 0.5]], [[0.0, 1.0]]]))
        tensor([0.3466], dtype=torch.float64)
    """
    require_draws(probs)
    return _entropy(probs.double()).mean(dim=0)


def mutual_information(probs: Tensor) -> Tensor:
    """Mutual information of prediction and draw in nats (BALD, Houlsby et al. 2011): how much the draws disagree.

    `predictive_entropy` - `expected_entropy`, at least 0 where rounding would put it below.

    Args:
        probs: (K, N, C).

    Returns:
        (N) float64.

    Example:
        >>> mutual_information(torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]))
        tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    return (predictive_entropy(probs) - expected_entropy(probs)).clamp(min=0.0)


def top_two_p_value(probs: Tensor, *, paired: bool = False) -> Tensor:
    """p-value of a t-test that the two most probable classes are equally probable (Fan et al. 2020, App. B.2.1).

    A small p-value says that the first place is certain. It falls with the number of draws: compare at one K. The two
    classes are those with the highest mean probability over draws.

    Args:
        probs: (K, N, C) with K ≥ 2 and C ≥ 2.
        paired: False: two-sample t-test of the two probabilities, as the paper says, with pooled variances. It treats
            the two as independent, although they come from the same draws. True: paired t-test of the two scores, as
            in the released code. A difference of scores is one of log-probabilities, so scores are not needed; a
            probability of zero counts as the smallest normal number of its type.

    Returns:
        (N) float64. Where no draw differs from another, 0 if the two means differ and 1 if they are equal.

    Raises:
        ValueError: If there are fewer than two draws or classes, or probs are no distributions.

    Example:
        >>> probs = torch.tensor([[[0.7, 0.3], [0.7, 0.3]], [[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.5, 0.5]]])
        >>> top_two_p_value(probs) < 0.05
        tensor([ True, False])
    """
    require_draws(probs)
    draws, _, classes = probs.shape
    if draws < 2 or classes < 2:
        raise ValueError(
            f"a t-test between two classes needs at least 2 draws and 2 classes, got {draws} and {classes}; predict "
            "with more draws"
        )
    return p_value_of_top_two(top_two(probs), paired=paired)


def top_two(probs: Tensor) -> Tensor:
    """Probabilities in every draw of the two classes with the highest mean over draws.

    Args:
        probs: (K, N, C) with C ≥ 2.

    Returns:
        (K, N, 2), the more probable class first.
    """
    places = probs.detach().double().mean(dim=0).topk(2, dim=-1).indices  # (N, 2)
    return probs.detach().gather(-1, places.expand(len(probs), -1, -1))


def p_value_of_top_two(top: Tensor, *, paired: bool = False) -> Tensor:
    """The p-value of `top_two_p_value` where only the `top_two` were kept.

    Args:
        top: (K, N, 2) with K ≥ 2.
        paired: As there.

    Returns:
        (N) float64.
    """
    draws = len(top)
    if paired:
        logs = top.clamp(min=torch.finfo(top.dtype).tiny).double().log()
        first, second = logs[..., 0] - logs[..., 1], torch.zeros_like(logs[..., 0])  # (K, N)
        freedom = draws - 1
    else:
        first, second = top.double().unbind(dim=-1)  # (K, N)
        freedom = 2 * (draws - 1)
    (first_mean, first_variance), (second_mean, second_variance) = _moments(first), _moments(second)
    difference = first_mean - second_mean
    statistic = difference.abs() / ((first_variance + second_variance) / draws).sqrt()
    tail = import_for_eval("scipy.stats").t.sf(statistic.cpu().numpy(), freedom)
    # without variance the statistic is infinite, or 0 / 0 where the means are equal
    return torch.where(difference == 0.0, 1.0, 2.0 * torch.as_tensor(tail, device=top.device))


def pavpu(accuracy: Tensor, is_certain: Tensor) -> PAvPU:
    """PAvPU = (n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu) of Fan et al. 2020, App. B.2.1.

    n_ac = Σ Acc · Cer, n_au = Σ Acc (1 - Cer), n_ic = Σ (1 - Acc) Cer, n_iu = Σ (1 - Acc)(1 - Cer), where Acc may lie
    between 0 and 1, as for questions with several right answers.

    Args:
        accuracy: (N) booleans, or numbers from 0 to 1.
        is_certain: (N) bool, such as `top_two_p_value(probs) < 0.05`.

    Raises:
        ValueError: If an accuracy is not between 0 and 1, or the sizes differ.

    Example:
        >>> pavpu(torch.tensor([1.0, 1.0, 0.0, 0.5]), torch.tensor([True, False, False, True])).value
        0.625
    """
    require_per_example("accuracy", accuracy)
    require_flags("is_certain", is_certain, examples=len(accuracy))
    accurate, certain = accuracy.detach().double(), is_certain.double()
    if not bool(((accurate >= 0.0) & (accurate <= 1.0)).all()):
        raise ValueError(
            f"expected accuracy between 0 and 1, got {float(accurate.min()):.4g} to {float(accurate.max()):.4g}; "
            "divide percentages by 100"
        )
    accurate_certain = float((accurate * certain).sum())
    inaccurate_certain = float(((1.0 - accurate) * certain).sum())
    inaccurate_uncertain = float(((1.0 - accurate) * (1.0 - certain)).sum())
    return PAvPU(
        value=(accurate_certain + inaccurate_uncertain) / len(accurate),
        accurate_if_certain=_share(accurate_certain, inaccurate_certain),
        uncertain_if_inaccurate=_share(inaccurate_uncertain, inaccurate_certain),
    )


def error_detection(uncertainty: Tensor, is_wrong: Tensor) -> ErrorDetection:
    """Areas under the ROC and the precision-recall curve of uncertainty as a detector of wrong answers.

    Args:
        uncertainty: (N) any numbers, higher for less certain; only their order matters.
        is_wrong: (N) bool.

    Example:
        >>> error_detection(torch.tensor([0.1, 0.9, 0.4, 0.3]), torch.tensor([False, True, False, True])).auroc
        0.75
    """
    require_per_example("uncertainty", uncertainty)
    require_flags("is_wrong", is_wrong, examples=len(uncertainty))
    if bool(is_wrong.all()) or not bool(is_wrong.any()):
        return ErrorDetection(auroc=math.nan, aupr=math.nan)
    # ranks, since torchmetrics sends values outside [0, 1] through a sigmoid, where large ones become equal
    levels, rank = uncertainty.detach().unique(return_inverse=True)
    score = rank.double() / len(levels)
    functions = import_for_eval("torchmetrics.functional.classification")
    return ErrorDetection(
        auroc=float(functions.binary_auroc(score, is_wrong.long())),
        aupr=float(functions.binary_average_precision(score, is_wrong.long())),
    )


def risk_coverage(uncertainty: Tensor, is_wrong: Tensor) -> RiskCoverage:
    """Errors that remain if only the least uncertain examples are answered (Geifman et al. 2019).

    Examples of equal uncertainty share their errors evenly, so the curve does not depend on their order.

    Args:
        uncertainty: (N) any numbers, higher for less certain; only their order matters.
        is_wrong: (N) bool.

    Example:
        >>> risk_coverage(torch.tensor([0.1, 0.9, 0.4, 0.3]), torch.tensor([False, True, False, True])).risk
        tensor([0.0000, 0.5000, 0.3333, 0.5000], dtype=torch.float64)
    """
    require_per_example("uncertainty", uncertainty)
    require_flags("is_wrong", is_wrong, examples=len(uncertainty))
    _, level, count = uncertainty.detach().unique(return_inverse=True, return_counts=True)
    error_rate = level.bincount(is_wrong.double(), minlength=len(count)) / count
    errors = error_rate.repeat_interleave(count).cumsum(dim=0)  # (N), least uncertain first
    answered = torch.arange(1, len(errors) + 1, dtype=torch.float64, device=errors.device)
    risk = errors / answered
    return RiskCoverage(coverage=answered / len(errors), risk=risk, area=float(risk.mean()))


def _entropy(probs: Tensor) -> Tensor:
    return -torch.xlogy(probs, probs).sum(dim=-1)


def _moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over the first axis, around the first sample: equal samples have a variance of exactly 0."""
    shifted = samples - samples[0]
    return samples[0] + shifted.mean(dim=0), shifted.var(dim=0)


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest > 0.0 else 1.0
