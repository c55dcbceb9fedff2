"""What the course claims of norms of vectors, Cauchy-Schwarz and Hölder."""

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.norms import dual_norm

norm = torch.linalg.vector_norm


def integers(*shape: int, size: int = 9) -> Tensor:
    """Random integers from -size to size."""
    return torch.randint(-size, size + 1, shape)


def loop_norm(x: Tensor, p: float) -> float:
    """The p-norm of one vector, entry by entry."""
    sizes = [abs(v) for v in x.tolist()]
    return max(sizes) if p == math.inf else math.fsum(v**p for v in sizes) ** (1 / p)


@claim(by="sampling", sources=("C-337", "C-338"), budget=0.5, full={"draws": 200})
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
        yield equals(values, [loop_norm(x, p) for p in powers], n=n)
        for value, p in zip(values, powers, strict=True):
            yield at_most(formula(x + y, p), value + formula(y, p), p=p)
            yield equals(formula(-3 * x, p), 3 * value, p=p)
            yield at_most(top, value, p=p)
            yield at_most(value, n ** (1 / p) * top, p=p)
        yield at_most(values[1:], values[:-1], n=n)
        whole = [round(9 * v) for v in x.tolist()]
        yield equals(int(formula(torch.tensor(whole).double(), 1)), sum(map(abs, whole)), n=n)


p_norm.foil(r"$p = \frac12$: $\|e_1 + e_2\| = 4 > 1 + 1$", powers=(0.5,))
p_norm.foil(
    r"without absolute values $(1, -1)$ has norm 0",
    formula=lambda x, p: x.max() if p == math.inf else x.pow(p).sum().pow(1 / p),
)


@claim(by="sampling", sources=("C-339",), budget=0.5, full={"draws": 200})
def zero_norm(degree: int = 0, root: bool = False, draws: int = 5):
    r"""The "zero norm" counts the entries that are not zero, and is no norm.

    $\|x\|_0 = |\{i : x_i \ne 0\}| = \lim_{p \to 0^+} \sum_i |x_i|^p$. It obeys the triangle
    inequality, but it is not homogeneous: $\|c x\|_0 = \|x\|_0$ for every $c \ne 0$.

    The sum is off by at most $n (M^p - 1)$ with $M$ the largest modulus; the entries are integers.
    """
    p, size = 1e-8, 1000
    for n in (1, 2, 5, 20):
        for _ in range(draws):
            x, y = (integers(2, n, size=size) * (torch.rand(2, n) < 0.6)).double()
            x[0] = 7.0
            count = sum(v != 0 for v in x.tolist())
            yield equals(int(norm(x, 0)), count, n=n)
            yield equals(int(torch.count_nonzero(x)), count, n=n)
            yield at_most(int(norm(x + y, 0)), count + int(norm(y, 0)), n=n)
            for c in (-2.0, 0.5, 3.0):
                yield equals(norm(c * x, 0), abs(c) ** degree * count, c=c)
            power_sum = (x[x != 0].abs() ** p).sum()
            limit = power_sum ** (1 / p) if root else power_sum
            yield equals(limit, count, tol=n * math.expm1(p * math.log(size)), n=n)


zero_norm.foil("homogeneous as a norm has to be", degree=1)
zero_norm.foil(
    r"the limit of $\|x\|_p$ with the root: $2^{1/p} \to \infty$ for two ones", root=True
)


@claim(
    by="sampling",
    sources=("B-012", "D-033", "D-034", "D-035", "E-034", "E-035"),
    budget=0.5,
    full={"draws": 100},
)
def cauchy_schwarz(bars: bool = True, q: float = 2.0, draws: int = 2):
    r"""Cauchy-Schwarz: an inner product is at most the product of the norms.

    In a real inner product space $\langle u, v \rangle \le |\langle u, v \rangle| \le \|u\| \|v\|$.
    The right inequality is an equality iff $u, v$ are linearly dependent, the whole chain iff one
    is a non-negative multiple of the other. For sums, $(\sum_i x_i y_i)^2 \le \sum_i x_i^2
    \sum_i y_i^2$, and the gap is Lagrange's $\sum_{i < j} (x_i y_j - x_j y_i)^2$.
    """
    ones = torch.ones(2).long()
    pairs = [(ones, ones), (ones, -ones), (ones, torch.tensor([1, -1]))]
    for n in range(1, 9):
        for _ in range(draws):
            u, v = integers(2, n)
            pairs += [(u, v), (u, int(integers(1)) * u)]
    for u, v in pairs:
        a, b, n = u.tolist(), v.tolist(), len(u)
        inner = sum(x * y for x, y in zip(a, b, strict=True))
        uu, vv = sum(x * x for x in a), sum(y * y for y in b)
        minors = [a[i] * b[j] - a[j] * b[i] for i, j in combinations(range(n), 2)]
        yield equals(uu * vv - inner**2, sum(m * m for m in minors), n=n)
        k = next((i for i in range(n) if a[i]), 0)
        dependent = all(a[k] * y == b[k] * x for x, y in zip(a, b, strict=True))
        yield equals(int(inner**2 == uu * vv), int(dependent), n=n)
        size, bound = abs(inner) if bars else inner, norm(u.double()) * norm(v.double(), q)
        yield at_least(size, 0, n=n)
        yield at_most(size, bound, n=n)
        yield equals(int(abs(inner - bound) < 1e-9), int(dependent and inner >= 0), n=n)
        B = integers(n, n)
        M = B.mT @ B + torch.eye(n, dtype=torch.long)  # another inner product
        yield at_most(int(u @ M @ v) ** 2, int(u @ M @ u) * int(v @ M @ v), n=n)


cauchy_schwarz.foil(
    r"$0 \le \langle u, v \rangle$ without the bars, false for $v = -u$", bars=False
)
cauchy_schwarz.foil(
    r"$\|u\|_2 \|v\|_\infty$ is less than $\|u\|^2$ at $u = v = (1, 1)$", q=math.inf
)


@claim(by="sampling", sources=("D-036",), budget=0.5, full={"laws": 2000})
def cauchy_schwarz_expectation(square_inside: bool = True, laws: int = 40):
    r"""Cauchy-Schwarz for expectations, and correlations within $[-1, 1]$.

    For square-integrable $X, Y$: $\mathbb E[XY]^2 \le \mathbb E[X^2] \, \mathbb E[Y^2]$, with
    equality iff $X$ and $Y$ are almost surely proportional. For centred variables this is
    $|\mathrm{Cov}(X, Y)| \le \sqrt{\mathrm{Var} X \, \mathrm{Var} Y}$.

    Finite laws with integer values and weights of sum $W$, in integers after multiplication by
    powers of $W$; `torch.corrcoef` of the sample with these multiplicities is compared with them.
    """
    signs, halves = torch.tensor([-1, 1]), torch.tensor([1, 1])
    cases = [(signs, signs, halves)]
    for _ in range(laws):
        x, y = integers(2, int(torch.randint(2, 6, ())))
        cases += [(x, y, torch.randint(1, 8, x.shape)), (x, -3 * x, torch.randint(1, 8, x.shape))]
    for x, y, w in cases:
        W, X, Y, XX, YY, XY = (int((w * v).sum()) for v in (w * 0 + 1, x, y, x * x, y * y, x * y))
        first = W * XX if square_inside else X * X
        yield at_most(XY**2 * W, first * YY, n=len(x))
        proportional = not (x[:, None] * y - y[:, None] * x).any()
        yield equals(int(first * YY == XY**2 * W), int(proportional), n=len(x))
        cov, var_x, var_y = W * XY - X * Y, W * XX - X * X, W * YY - Y * Y
        yield at_most(cov**2, var_x * var_y, n=len(x))
        if var_x * var_y:
            sample = torch.stack([x, y]).double().repeat_interleave(w, 1)
            correlation = torch.corrcoef(sample)[0, 1]
            yield equals(correlation, cov / math.sqrt(var_x * var_y), n=len(x))
            yield at_most(correlation.abs(), 1.0, n=len(x))


cauchy_schwarz_expectation.erratum(
    "D-036",
    printed=r"$\mathbb E[XY]^2 \le \mathbb E[X]^2 \, \mathbb E[Y^2]$",
    right=r"$\mathbb E[XY]^2 \le \mathbb E[X^2] \, \mathbb E[Y^2]$",
    why=r"$X = Y = \pm 1$ with probability one half each: it says $1 \le 0$",
    weight="hard",
    square_inside=False,
)


@claim(by="sampling", sources=("A-045", "B-013"), budget=0.5, full={"draws": 200})
def holder_inequality(
    powers: tuple[float, ...] = (1, 1.1, 1.5, 2, 3, 10, math.inf),
    dual: Callable[[Tensor, float], Tensor] = lambda u, p: dual_norm(u, p).value,
    draws: int = 3,
):
    r"""Hölder's inequality, and the dual norm.

    For conjugate exponents $\frac1p + \frac1{p^*} = 1$, $p \in [1, \infty]$:
    $v^\top u \le |v^\top u| \le \sum_i |v_i u_i| = \|v \odot u\|_1 \le \|v\|_p \|u\|_{p^*}$.
    The case $p = 2$ is Cauchy-Schwarz, and $\|u\|_{p^*} = \max_{\|v\|_p \le 1} v^\top u$.
    """
    pairs = [(torch.ones(8), torch.ones(8))]
    for n in (1, 2, 7, 20):
        for _ in range(draws):
            z = torch.randn(2, n).sign() * 10 ** (6 * torch.rand(2, n) - 3)
            pairs.append((z[0], z[1]))
    for u, v in pairs:
        for p in powers:
            conjugate = {1: math.inf, math.inf: 1.0}.get(p) or p / (p - 1)
            bound = dual(u, p) * float(np.linalg.norm(v.numpy(), p))
            chain = torch.stack([v @ u, (v @ u).abs(), (v * u).abs().sum(), bound]) / bound
            yield at_most(chain[:-1], chain[1:], p=p, n=len(u))
            size, best = float(np.linalg.norm(u.numpy(), conjugate)), dual_norm(u, p).maximiser
            yield equals(dual(u, p) / size, 1.0, p=p)
            yield at_most(float(np.linalg.norm(best.numpy(), p)), 1.0, p=p)
            yield equals(best @ u / size, 1.0, p=p)
        whole = integers(len(u)).double()
        yield equals(int(dual(whole, 1)), int(max(map(abs, whole.tolist()))), n=len(u))
        yield equals(int(dual(whole, math.inf)), int(sum(map(abs, whole.tolist()))), n=len(u))


holder_inequality.foil(
    r"equal exponents: $8 \le 4$ for two vectors of eight ones and $p = 3$",
    powers=(3.0,),
    dual=norm,
)


@claim(by="identity", sources=("B-014",), budget=0.5, full={"draws": 500})
def holder_equality(
    powers: tuple[float, ...] = (1.5, 2, 3),
    same_signs: bool = True,
    exponent: float | None = None,
    draws: int = 10,
):
    r"""Equality in Hölder's inequality: proportional powers, and for $v^\top u$ equal signs.

    For $1 < p < \infty$: $\sum_i |v_i u_i| = \|v\|_p \|u\|_{p^*}$ iff $|v_i|^p$ and $|u_i|^{p^*}$
    are proportional, with one constant for all $i$. The product $v^\top u$ attains the bound iff
    in addition $v_i u_i \ge 0$ for every $i$.

    For moduli in $[0.1, 2]$ and up to six entries, twice one $v_i$ costs more than $10^{-6}$ of the
    bound: at least 0.06 of the share $|u_i|^{p^*} / \sum_j |u_j|^{p^*}$ or of what it lacks to one,
    both more than $2 \cdot 10^{-5}$.
    """
    for p in powers:
        q = p / (p - 1)
        for draw in range(draws):
            n = 2 + draw % 5
            u = torch.randn(n).sign() * (0.1 + 1.9 * torch.rand(n))
            u[:2] *= u[:2].sign() * torch.tensor([1, -1])
            v = dual_norm(u, p).maximiser if exponent is None else u.sign() * u.abs() ** exponent
            v = 3 * v if same_signs else 3 * v.abs()
            bound = norm(v, p) * norm(u, q)
            yield equals(v @ u / bound, 1.0, p=p, n=n)
            yield equals((v * u).abs().sum() / bound, 1.0, p=p, n=n)
            share = v.abs() ** p / u.abs() ** q
            yield equals(share / share[0], 1.0, p=p, n=n)
            flip = torch.ones(n)
            flip[draw % n] = -1
            yield equals(v @ u - (flip * v) @ u, 2 * (v * u).abs()[draw % n], p=p, n=n)
            longer = v * (1.5 - flip / 2)
            ratio = (longer * u).abs().sum() / (norm(longer, p) * norm(u, q))
            yield at_most(ratio, 1 - 1e-6, tol=0.0, p=p, n=n)


holder_equality.erratum(
    "B-014",
    printed=r"equality if $|v|^p = \gamma |u|^{p^*}$, for the chain that starts with $v^T u$",
    right=r"in addition $v_i u_i \ge 0$ for every $i$",
    why=r"$p = 2$, $v = (1, 1)$, $u = (1, -1)$: the moduli agree, and $v^\top u = 0 < 2$",
    weight="soft",
    same_signs=False,
)
holder_equality.foil("proportional moduli, without the powers", exponent=1.0)
