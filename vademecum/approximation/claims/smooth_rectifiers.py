"""Smooth rectifiers: softplus, ELU and GELU beside the ReLU."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor
from torch.nn import functional as F

from vademecum.approximation.claims.activations import EPS, derivative
from vademecum.claims import at_least, at_most, claim, equals


@claim(
    by="identity",
    sources=("B-186",),
    budget=0.5,
    short=r"\mathrm{softplus}(z) = \log(1 + e^z), \quad 0 < \mathrm{softplus}(z) - z_+ \le \log 2",
)
def softplus(threshold: float = 700.0, gap: float = math.log(2), n: int = 2001):
    r"""Softplus, a smooth surrogate of the ReLU.

    $\mathrm{softplus}(z) = \log(1 + e^z) \in (0, \infty)$ is smooth and convex with the derivative
    $\sigma(z)$, the reflection $\mathrm{softplus}(z) - \mathrm{softplus}(-z) = z$ and the uniform
    gap $0 < \mathrm{softplus}(z) - z_+ \le \log 2$, attained at $z = 0$. The gap is
    $\log(1 + e^{-|z|})$, and so at least $e^{-|z|} \log 2$.

    Torch returns $z$ itself beyond a threshold, by default 20. In double precision that is too
    early: there the gap is still $2 \cdot 10^{-9}$, half a million units of roundoff.

    Knobs:
        threshold: Beyond which argument torch returns $z$ itself.
        gap: The largest distance from the ReLU.
        n: At how many points it is compared with NumPy's.
    """
    f = lambda z: F.softplus(z, threshold=threshold)  # noqa: E731
    z = torch.linspace(-700, 700, n)
    wanted = torch.from_numpy(np.logaddexp(0, z.numpy()))
    yield at_most("relative error against NumPy", (f(z) / wanted - 1).abs(), 16 * EPS, tol=0.0)
    far = torch.tensor([-1000.0, 1000.0])
    yield equals(r"softplus at $\pm 1000$", f(far), torch.relu(far), tol=0.0)
    yield equals("slope over the logistic function", derivative(f, z) / torch.sigmoid(z), 1.0)
    yield equals("softplus at $z$ less that at $-z$", f(z) - f(-z), z)
    z = torch.arange(-1000, 1001) * 0.03
    found = f(z) - torch.relu(z)
    share = found * z.abs().exp()
    yield at_least("gap to the ReLU times $e^{|z|}$", share, math.log(2))
    yield at_most("gap to the ReLU", found, gap, tol=EPS)
    yield equals("gap to the ReLU at 0", found[1000], math.log(2), tol=EPS)


softplus.foil(
    "the naive formula overflows", refuted_by=r"softplus at $\pm 1000$", threshold=math.inf
)
softplus.foil("torch's default threshold, in double precision", threshold=20.0)
softplus.foil("a gap of one half", gap=0.5)


@claim(
    by="identity",
    sources=("B-185", "B-187"),
    budget=0.5,
    short=r"\mathrm{ELU}_\alpha(z) = z \text{ for } z \ge 0,\ \alpha (e^z - 1) \text{ for } z < 0;"
    r" \in C^1 \text{ for } \alpha = 1",
)
def elu(alpha: float = 1.0, n: int = 2001):
    r"""The exponential linear unit is once, not twice, differentiable.

    $\mathrm{ELU}_\alpha(z) = z$ for $z \ge 0$ and $\alpha (e^z - 1)$ for $z < 0$, with the range
    $(-\alpha, \infty)$. For $\alpha = 1$, the usual choice, it is continuously differentiable, a
    smooth surrogate of the ReLU like softplus, but not twice: the second derivative jumps from 1 to
    0 at the origin.

    One-sided difference quotients have a bias of at most $\frac h2 \sup |f''|$, and second ones of
    at most $h \sup |f'''|$, on the side in question. The values are checked for $\frac12$ too.

    Knobs:
        alpha: The constant for which the unit is said to be smooth.
        n: At how many points it is compared with the formula.
    """
    f = lambda z: F.elu(z, alpha)  # noqa: E731
    z = torch.linspace(-700, 700, n)
    for a in (alpha, 0.5):
        wanted = [x if x >= 0 else a * math.expm1(x) for x in z.tolist()]
        yield equals("ELU", F.elu(z, a), wanted, alpha=a)
        yield equals("smallest value of ELU", F.elu(z, a).min(), -a, alpha=a)
    h = 1e-6

    def jump(g: Callable[[Tensor], Tensor]) -> Tensor:
        low, mid, high = g(torch.tensor([-h, 0.0, h]))
        return (high - mid) / h - (mid - low) / h

    yield equals("jump of the slope at 0", jump(f), 0.0, tol=h, unit="ELU")
    yield equals("jump of the slope at 0", jump(F.softplus), 0.0, tol=h, unit="softplus")
    yield equals("jump of the slope at 0", jump(torch.relu), 1.0, unit="ReLU")
    h2 = 1e-3
    v = f(torch.tensor([-2 * h2, -h2, 0.0, h2, 2 * h2]))
    yield equals("second derivative left of 0", (v[0] - 2 * v[1] + v[2]) / h2**2, 1.0, tol=h2)
    yield equals("second derivative right of 0", (v[2] - 2 * v[3] + v[4]) / h2**2, 0.0, tol=h2)


elu.foil("with another constant the slope jumps", alpha=2.0)


@claim(
    by="identity",
    sources=("A-005", "C-169"),
    budget=0.5,
    short=r"\mathrm{GELU}(z) = z \Pr(Z \le z) = z\, \Phi(z), \quad Z \sim \mathcal N(0, 1)",
)
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

    Torch's is compared with $z$ times the normal density integrated numerically, at 3 and at random
    points.

    Knobs:
        tail: Which tail of the normal law multiplies $z$.
        approximate: Whether torch takes the error function or an approximation by tanh.
        n: How many points are drawn from $[-6, 6]$.
    """
    f = lambda z: F.gelu(z, approximate=approximate)  # noqa: E731
    density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    ends = (lambda x: (-12, x)) if tail == "lower" else (lambda x: (x, 12))  # 1e-32 is beyond
    area = lambda x: quad(density, *ends(x), epsabs=1e-11, epsrel=1e-11)[0]  # noqa: E731
    z = 12 * torch.rand(n) - 6
    yield equals("GELU", f(torch.tensor(3.0)), 3 * area(3.0), z=3)
    yield equals("GELU", f(z), z * torch.tensor([area(x) for x in z.tolist()]))
    yield equals("GELU by the error function", f(z), z / 2 * (1 + torch.erf(z / math.sqrt(2))))
    yield equals("GELU at $z$ less that at $-z$", f(z) - f(-z), z)
    far = torch.tensor([-8.0, 8.0])
    yield equals(r"GELU at $\pm 8$", f(far), torch.relu(far), tol=1e-13)


gelu.foil("the approximation by a hyperbolic tangent", approximate="tanh")
gelu.erratum(
    "C-169",
    printed=r"$\varphi(z) = z \Pr(z \leq Z)$",
    right=r"$\varphi(z) = z \Pr(Z \leq z)$",
    why=r"The inequality is reversed: the printed function is"
    r" $z (1 - \Phi(z)) = -\mathrm{GELU}(-z)$, which tends to 0 for $z \to \infty$. At $z = 3$ GELU"
    " is 2.996, the printed expression 0.004.",
    weight="hard",
    tail="upper",
)
