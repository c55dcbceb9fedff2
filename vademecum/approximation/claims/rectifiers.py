"""Rectifiers: the ReLU, the absolute value and the leaky ReLU."""

import math
import operator
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.approximation import AbsUnit
from vademecum.approximation.claims.activations import derivative
from vademecum.claims import at_least, at_most, claim, equals, lowest

COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
CASES = r"$\mathrm{ReLU}'(x) = \begin{cases} 0 & x \le 0 \\ 1 & x \ge 0 \end{cases}$"
RIGHT = r"$\mathrm{ReLU}'(x) = \begin{cases} 0 & x < 0 \\ 1 & x > 0 \end{cases}$, undefined at 0"


@claim(
    by="identity",
    sources=("B-167", "B-168", "B-169", "C-065", "D-143", "D-144"),
    budget=0.5,
    short=r"\mathrm{ReLU}(z) = \max\{0, z\}, \quad \mathrm{ReLU}'(z) = [z > 0]"
    r" \text{ for } z \ne 0",
)
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
    do not. All numbers are dyadic, so that quotients are exact. A slope that is 0.1 outside the
    subdifferential lies above the ReLU at one of $\pm 5$, by 0.5.

    Knobs:
        edges: The relations to 0 by which the table of cases gives the slopes 0 and 1.
        subdifferential: The ends of the subdifferential at 0.
        n: How many points are drawn.
    """
    lowest("n", n, 2)
    special = torch.tensor([0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, math.inf, -math.inf])
    z = torch.cat([special, torch.randn(n)])
    yield equals("ReLU", torch.relu(z), np.maximum(z.numpy(), 0.0), tol=0.0)
    z = torch.randint(-1000, 1001, (n,)) / 8
    z[0] = 0.0
    for c in (0.0, 0.25, 1.0, 8.0):
        yield equals("ReLU of a multiple", torch.relu(c * z), c * torch.relu(z), tol=0.0, c=c)
    middle = torch.relu((z + z.flip(0)) / 2)
    yield at_most("ReLU of a mean", middle, (torch.relu(z) + torch.relu(z.flip(0))) / 2)
    h = 1 / 16
    left, right = ((torch.relu(z + s * h) - torch.relu(z)) / (s * h) for s in (-1, 1))
    below, above = (COMPARE[edge](z, 0) for edge in edges)
    given, smooth = below.long() + above.long(), left == right
    yield equals("one-sided slopes at 0", [left[0], right[0]], [0.0, 1.0], tol=0.0)
    yield equals("values that the table of cases gives at 0", int(given[0]), 0)
    name = "values that the table of cases gives at a point"
    yield equals(name, given[1:], smooth[1:].long())
    yield equals("slope by the table of cases", above.double()[smooth], left[smooth], tol=0.0)
    yield equals("slope by autograd", derivative(torch.relu, z), (z > 0).double(), tol=0.0)
    low, high = subdifferential
    y = torch.linspace(-5, 5, 1001)
    for g in (low, 0.7 * low + 0.3 * high, high):
        yield at_least("ReLU above a line of slope $g$ through 0", torch.relu(y), g * y, g=g)
    for g in (low - 0.1, high + 0.1):
        above = (g * y - torch.relu(y)).max()
        yield at_least("height over the ReLU of a line of slope $g$ outside", above, 0.5, g=g)


relu.foil("a slope below 0 or above 1 supports nothing", subdifferential=(-0.1, 1.1))
relu.foil("the subdifferential at 0 is the whole interval", subdifferential=(0.25, 0.75))
relu.erratum(
    "D-144",
    printed=CASES,
    right=RIGHT,
    why=r"As scanned: both branches claim $x = 0$ and give it the values 0 and 1 at once (the scan"
    r" may have read $\ge$ for $>$); the left and right difference quotients there are 0 and 1, so"
    " the derivative does not exist.",
    weight="scan",
    refuted_by="values that the table of cases gives at 0",
    edges=("<=", ">="),
)


@claim(
    by="identity",
    sources=("A-038", "A-040", "A-041", "B-180", "B-182", "B-183", "B-184", "B-194"),
    budget=0.5,
    short=r"z_+ = \tfrac12 (z + |z|), \quad |z| = 2 z_+ - z,"
    r" \quad 2 \max\{f, g\} = f + g + |f - g|",
)
def abs_unit(slope: int = 2, share: int = 2, n: int = 1000):
    r"""The absolute value unit, the ReLU and the maximum generate each other.

    $z_+ = \frac12 (z + |z|)$ and $|z| = 2 z_+ - z = z_+ + (-z)_+$; likewise
    $2 \max\{f, g\} = f + g + |f - g|$. The absolute value is even, convex and 1-Lipschitz. It is
    active on either side of its hyperplane, hence not sparse like the ReLU: of $z_+$ and $(-z)_+$
    one is zero, of $|z|$ and $|-z|$ none, unless $z = 0$.

    Integers, so that all comparisons are exact.

    Knobs:
        slope: The multiple of $z_+$ in $|z|$.
        share: The multiple of the maximum on the left.
        n: How many pairs of integers are drawn.
    """
    lowest("n", n, 2)
    unit = AbsUnit()
    f, g = torch.randint(-1000, 1001, (2, n))
    f[0], g[0] = 0, 1
    yield equals("$z + |z|$", f + unit(f), 2 * torch.relu(f))
    yield equals("$2 z_+ - z$", slope * torch.relu(f) - f, unit(f))
    yield equals("$z_+ + (-z)_+$", torch.relu(f) + torch.relu(-f), unit(f))
    yield equals("$f + g + |f - g|$", f + g + unit(f - g), share * torch.maximum(f, g))
    yield equals("$|-z|$", unit(-f), unit(f))
    yield at_most("$|f + g|$", unit(f + g), unit(f) + unit(g))
    yield at_most("$||f| - |g||$", (unit(f) - unit(g)).abs(), (f - g).abs())
    z = f[f != 0]
    zeros = (torch.relu(z) == 0).long() + (torch.relu(-z) == 0).long()
    yield equals("zeros among $z_+$ and $(-z)_+$", zeros, 1)
    yield equals("zeros among $|z|$ and $|-z|$", (unit(z) == 0).long() + (unit(-z) == 0).long(), 0)


abs_unit.foil(r"$|z| = z_+ - z$, the factor 2 lost", slope=1)
abs_unit.foil(r"$\max\{f, g\} = f + g + |f - g|$, the factor 2 lost", share=1)


@claim(
    by="identity",
    sources=("B-188",),
    budget=0.5,
    short=r"z_+ - \epsilon\, (-z)_+ = \max\{z, \epsilon z\}, \quad 0 < \epsilon < 1",
)
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

    Knobs:
        epsilon: The slope on the inactive side.
        form: The function of $z$ and $\epsilon z$ that the unit is said to be.
        n: How many integers are drawn, beside $-1$ and 1.
    """
    z = torch.cat([torch.tensor([-1.0, 1.0]), torch.randint(-1000, 1001, (n,)).double()])
    leaky = lambda z: F.leaky_relu(z, epsilon)  # noqa: E731
    parts = torch.relu(z) - epsilon * torch.relu(-z)
    yield equals("leaky ReLU as a difference", leaky(z), parts, tol=0.0)
    yield equals("leaky ReLU as an extreme of two lines", leaky(z), form(z, epsilon * z), tol=0.0)
    slopes = torch.where(z > 0, 1.0, epsilon)
    yield equals("slope of the leaky ReLU", derivative(leaky, z)[z != 0], slopes[z != 0], tol=0.0)
    x = 1 + torch.rand(20)
    for unit, slope, name in ((torch.relu, 0.0, "ReLU"), (leaky, epsilon, "leaky ReLU")):
        found = derivative(lambda w, u=unit: u(w * x - 10).sum(), torch.ones(()))
        yield equals("gradient in the weight of an inactive unit", found, slope * x.sum(),
                     unit=name)  # fmt: skip


leaky_relu.foil("the minimum of the two lines", form=torch.minimum)
leaky_relu.foil("the maximum needs a slope of at most one", epsilon=2.0)
