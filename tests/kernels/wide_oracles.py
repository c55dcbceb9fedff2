"""Kernels of wide networks without the library: loops over pixels, and networks that are wide."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Pixels", "arc_cosine", "dense_relu", "finite_kernels"]


def arc_cosine(k: float, q: float, p: float) -> tuple[float, float]:
    """E relu relu and E step step of Cho and Saul, by the angle."""
    if q <= 0 or p <= 0:
        return 0.0, 0.0
    c = max(-1.0, min(1.0, k / math.sqrt(q * p)))
    angle = math.acos(c)
    value = math.sqrt(q * p) * (math.sin(angle) + (math.pi - angle) * c) / (2 * math.pi)
    return value, (math.pi - angle) / (2 * math.pi)


def dense_relu(x: Tensor, y: Tensor, hidden: int, w: float, b: float) -> tuple[Tensor, Tensor]:
    """NNGP and NTK of a fully connected ReLU network, pair by pair."""
    found = torch.zeros(2, len(x), len(y), dtype=torch.float64)
    for i, j in product(range(len(x)), range(len(y))):
        k, q, p = (
            w * float(a.double() @ c.double()) / len(a) + b
            for a, c in ((x[i], y[j]), (x[i], x[i]), (y[j], y[j]))
        )
        theta = k
        for _ in range(hidden):
            value, slope = arc_cosine(k, q, p)
            k, q, p = w * value + b, w * q / 2 + b, w * p / 2 + b
            theta = k + w * theta * slope
        found[0, i, j], found[1, i, j] = k, theta
    return found[0], found[1]


class Pixels:
    """Covariances of two images between all pixels, by loops over tables of numbers.

    It keeps three tables, of the first image with itself, of both, and of the second with itself,
    and for each the tangent kernel.
    """

    def __init__(self, x: Tensor, y: Tensor):
        channels, *self.size = x.shape
        self.tables = []
        for a, b in ((x, x), (x, y), (y, y)):
            k = {
                (p, o): float((a[(slice(None), *p)] * b[(slice(None), *o)]).sum()) / channels
                for p, o in product(self.pixels(), self.pixels())
            }
            self.tables.append((k, dict.fromkeys(k, 0.0)))

    def pixels(self) -> list[tuple[int, ...]]:
        return list(product(*map(range, self.size)))

    def conv(
        self, kernel: int, w: float, b: float, *, stride=1, padding=0, dilation=1, mode="zeros"
    ) -> "Pixels":
        """A convolution with the same numbers along each axis."""
        before = list(self.size)
        self.size = [(n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in before]
        taps = list(product(range(kernel), repeat=len(before)))

        def seen(p: tuple[int, ...], tap: tuple[int, ...]) -> tuple[int, ...] | None:
            at = [stride * i - padding + dilation * t for i, t in zip(p, tap, strict=True)]
            if mode == "circular":
                at = [i % n for i, n in zip(at, before, strict=True)]
            elif mode == "reflect":
                at = [-i if i < 0 else 2 * (n - 1) - i if i >= n else i
                      for i, n in zip(at, before, strict=True)]  # fmt: skip
            inside = all(0 <= i < n for i, n in zip(at, before, strict=True))
            return tuple(at) if inside else None

        tables = []
        for k, theta in self.tables:
            new, tangent = {}, {}
            for p, o in product(self.pixels(), self.pixels()):
                pairs = [(seen(p, t), seen(o, t)) for t in taps]
                pairs = [(a, c) for a, c in pairs if a is not None and c is not None]
                new[p, o] = w * sum(k[pair] for pair in pairs) / len(taps) + b
                tangent[p, o] = new[p, o] + w * sum(theta[pair] for pair in pairs) / len(taps)
            tables.append((new, tangent))
        self.tables = tables
        return self

    def relu(self) -> "Pixels":
        first, last = self.tables[0][0], self.tables[2][0]
        tables = []
        for (k, theta), (left, right) in zip(
            self.tables, ((first, first), (first, last), (last, last)), strict=True
        ):
            both = {(p, o): arc_cosine(v, left[p, p], right[o, o]) for (p, o), v in k.items()}
            tables.append(
                (
                    {at: value for at, (value, _) in both.items()},
                    {at: theta[at] * slope for at, (_, slope) in both.items()},
                )
            )
        self.tables = tables
        return self

    def pool(self, window: int) -> "Pixels":
        """Means over windows that do not overlap."""
        self.size = [n // window for n in self.size]
        inside = list(product(range(window), repeat=len(self.size)))

        def members(p: tuple[int, ...]) -> list[tuple[int, ...]]:
            return [tuple(window * i + t for i, t in zip(p, tap, strict=True)) for tap in inside]

        def pooled(table: dict[Any, float]) -> dict[Any, float]:
            return {
                (p, o): sum(table[a, c] for a in members(p) for c in members(o)) / len(inside) ** 2
                for p, o in product(self.pixels(), self.pixels())
            }

        self.tables = [(pooled(k), pooled(theta)) for k, theta in self.tables]
        return self

    def dense(self, w: float, b: float) -> tuple[float, float]:
        """A linear layer on all pixels: NNGP and NTK of the pair."""
        k, theta = self.tables[1]
        n = len(self.pixels())
        value = w * sum(k[p, p] for p in self.pixels()) / n + b
        return value, value + w * sum(theta[p, p] for p in self.pixels()) / n

    def mean(self) -> "Pixels":
        """The mean over all pixels."""
        n, zero = len(self.pixels()), (0,) * len(self.size)
        self.tables = [
            ({(zero, zero): sum(k.values()) / n**2}, {(zero, zero): sum(theta.values()) / n**2})
            for k, theta in self.tables
        ]
        self.size = [1] * len(self.size)
        return self


def finite_kernels(
    make: Callable[[], nn.Module], x: Tensor, w: float, b: float, draws: int
) -> tuple[Tensor, Tensor]:
    """The NTK of drawn networks in NTK coordinates by autograd: its mean and standard error.

    Weights of linear layers and convolutions are drawn with variance w over the fan-in, biases with
    variance b; other parameters are as they are.
    """
    found = []
    for seed in range(draws):
        torch.manual_seed(100 + seed)
        model = make()
        scales = {}
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
                fan_in = module.weight[0].numel()
                scales[module.weight] = math.sqrt(w / fan_in)
                if module.bias is not None:
                    scales[module.bias] = math.sqrt(b)
        for p, scale in scales.items():
            nn.init.normal_(p, std=scale)
        parameters = [p for p in model.parameters() if p.requires_grad]
        rows = []
        for each in x:
            grads = torch.autograd.grad(model(each[None])[0, 0], parameters)
            rows.append([g * scales.get(p, 1.0) for g, p in zip(grads, parameters, strict=True)])
        found.append(
            torch.tensor(
                [[sum(float((g * h).sum()) for g, h in zip(r, s, strict=True)) for s in rows]
                 for r in rows]
            )
        )  # fmt: skip
    stack = torch.stack(found).double()
    return stack.mean(0), stack.std(0) / math.sqrt(draws)
