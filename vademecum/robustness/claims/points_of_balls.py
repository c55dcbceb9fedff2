"""Points of a ball: uniform draws, and those that differ in few entries."""

import math
from itertools import combinations, product
from typing import Any, Literal

import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, consistent, equals, in_mean
from vademecum.robustness import pgd, sample_ball
from vademecum.robustness._threat import as_threat

ORDERS: dict[Any, float] = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
LAW = 1e-8  # false alarms of one test of a law; a run makes fewer than 50


def length(v: Tensor, p: float) -> Tensor:
    """The p-norm of rows, from its definition."""
    size = v.abs().flatten(1)
    return size.amax(1) if p == math.inf else (size**p).sum(1) ** (1 / p)


@claim(
    by="sampling",
    sources=("B-453",),
    budget=0.5,
    short=r"r = \epsilon\, U^{1/d} g / \|g\|_2, \quad P(\|r\| \le \rho) = (\rho / \epsilon)^d",
)
def uniform_ball_start(root: bool = True, n: int = 2000):
    r"""Random start in the ball.

    PGD starts from a uniform draw of the ball around $x$. For $p = 2$ in dimension $d$ this is a
    uniform direction times the radius $\epsilon U^{1/d}$, so that
    $P(\|r\| \le \rho) = (\rho / \epsilon)^d$, which holds for every norm; for $p = \infty$ the
    coordinates are independent and uniform.

    *Checked* for three norms with `sample_ball` in 10 and in 3 dimensions and with the points at
    which `pgd` begins (after a step of no length) in 6: all lie in the ball; $(\|r\| / \epsilon)^d$
    is uniform by a Kolmogorov-Smirnov test; signs are fair in each coordinate; second moments are
    $\epsilon^2 / (d + 2)$, $\epsilon^2 / 3$ and $2 \epsilon^2 / ((d + 1)(d + 2))$ for $p = 2$,
    $\infty$ and 1; products of neighbours have mean 0; for $p = \infty$ each coordinate is uniform.

    Knobs:
        root: Whether the radius is $\epsilon U^{1/d}$, or $\epsilon U$ (for $p = 2$).
        n: How many points are drawn.
    """
    radius = 0.7
    for (norm, p), shape in product(ORDERS.items(), ((2, 5), (3,))):
        d = math.prod(shape)
        at = {"norm": norm, "d": d}
        r = sample_ball(n, shape, norm=norm, radius=radius).flatten(1)
        if norm == "l2" and not root:
            r = radius * torch.rand(n, 1) * r / length(r, 2)[:, None]
        yield from _uniform(r, p, radius, at)
        moment = {"l2": 1 / (d + 2), "linf": 1 / 3, "l1": 2 / ((d + 1) * (d + 2))}[norm]
        yield in_mean("second moments", r.square().mean(1), moment * radius**2, sigmas=6.0, **at)
        yield in_mean(
            "products of neighbours", (r[:, 1:] * r[:, :-1]).mean(1), 0.0, sigmas=6.0, **at
        )
        if norm == "linf":
            test = stats.kstest((r / radius).flatten().numpy(), stats.uniform(-1, 2).cdf)
            yield consistent("p-value of uniform coordinates", float(test.pvalue), alpha=LAW, **at)
    for norm, p in ORDERS.items():
        model, x = nn.Linear(6, 2), torch.randn(n // 4, 6)
        with torch.no_grad():
            model.bias.copy_(torch.tensor([1e6, 0.0]))  # so that nothing is ever fooled
        y = torch.zeros(len(x), dtype=torch.long)
        found = pgd(model, x, y, norm=norm, radius=radius, box=None, steps=1, step_size=1e-12)
        yield from _uniform(found.x - x, p, radius, {"norm": norm, "d": 6})


def _uniform(r: Tensor, p: float, radius: float, at: dict[str, Any]):
    """All inside, with radii and signs of the uniform law; a step of 1e-12 is far below noise."""
    d, size = r.shape[1], length(r, p) / radius
    yield at_most("norm of a draw", radius * size, radius, tol=1e-15, **at)
    test = stats.kstest((size**d).numpy(), stats.uniform.cdf)
    yield consistent(r"p-value of the law of $\|r\|^d$", float(test.pvalue), alpha=LAW, **at)
    counts = (r > 0).sum(0).tolist()
    least: Any = min(stats.binomtest(count, len(r)).pvalue for count in counts) * d
    yield consistent("p-value of fair signs", min(least, 1.0), alpha=LAW, **at)


uniform_ball_start.foil("a uniform radius", root=False)


def greedy_count(w: Tensor, x: Tensor, f: Tensor, order: str) -> Tensor:
    """How many entries, in an order, bring scores to 0 or below: d + 1 if all do not suffice."""
    gain = torch.where(w > 0, w * x, -w * (1 - x))
    rank = (gain if order == "room" else w.abs().expand_as(x)).argsort(dim=1, descending=True)
    reached = gain.gather(1, rank).cumsum(1) >= f[:, None]
    return torch.where(reached.any(1), reached.int().argmax(1) + 1, x.shape[1] + 1)


def fewest(w: Tensor, x: Tensor, f: Tensor) -> Tensor:
    """The fewest entries that bring scores to 0 or below, over all subsets and ends of the box."""
    n, d = x.shape
    best = torch.full((n,), d + 1)
    drop = torch.minimum(w * (0 - x), w * (1 - x))  # by how much an entry can change the score
    for k in range(d, -1, -1):
        for subset in combinations(range(d), k):
            lowest = f + drop[:, list(subset)].sum(1)
            best = torch.where(lowest <= 0, k, best)
    return best


@claim(
    by="identity",
    sources=("C-336", "C-339"),
    budget=1.0,
    short=r"\min\{k : g_{(1)} + \dots + g_{(k)} \ge f(x)\}, \quad g_i = \max_{0 \le z \le 1} w_i"
    r" (x_i - z)",
)
def sparse_perturbation(
    order: Literal["room", "weight"] = "room",
    rule: Literal["projection", "clipping"] = "projection",
    dims: tuple[int, ...] = (3, 5, 7, 9),
):
    r"""Sparse perturbations (zero norm).

    Measured by $\|r\|_0$ an attack changes as few coordinates as possible, each freely within the
    box $[0, 1]$. For a linear score $f(x) = w^\top x + b > 0$ coordinate $i$ can lower it by
    $g_i = w_i x_i$ if $w_i > 0$ and by $-w_i (1 - x_i)$ otherwise, so the fewest coordinates that
    reach $f \le 0$ are the $k$ largest $g_i$ with the smallest $k$ such that their sum is at least
    $f(x)$: greedy is optimal. The set $\{\|z\|_0 \le k\}$ is not convex; a nearest point keeps the
    $k$ entries of largest modulus and is unique iff the $k$-th and the next differ in modulus (or
    the next is 0).

    *Checked* for random scores in 3 to 9 dimensions: the numbers from the formula and from `pgd`
    with `norm="l0"` equal the minimum over all subsets; the distance of the projection equals the
    minimum over all supports; midpoints of two sparse vectors with other supports leave the set;
    the nearest points, from all supports, are one without a tie, one where all entries but $k$ are
    0, and as many as supports where all tie.

    Knobs:
        order: In which order coordinates are taken: by the room that the box leaves them, or by
            weight.
        rule: How vectors are made sparse.
        dims: The dimensions.
    """
    for d in dims:
        for _ in range(5):
            w, x = torch.randn(d), torch.rand(10, d)
            b = 0.2 * float(w.abs().sum()) - float((x @ w).min())
            f = x @ w + b  # at least a fifth of the 1-norm
            best = fewest(w, x, f)
            yield equals("coordinates by the formula", greedy_count(w, x, f, order), best, d=d)
            yield from _attacked(w, b, x, best)
        yield from _nearest_sparse(d, rule)


def _attacked(w: Tensor, b: float, x: Tensor, best: Tensor):
    """How many coordinates the room's attack changes, one more in each step."""
    d = len(w)
    model = nn.Linear(d, 2)
    with torch.no_grad():
        model.weight.copy_(torch.stack([w, torch.zeros(d)]))
        model.bias.copy_(torch.tensor([b, 0.0]))
    y = torch.zeros(len(x), dtype=torch.long)
    found = pgd(model, x, y, norm="l0", radius=d, steps=d)
    count = torch.where(found.fooled, found.distance.long(), d + 1)
    yield equals("coordinates that the attack changes", count, best, d=d)


def _nearest_sparse(d: int, rule: str):
    z, k = torch.randn(6, d), d // 2
    centre = torch.zeros_like(z)
    threat = as_threat(centre, "l0", k, None, norms=("l0",))
    found = threat.project(centre, z) if rule == "projection" else z.clamp(-0.5, 0.5)
    least = torch.full((len(z),), math.inf)
    for support in combinations(range(d), k):
        rest = [i for i in range(d) if i not in support]
        least = torch.minimum(least, z[:, rest].square().sum(1))
    yield at_most("entries of the nearest sparse vector", (found != 0).sum(1), k, d=d)
    yield equals("its squared distance", (z - found).square().sum(1), least, d=d)
    a, b = torch.zeros(2, d)
    a[:k], b[-k:] = 1.0, 1.0
    middle = int(((a + b) / 2 != 0).sum())
    yield at_least("entries of a midpoint of two sparse vectors", middle, k + 1, d=d)
    tie = torch.ones(1, d)
    one = threat.rows(slice(1)).project(0 * tie, tie)
    both = torch.cat([one, one.flip(1)])
    away = (tie - both).square().sum(1)
    yield equals("squared distances of two nearest points where all tie", away, float(d - k), d=d)
    yield at_least("places in which they differ", int((both[0] != both[1]).sum()), 2 * k, d=d)
    few = torch.cat([torch.ones(k), torch.zeros(d - k)])
    for name, v, count in (
        ("no tie", z[0], 1),
        ("zeros", few, 1),
        ("a tie", tie[0], math.comb(d, k)),
    ):
        yield equals("nearest sparse vectors", nearest_sparse(v, k), count, d=d, of=name)


def nearest_sparse(v: Tensor, k: int) -> int:
    """How many vectors with k entries that are not 0 are nearest, from all supports."""
    kept = torch.zeros(math.comb(len(v), k), len(v))
    for row, support in zip(kept, combinations(range(len(v)), k), strict=True):
        row[list(support)] = v[list(support)]
    away = (kept - v).square().sum(1)
    return len(kept[away <= away.min() + 1e-12].unique(dim=0))


sparse_perturbation.foil("the largest weights first", order="weight")
sparse_perturbation.foil("clipping in place of the projection", rule="clipping")
