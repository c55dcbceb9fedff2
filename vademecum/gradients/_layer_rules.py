r"""Per-example gradients of single layers, from what went in and what comes back.

A layer maps the activations $a_i$ of example $i$ to $z_i$. Let $b_i = \partial \ell_i / \partial
z_i$ be what the backward pass brings to it. Then the gradient of $\ell_i$ in the layer's parameters
needs $a_i$ and $b_i$ alone. With $t$ for further axes (time, positions):

- linear, $z_{it} = W a_{it} + c$: $\nabla_W \ell_i = \sum_t b_{it} a_{it}^T$ and $\nabla_c \ell_i
  = \sum_t b_{it}$;
- convolution: the same with the patch that the kernel sees at position $t$ for $a_{it}$, group by
  group;
- normalisation with scale and shift, $z = \gamma \odot \hat a + \beta$: $\sum_t b_{it} \odot \hat
  a_{it}$ and $\sum_t b_{it}$, where $\hat a$ comes from fixed statistics (batch normalisation in
  evaluation) or from the example's own (layer, group, root-mean-square normalisation);
- embedding: $b_{it}$ is added to the row of the token $a_{it}$.

The squared norm of $\sum_t b_t a_t^T$ is $\sum_{t, u} \langle a_t, a_u \rangle \langle b_t, b_u
\rangle$, which for a single $t$ is $\|a\|^2 \|b\|^2$ (Goodfellow): the matrix itself is not needed.
All of this is exact up to rounding.

A rule serves $g$ backward passes at once: $b$ has the shape `(g, n, ...)` where $a$ has `(n, ...)`.

References:
    Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
    Rochette, Manoel and Tramel, Efficient per-example gradient computations in convolutional neural
    networks, arXiv:1912.06015, 2019.
    Bu, Mao and Xu, Scalable and efficient training of large convolutional neural networks with
    differential privacy, NeurIPS, 2022.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["RULES", "known", "squared_norm"]

Out = dict[str, Tensor]
_CACHE = {"cpu": 2**23}  # bytes of patches at a time, which are read as soon as written


def known(module: nn.Module) -> bool:
    """Whether there is a rule for the layer, as it is set up.

    There is none for weights in disguise (pruned, or normalised by hooks), other parameters, or a
    `forward` of its own.
    """
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.padding_mode != "zeros":
        return False
    own = {name for name, _ in module.named_parameters(recurse=False)}
    return type(module) in RULES and own <= {"weight", "bias"} and "forward" not in vars(module)


def _linear(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    if "bias" in out:
        out["bias"].copy_(_sum(b, list(range(2, b.ndim - 1))).movedim(0, 1))
    if "weight" in out and a.ndim == 2:
        torch.mul(b.movedim(0, 1)[..., None], a[:, None, None, :], out=out["weight"])
    elif "weight" in out:
        b, a = b.flatten(2, -2), a.flatten(1, -2)[:, None]
        out["weight"].copy_(b.movedim(0, 1).mT @ a)


def _convolution(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    g, n, channels = b.shape[:3]
    b = b.movedim(0, 1).flatten(3)  # (n, g, channels, positions)
    if "bias" in out:
        out["bias"].copy_(b.sum(-1))
    if "weight" not in out:
        return
    groups, shape = module.groups, module.weight.shape
    size = prod(shape[1:]), b.shape[-1]  # of the patches of a group
    b = b.unflatten(2, (groups, -1)).transpose(1, 2).flatten(2, 3)
    a = _padded(module, a)
    seen = _patches(module, a)
    step = min(n, max(1, _CACHE.get(a.device.type, 2**30) // (a.element_size() * seen[0].numel())))
    memory = torch.empty_like(seen[:step], memory_format=torch.contiguous_format)
    for start in range(0, n, step):
        here = slice(start, start + step)
        patches = memory[: len(seen[here])].copy_(seen[here]).view(-1, groups, *size)
        product = (b[here] @ patches.mT).unflatten(2, (g, channels // groups))
        out["weight"][here] = product.transpose(1, 2).reshape(-1, g, *shape)


def _padded(module: Any, a: Tensor) -> Tensor:
    spans = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    match module.padding:
        case "valid":
            sides = [(0, 0) for _ in spans]
        case "same":
            sides = [(span // 2, span - span // 2) for span in spans]
        case amounts:
            sides = [(amount, amount) for amount in amounts]
    return F.pad(a, [amount for side in reversed(sides) for amount in side])


def _patches(module: Any, a: Tensor) -> Tensor:
    """What the kernel sees, as a view: (n, channels, *kernel, *positions)."""
    axes = len(module.kernel_size)
    for i, (k, d, s) in enumerate(
        zip(module.kernel_size, module.dilation, module.stride, strict=True)
    ):
        a = a.unfold(2 + i, d * (k - 1) + 1, s)[..., ::d]
    return a.permute(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))


def _batch_norm(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    scale = torch.rsqrt(module.running_var + module.eps)
    of_channel = [-1, *[1] * (a.ndim - 2)]
    hat = (a - module.running_mean.view(of_channel)) * scale.view(of_channel)
    _scale_and_shift(hat, b, out, list(range(3, b.ndim)))


def _group_norm(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    hat = F.group_norm(a, module.num_groups, eps=module.eps)
    _scale_and_shift(hat, b, out, list(range(3, b.ndim)))


def _layer_norm(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    hat = F.layer_norm(a, module.normalized_shape, eps=module.eps)
    _scale_and_shift(hat, b, out, list(range(2, b.ndim - len(module.normalized_shape))))


def _rms_norm(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    hat = F.rms_norm(a, module.normalized_shape, eps=module.eps)
    _scale_and_shift(hat, b, out, list(range(2, b.ndim - len(module.normalized_shape))))


def _scale_and_shift(hat: Tensor, b: Tensor, out: Out, over: list[int]) -> None:
    for name, each in (("weight", lambda: hat * b), ("bias", lambda: b)):
        if name in out:
            out[name].copy_(_sum(each(), over).movedim(0, 1))


def _sum(x: Tensor, over: list[int]) -> Tensor:
    return x.sum(over) if over else x  # to torch, no axes are all axes


def _embedding(module: Any, a: Tensor, b: Tensor, out: Out) -> None:
    tokens, b = _tokens(module, a, b)
    index = tokens[:, None, :, None].expand(-1, len(b), -1, b.shape[-1])
    out["weight"].zero_().scatter_add_(2, index, b.movedim(0, 1).to(out["weight"].dtype))


def _tokens(module: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (n, t) and what comes back to them (g, n, t, d), nothing to the padding."""
    tokens, b = a.reshape(len(a), -1), b.reshape(*b.shape[:2], -1, b.shape[-1])
    if module.padding_idx is not None:
        b = b.masked_fill((tokens == module.padding_idx)[..., None], 0)
    return tokens, b


RULES: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, Out], None]] = {
    nn.Linear: _linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.Embedding: _embedding,
}
"""The rules by type of layer: `rule(module, a, b, out)` fills the tensors `(n, g, *shape)`."""


def squared_norm(module: Any, a: Tensor, b: Tensor, wanted: Mapping[str, Tensor]) -> Tensor:
    """The squared norms (n,) of the gradients of a layer in its `wanted` parameters.

    Gram matrices over $t$ take the place of the gradient where they are smaller.
    """
    out = {k: b.new_empty(len(a), 1, *p.shape) for k, p in wanted.items() if k != "weight"}
    total = b.new_zeros(len(a))
    if "weight" in wanted:
        if _gram_is_smaller(module, a, b):
            total += _gram_norm(module, a, b)
        else:
            out["weight"] = b.new_empty(len(a), 1, *wanted["weight"].shape)
    if out:
        RULES[type(module)](module, a, b, out)
    return sum((x.flatten(1).square().sum(1) for x in out.values()), total)


def _gram_is_smaller(module: Any, a: Tensor, b: Tensor) -> bool:
    if isinstance(module, nn.Linear):
        times = prod(a.shape[1:-1])
    elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        times = prod(b.shape[3:])
    else:
        return isinstance(module, nn.Embedding)
    return times == 1 or 2 * times**2 < module.weight.numel()


def _gram_norm(module: Any, a: Tensor, b: Tensor) -> Tensor:
    if isinstance(module, nn.Embedding):
        tokens, b = _tokens(module, a, b)
        equal = tokens[:, :, None] == tokens[:, None, :]
        return ((b[0] @ b[0].mT) * equal).sum((1, 2))
    if isinstance(module, nn.Linear):
        a, b = a[:, None].flatten(1, -2), b[0][:, None].flatten(1, -2)
    else:
        b = b[0].flatten(2).unflatten(1, (module.groups, -1)).mT
        a = _patches(module, _padded(module, a)).reshape(*b.shape[:2], -1, b.shape[2]).mT
    if a.shape[-2] == 1:
        return (a.square().sum(-1) * b.square().sum(-1)).flatten(1).sum(1)
    return ((a @ a.mT) * (b @ b.mT)).flatten(1).sum(1)
