"""The risk to second order: near a point, and after a gradient step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals, integers, slope
from vademecum.gradients import functional, gradient, hessian
from vademecum.models import mlp
from vademecum.optimization.claims._objectives import descend, gradients_of

RING, RADIUS = 32, 0.25
"""How many points of a circle in the complex plane are evaluated, and its radius."""


def coefficients(phi: Callable[[Tensor], Tensor], orders: int = 5) -> Tensor:
    r"""The first Taylor coefficients at 0 of an analytic function, by Cauchy's integral.

    $c_k = \frac1{2 \pi r^k} \int_0^{2 \pi} \varphi(r e^{i a}) e^{-i k a} da$ by the trapezoid rule,
    whose error is about $c_{k + 32} r^{32}$; values up to 10 are rounded by 1e-15, which $r^{-k}$
    makes 1e-12 at most. No derivative is taken.
    """
    angle = 2 * torch.pi * torch.arange(RING) / RING
    values = phi(RADIUS * torch.polar(torch.ones(RING), angle))
    k = torch.arange(orders)[:, None]
    return (values * torch.exp(-1j * k * angle)).mean(1).real / RADIUS ** k[:, 0]


class Fit(nn.Module):
    """A tanh network of two inputs with its data, and its mean squared error written by hand."""

    def __init__(self, n: int = 8, hidden: int = 3):
        super().__init__()
        self.hidden = hidden
        self.net = mlp((2, hidden, 1), nn.Tanh)
        self.x, self.y = 0.7 * torch.randn(n, 2), torch.randn(n, 1)

    def risk(self, theta: Tensor) -> Tensor:
        """The risk at rows of parameters, real or complex, in plain products."""
        m = self.hidden
        W, b, v, c = theta.split([2 * m, m, m, 1], 1)
        x = self.x.to(theta)
        units = (torch.einsum("ni,rmi->rnm", x, W.reshape(len(W), m, 2)) + b[:, None]).tanh()
        return ((units * v[:, None]).sum(2) + c - self.y[:, 0]).square().mean(1)

    def along(self, v: Tensor) -> Tensor:
        """The Taylor coefficients of the risk along a vector."""
        theta = functional(self.net).theta.detach()
        return coefficients(lambda t: self.risk(theta + t[:, None] * v.to(t)))


def remainders(fit: Fit, v: Tensor, terms: Tensor, lengths: Tensor) -> Tensor:
    """What the model of given coefficients misses at given lengths along a vector."""
    theta = functional(fit.net).theta.detach()
    powers = lengths[:, None] ** torch.arange(len(terms))
    return fit.risk(theta + lengths[:, None] * v) - powers @ terms


def order(name: str, fit: Fit, v: Tensor, terms: Tensor, rate: float, **at: Any) -> Evidence:
    """Evidence that what a model misses along a vector falls like a power of the length."""
    lengths = torch.logspace(-3.5, -1.5, 9)
    c = fit.along(v)
    # The remainder is c3 h^3 (1 + (c4 / c3) h + ...): its exponent differs from 3 by (c4 / c3) h.
    bias = float((c[4] / c[3]).abs() * lengths[-1])
    return slope(name, lengths, remainders(fit, v, terms, lengths).abs(), rate, tol=bias, **at)


@claim(
    by="identity",
    sources=("B-214", "E-129"),
    budget=0.5,
    full={"draws": 50},
    short=r"f(x + \Delta) = f(x) + \nabla f \cdot \Delta + \tfrac12 \Delta^\top \nabla^2 f \Delta"
    r" + O(\|\Delta\|^3)",
)
def quadratic_model(half: float = 0.5, rate: float = 3.0, draws: int = 10):
    r"""The second-order Taylor model.

    For $f \in C^3$, $f(x + \Delta) = f(x) + \nabla f(x) \cdot \Delta + \frac12 \Delta^\top \nabla^2
    f(x) \Delta + O(\|\Delta\|^3)$ with the symmetric Hessian $\nabla^2 f$; exact for quadratics.

    Checked for the risk of a tanh network, whose `gradient` and `hessian` are compared with Taylor
    coefficients from Cauchy's integral in the complex plane, along random directions. The order is
    fitted along the one with the largest ratio of third to fourth coefficient.

    Knobs:
        half: The factor of the quadratic term.
        rate: The power of the length with which the error of the model falls.
        draws: How many directions are drawn.
    """
    fit = Fit()
    g = gradient(fit.net, fit.x, fit.y)
    H = hessian(fit.net, fit.x, fit.y).dense()
    yield equals("Hessian against its transpose", H, H.T, tol=1e-12, P=len(g))
    directions = nn.functional.normalize(torch.randn(draws, len(g)), dim=1)
    series = [fit.along(v) for v in directions]
    value = fit.risk(functional(fit.net).theta.detach()[None])[0]
    for v, c in zip(directions, series, strict=True):
        yield equals("coefficient of the length", c[1], g @ v)
        yield equals("coefficient of the squared length", c[2], half * (v @ H @ v))
    best = max(range(draws), key=lambda i: float((series[i][3] / series[i][4]).abs()))
    v = directions[best]
    terms = torch.stack([value, g @ v, half * (v @ H @ v)])
    yield order("error of the model against the length", fit, v, terms, rate, P=len(g))
    for d in (2, 4):
        h = integers(d, d, most=4)
        f = lambda x, h=h: (x @ h * x).sum(1) + x.sum(1)  # noqa: E731
        x, delta = integers(2, 20, d)
        turn = delta @ (h + h.T)
        model = f(x) + (gradients_of(f, x) * delta).sum(1) + half * (turn * delta).sum(1)
        yield equals("model of a quadratic", model, f(x + delta), tol=0.0, d=d)  # exact in doubles


quadratic_model.foil(
    "without the factor 1/2 the error is of second order",
    refuted_by="error of the model against the length",
    half=1.0,
)
quadratic_model.foil("a linear model misses the curvature", half=0.0)
quadratic_model.foil("an error between second and third order", rate=2.5)


def minimum(f: Callable[[Tensor], Tensor], d: int) -> Tensor:
    """The minimum of a smooth function of a vector, by torch's L-BFGS from a random start."""
    x = nn.Parameter(torch.randn(d))
    search = torch.optim.LBFGS(
        [x],
        max_iter=200,
        tolerance_grad=1e-13,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        value = f(x)
        value.backward()
        return value

    search.step(closure)
    return x.detach()


@claim(
    by="identity",
    sources=("A-077", "B-216"),
    budget=0.5,
    full={"draws": 50},
    short=r"\arg\min_\Delta\ g \cdot \Delta + \tfrac1{2 \eta} \|\Delta\|^2 = -\eta g",
)
def isotropic_model(power: int = -1, half: float = 0.5, draws: int = 3):
    r"""Gradient descent as an isotropic Newton step.

    Replacing the Hessian in the quadratic model by $\frac1\eta I$ turns the Newton step
    $-[\nabla^2 f]^{-1} \nabla f$ into $-\eta \nabla f$: a smaller learning rate means a larger
    assumed curvature and a shorter step. On $\frac1{2 \eta} \|x\|^2$ the two steps are the same.

    Checked for the step of torch's `SGD` on the risk of a tanh network, against the minimum of the
    model that L-BFGS finds from values and slopes.

    Knobs:
        power: The power of $\eta$ in place of the Hessian.
        half: The factor of the quadratic term of the model.
        draws: How many networks are drawn.
    """
    for _ in range(draws):
        fit = Fit()
        theta, g = functional(fit.net).theta.detach(), gradient(fit.net, fit.x, fit.y)
        lengths = []
        for eta in (0.1, 0.5, 3.0):
            step = (descend(fit.risk, theta[None], eta, 1)[-1] - theta)[0]
            model = lambda v, e=eta: g @ v + half * e**power * (v @ v)  # noqa: B023, E731
            found = minimum(model, len(g))
            # Values of the model near its minimum are rounded by 1e-16 of |g|^2 eta.
            yield equals("step of gradient descent", step, found, tol=1e-7, eta=eta)
            lengths.append(float(step.norm() * eta**power / g.norm()))
        yield equals("length of a step times the curvature, over $|g|$", lengths, 1.0)
    for eta, d in ((0.2, 2), (4.0, 3)):
        f = lambda x, e=eta: half * e**power * x.square().sum(1)  # noqa: E731
        x = torch.randn(1, d)
        bend = torch.autograd.functional.hessian(lambda v, f=f: f(v[None])[0], x[0])
        newton = -torch.linalg.solve(torch.as_tensor(bend), gradients_of(f, x)[0])
        step = (descend(f, x, eta, 1)[-1] - x)[0]
        yield equals("Newton's step on a sphere", newton, step, eta=eta, d=d)


isotropic_model.foil(r"$\eta I$ in place of the Hessian gives $-g / \eta$", power=1)
isotropic_model.foil(r"without the factor 1/2 the step is $-\frac\eta2 g$", half=1.0)
