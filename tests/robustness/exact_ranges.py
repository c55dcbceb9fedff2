"""Ranges of networks by other means: mixed-integer programs, linear programs, CROWN on paper."""
# pyright: reportArgumentType=false

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds as Ends
from scipy.optimize import LinearConstraint, linprog, milp
from torch import nn

__all__ = ["exact_range", "lp_least", "paper_crown", "random_mlp", "weights"]


def random_mlp(*widths: int, unit: Any = nn.ReLU, dtype=torch.float64) -> nn.Sequential:
    """Dense layers with weights that keep the size of signals, and units between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layer = nn.Linear(a, b, dtype=dtype)
        nn.init.normal_(layer.weight, std=1.4 / a**0.5)
        nn.init.normal_(layer.bias, std=0.2)
        layers += [layer, unit()]
    return nn.Sequential(*layers[:-1])


def weights(model: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    """The matrices and offsets of the dense layers."""
    return [
        (m.weight.detach().double().numpy(), m.bias.detach().double().numpy())
        for m in model
        if isinstance(m, nn.Linear)
    ]


def boxes(layers, low, high):
    """Intervals before every layer of units, with both signs of weights apart."""
    found = []
    for W, b in layers:
        P, N = np.maximum(W, 0), np.minimum(W, 0)
        low, high = P @ low + N @ high + b, P @ high + N @ low + b
        found.append((low, high))
        low, high = np.maximum(low, 0), np.maximum(high, 0)
    return found


def exact_range(model: nn.Sequential, low, high, row) -> tuple[float, float]:
    """The least and the largest value of row @ model over a box, by a mixed-integer program."""
    layers = weights(model)
    ends = boxes(layers, low, high)
    start, size = {}, len(low)
    for i, (W, _) in enumerate(layers[:-1]):
        start[f"a{i}"], start[f"d{i}"] = size, size + len(W)
        size += 2 * len(W)
    lower, upper = np.full(size, -np.inf), np.full(size, np.inf)
    integral = np.zeros(size)
    lower[: len(low)], upper[: len(low)] = low, high
    rows, least, most = [], [], []

    def add(entries, a, b):
        line = np.zeros(size)
        for at, v in entries:
            line[at] += v
        rows.append(line)
        least.append(a)
        most.append(b)

    before, width = 0, len(low)
    for i, (W, b) in enumerate(layers[:-1]):
        a, d, (l, u) = start[f"a{i}"], start[f"d{i}"], ends[i]
        for j in range(len(W)):
            z = [(before + k, W[j, k]) for k in range(width)]
            lower[a + j], lower[d + j], upper[d + j], integral[d + j] = 0, 0, 1, 1
            minus = [(at, -v) for at, v in z]
            add([(a + j, 1), *minus], b[j], np.inf)  # a >= z
            add([(a + j, 1), (d + j, -max(u[j], 0))], -np.inf, 0)  # a <= u d
            add([(a + j, 1), *minus, (d + j, -min(l[j], 0))], -np.inf, b[j] - min(l[j], 0))
        before, width = a, len(W)
    W, b = layers[-1]
    cost = np.zeros(size)
    cost[before : before + width] = row @ W
    program = {
        "constraints": LinearConstraint(np.array(rows), least, most), "integrality": integral,
        "bounds": Ends(lower, upper), "options": {"mip_rel_gap": 1e-9},
    }  # fmt: skip
    ends = [milp(sign * cost, **program) for sign in (1, -1)]
    assert all(end.success for end in ends), ends
    return ends[0].fun + row @ b, row @ b - ends[1].fun


def lp_least(layers, low, high, row) -> float:
    """The least value that triangles around the rectifiers of one hidden layer leave."""
    (W, b), (V, c) = layers
    (l, u), d, m = boxes(layers[:1], low, high)[0], len(low), len(W)
    A, rhs = [], []
    for j in range(m):
        unit = np.eye(m)[j]
        A += [np.concatenate([W[j], -unit])]  # a >= z
        rhs += [-b[j]]
        if l[j] >= 0:
            A += [np.concatenate([-W[j], unit])]
            rhs += [b[j]]
        elif u[j] > 0:
            s = u[j] / (u[j] - l[j])
            A += [np.concatenate([-s * W[j], unit])]
            rhs += [s * (b[j] - l[j])]
    limits = [*zip(low, high, strict=True), *((0, max(0, end)) for end in u)]
    solved = linprog(np.concatenate([np.zeros(d), row @ V]), A_ub=np.array(A), b_ub=rhs,
                     bounds=limits)  # fmt: skip
    assert solved.success, solved.message
    return solved.fun + row @ c


def paper_crown(layers, low, high, row) -> float:
    """The lower bound of CROWN for rectifiers, as its authors print it, or that of intervals."""
    ends: list[Any] = []

    def least(rows: np.ndarray, depth: int) -> np.ndarray:
        """Of rows @ z for the values z before the units of a depth."""
        W, b = layers[depth]
        A, const = rows @ W, rows @ b
        for i in range(depth - 1, -1, -1):
            l, u = ends[i]
            s = np.where(l >= 0, 1, np.where(u <= 0, 0, u / np.where(u > l, u - l, 1)))
            t = np.where((l < 0) & (u > 0), -s * l, 0)
            a = np.where(l >= 0, 1, np.where(u <= 0, 0, (u > -l) * 1.0))
            const = const + np.minimum(A, 0) @ t
            A = np.maximum(A, 0) * a + np.minimum(A, 0) * s
            W, b = layers[i]
            A, const = A @ W, const + A @ b
        return np.maximum(A, 0) @ low + np.minimum(A, 0) @ high + const

    lower, upper = low, high
    for depth, (W, b) in enumerate(layers[:-1]):
        P, N = np.maximum(W, 0), np.minimum(W, 0)
        lower, upper = P @ lower + N @ upper + b, P @ upper + N @ lower + b
        eye = np.eye(len(W))
        lower = np.maximum(lower, least(eye, depth))
        upper = np.minimum(upper, -least(-eye, depth))
        ends.append((lower, upper))
        lower, upper = np.maximum(lower, 0), np.maximum(upper, 0)
    W, b = layers[-1]
    folded = np.maximum(row @ W, 0) @ lower + np.minimum(row @ W, 0) @ upper + row @ b
    return float(max(least(row[None], len(layers) - 1)[0], folded))
