"""Random attention weights in models of Hugging Face `transformers`; needs the extra `probattn[transformers]`."""

try:
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "probattn.integrations.transformers needs transformers 5; install it with: pip install 'probattn[transformers]'"
    ) from error

from probattn.integrations.transformers.convert import make_stochastic, undo
from probattn.integrations.transformers.forward import kl_weight, set_kl_step
from probattn.integrations.transformers.loading import load_stochastic
from probattn.integrations.transformers.trainer import KlSchedule

__all__ = ["KlSchedule", "kl_weight", "load_stochastic", "make_stochastic", "set_kl_step", "undo"]
