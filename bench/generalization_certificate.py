"""Rows of the room `generalization`: a stochastic step, and certificates beside PBB's.

`python -m bench.generalization_certificate --network cnn --device cuda` certifies a network on
Fashion-MNIST and prints one line; `--peer` does the same as PBB does.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped
from vademecum.data import load
from vademecum.generalization import (
    StochasticNetwork,
    kl_inverse,
    pac_bayes_bound,
    pac_bayes_certificate,
)
from vademecum.models import mlp

__all__ = ["main", "rows"]

N, DELTA, DELTA_MC = 60_000, 0.025, 0.01


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield _step(device)
    yield _certificates(device)


def network(kind: str) -> nn.Sequential:
    """The networks of the bars: 784-600-600-600-10, and two convolutions with two dense layers."""
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), *mlp([784, 600, 600, 600, 10]))
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
              nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
              nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 10)]  # fmt: skip
    return nn.Sequential(*layers)


def _step(device: torch.device) -> Row:
    torch.manual_seed(0)
    model, n = network("mlp").to(device), 500
    noisy = StochasticNetwork(model, prior="init", prior_std=0.01)
    x, y = torch.rand(n, 784, device=device), torch.randint(10, (n,), device=device)
    optimizers: dict[nn.Module, torch.optim.Optimizer] = {
        m: torch.optim.Adam(m.parameters(), 1e-5, fused=True) for m in (model, noisy)
    }

    def step(m: nn.Module) -> float:
        loss = F.cross_entropy(m(x), y)
        if isinstance(m, StochasticNetwork):
            loss = loss + m.kl() / N
        optimizers[m].zero_grad()
        loss.backward()
        optimizers[m].step()
        return loss.item()

    def close(mine: float, other: float) -> None:
        assert abs(mine - other) < 0.2

    return Row(f"stochastic step of 784-600-600-600-10, {n} examples", partial(step, noisy),
               {"a plain step": partial(step, model)}, close, "0.4 of a plain step")  # fmt: skip


def _certificates(device: torch.device) -> Row:
    x, y = (t[:6000].to(device) for t in load("fashion_mnist")[:2])
    epochs = {"prior_epochs": 5, "posterior_epochs": 2}

    def never_above(mine: float, other: float) -> None:
        assert mine <= other, f"certificate {mine:.4f} above PBB's {other:.4f}"

    return Row("certificate of 784-600-600-600-10, 6000 images",
               partial(certified, "mlp", x, y, **epochs), {"PBB": partial(pbb, "mlp", x, y,
               **epochs)}, never_above, rounds=1)  # fmt: skip


def certified(kind: str, x: Tensor, y: Tensor, **knobs: Any) -> float:
    """Our 0-1 certificate."""
    torch.manual_seed(0)
    found = pac_bayes_certificate(network(kind).to(x.device), x, y, delta=DELTA, delta_mc=DELTA_MC,
                                  **knobs)  # fmt: skip
    return found.zero_one.kl


class _ProbLayer(nn.Module):
    """A layer of PBB: one draw of softplus(rho) around mu in each pass, for all examples."""

    def __init__(self, layer: nn.Module, std: float):
        super().__init__()
        self.layer, self.std = layer, std
        self.mu = nn.ParameterList(p.detach().clone() for p in layer.parameters())
        rho = math.log(math.expm1(std))
        self.rho = nn.ParameterList(torch.full_like(p, rho) for p in layer.parameters())
        self.start = [p.detach().clone() for p in layer.parameters()]

    def forward(self, x: Tensor) -> Tensor:
        pairs = zip(dict(self.layer.named_parameters()), self.mu, self.rho, strict=True)
        drawn = {k: m + F.softplus(r) * torch.randn_like(m) for k, m, r in pairs}
        return torch.func.functional_call(self.layer, drawn, (x,))

    def kl(self) -> Tensor:
        total = torch.zeros((), device=self.mu[0].device)
        for m, r, p in zip(self.mu, self.rho, self.start, strict=True):
            v = F.softplus(r).square() / self.std**2
            total = total + (v - 1 - v.log() + ((m - p) / self.std).square()).sum() / 2
        return total


def pbb(
    kind: str, x: Tensor, y: Tensor, *, prior_epochs: int, posterior_epochs: int,
    std: float = 0.03, passes: int = 10, batch_size: int = 250,
) -> float:  # fmt: skip
    """PBB's 0-1 certificate: quadratic objective, SGD with momentum, standard deviation 0.03."""
    torch.manual_seed(0)
    net = network(kind).to(x.device)
    half = torch.randperm(len(x), device=x.device).split(len(x) // 2)
    # Adam for the prior's means, which in so few epochs is kinder to it than its own steps
    _descend(torch.optim.Adam(net.parameters(), 1e-3), x, y, half[0], prior_epochs, batch_size,
             lambda a, b: F.cross_entropy(net(a), b))  # fmt: skip
    noisy = nn.Sequential(*(_ProbLayer(m, std) if list(m.parameters()) else m for m in net))
    layers = [m for m in noisy if isinstance(m, _ProbLayer)]
    train = [p for m in layers for p in (*m.mu, *m.rho)]
    n = len(half[1])

    def objective(a: Tensor, b: Tensor) -> Tensor:
        risk = F.cross_entropy(noisy(a), b, reduction="none").clamp(max=-math.log(1e-5)).mean()
        kl = torch.stack([m.kl() for m in layers]).sum()
        c = (kl + math.log(2 * math.sqrt(n) / DELTA)) / (2 * n)
        return ((risk / -math.log(1e-5) + c).sqrt() + c.sqrt()).square()

    _descend(torch.optim.SGD(train, lr=0.001, momentum=0.95), x, y, half[1], posterior_epochs,
             batch_size, objective)  # fmt: skip
    with torch.no_grad():
        wrong, groups = 0, passes * math.ceil(n / batch_size)
        for _ in range(passes):
            for rows in half[1].split(batch_size):
                wrong += (noisy(x[rows]).argmax(1) != y[rows]).sum().item()
        kl = sum(m.kl().item() for m in layers)
    # with draws counted by batches, and our inverse, which does not err downwards
    upper = kl_inverse(wrong / (passes * n), math.log(2 / DELTA_MC) / groups, side="upper")
    return pac_bayes_bound(upper, max(kl, 0.0), n, delta=DELTA)


def _descend(
    optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, index: Tensor, epochs: int, size: int,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:  # fmt: skip
    for _ in range(epochs):
        for rows in index[torch.randperm(len(index), device=index.device)].split(size):
            optimizer.zero_grad()
            loss(x[rows], y[rows]).backward()
            optimizer.step()


def main(arguments: list[str] | None = None) -> None:
    """Certify a network on Fashion-MNIST and print one line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--network", choices=("mlp", "cnn"), default="cnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prior-epochs", type=int, default=15)
    parser.add_argument("--posterior-epochs", type=int, default=2)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--examples", type=int, default=N)
    parser.add_argument("--peer", action="store_true", help="as PBB does")
    parser.add_argument("--progress", action="store_true")
    given = parser.parse_args(arguments)
    x, y = (t[: given.examples].to(given.device) for t in load("fashion_mnist")[:2])
    knobs: dict[str, Any] = {"prior_epochs": given.prior_epochs, "passes": given.passes,
                             "posterior_epochs": given.posterior_epochs}  # fmt: skip
    start, cpu = time.perf_counter(), time.process_time()
    if given.peer:
        bound = pbb(given.network, x, y, **knobs)
    else:
        bound = certified(given.network, x, y, progress=given.progress, **knobs)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    who = "PBB" if given.peer else "ours"
    print(
        f"{who} {given.network} on {given.device}: 0-1 certificate {bound:.4f} at confidence"
        f" {1 - DELTA - DELTA_MC:g}, {len(x)} examples, {wall:.0f} s, CPU {cpu:.0f} s"
    )


if __name__ == "__main__":
    main()
