"""Free bits: a KL that is not pressed below a floor.

max(KL, floor) per factor (Kingma et al. 2016), or per unit. It changes the loss and never the bound that is reported.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from probattn.core.arguments import require_choice
from probattn.core.records import Latent

__all__ = ["FreeBits"]


@dataclass(frozen=True)
class FreeBits:
    """max(KL, nats).

    Attributes:
        nats: The floor of one unit, or of one factor.
        per: "unit" compares the whole KL of a unit with the floor, "factor" each of its terms (each dimension of a
            Gaussian); the text VAEs' "target 8 nats with 32 dimensions" is FreeBits(8 / 32, per="factor").
    """

    nats: float
    per: Literal["unit", "factor"] = "unit"

    def __post_init__(self) -> None:
        require_choice("FreeBits(per)", self.per, ("unit", "factor"))

    def __call__(self, latent: Latent) -> Tensor:
        """(*unit) the KL with its floor, zero on padded units.

        Raises:
            ValueError: If terms are asked for that the site did not keep, or that do not belong to units.
        """
        return self._floored(latent) if latent.mask is None else self._floored(latent).masked_fill(~latent.mask, 0.0)

    def _floored(self, latent: Latent) -> Tensor:
        if self.per == "unit":
            return latent.kl.clamp(min=self.nats)
        if latent.kl_terms is None:
            raise ValueError(
                f"FreeBits(per='factor') needs the KL terms of site '{latent.name}'; build it with keeps_kl_terms="
                "True. A KL that is no sum of terms (Dirichlet, hard choices, one of your own) has none: use per='unit'"
            )
        unit = latent.kl.shape
        if latent.kl_terms.dim() <= len(unit) or latent.kl_terms.shape[: len(unit)] != unit:
            raise ValueError(
                f"FreeBits(per='factor') needs terms of shape (*unit, *factor) with unit {tuple(unit)}, got "
                f"{tuple(latent.kl_terms.shape)} from site '{latent.name}'; an edge list has none, use per='unit'"
            )
        terms = latent.kl_terms.clamp(min=self.nats)
        if latent.kl_terms_mask is not None:
            terms = terms.masked_fill(~latent.kl_terms_mask, 0.0)
        return terms.flatten(len(unit)).sum(dim=-1)
