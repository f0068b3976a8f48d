"""Whether what somebody hands over as a family or a prior is one; a word on what was probably meant."""

from probattn.distributions import Family, PriorFamily
from probattn.nn.conditionals import Conditional

__all__ = ["require_conditional", "require_family"]


def require_family(family: object, where: str) -> None:
    """Raise a TypeError unless it is a family or None.

    Args:
        family: E.g. Weibull(10.0).
        where: Who asks, for the message.
    """
    if family is None or isinstance(family, Family):
        return
    name = family.__name__ if isinstance(family, type) else repr(family)
    hint = f"; call it: {name}(...)" if isinstance(family, type) else ""
    raise TypeError(f"{where}: expected a family such as Weibull(10.0), or None, got {name}{hint}")


def require_conditional(conditional: object, where: str) -> None:
    """Raise a TypeError unless it is a prior or posterior (a `Conditional`) or None.

    Args:
        conditional: E.g. KeyPrior(...).
        where: Who asks, for the message.
    """
    if conditional is None or isinstance(conditional, Conditional):
        return
    name = conditional.__name__ if isinstance(conditional, type) else type(conditional).__name__
    hint = ""
    if isinstance(conditional, PriorFamily):
        hint = f"; say where its parameter comes from: KeyPrior(head_dim, {name}()) or Fixed({name}(), psi)"
    elif isinstance(conditional, Family):
        hint = f"; say what it is a distribution of: FromScores({name}())"
    raise TypeError(f"{where}: expected a Conditional such as KeyPrior, Fixed or FromScores, or None, got {name}{hint}")
