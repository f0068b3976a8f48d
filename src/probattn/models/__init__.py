"""Networks, one per file, built from `nn` and returning `Evaluation`."""

from probattn.models.recall import RecallInputs, RecallModel, RecallPrediction
from probattn.models.seq2seq import DecoderState, Encoded, Readout, Seq2Seq, StatePath

__all__ = [
    "DecoderState",
    "Encoded",
    "Readout",
    "RecallInputs",
    "RecallModel",
    "RecallPrediction",
    "Seq2Seq",
    "StatePath",
]
