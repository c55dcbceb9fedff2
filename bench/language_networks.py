"""Rows of the room `language`: steps of training GPT, and BERT on texts of unequal lengths."""

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped, in_turn
from vademecum.language.networks.bert import BERT, BERTOutput
from vademecum.language.networks.gpt import GPT
from vademecum.models.weights import load_weights

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_plain_steps(device), _their_steps(device), _texts(device))


class _Plain(nn.Module):
    """GPT as one writes it with torch's function: linear maps, views, and a residual path."""

    def __init__(self, V: int, d: int, layers: int, heads: int, context: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, d), nn.Embedding(context, d)
        names = {"qkv": (d, 3 * d), "out": (d, d), "inner": (d, 4 * d), "outer": (4 * d, d)}
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {name: nn.Linear(*shape) for name, shape in names.items()}
                | {"norm1": nn.LayerNorm(d), "norm2": nn.LayerNorm(d)}
            )
            for _ in range(layers)
        )
        self.norm, self.heads = nn.LayerNorm(d), heads

    def forward(self, tokens: Tensor) -> Tensor:
        n, T = tokens.shape
        x = self.wte(tokens) + self.wpe.weight[:T]
        blocks: Any = self.blocks
        for block in blocks:
            q, k, v = block["qkv"](block["norm1"](x)).chunk(3, -1)
            q, k, v = (z.view(n, T, self.heads, -1).transpose(1, 2) for z in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["out"](y.transpose(1, 2).reshape(n, T, -1))
            inner = F.gelu(block["inner"](block["norm2"](x)), approximate="tanh")
            x = x + block["outer"](inner)
        return F.linear(self.norm(x), self.wte.weight)

    def copy_from(self, net: GPT) -> None:
        """The same weights."""
        w = {name.removeprefix("transformer."): p for name, p in net.state_dict().items()}
        names = {"qkv": "attn.c_attn", "out": "attn.c_proj", "inner": "mlp.c_fc",
                 "outer": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2"}  # fmt: skip
        state = {"wte.weight": w["wte.weight"], "wpe.weight": w["wpe.weight"]}
        state |= {f"norm.{kind}": w[f"ln_f.{kind}"] for kind in ("weight", "bias")}
        for i in range(len(self.blocks)):
            for ours, theirs in names.items():
                for kind in ("weight", "bias"):
                    tensor = w[f"h.{i}.{theirs}.{kind}"]
                    turned = tensor.T if tensor.ndim == 2 else tensor
                    state[f"blocks.{i}.{ours}.{kind}"] = turned
        self.load_state_dict(state)


def _step(
    net: Callable[[Tensor], Any], tokens: Tensor, autocast: bool, *, optimizer: Any
) -> Tensor:
    """A step of training, its rate so small that the loss stays what it was."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
        logits = net(tokens[:, :-1])
        logits = logits if isinstance(logits, Tensor) else logits.logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _close(mine: Tensor, other: Tensor) -> None:
    tol = 1e-4 if mine.device.type == "cpu" else 2e-2
    torch.testing.assert_close(mine, other, rtol=tol, atol=tol)


def _sizes(device: torch.device) -> tuple[dict[str, int], int]:
    """The model of both machines, and how many rows it is trained on."""
    if device.type == "cuda":
        return {"V": 50304, "d": 768, "layers": 12, "heads": 12, "context": 1024}, 16
    return {"V": 65, "d": 384, "layers": 6, "heads": 6, "context": 256}, 8


def _call(net: nn.Module, tokens: Tensor) -> Callable[[], Tensor]:
    """A step; on CUDA devices compiled, with bfloat16 as people train there."""
    cuda = tokens.is_cuda
    net = net.to(tokens.device).train()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-12, fused=True)
    run = torch.compile(net) if cuda else net
    return partial(_step, run, tokens, cuda, optimizer=optimizer)


def _plain_steps(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    sizes, n = _sizes(device)
    tokens = torch.randint(sizes["V"], (n, sizes["context"] + 1), device=device)
    ours, plain = GPT(**sizes), _Plain(**sizes)  # pyright: ignore[reportArgumentType]
    plain.copy_from(ours)
    name = f"GPT {sizes['layers']} x {sizes['d']}, training step"
    yield Row(name, _call(ours, tokens), {"torch": _call(plain, tokens)}, _close)


def _their_steps(device: torch.device) -> Iterator[Row]:
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    sizes, n = _sizes(device)
    config = transformers.GPT2Config(
        vocab_size=sizes["V"], n_embd=sizes["d"], n_layer=sizes["layers"], n_head=sizes["heads"],
        n_positions=sizes["context"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    tokens = torch.randint(sizes["V"], (n, sizes["context"] + 1), device=device)
    theirs = transformers.GPT2LMHeadModel(config)
    ours = GPT(**sizes)  # pyright: ignore[reportArgumentType]
    load_weights(ours, theirs.state_dict())
    name = f"GPT {sizes['layers']} x {sizes['d']}, training step, against a library"
    yield Row(name, _call(ours, tokens), {"transformers": _call(theirs, tokens)}, _close)


@torch.inference_mode()
def _hidden(net: Callable[..., Any], tokens: Tensor, real: Tensor, how: dict[str, Any]) -> Tensor:
    found = net(tokens, **how)
    return (found.hidden if isinstance(found, BERTOutput) else found.last_hidden_state)[real]


def _texts(device: torch.device) -> Iterator[Row]:
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    theirs = transformers.BertModel(transformers.BertConfig()).eval()
    ours = BERT.named("bert-base").eval()
    load_weights(ours, theirs.state_dict())
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lengths = torch.linspace(32, 512, 32).long()[torch.randperm(32)]
    tokens = torch.randint(30522, (32, 512), device=device)
    real = torch.arange(512, device=device) < lengths.to(device)[:, None]
    flops = sum(2 * 85e6 * T + 12 * 4 * T * T * 768 for T in lengths.tolist())
    calls = [
        partial(_hidden, net.to(device, dtype), tokens, real, how)
        for net, how in ((ours, {"lengths": lengths}), (theirs, {"attention_mask": real.long()}))
    ]
    limit = f"{math.ceil(flops / 1e9)} GFLOP of real tokens"
    close = (
        _close
        if dtype == torch.float32
        else partial(torch.testing.assert_close, rtol=0.1, atol=0.1)
    )
    yield Row("BERT base, 32 texts of 32 to 512 tokens", calls[0], {"transformers": calls[1]},
              close, limit, rounds=3)  # fmt: skip
