"""One further token for each row of a cache, without calls of modules.

On a CPU a step of a small GPT takes as long to call modules and to look up what they hold as to
multiply. Here torch's functions do what those modules would do, in the same order and on tensors
that are looked up once for many steps: the numbers are those of `GPT.forward`, up to rounding. On
a CUDA device kernels of our own do the same. A model with hooks, with a module of a class that is
not known here, with a bias of its head or under autocast is called as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.attention import KeyValueCache
from vademecum.language.networks._gpt_blocks import KINDS, Map
from vademecum.language.networks._reading import Reading
from vademecum.language.networks._steps_on_cuda import has_kernels, step_on_cuda
from vademecum.language.networks._tokens import looked_up
from vademecum.language.networks.gpt import GPT

__all__ = ["token_step"]

_KNOWN = {GPT, *KINDS, nn.ModuleList, nn.LayerNorm, nn.Embedding, nn.Linear}


def token_step(
    model: nn.Module, caches: Sequence[KeyValueCache]
) -> Callable[[Tensor], Tensor] | None:
    """From the next token of each row (n,) to the logits (n, V) after it, caches included.

    None where the model must be called as it is.
    """
    if not isinstance(model, GPT) or not all(map(_as_it_was_made, model.modules())):
        return None
    if model.lm_head.bias is not None:
        return None
    table, places = model.transformer.wte.weight, model.transformer.wpe.weight
    if table.is_cuda and has_kernels(model, caches):
        return step_on_cuda(model, caches)
    if table.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return None
    layers = [_layer(block) for block in model.transformer.h]
    final, head = _norm(model.transformer.ln_f), model.lm_head.weight

    def step(tokens: Tensor) -> Tensor:
        reading = Reading(1, None, caches, 0.0)
        x = looked_up("tokens", tokens, table) + reading.positions(places).flatten(0, -2)
        for i, layer in enumerate(layers):
            x = layer(x, i, reading)
        return F.linear(F.layer_norm(x, *final), head)

    return step


def _as_it_was_made(module: nn.Module) -> bool:
    """Whether a call of the module is what its class says."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) in _KNOWN and not hooked and "forward" not in vars(module)


def _layer(block: Any) -> Callable[[Tensor, int, Reading], Tensor]:
    norm_1, norm_2 = _norm(block.ln_1), _norm(block.ln_2)
    attend, outward = _affine(block.attn.c_attn), _affine(block.attn.c_proj)
    inner, outer = _affine(block.mlp.c_fc), _affine(block.mlp.c_proj)
    heads = block.attn.heads

    def layer(x: Tensor, place: int, reading: Reading) -> Tensor:
        n, d = x.shape
        qkv = F.linear(F.layer_norm(x, *norm_1), *attend)
        q, k, v = qkv.view(n, 3, heads, 1, d // heads).unbind(1)
        x = x + F.linear(reading.attend(place, q, k, v).reshape(n, d), *outward)
        hidden = F.gelu(F.linear(F.layer_norm(x, *norm_2), *inner), approximate="tanh")
        return x + F.linear(hidden, *outer)

    return layer


def _affine(map: Map) -> tuple[Tensor, Tensor | None]:
    return map.weight.t(), map.bias


def _norm(norm: nn.LayerNorm) -> tuple[Any, ...]:
    return norm.normalized_shape, norm.weight, norm.bias, norm.eps
