"""Attention with up to two sites: the weights, and the context vector.

memory --score--> weights --read--> context: the weights site makes the alignment random (Deng et al., BAM), the
context site the vector that was read (Bahuleyan et al.). Neither is soft attention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from probattn.core.estimators import Estimator
from probattn.core.noise import fold_seed
from probattn.core.records import Draw, Given, Latent, Memory
from probattn.nn.conditionals import require_finite_scores
from probattn.nn.scores import Score
from probattn.nn.site import Site

__all__ = ["Attention", "AttentionOutput"]


@dataclass(frozen=True)
class AttentionOutput:
    """What attention read, and how.

    Attributes:
        context: (K, *unit, D) of every particle, for the readout.
        expected_context: (*unit, D) under the predictive distribution, for a deterministic state path and for plots.
        weights: (*unit, S) expected weights under the predictive distribution.
        scores: (*unit, S) as the score function gave them.
        latents: The receipts of the sites.
    """

    context: Tensor
    expected_context: Tensor
    weights: Tensor
    scores: Tensor
    latents: Sequence[Latent]


class Attention(nn.Module):
    """Score, weights, context.

    Args:
        score: The score function.
        weights: Site of the weights; None for soft attention.
        context: Site of the context vector; None for the vector that was read.
    """

    def __init__(self, score: Score, *, weights: Site | None = None, context: Site | None = None):
        super().__init__()
        self.score = score
        self.weights = weights
        self.context = context
        names = [site.name for site in (weights, context) if site is not None]
        if len(set(names)) < len(names):
            raise ValueError(f"the two sites of an attention need different names, both are called '{names[0]}'")

    def forward(
        self,
        query: Tensor,
        memory: Memory,
        *,
        estimators: Mapping[str, Estimator] | None = None,
        target: Tensor | None = None,
        mask: Tensor | None = None,
        seed: Tensor | None = None,
    ) -> AttentionOutput:
        """Attend.

        Args:
            query: (*lead, T, D), or (N, H, D) on Segments.
            memory: What is attended to.
            estimators: One per site, by the site's name.
            target: What is to be predicted, for inference networks. With a target the sites use their posteriors,
                without one their predictive distributions.
            mask: (*unit) bool, False for padded steps, which encoders of the target and sites of contexts leave out.
            seed: () int64; each site draws its own from torch's generator if absent.
        """
        support = memory.support
        memory = replace(memory, keys=support.zero_unseen(memory.keys), values=support.zero_unseen(memory.values))
        scores = self.score(query, memory)
        given = Given(memory=memory, query=query, scores=scores, target=target, mask=mask)
        latents: list[Latent] = []
        expected_weights = self._expected_weights(given)
        expected_draw = Draw(value=expected_weights.unsqueeze(0), index=None, log_weight=expected_weights[:0])
        expected = support.read(expected_draw, memory.values)[0]
        context = expected.unsqueeze(0)
        if self.weights is not None:
            latent = _visit(self.weights, given, estimators, seed)
            latents.append(latent)
            context = support.read(latent.draw, memory.values)
        if self.context is not None:
            if context.shape[0] != 1:
                raise ValueError(
                    f"the context site '{self.context.name}' reads one context, but the weights site gave "
                    f"{context.shape[0]} particles; use one sample there, or no context site"
                )
            # of the expected weights, and without the target: a state path must not see the draw or the answer
            expected = self.context.expected(replace(given, context=expected, target=None))
            given = replace(given, context=context[0])
            latent = _visit(self.context, given, estimators, None if seed is None else fold_seed(seed, 1))
            latents.append(latent)
            if latent.draw.value is None:
                raise ValueError(f"the context site '{self.context.name}' must draw vectors, got positions")
            context = latent.draw.value
        return AttentionOutput(context, expected, expected_weights, scores, tuple(latents))

    def _expected_weights(self, given: Given) -> Tensor:
        if self.weights is not None:
            return self.weights.expected(given)
        if given.scores is None:
            raise ValueError("soft attention needs scores")
        require_finite_scores(given.scores, given.memory.support, "attention scores")
        return given.memory.support.log_softmax(given.scores).exp()


def _visit(site: Site, given: Given, estimators: Mapping[str, Estimator] | None, seed: Tensor | None) -> Latent:
    if estimators is not None and not isinstance(estimators, Mapping):
        raise TypeError(
            f"estimators are given by the name of their site, {{'{site.name}': Enumerate()}}; got {estimators!r}"
        )
    if estimators is None or site.name not in estimators:
        have = sorted(estimators) if estimators else "none"
        raise KeyError(f"site '{site.name}' needs an estimator: pass estimators={{'{site.name}': ...}}; got {have}")
    if given.target is None:
        return site.predict(given, estimators[site.name], seed=seed)
    latent: Latent = site(given, estimators[site.name], seed=seed)
    return latent
