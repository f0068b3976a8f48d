"""Metrics that no well-kept library ships, and thin wrappers over those that do."""

from probattn.metrics.alignment import alignment_accuracy, weights_entropy
from probattn.metrics.alignment_error import alignment_error_rate, links_from_weights
from probattn.metrics.gradients import GradientNoise, gradient_noise
from probattn.metrics.perplexity import elbo_ppl, exact_ppl, iw_ppl, predictive_ppl

__all__ = [
    "GradientNoise",
    "alignment_accuracy",
    "alignment_error_rate",
    "elbo_ppl",
    "exact_ppl",
    "gradient_noise",
    "iw_ppl",
    "links_from_weights",
    "predictive_ppl",
    "weights_entropy",
]
