"""A toy model whose law depends on the whole prefix, and slow, plain algorithms on it that serve as oracles."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from probattn.core import Estimator
from probattn.decoding import Constraints

BOS, EOS, NUM_TOKENS = 0, 1, 5
WORDS = (2, 3, 4)
Score = Callable[[float, int], float]  # (log-probability with the EOS penalty, scored tokens) -> score


@dataclass(frozen=True)
class ToyState:
    sentence: Tensor  # (R,)
    code: Tensor  # (R,) the prefix as a number in base NUM_TOKENS, BOS included
    weights: Tensor | None  # (R, S)


@dataclass
class ToyStepper:
    """Random laws: the next token is drawn from a row of a table that the prefix's code picks.

    A batch is a list of sentence numbers. The first weight of a row is its prefix's code, the second the sentence, the
    third the step; those behind the source's length are -1, and how many of them there are depends on the batch.
    """

    log_probs: Tensor  # (sentences, table rows, V)
    lengths: Tensor  # (sentences,)
    has_weights: bool = True
    rows_per_step: list[int] = field(default_factory=list)
    estimators: Mapping[str, Estimator] | None = None

    @classmethod
    def random(cls, seed: int = 0, *, num_sentences: int = 4, sharpness: float = 1.5) -> "ToyStepper":
        generator = torch.Generator().manual_seed(seed)
        logits = sharpness * torch.randn(num_sentences, 101, NUM_TOKENS, generator=generator, dtype=torch.float64)
        lengths = torch.randint(3, 9, (num_sentences,), generator=generator)
        return cls(logits.log_softmax(-1), lengths)

    def start(self, batch: Sequence[int], estimators: Mapping[str, Estimator]) -> ToyState:
        self.estimators = estimators
        self.rows_per_step.clear()
        sentence = torch.tensor(batch, dtype=torch.int64)
        width = int(self.lengths[sentence].max()) if len(batch) else 0
        return ToyState(sentence, torch.zeros_like(sentence), torch.zeros(len(batch), width, dtype=torch.float64))

    def step(self, state: ToyState, tokens: Tensor) -> tuple[Tensor, ToyState]:
        self.rows_per_step.append(len(tokens))
        code = state.code * NUM_TOKENS + tokens
        weights = torch.zeros_like(state.weights)
        weights[:, 0], weights[:, 1], weights[:, 2] = code, state.sentence, len(self.rows_per_step) - 1
        is_padding = torch.arange(weights.shape[1]) >= self.lengths[state.sentence].unsqueeze(1)
        log_probs = self.log_probs[state.sentence, code % self.log_probs.shape[1]]
        return log_probs, ToyState(state.sentence, code, weights.masked_fill(is_padding, -1.0))

    def select(self, state: ToyState, indices: Tensor) -> ToyState:
        return ToyState(state.sentence[indices], state.code[indices], state.weights[indices])

    def weights(self, state: ToyState) -> Tensor | None:
        return state.weights if self.has_weights else None

    def source_lengths(self, state: ToyState) -> Tensor:
        return self.lengths[state.sentence]

    def law(self, sentence: int, prefix: Sequence[int]) -> list[float]:
        """Log-probabilities after a prefix, without BOS: the oracles' way to the model."""
        return self.log_probs[sentence, code_of(prefix) % self.log_probs.shape[1]].tolist()


def code_of(prefix: Sequence[int]) -> int:
    code = BOS
    for token in prefix:
        code = code * NUM_TOKENS + token
    return code


@dataclass(frozen=True)
class Found:
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    is_complete: bool


def eos_cost(strength: float, source_length: int, num_words: int) -> float:
    """As in the released code of Deng et al.: cur_len counts BOS and the words."""
    cur_len = num_words + 1
    return strength * source_length / (cur_len + 1)


def allowed(constraints: Constraints, num_words: int) -> list[int]:
    return [
        token
        for token in range(NUM_TOKENS)
        if token not in constraints.forbidden and not (token == EOS and num_words < constraints.min_length)
    ]


def enumerate_all(
    stepper: ToyStepper, sentence: int, *, constraints: Constraints, limit: int, score: Score, strength: float = 0.0
) -> list[Found]:
    """Every sentence there is, complete ones first, by falling score."""
    found = []
    words = [token for token in allowed(constraints, limit) if token != EOS]
    for num_words in range(limit + 1):
        for tokens in itertools.product(words, repeat=num_words):
            log_prob = sum(stepper.law(sentence, tokens[:n])[token] for n, token in enumerate(tokens))
            if num_words == limit:
                found.append(Found(tokens, log_prob, score(log_prob, limit), False))
            elif EOS in allowed(constraints, num_words):
                log_prob += stepper.law(sentence, tokens)[EOS]
                cost = eos_cost(strength, int(stepper.lengths[sentence]), num_words)
                found.append(Found(tokens, log_prob, score(log_prob - cost, num_words + 1), True))
    return sorted(found, key=lambda item: (not item.is_complete, -item.score))


def plain_beam(
    stepper: ToyStepper,
    sentence: int,
    *,
    constraints: Constraints,
    limit: int,
    score: Score,
    beam_size: int,
    strength: float = 0.0,
) -> list[Found]:
    """Beam search for one sentence in lists, which always runs to the limit."""
    live, ended = [((), 0.0)], []
    for num_words in range(limit):
        candidates = []
        for tokens, log_prob in live:
            for token in allowed(constraints, num_words):
                total = log_prob + stepper.law(sentence, tokens)[token]
                cost = eos_cost(strength, int(stepper.lengths[sentence]), num_words) if token == EOS else 0.0
                candidates.append((total - cost, total, (*tokens, token)))
        candidates.sort(key=lambda item: -item[0])
        for penalised, total, tokens in candidates[:beam_size]:
            if tokens[-1] == EOS:
                ended.append(Found(tokens[:-1], total, score(penalised, len(tokens)), True))
        live = [(tokens, total) for _, total, tokens in candidates if tokens[-1] != EOS][:beam_size]
    cut = [Found(tokens, log_prob, score(log_prob, limit), False) for tokens, log_prob in live]
    return sorted(ended + cut, key=lambda item: (not item.is_complete, -item.score))


def sequence_probabilities(
    stepper: ToyStepper, sentence: int, *, limit: int, truncate: Callable[[list[float]], list[float]]
) -> Iterator[tuple[tuple[tuple[int, ...], bool], float]]:
    """((tokens, is_complete), probability) of every sentence under laws that `truncate` turns into probabilities."""
    pending = [((), 1.0)]
    while pending:
        tokens, probability = pending.pop()
        if len(tokens) == limit:
            yield (tokens, False), probability
            continue
        for token, factor in enumerate(truncate(stepper.law(sentence, tokens))):
            if factor > 0.0 and token == EOS:
                yield (tokens, True), probability * factor
            elif factor > 0.0:
                pending.append(((*tokens, token), probability * factor))


def is_same(found: Found, hypothesis: object) -> bool:
    """Equal tokens and, up to rounding, equal numbers."""
    return (found.tokens, found.is_complete) == (hypothesis.tokens, hypothesis.is_complete) and all(
        math.isclose(getattr(found, name), getattr(hypothesis, name), rel_tol=1e-9, abs_tol=1e-9)
        for name in ("log_prob", "score")
    )


def check_weights(stepper: ToyStepper, sentence: int, hypothesis: object) -> None:
    """The weights of token n must be those of the row that held exactly the tokens before it."""
    tokens, weights = hypothesis.tokens, hypothesis.weights
    assert weights.shape == (len(tokens), int(stepper.lengths[sentence]))
    assert weights[:, 0].tolist() == [code_of(tokens[:n]) for n in range(len(tokens))]
    assert weights[:, 1].tolist() == [sentence] * len(tokens)
    assert weights[:, 2].tolist() == list(range(len(tokens)))
