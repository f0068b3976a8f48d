"""Beam search over all sentences of a batch at once.

At every step the candidates of a sentence are its live hypotheses, each extended by one token. Candidates that end in
EOS and are among the `beam_size` most probable candidates are kept as results; the `beam_size` most probable others
stay alive, so a result costs no place in the beam. While searching, candidates of one length are compared by
log-probability (the EOS penalty included); results are ranked by score.

Size letters: A sentences still searched, W live hypotheses of each, C continuations looked at of each, R = A * W rows,
S source positions, V tokens.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from probattn.core import Estimator
from probattn.decoding.constraints import Constraints, require_continuation, require_log_probs
from probattn.decoding.hypothesis import Hypothesis, Trellis
from probattn.decoding.penalties import LengthPenalty, NoPenalty, Scoring
from probattn.decoding.stepper import Stepper
from probattn.decoding.walk import require_rows

__all__ = ["StopRule", "beam_search"]

BatchT = TypeVar("BatchT")
StateT = TypeVar("StateT")


class StopRule(enum.Enum):
    """When the search of a sentence ends before its maximal length."""

    EXACT = "exact"
    """When no live hypothesis could still beat the worst of the `num_return` results, even if all its further tokens
    had probability one. Never changes a result. With a length penalty that rewards length it ends late: with
    `AveragePenalty` rarely before the maximal length."""

    BEST_ENDED = "best_ended"
    """When there are `num_return` results, and at this or an earlier step the most probable candidate was an end: the
    released code of Deng et al. A beam of one is greedy decoding then, whatever the length penalty."""

    BEAM_ENDED = "beam_ended"
    """When `beam_size` candidates have ended, at whatever steps: common in toolkits."""


@dataclass(frozen=True)
class _Settings:
    constraints: Constraints
    beam_size: int
    num_return: int
    stop_rule: StopRule

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size must be at least 1, got {self.beam_size}")
        if not 1 <= self.num_return <= self.beam_size:
            raise ValueError(f"num_return must lie between 1 and beam_size = {self.beam_size}, got {self.num_return}")


def beam_search(
    stepper: Stepper[BatchT, StateT],
    batch: BatchT,
    *,
    constraints: Constraints,
    beam_size: int,
    num_return: int = 1,
    length_penalty: LengthPenalty | None = None,
    eos_penalty: float = 0.0,
    stop_rule: StopRule = StopRule.EXACT,
    estimators: Mapping[str, Estimator] | None = None,
) -> list[list[Hypothesis]]:
    """The `num_return` best sentences that a beam finds; one step call for all sentences and beams.

    Sentences whose search has ended are dropped from the batch. The released code of Deng et al. (2018) uses a beam of
    10, `WuPenalty(1.0, counts_bos=True)`, `eos_penalty=3` and `StopRule.BEST_ENDED`; there, unlike here, a result also
    takes a place of the beam at the step at which it ends.

    Args:
        stepper: The model.
        batch: B sentences, as the stepper reads them.
        constraints: Which tokens may come when.
        beam_size: Hypotheses of a sentence that are extended together.
        num_return: Results of a sentence, at most `beam_size`.
        length_penalty: Divides the log-probability (see `penalties`). None: `NoPenalty`.
        eos_penalty: Strength of the EOS penalty (see `penalties`); 0 is none.
        stop_rule: When the search of a sentence ends.
        estimators: By name of the site; None: the stepper's own choice.

    Returns:
        For each sentence up to `num_return` hypotheses by falling score. Only if fewer than that have ended at the
        maximal length, the best unfinished ones follow behind them (`is_complete=False`).
    """
    settings = _Settings(constraints, beam_size, num_return, stop_rule)
    with torch.no_grad():
        state = stepper.start(batch, estimators or {})
        source_lengths = stepper.source_lengths(state)
        device, lengths = source_lengths.device, source_lengths.cpu()
        scoring = Scoring.build(
            lengths,
            constraints.limits(lengths),
            length_penalty=length_penalty or NoPenalty(),
            eos_penalty=eos_penalty,
        )
        search = _Search(settings, scoring, source_lengths=lengths)
        tokens = torch.full((len(lengths),), constraints.bos, device=device)
        while len(search.sentences) > 0:
            log_probs, state = stepper.step(state, tokens)
            parents, chosen = search.advance(log_probs, stepper.weights(state))
            if len(parents) > 0:
                state, tokens = stepper.select(state, parents.to(device)), chosen.to(device)
    return search.results


@dataclass(frozen=True)
class _Ended:
    """A result: where its last word stands in the trellis."""

    score: float
    log_prob: float
    level: int
    row: int


@dataclass(frozen=True)
class _Candidates:
    """What may follow: (A, W * C) continuations and (A, W) ends, float64 log-probabilities without and with penalty."""

    grown: Tensor
    tokens: Tensor
    ended: Tensor
    ended_cost: Tensor


class _Search:
    """The bookkeeping: all on the CPU in float64, on W * C numbers of a sentence rather than W * V."""

    def __init__(self, settings: _Settings, scoring: Scoring, *, source_lengths: Tensor) -> None:
        num_sentences = len(source_lengths)
        self.results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
        self.sentences = torch.arange(num_sentences)  # (A,) positions in the batch
        self._live = torch.zeros(num_sentences, 1, dtype=torch.float64)  # (A, W) log-probabilities, -inf: empty place
        self._num_tokens = 0
        self._settings, self._scoring, self._source_lengths = settings, scoring, source_lengths
        self._trellis = Trellis()
        self._best: list[list[_Ended]] = [[] for _ in range(num_sentences)]  # num_return by falling score
        self._num_ended = torch.zeros(num_sentences, dtype=torch.int64)
        self._has_led = torch.zeros(num_sentences, dtype=torch.bool)  # an end was the best candidate of some step

    def advance(self, log_probs: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Take one step.

        Args:
            log_probs: (R, V) of the live hypotheses.
            weights: (R, S) or None.

        Returns:
            Rows (R',) int64 of the state that live on, and the token (R',) that each is extended by.
        """
        require_rows(log_probs, weights, num_rows=self._live.numel())
        candidates = self._candidates(log_probs)
        self._collect(candidates)
        num_searched, width = self._live.shape
        num_continuations = candidates.grown.shape[1] // width
        kept = min(self._settings.beam_size, candidates.grown.shape[1])
        live, order = candidates.grown.sort(dim=1, descending=True, stable=True)
        self._live, order = live[:, :kept], order[:, :kept]
        parents = order // num_continuations + width * torch.arange(num_searched).unsqueeze(1)  # (A, W')
        tokens = candidates.tokens.gather(1, order)
        self._trellis.append(parents.flatten().tolist(), tokens.flatten().tolist(), weights=weights)
        self._num_tokens += 1
        is_over = self._is_over()
        for place in is_over.nonzero().flatten().tolist():
            self._finish(place)
        left = (~is_over).nonzero().flatten()
        rows = left.unsqueeze(1) * kept + torch.arange(kept)
        self._trellis.keep(rows.flatten().tolist())
        self.sentences, self._live = self.sentences[left], self._live[left]
        return parents[left].flatten(), tokens[left].flatten()

    def _candidates(self, log_probs: Tensor) -> _Candidates:
        constraints, shape = self._settings.constraints, self._live.shape
        allowed = constraints.allow(log_probs, self._num_tokens)
        end = allowed[:, constraints.eos].clone()
        allowed[:, constraints.eos] = -torch.inf
        # the order within a row does not depend on the row's own log-probability: no sum over the vocabulary is needed
        top = allowed.topk(min(self._settings.beam_size, allowed.shape[1]), dim=1)
        end, values, tokens = end.cpu().double(), top.values.cpu().double(), top.indices.cpu()
        # an empty place holds a token of probability zero, after which a model may say anything
        is_empty = self._live.flatten() == -torch.inf
        end[is_empty], values[is_empty] = -torch.inf, -torch.inf
        owners = self.sentences.repeat_interleave(shape[1]).tolist()
        # topk puts NaN first, maximum hands it on
        require_log_probs(torch.maximum(values[:, 0], end), sentences=owners, step=self._num_tokens)
        grown = self._live.unsqueeze(-1) + values.reshape(*shape, -1)  # (A, W, C)
        ended = self._live + end.reshape(shape)
        cost = self._scoring.eos_cost[self.sentences, self._num_tokens + 1].unsqueeze(1)
        return _Candidates(grown.flatten(1), tokens.reshape(shape[0], -1), ended, ended - cost)

    def _collect(self, candidates: _Candidates) -> None:
        """Keep the ends that are among the best candidates."""
        width = self._live.shape[1]
        both = torch.cat([candidates.ended_cost, candidates.grown], dim=1)
        values, order = both.sort(dim=1, descending=True, stable=True)
        is_end = (order < width) & (values > -torch.inf)
        is_end[:, self._settings.beam_size :] = False
        divisor = float(self._scoring.divisor[self._num_tokens + 1])
        for place, rank in is_end.nonzero().tolist():
            sentence, slot = int(self.sentences[place]), int(order[place, rank])
            score, log_prob = float(values[place, rank]) / divisor, float(candidates.ended[place, slot])
            best = self._best[sentence]
            best.append(_Ended(score, log_prob, self._num_tokens, place * width + slot))
            best.sort(key=lambda result: -result.score)
            del best[self._settings.num_return :]
            self._num_ended[sentence] += 1
        self._has_led[self.sentences] |= is_end[:, 0]

    def _is_over(self) -> Tensor:
        """(A,) bool: sentences whose search ends after this step."""
        settings, sentences = self._settings, self.sentences.tolist()
        largest = self._live[:, 0]  # they are sorted
        stuck = (largest == -torch.inf) & torch.tensor([not self._best[sentence] for sentence in sentences])
        if bool(stuck.any()):
            require_continuation(largest[stuck], sentences=self.sentences[stuck].tolist(), step=self._num_tokens - 1)
        is_over = (self._scoring.limits[self.sentences] <= self._num_tokens) | (largest == -torch.inf)
        has_all = torch.tensor([len(self._best[sentence]) == settings.num_return for sentence in sentences])
        if settings.stop_rule is StopRule.BEAM_ENDED:
            is_enough = self._num_ended[self.sentences] >= settings.beam_size
        elif settings.stop_rule is StopRule.BEST_ENDED:
            is_enough = self._has_led[self.sentences]
        else:
            attainable = self._scoring.best_attainable(largest, self.sentences, num_tokens=self._num_tokens)
            worst = [self._best[sentence][-1].score if self._best[sentence] else -torch.inf for sentence in sentences]
            is_enough = attainable <= torch.tensor(worst, dtype=torch.float64)
        return is_over | (has_all & is_enough)

    def _finish(self, place: int) -> None:
        """Read a sentence's results out of the trellis; the sentence is not searched any further."""
        sentence, width = int(self.sentences[place]), self._live.shape[1]
        found = [(ended, True) for ended in self._best[sentence]]
        for slot, log_prob in enumerate(self._live[place].tolist()):
            if len(found) < self._settings.num_return and log_prob > -torch.inf:
                score = log_prob / float(self._scoring.divisor[self._num_tokens])
                found.append((_Ended(score, log_prob, self._num_tokens, place * width + slot), False))
        source_length = int(self._source_lengths[sentence])
        for ended, is_complete in found:
            tokens, weights = self._trellis.trace(ended.level, ended.row, source_length=source_length)
            hypothesis = Hypothesis(tokens, ended.log_prob, ended.score, is_complete, weights)
            self.results[sentence].append(hypothesis)
