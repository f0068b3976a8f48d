"""Autoregressive priors over a memory: p(z_1:S) = prod_s p(z_s | z_<s) (DAVAM, Sec. III-A; GAVAM).

The network is any causal module: position s of its output may depend on positions up to s of its input. The input is
shifted by one here, so that the prior of z_s sees z_<s only.

Size letters: B examples, S positions, D features of a value, C codes.
"""

from collections.abc import Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.noise import fold_seed, fresh_seed
from probattn.core.records import Given
from probattn.core.support import Dense
from probattn.distributions import DiagonalGaussian, MaskedOneHot
from probattn.nn.causal_conv import Incremental
from probattn.nn.codebook import Codebook
from probattn.nn.conditionals import Conditional
from probattn.nn.soft_codebook import SoftCodebook

__all__ = ["AutoregressiveCategorical", "AutoregressiveGaussian", "truncated_logits"]

# Finite, because a distribution refuses infinite scores; exp of it is zero in float32.
_LOWEST = -1e4


class _Autoregressive(Conditional):
    """What both kinds share: the shift, and drawing one position after another."""

    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __init__(self, network: nn.Module, dim: int, *, detaches_value: bool = False):
        super().__init__()
        self.network = network
        self.detaches_value = detaches_value
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
        value = given.value[0].detach() if self.detaches_value else given.value[0]
        return self._distribution(self.network(self._shifted(value)), given.mask)

    def ancestral(
        self,
        batch_size: int,
        length: int,
        *,
        seed: Tensor | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
    ) -> Tensor:
        """Values drawn one position after another: (B, S, D).

        A network that is `Incremental` takes one step for every position; any other one is recomputed from the start.
        Both draw the same values, up to rounding.

        Args:
            batch_size: B.
            length: S.
            seed: () int64; drawn from torch's generator if absent.
            temperature: Below one draws are closer to the most probable value; 0 takes that value.
            top_p: Codes: draw from the most probable ones that have this probability together. Gaussians have none.
        """
        if temperature < 0.0 or not 0.0 < top_p <= 1.0:
            raise ValueError(f"wanted temperature >= 0 and 0 < top_p <= 1, got {temperature} and {top_p}")
        seed = fresh_seed(self.start.device) if seed is None else seed
        outputs = self._step_outputs if isinstance(self.network, Incremental) else self._whole_outputs
        values: list[Tensor] = []
        for position, output in enumerate(outputs(batch_size, values)):
            if position == length:
                break
            values.append(self._draw(output, fold_seed(seed, position), temperature, top_p))
        return torch.stack(values, dim=1) if values else self.start.new_zeros(batch_size, 0, self.start.shape[0])

    def _step_outputs(self, batch_size: int, values: list[Tensor]) -> Iterator[Tensor]:
        """(B, O) of position after position; the caller appends what it draws to `values`."""
        network = cast(Incremental, self.network)
        cache, x = network.begin(batch_size), self.start.expand(batch_size, -1)
        while True:
            output, cache = network.step(x, cache)
            yield output
            x = values[-1]

    def _whole_outputs(self, batch_size: int, values: list[Tensor]) -> Iterator[Tensor]:
        """The same from a network that only knows whole sequences."""
        while True:
            yield self.network(torch.stack([self.start.expand(batch_size, -1), *values], dim=1))[:, -1]

    def _shifted(self, values: Tensor) -> Tensor:
        start = self.start.expand(values.shape[0], 1, -1)
        return torch.cat([start, values[:, :-1]], dim=1)  # (B, S, D): position s holds z_(s-1)

    def _distribution(self, output: Tensor, mask: Tensor | None = None) -> Distribution:
        raise NotImplementedError

    def _draw(self, output: Tensor, seed: Tensor, temperature: float, top_p: float) -> Tensor:
        """(B, D) a value from the output (B, O) of one position."""
        raise NotImplementedError


class AutoregressiveCategorical(_Autoregressive):
    """A prior over the codes of a codebook, position by position.

    Args:
        network: Causal module (B, S, D) -> (B, S, C) of logits.
        codes: The codebook, shared with the posterior, so that a draw can be fed back: a `Codebook`, a
            `SoftCodebook`, or (C, D) codes.
        detaches_value: Whether earlier codes are constants to the prior, as which codes they are is to the encoder
            almost everywhere. False lets the KL's gradient through to the encoder, straight through the codes.
    """

    def __init__(self, network: nn.Module, codes: Tensor | Codebook | SoftCodebook, *, detaches_value: bool = True):
        table = codes if isinstance(codes, Tensor) else codes.codes
        super().__init__(network, table.shape[-1], detaches_value=detaches_value)
        if isinstance(codes, nn.Parameter):
            self.table: Tensor = codes
        elif isinstance(codes, Tensor):
            self.register_buffer("table", codes)
        self._books = () if isinstance(codes, Tensor) else (codes,)  # in a tuple: it is the posterior's, not ours

    @property
    def codes(self) -> Tensor:
        """(C, D)."""
        return self._books[0].codes if self._books else self.table

    def _distribution(self, output: Tensor, mask: Tensor | None = None) -> MaskedOneHot:
        return MaskedOneHot(output, Dense())

    def _draw(self, output: Tensor, seed: Tensor, temperature: float, top_p: float) -> Tensor:
        if temperature == 0.0:
            return self.codes[output.argmax(dim=-1)]
        logits = truncated_logits(output / temperature, top_p)
        # one row per sequence, as whole memories have it, so that noise does not depend on the batch's shape
        index = self._distribution(logits.unsqueeze(1)).draw_index(1, seed)[0, :, 0]
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

    def _draw(self, output: Tensor, seed: Tensor, temperature: float, top_p: float) -> Tensor:
        distribution = self._distribution(output.unsqueeze(1))
        noisy = distribution.draw_raw(1, seed)[0]
        return (distribution.location + temperature * (noisy - distribution.location))[:, 0]


def truncated_logits(logits: Tensor, top_p: float) -> Tensor:
    """Logits (..., C) with a value far below the best for all codes but the most probable ones that make up `top_p`.

    Example:
        >>> truncated_logits(torch.tensor([0.5, 0.3, 0.2]).log(), 0.6).exp()
        tensor([0.5000, 0.3000, 0.0000])
    """
    if top_p >= 1.0:
        return logits
    ordered, places = logits.sort(dim=-1, descending=True)
    before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
    ordered = torch.where(before >= top_p, ordered[..., :1] + _LOWEST, ordered)  # far below the best, whatever that is
    return torch.empty_like(logits).scatter_(-1, places, ordered)
