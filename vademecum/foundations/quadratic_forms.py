r"""The definiteness of symmetric matrices, with vectors that show it.

The sign of the Rayleigh quotient $q(x) = \frac{x^\top A x}{x^\top x}$ over all $x \ne 0$ decides
what a symmetric (complex: Hermitian) matrix $A$ is. Its extremes are the least and the largest
eigenvalue, attained at eigenvectors, so that the numbers of positive, negative and zero
eigenvalues, the *inertia*, tell the six cases apart:

| positive | negative | zero | verdict |
|---|---|---|---|
| all | none | none | positive definite |
| some | none | some | positive semidefinite |
| none | all | none | negative definite |
| none | some | some | negative semidefinite |
| none | none | all | zero |
| some | some | any | indefinite |

In floating point a quotient of at most $d \, \varepsilon \max |q|$ counts as zero, with
$\varepsilon$ the precision of the dtype: no more can be known of an eigenvalue after rounding.
For integers the inertia is exact: all roots of $\det(\lambda I - A)$ are real, so Descartes' rule
gives the number of positive ones as the changes of sign among the coefficients, and the number of
zero ones is that of the coefficients which vanish at the end. The claims are `psd_eigenvalues` and
`definiteness_trichotomy`.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from vademecum.arguments import number, symmetric
from vademecum.foundations.minors import characteristic, is_whole
from vademecum.results import one_line

__all__ = ["Definiteness", "definiteness"]

_WORDS = (
    *("", "zero", "negative definite", "negative semidefinite"),
    *("positive definite", "positive semidefinite", "indefinite", "indefinite"),
)


class Definiteness(NamedTuple):
    """What a symmetric matrix is, and two vectors to check it with; for a batch, of each.

    Example:
        >>> definiteness(torch.diag(torch.tensor([2, 0]))).inertia
        tensor([1, 0, 1])
    """

    verdict: Any
    """One of the six words; for a batch a list of them, nested as the batch is."""
    inertia: Tensor
    """The numbers of positive, negative and zero eigenvalues, in the last axis."""
    low: Tensor
    """The unit vector with the least Rayleigh quotient."""
    high: Tensor
    """The unit vector with the largest."""
    least: Tensor
    """The quotient at `low`, evaluated there."""
    largest: Tensor
    """The quotient at `high`."""
    tol: Tensor
    """How large a quotient counts as zero; 0 for integers."""

    __repr__ = one_line


def definiteness(A: Num[Tensor, " *batch d d"], *, tol: float | None = None) -> Definiteness:
    r"""Tell whether symmetric matrices are definite, semidefinite, indefinite or zero.

    An indefinite matrix comes with one vector of negative and one of positive quotient; a
    semidefinite one with a vector that it (all but) annihilates.

    Args:
        A: Symmetric matrices, alone or along leading axes. Integers are judged exactly; fractions
            become integers when multiplied by their denominators.
        tol: How large a Rayleigh quotient counts as zero; by default $d \varepsilon \max |q|$, and
            0 for integers.

    Returns:
        The verdict, the inertia, the two extreme vectors with their quotients, and the tolerance.
        A quotient is only known up to rounding, also where integers make the verdict exact; it
        carries its first derivative $x x^\top$, the vectors carry none.

    Raises:
        ValueError: If a matrix is not symmetric: then $x^\top A x$ sees $(A + A^\top) / 2$ alone,
            and the eigenvalues of `A` say nothing of it.

    References:
        Sylvester, A demonstration of the theorem that every homogeneous quadratic polynomial is
        reducible by real orthogonal substitutions to the form of a sum of positive and negative
        squares, Philosophical Magazine, 1852.

    Example:
        >>> A = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
        >>> found = definiteness(A)
        >>> found.verdict, found.inertia
        ('indefinite', tensor([1, 1, 0]))
        >>> [round(float(x @ A @ x / (x @ x)), 4) for x in (found.low, found.high)]
        [-1.0, 3.0]
    """
    exact = is_whole(A) and tol is None
    form = symmetric("A", A.double() if is_whole(A) else A)
    if exact and (A.mT != A).any():  # by less than the rounding of a double
        raise ValueError("A must be symmetric, got integers that differ from their mirror images")
    form = form / 2 + form.mH / 2
    vectors = torch.linalg.eigh(form.detach()).eigenvectors
    q = (vectors.conj() * (form @ vectors)).real.sum(-2)
    scale = 0.0 if exact else q.shape[-1] * torch.finfo(q.dtype).eps
    limit = scale * q.abs().amax(-1)
    if tol is not None:
        limit = torch.full_like(limit, number("tol", tol, low=0.0))
    inertia = _exact_inertia(A) if exact else _inertia(q, limit)
    code = ((inertia > 0) * torch.tensor([4, 2, 1], device=A.device)).sum(-1)
    verdict = np.array(_WORDS)[code.cpu().numpy()].tolist()
    low, high = vectors[..., 0], vectors[..., -1]
    return Definiteness(verdict, inertia, low, high, q[..., 0], q[..., -1], limit)


def _inertia(q: Tensor, limit: Tensor) -> Tensor:
    positive, negative = (q > limit[..., None]).sum(-1), (q < -limit[..., None]).sum(-1)
    return torch.stack([positive, negative, q.shape[-1] - positive - negative], -1)


def _exact_inertia(A: Tensor) -> Tensor:
    *_, p = characteristic(A)
    zero = (p != 0).flip(-1).long().argmax(-1)  # the first from the end that does not vanish
    positive, last = torch.zeros_like(zero), torch.ones_like(zero)
    for sign in p.sign().unbind(-1):
        positive += sign * last < 0
        last = torch.where(sign == 0, last, sign)
    return torch.stack([positive, A.shape[-1] - positive - zero, zero], -1)
