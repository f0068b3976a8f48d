"""Vector-valued sites outside attention: one code per example, or one vector per position of a memory.

The code of a sentence (VED, text VAEs) has unit `example`; K codes of an example are K trajectories of a decoder, so
they are folded into the batch (`fold_particles`) and unfolded from its log-likelihoods.

Size letters: K particles, B examples, S positions, D features, Z width of the code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.estimators import Estimator
from probattn.core.records import Given, Latent, Memory
from probattn.core.support import Dense
from probattn.nn.site import Site

__all__ = ["Bottleneck", "BottleneckOutput", "fold_particles", "unfold_particles"]


@dataclass(frozen=True)
class BottleneckOutput:
    """The draw of a vector-valued site.

    Attributes:
        value: (K, *unit, Z) particles.
        expected: (*unit, Z) plug-in value under the predictive distribution.
        latents: The receipt, as a sequence of one.
    """

    value: Tensor
    expected: Tensor
    latents: Sequence[Latent]


class Bottleneck(nn.Module):
    """Turns an encoding into a random vector.

    Args:
        site: Its posterior reads `given.context`, e.g. GaussianHead; its prior is e.g. StandardNormal or
            autoregressive.
    """

    def __init__(self, site: Site):
        super().__init__()
        self.site = site

    def forward(
        self, encoding: Tensor, estimator: Estimator, *, mask: Tensor | None = None, seed: Tensor | None = None
    ) -> BottleneckOutput:
        """Visit the site.

        Args:
            encoding: (B, D) of a sentence, or (B, S, D) of a memory.
            estimator: How to turn the posterior into particles.
            mask: (B,) or (B, S) bool, False for padded positions, which cost nothing.
            seed: () int64; drawn from torch's generator if absent.
        """
        given = _given(encoding, mask)
        latent: Latent = self.site(given, estimator, seed=seed)
        if latent.draw.value is None:
            raise ValueError(f"the bottleneck '{self.site.name}' must draw vectors, got positions")
        return BottleneckOutput(latent.draw.value, self.site.expected(given), (latent,))

    def posterior(self, encoding: Tensor, *, mask: Tensor | None = None) -> Distribution:
        """The posterior of encodings (B, D) or (B, S, D), e.g. to count active units.

        Raises:
            ValueError: If the site has no posterior of its own.
        """
        if self.site.posterior is None:
            raise ValueError(f"site '{self.site.name}' has no posterior of its own")
        distribution: Distribution = self.site.posterior(_given(encoding, mask))
        return distribution


def _given(encoding: Tensor, mask: Tensor | None) -> Given:
    memory = Memory(keys=encoding, values=encoding, support=Dense())
    return Given(memory=memory, context=encoding, mask=mask)


def fold_particles(value: Tensor) -> Tensor:
    """(K, B, ...) to (K * B, ...), so that a decoder runs K trajectories of each example."""
    return value.flatten(0, 1)


def unfold_particles(folded: Tensor, num_particles: int) -> Tensor:
    """(K * B, ...) back to (K, B, ...).

    Raises:
        ValueError: If the first axis does not divide into `num_particles`.
    """
    if folded.shape[0] % num_particles != 0:
        raise ValueError(f"cannot unfold {folded.shape[0]} rows into {num_particles} particles")
    return folded.view(num_particles, folded.shape[0] // num_particles, *folded.shape[1:])
