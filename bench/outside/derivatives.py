"""The instruments of `gradients`, and those of `foundations` on Hessians, against the oracle.

Each is a generator function of a subject and its oracle: it asks, and yields what is wrong with the
answers, or nothing.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import scipy.sparse.linalg
import torch
from torch import Tensor, nn

from bench.outside.answers import complaint
from bench.outside.cases import Subject
from bench.outside.oracles import Oracle
from vademecum.foundations import LinearOperator, eigsh, spectral_density
from vademecum.foundations import trace as trace_of
from vademecum.gradients import (
    Tape,
    backprop,
    functional,
    gradient,
    gradient_norms,
    hessian,
    hvp,
    jacobian,
    jvp,
    per_example_gradients,
    vjp,
)

__all__ = ["DERIVATIVES", "Check"]

Check = Callable[[Subject, Oracle], Iterator[str]]


def _same(o: Oracle, *, parts: bool = False) -> Callable[[str, Tensor, Tensor], str]:
    return partial(complaint, coarse=o.case.coarse, sizes=o.sizes if parts else ())


def _draw(*shape: int, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(like.dtype)


def _loss(s: Subject) -> dict[str, Any]:
    return {"loss": s.loss, "output": s.output if s.whole is ... else s.whole}


def _functional(s: Subject, o: Oracle) -> Iterator[str]:
    f = functional(s.model, output=s.output)
    flat = torch.cat([p.detach().flatten().to(f.dtype) for p in o.theta]) if o.theta else f.theta
    yield _same(o)("theta", f.theta, flat)
    yield _same(o)("output", f(f.theta, s.x), o.output)


def _gradient(s: Subject, o: Oracle) -> Iterator[str]:
    yield _same(o, parts=True)("gradient", gradient(s.model, s.x, s.y, **_loss(s)), o.gradient)


def _per_example(s: Subject, o: Oracle) -> Iterator[str]:
    found = per_example_gradients(s.model, s.x, s.y, **_loss(s))
    yield _same(o, parts=True)("gradients of examples", found, o.example_gradients)


def _norms(s: Subject, o: Oracle) -> Iterator[str]:
    found = gradient_norms(s.model, s.x, s.y, **_loss(s))
    for i, norm in enumerate(o.example_gradients.double().norm(dim=1)):
        yield _same(o)(f"norm of example {i}", found[i], norm)


def _in_theta(s: Subject, o: Oracle) -> Iterator[str]:
    yield from _operator(jacobian(s.model, s.x, output=s.output), o.in_theta, o, parts=True)


def _in_x(s: Subject, o: Oracle) -> Iterator[str]:
    wrt: Any = s.wrt
    yield from _operator(jacobian(s.model, s.x, wrt=wrt, output=s.output), o.in_x, o, parts=False)


def _operator(J: Any, wanted: Tensor, o: Oracle, *, parts: bool) -> Iterator[str]:
    same = _same(o)
    yield same("output", J.output, o.output)
    yield _same(o, parts=parts)("dense Jacobian", J.dense(), wanted)
    v, u = _draw(wanted.shape[1], like=wanted), _draw(len(wanted), like=wanted)
    yield same("J v", J @ v.to(J.dtype), wanted @ v)
    yield _same(o, parts=parts)("J^T u", J.T @ u.to(J.dtype), wanted.T @ u)
    if o.case.separate:
        n = len(o.output)
        blocks = wanted.view(n, len(wanted) // n, -1)
        if not parts:
            blocks = torch.stack([b.view(len(b), n, -1)[:, i] for i, b in enumerate(blocks)])
        yield _same(o, parts=parts)("blocks of the Jacobian", J.blocks(), blocks)


def _jvp(s: Subject, o: Oracle) -> Iterator[str]:
    v = _draw(sum(o.sizes), like=o.in_theta)
    wanted = (o.in_theta @ v).view_as(o.output)
    yield _same(o)("J v in theta", jvp(s.model, s.x, v.to(_dtype(s)), output=s.output), wanted)
    if s.wrt:
        wrt: Any = s.wrt
        x = s.x if isinstance(s.x, Tensor) else s.x[s.wrt]
        v = _draw(*x.shape, like=x)
        wanted = (o.in_x @ v.flatten()).view_as(o.output)
        yield _same(o)("J v in x", jvp(s.model, s.x, v, wrt=wrt, output=s.output), wanted)


def _vjp(s: Subject, o: Oracle) -> Iterator[str]:
    u = _draw(*o.output.shape, like=o.output)
    wanted = o.in_theta.T @ u.flatten().to(o.in_theta)
    yield _same(o, parts=True)("J^T u in theta", vjp(s.model, s.x, u, output=s.output), wanted)
    if s.wrt:
        wrt: Any = s.wrt
        x = s.x if isinstance(s.x, Tensor) else s.x[s.wrt]
        wanted = (o.in_x.T @ u.flatten().to(o.in_x)).view_as(x)
        yield _same(o)("J^T u in x", vjp(s.model, s.x, u, wrt=wrt, output=s.output), wanted)


def _dtype(s: Subject) -> torch.dtype:
    return functional(s.model).dtype


def _hessian(s: Subject, o: Oracle) -> Iterator[str]:
    H = hessian(s.model, s.x, s.y, **_loss(s))
    u, v = _draw(2, sum(o.sizes), like=o.gradient)
    for each in (u, v):
        found = H @ each.to(H.dtype)
        yield _same(o, parts=True)("product with the Hessian", found, o.hessian_product(each))


def _hvp(s: Subject, o: Oracle) -> Iterator[str]:
    v = _draw(sum(o.sizes), like=o.gradient)
    found = hvp(s.model, s.x, s.y, v.to(_dtype(s)), **_loss(s))
    yield _same(o, parts=True)("product with the Hessian", found, o.hessian_product(v))


def _eigsh(s: Subject, o: Oracle) -> Iterator[str]:
    H = hessian(s.model, s.x, s.y, **_loss(s))
    found = eigsh(H, 1, generator=_seeded(), symmetry_tol=_asymmetry(o))
    P, start = sum(o.sizes), _draw(sum(o.sizes), like=o.gradient)

    def product(v: Any) -> Any:
        return o.hessian_product(torch.as_tensor(v).to(o.gradient)).double().numpy()

    linalg: Any = scipy.sparse.linalg
    operator = linalg.LinearOperator((P, P), product, dtype="float64")
    wanted = linalg.eigsh(operator, 1, which="LA", v0=start, tol=1e-9)[0]
    yield _same(o)("largest eigenvalue", found.values, torch.as_tensor(wanted.copy()))


def _asymmetry(o: Oracle) -> float | None:
    """What a Hessian may lack in symmetry: the rounding of a model that computes in less."""
    return None if o.case.coarse == torch.float64 else torch.finfo(o.case.coarse).eps ** 0.5


def _trace(s: Subject, o: Oracle) -> Iterator[str]:
    H = hessian(s.model, s.x, s.y, **_loss(s))
    both = (trace_of(each, applications=8, generator=_seeded()) for each in (H, _twin(o, H)))
    # Probes may cancel: their spread is the size that rounding goes with.
    found, wanted = (torch.stack([each.value, each.standard_error]) for each in both)
    yield _same(o)("trace and its spread", found, wanted)


def _density(s: Subject, o: Oracle) -> Iterator[str]:
    H = hessian(s.model, s.x, s.y, **_loss(s))
    found, wanted = (
        spectral_density(each, probes=2, steps=4, generator=_seeded(), symmetry_tol=_asymmetry(o))
        for each in (H, _twin(o, H))
    )
    scale = wanted.nodes.abs().max()
    for k in (1, 2, 3):  # not the nodes: one without weight may be anywhere
        moment, due = (
            (each.weights * (each.nodes + scale) ** k).sum(1) for each in (found, wanted)
        )
        yield _same(o)(f"moment {k} of the density", moment, due)


def _twin(o: Oracle, H: LinearOperator) -> LinearOperator:
    """The oracle's Hessian as an operator, to be asked with the same random vectors."""

    def products(block: Tensor) -> Tensor:
        columns = [o.hessian_product(v.to(o.gradient)) for v in block.T]
        return torch.stack(columns, 1).to(block)

    return LinearOperator(H.shape, products, products, dtype=H.dtype)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def _backprop(s: Subject, o: Oracle) -> Iterator[str]:
    flags = [(module, module.training) for module in s.model.modules()]
    try:
        found = backprop(nn.Sequential(s.model.eval()), s.x, s.y, loss=s.loss)
    finally:
        for module, training in flags:
            module.training = training
    yield _same(o)("loss", found.loss, o.loss())
    by_name = {name.replace("_orig_mod.", ""): g for name, g in found.gradients.items()}
    flat = torch.cat([by_name[f"0.{name}"].flatten() for name, _ in o.model.named_parameters()])
    yield _same(o, parts=True)("gradients", flat, o.gradient)
    z = o.output.clone().requires_grad_()
    (error,) = torch.autograd.grad(s.loss(z, s.y), z)
    wanted = (error.flatten() @ o.in_x).view_as(s.x)
    assert found.input_error is not None
    yield _same(o)("error at the input", found.input_error, wanted)


def _tape(s: Subject, o: Oracle) -> Iterator[str]:
    flags = [(module, module.training) for module in s.model.modules()]
    try:
        tape = Tape(lambda x: s.read(s.model.eval()(x)), s.x)
    finally:
        for module, training in flags:
            module.training = training
    u = _draw(*o.output.shape, like=o.output)
    found = tape.pull(u)
    yield _same(o)("output", found.output, o.output)
    wanted = (u.flatten() @ o.in_x).view_as(s.x)
    yield _same(o)("adjoint of the input", found.gradients[0], wanted)


DERIVATIVES: dict[str, Check] = {
    "functional": _functional, "gradient": _gradient, "per_example_gradients": _per_example,
    "gradient_norms": _norms, "jacobian_theta": _in_theta, "jacobian_x": _in_x, "jvp": _jvp,
    "vjp": _vjp, "hessian": _hessian, "hvp": _hvp, "eigsh": _eigsh, "trace": _trace,
    "spectral_density": _density, "backprop": _backprop, "tape": _tape,
}  # fmt: skip
"""What asks each instrument, by its name."""
