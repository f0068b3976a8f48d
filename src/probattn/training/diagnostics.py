"""Measurements on a training step that need more than its numbers, and what its numbers warn of."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["CollapseWarning", "effective_kl_gradient", "warn_of_collapse"]

_REMEDIES = (
    "let the KL's weight rise slowly (Logistic, Linear or Cyclical as its schedule) or end lower (Constant below 1); "
    "put a floor under the KL (Elbo(free_bits={{'{site}': FreeBits(...)}})); make the decoder need the draw (word "
    "dropout, no initial state from the encoder); where soft attention goes around it, make the context random too (a "
    "site with FromContext)."
)


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


class CollapseWarning(UserWarning):
    """A site's draws tell nothing of the example."""


def warn_of_collapse(
    kl: Mapping[str, float], active_units: Mapping[str, int | None] | None = None, *, min_kl: float = 0.01
) -> list[str]:
    """Messages on sites whose posterior has fallen onto the prior, so that their draws carry nothing (collapse).

    Leave out sites whose posterior *is* the prior, whose KL is zero by design, and stages whose KL has no weight or
    whose posterior is frozen. A KL of NaN is no collapse; the engine stops for it elsewhere.

    Args:
        kl: For each site its KL in nats an example: summed over steps, averaged over examples, without weight or floor.
        active_units: For each site how many of its latent units are active (`metrics.active_units`), None where nobody
            counted.
        min_kl: A KL below it has vanished.

    Returns:
        One message for each site that has vanished by either measure, in the order of `kl`; empty if all is well.

    Example:
        >>> warn_of_collapse({"z": 4.2, "context": 0.7}, {"z": 12})
        []
        >>> print(warn_of_collapse({"z": 0.003})[0])
        site 'z' has collapsed: its KL is 0.003 nats an example (below 0.01). Its draws tell nothing of the example. ...
    """
    counted = active_units or {}
    messages = []
    for site in dict.fromkeys([*kl, *counted]):
        signs = []
        if site in kl and kl[site] < min_kl:
            signs.append(f"its KL is {kl[site]:.2g} nats an example (below {min_kl:g})")
        if counted.get(site) == 0:
            signs.append("none of its latent units is active")
        if signs:
            messages.append(
                f"site '{site}' has collapsed: {' and '.join(signs)}. Its draws tell nothing of the example. Remedies: "
                f"{_REMEDIES.format(site=site)}"
            )
    return messages


def _gradient_norm(loss: Tensor, parameters: list[Tensor]) -> float:
    if not loss.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return float(torch.nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None]))
