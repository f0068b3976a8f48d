"""Measurements on a training step that need more than its numbers."""

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["effective_kl_gradient"]


def effective_kl_gradient(parameters: Iterable[Tensor], likelihood_loss: Tensor, kl_loss: Tensor) -> float:
    """Norm of the weighted KL's gradient over the norm of the likelihood's: ||grad KL|| / ||grad NLL||.

    Near zero the KL does not steer the model, above one it pulls harder than the data. The graphs are kept, so the
    loss can still be differentiated.

    Args:
        parameters: What to differentiate with respect to; those without `requires_grad` do not count.
        likelihood_loss: Scalar, the likelihood's part of the loss.
        kl_loss: Scalar, the KL's part of the loss, with its weight.

    Returns:
        The ratio; 0 if the KL does not depend on the parameters, infinity if only the likelihood does not.

    Example:
        >>> weight = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> effective_kl_gradient([weight], weight.square().sum(), 0.5 * weight.square().sum())
        0.5
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    kl_norm = _gradient_norm(kl_loss, wanted)
    if kl_norm == 0.0:
        return 0.0
    likelihood_norm = _gradient_norm(likelihood_loss, wanted)
    return kl_norm / likelihood_norm if likelihood_norm > 0.0 else float("inf")


def _gradient_norm(loss: Tensor, parameters: list[Tensor]) -> float:
    if not loss.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return float(torch.nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None]))
