"""Sampling of sentences: ancestral, with temperature, top-k and top-p truncation.

Noise is counter-based: one uniform number for each (seed, sentence id, sample, step). A sentence's samples therefore
do not depend on which other sentences are decoded with it, on how many samples are drawn after them, or on the device.

Size letters: B sentences, N samples of each, R rows, T steps, V tokens.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from probattn.core import Estimator, fold_seed
from probattn.core.noise import uniform
from probattn.decoding.constraints import Constraints, require_continuation, require_log_probs
from probattn.decoding.hypothesis import Hypothesis
from probattn.decoding.stepper import Stepper
from probattn.decoding.walk import Choice, walk

__all__ = ["sample", "truncate_law"]

BatchT = TypeVar("BatchT")
StateT = TypeVar("StateT")

_MAX_SENTENCE_ID = 2**32 - 1
_NUCLEUS = 64


def sample(
    stepper: Stepper[BatchT, StateT],
    batch: BatchT,
    *,
    constraints: Constraints,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int,
    sentence_ids: Sequence[int] | None = None,
    estimators: Mapping[str, Estimator] | None = None,
) -> list[list[Hypothesis]]:
    """Independent sentences from the model's law, or from a sharpened and truncated one.

    Args:
        stepper: The model.
        batch: B sentences, as the stepper reads them.
        constraints: Which tokens may come when; the rest is renormalised.
        num_samples: N.
        temperature: See `truncate_law`, as for the next two.
        top_k: None: all tokens.
        top_p: None: all tokens.
        seed: The same seed gives the same samples.
        sentence_ids: B numbers of the sentences in the corpus, which index the noise. None: positions in the batch,
            so that splitting a corpus into other batches gives other samples.
        estimators: By name of the site; None: the stepper's own choice.

    Returns:
        For each sentence N hypotheses in the order drawn. `log_prob` is the model's, `score` that of the law that was
        drawn from: their difference is the log importance weight.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    _check_law(temperature, top_k, top_p)
    with torch.no_grad():
        state = stepper.start(batch, estimators or {})
        source_lengths = stepper.source_lengths(state)
        num_sentences = len(source_lengths)
        numbers = list(range(num_sentences)) if sentence_ids is None else list(sentence_ids)
        limits = constraints.limits(source_lengths.cpu())
        noise = _noise(numbers, limits, num_samples=num_samples, seed=seed).to(source_lengths.device)

        def choose(log_probs: Tensor, walkers: Tensor, step: int) -> Choice:
            allowed = constraints.allow(log_probs, step)
            sentences = (walkers // num_samples).tolist()
            largest = allowed.amax(dim=1).cpu()
            require_log_probs(largest, sentences=sentences, step=step)
            require_continuation(largest, sentences=sentences, step=step)
            law = truncate_law(allowed, temperature=temperature, top_k=top_k, top_p=top_p)
            tokens = _invert(law, noise[walkers.to(noise.device), step]).unsqueeze(1)  # (R, 1)
            log_prob, score = log_probs.gather(1, tokens), law.gather(1, tokens)
            return Choice(tokens.squeeze(1).cpu(), log_prob.squeeze(1).double().cpu(), score.squeeze(1).double().cpu())

        rows = torch.arange(num_sentences, device=source_lengths.device).repeat_interleave(num_samples)
        drawn = walk(stepper, stepper.select(state, rows), constraints=constraints, choose=choose)
    return [drawn[start : start + num_samples] for start in range(0, len(drawn), num_samples)]


def truncate_law(
    log_probs: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Sharpen a distribution, then cut off its tail: p^(1/temperature), then top-k, then top-p, then renormalise.

    Args:
        log_probs: (R, V), normalised or not; at least one entry of each row is above -inf.
        temperature: Above 0; below 1 sharpens.
        top_k: Keep the k most probable tokens.
        top_p: Keep the smallest set of most probable tokens whose mass (after top-k, renormalised) is at least this
            number, above 0 and at most 1 (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
            Tokens as probable as the last one of them are kept too.

    Returns:
        (R, V) log-probabilities, normalised; -inf outside. In the precision of the input, at least float32.

    Example:
        >>> truncate_law(torch.tensor([[0.5, 0.3, 0.2]]).log(), top_k=2).exp()
        tensor([[0.6250, 0.3750, 0.0000]])
    """
    _check_law(temperature, top_k, top_p)
    law = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))
    if temperature != 1.0:
        # the largest becomes zero first: a tiny temperature must not send all tokens to -inf
        law = (law - law.amax(dim=-1, keepdim=True)) / max(temperature, torch.finfo(law.dtype).tiny)
    law = torch.log_softmax(law, dim=-1)
    if top_k is not None and top_k < law.shape[-1]:
        kept = law.topk(top_k, dim=-1)
        law = torch.full_like(law, -torch.inf).scatter(-1, kept.indices, kept.values)
        law = torch.log_softmax(law, dim=-1)
    if top_p is not None and top_p < 1.0:
        law = torch.log_softmax(law.masked_fill(law < _edge_of_nucleus(law, top_p), -torch.inf), dim=-1)
    return law


def _edge_of_nucleus(law: Tensor, top_p: float) -> Tensor:
    """(R, 1) log-probability of the last token needed for a mass of `top_p`, from a law (R, V)."""
    num_looked_at = min(_NUCLEUS, law.shape[-1])
    while True:  # a nucleus is small as a rule, and sorting whole rows costs more than all the rest
        ordered = law.topk(num_looked_at, dim=-1).values
        mass = ordered.exp().cumsum(dim=-1, dtype=torch.float64)
        if num_looked_at == law.shape[-1] or bool((mass[:, -1] >= top_p).all()):
            break
        num_looked_at = min(4 * num_looked_at, law.shape[-1])
    num_needed = (mass[:, :-1] < top_p).sum(dim=-1, keepdim=True) + 1
    return ordered.gather(-1, num_needed - 1)


def _check_law(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}; the limit 0 is greedy search")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1 or None, got {top_k}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p must be above 0 and at most 1, or None, got {top_p}")


def _noise(sentence_ids: Sequence[int], limits: Tensor, *, num_samples: int, seed: int) -> Tensor:
    """(B * N, T) uniform numbers; a longer T or a larger N changes none that were there before."""
    if len(sentence_ids) != len(limits):
        raise ValueError(f"expected {len(limits)} sentence_ids, one for each sentence, got {len(sentence_ids)}")
    if any(not 0 <= number <= _MAX_SENTENCE_ID for number in sentence_ids):
        raise ValueError(f"sentence_ids must lie between 0 and {_MAX_SENTENCE_ID}, got {list(sentence_ids)}")
    if len(sentence_ids) == 0:
        return torch.empty(0, 0, dtype=torch.float64)
    root, shape = torch.tensor(seed), (num_samples, int(limits.max()))
    return torch.cat([uniform(fold_seed(root, number), shape, dtype=torch.float64) for number in sentence_ids])


def _invert(law: Tensor, unit: Tensor) -> Tensor:
    """(R,) tokens where the distribution functions of `law` (R, V) exceed `unit` (R,); never one of probability 0."""
    cumulative = law.exp().cumsum(dim=-1, dtype=torch.float64)
    # `unit` is at most 1 - 2**-53, so that the product is below the total in float64, however it is rounded
    height = unit.unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, height, right=True).squeeze(1)
