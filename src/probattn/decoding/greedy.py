"""Greedy decoding: the most probable token at every step.

Size letters: B sentences, R rows, V tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from probattn.core import Estimator
from probattn.decoding.constraints import Constraints, require_continuation, require_log_probs
from probattn.decoding.hypothesis import Hypothesis
from probattn.decoding.penalties import LengthPenalty, NoPenalty, Scoring
from probattn.decoding.stepper import Stepper
from probattn.decoding.walk import Choice, walk

__all__ = ["greedy"]

BatchT = TypeVar("BatchT")
StateT = TypeVar("StateT")


def greedy(
    stepper: Stepper[BatchT, StateT],
    batch: BatchT,
    *,
    constraints: Constraints,
    length_penalty: LengthPenalty | None = None,
    eos_penalty: float = 0.0,
    estimators: Mapping[str, Estimator] | None = None,
) -> list[Hypothesis]:
    """The sentence that takes the most probable allowed token at every step; one step call for all sentences.

    Args:
        stepper: The model.
        batch: B sentences, as the stepper reads them.
        constraints: Which tokens may come when.
        length_penalty: Divides the score; has no influence on the tokens. None: `NoPenalty`.
        eos_penalty: Strength of the EOS penalty (see `penalties`), which does have influence. Deng's code uses 3.
        estimators: By name of the site; None: the stepper's own choice.

    Returns:
        B hypotheses.
    """
    with torch.no_grad():
        state = stepper.start(batch, estimators or {})
        source_lengths = stepper.source_lengths(state).cpu()
        scoring = Scoring.build(
            source_lengths,
            constraints.limits(source_lengths),
            length_penalty=length_penalty or NoPenalty(),
            eos_penalty=eos_penalty,
        )

        def choose(log_probs: Tensor, walkers: Tensor, step: int) -> Choice:
            allowed = constraints.allow(log_probs, step)
            cost = scoring.eos_cost[walkers, step + 1]  # (R,)
            allowed[:, constraints.eos] -= cost.to(allowed)
            largest, tokens = (result.cpu() for result in allowed.max(dim=1))
            require_log_probs(largest, sentences=walkers.tolist(), step=step)
            require_continuation(largest, sentences=walkers.tolist(), step=step)
            log_prob = log_probs.gather(1, tokens.to(log_probs.device).unsqueeze(1)).squeeze(1).cpu().double()
            return Choice(tokens, log_prob, log_prob - torch.where(tokens == constraints.eos, cost, 0.0))

        hypotheses = walk(stepper, state, constraints=constraints, choose=choose)
    lengths = [len(hypothesis.tokens) + hypothesis.is_complete for hypothesis in hypotheses]
    return [
        replace(hypothesis, score=hypothesis.score / float(scoring.divisor[length]))
        for hypothesis, length in zip(hypotheses, lengths, strict=True)
    ]
