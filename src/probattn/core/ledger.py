"""Book-keeping that all bounds share: units, examples, masks, KL weights.

Size letters: K particles, B rows of the log-likelihood, G examples (the same as B unless rows are nodes of graphs).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from probattn.core.checks import require_constant, require_finite
from probattn.core.free_bits import FreeBits
from probattn.core.records import Draw, Evaluation, Latent, Terms

__all__ = ["Ledger", "weighted_sum"]


def weighted_sum(log_weight: Tensor, log_lik: Tensor) -> Tensor:
    """sum_k exp(log_weight_k) log_lik_k with 0 * -inf = 0: a baseline or a padded position may have any likelihood."""
    weight = log_weight.exp()
    is_without = weight == 0
    return torch.where(is_without, 0.0, weight * log_lik.masked_fill(is_without, 0.0)).sum(dim=0)


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
        numbers = self.weights.values() if isinstance(self.weights, Mapping) else [self.weights]
        if not isinstance(self.weights, Mapping) or any(callable(one) for one in numbers):
            raise TypeError(
                "the weights of the KLs are numbers by the name of their site, e.g. {'alignment': 0.1}, those of a "
                f"schedule at an update: {{'alignment': schedule(update)}}; got {self.weights!r}"
            )
        known = {latent.name for latent in self.evaluation.latents}
        known |= {f"{latent.name}/{name}" for latent in self.evaluation.latents for name in latent.penalties}
        unknown = (set(self.weights) | set(self.free_bits)) - known
        if unknown:
            raise KeyError(f"no site is called {sorted(unknown)}; this evaluation has {sorted(known)}")
        mask, steps = self.evaluation.mask, tuple(self.evaluation.log_lik.shape[1:])
        if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != steps):
            raise ValueError(
                f"expected a bool mask of steps {steps}, as log_lik has them behind its particles, True where the "
                f"target is real, got {mask.dtype} {tuple(mask.shape)}; write it out with mask.expand({steps})"
            )

    def weight(self, name: str) -> float:
        """Weight of a KL or penalty in the loss."""
        return self.weights.get(name, 1.0)

    @property
    def log_lik(self) -> Tensor:
        """(K, B, *steps) log-likelihood of each particle, zero on padded steps whatever stands there."""
        mask = self.evaluation.mask
        return self.evaluation.log_lik if mask is None else self.evaluation.log_lik.masked_fill(~mask, 0.0)

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
        return self._single_draw() if exact else None

    def single_enumerated(self) -> Latent | None:
        """The only enumerated latent if it has one particle, whose weight need not be one (K-max without the rest)."""
        enumerated = [latent for latent in self.evaluation.latents if latent.draw.is_enumerated]
        return enumerated[0] if len(enumerated) == 1 and enumerated[0].draw.num_particles == 1 else None

    def is_per_step(self, latent: Latent) -> bool:
        """Whether each entry of the log-likelihood belongs to one variable of the latent."""
        return latent.unit == "step" and latent.draw.log_weight.shape[1:] == self.evaluation.log_lik.shape[1:]

    def joint(self, latent: Latent) -> tuple[Tensor, Draw]:
        """Log-likelihoods and particles in the unit in which particles compete.

        That is a step for `step` latents with one variable per step. Else it is an example: log-likelihoods are added
        up over steps, and where an example has several variables (heads, positions of a memory), particle k is the
        k-th sample of all of them together, so their log-probabilities add up.

        Returns:
            (K, B, *steps) or (K, G) log-likelihood, and a draw whose weights and log-probabilities have that shape.
        """
        draw = latent.draw
        if self.is_per_step(latent):
            return self.log_lik, draw
        total, index = self._totals(self.log_lik, self.evaluation.example), self._example_of(latent)
        if draw.log_weight.dim() == 2 and index is None:
            return total, draw
        is_single = index is None and math.prod(draw.log_weight.shape[2:]) == 1  # one variable, with axes of size one
        if not is_single:
            self._require_samples_of_all(latent)
        rows = draw.log_weight.flatten(1)
        log_weight = rows if is_single else rows[:, :1].expand(-1, total.shape[1])
        mask = self._mask_of(latent, draw.log_weight.shape[1:])
        sums = [
            None if term is None else self._totals(term if mask is None else term.masked_fill(~mask, 0.0), index)
            for term in (draw.log_posterior, draw.log_prior, draw.score)
        ]
        joined = replace(draw, log_weight=log_weight, log_posterior=sums[0], log_prior=sums[1], score=sums[2])
        return total, joined

    def in_unit_of(self, latent: Latent) -> Tensor:
        """(K, *unit) log-likelihood that a latent's draws share: that of their step, or of their whole example."""
        if self.is_per_step(latent):
            return self._mixed(latent)
        return self._spread(self._totals(self._mixed(latent), self.evaluation.example), latent)

    def reward(self, latent: Latent) -> Tensor:
        """(K, *unit) detached: what a draw is credited with. From its step on where it feeds the state.

        A draw can change the KLs and penalties of the sites that are visited after it, and where it feeds the state
        those of all later steps, so they are part of what it is credited with.
        """
        latents = self.evaluation.latents
        place = next(number for number, other in enumerate(latents) if other is latent)
        has_steps = self.evaluation.log_lik.dim() > 2
        if self.is_per_step(latent) and (has_steps or not latent.feeds_state):
            log_lik = self._mixed(latent).detach()
            reward = log_lik - self._cost_per_row(latents[place + 1 :])
            if not latent.feeds_state:
                return reward - self._cost_elsewhere(latents[place + 1 :])
            # a baseline particle branches off one step only: the trajectory is the sample's
            gain = log_lik[:1] - self._cost_per_row(latents)
            return reward + gain.flip(-1).cumsum(dim=-1).flip(-1) - gain - self._cost_elsewhere(latents)
        total = self._totals(self._mixed(latent), self.evaluation.example).detach()  # (K, G)
        for other in latents if latent.feeds_state else latents[place + 1 :]:
            total = total - self.to_examples(self.cost(other).detach(), other)
        return self._spread(total, latent)

    def later_cost(self, latent: Latent) -> Tensor:
        """Detached cost of the sites that are visited after a latent, in the unit in which its particles compete."""
        latents = self.evaluation.latents
        later = latents[next(number for number, other in enumerate(latents) if other is latent) + 1 :]
        if self.is_per_step(latent):
            return self._cost_per_row(later) + self._cost_elsewhere(later)
        total = self.evaluation.log_lik.new_zeros(self._num_examples())
        for other in later:
            total = total + self.to_examples(self.cost(other).detach(), other)
        return total

    def cost(self, latent: Latent, *, has_kl: bool = True) -> Tensor:
        """(*unit) what a site adds to the loss beside the likelihood: weighted KL, with its floor, and penalties."""
        floored = self.free_bits[latent.name](latent) if latent.name in self.free_bits else latent.kl
        total = self.weight(latent.name) * self.masked(floored, latent) if has_kl else torch.zeros_like(latent.kl)
        for name, value in latent.penalties.items():
            total = total + self.weight(f"{latent.name}/{name}") * self.masked(value, latent)
        return total

    def masked(self, per_unit: Tensor, latent: Latent) -> Tensor:
        """The same numbers, zero on padded steps of `step` latents."""
        mask = self._mask_of(latent, per_unit.shape)
        return per_unit if mask is None else per_unit.masked_fill(~mask, 0.0)

    def to_examples(self, per_unit: Tensor, latent: Latent | None = None) -> Tensor:
        """(G) sum over all units of an example; of a latent, or of the rows of the log-likelihood."""
        index = self.evaluation.example if latent is None else self._example_of(latent)
        return self._totals(per_unit.unsqueeze(0), index)[0]

    def to_bound(self, value: Tensor, particles: Latent) -> Tensor:
        """(G) from a number per unit in which particles compete (see `joint`)."""
        return self.to_examples(self.masked(value, particles)) if self.is_per_step(particles) else value

    def terms(
        self,
        *,
        log_lik: Tensor,
        loss_log_lik: Tensor | None = None,
        surrogate: Tensor | None = None,
        without_kl_of: Latent | None = None,
    ) -> Terms:
        """Put a bound together.

        Args:
            log_lik: (G) likelihood part of the bound.
            loss_log_lik: (G) what the loss uses in its place, where it differs.
            surrogate: (G) score-function terms: their gradient counts, their value does not.
            without_kl_of: Receipt whose KL is inside `log_lik` already; others of its site count.
        """
        loss = -(log_lik if loss_log_lik is None else loss_log_lik)
        if surrogate is not None:
            loss = loss - (surrogate - surrogate.detach())
        cost = torch.zeros_like(log_lik)
        kls: dict[str, Tensor] = {}
        penalties: dict[str, Tensor] = {}
        bound = log_lik
        for latent in self.evaluation.latents:
            has_kl = latent is not without_kl_of
            cost = cost + self.to_examples(self.cost(latent, has_kl=has_kl), latent)
            kl = self.to_examples(self.masked(latent.kl, latent), latent)
            bound = bound - kl if has_kl else bound
            kls[latent.name] = kls.get(latent.name, 0.0) + kl.detach()
            for name, value in latent.penalties.items():
                key, penalty = f"{latent.name}/{name}", self.to_examples(self.masked(value, latent), latent)
                penalties[key] = penalties.get(key, 0.0) + penalty.detach()
        loss = loss + cost
        require_finite(
            loss.detach(),
            "the loss",
            f"Sites: {[latent.name for latent in self.evaluation.latents]}. A KL with anchor='exp' overflows when "
            "scores pass 88 in float32: use anchor='softmax', or smaller scores. A log-likelihood of -inf means a "
            "target of probability 0.",
        )
        return Terms(loss=loss, cost=cost, bound=bound.detach(), log_lik=log_lik.detach(), kl=kls, penalties=penalties)

    def _single_draw(self) -> Latent | None:
        single = [latent for latent in self.evaluation.latents if latent.draw.log_posterior is not None]
        if len(single) > 1:  # an enumerated one among them is what a bound can sum over
            names = [latent.name for latent in single]
            single = [latent for latent in single if latent.draw.is_enumerated]
            if len(single) != 1:
                raise ValueError(
                    f"sites {names} hold one particle each, so it is not clear which one this bound weights; use Elbo, "
                    "or give one of them several"
                )
        return single[0] if single else None

    def _mixed(self, latent: Latent) -> Tensor:
        """(K, B, *steps) log-likelihood of a latent's particles; mixed over those of another site that has several."""
        particles = self.particles()
        if particles is None or particles is latent:
            return self.log_lik
        log_lik, draw = self.log_lik, self.joint(particles)[1]
        log_weight = draw.log_weight  # (K, B, *steps) or (K, G)
        if not self.is_per_step(particles) and self.evaluation.example is not None:
            log_weight = log_weight.index_select(1, self.evaluation.example)
        log_weight = log_weight.view(*log_weight.shape, *([1] * (log_lik.dim() - log_weight.dim())))
        return weighted_sum(log_weight, log_lik).unsqueeze(0)

    def _totals(self, x: Tensor, index: Tensor | None) -> Tensor:
        """(K, rows, *rest) added up to (K, G)."""
        total = x.flatten(2).sum(dim=-1) if x.dim() > 2 else x
        if index is None:
            return total
        return total.new_zeros(total.shape[0], self._num_examples()).index_add(1, index, total)

    def _spread(self, per_example: Tensor, latent: Latent) -> Tensor:
        """(K, G) brought to the units of a latent, (K, *unit)."""
        index, unit = self._example_of(latent), latent.draw.log_weight.shape[1:]
        rows = per_example if index is None else per_example.index_select(1, index)
        return rows.view(*rows.shape, *([1] * (len(unit) - 1))).expand(-1, *unit)

    def _cost_per_row(self, latents: Sequence[Latent]) -> Tensor:
        """(B, *steps) detached cost of sites that have it per step; heads and other axes in between are added up."""
        total = self.evaluation.log_lik.new_zeros(self.evaluation.log_lik.shape[1:])
        for latent in latents:
            cost = self._step_cost(latent)
            total = total if cost is None else total + cost
        return total

    def _cost_elsewhere(self, latents: Sequence[Latent]) -> Tensor:
        """(B, *ones) detached cost, per example, of the sites that `_cost_per_row` leaves out."""
        log_lik = self.evaluation.log_lik
        total = log_lik.new_zeros(self._num_examples())
        for latent in latents:
            if self._step_cost(latent) is None:
                total = total + self.to_examples(self.cost(latent).detach(), latent)
        rows = total if self.evaluation.example is None else total.index_select(0, self.evaluation.example)
        return rows.view(-1, *([1] * (log_lik.dim() - 2)))

    def _step_cost(self, latent: Latent) -> Tensor | None:
        """(B, *steps) detached cost of a site; None where it does not belong to steps."""
        shape, cost = self.evaluation.log_lik.shape[1:], self.cost(latent).detach()
        if latent.unit != "step" or latent.example is not None:
            return None
        if cost.shape != shape and len(shape) == 2 and cost.dim() > 2:
            cost = cost.flatten(1, -2).sum(dim=1)
        if cost.shape != shape and len(shape) == 1 and cost.dim() > 1:
            cost = cost.flatten(1).sum(dim=1)
        return cost if cost.shape == shape else None

    def _mask_of(self, latent: Latent, unit: torch.Size) -> Tensor | None:
        """Which units of this shape are real, by the mask of the steps and by the receipt's own; None: all of them."""
        own = latent.mask if latent.mask is not None and latent.mask.shape == unit else None
        steps = self._step_mask(latent, unit)
        return own if steps is None else steps if own is None else own & steps

    def _step_mask(self, latent: Latent, unit: torch.Size) -> Tensor | None:
        """The mask of the steps as units of this shape see it, (B, T) as (B, 1, T) where they have heads; or None."""
        mask = self.evaluation.mask
        if mask is None or latent.unit != "step":
            return None
        if unit == mask.shape:
            return mask
        if mask.dim() == 2 and tuple(unit) == (mask.shape[0], 1):
            raise ValueError(
                f"a receipt of site '{latent.name}' is of one step, unit {tuple(unit)}, so the mask "
                f"{tuple(mask.shape)} does not say whether it is padding; put the receipts of all steps "
                "together with stack_steps"
            )
        has_heads = mask.dim() == 2 and len(unit) > 2 and (unit[0], unit[-1]) == tuple(mask.shape)
        return mask.view(mask.shape[0], *([1] * (len(unit) - 2)), mask.shape[1]) if has_heads else None

    def _example_of(self, latent: Latent) -> Tensor | None:
        """Example of each unit on the first axis of a latent; None: that axis is the example."""
        if latent.example is not None or self.evaluation.example is None:
            return latent.example
        has_rows = latent.draw.log_weight.shape[1] == self.evaluation.log_lik.shape[1]
        return self.evaluation.example if has_rows else None

    def _num_examples(self) -> int:
        if self.evaluation.num_examples is not None:
            return self.evaluation.num_examples
        example = self.evaluation.example
        if example is None:
            return self.evaluation.log_lik.shape[1]
        return int(example.max()) + 1 if example.numel() else 0

    def _require_samples_of_all(self, latent: Latent) -> None:
        """Raise where an example has several variables whose particles are not samples of all of them together."""
        advice = (
            f"An example has several of its variables, of shape {tuple(latent.draw.log_weight.shape[1:])}, so a "
            "particle is a sample of all of them: use Pathwise or ScoreFunction, not enumeration."
        )
        if latent.draw.is_enumerated:
            raise ValueError(f"the particles of site '{latent.name}' are enumerated positions. {advice}")
        name = f"the weights of the particles of site '{latent.name}'"
        require_constant(latent.draw.log_weight.flatten(1), name, advice)

    def _require_local(self, latent: Latent) -> None:
        if latent.feeds_state and latent.unit == "step" and latent.draw.num_particles - latent.draw.has_baseline > 1:
            raise ValueError(
                f"site '{latent.name}' feeds the recurrence, so several particles per step would need several "
                "trajectories. Feed the expected context instead (feeds_state=False), or fold the particles into the "
                "batch and use unit='example'."
            )
