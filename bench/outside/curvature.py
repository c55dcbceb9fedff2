"""The operators of curvature in `optimization`, against the oracle."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.outside.answers import complaint
from bench.outside.cases import Subject
from bench.outside.oracles import Oracle
from vademecum.optimization import gauss_newton, gradient_covariance

__all__ = ["CURVATURE"]


def _block(o: Oracle) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(sum(o.sizes), 2, generator=generator, dtype=torch.float64).to(o.gradient)


def _gauss_newton(s: Subject, o: Oracle) -> Iterator[str]:
    J, V = o.in_theta, _block(o)
    H: Any = torch.autograd.functional.hessian(lambda z: s.loss(z, s.y).sum(), o.output)
    H = H.view(len(J), len(J)).to(J)
    G = gauss_newton(s.model, s.x, s.y, loss=s.loss, output=s.output)
    yield from _compared(o, "Gauss-Newton product", G @ V.to(G.dtype), J.T @ (H @ (J @ V.to(J))))


def _covariance(s: Subject, o: Oracle) -> Iterator[str]:
    g, V = o.example_gradients, _block(o)
    off = g - g.mean(0)
    C = gradient_covariance(s.model, s.x, s.y, loss=s.loss, output=s.output)
    wanted = off.T @ (off @ V.to(off)) / len(off)
    yield from _compared(o, "product with the covariance", C @ V.to(C.dtype), wanted)


def _compared(o: Oracle, name: str, found: Tensor, wanted: Tensor) -> Iterator[str]:
    same = partial(complaint, coarse=o.case.coarse, sizes=o.sizes)
    for one, other in zip(found.T, wanted.T, strict=True):
        yield same(name, one, other)


CURVATURE = {"gauss_newton": _gauss_newton, "gradient_covariance": _covariance}
"""What asks each instrument, by its name."""
