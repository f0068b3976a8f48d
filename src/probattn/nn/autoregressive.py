"""Autoregressive priors over a memory: p(z_1:S) = prod_s p(z_s | z_<s) (DAVAM, Sec. III-A; GAVAM).

The network is any causal module: position s of its output may depend on positions up to s of its input. The input is
shifted by one here, so that the prior of z_s sees z_<s only.

Size letters: B examples, S positions, D features of a value, C codes.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.noise import fold_seed, fresh_seed
from probattn.core.records import Given
from probattn.core.support import Dense
from probattn.distributions import DiagonalGaussian, MaskedOneHot
from probattn.nn.conditionals import Conditional

__all__ = ["AutoregressiveCategorical", "AutoregressiveGaussian"]


class _Autoregressive(Conditional):
    """What both kinds share: the shift, and drawing one position after another."""

    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __init__(self, network: nn.Module, dim: int):
        super().__init__()
        self.network = network
        self.start = nn.Parameter(torch.zeros(dim))

    def forward(self, given: Given) -> Distribution:
        """The prior of every position given the draw's earlier positions. `given.value` is (1, B, S, D)."""
        if given.value is None:
            raise ValueError(
                "an autoregressive prior is evaluated after the draw, but Given.value is absent; the site fills it in"
            )
        if given.value.shape[0] != 1:
            raise ValueError(
                f"an autoregressive prior reads one trajectory, got {given.value.shape[0]} particles; "
                "fold them into the batch"
            )
        return self._distribution(self.network(self._shifted(given.value[0])), given.mask)

    def ancestral(self, batch_size: int, length: int, *, seed: Tensor | None = None) -> Tensor:
        """Values drawn one position after another: (B, S, D). Recomputes the network for every position.

        Args:
            batch_size: B.
            length: S.
            seed: () int64; drawn from torch's generator if absent.
        """
        seed = fresh_seed(self.start.device) if seed is None else seed
        values = self.start.new_zeros(batch_size, 0, self.start.shape[0])
        for position in range(length):
            padded = torch.cat([values, values.new_zeros(batch_size, 1, values.shape[-1])], dim=1)
            output = self.network(self._shifted(padded))[:, -1:]
            values = torch.cat([values, self._draw(output, fold_seed(seed, position))], dim=1)
        return values

    def _shifted(self, values: Tensor) -> Tensor:
        start = self.start.expand(values.shape[0], 1, -1)
        return torch.cat([start, values[:, :-1]], dim=1)  # (B, S, D): position s holds z_(s-1)

    def _distribution(self, output: Tensor, mask: Tensor | None = None) -> Distribution:
        raise NotImplementedError

    def _draw(self, output: Tensor, seed: Tensor) -> Tensor:
        raise NotImplementedError


class AutoregressiveCategorical(_Autoregressive):
    """A prior over the codes of a codebook, position by position.

    Args:
        network: Causal module (B, S, D) -> (B, S, C) of logits.
        codes: (C, D) the codebook; shared with the posterior, so that a draw can be fed back.
    """

    def __init__(self, network: nn.Module, codes: Tensor):
        super().__init__(network, codes.shape[-1])
        self.codes = codes

    def _distribution(self, output: Tensor, mask: Tensor | None = None) -> MaskedOneHot:
        return MaskedOneHot(output, Dense())

    def _draw(self, output: Tensor, seed: Tensor) -> Tensor:
        index = self._distribution(output).draw_index(1, seed)[0]  # (B, 1)
        return self.codes[index]


class AutoregressiveGaussian(_Autoregressive):
    """A Gaussian prior over continuous memories, position by position (GAVAM).

    Args:
        network: Causal module (B, S, D) -> (B, S, 2 D): mean and log-variance.
        dim: D.
    """

    def _distribution(self, output: Tensor, mask: Tensor | None = None) -> DiagonalGaussian:
        mean, log_variance = output.chunk(2, dim=-1)
        return DiagonalGaussian(mean, log_variance, mask=mask)

    def _draw(self, output: Tensor, seed: Tensor) -> Tensor:
        return self._distribution(output).draw_raw(1, seed)[0]
