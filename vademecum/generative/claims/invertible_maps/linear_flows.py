"""Linear flows: what the form of a matrix costs, and what it can model."""

from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.generative import LinearFlow
from vademecum.generative.claims._flow_oracles import (
    affine_map,
    mixed,
    multiply_adds,
    normal_density,
)


def eliminated(A: np.ndarray) -> tuple[np.ndarray, int]:
    """Gaussian elimination with the largest pivots: the pivots, and how many multiply-adds."""
    A, count = A.copy(), 0
    for k in range(len(A) - 1):
        best = k + int(np.abs(A[k:, k]).argmax())
        A[[k, best]] = A[[best, k]]
        rest = A[k + 1 :, k + 1 :]
        rest -= np.outer(A[k + 1 :, k] / A[k, k], A[k, k + 1 :])
        count += rest.size
    return A.diagonal(), count


def substituted(A: np.ndarray, y: np.ndarray, *, lower: bool) -> tuple[np.ndarray, int]:
    """Forward or back substitution, entry by entry, with its multiply-adds and divisions."""
    n, count = len(A), 0
    x = np.zeros(n)
    for i in range(n) if lower else range(n - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, n)
        row = A[i, known]
        x[i] = (y[i] - row @ x[known]) / A[i, i]
        count += len(row) + 1
    return x, count


@claim(
    by="identity",
    sources=("A-356", "B-495"),
    budget=0.5,
    short=r"A = QR:\ \log|\det A| = \textstyle\sum_i \log|R_{ii}|,\quad A^{-1} y = R^{-1} Q^\top y"
    r"\ \text{in}\ O(n^2)",
)
def linear_flow(diagonal: Literal["R", "A"] = "R", order: int = 2):
    r"""Linear flow and its cost.

    $F(z) = A z + b$ with invertible $A$ costs $O(n^3)$ for determinant and inverse in general.
    Parametrised as $A = Q R$ (orthogonal times triangular) the inverse is applied in $O(n^2)$ by a
    transposed product and one substitution, and $|\det A| = \prod_i |R_{ii}|$ costs $O(n)$.

    *Checked* for $n = 3, 8, 21, 50$ against LAPACK's solver, determinant and QR factors of the
    matrix read off the map, and against the density of $\mathcal N(b, A A^\top)$. `LinearFlow` has
    $Q$ as $n$ reflections at once, which is two products and a substitution: with that of $R$ one
    more point costs $3 n^2$ multiply-adds, counted as they happen; elimination with pivots takes
    $n^3 / 3$, up to lower orders, for each matrix. (That no method for general matrices is faster
    is not claimed: there are some, with smaller exponents.)

    Knobs:
        diagonal: Whose diagonal is multiplied, that of $R$ or that of $A$.
        order: The power of $n$ with which the cost of a point grows.
    """
    for n in (3, 8, 21, 50):
        flow, at = mixed(n), {"n": n}
        A, b = (v.numpy() for v in affine_map(flow))
        x = b + stats.norm.rvs(size=(6, n), random_state=int(torch.randint(10**6, ())))
        z, log_det = flow(torch.from_numpy(x))
        exact = np.linalg.slogdet(A)[1]
        yield equals("solution", z, np.linalg.solve(A, (x - b).T).T, **at)
        yield equals("log_det", log_det, -exact, **at)
        triangle = np.linalg.qr(A)[1] if diagonal == "R" else A
        found = np.log(np.abs(np.diag(triangle))).sum()
        yield equals("logarithm of the product of a diagonal", found, exact, **at)
        known = normal_density(x, b, A @ A.T)
        yield equals("log-density", flow.log_prob(torch.from_numpy(x)), known, tol=1e-8, **at)
        pivots, count = eliminated(A)
        yield equals("log-determinant by elimination", np.log(np.abs(pivots)).sum(), exact, **at)
        yield equals("its multiply-adds", count, (n - 1) * n * (2 * n - 1) // 6, **at)
        cost = multiply_adds(flow, n)
        yield equals("multiply-adds a point", cost, 3 * n**2, **at)
        growth = multiply_adds(mixed(2 * n), 2 * n) / cost
        yield equals("their growth when n doubles", growth, 2.0**order, **at)


linear_flow.foil("the diagonal of A itself", diagonal="A")
linear_flow.foil("a cubic cost for each point", order=3)


def best_gap(kind: Any, R: Tensor) -> Tensor:
    """The divergence from a centred normal law to the best flow of a kind, found by descent.

    The loss is exact: the mean over points plus and minus the columns of a root of the covariance,
    which have its moments.
    """
    d = len(R)
    root = torch.linalg.cholesky(R) * d**0.5
    x = torch.cat((root.T, -root.T))
    flow = LinearFlow(d, kind=kind)
    flow.log_scale.data.uniform_(-0.5, 0.5)
    flow.shift.data.uniform_(-1, 1)
    steps = torch.optim.LBFGS(
        flow.parameters(), max_iter=200, tolerance_grad=1e-10, tolerance_change=0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        steps.zero_grad()
        value = -flow.log_prob(x).mean()
        value.backward()
        return value

    steps.step(loss)
    law = torch.distributions.MultivariateNormal(torch.zeros(d), R)
    return loss().detach() - law.entropy()


@claim(
    by="identity",
    sources=("B-496",),
    budget=0.5,
    short=r"A = \operatorname{diag}(a):\ \operatorname{Cov}(x)_{ij} = 0\ (i \ne j),"
    r"\ \min \mathrm{KL} = -\tfrac12 \log(1 - \rho^2)",
)
def diagonal_flow(kind: Literal["diagonal", "triangular"] = "diagonal"):
    r"""Diagonal linear flow.

    With diagonal $A$ determinant and inverse cost $O(n)$, but coordinates do not interact: an
    independent base law stays independent, so no dependence between coordinates can be modelled.

    *Checked* for `LinearFlow` with random parameters: no matrix products, and off-diagonal
    entries of $A A^\top$ that are 0 exactly; the best fit to a normal law with covariance matrix
    $R$, unit variances, keeps the divergence $-\frac12 \log\det R$, found by descent on the exact
    loss; in two dimensions that is $-\frac12 \log(1 - \rho^2)$.

    Knobs:
        kind: The form of $A$; with a triangular one nothing is kept of the divergence.
    """
    for n in (2, 5):
        flow = mixed(n, kind)
        A, b = affine_map(flow)
        x = torch.randn(4, n)
        z, log_det = flow(x)
        off = ~torch.eye(n, dtype=torch.bool)
        yield equals("covariances of different coordinates", (A @ A.T)[off], 0.0, tol=0.0, n=n)
        yield equals("multiply-adds in products", multiply_adds(flow, n), 0, n=n)
        yield equals("inverse by division", z, (x - b) / A.diagonal(), n=n)
        yield equals("log_det", log_det, -A.diagonal().log().sum(), n=n)
    for rho in (0.3, -0.8):
        R = torch.tensor([[1.0, rho], [rho, 1.0]])
        gap = -0.5 * np.log(1 - rho**2)
        yield equals("divergence of the best fit", best_gap(kind, R), gap, tol=1e-7, rho=rho)
    B = torch.randn(3, 3)
    C = B @ B.T + 0.5 * torch.eye(3)
    R = C / torch.outer(C.diagonal().sqrt(), C.diagonal().sqrt())
    gap = -0.5 * torch.logdet(R)
    yield equals("divergence of the best fit", best_gap(kind, R), gap, tol=1e-7, n=3)


diagonal_flow.foil(
    "any linear flow keeps it", kind="triangular", refuted_by="divergence of the best fit"
)
diagonal_flow.foil("triangular matrices keep coordinates apart", kind="triangular")


@claim(
    by="identity",
    sources=("B-498",),
    budget=0.5,
    short=r"A\ \text{triangular}:\ \det A = \textstyle\prod_i A_{ii},"
    r"\ A^{-1} y\ \text{in}\ n(n + 1)/2\ \text{multiply-adds}",
)
def triangular_flow(order: int = 2):
    r"""Triangular linear flow is cheap to invert.

    For triangular $A$ with nonzero diagonal, $\det A = \prod_i A_{ii}$ costs $O(n)$ and applying
    $A^{-1}$ costs $O(n^2)$ by forward or back substitution, the same order as applying $A$; only
    the sequential nature of the substitution is a drawback.

    *Checked* for $n = 10, 60, 200$: a substitution written out, forward and back, takes $n (n + 1)
    / 2$ multiply-adds and divisions, as many as the nonzero entries of $A$ and so as the product
    $A z$, and agrees with LAPACK's general solver and with `LinearFlow`, which divides by the
    diagonal at the end and counts $n (n - 1) / 2$ before; when $n$ doubles the count grows by
    $4 - 2 / (n + 1)$.

    Knobs:
        order: The power of $n$ with which the cost of applying the inverse grows.
    """
    for n in (10, 60, 200):
        at = {"n": n}
        flow = mixed(n, "triangular")
        A, b = (v.numpy() for v in affine_map(flow))
        z = np.asarray(torch.randn(n))
        y = A @ z
        for name, matrix, lower in (("forward", A, True), ("back", A.T, False)):
            goal = y if lower else matrix @ z
            x, count = substituted(matrix, goal, lower=lower)
            solved = np.linalg.solve(matrix, goal)
            yield equals(f"{name} substitution", x, solved, tol=1e-8, **at)
            yield equals("its multiply-adds", count, np.count_nonzero(matrix), **at)
            twice = substituted(np.eye(2 * n), np.ones(2 * n), lower=lower)[1]
            yield equals("their growth when n doubles", twice / count, 2.0**order,
                         tol=3 / (n + 1) / (1 + 2**order), **at)  # fmt: skip
        found, log_det = flow(torch.from_numpy(y + b)[None])
        yield equals("solution by LinearFlow", found[0], z, tol=1e-8, **at)
        yield equals("its multiply-adds a point", multiply_adds(flow, n), n * (n - 1) // 2, **at)
        yield equals("log_det", log_det, -np.linalg.slogdet(A)[1], **at)
        yield equals("logarithm of the product of the diagonal", np.log(A.diagonal()).sum(),
                     np.linalg.slogdet(A)[1], **at)  # fmt: skip


GROWTH = "a ratio near 4 against 2 or 8; the tolerance is 3 / (n + 1), the next order and half"
triangular_flow.foil("a linear cost", order=1, close=GROWTH)
triangular_flow.erratum(
    "B-498",
    printed=r"If $A$ triangular: $\det(A) = \prod_i A_{ii}$, but $A^{-1}$ expensive...",
    right=r"$A^{-1} y$ by substitution in $O(n^2)$, like the product $A z$",
    why=r"The inverse matrix, which would cost $O(n^3)$, is never needed: a substitution takes as"
    r" many multiply-adds as the product $A z$ itself, and four times as many when $n$ doubles, not"
    r" eight times.",
    weight="soft",
    refuted_by="their growth when n doubles",
    close=GROWTH,
    order=3,
)
