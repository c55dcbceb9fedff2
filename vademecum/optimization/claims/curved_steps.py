"""What curvature does to a gradient step: a term of second order, and a step that is too long."""

from collections.abc import Callable, Iterator
from typing import Literal

import scipy.optimize
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, complex_step, equals
from vademecum.gradients import functional, gradient, hvp
from vademecum.optimization import critical_step
from vademecum.optimization.claims._objectives import descend, gradients_of
from vademecum.optimization.claims.taylor import Fit, coefficients, order

Analytic = Callable[[Tensor], Tensor]


def risks() -> dict[str, tuple[Analytic, Tensor]]:
    """Risks of real or complex rows, and where the step is taken."""
    x, t, w = torch.randn(6, 3), torch.randn(6), torch.randn(3)
    s = torch.randn(6).sign()
    half = torch.tensor([0.5])
    return {
        "least squares": (lambda v: (v @ x.to(v).T - t).square().mean(1), w),
        "logistic": (lambda v: (1 + (-(v @ x.to(v).T) * s).exp()).log().mean(1), w),
        "(w1 w2 - 1)^2": (lambda v: (v.prod(1) - 1) ** 2, torch.tensor([0.1, 0.1])),
        "x^2/2 + x^3/6": (lambda v: v[:, 0] ** 2 / 2 + v[:, 0] ** 3 / 6, half),
        "x^2/2 - x^3/6": (lambda v: v[:, 0] ** 2 / 2 - v[:, 0] ** 3 / 6, half),
        "x^4": (lambda v: v[:, 0] ** 4, half),
    }


def terms(risk: Analytic, theta: Tensor) -> Tensor:
    r"""The coefficients of $\eta^k$ in the risk after a gradient step, without the Hessian."""
    g = gradients_of(risk, theta[None])[0]
    u = g / g.norm()
    return coefficients(lambda t: risk(theta - t[:, None] * u)) * g.norm() ** torch.arange(5)


@claim(
    by="identity",
    sources=("E-128", "E-131", "E-132", "E-135"),
    budget=0.5,
    full={"draws": 30},
    short=r"R(\theta - \eta g) = R(\theta) - \eta \|g\|^2 + \tfrac{\eta^2}2 g^\top H g + O(\eta^3)",
)
def gradient_step_expansion(
    half: float = 0.5,
    rate: float = 3.0,
    over: Literal["nothing", "|g|^2"] = "nothing",
    convex: tuple[str, ...] = ("least squares", "logistic"),
    falling: tuple[str, ...] = ("x^2/2 + x^3/6",),
    draws: int = 5,
):
    r"""The risk after a gradient step to second order.

    With $g = \nabla R(\theta)$ and $H = \nabla^2 R(\theta)$, $R(\theta - \eta g) = R(\theta)
    - \eta \|g\|^2 + \frac{\eta^2}2 g^\top H g + O(\eta^3)$. The first-order term is never positive
    (zero only at critical points); the curvature term is not negative when $H \succeq 0$, but risks
    of networks have indefinite Hessians and it can have either sign, as can all higher terms.

    Checked for tanh networks: `gradient` and `hessian` against Taylor coefficients from Cauchy's
    integral in the complex plane. For $(w_1 w_2 - 1)^2$ at $(0.1, 0.1)$ the Hessian has the
    eigenvalues $-1.94$ and $1.98$, and $g^\top H g = -0.152$; the third-order term of
    $\frac12 x^2 - \frac16 x^3$ at $\frac12$ is $+\frac16 (\frac38)^3 \eta^3$, the fourth of $x^4$
    there $+\frac1{16} \eta^4$.

    Knobs:
        half: The factor of the curvature term.
        rate: The power of the step with which the error falls.
        over: What $g^\top H g$ is divided by.
        convex: The risks whose curvature term is said to be never negative.
        falling: The risks whose terms beyond the second are said to be negative.
        draws: How many networks are drawn.
    """
    table = risks()
    for name in convex:
        yield at_least("curvature term $g^T H g$", 2 * terms(*table[name])[2], 0.0, R=name)
    for name in falling:
        for k, c in enumerate(terms(*table[name])[3:], 3):
            yield at_most("coefficient of a higher term", c, 0.0, k=k, R=name)
    fits = []
    for _ in range(draws):
        fit = Fit()
        g = gradient(fit.net, fit.x, fit.y)
        exact = complex_step(lambda t, fit=fit: fit.risk(t[None])[0], functional(fit.net).theta)
        yield equals("gradient of a network", g, exact, tol=1e-12)
        turn = g @ hvp(fit.net, fit.x, fit.y, g)
        stated = half * turn / (1.0 if over == "nothing" else g @ g)
        c = fit.along(-g / g.norm()) * g.norm() ** torch.arange(5)
        yield equals("coefficient of $\\eta$ for a network", c[1], -g @ g)
        yield equals("coefficient of $\\eta^2$ for a network", c[2], stated)
        fits.append(
            (float((c[3] / c[4]).abs() * g.norm()), fit, g, torch.stack([c[0], c[1], stated]))
        )
    _, fit, g, known = max(fits, key=lambda case: case[0])
    known = known / g.norm() ** torch.arange(3)
    name = "error of the expansion against the length of the step"
    yield order(name, fit, -g / g.norm(), known, rate)
    yield from by_hand(table)


def by_hand(table: dict[str, tuple[Analytic, Tensor]]) -> Iterator[Evidence]:
    """Terms of either sign, with their values worked out by hand."""
    risk, w = table["(w1 w2 - 1)^2"]
    c = terms(risk, w)
    g, bend = 2 * 0.99 * 0.1, torch.tensor([[0.02, 4 * 0.01 - 2], [4 * 0.01 - 2, 0.02]])
    yield equals("coefficient of $\\eta$ of $(w_1 w_2 - 1)^2$", c[1], -2 * g**2)
    yield equals("$g^T H g$ of $(w_1 w_2 - 1)^2$", 2 * c[2], g**2 * bend.sum())
    yield at_most("$g^T H g$ of $(w_1 w_2 - 1)^2$", 2 * c[2], -0.152)
    found = torch.autograd.functional.hessian(lambda v: risk(v[None])[0], w)
    values = torch.linalg.eigvalsh(torch.as_tensor(found))
    yield equals("eigenvalues of its Hessian", values, torch.tensor([-1.94, 1.98]))
    for name, known in (
        ("x^2/2 - x^3/6", [-((3 / 8) ** 2), (3 / 8) ** 2 / 4, (3 / 8) ** 3 / 6, 0.0]),
        ("x^2/2 + x^3/6", [-((5 / 8) ** 2), (5 / 8) ** 2 * 3 / 4, -((5 / 8) ** 3) / 6, 0.0]),
        ("x^4", [-1 / 4, 6 / 4 / 4, -2 / 8, 1 / 16]),
    ):
        yield equals("coefficients of the expansion", terms(*table[name])[1:], known, R=name)


gradient_step_expansion.foil(
    "without the factor 1/2", refuted_by="coefficient of $\\eta^2$ for a network", half=1.0
)
gradient_step_expansion.foil(
    "the curvature along the unit vector of the gradient",
    refuted_by="error of the expansion against the length of the step",
    over="|g|^2",
)
gradient_step_expansion.foil("an error between second and third order", rate=2.5)
gradient_step_expansion.erratum(
    "E-132",
    printed="the second-order term is always positive, because the Hessian is positive"
    " semi-definite",
    right=r"$g^\top H g \ge 0$ where $H \succeq 0$; for networks it can have either sign",
    why=r"risks of networks are not convex: for $(w_1 w_2 - 1)^2$ at $(0.1, 0.1)$ the gradient is"
    r" $(-0.198, -0.198)$ and $g^\top H g = -0.152$. Even $H \succeq 0$ gives only"
    " non-negativity",
    weight="hard",
    convex=("(w1 w2 - 1)^2",),
)
gradient_step_expansion.erratum(
    "E-135",
    printed="the remaining terms (beyond second order) are negative, by the Taylor sum",
    right="the remaining terms can have either sign",
    why=r"nothing fixes their sign: for $\theta^4$ the fourth-order term is $(\eta g)^4 > 0$, for"
    r" $\theta^2/2 - \theta^3/6$ at $\theta = \frac12$ the cubic term is $+\eta^3 (3/8)^3 / 6$",
    weight="hard",
    falling=("x^2/2 - x^3/6", "x^4"),
)


def exact_change(h: Tensor, b: Tensor, theta: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    r"""The sign of the change of $\frac12 \theta^\top H \theta + b^\top \theta$, in integers.

    By a step of size p / q, for batches; and $g^\top H g$ and $g^\top g$.
    """
    risk = lambda z, scale: (  # noqa: E731
        torch.einsum("ni,nij,nj->n", z, h, z) + 2 * scale * (b * z).sum(1)
    )
    g = torch.einsum("nij,nj->ni", h, theta) + b
    moved = q[:, None] * theta - p[:, None] * g  # q times the new point
    change = risk(moved, q) - q**2 * risk(theta, torch.ones_like(q))  # 2 q^2 times the change
    return change.sign(), torch.einsum("ni,nij,nj->n", g, h, g), (g * g).sum(1)


@claim(
    by="identity",
    sources=("E-130", "E-133", "E-134"),
    budget=0.5,
    full={"n": 100_000},
    short=r"R(\theta - \eta g) < R(\theta) \iff \eta\, g^\top H g < 2\, g^\top g"
    r" \quad \text{(to second order)}",
)
def curvature_threshold(threshold: int = 2, metric: Literal["H", "Euclidean"] = "H", n: int = 1000):
    r"""When a gradient step raises the risk.

    To second order a gradient step lowers the risk if and only if the curvature along the gradient
    satisfies $\frac{g^\top H g}{g^\top g} < \frac2\eta$, and raises it when the quotient exceeds
    $2 / \eta$, that is, when $\frac\eta2 \|g\|_H^2 > \|g\|_2^2$; on quadratics this is exact. The
    square of $\eta$ tames the curvature term except along directions of very large curvature. One
    increase is not yet divergence.

    Checked in exact integers on quadratics of both signs, with steps at random, just beside the
    threshold and on it, where the risk stays the same; with torch's `SGD` on least squares, where
    the step at which the risk begins to rise is searched for, and is the `critical_step`; and on
    $\frac12 (w_1 w_2 - 1)^2$, where a step of $\frac12$ from $(2.2, 0.5)$ climbs first and then
    converges to a flatter minimum.

    Knobs:
        threshold: The number over $\eta$ that the quotient is compared with.
        metric: In which metric the gradient is measured on the left.
        n: How many quadratics are drawn in each dimension.
    """
    for d in (2, 3):
        half = torch.randint(-3, 4, (n, d, d))
        h, b, theta = half + half.mT, *torch.randint(-3, 4, (2, n, d))
        p, q = torch.randint(1, 9, (2, n))
        _, bent, square = exact_change(h, b, theta, p, q)
        fine = (bent > 0) & (torch.arange(n) % 2 == 0)  # every other step is at the threshold
        off = torch.arange(n) % 3 - 1
        p, q = torch.where(fine, 20 * square + off, p), torch.where(fine, 10 * bent, q)
        change, bent, square = exact_change(h, b, theta, p, q)
        left = bent if metric == "H" else square
        stated = (p * left - threshold * q * square).sign()
        moves = square > 0
        yield equals("sign of the change of the risk", change[moves], stated[moves], d=d)
    for curvature in (1, 10**4):
        one = torch.tensor([[0, 1]]) if curvature > 1 else torch.tensor([[1, 0]])
        h = torch.tensor([[[1, 0], [0, 10**4]]])
        for share, sense in ((999, -1), (1000, 0), (1001, 1)):
            p = threshold * share
            q = torch.tensor([curvature * 1000])
            change, *_ = exact_change(h, torch.zeros(1, 2).long(), one, torch.tensor([p]), q)
            name = "sign of the change on diag(1, 10000)"
            yield equals(name, change, sense, eta=p / float(q))
    yield from searched(threshold)


def searched(threshold: int) -> Iterator[Evidence]:
    """Where the risk of a linear model begins to rise, and a rise that is not yet divergence."""
    model, x, y = nn.Linear(3, 2), torch.randn(9, 3), torch.randn(9, 2)
    g = gradient(model, x, y)
    quotient = float(g @ hvp(model, x, y, g) / (g @ g))
    f = functional(model)
    risk = lambda rows: torch.stack([nn.functional.mse_loss(f(t, x), y) for t in rows])  # noqa: E731
    start = f.theta.detach()[None]
    change = lambda eta: float(risk(descend(risk, start, eta, 1)[-1]) - risk(start))  # noqa: E731
    longest = scipy.optimize.brentq(change, 0.5 / quotient, 8 / quotient, xtol=1e-14)
    yield equals("longest step that does not raise the risk", longest, threshold / quotient)
    found = critical_step(model, x, y, tol=1e-12)
    yield equals("critical step, by forward passes", found.value, threshold / quotient)
    yield equals("curvature along the gradient, by forward passes", found.curvature, quotient)
    product = lambda w: (w.prod(1) - 1) ** 2 / 2  # noqa: E731
    path = product(descend(product, torch.tensor([[2.2, 0.5]]), 0.5, 100)[:, 0])
    yield at_least("risk after the first step, over that of the start", path[1] / path[0], 1.5)
    yield at_most("risk after 100 steps", path[-1], 1e-12)


curvature_threshold.foil(r"the threshold $1 / \eta$", threshold=1)
curvature_threshold.foil(
    r"the index $H$ of the norm is lost, which leaves $\frac\eta2 > 1$", metric="Euclidean"
)
