"""The tangent kernel of a model, as a matrix, an operator and a spectrum, against the oracle.

The oracle's Jacobian has a row for each output, from a backward pass of its own.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _draw, _same
from bench.outside.oracles import Oracle
from vademecum.kernels import empirical_ntk, ntk_operator, ntk_spectrum

__all__ = ["TANGENTS"]


def _matrix(o: Oracle) -> Tensor:
    J = o.in_theta.double()
    return J @ J.T


def _kernel(s: Subject, o: Oracle) -> Iterator[str]:
    found = {
        outputs: empirical_ntk(s.model, s.x, outputs=outputs, output=s.output)
        for outputs in ("full", "diagonal", "trace", "sum")
    }
    if not o.case.separate:  # the Jacobian of a batch is not that of its examples
        return
    n = len(o.output)
    K = _matrix(o).unflatten(1, (n, -1)).unflatten(0, (n, -1)).transpose(1, 2)
    diagonal = K.diagonal(dim1=2, dim2=3)
    yield _same(o)("kernel", found["full"], K)
    yield _same(o)("diagonal of the kernel", found["diagonal"], diagonal)
    yield _same(o)("trace of the kernel", found["trace"], diagonal.sum(-1))
    yield _same(o)("sum of the kernel", found["sum"], K.sum((2, 3)))


def _operator(s: Subject, o: Oracle) -> Iterator[str]:
    v = _draw(o.output.numel(), like=o.in_theta)
    K = ntk_operator(s.model, s.x, output=s.output)
    yield _same(o)("kernel times a vector", K @ v.to(K.dtype), _matrix(o) @ v.double())


def _spectrum(s: Subject, o: Oracle) -> Iterator[str]:
    found = ntk_spectrum(s.model, s.x, output=s.output)
    if not o.case.separate:
        return
    wanted = torch.linalg.eigvalsh(_matrix(o)).flip(0).clamp(min=0)
    yield _same(o)("eigenvalues of the kernel", found.eigenvalues, wanted)


TANGENTS: dict[str, Check] = {
    "empirical_ntk": _kernel,
    "ntk_operator": _operator,
    "ntk_spectrum": _spectrum,
}
"""What asks each instrument, by its name."""
