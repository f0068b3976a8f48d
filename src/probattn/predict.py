"""Predictions with uncertainty from any model with random attention, or with dropout.

A model is run several times over the same inputs, each time with other attention weights, other dropout masks, or
both. What the runs have in common is computed once (`probattn.nn.shared_prefix`).

Sizes: K draws, N examples, C classes.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from probattn.metrics.uncertainty import mutual_information, p_value_of_top_two, predictive_entropy, top_two
from probattn.nn.drawing import Drawing

__all__ = ["Prediction", "draw_outputs", "logits_of", "predict"]


@dataclass(frozen=True)
class Prediction:
    """What a model predicts, and how much that depends on the draw.

    Attributes:
        probabilities: (N, C) float64, mean over draws of the softmax of the logits.
        predictive_entropy: (N) entropy of that mean in nats: the whole uncertainty.
        mutual_information: (N) the part of it that is due to what was drawn, in nats: attention weights if only noise
            was on, dropout masks if only dropout was, both together if both were. The rest is left when the draw is
            known: classes that overlap.
        variance: (N, C) of the probabilities over draws, unbiased; zeros if nothing was random.
        top_two: (K, N, 2) probabilities in each draw of the two classes with the highest mean.
        has_noise: Whether attention weights were drawn.
        has_dropout: Whether dropout masks were drawn.
        draws: (K, N, C) probabilities in each draw, where they were to be kept, else None.
    """

    probabilities: Tensor
    predictive_entropy: Tensor
    mutual_information: Tensor
    variance: Tensor
    top_two: Tensor
    has_noise: bool
    has_dropout: bool
    draws: Tensor | None = None

    @property
    def num_draws(self) -> int:
        """K; 1 if nothing was random."""
        return len(self.top_two)

    @property
    def labels(self) -> Tensor:
        """(N) int64, the most probable class."""
        return self.probabilities.argmax(dim=-1)

    @cached_property
    def p_value(self) -> Tensor:
        """(N) p-value of the test that the first and the second class are equally probable (`top_two_p_value`).

        Small where the draws agree on the first place. It falls with the number of draws. Needs the extra `eval`.

        Raises:
            ValueError: If nothing was random, so that there is nothing to test.
        """
        if self.num_draws < 2:
            raise ValueError(
                "the p-value compares draws, but nothing was random; predict with noise=True or dropout=True, or use "
                "the entropy of the prediction"
            )
        return p_value_of_top_two(self.top_two)

    def abstain(self, threshold: float, uncertainty: Tensor | None = None) -> Tensor:
        """Which examples are better left to someone else.

        Args:
            threshold: Examples whose uncertainty reaches it are left out.
            uncertainty: (N) any measure, higher for less certain, such as `mutual_information` of this prediction.
                None: the p-value, as in the paper's test of certainty; 0.05 is a common threshold then.

        Returns:
            (N) bool.

        Raises:
            ValueError: If there is not one uncertainty for each example, or one of them or the threshold is NaN.
            TypeError: If the uncertainty is no tensor.
        """
        uncertainty = self.p_value if uncertainty is None else uncertainty
        if not isinstance(uncertainty, Tensor):
            raise TypeError(f"expected the uncertainty of every example as a tensor, got {uncertainty!r}")
        if math.isnan(threshold):
            raise ValueError("expected a number as threshold, got NaN, which no uncertainty reaches")
        if uncertainty.shape != self.predictive_entropy.shape:
            raise ValueError(
                f"expected an uncertainty for each of {len(self.probabilities)} examples, got shape "
                f"{tuple(uncertainty.shape)}; of a variance (N, C) take that of the predicted class"
            )
        is_unknown = uncertainty.isnan()
        if is_unknown.any():
            raise ValueError(
                f"expected an uncertainty without NaN, got NaN for {int(is_unknown.sum())} of {len(uncertainty)} "
                "examples, which would be answered; put torch.inf there to leave them out"
            )
        return uncertainty >= threshold

    @staticmethod
    def join(parts: Sequence["Prediction"]) -> "Prediction":
        """One prediction from those of several batches.

        Raises:
            ValueError: If there are none, or they were drawn in different ways.
        """
        if not parts:
            raise ValueError("expected at least one prediction to join, got none; were there no batches?")
        ways = {(one.num_draws, one.has_noise, one.has_dropout, one.draws is None) for one in parts}
        if len(ways) != 1:
            raise ValueError(
                f"expected predictions that were drawn in one way, got {len(ways)} ways in {len(parts)} predictions; "
                "join those with equal draws, noise, dropout and keeps_draws"
            )
        return Prediction(
            probabilities=torch.cat([one.probabilities for one in parts]),
            predictive_entropy=torch.cat([one.predictive_entropy for one in parts]),
            mutual_information=torch.cat([one.mutual_information for one in parts]),
            variance=torch.cat([one.variance for one in parts]),
            top_two=torch.cat([one.top_two for one in parts], dim=1),
            has_noise=parts[0].has_noise,
            has_dropout=parts[0].has_dropout,
            draws=None
            if parts[0].draws is None
            else torch.cat([one.draws for one in parts if one.draws is not None], 1),
        )


def logits_of(outputs: Any) -> Tensor:
    """The logits in what a model returned: a tensor, an object with `.logits`, or a mapping with "logits".

    Raises:
        TypeError: If it is none of them.
    """
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if not isinstance(found, Tensor):
        raise TypeError(
            f"expected a tensor or an object with .logits from the model, got {type(outputs).__name__}; say where the "
            "logits are, e.g. output=lambda outputs: outputs[0]"
        )
    return found


def predict(
    model: nn.Module,
    inputs: Any,
    *,
    draws: int = 20,
    noise: bool = True,
    dropout: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    output: Callable[[Any], Tensor] = logits_of,
    keeps_draws: bool = False,
    share: bool = True,
) -> Prediction:
    """Class probabilities as the mean over draws, with measures of how much the draws differ.

    All modules are in evaluation mode while this runs. Modes, switches and torch's generators are then as before, also
    after an error. With noise and dropout off this is the usual prediction, in one pass.

    Args:
        model: Any module; for noise with random attention in it, such as `probattn.MultiheadAttention` with a family.
        inputs: A tensor, a tuple or list of positional arguments, or a mapping of keyword arguments (tokenizers). A
            model that takes `use_cache` gets False, unless it or a cache is among them: no word follows that would
            read the keys of this pass, and layers that write to a cache have to run in every draw.
        draws: K, at least 2.
        noise: Draw attention weights in every module that can; otherwise all use plug-in weights.
        dropout: Draw dropout masks, in every module of which `probattn.nn.dropout.drops` is true.
        seed: Of all noise. The noise of an example also depends on its place in the batch, so another `batch_size`
            gives other draws from the same law.
        batch_size: How many examples to run at once; None: all of them. The first axis of every tensor is split.
        output: From what the model returns to its logits, (N, C).
        keeps_draws: Whether to keep the probabilities of every draw.
        share: Compute what comes before the first random number once for all draws. It changes no bit of the result.

    Returns:
        The prediction; on the device of the logits.

    Raises:
        ValueError: If nothing in the model can be drawn, there is no example, the logits have NaN or another shape, or
            a model of `transformers` says that they are not those of one class among several.
        TypeError: If the logits are not found, or an argument is of the wrong kind, such as text for tensors.

    Example:
        >>> import probattn
        >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> layer.self_attn = probattn.MultiheadAttention.from_torch(layer.self_attn, family=probattn.Weibull(5.0))
        >>> model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3))
        >>> prediction = predict(model, torch.randn(4, 3, 8))
        >>> prediction.probabilities.shape, prediction.abstain(0.05).shape
        (torch.Size([4, 3]), torch.Size([4]))
    """
    if output is logits_of:
        _require_classes(model)
    drawing = Drawing(model, draws=draws, noise=noise, dropout=dropout, seed=seed, share=share)

    def summarise(logits: Tensor) -> Prediction:
        if logits.dim() != 3 or logits.shape[-1] < 2:
            raise ValueError(
                f"expected logits of shape (N, C) with two classes or more, got {tuple(logits.shape[1:])}; choose them "
                "with output=, e.g. those of one position; for other outputs than classes use draw_outputs"
            )
        highest = logits.max(dim=-1).values
        if highest.isinf().any():
            is_bad = highest.isinf().any(dim=0)
            raise ValueError(
                f"expected logits with a finite maximum, got infinite ones for {int(is_bad.sum())} of {len(is_bad)} "
                "examples; look for an overflow in the model, or an example with no class left"
            )
        probs = logits.double().softmax(dim=-1)
        return Prediction(
            probabilities=probs.mean(dim=0),
            predictive_entropy=predictive_entropy(probs),
            mutual_information=mutual_information(probs),
            variance=probs.var(dim=0) if len(probs) > 1 else torch.zeros_like(probs[0]),
            top_two=top_two(probs),
            has_noise=noise,
            has_dropout=dropout,
            draws=probs if keeps_draws else None,
        )

    return Prediction.join(drawing.of_batches(_without_cache(model, inputs), batch_size, output, summarise))


def draw_outputs(
    model: nn.Module,
    inputs: Any,
    *,
    draws: int = 20,
    noise: bool = True,
    dropout: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    output: Callable[[Any], Tensor] = logits_of,
    share: bool = True,
) -> Tensor:
    """The outputs of every draw, for regression and whatever is not a classifier; arguments as for `predict`.

    Returns:
        (K, N, ...), with K = 1 if noise and dropout are off. Mean and spread are `.mean(0)` and `.std(0)`.
    """
    drawing = Drawing(model, draws=draws, noise=noise, dropout=dropout, seed=seed, share=share)
    given = _without_cache(model, inputs)
    return torch.cat(drawing.of_batches(given, batch_size, output, lambda outputs: outputs), dim=1)


def _without_cache(model: nn.Module, inputs: Any) -> Any:
    """Inputs with `use_cache=False`, where the model takes it and the caller has said nothing about caches."""
    given = dict(inputs) if isinstance(inputs, Mapping) else inputs
    if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(given)):
        return inputs  # which is refused, with its own message
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # of a traced model, which has none
        return inputs
    if "use_cache" not in parameters:
        return inputs
    if not isinstance(given, dict):
        values = tuple(given) if isinstance(given, tuple | list) else (given,)
        leading = list(parameters.values())[: len(values)]
        has_names = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in leading)
        if not has_names or len(leading) < len(values):
            return inputs
        given = {parameter.name: value for parameter, value in zip(leading, values, strict=True)}
    is_told = any(value is not None for name, value in given.items() if "cache" in name or name.startswith("past_"))
    return inputs if is_told else {**given, "use_cache": False}


def _require_classes(model: nn.Module) -> None:
    """Refuse a model that says itself that its logits are no scores of classes that exclude each other."""
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem in ("multi_label_classification", "regression"):
        raise ValueError(
            f"expected one class among several, but the configuration of {type(model).__name__} has problem_type "
            f"{problem!r}, whose outputs no softmax joins; use draw_outputs, of labels with output=lambda outputs: "
            "outputs.logits.sigmoid()"
        )
