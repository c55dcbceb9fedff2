r"""Attention maps of any module, also of fused ones that never form them.

While the model runs once, in evaluation mode, the queries, keys and masks of every call of
attention are seen, and the weights follow from them by their definition,

$$A = \mathrm{softmax}\Big(c\, Q K^\top + M\Big),$$

in float32 or better, a few rows at a time. What computes softmax and product itself has its own
weights shown. Exact up to rounding; nothing in the model is replaced, and what could not be seen is
named.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.attention.weights_seen._passes import Layers, catch
from vademecum.attention.weights_seen._seen_calls import Seen
from vademecum.results import one_line

__all__ = ["AttentionMaps", "attention_maps"]


class AttentionMaps(NamedTuple):
    """Where a model looked.

    Example:
        >>> x = torch.zeros(1, 3, 4)
        >>> found = attention_maps(nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x))
        >>> found.weights[0][0, 1]
        tensor([[0.3333, 0.3333, 0.3333],
                [0.3333, 0.3333, 0.3333],
                [0.3333, 0.3333, 0.3333]])
    """

    names: tuple[str, ...]
    """The modules whose code called attention, in order; one that calls twice is there twice."""
    weights: tuple[Tensor, ...]
    """The weights of each call, of shape (n, heads, T, S); rows sum to one, or are zero where a
    query may look at no key."""
    unseen: tuple[str, ...]
    """Modules that are called attention and of which no call was seen: kernels that are not
    torch's, weights that are no softmax, code that did not run."""

    __repr__ = one_line


def attention_maps(
    model: nn.Module, x: Any, *, layers: Layers = None, memory: int | None = None
) -> AttentionMaps:
    """The weights of every head in every layer, for any model.

    Seen are calls of `scaled_dot_product_attention`, `nn.MultiheadAttention` and its stacks, and
    softmaxes of products of two tensors, such as those of transformers' eager models.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its input: a tensor, a tuple or a dict.
        layers: Which calls to look at: names of modules (also of those that contain them), or
            numbers of calls from 0; all by default.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. What
            the model's own pass takes is its business.

    Raises:
        ValueError: If no call can be seen, or none of those that are asked for.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        >>> found = attention_maps(model, torch.randn(5, 7, 8))
        >>> found.names[:2], found.weights[0].shape
        (('layers.0.self_attn', 'layers.1.self_attn'), torch.Size([5, 2, 7, 7]))
    """

    def weights(seen: Seen) -> Tensor:
        made = torch.empty(seen.shape, dtype=seen.dtype, device=seen.device)
        for block in seen.blocks(memory):
            made[block] = seen.rows(block)
        return made

    calls, unseen = catch(model, x, layers, weights)
    return AttentionMaps(
        tuple(seen.name for seen in calls), tuple(seen.value for seen in calls), unseen
    )
