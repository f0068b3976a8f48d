"""Perplexities, each with its name: nothing here is called just `ppl`.

All take summed nats and a count of tokens (EOS included), so that averages over batches come out right.
"""

import math

__all__ = ["davam_ppl", "elbo_ppl", "exact_ppl", "iw_ppl", "predictive_ppl"]


def exact_ppl(log_lik: float, tokens: int) -> float:
    """exp(-log-likelihood / tokens) of an exact marginal likelihood.

    Args:
        log_lik: Summed log-likelihood in nats.
        tokens: Number of tokens.

    Example:
        >>> round(exact_ppl(-20.0, 10), 3)
        7.389
    """
    return _exponentiate(log_lik, tokens)


def predictive_ppl(log_lik: float, tokens: int) -> float:
    """exp(-log-likelihood / tokens) of a predictive distribution: exact, plug-in, K-max or a mixture over draws.

    Say with the number which one it is.
    """
    return _exponentiate(log_lik, tokens)


def elbo_ppl(bound: float, tokens: int) -> float:
    """exp(-ELBO / tokens) with the KL summed: an upper bound of the exact perplexity."""
    return _exponentiate(bound, tokens)


def iw_ppl(bound: float, tokens: int) -> float:
    """exp(-importance-weighted bound / tokens): between the exact and the ELBO perplexity, in expectation."""
    return _exponentiate(bound, tokens)


def davam_ppl(log_lik: float, kl_over_positions: float, tokens: int) -> float:
    """exp((reconstruction + position-*averaged* KL) / tokens), as DAVAM publishes it, for comparison with that paper.

    It bounds nothing: the reconstruction is summed over the words of a sentence and the KL averaged over its positions,
    which makes the KL's share smaller by the length of a sentence. `elbo_ppl` has the sum of eq. 7.

    Args:
        log_lik: Summed log-likelihood of the reconstruction in nats.
        kl_over_positions: For each sentence its KL divided by its positions, summed over sentences.
        tokens: Number of tokens.

    Example:
        >>> round(davam_ppl(-20.0, 3.0, 10), 3), round(elbo_ppl(-20.0 - 30.0, 10), 3)  # ten positions
        (9.974, 148.413)
    """
    return _exponentiate(log_lik - kl_over_positions, tokens)


def _exponentiate(nats: float, tokens: int) -> float:
    if tokens <= 0:
        raise ValueError(f"a perplexity needs at least one token, got {tokens}")
    # beyond 700 nats a token a float overflows; such a model is broken, but its report should not be
    return math.exp(min(-nats / tokens, 700.0))
