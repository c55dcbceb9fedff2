"""Rows of the room `attention`: vision transformers, and rotary positions."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped
from vademecum.attention.turned_pairs import rotary
from vademecum.attention.vision.vit import ViT

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from _training(device)
    yield from _turning(device)


def _pass(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, and the gradient in the kernels of the patches, which all others lead to."""
    for p in net.parameters():
        p.grad = None
    logits = net(x)
    cross_entropy(logits, y).backward()
    kernels = next(m.weight for m in net.modules() if isinstance(m, nn.Conv2d))
    assert kernels.grad is not None
    return logits.detach(), kernels.grad


def _close(mine: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3 * float(b.abs().max()))


@torch.no_grad()
def _logits(net: nn.Module, x: Tensor) -> tuple[Tensor]:
    return (net(x),)


def _training(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    n = 4 if device.type == "cpu" else 128
    x, y = torch.randn(n, 3, 224, 224, device=device), torch.randint(10, (n,), device=device)
    small = x[:, :, :160, :160].contiguous()
    net = ViT("Ti", 10).to(device)
    assert net.pos_embed is not None
    nn.init.normal_(net.pos_embed)  # so that they matter
    peers: dict[str, Callable[[], Any]] = {
        "the obvious module": partial(_pass, _Obvious(net).to(device), x, y),
        "timm": partial(_pass, _timm(net).to(device), x, y),
    }
    yield Row(f"ViT-Ti/16, {n} images of 224, forward and backward", partial(_pass, net, x, y),
              peers, _close)  # fmt: skip
    yield Row(f"ViT-Ti/16 of 224, {n} images of 160, forward", partial(_logits, net, small),
              {"timm": partial(_logits, _timm(net).to(device), small)}, _close)  # fmt: skip


def _timm(net: ViT) -> nn.Module:
    """The same network of timm, with our weights; it needs torchvision for its data sets alone."""
    library: Any = importlib.import_module("bench.outside.timm_cases")._timm()
    peer = library.create_model("vit_tiny_patch16_224", num_classes=10, dynamic_img_size=True)
    peer.load_state_dict(net.state_dict())
    return peer


class _Obvious(nn.Module):
    """`nn.TransformerEncoder` over patches, with a class token and positions."""

    def __init__(self, net: ViT):
        super().__init__()
        self.embed = nn.Conv2d(3, 192, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, 192))
        self.places = nn.Parameter(torch.zeros(1, 197, 192))
        layer = nn.TransformerEncoderLayer(
            192, 3, 768, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, 12, nn.LayerNorm(192, eps=1e-6), enable_nested_tensor=False
        )
        self.head = nn.Linear(192, 10)
        ours = net.state_dict()
        mine = [ours.pop(name) for name in ("patch_embed.proj.weight", "patch_embed.proj.bias")]
        mine = [ours.pop("cls_token"), ours.pop("pos_embed"), *mine]
        order = ("attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias",
                 "mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias",
                 "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias")  # fmt: skip
        mine += [ours[f"blocks.{i}.{name}"] for i in range(12) for name in order]
        mine += [ours[name] for name in ("norm.weight", "norm.bias", "head.weight", "head.bias")]
        for theirs, tensor in zip(self.state_dict().values(), mine, strict=True):
            theirs.copy_(tensor)

    def forward(self, x: Tensor) -> Tensor:
        z = self.embed(x).flatten(2).mT
        z = torch.cat((self.token.expand(len(z), -1, -1), z), 1) + self.places
        return self.head(self.encoder(z)[:, 0])


def _turning(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    n = 4 if device.type == "cpu" else 32
    x = torch.randn(n, 16, 1024, 64, device=device)
    at = torch.arange(1024, device=device)
    llama: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=1024, num_attention_heads=16
    )
    angles = llama.LlamaRotaryEmbedding(config).to(device)

    def theirs() -> Tensor:
        cos, sin = angles(x, at[None])
        return llama.apply_rotary_pos_emb(x, x[:, :1], cos, sin)[0]

    def plain() -> Tensor:
        omega = 10000.0 ** (-torch.arange(0, 64, 2, device=device) / 64)
        turns = torch.polar(torch.ones((), device=device), at[:, None] * omega)
        a, b = x.chunk(2, -1)
        y = torch.complex(a, b) * turns
        return torch.cat((y.real, y.imag), -1)

    yield Row(f"rotary, {n} x 16 heads of 1024 x 64", partial(rotary, x, at, pairing="halves"),
              {"transformers": theirs, "complex numbers": plain},
              partial(torch.testing.assert_close, rtol=1e-3, atol=1e-3))  # fmt: skip
