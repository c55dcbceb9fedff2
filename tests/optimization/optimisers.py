"""All our optimisers, and a problem for them; a new one needs an entry in `MADE`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.optimization import SVRG, HeavyBall, Nesterov, ProjectedSGD, SignSGD

TARGET = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)


class Problem:
    """A quadratic in two tensors, whose gradients are those of numbered batches."""

    def __init__(self, dtype: torch.dtype = torch.float64):
        self.w = nn.Parameter(torch.linspace(-2, 3, 6).to(dtype).reshape(2, 3))
        self.b = nn.Parameter(torch.tensor([0.5, -1.5]).to(dtype))

    def params(self) -> list[Tensor]:
        return [self.w, self.b]

    def loss(self, t: int = 0) -> Tensor:
        gap = (self.w - TARGET.to(self.w)).square().sum() * 1.5
        return gap + (self.b * self.w.sum(1)).sum() + self.b.square().sum() * 2 + t * self.b.sum()

    def closure(self, t: int = 0) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            self.w.grad = self.b.grad = None
            loss = self.loss(t)
            loss.backward()
            return loss

        return evaluate


def svrg(params: Any, problem: Problem, **options: Any) -> SVRG:
    return SVRG(params, **{"lr": 0.05, "period": 3, "full_closure": problem.closure(), **options})


def constrained(params: Any, problem: Problem, **options: Any) -> ProjectedSGD:
    return ProjectedSGD(params, **{"lr": 0.05, "project": lambda x: x.clamp(-9, 9), **options})


Made = Callable[..., Any]
MADE: dict[str, Made] = {
    "HeavyBall": lambda params, problem, **o: HeavyBall(params, **{"lr": 0.05, **o}),
    "Nesterov": lambda params, problem, **o: Nesterov(params, **{"lr": 0.05, **o}),
    "Nesterov, 0.9": lambda params, problem, **o: Nesterov(
        params, **{"lr": 0.05, "momentum": 0.9, **o}
    ),
    "SignSGD": lambda params, problem, **o: SignSGD(params, **{"lr": 0.05, **o}),
    "ProjectedSGD": constrained,
    "SVRG": svrg,
    "SVRG, average": lambda params, problem, **o: svrg(
        params, problem, **{"snapshot": "average", **o}
    ),
}
ALL = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


def run(
    make: Made, count: int = 7, *, dtype: torch.dtype = torch.float64, **options: Any
) -> list[Tensor]:
    """Where some steps lead."""
    problem = Problem(dtype)
    optimizer = make(problem.params(), problem, **options)
    for t in range(count):
        optimizer.step(problem.closure(t))
    return [p.detach().clone() for p in problem.params()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def close(one: list[Tensor], other: list[Tensor], tol: float = 1e-12) -> bool:
    return all(torch.allclose(a, b, rtol=tol, atol=tol) for a, b in zip(one, other, strict=True))
