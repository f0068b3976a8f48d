"""Free bits: a KL that is not pressed below a floor.

max(KL, floor) per factor (Kingma et al. 2016), or per unit. It changes the loss and never the bound that is reported.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

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

    def __call__(self, latent: Latent) -> Tensor:
        """(*unit) the KL with its floor.

        Raises:
            ValueError: If terms are asked for that the site did not keep.
        """
        if self.per == "unit":
            return latent.kl.clamp(min=self.nats)
        if latent.kl_terms is None:
            raise ValueError(
                f"FreeBits(per='factor') needs the KL terms of site '{latent.name}'; build it with keeps_kl_terms=True"
            )
        terms = latent.kl_terms.clamp(min=self.nats)
        return terms.flatten(latent.kl.dim()).sum(dim=-1)
