"""Alignments of sentence pairs: of the prior, of the inference network, and the exact posterior.

Size letters: K positions, B sentences, T target subwords, S source subwords.
"""

from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor

from probattn.core import Enumerate, Estimator, Mean
from probattn.data.alignment_gold import Links
from probattn.data.batches import TranslationBatch
from probattn.data.subwords import Subwords
from probattn.distributions import Categorical
from probattn.metrics import links_from_weights
from probattn.models.seq2seq import Seq2Seq
from probattn.nn import FromScores
from probattn.recipes.translation_run import run


class Aligner(StrEnum):
    """Which distribution over source positions an alignment is read from."""

    PRIOR = "prior"
    """p(z | x, y_<t): what decoding sees."""
    POSTERIOR = "posterior"
    """q(z | x, y): the inference network's."""
    EXACT = "exact"
    """p(z | x, y_<=t), proportional to the prior times the probability of the word at hand, by enumeration."""


def aligner_by_name(name: str) -> Aligner:
    """The aligner of a name.

    Raises:
        ValueError: If there is none; names those that exist.
    """
    try:
        return Aligner(name)
    except ValueError:
        raise ValueError(f"there is no aligner '{name}'; there are {', '.join(Aligner)}") from None


def available_aligners(model: Seq2Seq) -> list[Aligner]:
    """What a model can align with: the posterior, the exact posterior, the prior, as far as it has them."""
    prior, posterior = model.weights.prior, model.weights.posterior
    found = [Aligner.PRIOR]
    # where the draw feeds the state, alternatives of one step lead to different later ones
    if isinstance(prior, FromScores) and isinstance(prior.family, Categorical) and not model.weights.feeds_state:
        found.insert(0, Aligner.EXACT)
    if posterior is not None and "target" in posterior.needs:
        found.insert(0, Aligner.POSTERIOR)
    return found


def require_testable(model: Seq2Seq, estimator: Estimator) -> None:
    """Refuse to enumerate the alignments of a model that has none.

    Raises:
        ValueError: If the model's weights are not a choice of one position.
    """
    if isinstance(estimator, Enumerate) and Aligner.EXACT not in available_aligners(model):
        raise ValueError(
            "exact and kmax mix over choices of one source position, but this model's weights are not such a choice; "
            "test it with soft, or as it was trained"
        )


@torch.no_grad()
def alignment_weights(model: Seq2Seq, batch: TranslationBatch, aligner: Aligner) -> Tensor:
    """(B, T, S) weights of every source position for every target word.

    Args:
        model: In evaluation mode.
        batch: In output ids.
        aligner: Which distribution.

    Raises:
        ValueError: If the model has no such distribution; says which it has.
    """
    possible = available_aligners(model)
    if aligner not in possible:
        raise ValueError(f"this model cannot align by '{aligner}'; it can by {', '.join(possible)}")
    if aligner == Aligner.EXACT:
        return _exact_posterior(model, batch)
    evaluation = run(model, batch, Mean(), bound=None, use_posterior=aligner == Aligner.POSTERIOR)
    value = evaluation.latents[0].draw.value
    if value is None:
        raise ValueError("the site gave positions where weights were expected")
    return value[0]


def _exact_posterior(model: Seq2Seq, batch: TranslationBatch) -> Tensor:
    evaluation = run(model, batch, Enumerate(), bound=None, use_posterior=False)
    draw = evaluation.latents[0].draw
    if draw.index is None:
        raise ValueError("the exact posterior needs enumerated positions")
    share = torch.softmax(draw.log_weight + evaluation.log_lik, dim=0)  # (K, B, T)
    weights = share.new_zeros(*share.shape[1:], batch.source.shape[1])
    return weights.scatter_add(-1, draw.index.movedim(0, -1), share.movedim(0, -1))


def word_links(
    weights: Tensor, subwords: Subwords, source: Sequence[int], target: Sequence[int], *, threshold: float | None = None
) -> Links:
    """Links between words from weights (T, S) between subwords, which may be padded.

    Args:
        weights: Of one sentence pair.
        subwords: The model's.
        source: Joint ids of the source.
        target: Joint ids of the target.
        threshold: None: each target subword links to its largest weight. Else all words whose `word_weights` are at
            least this.
    """
    source_words = subwords.tokenizer.word_index(source)
    target_words = subwords.tokenizer.word_index(target)
    inside = weights[: len(target_words), : len(source_words)]
    if threshold is None or inside.numel() == 0:
        return frozenset(links_from_weights(inside, source_words, target_words))
    between_words = word_weights(inside, source_words, target_words)
    numbers = [range(size) for size in between_words.shape]
    return frozenset(links_from_weights(between_words, numbers[1], numbers[0], threshold=threshold))


def word_weights(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Weights between words: summed over the subwords of a source word, averaged over those of a target word.

    Args:
        weights: (T, S) between subwords; rows behind the last target word (end of sentence) are left out.
        source_words: (S) number of each subword's word.
        target_words: Number of each target subword's word.

    Returns:
        (target words, source words); rows sum to one.

    Example:
        >>> word_weights(torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.9, 0.0]]), [0, 0, 1], [0, 0])
        tensor([[0.8500, 0.1500]])
    """
    to_source = torch.nn.functional.one_hot(torch.tensor(source_words)).to(weights.dtype)  # (S, source words)
    to_target = torch.nn.functional.one_hot(torch.tensor(target_words)).to(weights.dtype)  # (T, target words)
    return (to_target / to_target.sum(dim=0)).T @ weights[: len(target_words)] @ to_source
