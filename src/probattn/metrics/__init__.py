"""Metrics that no well-kept library ships, and thin wrappers over those that do."""

from probattn.metrics.alignment import alignment_accuracy, weights_entropy
from probattn.metrics.gradients import GradientNoise, gradient_noise

__all__ = ["GradientNoise", "alignment_accuracy", "gradient_noise", "weights_entropy"]
