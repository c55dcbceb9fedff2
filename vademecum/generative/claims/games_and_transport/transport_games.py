"""The Wasserstein distance: transport, its dual, and a game where supports are apart."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import wasserstein_1 as transport


def program(x: np.ndarray, y: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """The least cost over all couplings, by a linear program over their entries."""
    rows = np.kron(np.eye(len(p)), np.ones((1, len(q))))
    columns = np.kron(np.ones((1, len(p))), np.eye(len(q)))
    equations = np.vstack([rows, columns])[:-1]  # the last follows from the others
    wanted = np.concatenate([p, q])[:-1]
    return float(linprog(cdist(x, y).ravel(), A_eq=equations, b_eq=wanted).fun)


def dual(x: np.ndarray, weights: np.ndarray, K: float, *, bounded: bool = False) -> float:
    """The largest sum of weights times values of a K-Lipschitz function, or one within K."""
    n = len(x)
    i, j = (k[~np.eye(n, dtype=bool)] for k in np.indices((n, n)))
    constraints = np.zeros((len(i), n))
    constraints[np.arange(len(i)), i], constraints[np.arange(len(i)), j] = 1, -1
    limits = K * cdist(x, x)[i, j]
    if bounded:
        return -float(linprog(-weights, bounds=(-K, K)).fun)
    free = [(0, 0), *[(None, None)] * (n - 1)]  # a constant does not count
    return -float(linprog(-weights, A_ub=constraints, b_ub=limits, bounds=free).fun)


def line_law(k: int) -> tuple[Tensor, Tensor]:
    """Random atoms on a line with random probabilities."""
    weights = torch.rand(k) + 0.05
    return 3 * torch.randn(k), weights / weights.sum()


def best(x: Tensor, y: Tensor, **weights: Tensor) -> float:
    """The distance that the library finds."""
    return float(transport(x, y, **weights).distance)


def independent(x: Tensor, y: Tensor, **weights: Tensor) -> float:
    """The cost of the coupling that knows nothing of the other law."""
    p = weights.get("x_weights", torch.full((len(x),), 1 / len(x)))
    q = weights.get("y_weights", torch.full((len(y),), 1 / len(y)))
    a, b = (t.reshape(len(t), -1) for t in (x, y))
    return float(p @ torch.cdist(a, b) @ q)


def squared(x: Tensor, y: Tensor, **weights: Tensor) -> float:
    """The root of the mean square along the same plan."""
    found = transport(x, y, **weights)
    moved = (x[found.rows] - y[found.columns]).reshape(len(found.rows), -1)
    return math.sqrt(float(found.mass @ moved.square().sum(1)))


@claim(
    by="identity",
    sources=("A-369",),
    short=r"W_1(p, q) = \inf_{\gamma \in \Pi(p, q)} \mathbb E_\gamma \|x"
    r" - y\|,\quad \text{on the line } \int |F_p - F_q|",
)
def wasserstein_1(cost: Callable[..., float] = best, triples: int = 40):
    r"""Wasserstein-1 distance.

    $W_1(p, q) = \inf_{\gamma \in \Pi(p, q)} \mathbb E_{(x, y) \sim \gamma} \|x - y\|$ over
    couplings with marginals $p, q$; on the line it equals $\int |F_p - F_q|\, dx$. It is a metric:
    zero for equal laws, symmetric, with a triangle inequality; a shift by $a$ costs $|a|$.

    Checked for `wasserstein_1` against linear programs over all couplings, the integral and SciPy's
    own, on weighted atoms of a line and on samples of different sizes in the plane; its plan has
    the marginals. The program's own tolerance is $10^{-7}$.

    Knobs:
        cost: What is said to be the distance.
        triples: How many triples of laws the triangle inequality is tried on.
    """
    for n, m in ((8, 5), (6, 6)):
        (x, p), (y, q) = line_law(n), line_law(m)
        found = cost(x, y, x_weights=p, y_weights=q)
        a, b, v, w = (t.numpy() for t in (x, y, p, q))
        yield equals("distance, and the program", found, program(a[:, None], b[:, None], v, w),
                     tol=1e-7, n=n, m=m)  # fmt: skip
        yield equals("distance, and SciPy's", found, wasserstein_distance(a, b, v, w), tol=1e-12)
        yield equals("distance, and the integral", found, area(a, b, v, w), tol=1e-12, n=n, m=m)
        plan = torch.zeros(n, m)
        kept = transport(x, y, x_weights=p, y_weights=q)
        plan.index_put_((kept.rows, kept.columns), kept.mass, accumulate=True)
        yield equals("marginals of the plan", torch.cat([plan.sum(1), plan.sum(0)]),
                     torch.cat([p, q]), tol=1e-12, n=n, m=m)  # fmt: skip
        yield equals("distance of a law from itself", cost(x, x), 0.0, tol=1e-12, n=n)
    for n, m in ((4, 6), (5, 5)):
        x, y = torch.randn(n, 2), torch.randn(m, 2)
        wanted = program(x.numpy(), y.numpy(), np.full(n, 1 / n), np.full(m, 1 / m))
        yield equals("distance in the plane", cost(x, y), wanted, tol=1e-7, n=n, m=m)
        a = torch.randn(2)
        yield equals("cost of a shift", cost(x, x + a), a.norm(), tol=1e-12, d=2)
    yield from metric(cost, triples)


def metric(cost: Callable[..., float], triples: int):
    """Symmetry and the triangle inequality, on random laws."""
    gaps, turns = [], []
    for _ in range(triples):
        laws = [line_law(k) for k in (3, 4, 5)]
        (a, b, c) = (
            cost(laws[i][0], laws[j][0], x_weights=laws[i][1], y_weights=laws[j][1])
            for i, j in ((0, 1), (1, 2), (0, 2))
        )
        back = cost(laws[1][0], laws[0][0], x_weights=laws[1][1], y_weights=laws[0][1])
        gaps.append(c - a - b)
        turns.append(back - a)
    yield at_most("distance less the way around", gaps, 0.0, tol=1e-12)
    yield equals("distance less that back", turns, 0.0, tol=1e-12)


def area(x: np.ndarray, y: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """The integral of the distance between distribution functions, cell by cell."""
    ends = np.sort(np.concatenate([x, y]))
    left = ends[:-1, None]
    gap = np.abs((p * (x <= left)).sum(1) - (q * (y <= left)).sum(1))
    return float((np.diff(ends) * gap).sum())


wasserstein_1.foil(
    "the independent coupling", refuted_by="distance of a law from itself", cost=independent
)
wasserstein_1.foil("mean squares of the moves", refuted_by="distance, and SciPy's", cost=squared)


@claim(
    by="identity",
    sources=("A-370", "C-317"),
    short=r"W_1(p, q) = \tfrac1K \sup_{\|f\|_{\mathrm{Lip}} \le K}"
    r" (\mathbb E_p f - \mathbb E_q f)",
)
def kantorovich_rubinstein(divided: bool = True, bounded: bool = False):
    r"""Kantorovich-Rubinstein duality.

    $W_1(p, q) = \sup_{\|f\|_{\mathrm{Lip}} \le 1} (\mathbb E_p f - \mathbb E_q f) = \frac1K
    \sup_{\|f\|_{\mathrm{Lip}} \le K} (\mathbb E_p f - \mathbb E_q f)$ for laws with finite first
    moment.

    Checked for finite laws in the plane and on a line: `wasserstein_1` of points that are repeated
    as their weights say, against the dual linear program over values of $f$ at the atoms (a
    Lipschitz function there extends to the whole space, by McShane), for $K = 1$ and $K = 3$.

    Knobs:
        divided: Whether the supremum is divided by $K$.
        bounded: Whether functions are bounded by $K$ instead of Lipschitz.
    """
    for d, n, m in ((2, 5, 7), (1, 6, 4)):
        x, y = torch.randn(n, d) / 2, torch.randn(m, d) / 2
        p, q = (1 + torch.bincount(torch.randint(k, (24 - k,)), minlength=k) for k in (n, m))
        found = transport(x.repeat_interleave(p, 0), y.repeat_interleave(q, 0)).distance
        weights = np.concatenate([p.numpy(), -q.numpy()]) / 24
        atoms = torch.cat([x, y]).numpy()
        for K in (1.0, 3.0):
            value = dual(atoms, weights, K, bounded=bounded) / (K if divided else 1)
            yield equals("distance, and the dual", found, value, tol=1e-7, d=d, K=K)
        f = torch.rand(n + m, 8).numpy()
        steep = max_slopes(atoms, f)
        reached = np.abs(weights @ f) / steep
        yield at_least("distance, and random functions", found, reached, tol=1e-9, d=d)


def max_slopes(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The Lipschitz constant of each column of values at the points."""
    away = cdist(x, x) + np.eye(len(x)) * 1e300
    return (np.abs(f[:, None] - f[None]) / away[..., None]).max((0, 1))


kantorovich_rubinstein.foil("not divided by $K$", divided=False)
kantorovich_rubinstein.foil("bounded functions", bounded=True)
