"""What the course claims of the ReLU and its relatives."""

import math
import operator
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor
from torch.nn import functional as F

from vademecum.approximation.claims.activations import EPS, derivative
from vademecum.approximation.units import AbsUnit
from vademecum.claims import at_least, at_most, claim, equals

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
CASES = r"$\mathrm{ReLU}'(x) = \begin{cases} 0 & x \le 0 \\ 1 & x \ge 0 \end{cases}$"
RIGHT = r"$\mathrm{ReLU}'(x) = \begin{cases} 0 & x < 0 \\ 1 & x > 0 \end{cases}$, undefined at 0"


@claim(by="identity", sources=("B-167", "B-168", "B-169", "C-065", "D-143", "D-144"), budget=0.5)
def relu(
    edges: tuple[str, str] = ("<", ">"),
    subdifferential: tuple[float, float] = (0.0, 1.0),
    n: int = 1000,
):
    r"""The rectified linear unit and its derivative.

    $\mathrm{ReLU}(z) = z_+ = \max\{0, z\}$ is convex, continuous, piecewise linear and positively
    homogeneous: $(c z)_+ = c\, z_+$ for $c \ge 0$. Like other rectifiers it does not saturate where
    it is active. Its derivative is 0 for $z < 0$ and 1 for $z > 0$. At 0 it does not exist: the
    one-sided difference quotients are 0 and 1, the subdifferential is $[0, 1]$, and libraries
    return one of its elements, torch 0.

    A table of cases must give one value where the one-sided quotients agree, and none where they
    do not. All numbers are dyadic, so that quotients are exact.
    """
    special = torch.tensor([0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, math.inf, -math.inf])
    z = torch.cat([special, torch.randn(n)])
    yield equals(torch.relu(z), np.maximum(z.numpy(), 0.0), tol=0.0)
    z = torch.randint(-1000, 1001, (n,)) / 8
    z[0] = 0.0
    for c in (0.0, 0.25, 1.0, 8.0):
        yield equals(torch.relu(c * z), c * torch.relu(z), tol=0.0, c=c)
    yield at_most(torch.relu((z + z.flip(0)) / 2), (torch.relu(z) + torch.relu(z.flip(0))) / 2)
    h = 1 / 16
    left, right = ((torch.relu(z + s * h) - torch.relu(z)) / (s * h) for s in (-1, 1))
    below, above = (COMPARE[edge](z, 0) for edge in edges)
    yield equals(below.long() + above.long(), (left == right).long())
    yield equals(above.double()[left == right], left[left == right], tol=0.0)
    yield equals(derivative(torch.relu, z), (z > 0).double(), tol=0.0)
    low, high = subdifferential
    y = torch.linspace(-5, 5, 1001)
    for g in (low, 0.7 * low + 0.3 * high, high):
        yield at_least(torch.relu(y), g * y, g=g)
    for g in (low - 0.1, high + 0.1):
        yield at_least((g * y - torch.relu(y)).max(), 0.5, g=g)


relu.foil("a slope below 0 or above 1 supports nothing", subdifferential=(-0.1, 1.1))
relu.foil("the subdifferential at 0 is the whole interval", subdifferential=(0.25, 0.75))
relu.erratum(
    "D-144",
    printed=CASES,
    right=RIGHT,
    why="both branches claim 0 and give it two values; the one-sided difference quotients there are"
    " 0 and 1, so there is no derivative",
    weight="hard",
    edges=("<=", ">="),
)


@claim(
    by="identity",
    sources=("A-038", "A-040", "A-041", "B-180", "B-182", "B-183", "B-184", "B-194"),
    budget=0.5,
)
def abs_unit(slope: int = 2, share: int = 2, n: int = 1000):
    r"""The absolute value unit, the ReLU and the maximum generate each other.

    $z_+ = \frac12 (z + |z|)$ and $|z| = 2 z_+ - z = z_+ + (-z)_+$; likewise
    $2 \max\{f, g\} = f + g + |f - g|$. The absolute value is even, convex and 1-Lipschitz. It is
    active on either side of its hyperplane, hence not sparse like the ReLU: of $z_+$ and $(-z)_+$
    one is zero, of $|z|$ and $|-z|$ none, unless $z = 0$.

    Integers, so that all comparisons are exact.
    """
    unit = AbsUnit()
    f, g = torch.randint(-1000, 1001, (2, n))
    f[0], g[0] = 0, 1
    yield equals(f + unit(f), 2 * torch.relu(f))
    yield equals(slope * torch.relu(f) - f, unit(f))
    yield equals(torch.relu(f) + torch.relu(-f), unit(f))
    yield equals(f + g + unit(f - g), share * torch.maximum(f, g))
    yield equals(unit(-f), unit(f))
    yield at_most(unit(f + g), unit(f) + unit(g))
    yield at_most((unit(f) - unit(g)).abs(), (f - g).abs())
    z = f[f != 0]
    yield equals((torch.relu(z) == 0).long() + (torch.relu(-z) == 0).long(), 1)
    yield equals((unit(z) == 0).long() + (unit(-z) == 0).long(), 0)


abs_unit.foil(r"$|z| = z_+ - z$, the factor 2 lost", slope=1)
abs_unit.foil(r"$\max\{f, g\} = f + g + |f - g|$, the factor 2 lost", share=1)


@claim(by="identity", sources=("B-188",), budget=0.5)
def leaky_relu(
    epsilon: float = 2.0**-7,
    form: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
    n: int = 1000,
):
    r"""The leaky ReLU keeps a gradient on its inactive side.

    $z \mapsto z$ for $z \ge 0$ and $\epsilon z$ for $z < 0$, with a small slope
    $0 < \epsilon < 1$. It equals $z_+ - \epsilon\, (-z)_+$ and, because $\epsilon \le 1$, also
    $\max\{z, \epsilon z\}$. Inactive units keep a gradient of size $\epsilon$, so that they can
    recover: a ReLU whose bias keeps it inactive on all data gets no gradient.

    Torch's is compared for a dyadic $\epsilon$ and integers, exactly.
    """
    z = torch.randint(-1000, 1001, (n,)).double()
    z[:2] = torch.tensor([-1.0, 1.0])
    leaky = lambda z: F.leaky_relu(z, epsilon)  # noqa: E731
    yield equals(leaky(z), torch.relu(z) - epsilon * torch.relu(-z), tol=0.0)
    yield equals(leaky(z), form(z, epsilon * z), tol=0.0)
    slopes = torch.where(z > 0, 1.0, epsilon)
    yield equals(derivative(leaky, z)[z != 0], slopes[z != 0], tol=0.0)
    x = 1 + torch.rand(20)
    for unit, least in ((torch.relu, 0.0), (leaky, epsilon * 20)):
        found = derivative(lambda w, u=unit: u(w * x - 10).sum(), torch.ones(()))
        yield at_least(found, least, unit=getattr(unit, "__name__", ""))
        yield at_most(found, 2 * least, unit=getattr(unit, "__name__", ""))


leaky_relu.foil("the minimum of the two lines", form=torch.minimum)
leaky_relu.foil("the maximum needs a slope of at most one", epsilon=2.0)


@claim(by="identity", sources=("B-186",), budget=0.5)
def softplus(threshold: float = 700.0, gap: float = math.log(2), n: int = 2001):
    r"""Softplus, a smooth surrogate of the ReLU.

    $\mathrm{softplus}(z) = \log(1 + e^z) \in (0, \infty)$ is smooth and convex with the derivative
    $\sigma(z)$, the reflection $\mathrm{softplus}(z) - \mathrm{softplus}(-z) = z$ and the uniform
    gap $0 < \mathrm{softplus}(z) - z_+ \le \log 2$, attained at $z = 0$.

    Torch returns $z$ itself beyond a threshold, by default 20. In double precision that is too
    early: there the gap is still $2 \cdot 10^{-9}$, half a million units of roundoff.
    """
    f = lambda z: F.softplus(z, threshold=threshold)  # noqa: E731
    z = torch.linspace(-700, 700, n)
    wanted = torch.from_numpy(np.logaddexp(0, z.numpy()))
    yield at_most((f(z) / wanted - 1).abs(), 16 * EPS, tol=0.0)
    yield equals(f(torch.tensor([-1000.0, 1000.0])), torch.tensor([0.0, 1000.0]), tol=0.0)
    yield equals(derivative(f, z), torch.sigmoid(z))
    yield equals(f(z) - f(-z), z)
    z = torch.arange(-1000, 1001) * 0.03
    found = f(z) - torch.relu(z)
    yield equals(int((found > 0).sum()), 2001)
    yield at_most(found, gap, tol=EPS)
    yield equals(found[1000], math.log(2), tol=EPS, z=0)


softplus.foil("the naive formula overflows", threshold=math.inf)
softplus.foil("torch's default threshold, in double precision", threshold=20.0)
softplus.foil("a gap of one half", gap=0.5)


@claim(by="identity", sources=("B-185", "B-187"), budget=0.5)
def elu(alpha: float = 1.0, n: int = 2001):
    r"""The exponential linear unit is once, not twice, differentiable.

    $\mathrm{ELU}_\alpha(z) = z$ for $z \ge 0$ and $\alpha (e^z - 1)$ for $z < 0$, with the range
    $(-\alpha, \infty)$. For $\alpha = 1$, the usual choice, it is continuously differentiable, a
    smooth surrogate of the ReLU like softplus, but not twice: the second derivative jumps from 1 to
    0 at the origin.

    One-sided difference quotients have a bias of at most $\frac h2 \sup |f''|$, and second ones of
    at most $h \sup |f'''|$, on the side in question.
    """
    f = lambda z: F.elu(z, alpha)  # noqa: E731
    z = torch.linspace(-700, 700, n)
    wanted = [x if x >= 0 else alpha * math.expm1(x) for x in z.tolist()]
    yield equals(f(z), wanted)
    yield equals(f(z).min(), -alpha)
    h = 1e-6

    def jump(g: Callable[[Tensor], Tensor]) -> Tensor:
        low, mid, high = g(torch.tensor([-h, 0.0, h]))
        return (high - mid) / h - (mid - low) / h

    yield equals(jump(f), 0.0, tol=h)
    yield equals(jump(F.softplus), 0.0, tol=h)
    yield equals(jump(torch.relu), 1.0)
    h2 = 1e-3
    v = f(torch.tensor([-2 * h2, -h2, 0.0, h2, 2 * h2]))
    yield equals((v[0] - 2 * v[1] + v[2]) / h2**2, 1.0, tol=h2)
    yield equals((v[2] - 2 * v[3] + v[4]) / h2**2, 0.0, tol=h2)


elu.foil("with another constant the slope jumps", alpha=2.0)


@claim(by="identity", sources=("A-005", "C-169"), budget=0.5)
def gelu(
    tail: Literal["lower", "upper"] = "lower",
    approximate: Literal["none", "tanh"] = "none",
    n: int = 25,
):
    r"""The Gaussian error linear unit.

    $\mathrm{GELU}(z) = z\, \Pr(Z \le z) = z\, \Phi(z) =
    \frac z2 \left(1 + \operatorname{erf} \frac{z}{\sqrt 2}\right)$ with $Z \sim \mathcal N(0, 1)$.
    It behaves like $z$ for $z \to \infty$ and like 0 for $z \to -\infty$, and
    $\mathrm{GELU}(z) - \mathrm{GELU}(-z) = z$.

    Torch's is compared with $z$ times the normal density integrated numerically.
    """
    f = lambda z: F.gelu(z, approximate=approximate)  # noqa: E731
    density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    z = torch.cat([torch.tensor([-3.0, 3.0]), 12 * torch.rand(n) - 6])
    ends = (lambda x: (-12, x)) if tail == "lower" else (lambda x: (x, 12))  # 1e-32 is beyond
    area = [quad(density, *ends(x), epsabs=1e-11, epsrel=1e-11)[0] for x in z.tolist()]
    yield equals(f(z), z * torch.tensor(area))
    yield equals(f(z), z / 2 * (1 + torch.erf(z / math.sqrt(2))))
    yield equals(f(z) - f(-z), z)
    yield equals(f(torch.tensor([-8.0, 8.0])), torch.tensor([0.0, 8.0]), tol=1e-13)


gelu.foil("the approximation by a hyperbolic tangent", approximate="tanh")
gelu.erratum(
    "C-169",
    printed=r"$\varphi(z) = z \Pr(z \leq Z)$",
    right=r"$\varphi(z) = z \Pr(Z \leq z)$",
    why=r"the inequality is reversed: the printed function is $z (1 - \Phi(z))$, which tends to 0"
    " at infinity; at 3 it is 0.004 instead of 2.996",
    weight="hard",
    tail="upper",
)
