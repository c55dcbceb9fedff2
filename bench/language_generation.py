"""Rows of the room `language`: text from a causal model with a cache, greedily."""

import copy
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped, in_turn
from vademecum.language import GPT, generate

__all__ = ["rows"]

_LIMIT = "{:.0f} tokens/s by the bytes of the weights"
_BANDWIDTH = {"cpu": 27e9, "cuda": 4.8e12}  # bytes/s: two cores of an EPYC, an H200


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cuda":
        yield from in_turn(_large(device, 1), _large(device, 64))
    else:
        yield from in_turn(_small(device))


def _model(device: torch.device, dtype: torch.dtype, **sizes: Any) -> GPT:
    """A model whose numbers are large enough that the most probable token has no equal."""
    torch.manual_seed(0)
    net = GPT(**sizes)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return net.to(device, dtype).eval()


def _ours(net: GPT, prompt: Tensor, new: int) -> Tensor:
    return generate(net, prompt, max_new_tokens=new, temperature=0).tokens


def _same(mine: Tensor, other: Tensor) -> None:
    assert mine.equal(other), "the tokens differ"


def _nearly(net: GPT, prompt: Tensor, mine: Tensor, other: Tensor) -> None:
    """In half precision a near tie may be broken in another way; what follows differs then.

    So where rows part, both tokens must be among the best: in single precision their logits lie no
    further below the largest than a tenth of all logits' deviation. Rounding moves a logit of this
    model by 0.013 of it, and the difference of two logits on two sides by twice as much.
    """
    exact = copy.deepcopy(net).float()
    for row, a, b in zip(prompt, mine, other, strict=True):
        apart = (a != b).nonzero()
        if len(apart):
            t = int(apart[0])
            with torch.no_grad():
                logits = exact(torch.cat((row, a[:t]))[None])[0, -1]
            gap = float((logits.max() - logits[torch.stack((a[t], b[t]))]).max() / logits.std())
            assert gap < 0.1, f"token {t} differs, and one lies {gap:.3f} below the best"


class _Plain(nn.Module):
    """What one writes with torch: a block by hand, and memory for keys and values given once."""

    def __init__(self, net: GPT):
        super().__init__()
        self.net, self.d, self.heads = net, net.d, net.heads
        self.maps = [
            [nn.Linear(1, 1) for _ in range(4)] for _ in net.transformer.h
        ]  # matrices (out, in), as nn.Linear has them
        for maps, block in zip(self.maps, net.transformer.h, strict=True):
            inner: Any = block
            theirs = (inner.attn.c_attn, inner.attn.c_proj, inner.mlp.c_fc, inner.mlp.c_proj)
            for map, their in zip(maps, theirs, strict=True):
                map.weight = nn.Parameter(their.weight.detach().t().contiguous())
                map.bias = nn.Parameter(their.bias.detach().clone())

    def forward(self, tokens: Tensor, past: list[Any], filled: int) -> Tensor:
        body: Any = self.net.transformer
        n, T = tokens.shape
        x = body.wte(tokens) + body.wpe.weight[filled : filled + T]
        for block, maps, (keys, values) in zip(body.h, self.maps, past, strict=True):
            qkv = maps[0](block.ln_1(x)).view(n, T, 3, self.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            keys[:, :, filled : filled + T], values[:, :, filled : filled + T] = k, v
            k, v = keys[:, :, : filled + T], values[:, :, : filled + T]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
            x = x + maps[1](y.transpose(1, 2).reshape(n, T, self.d))
            x = x + maps[3](F.gelu(maps[2](block.ln_2(x)), approximate="tanh"))
        return self.net.lm_head(body.ln_f(x[:, -1:]))

    @torch.inference_mode()
    def tokens(self, prompt: Tensor, new: int) -> Tensor:
        n, filled = prompt.shape[0], 0
        like, room = self.net.transformer.wte.weight, prompt.shape[1] + new
        shape = (n, self.heads, room, self.d // self.heads)
        past = [(like.new_empty(shape), like.new_empty(shape)) for _ in self.maps]
        step, found = prompt, []
        for _ in range(new):
            logits = self(step, past, filled)[:, -1]
            filled += step.shape[1]
            step = logits.argmax(-1, keepdim=True)
            found.append(step)
        return torch.cat(found, 1)


def _transformers(net: GPT, prompt: Tensor, new: int, **how: Any) -> Callable[[], Tensor]:
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    config = transformers.GPT2Config(
        vocab_size=net.V, n_positions=net.context, n_embd=net.d, n_head=net.heads,
        n_layer=len(net.transformer.h), bos_token_id=0, eos_token_id=None, pad_token_id=0,
        attn_implementation="sdpa",
    )  # fmt: skip
    like = net.transformer.wte.weight
    theirs: Any = transformers.GPT2LMHeadModel(config).to(like.device, like.dtype).eval()
    theirs.load_state_dict(net.state_dict())
    knobs = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "use_cache": True}
    mask = torch.ones_like(prompt)

    def tokens() -> Tensor:
        found = theirs.generate(prompt, attention_mask=mask, **knobs, **how)
        return found[:, prompt.shape[1] :]

    return tokens


def _limit(net: GPT, n: int, device: torch.device) -> str:
    size = sum(p.numel() * p.element_size() for p in net.parameters())
    return _LIMIT.format(n * _BANDWIDTH[device.type] / size)


def _small(device: torch.device) -> Iterator[Row]:
    sizes = {"V": 65, "d": 384, "layers": 6, "heads": 6, "context": 256}
    net = _model(device, torch.float32, **sizes)
    prompt, new = torch.zeros(1, 1, dtype=torch.long, device=device), 200
    peers = {
        "torch by hand": partial(_Plain(net).tokens, prompt, new),
        "transformers": _transformers(net, prompt, new),
    }
    yield Row("200 tokens by a cache, 6 x 384", partial(_ours, net, prompt, new), peers, _same,
              _limit(net, 1, device))  # fmt: skip


def _large(device: torch.device, n: int) -> Iterator[Row]:
    kinds = (torch.float32, torch.bfloat16)
    for dtype in kinds if n == 1 else kinds[1:]:
        net = _model(device, dtype)
        prompt = torch.randint(net.V, (n, 64), device=device)
        agree = _same if dtype == torch.float32 else partial(_nearly, net, prompt)
        new = 256
        peers = {
            "transformers": _transformers(net, prompt, new),
            "transformers, static": _transformers(net, prompt, new, cache_implementation="static"),
        }
        kind = str(dtype).removeprefix("torch.")
        yield Row(f"{new} tokens for {n} rows, GPT-2 124M, {kind}",
                  partial(_ours, net, prompt, new), peers, agree, _limit(net, n, device),
                  rounds=3)  # fmt: skip
