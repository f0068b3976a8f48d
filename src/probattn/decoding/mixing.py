"""The predictive distribution of a latent-variable model: a mixture over particles.

Size letters: K particles, R rows, V tokens.
"""

import torch
from torch import Tensor

__all__ = ["mix_log_probs"]


def mix_log_probs(log_weight: Tensor, log_probs: Tensor) -> Tensor:
    """The mixture log sum_k w_k p_k(token), in log space.

    Exact for enumerated alignments (Deng et al., Sec. 3: p(y) = sum_k p(z = k) f(y; x, k)), K-max for their K most
    probable, a Monte Carlo estimate for samples of equal weight. Weights are used as they are: if they sum to less
    than one, so does the result.

    Args:
        log_weight: (K, R); -inf takes a particle out, whatever its log-probabilities are, NaN too (a baseline).
        log_probs: (K, R, V).

    Returns:
        (R, V); -inf, not NaN, where no particle gives the token any probability.

    Example:
        >>> mix_log_probs(torch.tensor([[0.75], [0.25]]).log(), torch.tensor([[[1.0, 0.0]], [[0.2, 0.8]]]).log()).exp()
        tensor([[0.8000, 0.2000]])
    """
    if log_weight.ndim != 2 or log_probs.ndim != 3 or log_weight.shape != log_probs.shape[:2]:
        raise ValueError(
            "expected log_weight of shape (K, R) and log_probs of shape (K, R, V), got "
            f"{tuple(log_weight.shape)} and {tuple(log_probs.shape)}"
        )
    if log_weight.shape[0] == 0:
        raise ValueError("a mixture needs at least one particle, got none; pass log_weight of shape (K, R) with K >= 1")
    joint = log_weight.unsqueeze(-1) + log_probs  # (K, R, V)
    is_out = (log_weight == -torch.inf).unsqueeze(-1)
    return torch.logsumexp(joint.masked_fill(is_out, -torch.inf), dim=0)
