"""Rows of the room `attention`: heads and stacks against torch's, and steps with a cache."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped, in_turn
from vademecum.attention.multi_head import MultiHeadAttention
from vademecum.attention.transformer import TransformerEncoder

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_layers(device), _encoders(device), _steps(device))


def _close(mine: Tensor, other: Tensor) -> None:
    tol = 1e-3 if mine.dtype == torch.float32 else 3e-2
    torch.testing.assert_close(mine, other, rtol=tol, atol=tol)


def _gradient(call: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor) -> Tensor:
    """Forward and backward; the gradient in the input."""
    for p in net.parameters():
        p.grad = None
    x = x.detach().requires_grad_()
    call(x).square().mean().backward()
    assert x.grad is not None
    return x.grad * x.numel()


def _by_hand(net: nn.MultiheadAttention, x: Tensor, *, causal: bool) -> Tensor:
    """What one writes with torch's function: a product, three views, and a product."""
    n, T, d = x.shape
    q, k, v = F.linear(x, net.in_proj_weight, net.in_proj_bias).chunk(3, -1)
    q, k, v = (z.view(n, T, net.num_heads, -1).transpose(1, 2) for z in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return net.out_proj(y.transpose(1, 2).reshape(n, T, d))


def _layers(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    cuda = device.type == "cuda"
    n, T, d, h = (16, 1024, 1024, 16) if cuda else (8, 256, 256, 8)
    dtype = torch.bfloat16 if cuda else torch.float32
    ours = MultiHeadAttention(d, h).to(device, dtype)
    theirs, plain = ours.to_torch(), ours.to_torch()
    x = torch.randn(n, T, d, device=device, dtype=dtype)
    later = torch.ones(T, T, dtype=torch.bool, device=device).triu(1)
    for causal in (False, True):
        mask = {"attn_mask": later, "is_causal": True} if causal else {}

        def layer(z: Tensor, mask: dict[str, Any] = mask) -> Tensor:
            return theirs(z, z, z, need_weights=False, **mask)[0]

        yield Row(f"{'causal ' if causal else ''}multi-head attention, forward and backward",
                  partial(_gradient, partial(ours, causal=causal), ours, x),
                  {"nn.MultiheadAttention": partial(_gradient, layer, theirs, x),
                   "torch by hand": partial(_gradient, partial(_by_hand, plain, causal=causal),
                                            plain, x)}, _close)  # fmt: skip


def _step(net: nn.Module, x: Tensor, how: dict[str, Any], *, optimizer: Any) -> Tensor:
    """A step of training, its rate so small that the loss stays what it was."""
    optimizer.zero_grad()
    loss = net(x, **how).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _encoders(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    cuda = device.type == "cuda"
    n, T, d, h, depth = (32, 512, 768, 12, 12) if cuda else (8, 128, 384, 6, 6)
    dtype = torch.bfloat16 if cuda else torch.float32
    x = torch.randn(n, T, d, device=device, dtype=dtype)
    lengths = torch.linspace(T // 4, T, n).long().to(device)
    padding = torch.arange(T, device=device) >= lengths[:, None]
    for dropout, padded in ((0.0, False), (0.1, False), (0.0, True)):
        ours = TransformerEncoder(d, h, depth=depth, dropout=dropout, norm_first=True)
        block = nn.TransformerEncoderLayer(d, h, 4 * d, dropout, batch_first=True, norm_first=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of nested tensors, which are for evaluation
            theirs = nn.TransformerEncoder(block, depth, nn.LayerNorm(d))
        theirs.load_state_dict(ours.state_dict())
        calls = []
        for net, how in ((ours, {"lengths": lengths}), (theirs, {"src_key_padding_mask": padding})):
            net.to(device, dtype).train()
            optimizer = torch.optim.SGD(net.parameters(), 1e-12)
            calls.append(partial(_step, net, x, how if padded else {}, optimizer=optimizer))
        name = f"encoder {depth} x {d}, training step"
        name += " with dropout" if dropout else " of padded rows" if padded else ""
        agree = _close if not dropout else partial(torch.testing.assert_close, rtol=0.2, atol=0.2)
        yield Row(name, calls[0], {"nn.TransformerEncoder": calls[1]}, agree)


@torch.no_grad()
def _cached(net: TransformerEncoder, x: Tensor, prompt: int) -> Tensor:
    cache = net.cache(len(x), x.shape[1])
    parts = [x[:, :prompt], *x[:, prompt:].split(1, 1)]
    return torch.cat([net(part, causal=True, cache=cache)[:, -1:] for part in parts], 1)


@torch.no_grad()
def _recomputed(net: TransformerEncoder, x: Tensor, prompt: int) -> Tensor:
    ends = range(prompt, x.shape[1] + 1)
    return torch.cat([net(x[:, :end], causal=True)[:, -1:] for end in ends], 1)


@torch.no_grad()
def _concatenated(net: TransformerEncoder, x: Tensor, prompt: int) -> Tensor:
    """Keys and values of each layer in tensors that grow by concatenation, as one writes it."""
    past: list[Any] = [None] * len(net.layers)
    outputs = []
    for part in (x[:, :prompt], *x[:, prompt:].split(1, 1)):
        y = part
        for i, layer in enumerate(net.layers):
            block: Any = layer
            attn = block.self_attn
            q, k, v = F.linear(block.norm1(y), attn.in_proj_weight, attn.in_proj_bias).chunk(3, -1)
            q, k, v = (z.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for z in (q, k, v))
            if past[i] is not None:
                k, v = torch.cat([past[i][0], k], 2), torch.cat([past[i][1], v], 2)
            past[i] = k, v
            z = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
            y = y + attn.out_proj(z.transpose(1, 2).flatten(2))
            y = y + block.feed_forward(block.norm2(y))
        outputs.append(net.norm(y[:, -1:]) if net.norm is not None else y[:, -1:])
    return torch.cat(outputs, 1)


def _steps(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    cuda = device.type == "cuda"
    n, prompt, T = (16, 512, 768) if cuda else (2, 256, 288)
    net = TransformerEncoder(384, 6, depth=6, norm_first=True).to(device).eval()
    x = torch.randn(n, T, 384, device=device)
    peers = {
        "recomputing": partial(_recomputed, net, x, prompt),
        "concatenated keys": partial(_concatenated, net, x, prompt),
    }
    yield Row(f"{T - prompt} cached steps after a prompt of {prompt}",
              partial(_cached, net, x, prompt), peers, _close, rounds=3)  # fmt: skip
