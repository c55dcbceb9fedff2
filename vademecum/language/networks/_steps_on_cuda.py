"""One further token for each row of a cache, on a CUDA device with Triton.

Attention is a kernel of our own, which reads what a row has and not all that it has room for. For a
few rows products are ours as well; with more of them torch's are faster.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arrays.triton_code import has_triton, power_of_two
from vademecum.attention import KeyValueCache
from vademecum.language.networks import _kernels_of_tokens as kernels
from vademecum.language.networks._gpt_blocks import Map
from vademecum.language.networks.gpt import GPT

__all__ = ["has_kernels", "step_on_cuda"]

_ROWS = 4  # rows up to which a matrix is read as fast as for one
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_K = 1024  # rows of a matrix that a program reads at once, for one row of x
_COLUMNS = ((2048, 16), (0, 4))  # of how many outputs on, and columns of a program then
_SLOTS = 128  # of the cache that a program reads at once
_HEAD = 256  # numbers of a head, at most


def has_kernels(model: GPT, caches: Sequence[KeyValueCache]) -> bool:
    """Whether there are kernels for such a model and such caches."""
    table, first = model.transformer.wte.weight, caches[0]
    known = has_triton() and table.is_cuda and table.dtype in _DTYPES
    alike = first.keys.dtype == table.dtype and first.all_slots
    small = model.d // model.heads <= _HEAD
    return known and alike and small and _plain(model) and not torch.is_autocast_enabled("cuda")


def _plain(model: GPT) -> bool:
    """Whether kernels can read all parameters: none is missing, or a tensor of another kind."""
    table = model.transformer.wte.weight
    kinds = {(type(p), p.dtype, p.device) for p in model.parameters()}
    maps = [m for m in model.modules() if isinstance(m, nn.LayerNorm | Map)]
    whole = all(m.weight is not None and m.bias is not None for m in maps)
    return whole and kinds == {(nn.Parameter, table.dtype, table.device)}


def step_on_cuda(model: GPT, caches: Sequence[KeyValueCache]) -> Callable[[Tensor], Tensor]:
    """From the next token of each row (n,) to the logits (n, V) after it, caches included."""
    table, places = model.transformer.wte.weight, model.transformer.wpe.weight
    ways = {few: _way(model, few) for few in (True, False)}  # beams become more rows

    def step(tokens: Tensor) -> Tensor:
        lengths = caches[0].lengths
        caches[0].reserve(1)
        layers, logits = ways[len(tokens) <= _ROWS]
        with torch.cuda.device(table.device):
            x = F.embedding(tokens, table)
            x += F.embedding(lengths.clamp(max=len(places) - 1), places)
            for layer, cache in zip(layers, caches, strict=True):
                layer(x, cache)
            return logits(x)

    return step


def _way(
    model: GPT, few: bool
) -> tuple[list[Callable[[Tensor, KeyValueCache], None]], Callable[[Tensor], Tensor]]:
    """The blocks and the head, by products of ours or of torch."""
    body: Any = model.transformer
    head = (_normed if few else _normed_many)(body.ln_f, model.lm_head.weight.t(), None)
    return [_layer(block, few) for block in body.h], head


def _layer(block: Any, few: bool) -> Callable[[Tensor, KeyValueCache], None]:
    normed, added = (_normed, _added) if few else (_normed_many, _added_many)
    three = normed(block.ln_1, block.attn.c_attn.weight, block.attn.c_attn.bias)
    inner = normed(block.ln_2, block.mlp.c_fc.weight, block.mlp.c_fc.bias, gelu=True)
    outward, outer = added(block.attn.c_proj), added(block.mlp.c_proj)
    heads = block.attn.heads

    def layer(x: Tensor, cache: KeyValueCache) -> None:
        outward(_looked_back(three(x), cache, heads), x, cache.lengths)
        outer(inner(x), x, None)

    return layer


def _normed(
    norm: Any, w: Tensor, b: Tensor | None, *, gelu: bool = False
) -> Callable[[Tensor], Tensor]:
    """The product of a normalised x with a matrix (in, out), a bias, gelu."""
    gain, shift, eps = norm.weight, norm.bias, norm.eps
    D, N = w.shape
    flags = {"COLUMNS": _columns(N), "WIDE": power_of_two(D), "BIAS": b is not None, "GELU": gelu}
    grid, kernel = (-(-N // _columns(N)),), _any(kernels.normed_product)

    def product(x: Tensor) -> Tensor:
        out = x.new_empty(len(x), N)
        kernel[grid](
            x, gain, shift, w, w if b is None else b, out, D, N, *w.stride(), len(x), eps,
            **flags, **_portion(len(x), D),
        )  # fmt: skip
        return out

    return product


def _added(map: Any) -> Callable[[Tensor, Tensor, Tensor | None], None]:
    """Add the product of h with a map's matrix, and its bias, to x; a token more in `lengths`."""
    w, b = map.weight, map.bias
    D, N = w.shape
    grid, kernel = (-(-N // _columns(N)),), _any(kernels.added_product)

    def add(h: Tensor, x: Tensor, lengths: Tensor | None) -> None:
        kernel[grid](
            h, w, b, x, h if lengths is None else lengths, D, N, *w.stride(), len(x),
            COLUMNS=_columns(N), LONGER=lengths is not None, **_portion(len(x), D),
        )  # fmt: skip

    return add


def _normed_many(
    norm: Any, w: Tensor, b: Tensor | None, *, gelu: bool = False
) -> Callable[[Tensor], Tensor]:
    """The same by torch."""
    how, w = (norm.normalized_shape, norm.weight, norm.bias, norm.eps), w.t()

    def product(x: Tensor) -> Tensor:
        out = F.linear(F.layer_norm(x, *how), w, b)
        return F.gelu(out, approximate="tanh") if gelu else out

    return product


def _added_many(map: Any) -> Callable[[Tensor, Tensor, Tensor | None], None]:
    """The same by torch."""
    w, b = map.weight.t(), map.bias

    def add(h: Tensor, x: Tensor, lengths: Tensor | None) -> None:
        x.add_(F.linear(h, w, b))
        if lengths is not None:
            lengths.add_(1)

    return add


def _looked_back(qkv: Tensor, cache: KeyValueCache, heads: int) -> Tensor:
    n, size = len(qkv), qkv.shape[1] // (3 * heads)
    out = qkv.new_empty(n, heads * size)
    _any(kernels.attended)[heads, n](
        qkv, cache.keys, cache.values, cache.lengths, out, cache.capacity,
        *cache.keys.stride()[:3], size**-0.5,
        HEADS=heads, SIZE=size, WIDE=power_of_two(size), SLOTS=_SLOTS, num_warps=8,
    )  # fmt: skip
    return out


def _any(kernel: Any) -> Any:
    """A kernel, which is called with its grid in brackets."""
    return kernel


def _portion(n: int, D: int) -> dict[str, int]:
    """How much of a product a program holds at once: fewer rows of the matrix for more of x."""
    rows = power_of_two(n)
    return {"ROWS": rows, "K": min(power_of_two(D), _K // rows), "num_warps": 8}


def _columns(N: int) -> int:
    return next(columns for least, columns in _COLUMNS if least <= N)
