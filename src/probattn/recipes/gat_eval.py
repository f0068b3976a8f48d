"""What a trained graph network predicts, how sure it is, and how right it is to be sure.

Metrics are named condition/mode/number, e.g. "clean/noise/ece". Conditions: "clean" features, or "noisy" ones. Modes:

- "mean": plug-in weights, no dropout: the paper's prediction.
- "dropout", "noise", "both": the mean over draws of dropout masks, of attention weights, or of both. These have
  numbers of uncertainty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core import Estimator, Mean, Pathwise, Segments
from probattn.metrics import (
    at_temperature,
    error_detection,
    expected_calibration_error,
    fit_temperature,
    mean_nll,
    mutual_information,
    pavpu,
    predictive_entropy,
    top_two_p_value,
)
from probattn.models.gat import GAT
from probattn.nn import SparseRows, dropping

__all__ = ["Inputs", "compact", "drawn_log_probs", "evaluate", "predict_metrics", "uncertainty_metrics"]

MODES = {"mean": (False, False), "dropout": (False, True), "noise": (True, False), "both": (True, True)}
"""Whether attention noise and dropout are on."""
THRESHOLDS = (0.01, 0.05, 0.1)
"""Of the p-value below which a prediction counts as certain."""
SPARSE_BELOW = 0.25
"""Features with a smaller share of entries that are not zero are multiplied as sparse ones."""
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Inputs:
    """One condition of the test.

    Attributes:
        features: (N, F).
        support: Neighbourhoods.
        labels: (N).
        valid: (n) nodes on which the temperature is fitted.
        test: (n) nodes that are reported.
    """

    features: Tensor | SparseRows
    support: Segments
    labels: Tensor
    valid: Tensor
    test: Tensor


def compact(features: Tensor) -> Tensor | SparseRows:
    """Features as the network multiplies them fastest."""
    share = float((features != 0).double().mean())
    return SparseRows.from_dense(features) if share < SPARSE_BELOW else features


@torch.no_grad()
def drawn_log_probs(
    model: GAT, inputs: Inputs, *, has_noise: bool, has_dropout: bool, draws: int, seed: int = 0
) -> Tensor:
    """(K, N, C) log-probabilities of all nodes; dropout and attention noise are switched separately."""
    estimator: Estimator = Pathwise(keeps_log_probs=False) if has_noise else Mean()
    estimators = dict.fromkeys(model.names, estimator)
    with torch.random.fork_rng(devices=[]), dropping(model, has_dropout):
        torch.manual_seed(seed)
        logits = [model.predict(inputs.features, inputs.support, estimators=estimators) for _ in range(draws)]
    return torch.log_softmax(torch.stack(logits).double(), dim=-1)


def evaluate(
    model: GAT, conditions: Mapping[str, Inputs], *, modes: Mapping[str, Sequence[str]], draws: int
) -> dict[str, float]:
    """Metrics of every condition and mode.

    Args:
        model: With the chosen weights.
        conditions: Inputs by the condition's name. Temperatures are fitted on the validation nodes of "clean".
        modes: Those of each condition, "mean" first; a mode of another condition is also one of "clean", which comes
            first.
        draws: K, where a mode is random.
    """
    model.eval()
    metrics: dict[str, float] = {}
    temperatures: dict[str, float] = {}
    for condition, inputs in conditions.items():
        for mode in modes[condition]:
            has_noise, has_dropout = MODES[mode]
            count = draws if has_noise or has_dropout else 1
            drawn = drawn_log_probs(model, inputs, has_noise=has_noise, has_dropout=has_dropout, draws=count)
            mixed = _mixed(drawn)
            if condition == "clean":
                temperatures[mode] = fit_temperature(mixed[inputs.valid], inputs.labels[inputs.valid])
                metrics[f"{mode}/temperature"] = temperatures[mode]
            numbers = predict_metrics(mixed[inputs.test], inputs.labels[inputs.test], temperatures[mode])
            is_right = mixed[inputs.test].argmax(dim=-1) == inputs.labels[inputs.test]
            if mode == "mean":
                is_plug_in_right = is_right
            if count > 1:
                numbers |= uncertainty_metrics(drawn[:, inputs.test].exp(), is_right, is_plug_in_right)
            metrics |= {f"{condition}/{mode}/{name}": value for name, value in numbers.items()}
    return metrics


def predict_metrics(log_probs: Tensor, labels: Tensor, temperature: float) -> dict[str, float]:
    """Accuracy, NLL and calibration error, the latter two also after temperature scaling.

    Args:
        log_probs: (n, C) of the mean prediction.
        labels: (n).
        temperature: Fitted on other nodes.
    """
    scaled = at_temperature(log_probs, temperature)
    return {
        "accuracy": float((log_probs.argmax(dim=-1) == labels).double().mean()),
        "nll": mean_nll(log_probs, labels),
        "ece": expected_calibration_error(log_probs.exp(), labels),
        "scaled_nll": mean_nll(scaled, labels),
        "scaled_ece": expected_calibration_error(scaled.exp(), labels),
    }


def uncertainty_metrics(probs: Tensor, is_right: Tensor, is_plug_in_right: Tensor) -> dict[str, float]:
    """Entropy, mutual information, how well they find errors, and PAvPU in two forms at three thresholds.

    "pavpu": two-sample test, accuracy of the mean over draws (the paper). "paired_pavpu": paired test, accuracy of the
    plug-in prediction (its code).

    Args:
        probs: (K, n, C) of every draw.
        is_right: (n) whether their mean predicts the label.
        is_plug_in_right: (n) whether plug-in weights without dropout do.
    """
    entropy, information = predictive_entropy(probs), mutual_information(probs)
    numbers = {
        "entropy": float(entropy.mean()),
        "mutual_information": float(information.mean()),
        "entropy_auroc": error_detection(entropy, ~is_right).auroc,
    }
    if float(information.max()) > _ROUNDING:  # else the draws are equal, and their order is one of rounding errors
        numbers["mutual_information_auroc"] = error_detection(information, ~is_right).auroc
    for name, paired, accuracy in (("pavpu", False, is_right), ("paired_pavpu", True, is_plug_in_right)):
        p_value = top_two_p_value(probs, paired=paired)
        for threshold in THRESHOLDS:
            numbers[f"{name}_{threshold}"] = pavpu(accuracy, p_value < threshold).value
    return numbers


def _mixed(log_probs: Tensor) -> Tensor:
    """(N, C) logarithm of the mean probability over draws."""
    return torch.logsumexp(log_probs, dim=0) - torch.tensor(float(len(log_probs))).log()
