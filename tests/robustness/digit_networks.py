"""Small networks trained on scikit-learn's digits, once for all tests: ten honest, five masked."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from vademecum.data import load
from vademecum.models import mlp
from vademecum.robustness import pgd

RADIUS = 0.15


@lru_cache(1)
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images (n, 1, 8, 8) in [0, 1], with labels."""
    x, y, _ = load("digits")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order].float(), y[order]
    return x[:1200], y[:1200], x[1200:1330], y[1200:1330]


class Residual(nn.Module):
    """Two blocks with shortcuts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 48), nn.Linear(48, 10)
        self.blocks = nn.ModuleList(mlp([48, 48, 48]) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, 24, 2, 2)
        self.place = nn.Parameter(0.1 * torch.randn(16, 24))
        self.layer = nn.TransformerEncoderLayer(24, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x).flatten(2).mT + self.place).mean(1))


def _flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *layers)


HONEST: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: _flat(nn.Linear(64, 10)),
    "relu": lambda: _flat(mlp([64, 64, 10])),
    "tanh": lambda: _flat(mlp([64, 48, 10], nn.Tanh)),
    "deep": lambda: _flat(mlp([64, 48, 48, 48, 10])),
    "normalised": lambda: _flat(
        nn.Linear(64, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 10)
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(144, 10),
    ),
    "pooling": lambda: nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(192, 10),
    ),
    "residual": Residual,
    "transformer": Patches,
    "robust": lambda: _flat(mlp([64, 96, 10])),
}  # fmt: skip


@lru_cache(None)
def honest(name: str, steps: int = 200) -> nn.Module:
    """A trained network, "robust" against perturbed examples."""
    x, y, *_ = digits()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = HONEST[name]()
        descent = torch.optim.Adam(model.parameters(), lr=5e-3)
        batch = 100 if name == "transformer" else 64
        for rows in torch.randint(len(x), (steps, batch)):
            inputs = x[rows]
            if name == "robust":
                inputs = pgd(model, inputs, y[rows], radius=RADIUS, steps=3).x
            descent.zero_grad()
            cross_entropy(model(inputs), y[rows]).backward()
            descent.step()
    return model.eval()


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        return torch.zeros_like(grads[0])


class Masked(nn.Module):
    """A network behind something that changes its gradients and hardly its decisions."""

    def __init__(self, model: nn.Module, kind: str) -> None:
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, x: Tensor) -> Tensor:
        kind = self.kind
        if kind == "sine":
            x = x + 0.01 * torch.sin(1000 * x)
        elif kind == "rounded":
            x = (16 * x).round() / 16
        elif kind == "zero backward":
            x = _NoGradient.apply(x)
        elif kind == "dropout":
            x = dropout(x, 0.1, training=True)
        z = self.model(x)
        return 1e4 * z if kind == "scaled" else z


MASKS = ("scaled", "sine", "zero backward", "rounded", "dropout")
