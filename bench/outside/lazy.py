"""Linearised models, the motion of their kernels and the curvature of outputs, against the oracle.

The oracle's Jacobian has a row for each output, from a backward pass of its own; its Hessian of one
output is a backward pass through such a pass, whose largest eigenvalue SciPy finds.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.outside.cases import Subject, call, one_of
from bench.outside.derivatives import Check, _draw, _same
from bench.outside.oracles import Oracle
from vademecum.kernels import LinearizedNetwork, lazy_ratio, ntk_drift

__all__ = ["LAZY"]

TOL = 1e-3  # residuals of eigenvalues, relative to these


def _linearised(s: Subject, o: Oracle) -> Iterator[str]:
    h = LinearizedNetwork(s.model, frozen=True, output=s.output)
    v = 0.1 * _draw(sum(o.sizes), like=o.in_theta)
    with torch.no_grad():
        for p, part in zip(h.parameters(), v.split(o.sizes), strict=True):
            p.copy_(part.view_as(p))
    z = call(h, s.x)
    wanted = o.output.double() + (o.in_theta.double() @ v.double()).view_as(o.output)
    yield _same(o)("output of the linearised model", z.detach(), wanted)
    grads = torch.autograd.grad(z.sum(), list(h.parameters()), materialize_grads=True)
    flat = torch.cat([g.flatten().to(o.in_theta) for g in grads])
    yield _same(o, parts=True)("its gradient", flat, o.in_theta.sum(0))


def _drift(s: Subject, o: Oracle) -> Iterator[str]:
    J = o.in_theta.double()
    n = len(o.output)
    K = (J @ J.T).unflatten(1, (n, -1)).unflatten(0, (n, -1)).transpose(1, 2)
    found = ntk_drift(s.model, s.x, K / 2, output=s.output)
    if o.case.separate:
        wanted = torch.tensor([1.0, 0.5 * float(K.norm()), 1.0]).double()
        yield _same(o)("drift from half the kernel", torch.tensor(found).double(), wanted)


def _ratio(s: Subject, o: Oracle) -> Iterator[str]:
    def first(result: Any) -> Tensor:
        z = s.read(result)
        return z.flatten(1)[:, :1] if z.ndim > 1 else z

    x = one_of(s.x, 0) if o.case.separate else s.x  # the nodes of a graph cannot be told apart
    found = lazy_ratio(s.model, x, output=first, tol=TOL, generator=_seeded())
    if not o.case.separate or o.case.differences:
        return
    with sdpa_kernel(SDPBackend.MATH):
        value = o.output_of(one_of(s.x, 0)).flatten()[0]
        slopes = torch.autograd.grad(value, o.theta, create_graph=True, materialize_grads=True)
    length = torch.stack([g.detach().double().norm() for g in slopes]).norm()
    yield _same(o)("norm of the gradient", found.gradient_norm.flatten()[0].cpu(), length.cpu())
    norm = _largest(o, slopes)
    rounding = 100 * torch.finfo(o.case.coarse).eps * (1 + float(length))
    if abs(float(found.hessian_norm.flatten()[0]) - norm) > 3 * TOL * norm + rounding:
        yield f"norm of the Hessian is {found.hessian_norm.flatten().tolist()}, not {norm:.6g}"


def _largest(o: Oracle, slopes: tuple[Tensor, ...]) -> float:
    """The largest eigenvalue of a Hessian in magnitude."""
    moving = [(g, i) for i, g in enumerate(slopes) if g.requires_grad]

    def product(v: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(v.astype(np.float64)).flatten().split(o.sizes)
        found = torch.autograd.grad(
            [g for g, _ in moving],
            o.theta,
            [parts[i].view_as(g).to(g) for g, i in moving],
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([t.detach().double().cpu().flatten() for t in found]).numpy()

    P, linalg = sum(o.sizes), scipy.sparse.linalg
    start = np.random.default_rng(0).standard_normal(P)
    if not moving or not product(start).any():
        return 0.0
    H: Any = linalg.LinearOperator((P, P), product, dtype="float64")
    if P < 10:
        return float(np.abs(np.linalg.eigvalsh(H @ np.eye(P))).max())
    return abs(float(linalg.eigsh(H, 1, which="LM", tol=TOL / 10, v0=start)[0][0]))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


LAZY: dict[str, Check] = {
    "LinearizedNetwork": _linearised,
    "ntk_drift": _drift,
    "lazy_ratio": _ratio,
}
"""What asks each instrument, by its name."""
