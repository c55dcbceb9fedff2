"""The measures of `optimization` against the oracle.

The sharpness is held to its definition, a residual, by a product of the oracle's; so a wrong value
or vector is seen, and the largest eigenvalue against others is `eigsh`'s business. The trace of the
Gauss-Newton matrix comes from dense Jacobians, the noise from the gradients of single examples.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _loss, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum.optimization import critical_step, curvature_trace, gradient_noise, sharpness

__all__ = ["MEASURES"]

TOL = 1e-3


def _sharpness(s: Subject, o: Oracle) -> Iterator[str]:
    found = sharpness(s.model, s.x, s.y, tol=TOL, generator=_seeded(), **_loss(s))
    v = found.vector.to(o.gradient)
    image = o.hessian_product(v)
    gap = float((image - found.value * v).double().norm())
    allowed = 2 * TOL * max(abs(found.value), float(image.double().norm()), 1e-12)
    if gap > allowed + found.residual:  # which is relative to the largest eigenvalue in sight
        yield f"residual of the sharpness is {gap:.3g}, not {found.residual:.3g}"


def _noise(s: Subject, o: Oracle) -> Iterator[str]:
    found = gradient_noise(s.model, s.x, s.y, **_loss(s))
    rows = o.example_gradients.double()
    wanted = (rows - rows.mean(0)).square().sum() / (len(rows) - 1)
    yield _same(o)("noise of the gradients", torch.tensor(found.trace), wanted)


def _gauss_newton(s: Subject, o: Oracle) -> Iterator[str]:
    if s.whole is not ...:
        return
    given: Any = {"loss": s.loss, "output": s.output, "generator": _seeded()}
    found = curvature_trace(s.model, s.x, s.y, kind="gauss_newton", **given)
    if not found.exact:
        return
    z = o.output.clone()

    def loss(flat: Tensor) -> Tensor:
        return s.loss(flat.view_as(z), s.y).sum()

    inner = torch.func.hessian(loss)(z.flatten()).double()
    J = o.in_theta.double()
    yield _same(o)("trace", torch.tensor(found.value), (J * (inner @ J)).sum())


def _critical_step(s: Subject, o: Oracle) -> Iterator[str]:
    if not o.gradient.any():
        return
    found = critical_step(s.model, s.x, s.y, max_iter=30, **_loss(s))
    yield _same(o)("loss at the start", torch.tensor(found.loss), o.loss().double())


MEASURES: dict[str, Check] = {
    "sharpness": _sharpness, "gradient_noise": _noise, "curvature_trace": _gauss_newton,
    "critical_step": _critical_step,
}  # fmt: skip
"""What asks each measure, by its name."""
