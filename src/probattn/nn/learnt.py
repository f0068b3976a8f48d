"""Numbers of a family that are learnt: parameters of the module that holds it."""

import copy
from typing import TYPE_CHECKING, Any

from torch import nn

__all__ = ["HoldsFamily", "register_learnt"]


class HoldsFamily(nn.Module):
    """A module with a family whose learnt numbers are parameters of the module.

    A family is a small object, not a module, so torch does not look into it. Here its parameters are listed as
    `family_<name>`, and reading `family` gives one that holds what is listed now: also after
    `load_state_dict(assign=True)` and inside `torch.func.functional_call`, which put other tensors there.

    Attributes:
        family: E.g. Weibull(nn.Parameter(torch.tensor(10.0))), or None. One that is a module is listed by torch.
    """

    if not TYPE_CHECKING:  # every subclass says by its assignment what kind of family it holds

        @property
        def family(self) -> Any:
            """The family, with the parameters that the module lists now."""
            return self._modules["family"] if "family" in self._modules else _current(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "family":
            super().__setattr__(name, value)
            return
        for learnt in _learnt_names(self.__dict__.get("_family")):
            self._parameters.pop(f"family_{learnt}", None)  # of the family before
        self._modules.pop("family", None)
        is_ours = getattr(type(self), "family", None) is vars(HoldsFamily)["family"]
        if isinstance(value, nn.Module) or not is_ours:
            super().__setattr__(name, value)  # a module, or a subclass that holds its family in its own way
            self.__dict__["_family"] = None
        else:
            self.__dict__["_family"] = value
        register_learnt(self, value)


def _current(module: nn.Module) -> Any:
    family = module.__dict__.get("_family")
    listed = {name: getattr(module, f"family_{name}") for name in _learnt_names(family)}
    if all(getattr(family, name) is parameter for name, parameter in listed.items()):
        return family
    current = copy.copy(family)
    for name, parameter in listed.items():
        object.__setattr__(current, name, parameter)  # families are frozen
    return current


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
    for name in _learnt_names(family):
        module.register_parameter(f"family_{name}", getattr(family, name))


def _learnt_names(family: object) -> list[str]:
    if isinstance(family, nn.Module):
        return []
    return [name for name, value in getattr(family, "__dict__", {}).items() if isinstance(value, nn.Parameter)]
