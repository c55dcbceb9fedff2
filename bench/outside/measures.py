"""The measures of `optimization` and `regularization` against the oracle.

The sharpness is held to its definition, a residual, by a product of the oracle's; so a wrong value
or vector is seen, and the largest eigenvalue against others is `eigsh`'s business. The trace of the
Gauss-Newton matrix comes from dense Jacobians, the noise from the gradients of single examples, and
the directions that a decay leaves alive from all singular values.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _loss, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum.optimization import critical_step, curvature_trace, gradient_noise, sharpness
from vademecum.regularization import weight_decay_effect

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
    inner, J = _in_outputs(s, o), o.in_theta.double()
    yield _same(o)("trace", torch.tensor(found.value), (J * (inner @ J)).sum())


def _in_outputs(s: Subject, o: Oracle) -> Tensor:
    """The Hessian of the loss in the outputs."""
    z = o.output.clone()

    def loss(flat: Tensor) -> Tensor:
        return s.loss(flat.view_as(z), s.y).sum()

    return torch.func.hessian(loss)(z.flatten()).double()


def _decay(s: Subject, o: Oracle) -> Iterator[str]:
    if s.whole is not ...:
        return
    w, U = torch.linalg.eigh(_in_outputs(s, o))
    lam = torch.linalg.svdvals((U * w.clamp(min=0).sqrt()).T @ o.in_theta.double()).square()
    decay = max(float(lam.max()) / 30, 1e-6)
    given: Any = {"loss": s.loss, "output": s.output, "generator": _seeded()}
    found = weight_decay_effect(s.model, s.x, s.y, decay=decay, **given)
    wanted = (lam / (lam + decay)).sum()
    if found.exact:
        yield _same(o)("directions alive", torch.tensor(found.alive), wanted)
    elif abs(found.alive - wanted) > 8 * found.standard_error + found.quadrature_error:
        yield f"directions alive are {float(wanted):.3g}, not {found}"


def _critical_step(s: Subject, o: Oracle) -> Iterator[str]:
    if not o.gradient.any():
        return
    found = critical_step(s.model, s.x, s.y, max_iter=30, **_loss(s))
    yield _same(o)("loss at the start", torch.tensor(found.loss), o.loss().double())


MEASURES: dict[str, Check] = {
    "sharpness": _sharpness, "gradient_noise": _noise, "curvature_trace": _gauss_newton,
    "critical_step": _critical_step, "weight_decay_effect": _decay,
}  # fmt: skip
"""What asks each measure, by its name."""
