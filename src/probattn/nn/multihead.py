"""A drop-in for `torch.nn.MultiheadAttention` whose weights are random variables.

Size letters: B batch, H heads, T queries, S keys, E embedding, D = E / H.
"""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probattn.core.estimators import Estimator, Mean
from probattn.distributions import Family
from probattn.kernels.native import status
from probattn.nn.conditionals import Conditional
from probattn.nn.functional import AttentionResult, scaled_dot_product_attention
from probattn.nn.learnt import HoldsFamily
from probattn.nn.nested import pad_nested, to_nested
from probattn.nn.parts import require_conditional, require_family
from probattn.nn.recording import is_recording, note_latent
from probattn.nn.sampling import Switchable
from probattn.nn.torch_masks import merge_masks, padded_keys, with_open_column

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.MultiheadAttention, Switchable, HoldsFamily):
    """torch's multi-head attention with a family of weights and a prior.

    Constructor, `forward`, return value and state_dict keys are torch's, so it can stand inside
    `nn.TransformerEncoderLayer`, `nn.TransformerDecoderLayer` and `nn.Transformer`; torch's fast path, which would
    bypass it, is off. Whether it draws is a switch of its own (`probattn.sampling`), not `eval()`. A checkpoint of an
    `nn.MultiheadAttention` loads unchanged; the prior, which it does not have, then keeps its initial weights.

    Args:
        embed_dim: E.
        num_heads: H.
        dropout: Of the weights, while training.
        bias: Of the projections.
        add_bias_kv: Append a learned key and value.
        add_zero_attn: Append a key and value of zeros.
        kdim: Width of keys.
        vdim: Width of values.
        batch_first: (B, T, E) instead of (T, B, E).
        device: Of the parameters.
        dtype: Of the parameters.
        family: Weibull(...), Lognormal(...), ...; None for soft attention.
        prior: KeyPrior(E // H, ...), Fixed(...); None for no KL.
        estimator: How to draw; see `scaled_dot_product_attention`.
        name: The site's name in receipts.

    Example:
        >>> import probattn
        >>> attention = MultiheadAttention(16, 4, batch_first=True, family=probattn.Weibull(concentration=10.0))
        >>> x = torch.randn(2, 5, 16)
        >>> context, weights = attention(x, x, x)
        >>> context.shape, weights.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        family: Family | None = None,
        prior: Conditional | None = None,
        estimator: Estimator | None = None,
        name: str = "attention",
    ):
        if num_heads > 0 and embed_dim % num_heads != 0:
            raise ValueError(
                f"embed_dim must be a multiple of num_heads, got embed_dim={embed_dim} and num_heads={num_heads}"
            )
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        require_family(family, "MultiheadAttention(family)")
        require_conditional(prior, "MultiheadAttention(prior)")
        if family is None and (prior is not None or estimator is not None):
            raise ValueError("a prior or an estimator needs a family; pass e.g. family=probattn.Weibull(10.0)")
        self.is_packed = self._qkv_same_embed_dim
        # torch's encoder layers ask this attribute whether they may skip forward() in evaluation; they may not.
        self._qkv_same_embed_dim = False
        self.family = family
        if family is not None:
            status()  # of the kernels: compiled code cannot ask for it the first time
        if prior is not None and (device is not None or dtype is not None):
            prior.to(device=device, dtype=dtype)
        self.prior = prior
        self.estimator = estimator
        self.name = name
        self.init_switch()
        self.register_load_state_dict_pre_hook(_keep_what_torch_lacks)  # type: ignore[no-untyped-call]

    @classmethod
    def from_torch(
        cls,
        module: nn.MultiheadAttention,
        *,
        family: Family | None = None,
        prior: Conditional | None = None,
        estimator: Estimator | None = None,
        name: str = "attention",
    ) -> Self:
        """A stochastic copy of a torch module: same weights, device, dtype and mode; what was frozen stays so."""
        own = cls(
            module.embed_dim,
            module.num_heads,
            module.dropout,
            module.in_proj_bias is not None,
            module.bias_k is not None,
            module.add_zero_attn,
            module.kdim,
            module.vdim,
            module.batch_first,
            module.out_proj.weight.device,
            module.out_proj.weight.dtype,
            family=family,
            prior=prior,
            estimator=estimator,
            name=name,
        )
        own.load_state_dict(module.state_dict())
        for name, parameter in module.named_parameters():
            own.get_parameter(name).requires_grad_(parameter.requires_grad)
        return own.train(module.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; arguments and result as for `torch.nn.MultiheadAttention.forward`.

        `is_causal` is a hint there, which needs `attn_mask`; the mask is what is used.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is only a hint about attn_mask, as in torch; pass attn_mask too")
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
        if self._may_skip_kl():
            output, result = self._attend(query, key, value, **masks, need_weights=need_weights, prior=None)
        else:
            output, result = self.forward_with_latents(query, key, value, **masks, need_weights=need_weights)
        note_latent(self, result.latent)
        weights = result.weights
        if weights is None:
            return output, None
        weights = weights.mean(dim=1) if average_attn_weights else weights
        return output, weights if query.dim() == 3 else weights.squeeze(0)

    def forward_with_latents(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        query_padding_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, AttentionResult]:
        """Attend and return the receipt: the primary form.

        Args:
            query: (T, B, E), (B, T, E) with batch_first, or (T, E).
            key: The same with S positions and kdim features.
            value: The same with S positions and vdim features.
            key_padding_mask: (B, S) or (S), True for padding (bool) or added to the scores (float).
            attn_mask: (T, S) or (B * H, T, S), True where a query may *not* look (bool) or added to the scores (float).
            query_padding_mask: (B, T) or (T), True for padded queries, whose KL does not count. In self-attention the
                padding of the keys is taken.
            need_weights: Put the weights, (B, H, T, S), into the record.

        Returns:
            The output, shaped like the query, and the record with context (B, H, T, D), KL (B, H, T) and receipt.
        """
        return self._attend(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            query_padding_mask=query_padding_mask,
            need_weights=need_weights,
            prior=self.prior,
        )

    def _may_skip_kl(self) -> bool:
        """Whether nobody can ever see the receipt, as while predicting; a subclass that makes its own is always asked.

        With gradients on, activation checkpointing may repeat this pass when a record is closed already, and has to
        find the same tensors.
        """
        is_ours = type(self).forward_with_latents is MultiheadAttention.forward_with_latents
        return is_ours and not torch.is_grad_enabled() and not is_recording()

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        query_padding_mask: Tensor | None = None,
        need_weights: bool,
        prior: Conditional | None,
    ) -> tuple[Tensor, AttentionResult]:
        is_self_attention = query is key
        query, key, value, nested_padding = self._to_padded(query, key, value)
        key_padding_mask = key_padding_mask if nested_padding is None else nested_padding
        is_batched = query.dim() == 3
        self._check_shapes(query, key, value)
        self._check_masks(query, key, attn_mask=attn_mask, key_padding_mask=key_padding_mask)
        self._check_query_padding(query, query_padding_mask)
        padding = padded_keys(key_padding_mask)
        queries = _batched(
            padding if query_padding_mask is None and is_self_attention else query_padding_mask, is_batched
        )
        query, key, value = (self._to_batch_first(x) for x in (query, key, value))
        never_read = padded_keys(key_padding_mask, limit=-torch.inf)  # torch still reads a row of finite numbers
        if never_read is not None:  # what stands there must not matter, but 0 * inf is NaN, in the gradient too
            hidden = never_read.unsqueeze(-1)
            key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
        q, k, v = self._project(query, key, value)
        mask = merge_masks(attn_mask, _batched(key_padding_mask, is_batched), self.num_heads, q.dtype)
        k, v, mask = self._append_rows(k, v, mask)
        result = self._weigh(
            *(self._split(x) for x in (q, k, v)),
            mask=mask,
            query_mask=None if queries is None else ~queries[:, None],
            need_weights=need_weights,
            prior=prior,
        )
        output = self.out_proj(result.context.transpose(1, 2).flatten(2))  # (B, T, E)
        return self._as_given(output, nested_padding, is_batched=is_batched), result

    def _weigh(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None,
        query_mask: Tensor | None,
        need_weights: bool,
        prior: Conditional | None,
    ) -> AttentionResult:
        """Attention of heads (B, H, ·, D)."""
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            family=self.family,
            prior=prior,
            estimator=self.estimator if self.is_sampling else Mean(),
            need_weights=need_weights,
            query_mask=query_mask,
            seed=self.sampling_seed,
            name=self.name,
        )

    def _to_batch_first(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _as_given(self, output: Tensor, nested_padding: Tensor | None, *, is_batched: bool) -> Tensor:
        """(B, T, E) in the form of the query."""
        if nested_padding is not None:
            return to_nested(output, nested_padding)
        if not is_batched:
            return output.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1)

    def _to_padded(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if not query.is_nested:
            return query, key, value, None
        if not (query is key and key is value):
            raise ValueError(
                "nested tensors are taken in self-attention only; pad query, key and value for cross-attention"
            )
        padded, padding = pad_nested(query)
        return padded, padded, padded, padding

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.is_packed:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return q, k, v

    def _append_rows(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        batch = k.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(batch, 1, -1)], dim=1)
            v = torch.cat([v, self.bias_v.expand(batch, 1, -1)], dim=1)
            mask = with_open_column(mask)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
            mask = with_open_column(mask)
        return k, v, mask

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)  # (B, H, T, D)

    def _check_shapes(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        expected = (self.embed_dim, self.kdim, self.vdim)
        widths = (query.shape[-1], key.shape[-1], value.shape[-1])
        if not query.dim() == key.dim() == value.dim() or query.dim() not in (2, 3) or widths != expected:
            raise ValueError(
                f"expected query, key and value of 2 or 3 axes with widths {expected}, got {tuple(query.shape)}, "
                f"{tuple(key.shape)} and {tuple(value.shape)}"
            )

    def _check_masks(
        self, query: Tensor, key: Tensor, *, attn_mask: Tensor | None, key_padding_mask: Tensor | None
    ) -> None:
        """As strict as torch: a mask per example would else be taken for one per head where their numbers agree."""
        axis = 1 if self.batch_first and key.dim() == 3 else 0
        batch = key.shape[1 - axis] if key.dim() == 3 else 1
        targets, positions = query.shape[axis], key.shape[axis]
        padding = (batch, positions) if key.dim() == 3 else (positions,)
        if key_padding_mask is not None and tuple(key_padding_mask.shape) != padding:
            raise ValueError(
                f"expected key_padding_mask {padding}, one entry for each of the keys' {positions} positions, got "
                f"{tuple(key_padding_mask.shape)}"
            )
        shapes = [(targets, positions), (batch * self.num_heads, targets, positions)]
        if attn_mask is not None and tuple(attn_mask.shape) not in shapes:
            raise ValueError(
                f"expected attn_mask {shapes[0]}, or {shapes[1]} with the heads of an example one after the other, got "
                f"{tuple(attn_mask.shape)}; of a mask per example make mask.repeat_interleave({self.num_heads}, dim=0)"
            )

    def _check_query_padding(self, query: Tensor, mask: Tensor | None) -> None:
        """A mask of another shape could be taken for one of heads."""
        if mask is None:
            return
        batch_first = query if self.batch_first or query.dim() == 2 else query.transpose(0, 1)
        expected = tuple(batch_first.shape[:-1])
        if mask.dtype != torch.bool or tuple(mask.shape) != expected:
            raise ValueError(
                f"expected a bool query_padding_mask {expected}, True for padded queries, got {mask.dtype} "
                f"{tuple(mask.shape)}"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; torch's own version would switch the fast path on again for very old checkpoints."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._qkv_same_embed_dim = False


def _batched(mask: Tensor | None, is_batched: bool) -> Tensor | None:
    return mask if mask is None or is_batched else mask.unsqueeze(0)


def _keep_what_torch_lacks(
    module: nn.Module, state_dict: dict[str, Tensor], prefix: str, *args: Mapping[str, Any]
) -> None:
    """Let a checkpoint without a prior load into a module with one, and one without learnt numbers of a family."""
    for start in ("prior.", "family"):
        own = {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items() if name.startswith(start)}
        if not any(name in state_dict for name in own):
            state_dict.update(own)
