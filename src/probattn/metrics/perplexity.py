"""Perplexities, each with its name: nothing here is called just `ppl`.

All take summed nats and a count of tokens (EOS included), so that averages over batches come out right.
"""

import math

__all__ = ["elbo_ppl", "exact_ppl", "iw_ppl", "predictive_ppl"]


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


def _exponentiate(nats: float, tokens: int) -> float:
    if tokens <= 0:
        raise ValueError(f"a perplexity needs at least one token, got {tokens}")
    # beyond 700 nats a token a float overflows; such a model is broken, but its report should not be
    return math.exp(min(-nats / tokens, 700.0))
