"""The effective KL gradient of graph attention, split by the way it takes.

A KL between posterior and contextual prior reaches the network's shared weights along two ways: through the scores,
which is what "the prior regularises attention" means, and through the keys that the prior is computed from (those of a
later layer depend on the scores of the layers before it; that counts as a way through keys). Norms are
relative to that of the likelihood's gradient, over all parameters that do not belong to a prior.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from probattn.core import Terms
from probattn.nn import KeyPrior

__all__ = ["kl_gradients"]


def kl_gradients(model: nn.Module, evaluate: Callable[[], Terms]) -> Mapping[str, float]:
    """Norm of the weighted KL's gradient over the likelihood's.

    Args:
        model: Its parameters; those inside a prior are left out, which the likelihood does not reach.
        evaluate: The terms of one training step. It is called several times with the same random numbers.

    Returns:
        "kl_gradient" of the whole KL, "kl_gradient_scores" through the scores, "kl_gradient_keys" through the keys of
        contextual priors.
    """
    shared = [
        parameter for name, parameter in model.named_parameters() if ".prior." not in name and parameter.requires_grad
    ]
    state = torch.get_rng_state()

    def gradient(part: Callable[[Terms], Tensor]) -> Tensor:
        torch.set_rng_state(state)
        value = part(evaluate())
        if not value.requires_grad:
            return torch.zeros(sum(parameter.numel() for parameter in shared))
        found = torch.autograd.grad(value, shared, allow_unused=True)
        pairs = zip(found, shared, strict=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten().double() for g, p in pairs])

    likelihood = gradient(lambda terms: (terms.loss - terms.cost).sum()).norm()
    whole = gradient(lambda terms: terms.cost.sum())
    with _detached_keys(model):
        through_scores = gradient(lambda terms: terms.cost.sum())
    torch.set_rng_state(state)
    parts = {"": whole, "_scores": through_scores, "_keys": whole - through_scores}
    return {f"kl_gradient{name}": float(part.norm() / likelihood) for name, part in parts.items()}


@contextmanager
def _detached_keys(model: nn.Module) -> Iterator[None]:
    priors = [module for module in model.modules() if isinstance(module, KeyPrior)]
    before = [prior.detaches_keys for prior in priors]
    for prior in priors:
        prior.detaches_keys = True
    try:
        yield
    finally:
        for prior, is_detached in zip(priors, before, strict=True):
            prior.detaches_keys = is_detached
