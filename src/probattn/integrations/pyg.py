"""Graph attention of PyTorch Geometric with random weights (BAM, Sec. 4.1); needs the extra `probattn[graph]`.

PyG's `forward` stays PyG's: projections, self-loops, messages. What is replaced is the step from scores to weights.

Size letters: N target nodes, M source nodes, E edges with self-loops, H heads, D features of a head.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probattn.core.checks import require_finite
from probattn.core.estimators import Estimator, Mean, Pathwise
from probattn.core.noise import fresh_seed
from probattn.core.records import Draw, Given, Latent, Memory
from probattn.core.support import Segments
from probattn.distributions import Categorical, Family
from probattn.integrations.running_call import open_call, running_call
from probattn.nn.conditionals import Conditional
from probattn.nn.functional import draw_weights
from probattn.nn.learnt import HoldsFamily
from probattn.nn.recording import note_latent
from probattn.nn.sampling import Switchable
from probattn.nn.site import divergence

try:
    from torch_geometric.nn import GATConv
    from torch_geometric.typing import OptTensor
except ImportError as error:
    raise ImportError(
        "probattn.integrations.pyg needs PyTorch Geometric; install it with: pip install 'probattn[graph]'"
    ) from error

__all__ = ["BayesianGATConv", "make_stochastic_gat"]

# Arguments of GATConv that it keeps as attributes of the same name.
_COPIED_ARGUMENTS = (
    *("in_channels", "out_channels", "heads", "concat", "negative_slope", "dropout", "add_self_loops", "edge_dim"),
    *("fill_value", "residual", "flow"),
)


class BayesianGATConv(GATConv, Switchable, HoldsFamily):  # type: ignore[misc]  # PyG has no annotations
    """PyG's `GATConv` with a family of weights and a prior.

    Constructor, `forward`, return value and state_dict keys are `GATConv`'s. Whether it draws is a switch of its own
    (`probattn.sampling`), not `eval()`; while it does not draw, outputs and dropout masks are those of `GATConv`. A
    state_dict of a `GATConv` loads unchanged where the prior has no parameters, and with `strict=False` where it has.

    Args:
        in_channels: Features of a node, or a pair (source, target); -1 to find out in the first call.
        out_channels: D.
        heads: H.
        concat: Heads side by side, or averaged.
        negative_slope: Of the leaky ReLU of the scores.
        dropout: Of the normalised weights, while training.
        add_self_loops: Every node attends to itself.
        edge_dim: Features of an edge.
        fill_value: How self-loops get edge features.
        bias: Whether there is one.
        residual: Add a linear map of the target nodes.
        family: Weibull(...), Lognormal(...), ...; None for soft attention.
        prior: KeyPrior(out_channels, ...), Fixed(...); None for no KL.
        estimator: How to draw: Pathwise() by default; ScoreFunction(1, NoBaseline()) for Categorical().
        name: The site's name in receipts.
        **kwargs: Of PyG's `MessagePassing`, e.g. `flow`.

    Example:
        >>> import probattn
        >>> prior = probattn.KeyPrior(4, probattn.GammaPrior(rate=1.0))
        >>> conv = BayesianGATConv(3, 4, heads=2, family=probattn.Weibull(10.0, anchor="softmax"), prior=prior)
        >>> edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> output, latent = conv.forward_with_latents(torch.randn(5, 3), edges)
        >>> output.shape, latent.kl.shape
        (torch.Size([5, 8]), torch.Size([5, 2]))
    """

    # What PyG's constructor sets, for the type checker.
    heads: int
    out_channels: int
    negative_slope: float
    dropout: float
    lin: nn.Module | None
    lin_src: nn.Module
    lin_edge: nn.Module | None
    att_edge: Tensor

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        *,
        family: Family | None = None,
        prior: Conditional | None = None,
        estimator: Estimator | None = None,
        name: str = "attention",
        **kwargs: Any,
    ):
        super().__init__(
            in_channels,
            out_channels,
            heads,
            concat,
            negative_slope,
            dropout,
            add_self_loops,
            edge_dim,
            fill_value,
            bias,
            residual,
            **kwargs,
        )
        if family is None and (prior is not None or estimator is not None):
            raise ValueError("a prior or an estimator needs a family; pass e.g. family=probattn.Weibull(10.0)")
        self.family = family
        self.prior = prior
        self.estimator = Pathwise(keeps_log_probs=False) if estimator is None else estimator
        self.name = name
        self.init_switch()

    @classmethod
    def from_conv(
        cls,
        conv: GATConv,
        *,
        family: Family | None = None,
        prior: Conditional | None = None,
        estimator: Estimator | None = None,
        name: str = "attention",
    ) -> Self:
        """A stochastic copy of a `GATConv`: same weights, device, dtype and mode.

        The prior is moved to the device and dtype of the weights. Forward hooks of `conv` are not taken over.
        """
        twin = copy.deepcopy(conv)
        own = cls(
            **{key: getattr(twin, key) for key in _COPIED_ARGUMENTS},
            bias=twin.bias is not None,
            aggr=twin.aggr_module,
            family=family,
            prior=prior,
            estimator=estimator,
            name=name,
        )
        for key, parameter in twin.named_parameters(recurse=False):
            setattr(own, key, parameter)
        for key, child in twin.named_children():
            setattr(own, key, child)
        own.aggr, own.prior = twin.aggr, None if prior is None else prior.to(twin.att_src)
        return own.train(twin.training)

    def reset_parameters(self) -> None:
        """New initial weights, those of the prior included."""
        super().reset_parameters()
        prior = getattr(self, "prior", None)  # PyG's constructor calls this before there is one
        for module in () if prior is None else prior.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Attend; arguments and result as for `GATConv.forward`. Attention weights are those of the draw."""
        output, latent = self._attend(x, edge_index, edge_attr, size, return_attention_weights)
        note_latent(self, latent)
        return output

    def forward_with_latents(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        *,
        batch: Tensor | None = None,
    ) -> tuple[Tensor, Latent]:
        """Attend and return the receipt: the primary form.

        Args:
            x: (N, F) features of the nodes, or a pair of source (M, F) and target features (N, F').
            edge_index: (2, E) int64, or a sparse matrix as `GATConv` takes it.
            edge_attr: (E, edge_dim).
            size: (M, N), where it cannot be told from `x`.
            batch: (N) int64 graph of each target node. None: all nodes belong to one graph, which is one example.

        Returns:
            (N, H * D) or (N, D), and the receipt with KL (N, H).
        """
        output, latent = self._attend(x, edge_index, edge_attr, size)
        if batch is None:
            return output, latent
        if batch.shape != latent.kl.shape[:1]:
            raise ValueError(f"batch must have shape {tuple(latent.kl.shape[:1])}, got {tuple(batch.shape)}")
        return output, replace(latent, example=batch)

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: OptTensor,
        edge_attr: OptTensor,
        index: Tensor,
        dim_size: int,
        edge_index_j: Tensor,
    ) -> Tensor:
        """Weights of the edges; PyG calls this inside `forward` and finds the arguments by their names.

        Args:
            alpha_j: (E, H) share of the source nodes in the scores.
            alpha_i: (E, H) share of the target nodes; None where these have no features.
            edge_attr: (E, edge_dim) or None.
            index: (E) target of each edge.
            dim_size: N.
            edge_index_j: (E) source of each edge.

        Returns:
            (E, H) weights after dropout.
        """
        scores = alpha_j if alpha_i is None else alpha_j + alpha_i
        if edge_attr is not None and self.lin_edge is not None:
            rows = edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr
            edges = self.lin_edge(rows).view(-1, self.heads, self.out_channels)  # (E, H, D)
            scores = scores + (edges * self.att_edge).sum(dim=-1)
        scores = F.leaky_relu(scores, self.negative_slope)
        call = running_call()
        keys = call.keys.view(-1, self.heads, self.out_channels)  # (M, H, D)
        support = Segments(index.long(), dim_size, source=edge_index_j.long())  # PyG takes int32 too
        given = Given(memory=Memory(keys=keys, values=keys, support=support), scores=scores)
        call.latent = self._draw(given)
        weights = _single_weights(call.latent.draw, support, scores).to(scores.dtype)
        return F.dropout(weights, p=self.dropout, training=self.training)

    def _attend(self, x: Any, edge_index: Any, *rest: Any) -> tuple[Any, Latent]:
        """What `GATConv.forward` returns, and the receipt."""
        _check_edges(edge_index)
        # Of a pair of nodes PyG reads messages from the first, whatever the flow.
        with open_call(self.lin_src if self.lin is None else self.lin) as call:
            output = super().forward(x, edge_index, *rest)
        return output, call.latent

    def _draw(self, given: Given) -> Latent:
        """The receipt of one visit. Without a draw no seed is drawn either, so that dropout masks are `GATConv`'s."""
        is_drawn = self.is_sampling and self.family is not None
        device = given.memory.keys.device
        seed = torch.zeros((), dtype=torch.int64, device=device)
        if is_drawn:
            seed = fresh_seed(device) if self.sampling_seed is None else self.sampling_seed
        family = Categorical() if self.family is None else self.family
        made = draw_weights(given, family, self.prior, self.estimator if is_drawn else Mean(), seed)
        kl = divergence(made, self.name)  # (N, H)
        if self.prior is not None:
            require_finite(kl.detach(), "the KL of the attention weights", "Use anchor='softmax', or smaller scores.")
        # In a stack of layers a draw can change every output of its graph, so that is what it is credited with.
        whole_graph = torch.zeros(len(kl), dtype=torch.int64, device=device)
        return Latent(
            name=self.name, unit="example", feeds_state=True, draw=made.draw, kl=kl, seed=seed, example=whole_graph
        )


def make_stochastic_gat(
    model: nn.Module,
    *,
    family: Family,
    prior: Callable[[GATConv], Conditional] | None = None,
    estimator: Estimator | None = None,
) -> None:
    """Replace every `GATConv` of a model, in place, by a stochastic copy whose site has the layer's path as its name.

    Layers of classes that inherit from `GATConv` stay as they are. An optimizer has to be built afterwards.

    Args:
        model: Any module that contains `GATConv` layers.
        family: Of all layers.
        prior: Makes the prior of a layer, e.g. `lambda conv: KeyPrior(conv.out_channels, GammaPrior())`. None: no KL.
        estimator: Of all layers; see `BayesianGATConv`.

    Raises:
        ValueError: If there is none, or the model itself is one.
    """
    found = [(path, conv) for path, conv in model.named_modules(remove_duplicate=False) if type(conv) is GATConv]
    if not found:
        raise ValueError(f"{type(model).__name__} has no GATConv layer to replace")
    if found[0][1] is model:
        raise ValueError("a GATConv cannot be replaced inside itself; use BayesianGATConv.from_conv")
    copies: dict[GATConv, BayesianGATConv] = {}  # a layer that stands in two places stays one layer
    for path, conv in found:
        if conv not in copies:
            own_prior = None if prior is None else prior(conv)
            copies[conv] = BayesianGATConv.from_conv(
                conv, family=family, prior=own_prior, estimator=estimator, name=path
            )
        model.set_submodule(path, copies[conv])


def _single_weights(draw: Draw, support: Segments, scores: Tensor) -> Tensor:
    if draw.num_particles != 1:
        raise ValueError(
            "graph attention passes one draw of weights on to the next layer, the estimator gave "
            f"{draw.num_particles} particles; use one sample without a baseline particle"
        )
    if draw.value is not None:
        return draw.value[0]
    if draw.index is None:
        raise ValueError("the draw has neither a value nor positions")
    return support.scatter(draw.index, scores)[0]


def _check_edges(edge_index: Any) -> None:
    """PyG checks the edges after it has added self-loops, where a transposed list gives a message about sizes."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        return
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise TypeError(f"edge_index must hold integer node numbers, got {edge_index.dtype}; convert it with .long()")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index must have shape (2, E): sources, targets; got {tuple(edge_index.shape)}")
