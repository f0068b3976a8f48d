"""Rows that go on by one token each until they end: what greedy decoding and sampling share.

Size letters: R rows, S source positions, V tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from probattn.decoding.constraints import Constraints
from probattn.decoding.hypothesis import Hypothesis, Trellis
from probattn.decoding.stepper import Stepper

__all__ = ["Choice", "Chooser", "require_rows", "walk"]

BatchT = TypeVar("BatchT")
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Choice:
    """The next token of each row; all on the CPU.

    Attributes:
        tokens: (R,) int64.
        log_prob: (R,) float64, under the model.
        score: (R,) float64, what is added to the score.
    """

    tokens: Tensor
    log_prob: Tensor
    score: Tensor


Chooser = Callable[[Tensor, Tensor, int], Choice]
"""(log-probabilities (R, V), walker of each row (R,) int64 on the CPU, number of the step) -> choice."""


def walk(
    stepper: Stepper[BatchT, StateT], state: StateT, *, constraints: Constraints, choose: Chooser
) -> list[Hypothesis]:
    """Extend each row of a state until EOS or its maximal length; rows that ended are dropped from the batch.

    Args:
        stepper: The model.
        state: Of R rows that have no token yet. Row r is called walker r, also after other rows were dropped.
        constraints: Where rows end.
        choose: Picks the next token of each row.

    Returns:
        R hypotheses; their scores are sums of the choices' scores.
    """
    source_lengths = stepper.source_lengths(state)
    device, lengths = source_lengths.device, source_lengths.cpu()
    limits = constraints.limits(lengths)
    totals = torch.zeros(2, len(lengths), dtype=torch.float64)
    walkers = torch.arange(len(lengths))
    tokens = torch.full((len(lengths),), constraints.bos, device=device)
    trellis, done, step = Trellis(), dict[int, Hypothesis](), 0
    while len(walkers) > 0:
        log_probs, state = stepper.step(state, tokens)
        weights = stepper.weights(state)
        require_rows(log_probs, weights, num_rows=len(walkers))
        choice = choose(log_probs, walkers, step)
        totals[:, walkers] += torch.stack([choice.log_prob, choice.score])
        trellis.append(range(len(walkers)), choice.tokens.tolist(), weights=weights)
        step += 1
        has_ended = choice.tokens == constraints.eos
        is_over = has_ended | (limits[walkers] <= step)
        for row in is_over.nonzero().flatten().tolist():
            walker, is_complete = int(walkers[row]), bool(has_ended[row])
            words, path = trellis.trace(step - is_complete, row, source_length=int(lengths[walker]))
            log_prob, score = totals[:, walker].tolist()
            done[walker] = Hypothesis(words, log_prob, score, is_complete, path)
        left = (~is_over).nonzero().flatten()
        if 0 < len(left) < len(walkers):
            trellis.keep(left.tolist())
            state = stepper.select(state, left.to(device))
        walkers, tokens = walkers[left], choice.tokens[left].to(device)
    return [done[walker] for walker in range(len(lengths))]


def require_rows(log_probs: Tensor, weights: Tensor | None, *, num_rows: int) -> None:
    """Raise a ValueError if a step returned other shapes than (R, V) and (R, S)."""
    if log_probs.ndim != 2 or log_probs.shape[0] != num_rows:
        raise ValueError(f"a step of {num_rows} rows must return ({num_rows}, V), got {tuple(log_probs.shape)}")
    if weights is not None and (weights.ndim != 2 or weights.shape[0] != num_rows):
        raise ValueError(f"weights of {num_rows} rows must have shape ({num_rows}, S), got {tuple(weights.shape)}")
