"""What stands in for `forward` of a converted model: it adds the KL to the loss and returns it.

Inside the model, so that data parallelism, compilation and a Trainer see one output and nothing on the side.
"""

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from probattn.core.schedules import Constant
from probattn.integrations.settings import Settings
from probattn.integrations.transformers.attention import IMPLEMENTATION, StochasticAttention
from probattn.integrations.transformers.calls import ForwardCall, open_call
from probattn.integrations.transformers.checkpointing import repeatable
from probattn.integrations.transformers.kl_watch import KlWatch
from probattn.integrations.transformers.outputs import add_kl, prepare_outputs
from probattn.kernels.native import status
from probattn.nn.recording import is_recording

__all__ = ["StochasticForward", "conversions_of", "kl_weight", "set_kl_step"]

_IGNORED_LABEL = -100  # transformers' sign for a target that does not count

# A schedule that was told no step after so many training passes is told none; no one accumulates over so many.
_PASSES_AT_STEP_0 = 100


class StochasticForward:
    """The `forward` of a converted model, and what `undo` needs to know.

    Args:
        model: The model.
        settings: Of the conversion.
    """

    def __init__(self, model: PreTrainedModel, settings: Settings):
        self.model = model
        self.settings = settings
        self.sites = [module for module in model.modules() if isinstance(module, StochasticAttention)]
        self.inner = model.__dict__.get("forward")  # someone else's, e.g. that of a model spread over devices
        self.names = [name for name in inspect.signature(type(model).forward).parameters if name != "self"]
        self.takes_return_dict = _takes_return_dict(type(model).forward)
        self.configs: list[Any] = []  # of attention modules that have a site
        self.implementations: list[tuple[Any, str | None]] = []  # of every configuration, before the conversion
        status()  # of the kernels: compiled code cannot ask for it the first time
        self.untold_passes = 0  # in training, as long as nobody has told a step
        self.watch = KlWatch(type(model).__name__)
        prepare_outputs(model)
        self._take_weight(0)

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the model's own `forward`: a Trainer reads the names of its arguments."""
        parameters = list(inspect.signature(type(self.model).forward).parameters.values())[1:]
        return inspect.Signature(parameters)

    @property
    def __func__(self) -> Callable[..., Any]:
        """As a bound method has it: accelerate binds what it wraps around it to the model, and so to copies of it."""
        return _call_of

    @property
    def __code__(self) -> CodeType:
        """As a function has it: torch.export looks at it."""
        return type(self).__call__.__code__

    def __deepcopy__(self, memo: dict[int, Any]) -> "StochasticForward":
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(vars(self), memo))
        return made

    def __getstate__(self) -> object:
        """For pickling, where a wrapper of accelerate would come back around the model's own `forward`."""
        if self.model.__dict__.get("forward") is not self:
            raise pickle.PicklingError(
                "the forward of this model is wrapped, e.g. by accelerate for mixed precision, and a pickle would lose "
                "its KL; use save_pretrained and load_stochastic, or copy.deepcopy"
            )
        return vars(self)

    def set_step(self, step: int) -> None:
        """Take the KL weight of a step."""
        self.untold_passes = -1
        self._take_weight(step)

    def _take_weight(self, step: int) -> None:
        # A tensor, since compiled code is compiled again for every new value of a float.
        self.kl_weight = torch.tensor(float(self.settings.kl_weight(step)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Arguments and result of the model's own `forward`; see `make_stochastic` for what is added."""
        self._check_implementation()
        arguments = {**dict(zip(self.names, args, strict=False)), **kwargs}
        config = self.model.config
        is_tuple = arguments.get("return_dict") is False or not getattr(config, "return_dict", True)
        call = ForwardCall(needs_weights=bool(arguments.get("output_attentions")), num_past=self._num_past(arguments))
        if is_tuple and self.takes_return_dict and "return_dict" not in self.names[: len(args)]:
            kwargs = {**kwargs, "return_dict": True}
        with open_call(call), repeatable(self.model, call, self.sites):
            if self.inner is None:
                outputs = type(self.model).forward(self.model, *args, **kwargs)
            else:
                outputs = self.inner(*args, **kwargs)
        if call.receipts and self._can_carry(outputs):
            self._check_gradient(call)
            self._count_pass()
            kl, num_weights = call.totals(self._decoder_queries(arguments), self._num_rows(arguments))
            self._watch_kl(outputs, kl)
            outputs = self._with_kl(outputs, kl, num_weights)
        return outputs.to_tuple() if is_tuple and isinstance(outputs, ModelOutput) else outputs

    def _with_kl(self, outputs: dict[str, Any], kl: Tensor, num_weights: Tensor) -> dict[str, Any]:
        per_unit = kl / num_weights.clamp(min=1.0) if self.settings.kl_per == "weight" else kl
        cost = self.kl_weight.to(kl.device) * per_unit.mean()
        return add_kl(outputs, kl, cost, adds_to_loss=self.model.training)

    def _can_carry(self, outputs: Any) -> bool:
        """Whether an output has room for a KL; one without is refused, unless there is no KL or someone records it."""
        if isinstance(outputs, dict):
            return True
        if self.settings.prior is None or is_recording():
            return False
        raise TypeError(
            f"{type(self.model).__name__} returned {type(outputs).__name__}, which cannot carry a KL; return a "
            "dictionary or one of transformers' outputs, or call the model inside `with probattn.record_latents(model) "
            "as record` and add record.kl() to your loss, or convert it with prior=None"
        )

    def _check_gradient(self, call: ForwardCall) -> None:
        if not torch.is_grad_enabled() or not any(receipt.is_cut_off for receipt in call.receipts):
            return
        is_checkpointing = self.model.is_gradient_checkpointing
        parts: list[nn.Module] = [self.model] if is_checkpointing else list(self.sites)
        if any(parameter.requires_grad for part in parts for parameter in part.parameters()):
            cause = (
                "reentrant checkpointing cuts it off. Pass use_reentrant=False, as "
                "gradient_checkpointing_kwargs={'use_reentrant': False}"
                if is_checkpointing
                else "its attention ran without gradients, under torch.no_grad() or in a reentrant checkpoint (pass "
                "use_reentrant=False), so its prior is not trained. Freeze the prior, or use prior='fixed' or None"
            )
            raise RuntimeError(f"the KL has no gradient: {cause}")

    def _count_pass(self) -> None:
        """Warn once where a KL weight has a schedule and nobody tells the step."""
        if torch.compiler.is_compiling():  # which would compile again for every number
            return
        is_training = self.model.training and torch.is_grad_enabled()
        if self.untold_passes < 0 or not is_training or isinstance(self.settings.kl_weight, Constant):
            return
        self.untold_passes += 1
        if self.untold_passes == _PASSES_AT_STEP_0:
            warnings.warn(
                f"kl_weight has a schedule, but after {_PASSES_AT_STEP_0} training passes nobody has told the step: it "
                f"still is {float(self.kl_weight):g}, that of step 0. Call set_kl_step(model, step) before every "
                "update, or give a Trainer callbacks=[KlSchedule()]",
                stacklevel=2,
            )

    def _watch_kl(self, outputs: dict[str, Any], kl: Tensor) -> None:
        """Warn once where the caller computes a loss of its own and leaves the KL out of it."""
        if torch.compiler.is_compiling() or not (self.model.training and torch.is_grad_enabled()):
            return
        is_ours = outputs.get("loss") is not None or is_recording()
        if not is_ours and self.settings.prior is not None and float(self.kl_weight) > 0.0:
            self.watch.follow(outputs, kl)

    def _check_implementation(self) -> None:
        """Another implementation that someone set afterwards would switch all this off without a word."""
        for config in self.configs:
            if config._attn_implementation != IMPLEMENTATION:
                raise RuntimeError(
                    f"the attention implementation was set to {config._attn_implementation!r} after the conversion, "
                    "which would leave no attention weight random; undo(model) first, or switch with probattn.sampling"
                )

    def _num_past(self, arguments: dict[str, Any]) -> int:
        """Positions in the cache, asked for only where noise or KL depend on it: with a fixed seed, or for a record."""
        past = arguments.get("past_key_values")
        is_needed = self.model.training or is_recording() or any(one.sampling_seed is not None for one in self.sites)
        if past is None or not is_needed:
            return 0
        return int(past.get_seq_length())

    def _num_rows(self, arguments: dict[str, Any]) -> int | None:
        """Examples in a call: rows of its main input, or of the vectors that stand in its place; None: nobody tells."""
        mains = (arguments.get(name) for name in (self.model.main_input_name, "inputs_embeds"))
        return next((main.shape[0] for main in mains if isinstance(main, Tensor)), None)

    def _decoder_queries(self, arguments: dict[str, Any]) -> Tensor | None:
        """(B, T) False for padded positions of the target of an encoder-decoder model."""
        if not getattr(self.model.config, "is_encoder_decoder", False):
            return None
        mask: Tensor | None = arguments.get("decoder_attention_mask")
        labels = arguments.get("labels")
        if mask is not None and mask.dim() == 2:
            return mask.bool()
        # Those of boxes in pictures (DETR) are a list, and say nothing about queries.
        return labels != _IGNORED_LABEL if isinstance(labels, Tensor) else None


def _call_of(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    """The stochastic forward of a model, as a function."""
    return model.__dict__["stochastic_forward"](*args, **kwargs)


def _takes_return_dict(forward: Any) -> bool:
    """Whether `return_dict` may be passed: transformers' decorators take it where the function below does not."""
    parameters = inspect.signature(forward).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or "return_dict" in parameters or hasattr(forward, "__wrapped__")


def conversions_of(model: nn.Module) -> list[StochasticForward]:
    """The conversions inside a model, also where DDP, a compiler or an adapter stands around it.

    There are several where its parts were converted one by one.

    Raises:
        ValueError: If no `transformers` model in it was converted.
    """
    found = [module.__dict__.get("stochastic_forward") for module in model.modules()]
    conversions = [one for one in found if isinstance(one, StochasticForward)]
    if not conversions:
        raise ValueError(
            f"{type(model).__name__} has no converted transformers model in it; call make_stochastic first"
        )
    return conversions


def set_kl_step(model: nn.Module, step: int) -> None:
    """Tell a converted model its training step, which its KL weight follows.

    In a Trainer `KlSchedule` does so. With a constant weight nobody needs to.

    Args:
        model: A converted `transformers` model, or what wraps it.
        step: Updates made so far.
    """
    for conversion in conversions_of(model):
        conversion.set_step(step)


def kl_weight(model: nn.Module) -> float:
    """The weight that the KL has in the loss now; of the first part, where parts were converted one by one."""
    return float(conversions_of(model)[0].kl_weight)
