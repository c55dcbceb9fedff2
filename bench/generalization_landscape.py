"""Rows of the room `generalization`: planes of the loss, and networks that are aligned.

The loop over grid points writes the parameters of each point into the network and runs it, as
loss-landscapes does; the alignment is git-re-basin's coordinate descent over SciPy's assignments,
written for an MLP. The last row says how high the barrier between two networks of three hidden
layers of 512 units is before and after.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped
from vademecum.convolution import ResNet
from vademecum.data import load
from vademecum.generalization import align, loss_plane, mode_connectivity
from vademecum.gradients import functional
from vademecum.models import mlp

__all__ = ["rows"]

POINTS = 21


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from _planes(device)
    yield from _alignments(device)


def _loop(model: nn.Module, x: Tensor, y: Tensor, directions: Tensor, points: int) -> Tensor:
    """One point after the other, by the network itself."""
    own = list(model.parameters())
    kept = [p.detach().clone() for p in own]
    f = functional(model)
    u, v = (list(f.unravel(d).values()) for d in directions)
    found = []
    with torch.no_grad():
        for a in torch.linspace(-1, 1, points).tolist():
            for b in torch.linspace(-1, 1, points).tolist():
                for p, q, r, s in zip(own, kept, u, v, strict=True):
                    p.copy_(q + a * r + b * s)
                found.append(F.cross_entropy(model(x), y))
        for p, q in zip(own, kept, strict=True):
            p.copy_(q)
    return torch.stack(found).view(points, points)


def _ours(model: nn.Module, x: Tensor, y: Tensor, directions: Tensor, points: int) -> Tensor:
    found = loss_plane(model, x, y, directions=directions, points=points, curvature=False)
    return found.losses


def _alike(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine.cpu(), other.double().cpu(), rtol=1e-3, atol=1e-4)


def _plane(name: str, model: nn.Module, x: Tensor, y: Tensor, points: int) -> Row:
    model = model.to(x.device).eval()
    source = torch.Generator(x.device).manual_seed(0)
    knobs: Any = {"points": 2, "curvature": False, "generator": source}
    directions = loss_plane(model, x, y, **knobs).directions
    given = model, x, y, directions, points
    return Row(f"{name}, {points} x {points} points of a plane", partial(_ours, *given),
               {"a loop": partial(_loop, *given)}, _alike, rounds=5)  # fmt: skip


def _planes(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    small = device.type == "cpu"

    def labels(n: int, k: int) -> Tensor:
        return torch.randint(k, (n,), device=device)

    x = torch.randn(200, 2, device=device)
    yield _plane("MLP 2-32-32-2, 200 examples", mlp([2, 32, 32, 2]), x, labels(200, 2), POINTS)
    x = torch.randn(500, 64, device=device)
    yield _plane("MLP 64-64-10, 500 examples", mlp([64, 64, 10]), x, labels(500, 10), POINTS)
    n, points = (500, 9) if small else (10_000, POINTS)
    x = torch.randn(n, 784, device=device)
    net = mlp([784, 512, 512, 10])
    yield _plane(f"MLP 784-512-512-10, {n} examples", net, x, labels(n, 10), points)
    n, points = (8, 5) if small else (256, POINTS)
    x = torch.randn(n, 3, 32, 32, device=device)
    yield _plane(f"ResNet-18, {n} images of 32", ResNet(18, 10), x, labels(n, 10), points)


def _rebasin(a: nn.Module, b: nn.Module, *, turns: int = 100) -> nn.Module:
    """Git re-basin's weight matching of an MLP: layers in random order until none gains."""
    from scipy.optimize import linear_sum_assignment

    A, B = ([p.detach().cpu() for p in m.parameters()] for m in (a, b))
    depth = len(A) // 2 - 1
    orders = [torch.arange(len(A[2 * i])) for i in range(depth)]

    def before(i: int) -> Tensor:
        return orders[i - 1] if i else torch.arange(A[0].shape[1])

    def after(i: int) -> Tensor:
        return orders[i + 1] if i + 1 < depth else torch.arange(len(A[-1]))

    for _ in range(turns):
        gained = False
        for i in torch.randperm(depth).tolist():
            S = A[2 * i] @ B[2 * i][:, before(i)].T + A[2 * i + 1][:, None] * B[2 * i + 1]
            S += A[2 * i + 2].T @ B[2 * i + 2][after(i)]
            order = torch.from_numpy(linear_sum_assignment(S.numpy(), maximize=True)[1])
            rows = torch.arange(len(order))
            gained |= bool(S[rows, order].sum() > S[rows, orders[i]].sum() + 1e-9 * len(order))
            orders[i] = order
        if not gained:
            break
    with torch.no_grad():
        other = mlp([A[0].shape[1], *(len(o) for o in orders), len(A[-1])])
        new = list(other.parameters())
        for i in range(depth + 1):
            rows = orders[i] if i < depth else torch.arange(len(A[-1]))
            new[2 * i].copy_(B[2 * i][rows][:, before(i)])
            new[2 * i + 1].copy_(B[2 * i + 1][rows])
    return other


def _trained(seed: int, width: int, x: Tensor, y: Tensor, passes: int) -> nn.Module:
    torch.manual_seed(seed)
    model = mlp([x.shape[1], *[width] * 3, 10]).to(x.device)
    steps = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(passes):
        for some in torch.randperm(len(x), device=x.device).split(128):
            steps.zero_grad()
            F.cross_entropy(model(x[some]), y[some]).backward()
            steps.step()
    return model


def _as_near(a: nn.Module, mine: nn.Module, other: nn.Module) -> None:
    """Ours ends at most 1 % farther away than the peer."""

    def distance(m: nn.Module) -> float:
        pairs = zip(a.parameters(), m.parameters(), strict=True)
        return sum(float((p.cpu() - q.cpu()).detach().square().sum()) for p, q in pairs) ** 0.5

    assert distance(mine) <= 1.01 * distance(other), (distance(mine), distance(other))


def _alignments(device: torch.device) -> Iterator[Row | Skipped]:
    data = load("digits")
    x, y = data.x.flatten(1).float().to(device), data.y.to(device)
    for width in (128, 512):
        a, b = (_trained(seed, width, x, y, 10) for seed in (0, 1))
        note = ""
        if width == 512:
            line, aligned = (mode_connectivity(a, b, x, y, path=p) for p in ("line", "aligned"))
            note = f"barrier {line.barrier:.3g} before, {aligned.barrier:.3g} after"
        yield Row(f"digits, 3 hidden layers of {width}, aligned", partial(_model, a, b, x),
                  {"git-re-basin's loop": partial(_rebasin, a, b)}, partial(_as_near, a),
                  limit=note, rounds=5)  # fmt: skip


def _model(a: nn.Module, b: nn.Module, x: Tensor) -> nn.Module:
    return align(a, b, x).model
