"""Numbers of one set of predictions: how right they are, how calibrated, and whether errors are the unsure ones.

Sizes: K draws, N examples, C classes.
"""

import math

import torch
from torch import Tensor

from probattn.metrics import (
    at_temperature,
    brier_score,
    error_detection,
    expected_calibration_error,
    mean_nll,
    pavpu,
    risk_coverage,
)
from probattn.metrics.optional import import_for_eval
from probattn.metrics.uncertainty import p_value_of_top_two
from probattn.predict import Prediction

__all__ = [
    "CERTAIN_BELOW",
    "LARGE_ERROR",
    "class_scores",
    "information_scores",
    "log_probabilities",
    "score_scores",
]

CERTAIN_BELOW = 0.05
"""A prediction is certain where the p-value of its two best classes is smaller."""
LARGE_ERROR = 1.0
"""A predicted score is wrong where it is off by more points."""
_SAME_SCORES = 1e-6  # variance of predicted scores: draws whose spread is not larger are equal
_SAME_CLASSES = 1e-10  # the same in nats of mutual information, which float32 logits round at about 1e-11


def log_probabilities(prediction: Prediction) -> Tensor:
    """(N, C), finite."""
    return prediction.probabilities.clamp(min=torch.finfo(torch.float64).tiny).log()


def class_scores(
    prediction: Prediction,
    labels: Tensor,
    temperature: float | None = None,
    *,
    certain_entropy: float | None = None,
) -> dict[str, float]:
    """Of predicted classes.

    PAvPU is that of the paper (two-sample test) and, "paired", that of its code; both with the accuracy of these
    predictions. They need draws. "entropy_pavpu" needs none: certain is what has a lower entropy than others had.

    Args:
        prediction: Of N examples.
        labels: (N) int64.
        temperature: Fitted on other examples; adds likelihood and calibration after scaling.
        certain_entropy: Predictions with a lower entropy are certain; adds "entropy_pavpu".
    """
    is_wrong = prediction.labels != labels
    log_probs = log_probabilities(prediction)
    found = error_detection(prediction.predictive_entropy, is_wrong)
    numbers = {
        "accuracy": float((~is_wrong).double().mean()),
        "nll": mean_nll(log_probs, labels),
        "brier": brier_score(prediction.probabilities, labels),
        "ece": expected_calibration_error(prediction.probabilities, labels),
        "entropy": float(prediction.predictive_entropy.mean()),
        "entropy_auroc": found.auroc,
        "entropy_aupr": found.aupr,
        "risk_area": risk_coverage(prediction.predictive_entropy, is_wrong).area,
    }
    if prediction.probabilities.shape[-1] == 2:
        metrics = import_for_eval("torchmetrics.functional.classification")
        numbers["f1"] = float(metrics.binary_f1_score(prediction.labels, labels))
        is_constant = any(len(one.unique()) == 1 for one in (prediction.labels, labels))
        # torchmetrics has a value beside zero for constant predictions; a correlation with them is zero, as GLUE has it
        correlation = 0.0 if is_constant else float(metrics.binary_matthews_corrcoef(prediction.labels, labels))
        numbers["matthews"] = correlation
    if temperature is not None:
        scaled = at_temperature(log_probs, temperature)
        numbers |= {
            "scaled_nll": mean_nll(scaled, labels),
            "scaled_ece": expected_calibration_error(scaled.exp(), labels),
        }
    if certain_entropy is not None:
        is_certain = prediction.predictive_entropy < certain_entropy
        numbers["entropy_pavpu"] = pavpu(~is_wrong, is_certain).value
    return numbers | (_of_draws(prediction, is_wrong) if prediction.num_draws > 1 else {})


def _of_draws(prediction: Prediction, is_wrong: Tensor) -> dict[str, float]:
    paired = p_value_of_top_two(prediction.top_two, paired=True)
    return {
        "pavpu": pavpu(~is_wrong, prediction.p_value < CERTAIN_BELOW).value,
        "paired_pavpu": pavpu(~is_wrong, paired < CERTAIN_BELOW).value,
        **information_scores(prediction.mutual_information, is_wrong),
    }


def information_scores(information: Tensor, is_wrong: Tensor) -> dict[str, float]:
    """Of the mutual information (N) of prediction and draw: its mean, and how well it finds wrong predictions (N)."""
    numbers = {"mutual_information": float(information.mean())}
    if float(information.max()) <= _SAME_CLASSES:  # the draws are equal, and their order is one of rounding errors
        return numbers
    found = error_detection(information, is_wrong)
    return numbers | {
        "mutual_information_auroc": found.auroc,
        "mutual_information_aupr": found.aupr,
        "mutual_information_risk_area": risk_coverage(information, is_wrong).area,
    }


def score_scores(draws: Tensor, targets: Tensor, noise_variance: float) -> dict[str, float]:
    """Of predicted scores.

    The predictive distribution is a Gaussian around the mean over draws; its variance is that of the draws and, added
    to it, one number for all examples.

    Args:
        draws: (K, N).
        targets: (N).
        noise_variance: Mean squared error of the plug-in predictions of other examples.
    """
    stats = import_for_eval("scipy.stats")
    drawn, truth = draws.double(), targets.double()
    centre = drawn.mean(dim=0)
    spread = drawn.var(dim=0) if len(drawn) > 1 else torch.zeros_like(centre)
    variance = spread + noise_variance
    errors = centre - truth
    nll = 0.5 * ((2.0 * math.pi * variance).log() + errors.square() / variance)
    numbers = {
        "pearson": float(stats.pearsonr(centre.numpy(), truth.numpy()).statistic),
        "spearman": float(stats.spearmanr(centre.numpy(), truth.numpy()).statistic),
        "mse": float(errors.square().mean()),
        "nll": float(nll.mean()),
    }
    if float(spread.max()) > _SAME_SCORES:
        is_wrong = errors.abs() > LARGE_ERROR
        found = error_detection(spread, is_wrong)
        numbers |= {
            "spread": float(spread.sqrt().mean()),
            "spread_auroc": found.auroc,
            "spread_aupr": found.aupr,
            "risk_area": risk_coverage(spread, is_wrong).area,
        }
    return numbers
