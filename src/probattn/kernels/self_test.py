"""Whether the C++ kernels of this machine give what plain torch gives."""

from collections.abc import Mapping

import torch
from torch import Tensor

from probattn.core.noise import uniform
from probattn.core.support import Dense, Segments
from probattn.distributions import GammaPrior, Weibull
from probattn.kernels import native
from probattn.kernels.attention import sampled_attention
from probattn.kernels.graph_attention import graph_attention
from probattn.kernels.graph_reference import GraphContext
from probattn.kernels.latent_readout import latent_readout_loss

__all__ = ["self_test"]

_NODES, _EDGES, _HEADS, _WIDTH = 50, 400, 3, 5


def self_test() -> Mapping[str, float]:
    """Largest difference between the active kernels and plain torch, by what was compared; all zero without kernels.

    Noise must be equal to the last bit; context, KL and gradients are compared in float32, relative to the largest
    entry, where rounding leaves a few times 1e-6.
    """
    found = {"noise": 0.0}
    for dtype in (torch.float32, torch.float64):
        mine = uniform(torch.tensor(7), (2, 33, 5), dtype=dtype)
        with native.switched(False):
            theirs = uniform(torch.tensor(7), (2, 33, 5), dtype=dtype)
        if not torch.equal(mine, theirs):
            found["noise"] = float((mine - theirs).abs().max())
    for kind, compute in {"dense attention": _dense, "graph attention": _graph, "latent readout": _readout}.items():
        ours = compute()
        with native.switched(False):
            plain = compute()
        for name in ours:
            found[f"{kind}, {name}"] = float((ours[name] - plain[name]).abs().max() / plain[name].abs().max())
    return found


def _dense() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    sizes = {"query": (2, 4, 130, 8), "key": (2, 2, 300, 8), "value": (2, 2, 300, 8), "prior": (2, 4, 1, 300)}
    inputs = {name: torch.randn(size, generator=draw).requires_grad_() for name, size in sizes.items()}
    made = sampled_attention(
        inputs["query"],
        inputs["key"],
        inputs["value"],
        family=Weibull(2.0, anchor="softmax"),
        prior=GammaPrior(rate=0.5)(inputs["prior"], Dense()),
        seed=torch.tensor(3),
        is_causal=True,
    )
    gradients = torch.autograd.grad(made.context.square().sum() + made.kl.sum(), list(inputs.values()))
    outputs = {"context": made.context.detach(), "KL": made.kl.detach()}
    return {**outputs, **{f"gradient of {name}": one for name, one in zip(inputs, gradients, strict=True)}}


def _graph() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(_NODES, (2, _EDGES), generator=draw)
    inputs = {
        "target scores": torch.randn(_NODES, _HEADS, generator=draw).requires_grad_(),
        "source scores": torch.randn(_NODES, _HEADS, generator=draw).requires_grad_(),
        "values": torch.randn(_NODES, _HEADS, _WIDTH, generator=draw).requires_grad_(),
        "prior": torch.randn(_NODES, _HEADS, generator=draw).requires_grad_(),
    }
    made: GraphContext = graph_attention(
        inputs["target scores"],
        inputs["source scores"],
        values=inputs["values"],
        support=Segments(edges[1], _NODES, source=edges[0]),
        family=Weibull(2.0, anchor="softmax"),
        prior=GammaPrior(rate=0.5)(inputs["prior"], Dense()),
        seed=torch.tensor(3),
    )
    gradients = torch.autograd.grad(made.context.square().sum() + made.kl.sum(), list(inputs.values()))
    outputs = {"context": made.context.detach(), "KL": made.kl.detach()}
    return {**outputs, **{f"gradient of {name}": one for name, one in zip(inputs, gradients, strict=True)}}


def _readout() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    sizes = {"query": (2, 4, 16), "memory": (2, 6, 16), "scores": (2, 4, 6), "weight": (600, 16), "bias": (600,)}
    inputs = {name: torch.randn(size, generator=draw).requires_grad_() for name, size in sizes.items()}
    losses = latent_readout_loss(
        inputs["query"],
        inputs["memory"],
        log_prior=inputs["scores"].log_softmax(-1),
        weight=inputs["weight"],
        bias=inputs["bias"],
        target=torch.randint(600, (2, 4), generator=draw),
    )
    gradients = torch.autograd.grad(losses.sum(), list(inputs.values()))
    named = {f"gradient of {name}": one for name, one in zip(inputs, gradients, strict=True)}
    return {"loss": losses.detach(), **named}
