"""Derivatives of convex functions: tangents below, curvature upwards."""

import math
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, integers
from vademecum.foundations import Box, bregman_divergence, strong_convexity_constant
from vademecum.foundations.claims.convexity import ROUNDING, Function, chords, search


@claim(
    by="sampling",
    sources=("A-099", "B-218", "C-101", "D-041", "E-039"),
    budget=0.5,
    full={"n": 100_000},
    short=r"f \text{ convex} \iff f(y) \ge f(x) + \nabla f(x)^\top (y - x) \;\; \forall x, y",
)
def convexity_first_order(
    among: Literal["convex", "cubic", "saddle"] = "convex", sense: int = 1, n: int = 300
):
    r"""The first-order characterisation of convexity.

    A differentiable $f$ on an open convex set is convex if and only if
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x)$ for all $x, y$: every tangent plane is a global
    underestimator. Hence $\nabla f(x) = 0$ makes $x$ a global minimiser.

    Checked by `bregman_divergence`: exactly on integers for $\|B x\|^2$, where the gap is
    $\|B (y - x)\|^2$, and for $(a^\top x)^4$; for log-sum-exp the gap is
    $\mathrm{KL}(\mathrm{softmax}(x) \,\|\, \mathrm{softmax}(y))$.

    Knobs:
        among: Which function stands beside the convex ones, in place of $(a^\top x)^4$.
        sense: The sign of the gap.
        n: How many pairs of points are drawn in each dimension.
    """
    wrong: dict[str, Function] = {
        "cubic": lambda x: (x**3).sum(1),
        "saddle": lambda x: x[:, 0] ** 2 - x[:, 1] ** 2,
    }
    for d in (2, 3, 5):
        x, y = integers(2, n, d)
        x[0], y[0] = 0, -2
        x[1:2], y[1:2] = 0, torch.eye(d)[1]
        b, a = integers(d, d, most=3), integers(d, most=3)
        f = wrong.get(among, lambda x, a=a: (x @ a) ** 4)
        gap = bregman_divergence(f, y, x).long()  # exact integers
        yield at_least("rise above the tangent plane", sense * gap, 0, d=d)
        gap = bregman_divergence(lambda x, b=b: (x @ b.T).square().sum(1), y, x).long()
        exact = ((y - x) @ b.T).square().sum(1).long()
        yield equals("rise of $|B x|^2$ above its tangent plane", gap, exact, d=d)
        x, y = torch.randn(2, n, d)
        gap = bregman_divergence(lambda x: x.logsumexp(1), y, x)
        p, q = x.log_softmax(1), y.log_softmax(1)
        exact = (p.exp() * (p - q)).sum(1)
        yield equals("rise of log-sum-exp above its tangent plane", gap, exact, tol=1e-12, d=d)
        bottom = torch.randn(d)  # where the gradient of the next function vanishes
        f = lambda x, b=b, c=bottom: ((x - c) @ b.T).square().sum(1)  # noqa: E731
        rise = sense * (f(y) - f(bottom[None]))
        yield at_least("rise above a stationary point", rise, 0.0, d=d)


convexity_first_order.foil("the cube falls below its tangents", among="cubic")
convexity_first_order.foil("a saddle falls below its tangent plane", among="saddle")
convexity_first_order.foil("the reversed inequality is that of concave functions", sense=-1)


def derivative(f: Function, x: Tensor, order: int) -> Tensor:
    """The derivative of a function of one variable at many points, by autograd."""
    x = x.clone().requires_grad_()
    value = f(x)
    for _ in range(order):
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    return value.detach()


@claim(
    by="sampling",
    sources=("C-100", "D-042", "E-040"),
    budget=1.0,
    full={"n": 5000},
    short=r"f \text{ convex} \iff f''(x) \ge 0 \;\forall x \quad (\nabla^2 f(x) \succeq 0)",
)
def convexity_second_order(order: int = 2, n: int = 100):
    r"""The second-order characterisation of convexity.

    A twice differentiable $f$ on an open interval is convex if and only if $f''(x) \ge 0$
    everywhere; in several variables if and only if $\nabla^2 f(x) \succeq 0$ everywhere on the open
    convex domain. ($f'' > 0$ is sufficient, not necessary, for strict convexity: $x^4$.)

    Checked for functions on $[-1, 1]$, convex by the midpoints of a grid of chords; and exactly for
    all quartics $x^4 + a x^3 + b x^2$ with integers $|a|, |b| \le 8$, where
    $\min f'' = 2 b - \frac34 a^2$ at $x_0 = -\frac a4$: if it is negative, the chord between
    $x_0 \pm \frac13$ lies below the graph, and if not, no chord does. In several variables
    `strong_convexity_constant` finds the least eigenvalue, and `convexity_violation` a chord
    exactly where that is negative.

    Knobs:
        order: The order of the derivative that must not be negative.
        n: How many chords are drawn for the quartics.
    """
    x = torch.arange(-20, 21) / 20
    curves = {
        "x^2": torch.square,
        "x^4": lambda x: x**4,
        "x^3": lambda x: x**3,
        "arctan": torch.atan,
    }
    for name, f in curves.items():
        least = derivative(f, x, order).min()
        rise = f((x + x[:, None]) / 2) - (f(x) + f(x)[:, None]) / 2
        if rise.max() < ROUNDING:
            yield at_least("least derivative of a convex function", least, 0.0, function=name)
        else:
            yield at_most(
                "least derivative of a function that is not convex", least, -0.1, function=name
            )
    a, b = (v.flatten()[:, None] for v in torch.meshgrid(*[torch.arange(-8, 9)] * 2, indexing="ij"))
    f = lambda x: x**4 + 12 * a * x**3 + 144 * b * x**2  # x in units of 1/12  # noqa: E731
    x, y, k, z = (v.flatten() for v in chords(n, 1, reach=12))
    crossed = 8 * f(z) > k * f(x) + (8 - k) * f(y)
    violated = crossed.any(1) | (2 * f(-3 * a) > f(-3 * a + 4) + f(-3 * a - 4))[:, 0]
    least = {2: 8 * b - 3 * a**2, 1: torch.full_like(b, -1)}[order]  # f' has no lower bound
    yield equals("whether a quartic is called convex", (least >= 0)[:, 0], ~violated)
    yield from curvatures()


def curvatures():
    """The least curvatures that are searched for, and the gaps where they are negative."""
    for c in (0.3, 1.9, 2.1):  # the Hessian has the eigenvalues 2 + c and 2 - c
        f = lambda x, c=c: x.square().sum(1) + c * x.prod(1)  # noqa: E731
        cube = Box(-torch.ones(2), torch.ones(2))
        least = strong_convexity_constant(f, cube, pairs=20, starts=2, steps=2).value
        yield equals("least eigenvalue of a Hessian", least, 2 - c, c=c)
        gap = search(f, -1.0, 1.0, d=2, steps=8).gap
        yield equals("largest gap of a chord", gap, max(c - 2, 0.0), c=c)
    known: dict[str, tuple[Function, float, float, float]] = {
        "softplus": (torch.nn.functional.softplus, -5.0, 5.0, 1 / (2 + 2 * math.cosh(5))),
        "-log": (lambda x: -x.log(), 0.5, 4.0, 1 / 16),
        "x^4": (lambda x: x**4, -1.0, 1.0, 0.0),
    }
    for name, (f, low, high, least) in known.items():
        box = Box(torch.tensor([low]), torch.tensor([high]))
        found = strong_convexity_constant(
            lambda x, f=f: f(x)[:, 0], box, pairs=20, starts=4, steps=10
        )
        yield equals("least curvature of one variable", found.value, least, function=name)


convexity_second_order.erratum(
    "D-042",
    printed=r"$f'(x) \ge 0$ (first derivative) as the condition for convexity",
    right=r"$f''(x) \ge 0$",
    why=r"as scanned, one prime is missing. Both sheets that carry the line show a single prime,"
    r" but a scan in small type easily drops the second one. A non-negative first derivative means"
    r" non-decreasing: $x^2$ is convex with derivative $-2$ at $-1$; $\arctan x$ has positive"
    r" derivative and is not convex",
    weight="scan",
    refuted_by="least derivative of a convex function",
    order=1,
)
convexity_second_order.erratum(
    "E-040",
    printed=r"$f'(x) \ge 0$ (first derivative) as the condition for convexity",
    right=r"$f''(x) \ge 0$",
    why=r"as scanned, the same missing prime, which the scan may have dropped. The condition"
    r" characterises monotone, not convex functions; $x^3$ satisfies it and is not convex",
    weight="scan",
    refuted_by="least derivative of a function that is not convex",
    order=1,
)
