"""Book-keeping that all bounds share: units, examples, masks, KL weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from probattn.core.checks import require_finite
from probattn.core.free_bits import FreeBits
from probattn.core.records import Evaluation, Latent, Terms

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """An evaluation together with the weights of its KLs.

    Attributes:
        evaluation: What the model returned.
        weights: Weight of each site's KL and of each "site/penalty"; one where absent.
        free_bits: Floors per site.
    """

    evaluation: Evaluation
    weights: Mapping[str, float]
    free_bits: Mapping[str, FreeBits]

    def __post_init__(self) -> None:
        known = {latent.name for latent in self.evaluation.latents}
        known |= {f"{latent.name}/{name}" for latent in self.evaluation.latents for name in latent.penalties}
        unknown = (set(self.weights) | set(self.free_bits)) - known
        if unknown:
            raise KeyError(f"no site is called {sorted(unknown)}; this evaluation has {sorted(known)}")

    def weight(self, name: str) -> float:
        """Weight of a KL or penalty in the loss."""
        return self.weights.get(name, 1.0)

    def particles(self, *, exact: bool = False) -> Latent | None:
        """The latent whose particles `log_lik` runs over; None where every site has one particle.

        Args:
            exact: Also return a latent with one sampled or enumerated particle.
        """
        num_particles = self.evaluation.log_lik.shape[0]
        several = [latent for latent in self.evaluation.latents if latent.draw.num_particles > 1]
        if len(several) > 1:
            names = [latent.name for latent in several]
            raise ValueError(f"at most one site may carry several particles, got {names}; give the others one each")
        if several:
            if several[0].draw.num_particles != num_particles:
                raise ValueError(
                    f"log_lik has {num_particles} particles, but site '{several[0].name}' has "
                    f"{several[0].draw.num_particles}"
                )
            self._require_local(several[0])
            return several[0]
        if num_particles != 1:
            raise ValueError(f"log_lik has {num_particles} particles, but no site has more than one")
        if exact:
            single = [latent for latent in self.evaluation.latents if latent.draw.log_posterior is not None]
            return single[0] if len(single) == 1 else None
        return None

    def in_unit_of(self, latent: Latent) -> Tensor:
        """(K, *unit) log-likelihood in the unit of a latent: added up over steps for `example` latents."""
        log_lik = self.evaluation.log_lik
        if latent.draw.log_weight.shape[1:] == log_lik.shape[1:]:
            return log_lik
        total = log_lik.flatten(2).sum(dim=-1) if log_lik.dim() > 2 else log_lik  # (K, B)
        missing = latent.draw.log_weight.dim() - total.dim()
        return total.view(*total.shape, *([1] * missing)).expand(-1, *latent.draw.log_weight.shape[1:])

    def reward(self, latent: Latent) -> Tensor:
        """(K, *unit) detached: what a draw is credited with. From its step on where it feeds the state.

        A draw that feeds the state changes the KLs of later steps too, so they are part of what it is credited with.
        """
        log_lik = self.in_unit_of(latent).detach()
        is_per_step = latent.unit == "step" and log_lik.shape == self.evaluation.log_lik.shape and log_lik.dim() > 2
        if not (latent.feeds_state and is_per_step):
            return log_lik
        gain = log_lik
        for other in self.evaluation.latents:
            if other.kl.shape == log_lik.shape[1:]:
                gain = gain - self.weight(other.name) * self._masked(other.kl, other).detach()
        sample = gain[:1]  # a baseline particle branches off one step only: the trajectory is the sample's
        later = sample.flip(-1).cumsum(dim=-1).flip(-1) - sample
        return log_lik + later

    def to_examples(self, per_unit: Tensor, example: Tensor | None = None) -> Tensor:
        """(B) sum over all units of an example; masked steps do not count."""
        mask = self.evaluation.mask
        if mask is not None and per_unit.shape == mask.shape:
            per_unit = per_unit.masked_fill(~mask, 0.0)
        total = per_unit.flatten(1).sum(dim=-1) if per_unit.dim() > 1 else per_unit
        index = self.evaluation.example if example is None else example
        if index is None:
            return total
        size = self.evaluation.num_examples or int(index.max()) + 1
        return total.new_zeros(size).index_add(0, index, total)

    def terms(
        self,
        *,
        log_lik: Tensor,
        loss_log_lik: Tensor | None = None,
        surrogate: Tensor | None = None,
        without_kl: str | None = None,
    ) -> Terms:
        """Put a bound together.

        Args:
            log_lik: (B) likelihood part of the bound.
            loss_log_lik: (B) what the loss uses in its place, where it differs.
            surrogate: (B) score-function terms: their gradient counts, their value does not.
            without_kl: Site whose KL is inside `log_lik` already.
        """
        loss = -(log_lik if loss_log_lik is None else loss_log_lik)
        if surrogate is not None:
            loss = loss - (surrogate - surrogate.detach())
        kls: dict[str, Tensor] = {}
        penalties: dict[str, Tensor] = {}
        bound = log_lik
        for latent in self.evaluation.latents:
            kl = self.to_examples(self._masked(latent.kl, latent), latent.example)
            kls[latent.name] = kls.get(latent.name, 0.0) + kl.detach()
            if latent.name != without_kl:
                floored = self.free_bits[latent.name](latent) if latent.name in self.free_bits else latent.kl
                pressed = self.to_examples(self._masked(floored, latent), latent.example)
                loss = loss + self.weight(latent.name) * pressed
                bound = bound - kl
            for name, value in latent.penalties.items():
                key = f"{latent.name}/{name}"
                penalty = self.to_examples(self._masked(value, latent), latent.example)
                loss = loss + self.weight(key) * penalty
                penalties[key] = penalties.get(key, 0.0) + penalty.detach()
        require_finite(
            loss.detach(),
            "the loss",
            f"Sites: {[latent.name for latent in self.evaluation.latents]}. A KL with anchor='exp' overflows when "
            "scores pass 88 in float32: use anchor='softmax', or smaller scores. A log-likelihood of -inf means a "
            "target of probability 0.",
        )
        return Terms(loss=loss, bound=bound.detach(), log_lik=log_lik.detach(), kl=kls, penalties=penalties)

    def _masked(self, per_unit: Tensor, latent: Latent) -> Tensor:
        mask = self.evaluation.mask
        if mask is None or latent.unit != "step" or per_unit.shape != mask.shape:
            return per_unit
        return per_unit.masked_fill(~mask, 0.0)

    def _require_local(self, latent: Latent) -> None:
        if latent.feeds_state and latent.unit == "step" and latent.draw.num_particles - latent.draw.has_baseline > 1:
            raise ValueError(
                f"site '{latent.name}' feeds the recurrence, so several particles per step would need several "
                "trajectories. Feed the expected context instead (feeds_state=False), or fold the particles into the "
                "batch and use unit='example'."
            )
