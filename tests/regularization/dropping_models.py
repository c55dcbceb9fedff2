"""Networks that drop in every way, and passes of them in a loop."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Functional(nn.Module):
    """Dropout by a function, with the flag or without."""

    def __init__(self, *, flag: bool = True):
        super().__init__()
        self.a, self.b, self.flag = nn.Linear(4, 6), nn.Linear(6, 3), flag

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        return self.b(F.dropout(h, 0.3, training=self.training) if self.flag else F.dropout(h))


class Hiding(nn.Module):
    """Fused attention that is given no rate in evaluation mode."""

    def __init__(self, *, fused: bool = True, causal: bool = False, p: float = 0.4):
        super().__init__()
        self.qkv, self.p = nn.Linear(4, 12), p
        self.fused, self.causal = fused, causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        p = self.p if self.training else 0.0
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=p)
        else:
            weights = F.dropout((q @ k.mT / 2).softmax(-1), p, training=self.training)
            y = weights @ v
        return y[:, 0]


class DropPath(nn.Module):
    """Whole branches of examples are dropped, as timm does it."""

    def __init__(self, p: float = 0.25):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        mask = x.new_empty((len(x),) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.p)
        return x * mask.div_(1 - self.p)


class Adding(nn.Module):
    """A residual branch with dropout that is added in place, or drops in place."""

    def __init__(self, *, inplace: bool = False):
        super().__init__()
        self.a, self.drop, self.inplace = nn.Linear(4, 4), nn.Dropout(0.3, inplace), inplace

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if self.inplace:
            return self.drop(h) + h  # twice what was dropped
        h += self.drop(h)
        return h


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 5, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0][:, -1]


class Attending(nn.Module):
    def __init__(self, *, weights: bool):
        super().__init__()
        self.attend, self.weights = nn.MultiheadAttention(4, 2, 0.3, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, need_weights=self.weights)[0]


def looped(model: nn.Module, x: Any, samples: int) -> Tensor:
    """Passes in training mode, but for normalisation by batches, and back in evaluation mode."""
    model.train()
    for module in model.modules():
        if "BatchNorm" in type(module).__name__:
            module.eval()
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(samples)])
    model.eval()
    return draws


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.3, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


IMAGES = (2, 3, 6, 5)
MODELS = {
    "modules": lambda: (nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.2), nn.Tanh(), nn.Dropout(0.6),
                                      nn.Linear(9, 3)), (3, 4)),
    "function": lambda: (Functional(), (3, 4)),
    "function without flag": lambda: (Functional(flag=False), (3, 4)),
    "fused attention": lambda: (Hiding(), (2, 5, 4)),
    "causal attention": lambda: (Hiding(causal=True), (2, 5, 4)),
    "eager attention": lambda: (Hiding(fused=False), (2, 5, 4)),
    "torch's attention": lambda: (Attending(weights=False), (2, 5, 4)),
    "torch's attention with weights": lambda: (Attending(weights=True), (2, 5, 4)),
    "torch's encoder": lambda: (encoder(), (2, 3, 4)),
    "images": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout2d(0.3),
                                     nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, 3)),
                       IMAGES),
    "dropped paths": lambda: (nn.Sequential(nn.Linear(4, 3), DropPath()), (6, 4)),
    "in-place sum": lambda: (Adding(), (3, 4)),
}  # fmt: skip
SLOW = {
    "in-place dropout": lambda: (Adding(inplace=True), (3, 4)),
    "recurrent layers": lambda: (Recurrent(), (2, 3, 4)),
}
