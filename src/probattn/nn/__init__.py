"""Scores, priors and posteriors, sites, attention, and the drop-in for torch's multi-head attention."""

from probattn.nn.attention import Attention, AttentionOutput
from probattn.nn.autoregressive import AutoregressiveCategorical, AutoregressiveGaussian
from probattn.nn.bottleneck import Bottleneck, BottleneckOutput, fold_particles, unfold_particles
from probattn.nn.causal_conv import CausalConvolutions, Incremental
from probattn.nn.cells import LayerNormLSTMCell, StackedLSTMCell
from probattn.nn.codebook import Codebook, Unquantised, k_means
from probattn.nn.conditionals import (
    Conditional,
    Fixed,
    FromScores,
    InferenceNetwork,
    KeyPrior,
    Uniform,
)
from probattn.nn.dropout import Dropout, dropping, evaluating
from probattn.nn.encoders import BiLSTM, SequenceEncoder
from probattn.nn.functional import AttentionResult, scaled_dot_product_attention
from probattn.nn.gaussian_conditionals import FromContext, GaussianHead, MeanMemory, StandardNormal
from probattn.nn.multihead import MultiheadAttention
from probattn.nn.reading import EvenReading, LastReading, PooledReading
from probattn.nn.recording import LatentRecord, record_latents
from probattn.nn.sampling import sampling, set_sampling
from probattn.nn.scores import Additive, Bilinear, Dot, GraphAdditive, Placed, Score
from probattn.nn.sharing import shared_prefix
from probattn.nn.site import Replay, Site, divergence
from probattn.nn.soft_codebook import SoftCodebook
from probattn.nn.sparse_rows import SparseRows

__all__ = [
    "Additive",
    "Attention",
    "AttentionOutput",
    "AttentionResult",
    "AutoregressiveCategorical",
    "AutoregressiveGaussian",
    "BiLSTM",
    "Bilinear",
    "Bottleneck",
    "BottleneckOutput",
    "CausalConvolutions",
    "Codebook",
    "Conditional",
    "Dot",
    "Dropout",
    "EvenReading",
    "Fixed",
    "FromContext",
    "FromScores",
    "GaussianHead",
    "GraphAdditive",
    "Incremental",
    "InferenceNetwork",
    "KeyPrior",
    "LastReading",
    "LatentRecord",
    "LayerNormLSTMCell",
    "MeanMemory",
    "MultiheadAttention",
    "Placed",
    "PooledReading",
    "Replay",
    "Score",
    "SequenceEncoder",
    "Site",
    "SoftCodebook",
    "SparseRows",
    "StackedLSTMCell",
    "StandardNormal",
    "Uniform",
    "Unquantised",
    "divergence",
    "dropping",
    "evaluating",
    "fold_particles",
    "k_means",
    "record_latents",
    "sampling",
    "scaled_dot_product_attention",
    "set_sampling",
    "shared_prefix",
    "unfold_particles",
]
