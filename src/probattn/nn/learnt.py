"""Numbers of a family that are learnt: parameters of the module that holds it."""

from torch import nn

__all__ = ["register_learnt"]


def register_learnt(module: nn.Module, family: object) -> None:
    """List the parameters inside of a family as the module's, so that optimisers and state dicts know them.

    A family that is a module itself is listed by torch.

    Args:
        module: That holds the family.
        family: E.g. Weibull(nn.Parameter(torch.tensor(10.0))), or None.

    Example:
        >>> import torch, probattn
        >>> site = probattn.FromScores(probattn.Weibull(nn.Parameter(torch.tensor(10.0))))
        >>> [name for name, _ in site.named_parameters()]
        ['family_concentration']
    """
    if isinstance(family, nn.Module):
        return
    for name, value in getattr(family, "__dict__", {}).items():
        if isinstance(value, nn.Parameter):
            module.register_parameter(f"family_{name}", value)
