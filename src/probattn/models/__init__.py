"""Networks, one per file, built from `nn` and returning `Evaluation`."""

from probattn.models.recall import RecallInputs, RecallModel, RecallPrediction
from probattn.models.recurrence import DecoderState
from probattn.models.seq2seq import Encoded, Readout, Seq2Seq, StatePath
from probattn.models.text_vae import Attended, MemoryVae, ReadText, SentenceVae
from probattn.models.ved import DroppedEmbedding, Ved, VedSource

__all__ = [
    "Attended",
    "DecoderState",
    "DroppedEmbedding",
    "Encoded",
    "MemoryVae",
    "ReadText",
    "Readout",
    "RecallInputs",
    "RecallModel",
    "RecallPrediction",
    "SentenceVae",
    "Seq2Seq",
    "StatePath",
    "Ved",
    "VedSource",
]
