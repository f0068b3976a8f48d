"""Fast paths with a plain-torch form of each."""

from probattn.kernels.latent_cross_entropy import Credit, latent_cross_entropy

__all__ = ["Credit", "latent_cross_entropy"]
