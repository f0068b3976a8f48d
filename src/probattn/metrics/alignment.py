"""How attention weights look: where they point, and how spread they are."""

import torch
from torch import Tensor

__all__ = ["alignment_accuracy", "weights_entropy"]


def alignment_accuracy(weights: Tensor, position: Tensor) -> Tensor:
    """Share of queries whose largest weight is at the right position.

    Args:
        weights: (*unit, S).
        position: (*unit) int64.

    Returns:
        Scalar.

    Raises:
        ValueError: If there is not one position for each query.

    Example:
        >>> alignment_accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        tensor(0.5000)
    """
    if position.shape != weights.shape[:-1]:
        raise ValueError(
            f"expected positions of shape {tuple(weights.shape[:-1])}, one for each row of weights, got "
            f"{tuple(position.shape)}"
        )
    return (weights.argmax(dim=-1) == position).float().mean()


def weights_entropy(weights: Tensor) -> Tensor:
    """Mean entropy of the weights in nats, as in Deng et al., Table 3.

    Args:
        weights: (*unit, S), rows that sum to one.

    Returns:
        Scalar.

    Example:
        >>> weights_entropy(torch.tensor([[0.5, 0.5, 0.0]]))
        tensor(0.6931)
    """
    return -torch.xlogy(weights, weights).sum(dim=-1).mean()
