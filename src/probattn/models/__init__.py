"""Networks, one per file, built from `nn` and returning `Evaluation`."""

from probattn.models.recall import RecallModel, RecallPrediction

__all__ = ["RecallModel", "RecallPrediction"]
