"""A translation model on batches of text."""

from collections.abc import Iterator
from contextlib import contextmanager

from probattn.core import Bound, Estimator, Evaluation
from probattn.data.batches import EncodedText, TranslationBatch
from probattn.data.subwords import Subwords
from probattn.distributions import Categorical, GumbelSoftmax
from probattn.models.seq2seq import Seq2Seq
from probattn.nn import InferenceNetwork


def batches_of(text: EncodedText, subwords: Subwords, *, max_sentences: int = 64) -> Iterator[TranslationBatch]:
    """All pairs of a text, sorted by source length, in output ids."""
    order = sorted(range(len(text)), key=lambda row: len(text.source[row]))
    for start in range(0, len(order), max_sentences):
        yield subwords.to_output(text.batch(order[start : start + max_sentences]))


def run(
    model: Seq2Seq, batch: TranslationBatch, estimator: Estimator, *, bound: Bound | None, use_posterior: bool
) -> Evaluation:
    """The model's evaluation of a batch in output ids."""
    moved = batch.to(model.device)
    return model(
        moved.source,
        moved.source_mask,
        target_in=moved.target_in,
        target_out=moved.target_out,
        target_mask=moved.target_mask,
        estimators={model.weights.name: estimator},
        bound=bound,
        use_posterior=use_posterior,
    )


@contextmanager
def choosing(model: Seq2Seq) -> Iterator[None]:
    """Inside, a Gumbel-softmax posterior is the categorical choice that its draws relax; others stay as they are."""
    posterior = model.weights.posterior
    if not (isinstance(posterior, InferenceNetwork) and isinstance(posterior.family, GumbelSoftmax)):
        yield
        return
    relaxed = posterior.family
    posterior.family = Categorical()
    try:
        yield
    finally:
        posterior.family = relaxed
