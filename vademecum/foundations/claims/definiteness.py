"""Definite matrices: eigenvalues, Gram matrices and Cholesky's factors."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from vademecum.arrays import rational_rank
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import definiteness, leading_minors, principal_minors

Test = Callable[[Tensor], Tensor]


def all_symmetric(d: int, size: int) -> Tensor:
    """All symmetric matrices with integer entries from -size to size."""
    rows, columns = torch.triu_indices(d, d)
    entries = torch.cartesian_prod(*[torch.arange(-size, size + 1)] * len(rows))
    entries = entries.reshape(-1, len(rows))
    A = torch.zeros(len(entries), d, d, dtype=torch.long)
    A[:, rows, columns] = entries
    A[:, columns, rows] = entries
    return A


def minors_by_hand(A: Tensor) -> Tensor:
    """The seven principal minors of 3 x 3 matrices, written out."""
    a, b, c, d, e, f = (A[..., i, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
    det = a * d * f + 2 * b * c * e - a * e * e - d * c * c - f * b * b
    return torch.stack([a, d, f, a * d - b * b, a * f - c * c, d * f - e * e, det], -1)


def sign_of_eigenvalues(A: Tensor) -> Tensor:
    """The signs of the eigenvalues, ascending; of small integer matrices they are far from 0."""
    eigenvalues = torch.linalg.eigvalsh(A.double())
    return torch.where(eigenvalues.abs() < 1e-9, 0, eigenvalues.sign()).long()


def psd_by_eigenvalues(A: Tensor) -> Tensor:
    """No negative eigenvalue."""
    return sign_of_eigenvalues(A)[..., 0] >= 0


@claim(
    by="identity",
    sources=("D-072", "D-073", "E-052", "E-053"),
    budget=0.5,
    short=r"A = A^\top:\; A \succeq 0 \iff \lambda_i \ge 0 \;\forall i,"
    r" \quad A \succ 0 \iff \lambda_i > 0 \;\forall i",
)
def psd_eigenvalues(
    accepts: Test = psd_by_eigenvalues,
    part: Callable[[Tensor], Tensor] = lambda A: (A + A.mT) / 2,
    size: int = 2,
):
    r"""Positive semidefinite means eigenvalues of at least zero.

    A symmetric $A$ is positive semidefinite, $x^\top A x \ge 0$ for all $x$, iff all its
    eigenvalues are $\ge 0$; it is positive definite, $x^\top A x > 0$ for $x \ne 0$, iff all are
    $> 0$. Symmetry is needed: of a general matrix only the symmetric part $\frac12 (A + A^\top)$
    enters $x^\top A x$.

    Checked for all symmetric $3 \times 3$ matrices with entries up to 2 in modulus, against
    principal minors written out; then for all $2 \times 2$ matrices with entries up to 3, where the
    form is non-negative iff $a, d \ge 0$ and $4 a d \ge (b + c)^2$. Eigenvalues that are not zero
    are far from it, $|\lambda| \ge 6^{-2}$, since a coefficient of the characteristic polynomial
    is.

    Knobs:
        accepts: What is called positive semidefinite, among symmetric matrices.
        part: What of a general matrix has its eigenvalues tested.
        size: The largest entry of the symmetric matrices.
    """
    A = all_symmetric(3, size)
    minors = minors_by_hand(A)
    psd = (minors >= 0).all(-1)
    yield equals("whether a matrix is called semidefinite", accepts(A), psd, size=size)
    pd = (minors[:, [0, 3, 6]] > 0).all(-1)
    yield equals("whether all eigenvalues are positive", sign_of_eigenvalues(A)[:, 0] > 0, pd)
    found = definiteness(A.double())
    yield equals("whether no negative eigenvalue is found", found.inertia[:, 1] == 0, psd)
    yield equals("whether three positive eigenvalues are found", found.inertia[:, 0] == 3, pd)
    extremes = torch.linalg.eigvalsh(A.double())[:, [0, -1]]
    ends = torch.stack([found.least, found.largest], -1)
    yield equals("extreme eigenvalues found", ends, extremes)
    vectors = torch.stack([found.low, found.high], -1)
    yield equals("lengths of the extreme eigenvectors", vectors.norm(dim=1), 1.0)
    values = ((A.double() @ vectors) * vectors).sum(1)
    yield equals("form along the extreme eigenvectors", values, extremes)
    yield at_most("form along the lowest eigenvector", values[~psd, 0], -1 / 36)
    x = torch.cartesian_prod(*[torch.arange(-1, 2)] * 3)
    yield at_least("form of a semidefinite matrix", ((x @ A[psd]) * x).sum(-1), 0)
    B = torch.cartesian_prod(*[torch.arange(-3, 4)] * 4).reshape(-1, 2, 2)
    a, b, c, d = B.flatten(1).unbind(1)
    form = (a >= 0) & (d >= 0) & (4 * a * d >= (b + c) ** 2)
    eigenvalues = torch.linalg.eigvals(part(B.double())).real.amin(-1)
    called = eigenvalues > -1e-7  # which double eigenvalues reach up to sqrt(eps)
    yield equals("whether one without symmetry is called semidefinite", called, form)


psd_eigenvalues.foil(
    r"the eigenvalues of $\begin{pmatrix} 1 & -3 \\ 0 & 1 \end{pmatrix}$ are 1 and 1",
    part=lambda A: A,
)
psd_eigenvalues.foil("entries of at least zero", accepts=lambda A: (A >= 0).all(-1).all(-1))


@claim(
    by="identity",
    sources=("D-011", "E-011"),
    budget=0.5,
    full={"draws": 100},
    short=r"v^\top X X^\top v = \|X^\top v\|^2 \ge 0",
)
def gram_psd(partner: Callable[[Tensor], Tensor] = lambda X: X, draws: int = 2):
    r"""Gram and second-moment matrices are positive semidefinite.

    For every real matrix (or vector) $X$, $X X^\top$ is symmetric positive semidefinite, because
    $v^\top X X^\top v = \|X^\top v\|^2$, and has the rank of $X$. Averages keep the property, so
    $\mathbb E[X X^\top]$ and every covariance matrix are positive semidefinite.

    Checked in integers, for shapes up to $5 \times 5$ and lower ranks; the covariance of a law with
    integer weights $w$ of sum $W$ is taken $W^2$-fold.

    Knobs:
        partner: What X is multiplied with, before it is transposed.
        draws: How many matrices are drawn of each shape.
    """
    cases = [torch.tensor([[0, 1], [-1, 0]])]
    for m, n in ((1, 1), (3, 2), (2, 4), (5, 5), (4, 1)):
        cases += [torch.randint(-2, 3, (m, n)) for _ in range(draws)]
        cases += [torch.randint(-1, 2, (m, 1)) * torch.randint(-1, 2, (1, n))]
    for X in cases:
        m, n = X.shape
        G = X @ partner(X).mT
        at = {"m": m, "n": n}
        yield equals("entries and their mirror images", G, G.mT, **at)
        v = torch.randint(-5, 6, (20, m))
        form = ((v @ G) * v).sum(1)
        yield equals("value of the form", form, (v @ X).pow(2).sum(1), **at)
        yield at_least("principal minors", principal_minors(G), 0, **at)
        positive, negative, _ = definiteness(G).inertia.tolist()
        yield equals("negative eigenvalues", negative, 0, **at)
        yield equals("positive eigenvalues", positive, rational_rank(X.tolist()), **at)
        w = torch.randint(1, 4, (n,))
        mean = (w * X).sum(1)
        covariance = w.sum() * (w * X) @ X.mT - torch.outer(mean, mean)
        below = int(definiteness(covariance).inertia[1])
        yield equals("negative eigenvalues of a covariance", below, 0, **at)


gram_psd.foil(r"$X X$: the square of a quarter turn is $-I$", partner=lambda X: X.mT)
gram_psd.foil(r"$X Y^\top$ with other columns", partner=lambda X: X.flip(-1))


def trace(A: Tensor) -> Tensor:
    """The sum of the diagonal, for a batch."""
    return A.diagonal(dim1=-2, dim2=-1).sum(-1)


def det(A: Tensor) -> Tensor:
    """The determinant, exact for integers."""
    return leading_minors(A)[..., -1]


@claim(
    by="identity",
    sources=("D-074", "D-075", "E-054", "E-055"),
    budget=0.5,
    short=r"A \succeq 0 \implies \mathrm{Tr} A \ge 0,\; \det A \ge 0",
)
def psd_trace_determinant(
    accepts: Test = lambda A: (trace(A) >= 0) & (det(A) >= 0), d: int = 2, size: int = 3
):
    r"""Trace and determinant of a positive semidefinite matrix are at least zero.

    $A \succeq 0$ implies $\mathrm{Tr} A \ge 0$, with equality only for $A = 0$, and
    $\det A \ge 0$, with equality exactly when $A$ is singular. Neither condition is sufficient:
    diag(2, -1) has positive trace, $-I_2$ positive determinant. For symmetric matrices of
    dimension 2 both together are sufficient, in dimension 3 they are not.

    Checked for all symmetric matrices of dimension 2 with entries up to 3 and of dimension 3 with
    entries up to 1, and for random Gram matrices of other sizes and ranks.

    Knobs:
        accepts: What is called positive semidefinite.
        d: The dimension of the matrices to which it is applied.
        size: Their largest entry.
    """
    A = all_symmetric(d, size)
    psd = psd_by_eigenvalues(A)
    yield equals("whether a matrix is called semidefinite", accepts(A), psd, d=d)
    for B in (A[psd], all_symmetric(3, 1)[psd_by_eigenvalues(all_symmetric(3, 1))]):
        at = {"d": B.shape[-1]}
        yield at_least("trace", trace(B), 0, **at)
        zero = (B == 0).all(-1).all(-1)
        yield equals("whether the trace vanishes", trace(B) == 0, zero, **at)
        yield at_least("determinant", det(B), 0, **at)
        singular = (sign_of_eigenvalues(B) == 0).any(-1)
        yield equals("whether the determinant vanishes", det(B) == 0, singular, **at)
    for m, n in ((1, 1), (3, 5), (4, 2), (5, 5)):
        X = torch.randint(-3, 4, (m, n))
        G, at = X @ X.mT, {"d": m, "n": n}
        squares = sum(v * v for v in X.flatten().tolist())
        yield equals("trace of $X X^\\top$", int(trace(G)), squares, **at)
        lower = int(rational_rank(X.tolist()) < m)
        yield equals("whether $X X^\\top$ is singular", int(det(G) == 0), lower, **at)
        yield at_least("determinant of $X X^\\top$", int(det(G)), 0, **at)


psd_trace_determinant.foil("the trace alone accepts diag(2, -1)", accepts=lambda A: trace(A) >= 0)
psd_trace_determinant.foil("the determinant alone accepts $-I$", accepts=lambda A: det(A) >= 0)
psd_trace_determinant.foil(
    r"both together in dimension 3: $\mathbf 1 \mathbf 1^\top - I$ has eigenvalues 2, -1, -1",
    d=3,
    size=1,
)


def exact_cholesky(A: list[list[int]]) -> list[list[Fraction]]:
    """Cholesky's algorithm in fractions, for matrices whose pivots are squares."""
    L = [[Fraction(0)] * len(A) for _ in A]
    for i, j in product(range(len(A)), repeat=2):
        if j <= i:
            rest = A[i][j] - sum(L[i][k] * L[j][k] for k in range(j))
            L[i][j] = Fraction(math.isqrt(int(rest))) if i == j else rest / L[j][j]
    return L


def symmetric_root(A: Tensor) -> Tensor:
    """The positive semidefinite square root."""
    values, vectors = torch.linalg.eigh(A)
    return vectors * values.clamp(min=0).sqrt() @ vectors.mT


@claim(
    by="identity",
    sources=("D-076", "E-056"),
    budget=0.5,
    full={"draws": 200},
    short=r"A \succeq 0 \iff A = L L^\top,\; L \text{ lower triangular},\; L_{ii} \ge 0",
)
def cholesky(
    factor: Callable[[Tensor], Tensor] = torch.linalg.cholesky,
    join: Callable[[Tensor], Tensor] = lambda L: L @ L.mT,
    draws: int = 3,
):
    r"""Cholesky's factorisation.

    Every symmetric positive semidefinite $A$ equals $L L^\top$ with $L$ lower triangular and of
    non-negative diagonal; $L$ is unique when $A \succ 0$, and then its diagonal is positive.
    Conversely $L L^\top \succeq 0$, so the algorithm breaks down on an indefinite matrix; on a
    singular one plain floating-point Cholesky needs pivoting or jitter.

    *Proof.* By induction over Schur complements. A singular $A = B B^\top$ has $L = R^\top$ from
    the QR factorisation of $B^\top$.

    Checked in fractions for integer factors, and with torch's algorithm in dimensions 1 to 4.

    Knobs:
        factor: The factorisation.
        join: How the factor is multiplied with itself.
        draws: How many matrices are drawn in each dimension.
    """
    known = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    yield equals("factor of a known product", factor(join(known)), known)
    for d in (1, 2, 4):
        for _ in range(draws):
            L = torch.randint(-3, 4, (d, d)).tril(-1) + torch.diag(torch.randint(1, 6, (d,)))
            exact = [[float(v) for v in row] for row in exact_cholesky((L @ L.mT).tolist())]
            yield equals("factor in fractions", exact, L.double(), tol=0.0, d=d)
            yield equals("factor", factor(join(L.double())), L, d=d)
            B = torch.randn(d, d)
            A = B @ B.mT + torch.eye(d)
            yield equals("product of the factor with itself", join(factor(A)), A, d=d)
            B = torch.randn(d + 1, d)
            R = torch.linalg.qr(B.mT).R
            L = (R * R.diagonal().sign()[:, None]).mT
            yield equals("product for a singular matrix", L @ L.mT, B @ B.mT, d=d)
            yield at_least("diagonal for a singular matrix", L.diagonal(), 0.0, tol=0.0, d=d)
            yield equals("entries above its diagonal", L.triu(1), 0.0, tol=0.0, d=d)
    A = all_symmetric(3, 1)  # here all pivots are integers, so that a singular one is exactly zero
    broken = torch.linalg.cholesky_ex(A.double()).info > 0
    definite = [word == "positive definite" for word in definiteness(A).verdict]
    yield equals("whether torch factorises a matrix", ~broken, definite)


cholesky.foil("the symmetric square root is not triangular", factor=symmetric_root)
cholesky.foil(r"$L^\top L$ with the same $L$", join=lambda L: L.mT @ L)
