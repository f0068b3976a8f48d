"""Decoding a batch of sentences: greedy and beam search, with ways to predict the next word."""

from collections.abc import Callable
from functools import partial

from probattn.core import Enumerate, Estimator, Mean
from probattn.data.bpe import BOS, EOS, PAD, UNK
from probattn.decoding import Constraints, beam_search, greedy
from probattn.models.seq2seq import Seq2Seq
from probattn.models.seq2seq_stepper import Seq2SeqStepper, SourceSentences

__all__ = ["decoders"]

ESTIMATORS: dict[str, Estimator] = {
    "Mean()": Mean(),
    "Enumerate(1)": Enumerate(1),
    "Enumerate(5)": Enumerate(5),
    "Enumerate()": Enumerate(),
}


def decoders(
    model: Seq2Seq, batch: SourceSentences, *, beam_size: int, num_words: int
) -> dict[str, dict[str, Callable[[], object]]]:
    """By kind of search ("greedy", "beam N") and estimator.

    Args:
        model: In evaluation mode; its weights may be random.
        batch: Source sentences, decoded together.
        beam_size: Of the beam search.
        num_words: Of every translation, the end of the sentence counted: no search may end earlier.
    """
    constraints = Constraints(
        bos=BOS, eos=EOS, max_length=num_words, min_length=num_words - 1, forbidden=(PAD, BOS, UNK)
    )
    found: dict[str, dict[str, Callable[[], object]]] = {"greedy": {}, f"beam {beam_size}": {}}
    for name, estimator in ESTIMATORS.items():
        stepper = Seq2SeqStepper(model, estimator)
        found["greedy"][name] = partial(greedy, stepper, batch, constraints=constraints)
        found[f"beam {beam_size}"][name] = partial(
            beam_search, stepper, batch, constraints=constraints, beam_size=beam_size
        )
    return found
