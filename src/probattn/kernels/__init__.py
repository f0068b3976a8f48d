"""Fast paths with a plain-torch form of each."""

from probattn.kernels.graph_attention import graph_attention
from probattn.kernels.graph_reference import Dropout, GraphContext, graph_attention_reference
from probattn.kernels.latent_cross_entropy import Credit, latent_cross_entropy
from probattn.kernels.native import Status, build, is_active, status, switched
from probattn.kernels.noise import native_uniform
from probattn.kernels.self_test import self_test

__all__ = [
    "Credit",
    "Dropout",
    "GraphContext",
    "Status",
    "build",
    "graph_attention",
    "graph_attention_reference",
    "is_active",
    "latent_cross_entropy",
    "native_uniform",
    "self_test",
    "status",
    "switched",
]
