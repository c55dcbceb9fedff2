r"""Exact moments of SGD on quadratics, to compare the means of runs with.

A step on $\frac{a_i}2 (x - c_i)^2$ is the affine map $x \mapsto \alpha_i x + \beta_i$ with
$\alpha_i = 1 - \eta a_i$ and $\beta_i = \eta a_i c_i$, so that
$\mathbb E x'^j = \sum_l \binom jl\, \mathbb E[\alpha^l \beta^{j - l}]\, \mathbb E x^l$.
"""

import math

import torch
from torch import Tensor

__all__ = ["family", "fourth_powers", "moments", "standard_errors"]


def moments(a: Tensor, c: Tensor, eta: float, start: float, steps: int) -> Tensor:
    r"""The moments $\mathbb E x^j$, $j = 0, \dots, 4$, a row for each step."""
    alpha, beta = 1 - eta * a, eta * a * c
    step = torch.zeros(5, 5)
    for j in range(5):
        for k in range(j + 1):
            step[j, k] = math.comb(j, k) * (alpha**k * beta ** (j - k)).mean()
    found = [torch.tensor([start**j for j in range(5)])]
    for _ in range(steps):
        found.append(step @ found[-1])
    return torch.stack(found)


def fourth_powers(maps: Tensor, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    r"""The means of $\|e\|^2$ and $\|e\|^4$ for $e' = M_i e$, from those of $e^{\otimes 4}$."""
    d = len(start)
    pair = torch.einsum("nab,ncd->nacbd", maps, maps).reshape(-1, d * d, d * d)
    two, four = pair.mean(0), torch.einsum("nab,ncd->acbd", pair, pair) / len(maps)
    four = four.reshape(d**4, d**4)
    once = torch.eye(d).flatten()
    e2 = torch.outer(start, start).flatten()
    e4, second, fourth = torch.outer(e2, e2).flatten(), [], []
    for _ in range(steps + 1):
        second.append(once @ e2)
        fourth.append(torch.outer(once, once).flatten() @ e4)
        e2, e4 = two @ e2, four @ e4
    return torch.stack(second), torch.stack(fourth)


def standard_errors(found: Tensor, second: Tensor, fourth: Tensor, runs: int) -> Tensor:
    """How far means of squares over runs are from the exact ones, in exact standard errors."""
    error = ((fourth - second.square()).clamp(min=0) / runs).sqrt()
    return (found - second).abs() / (error + 1e-12 * (1 + second))


def family(mu: float, L: float, n: int) -> tuple[Tensor, Tensor]:
    r"""Curvatures with the largest $L$ and the mean $\mu$, and minima whose joint one is 0."""
    rest = 0.5 + torch.rand(n - 1)
    a = torch.cat([torch.tensor([L]), rest * (n * mu - L) / rest.sum()])
    c = torch.randn(n)
    return a, c - (a @ c) / a.sum()
