"""Metrics that no well-kept library ships, and thin wrappers over those that do."""

from probattn.metrics.alignment import alignment_accuracy, weights_entropy
from probattn.metrics.alignment_error import alignment_error_rate, links_from_weights
from probattn.metrics.calibration import (
    ReliabilityBins,
    at_temperature,
    brier_score,
    expected_calibration_error,
    fit_temperature,
    mean_nll,
    reliability_bins,
)
from probattn.metrics.diversity import (
    corpus_distinct,
    corpus_unigram_entropy,
    distinct,
    distinct_of_joined,
    repetition,
    self_bleu,
    unigram_entropy,
)
from probattn.metrics.gradients import GradientNoise, gradient_noise
from probattn.metrics.latent_use import Bypass, active_units, bypass, kl_per_unit, latent_mutual_information
from probattn.metrics.perplexity import davam_ppl, elbo_ppl, exact_ppl, iw_ppl, predictive_ppl
from probattn.metrics.uncertainty import (
    ErrorDetection,
    PAvPU,
    RiskCoverage,
    error_detection,
    expected_entropy,
    mutual_information,
    pavpu,
    predictive_entropy,
    risk_coverage,
    top_two_p_value,
)

__all__ = [
    "Bypass",
    "ErrorDetection",
    "GradientNoise",
    "PAvPU",
    "ReliabilityBins",
    "RiskCoverage",
    "active_units",
    "alignment_accuracy",
    "alignment_error_rate",
    "at_temperature",
    "brier_score",
    "bypass",
    "corpus_distinct",
    "corpus_unigram_entropy",
    "davam_ppl",
    "distinct",
    "distinct_of_joined",
    "elbo_ppl",
    "error_detection",
    "exact_ppl",
    "expected_calibration_error",
    "expected_entropy",
    "fit_temperature",
    "gradient_noise",
    "iw_ppl",
    "kl_per_unit",
    "latent_mutual_information",
    "links_from_weights",
    "mean_nll",
    "mutual_information",
    "pavpu",
    "predictive_entropy",
    "predictive_ppl",
    "reliability_bins",
    "repetition",
    "risk_coverage",
    "self_bleu",
    "top_two_p_value",
    "unigram_entropy",
    "weights_entropy",
]
