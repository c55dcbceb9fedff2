"""Layers of torch that consist of operations: normalisation, attention with heads, recurrence.

They take the arguments of torch's functions of the same name, and refuse the options that they do
not follow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from vademecum.gradients.tape._composites import added, linear, plain

__all__ = ["LAYERS"]


def _normalised(x: Any, dim: Sequence[int], eps: float) -> Any:
    x = x - x.mean(dim, keepdim=True)
    return x * (x.square().mean(dim, keepdim=True) + eps) ** -0.5


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return _affine(_normalised(input, range(-len(normalized_shape), 0), eps), weight, bias)


def _batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    plain("batch_norm", training=training and running_mean is not None)  # which would change them
    mean, var, weight, bias = (
        None if x is None else x.reshape(-1, *[1] * (input.ndim - 2))
        for x in (running_mean, running_var, weight, bias)
    )
    if training:
        dims = [axis for axis in range(input.ndim) if axis != 1]
        return _affine(_normalised(input, dims, eps), weight, bias)
    spread: Any = var
    return _affine((input - mean) * (spread + eps) ** -0.5, weight, bias)


def _multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any,
    in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Any, out_proj_bias: Any, training: bool = True, key_padding_mask: Any = None,
    need_weights: bool = True, attn_mask: Any = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None, k_proj_weight: Any = None, v_proj_weight: Any = None,
    average_attn_weights: bool = True, is_causal: bool = False, **options: Any,
) -> tuple[Any, Any]:  # fmt: skip
    plain("attention", bias_k=bias_k, bias_v=bias_v, add_zero_attn=add_zero_attn,
          dropout_p=training and dropout_p, **options)  # fmt: skip
    if alone := query.ndim == 2:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else torch.chunk(in_proj_weight, 3)
    )
    biases = [None] * 3 if in_proj_bias is None else torch.chunk(in_proj_bias, 3)
    q, k, v = (
        linear(x, w, b).unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    for mask in _masks(attn_mask, key_padding_mask, num_heads):
        scores = scores + added(mask, scores, hidden=True)
    shares = scores.softmax(-1)
    out = linear((shares @ v).permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    shares = shares.mean(1) if average_attn_weights else shares
    out, shares = (out.squeeze(1), shares.squeeze(0)) if alone else (out, shares)
    return out, shares if need_weights else None


def _masks(attn_mask: Any, key_padding_mask: Any, heads: int) -> list[Any]:
    """What is added to scores (batch, head, query, key)."""
    masks = []
    if attn_mask is not None:
        masks.append(attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, heads)))
    if key_padding_mask is not None:
        masks.append(key_padding_mask.reshape(-1, 1, 1, key_padding_mask.shape[-1]))
    return masks


def _lstm_step(x: Any, h: Any, state: Sequence[Any]) -> tuple[Any, ...]:
    i, f, g, o = torch.chunk(x + h, 4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(x: Any, h: Any, state: Sequence[Any]) -> tuple[Any, ...]:
    (a, b, c), (d, e, f) = torch.chunk(x, 3, -1), torch.chunk(h, 3, -1)
    new = (c + (a + d).sigmoid() * f).tanh()
    return (new + (b + e).sigmoid() * (state[0] - new),)


def _scan(
    step: Callable[..., tuple[Any, ...]], x: Any, state: Any, weights: Any, biased: bool, back: int
) -> tuple[Any, Any]:
    """One layer in one direction over (time, batch, features): its outputs, and the last state."""
    w, u, *rest = weights
    b, c = rest[:2] if biased else (None, None)
    projection = rest[2 * biased :]
    inputs, outputs = linear(x, w, b), []
    for t in reversed(range(len(x))) if back else range(len(x)):
        h, *others = step(inputs[t], linear(state[0], u, c), state)
        state = (linear(h, projection[0]) if projection else h, *others)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if back else outputs), state


def _recurrent(name: str, step: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    def rule(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Any, ...]:  # fmt: skip
        if not isinstance(has_biases, bool):  # the arguments are those for packed sequences
            raise ValueError(f"{name} on the tape must do without packed sequences")
        plain(name, dropout=train and dropout)
        x, ends = input.transpose(0, 1) if batch_first else input, []
        starts = list(zip(*hx, strict=True)) if isinstance(hx, list | tuple) else [(h,) for h in hx]
        each = len(params) // len(starts)
        for layer in range(num_layers):
            outputs = []
            for back in range(1 + bidirectional):
                run = layer * (1 + bidirectional) + back
                weights = params[run * each : (run + 1) * each]
                out, end = _scan(step, x, starts[run], weights, has_biases, back)
                outputs.append(out)
                ends.append(end)
            x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        last = (torch.stack(each) for each in zip(*ends, strict=True))
        return x.transpose(0, 1) if batch_first else x, *last

    return rule


LAYERS = {
    "layer_norm": _layer_norm, "batch_norm": _batch_norm,
    "multi_head_attention_forward": _multi_head_attention,
    "lstm": _recurrent("lstm", _lstm_step), "gru": _recurrent("gru", _gru_step),
    "rnn_tanh": _recurrent("rnn_tanh", lambda x, h, state: ((x + h).tanh(),)),
    "rnn_relu": _recurrent("rnn_relu", lambda x, h, state: ((x + h).relu(),)),
}  # fmt: skip
"""The layers by the names of the functions that torch calls for them."""
