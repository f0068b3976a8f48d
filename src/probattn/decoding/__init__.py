'''Sentences from step-wise models: greedy, beam search and sampling. Knows a `Stepper`, no model.

Example:
    A language of two words in which a sentence ends after each word with probability 0.4:

    >>> import torch
    >>> class Coin:
    ...     """Words 1 and 2; 0 begins and ends a sentence. The state is the number of rows."""
    ...
    ...     def start(self, batch, estimators):
    ...         return len(batch)
    ...
    ...     def step(self, state, tokens):
    ...         return torch.tensor([0.4, 0.35, 0.25]).log().expand(state, 3), state
    ...
    ...     def select(self, state, indices):
    ...         return len(indices)
    ...
    ...     def weights(self, state):
    ...         return None
    ...
    ...     def source_lengths(self, state):
    ...         return torch.zeros(state, dtype=torch.int64)
    >>> constraints = Constraints(bos=0, eos=0, max_length=4, min_length=1)
    >>> greedy(Coin(), ["one sentence"], constraints=constraints)[0].tokens
    (1,)
    >>> nbest = beam_search(Coin(), ["one sentence"], constraints=constraints, beam_size=4, num_return=3)
    >>> [(hypothesis.tokens, round(hypothesis.log_prob, 2)) for hypothesis in nbest[0]]
    [((1,), -1.97), ((2,), -2.3), ((1, 1), -3.02)]
    >>> len(sample(Coin(), ["one sentence"], constraints=constraints, num_samples=5, seed=1)[0])
    5
'''

from probattn.decoding.beam import StopRule, beam_search
from probattn.decoding.constraints import Constraints, MaxLength
from probattn.decoding.greedy import greedy
from probattn.decoding.hypothesis import Hypothesis
from probattn.decoding.mixing import mix_log_probs
from probattn.decoding.penalties import AveragePenalty, LengthPenalty, NoPenalty, WuPenalty
from probattn.decoding.sampling import sample, truncate_law
from probattn.decoding.stepper import Stepper

__all__ = [
    "AveragePenalty",
    "Constraints",
    "Hypothesis",
    "LengthPenalty",
    "MaxLength",
    "NoPenalty",
    "Stepper",
    "StopRule",
    "WuPenalty",
    "beam_search",
    "greedy",
    "mix_log_probs",
    "sample",
    "truncate_law",
]
