"""Jensen's inequality: means of convex functions."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.claims.convexity import hinges


def laws(n: int, atoms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random integer atoms and weights k / m whose mean is an integer; m for each law.

    The first law has the mean 0: -2 with the weight 1/3, and 1 with 2/3; the second is constant.
    """
    k = torch.randint(0, 6, (n, atoms))
    k[:, 0] += 1
    k[0] = 0
    k[0, :2] = torch.tensor([1, 2])
    m = k.sum(1)
    x = m[:, None] * torch.randint(-6, 7, (n, atoms))
    x[0, :2] = torch.tensor([-2, 1])
    x[1:2] = 5
    return k, x, m


@claim(
    by="sampling",
    sources=("A-003", "B-015", "D-057", "D-058", "E-047", "E-048"),
    budget=0.5,
    full={"n": 50_000},
    short=r"f(\mathbb E[X]) \le \mathbb E[f(X)] \quad (f \text{ convex})",
)
def jensen_inequality(
    sense: int = 1, among: Literal["convex", "cube", "logarithm"] = "convex", n: int = 200
):
    r"""Jensen's inequality.

    For convex $f$ and integrable $X$: $f(\mathbb E[X]) \le \mathbb E[f(X)]$; in finite form
    $f(\sum_i \lambda_i x_i) \le \sum_i \lambda_i f(x_i)$ for weights $\lambda_i \ge 0$ with sum 1.
    The inequality reverses for concave $f$. It is an equality if and only if $f$ agrees with an
    affine function on the convex hull of the support (for strictly convex $f$: if and only if $X$
    is constant).

    Checked exactly on random finite laws with integer atoms and an integer mean; for $\exp$ and
    $-\log$ in floats; and for the Gaussian by quadrature, $e^\mu < e^{\mu + \sigma^2 / 2}$.

    Knobs:
        sense: The direction of the inequality.
        among: Whether the functions are convex, or the cube or the logarithm stands among them.
        n: How many laws are drawn for each number of atoms.
    """
    shapes: list[Callable[[Tensor], Tensor]] = [torch.square, lambda x: x**4, torch.abs]
    if among == "cube":
        shapes = [lambda x: x**3]
    for atoms in range(2, 7):
        k, x, m = laws(n, atoms)
        mean = (k * x).sum(1) // m
        wedge = hinges(1)
        for f in (*shapes, lambda x, w=wedge: w(x.reshape(-1, 1)).view(x.shape)):
            gap = (k * f(x)).sum(1) - m * f(mean)
            yield at_least("gap of the inequality, m-fold", sense * gap, 0, atoms=atoms)
        strict = (k * x**4).sum(1) - m * mean**4
        constant = ((x == mean[:, None]) | (k == 0)).all(1)
        yield equals("whether equal for $x^4$", strict == 0, constant, atoms=atoms)
        flat = (k * x.abs()).sum(1) == m * mean.abs()  # affine on the hull if zero is not inside
        signs = torch.where(k > 0, x.sign(), 0)
        affine = signs.amin(1) * signs.amax(1) >= 0
        yield equals("whether equal for $|x|$", flat, affine, atoms=atoms)
        line = (k * (3 * x - 7)).sum(1)
        yield equals("m-fold mean of $3 x - 7$", line, m * (3 * mean - 7), atoms=atoms)
        p, x = torch.rand(n, atoms).softmax(1), 0.1 + 3 * torch.rand(n, atoms)
        sign = 1 if among == "logarithm" else -1
        for name, f in {"exp": torch.exp, "log": lambda x, s=sign: s * x.log()}.items():
            gap = sense * ((p * f(x)).sum(1) - f((p * x).sum(1)))
            at = {"atoms": atoms, "function": name}
            yield at_least("gap for exp and minus log", gap, 0.0, tol=1e-12, **at)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    for mu, sigma in ((0.0, 1.0), (-1.0, 0.5), (0.5, 1.5)):
        mean = float(weights @ np.exp(mu + sigma * nodes)) / math.sqrt(2 * math.pi)
        yield equals("mean of exp for a Gaussian", mean, math.exp(mu + sigma**2 / 2), mu=mu)
        gap = sense * (mean - math.exp(mu))
        yield at_least("gap for a Gaussian", gap, 0.0, mu=mu)


jensen_inequality.foil("the reversed inequality is that of concave functions", sense=-1)
jensen_inequality.foil("the cube is not convex on the left", among="cube")
jensen_inequality.foil("the logarithm is concave", among="logarithm")


@claim(
    by="sampling",
    sources=("B-016",),
    budget=0.5,
    full={"n": 10_000},
    short=r"\mathbb E[\log X] \le \log \mathbb E[X] \quad (X > 0)",
)
def jensen_logarithm(sense: int = 1, n: int = 200):
    r"""Jensen's inequality for the logarithm.

    For $X > 0$: $\mathbb E[\log X] \le \log \mathbb E[X]$, with equality if and only if $X$ is
    almost surely constant; for finite laws this is the weighted inequality of the geometric and the
    arithmetic mean. It is the step behind the evidence lower bound.

    Checked in exact integers: for atoms $x_i$ with weights $k_i / m$ it reads
    $m^m \prod_i x_i^{k_i} \le (\sum_i k_i x_i)^m$.

    Knobs:
        sense: The direction of the inequality.
        n: How many laws are drawn.
    """
    draws = [([1, 3], [1, 1]), ([5, 5], [2, 3])]
    for _ in range(n):
        atoms = int(torch.randint(1, 6, ()))
        x, k = torch.randint(1, 9, (atoms,)), torch.randint(1, 5, (atoms,))
        draws.append((x.tolist(), k.tolist()))
    for x, k in draws:
        m = sum(k)
        geometric = m**m * math.prod(a**b for a, b in zip(x, k, strict=True))
        arithmetic = sum(a * b for a, b in zip(x, k, strict=True)) ** m
        at, compare = {"atoms": len(x)}, at_most if sense > 0 else at_least
        yield compare("$m^m \\prod_i x_i^{k_i}$", geometric, arithmetic, **at)
        equal = int(geometric == arithmetic)
        yield equals("whether the means are equal", equal, int(len(set(x)) == 1), **at)


jensen_logarithm.foil("the reversed sign: 3 * 4 < 16 for the atoms 1 and 3", sense=-1)
