r"""Multiply-adds of the operations that torch executes, for the shapes that they meet.

A product of an $n \times k$ with a $k \times m$ matrix takes $n k m$ of them, a convolution one for
every output entry and every weight of its kernel (taps that fall on padding included), a transposed
one for every input entry. Attention is two products. What works entry by entry, moves, compares,
sums, averages or normalises takes none by convention, as in the counts that are published for
networks. Everything else has no rule, and is to be told, not counted as nothing.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

__all__ = ["multiply_adds"]

Rule = Callable[..., int]


def multiply_adds(operation: Any, args: tuple[Any, ...], out: Any) -> int | None:
    """How many an operation of torch's dispatcher took; None if there is no rule for it.

    Args:
        operation: The operation, such as `torch.ops.aten.mm.default`.
        args: What it was called with.
        out: What it gave.
    """
    free = _FREE.get(operation)
    if free:
        return 0
    name = str(operation.overloadpacket).rpartition(".")[2]
    rule = _RULES.get(name)
    if operation.namespace != "aten":  # of somebody's own making
        return None
    if rule is not None:
        dense = all(t.layout == torch.strided for t in args if isinstance(t, Tensor))
        return rule(out, *args) if dense else None
    if free is None:
        tags = operation.tags
        free = torch.Tag.pointwise in tags or name.removesuffix("_copy").strip("_") in _NAMES
        _FREE[operation] = free
    return 0 if free else None


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return out.numel() * a.shape[-1]


def _added_product(out: Tensor, c: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return out.numel() * a.shape[-1]


def _summed_products(out: Tensor, c: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return a.numel() * b.shape[-1]


def _convolution(
    out: Tensor, x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, *_: Any,
) -> int:  # fmt: skip
    return (x if transposed else out).numel() * prod(weight.shape[1:])


def _attention(out: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    scores = prod(q.shape[:-1]) * k.shape[-2]
    return scores * (q.shape[-1] + v.shape[-1])


def _whole_attention(out: Any, q: Tensor, k: Tensor, v: Tensor, d: int, *_: Any) -> int:
    """Four projections, and attention's two products: as many in all heads as in one."""
    tokens, others = prod(q.shape[:-1]), prod(k.shape[:-1])
    return d * d * (2 * tokens + 2 * others) + 2 * d * tokens * k.shape[-2]


def _encoder_layer(out: Any, x: Tensor, d: int, *rest: Any) -> int:
    """Attention, and two linear layers, of which the first weight is the 13th argument after d."""
    inner = rest[12]
    return _whole_attention(out, x, x, x, d) + 2 * prod(x.shape[:-1]) * inner.numel()


def _bilinear(out: Tensor, a: Tensor, weight: Tensor, b: Tensor, *_: Any) -> int:
    return out.numel() * (a.shape[-1] * b.shape[-1] + b.shape[-1])


_TAKING_NONE = """
arange empty empty_like empty_strided full full_like linspace ones ones_like zeros zeros_like
new_empty new_empty_strided new_full new_ones new_zeros scalar_tensor eye tril_indices
triu_indices rand rand_like randn randn_like randint randint_like bernoulli normal uniform lift
lift_fresh one_hot fill zero
alias as_strided detach diagonal expand permute reshape select slice split split_with_sizes
squeeze t transpose unbind unfold unsqueeze view unsafe_view reshape_alias unsafe_split
unsafe_split_with_sizes unsafe_chunk view_as_complex view_as_real real imag conj resolve_conj
contiguous cat stack copy to to_copy clone repeat repeat_interleave roll flip rot90
constant_pad_nd pad_circular pad_enum reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle
channel_shuffle native_channel_shuffle im2col diag_embed tril triu embedding gather index
index_select index_copy index_fill index_put index_put_impl masked_fill masked_scatter
masked_select scatter slice_scatter select_scatter as_strided_scatter take nonzero unsafe_index
resize squeeze_ set_
argmax argmin sort topk kthvalue median mode max min amax amin aminmax all any bucketize
searchsorted unique unique2 isin cummax cummin equal is_same_size local_scalar_dense
sum nansum mean prod cumsum cumprod logsumexp logcumsumexp norm linalg_vector_norm var var_mean
std std_mean col2im index_add index_reduce scatter_add scatter_reduce embedding_bag
embedding_bag_forward_only avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_avg_pool3d max_pool1d max_pool1d_with_indices max_pool2d
max_pool2d_with_indices max_pool3d max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d upsample_nearest1d
upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d upsample_nearest_exact2d
upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bilinear2d_aa
upsample_trilinear3d upsample_bicubic2d upsample_bicubic2d_aa
softmax safe_softmax log_softmax masked_softmax glu hardswish hardsigmoid hardtanh elu celu selu
leaky_relu log_sigmoid_forward softplus softshrink hardshrink threshold mish silu gelu prelu
prelu_kernel rrelu_with_noise
native_batch_norm native_batch_norm_legit native_batch_norm_legit_no_training cudnn_batch_norm
miopen_batch_norm batch_norm_with_update native_group_norm native_layer_norm fused_rms_norm
weight_norm_interface native_dropout thnn_fused_lstm_cell thnn_fused_gru_cell histc bincount
count_nonzero trace
"""
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm"), _product),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "_addmm_activation"), _added_product),
    "addbmm": _summed_products,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _convolution),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
        ),
        _attention,
    ),
    "_trilinear": _bilinear,
    "_native_multi_head_attention": _whole_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
}  # fmt: skip
_FREE: dict[Any, bool] = {}
"""Operations met so far that have no rule, and whether they take none."""
_NAMES = frozenset(_TAKING_NONE.split())
"""Operations that take none, besides those that torch itself marks as working entry by entry."""
