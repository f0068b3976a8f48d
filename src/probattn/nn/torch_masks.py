"""The two mask arguments of `torch.nn.MultiheadAttention` as one mask in the form of `scaled_dot_product_attention`.

Size letters: B batch, H heads, T queries, S keys.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from probattn.nn.masks import HIDES, hidden_by

__all__ = ["merge_masks", "padded_keys", "with_open_column"]


def merge_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, num_heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Bool (True: may look) where both are bool, else float; broadcastable to (B, H, T, S).

    Args:
        attn_mask: (T, S) or (B * H, T, S), True where a query may *not* look (bool) or added to the scores (float).
        key_padding_mask: (B, S), True for padding (bool) or added to the scores (float).
        num_heads: H.
        dtype: Of a float mask.
    """
    masks = []
    if attn_mask is not None:
        is_per_head = attn_mask.dim() == 3
        masks.append(attn_mask.unflatten(0, (-1, num_heads)) if is_per_head else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        blocked = masks[0] if len(masks) == 1 else masks[0] | masks[1]
        return ~blocked
    floats = [
        torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask
        for mask in masks
    ]
    return floats[0] if len(floats) == 1 else floats[0] + floats[1]


def padded_keys(key_padding_mask: Tensor | None, *, limit: float = HIDES) -> Tensor | None:
    """Bool, True for padding, from torch's bool or float form, whose numbers up to a limit hide."""
    if key_padding_mask is None or key_padding_mask.dtype == torch.bool:
        return key_padding_mask
    return hidden_by(key_padding_mask, limit=limit)


def with_open_column(mask: Tensor | None) -> Tensor | None:
    """One more key that every query may see."""
    if mask is None:
        return None
    return F.pad(mask, (0, 1), value=True if mask.dtype == torch.bool else 0.0)
