"""Fast paths with a plain-torch form of each."""

from probattn.kernels.attention import SampledContext, sampled_attention
from probattn.kernels.attention_flex import flex_summary
from probattn.kernels.graph_attention import graph_attention
from probattn.kernels.graph_reference import Dropout, GraphContext, graph_attention_reference
from probattn.kernels.latent_cross_entropy import Credit, half_products, latent_cross_entropy
from probattn.kernels.latent_readout import latent_readout_loss
from probattn.kernels.native import Status, build, is_active, settle, status, switched
from probattn.kernels.noise import native_uniform
from probattn.kernels.row_readout import has_half_products
from probattn.kernels.self_test import self_test
from probattn.kernels.set_prior import SetPrior

__all__ = [
    "Credit",
    "Dropout",
    "GraphContext",
    "SampledContext",
    "SetPrior",
    "Status",
    "build",
    "flex_summary",
    "graph_attention",
    "graph_attention_reference",
    "half_products",
    "has_half_products",
    "is_active",
    "latent_cross_entropy",
    "latent_readout_loss",
    "native_uniform",
    "sampled_attention",
    "self_test",
    "settle",
    "status",
    "switched",
]
