"""The instruments of `generalization` that look at the loss around a model, against the oracle.

Largest and smallest eigenvalues come from ARPACK with products of the oracle's, in units of
filters and entries that are measured by hand; losses on a plane from a twin whose parameters are
moved there.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _loss, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum.generalization import classify_critical_point, loss_plane, sharpness_measures

__all__ = ["LANDSCAPES"]

TOL = 1e-3


def _end(o: Oracle, units: Tensor, which: str) -> float:
    """The largest or smallest eigenvalue of the Hessian for steps in some units."""
    s = units.double().cpu()
    P = len(s)

    def product(v: np.ndarray) -> np.ndarray:
        moved = (s * torch.from_numpy(v.astype(np.float64)).flatten()).to(o.gradient)
        return (s * o.hessian_product(moved).double().cpu()).numpy()

    linalg: Any = scipy.sparse.linalg
    H = linalg.LinearOperator((P, P), product, dtype="float64")
    start = np.random.default_rng(0).standard_normal(P)
    if not product(start).any():  # ARPACK cannot start; the Hessian is zero in these units
        return 0.0
    return float(linalg.eigsh(H, 1, which=which, tol=TOL / 10, v0=start)[0][0])


def _filters(p: Tensor) -> Tensor:
    """The norm of the row that each entry is in; of all entries, where there is one axis."""
    rows = p.detach().double().reshape(len(p) if p.ndim > 1 else 1, -1)
    return rows.norm(dim=1, keepdim=True).expand_as(rows).flatten()


def _sharpness(s: Subject, o: Oracle) -> Iterator[str]:
    found = sharpness_measures(s.model, s.x, s.y, tol=TOL, generator=_seeded(), **_loss(s))
    theta = torch.cat([p.detach().double().flatten() for p in o.theta])
    units = torch.ones_like(theta), torch.cat([_filters(p) for p in o.theta]), theta.abs()
    for i, each in enumerate(units):
        value, wanted = found[i], _end(o, each, "LA")
        allowed = float(found.residuals[i]) + 3 * TOL * abs(wanted) + _rounding(o)
        if abs(value - wanted) > allowed:
            yield f"{found._fields[i]} is {value:.6g}, not {wanted:.6g}"


def _rounding(o: Oracle) -> float:
    """What eigenvalues of a Hessian that is nearly zero may be off by."""
    return 100 * torch.finfo(o.case.coarse).eps * (1 + float(o.loss().detach()))


def _critical(s: Subject, o: Oracle) -> Iterator[str]:
    found = classify_critical_point(s.model, s.x, s.y, generator=_seeded(), **_loss(s))
    norm = o.gradient.double().norm()
    yield _same(o)("norm of the gradient", torch.tensor(found.gradient_norm), norm.cpu())
    ones = torch.ones_like(o.gradient)
    for value, which in ((found.largest, "LA"), (found.smallest, "SA")):
        wanted = _end(o, ones, which)
        if abs(value - wanted) > found.residual + 3 * TOL * abs(wanted) + _rounding(o):
            yield f"the eigenvalue {which} is {value:.6g}, not {wanted:.6g}"
    if float(norm) > 1e-3 and found.kind != "not critical":
        yield f"a gradient of norm {float(norm):.3g} is called {found.kind}"


def _plane(s: Subject, o: Oracle) -> Iterator[str]:
    found = loss_plane(
        s.model, s.x, s.y, points=3, extent=0.5, applications=4, generator=_seeded(), **_loss(s)
    )
    losses = [
        [_loss_at(o, a * found.directions[0] + b * found.directions[1]) for b in (-0.5, 0, 0.5)]
        for a in (-0.5, 0, 0.5)
    ]
    yield _same(o)("losses", found.losses.cpu(), torch.tensor(losses, dtype=torch.float64))
    for row in found.directions:
        for part, p in zip(row.split(o.sizes), o.theta, strict=True):
            yield _same(o)("lengths of filters", _filters(part.view_as(p)), _filters(p))
    Q = torch.linalg.qr(found.directions.T.double()).Q.to(o.gradient)
    wanted = Q.T @ torch.stack([o.hessian_product(q) for q in Q.T], 1)
    gap = torch.linalg.eigvalsh(found.curvature.double()) - torch.linalg.eigvalsh(wanted.double())
    if float(gap.abs().max()) > TOL * float(wanted.double().norm()) + _rounding(o):
        yield f"curvature on the plane is {found.curvature.tolist()}, not {wanted.tolist()}"


def _loss_at(o: Oracle, step: Tensor) -> float:
    """The loss of the twin, moved and put back, where graphs that it keeps do not notice."""
    start = [p.detach().clone() for p in o.theta]
    for p, part in zip(o.theta, step.split(o.sizes), strict=True):
        p.data.add_(part.detach().view_as(p).to(p))
    value = float(o.loss().detach())
    for p, old in zip(o.theta, start, strict=True):
        p.data.copy_(old)
    return value


LANDSCAPES: dict[str, Check] = {
    "sharpness_measures": _sharpness, "classify_critical_point": _critical, "loss_plane": _plane,
}  # fmt: skip
"""What asks each instrument, by its name."""
