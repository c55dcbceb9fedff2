"""Rows of the room `regularization`: passes with dropout on, and ensembles that are trained."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped
from vademecum.convolution import ResNet
from vademecum.models import mlp
from vademecum.regularization import Bagging, mc_dropout

__all__ = ["rows"]

PASSES, MEMBERS = 100, 20


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from _passes(device)
    yield from _members(device)


@torch.no_grad()
def _loop(model: nn.Module, x: Any) -> Tensor:
    """Passes one after the other, in training mode but for normalisation by batches."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    made = [model(x) for _ in range(PASSES)]
    model.eval()
    return torch.stack([getattr(z, "logits", z) for z in made])


def _draws(model: nn.Module, x: Any) -> Tensor:
    return mc_dropout(model, x, samples=PASSES).draws


def _alike(mine: Tensor, other: Tensor) -> None:
    """Means within six standard errors."""
    a, b = mine.double(), other.double()
    error = ((a.var(0) + b.var(0)) / len(a)).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() <= 6 * error + 1e-5).all()


def _row(name: str, model: nn.Module, x: Any) -> Row:
    return Row(f"{name}, {PASSES} passes with dropout", partial(_draws, model, x),
               {"a loop": partial(_loop, model, x)}, _alike)  # fmt: skip


def _passes(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    small = device.type == "cpu"
    n = 64 if small else 512
    drop = partial(nn.Dropout, 0.5)
    layers = [nn.Linear(784, 512), nn.ReLU(), drop(), nn.Linear(512, 512), nn.ReLU(), drop()]
    net = nn.Sequential(*layers, nn.Linear(512, 10)).eval().to(device)
    yield _row(f"MLP 784-512-512-10, {n} images", net, torch.randn(n, 784, device=device))
    layer = nn.TransformerEncoderLayer(128, 4, 256, 0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)
    n = 4 if small else 16
    yield _row(f"encoder of 2 layers, {n} x 32 tokens", encoder,
               torch.randn(n, 32, 128, device=device))  # fmt: skip
    n = 8 if small else 64
    last = nn.Sequential(ResNet(18, 512), drop(), nn.Linear(512, 10)).eval().to(device)
    yield _row(f"ResNet-18, {n} images of 32, dropout before the last layer", last,
               torch.randn(n, 3, 32, 32, device=device))  # fmt: skip
    yield from _bert(device)


def _bert(device: torch.device) -> Iterator[Row]:
    bert: Any = importlib.import_module("transformers")
    width, depth, n = (64, 2, 4) if device.type == "cpu" else (768, 12, 8)
    config = bert.BertConfig(vocab_size=1000, hidden_size=width, num_hidden_layers=depth,
                        num_attention_heads=width // 32, intermediate_size=4 * width)  # fmt: skip
    net = _ByIds(bert.BertForSequenceClassification(config)).eval().to(device)
    ids = torch.randint(1000, (n, 32), device=device)
    yield _row(f"BERT of {depth} layers, {n} x 32 tokens", net, ids)


class _ByIds(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Any:
        return self.model(input_ids=ids)


def _one_by_one(
    make: Callable[[int, int], nn.Module], x: Tensor, y: Tensor, epochs: int
) -> list[nn.Module]:
    """Members on bootstrap samples, one after the other, each as anybody would train it."""
    nets = []
    for _ in range(MEMBERS):
        net = make(x.shape[1], 2).to(x.device)
        steps = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.0)
        rows = torch.randint(len(x), (len(x),), device=x.device)
        for _ in range(epochs):
            order = rows[torch.randperm(len(x), device=x.device)]
            for some in order.tensor_split(round(len(x) / 32)):
                steps.zero_grad()
                F.cross_entropy(net(x[some]), y[some]).backward()
                steps.step()
        nets.append(net)
    return nets


def _as_good(mine: Any, other: Any) -> None:
    assert len(mine) == len(other) == MEMBERS


def _members(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    x = torch.randn(1000, 20, device=device)
    y, epochs = (x[:, 0] * x[:, 1] > 0).long(), 2

    def ours() -> list[nn.Module]:
        return Bagging(_small, members=MEMBERS, epochs=epochs).fit(x, y).estimators_

    yield Row(f"{MEMBERS} networks 20-64-64-2, {epochs} epochs of 1000 examples", ours,
              {"one after another": partial(_one_by_one, _small, x, y, epochs)}, _as_good,
              rounds=5)  # fmt: skip


def _small(d: int, k: int) -> nn.Module:
    return mlp([d, 64, 64, k])
