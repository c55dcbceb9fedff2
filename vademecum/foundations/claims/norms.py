"""Norms of vectors: the p-norms, the one that is none, and Cauchy-Schwarz."""

import math
from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, integers

norm = torch.linalg.vector_norm


def loop_norm(x: Tensor, p: float) -> float:
    """The p-norm of one vector, entry by entry."""
    sizes = [abs(v) for v in x.tolist()]
    return max(sizes) if p == math.inf else math.fsum(v**p for v in sizes) ** (1 / p)


@claim(
    by="sampling",
    sources=("C-337", "C-338"),
    budget=0.5,
    full={"draws": 200},
    short=r"\|x\|_p = \big(\textstyle\sum_i |x_i|^p\big)^{1/p},\ p \ge 1, \quad "
    r"\|x\|_\infty = \max_i |x_i|",
)
def p_norm(
    powers: tuple[float, ...] = (1, 1.5, 2, 3, 10, 100, 400, math.inf),
    formula: Callable[[Tensor, float], Tensor] = norm,
    draws: int = 2,
):
    r"""The p-norms are norms, and the maximum norm is their limit.

    For $p \ge 1$, $\|x\|_p = (\sum_i |x_i|^p)^{1/p}$ is a norm on $\mathbb R^n$, as is
    $\|x\|_\infty = \max_i |x_i| = \lim_{p \to \infty} \|x\|_p$. Precisely,
    $\|x\|_\infty \le \|x\|_p \le n^{1/p} \|x\|_\infty$, and $\|x\|_p$ does not increase with $p$.

    *Proof.* The triangle inequality is Minkowski's, from Hölder's. For $\|x\|_p = 1$ all
    $|x_i| \le 1$, so $|x_i|^{p'} \le |x_i|^p$ for $p' \ge p$.

    Knobs:
        powers: The exponents $p$, increasing.
        formula: The norm of a vector for an exponent.
        draws: How many pairs of vectors of each length are drawn.
    """
    pairs = [(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])), (torch.tensor([1.0, -1.0]),) * 2]
    for n in (1, 2, 5, 20):
        for _ in range(draws):
            z = integers(2, n) / 9
            z[:, 0] = 1.0  # the largest modulus, which keeps high powers in range
            pairs.append((z[0], z[1]))
    for x, y in pairs:
        n, top = len(x), loop_norm(x, math.inf)
        values = torch.stack([formula(x, p) for p in powers])
        for value, p in zip(values, powers, strict=True):
            at = {"p": p, "n": n}
            yield equals("norm, entry by entry", value, loop_norm(x, p), **at)
            yield at_most("norm of a sum", formula(x + y, p), value + formula(y, p), **at)
            yield equals(r"norm of $-3 x$", formula(-3 * x, p), 3 * value, **at)
            yield at_least("norm, against the largest entry", value, top, **at)
            yield at_most(
                r"norm, against $n^{1/p}$ times the largest entry", value, n ** (1 / p) * top, **at
            )
        yield at_most("norm for the next exponent", values[1:], values[:-1], n=n)
        whole = [round(9 * v) for v in x.tolist()]
        total = formula(torch.tensor(whole).double(), 1)
        yield equals("1-norm of integers", int(total), sum(map(abs, whole)), n=n)


p_norm.foil(r"$p = \frac12$: $\|e_1 + e_2\| = 4 > 1 + 1$", powers=(0.5,))
p_norm.foil(
    r"without absolute values $(1, -1)$ has the norm 0, not 2",
    formula=lambda x, p: x.max() if p == math.inf else x.pow(p).sum().pow(1 / p),
    refuted_by="norm, entry by entry",
)


@claim(
    by="sampling",
    sources=("C-339",),
    budget=0.5,
    full={"draws": 200},
    short=r"\|x\|_0 = |\{i : x_i \ne 0\}| = \lim_{p \to 0^+} \textstyle\sum_i |x_i|^p",
)
def zero_norm(degree: int = 0, root: bool = False, draws: int = 5):
    r"""The "zero norm" counts the entries that are not zero, and is no norm.

    $\|x\|_0 = |\{i : x_i \ne 0\}| = \lim_{p \to 0^+} \sum_i |x_i|^p$. It obeys the triangle
    inequality, but it is not homogeneous: $\|c x\|_0 = \|x\|_0$ for every $c \ne 0$.

    The limit is taken at $p = 10^{-8}$, where the sum is off by at most $n (M^p - 1)$ with $M$ the
    largest modulus of integer entries.

    Knobs:
        degree: The power of $|c|$ by which $\|c x\|_0$ exceeds $\|x\|_0$.
        root: Whether the limit is that of $\|x\|_p$, with the root.
        draws: How many pairs of vectors of each length are drawn.
    """
    p, most = 1e-8, 1000
    pairs = [torch.tensor([[1.0, 1.0], [1.0, -1.0]])]
    for n in (1, 2, 5, 20):
        for _ in range(draws):
            z = integers(2, n, most=most) * (torch.rand(2, n) < 0.6)
            z[0, 0] = 7.0
            pairs.append(z)
    for x, y in pairs:
        n = len(x)
        count, other = (sum(v != 0 for v in z.tolist()) for z in (x, y))
        yield equals("norm, against a count", int(norm(x, 0)), count, n=n)
        yield at_most("norm of a sum", int(norm(x + y, 0)), count + other, n=n)
        for c in (-2.0, 0.5, 3.0):
            yield equals("norm of a multiple", norm(c * x, 0), abs(c) ** degree * count, c=c)
        total = (x[x != 0].abs() ** p).sum()
        limit = total ** (1 / p) if root else total
        off = n * math.expm1(p * math.log(most))
        yield equals("limit of the sum of powers", limit, count, tol=off, n=n)


zero_norm.foil("homogeneous as a norm has to be", degree=1)
zero_norm.foil(
    r"the limit of $\|x\|_p$ with the root: $2^{1/p} \to \infty$ for two ones", root=True
)


@claim(
    by="sampling",
    sources=("B-012", "D-033", "D-034", "D-035", "E-034", "E-035"),
    budget=0.5,
    full={"draws": 100},
    short=r"|\langle u, v \rangle| \le \|u\|\, \|v\|, \quad "
    r"(\textstyle\sum_i x_i y_i)^2 \le \sum_i x_i^2 \sum_i y_i^2",
)
def cauchy_schwarz(bars: bool = True, q: float = 2.0, draws: int = 2):
    r"""Cauchy-Schwarz: an inner product is at most the product of the norms.

    In a real inner product space $\langle u, v \rangle \le |\langle u, v \rangle| \le \|u\| \|v\|$.
    The right inequality is an equality iff $u, v$ are linearly dependent, the whole chain iff one
    is a non-negative multiple of the other. For sums, $(\sum_i x_i y_i)^2 \le \sum_i x_i^2
    \sum_i y_i^2$, and the gap is Lagrange's $\sum_{i < j} (x_i y_j - x_j y_i)^2$.

    For integer vectors the gap of the squares, $\|u\|^2 \|v\|^2 - \langle u, v \rangle^2$, is an
    integer, so that $\|u\| \|v\| - \langle u, v \rangle$ is zero or at least
    $\frac{1}{2 \|u\| \|v\|}$.

    Knobs:
        bars: Whether the absolute value of the inner product stands on the left, or the inner
            product itself.
        q: The exponent of the norm of $v$.
        draws: How many vectors of each length are drawn.
    """
    ones = torch.ones(2)
    pairs = [(ones, ones), (ones, -ones), (ones, torch.tensor([1.0, -1.0]))]
    for n in range(1, 9):
        for _ in range(draws):
            u, v = integers(2, n)
            pairs += [(u, v), (u, integers() * u)]
    for u, v in pairs:
        a, b, n = u.int().tolist(), v.int().tolist(), len(u)
        inner = sum(x * y for x, y in zip(a, b, strict=True))
        uu, vv = sum(x * x for x in a), sum(y * y for y in b)
        minors = [a[i] * b[j] - a[j] * b[i] for i, j in combinations(range(n), 2)]
        gap = uu * vv - inner**2
        yield equals("gap of the squares", gap, sum(m * m for m in minors), n=n)
        k = next((i for i in range(n) if a[i]), 0)
        dependent = all(a[k] * y == b[k] * x for x, y in zip(a, b, strict=True))
        compare = equals if dependent else at_least
        kind = "dependent" if dependent else "independent"
        yield compare(f"gap of the squares of {kind} vectors", gap, int(not dependent), n=n)
        size, bound = abs(inner) if bars else inner, norm(u) * norm(v, q)
        yield at_most("left side of the inequality", size, bound, n=n)
        if dependent:
            yield equals("left side for dependent vectors", size, bound, n=n)
        if not dependent or inner < 0:
            gap = bound - inner
            yield at_least("product of the norms less inner product", gap, 1 / (2 * bound), n=n)
        B = integers(n, n)
        M = B.mT @ B + torch.eye(n)  # another inner product
        left, right = int(u @ M @ v) ** 2, int(u @ M @ u) * int(v @ M @ v)
        yield at_most(r"$(u^\top M v)^2$ for definite $M$", left, right, n=n)


cauchy_schwarz.foil(
    r"without the bars dependent vectors need not attain 2: $-2$ for $u = -v = (1, 1)$",
    bars=False,
)
cauchy_schwarz.foil(
    r"$\|u\|_2 \|v\|_\infty = 1.41$ is less than $\langle u, u \rangle = 2$ at $u = v = (1, 1)$",
    q=math.inf,
)


@claim(
    by="sampling",
    sources=("D-036",),
    budget=0.5,
    full={"laws": 2000},
    short=r"\mathbb E[XY]^2 \le \mathbb E[X^2] \, \mathbb E[Y^2]",
)
def cauchy_schwarz_expectation(square_inside: bool = True, laws: int = 40):
    r"""Cauchy-Schwarz for expectations, and correlations within $[-1, 1]$.

    For square-integrable $X, Y$: $\mathbb E[XY]^2 \le \mathbb E[X^2] \, \mathbb E[Y^2]$, with
    equality iff $X$ and $Y$ are almost surely proportional. For centred variables this is
    $|\mathrm{Cov}(X, Y)| \le \sqrt{\mathrm{Var} X \, \mathrm{Var} Y}$.

    Checked for finite laws with integer values and weights, where the gap times the square of the
    sum of the weights is an integer; `torch.corrcoef` of the sample with these multiplicities is
    compared with the correlation.

    Knobs:
        square_inside: Whether $\mathbb E[X^2]$ stands on the right, or $\mathbb E[X]^2$.
        laws: How many laws are drawn.
    """
    signs, halves = torch.tensor([-1, 1]), torch.tensor([1, 1])
    cases = [(signs, signs, halves)]
    for _ in range(laws):
        x, y = integers(2, int(torch.randint(2, 6, ()))).long()
        cases += [(x, y, torch.randint(1, 8, x.shape)), (x, -3 * x, torch.randint(1, 8, x.shape))]
    for x, y, w in cases:
        n = len(x)
        W, X, Y, XX, YY, XY = (int((w * v).sum()) for v in (w * 0 + 1, x, y, x * x, y * y, x * y))
        first = XX / W if square_inside else (X / W) ** 2
        yield at_most(r"$\mathbb E[XY]^2$", (XY / W) ** 2, first * YY / W, n=n)
        if (x[:, None] * y - y[:, None] * x).any():
            yield at_least("gap of variables not proportional", XX * YY - XY**2, 1, n=n)
        else:
            yield equals("gap of proportional variables", XX * YY - XY**2, 0, n=n)
        cov, var_x, var_y = W * XY - X * Y, W * XX - X * X, W * YY - Y * Y
        yield at_most("squared covariance", cov**2, var_x * var_y, n=n)
        if var_x * var_y:
            sample = torch.stack([x, y]).double().repeat_interleave(w, 1)
            correlation = torch.corrcoef(sample)[0, 1]
            exact = cov / math.sqrt(var_x * var_y)
            yield equals("correlation", correlation, exact, n=n)
            yield at_most("modulus of the correlation", correlation.abs(), 1.0, n=n)


cauchy_schwarz_expectation.erratum(
    "D-036",
    printed=r"$\mathbb E[XY]^2 \le \mathbb E[X]^2 \, \mathbb E[Y^2]$",
    right=r"$\mathbb E[XY]^2 \le \mathbb E[X^2] \, \mathbb E[Y^2]$",
    why=r"As scanned: the first factor must be $\mathbb E[X^2]$ (the second factor is right, so a "
    r"square that slipped out of the bracket in the scan is as likely as a typing slip). For "
    r"$X = Y = \pm 1$ with probability one half each the left side is 1 and the right side as "
    r"scanned $0 \cdot 1 = 0$.",
    weight="scan",
    square_inside=False,
)
