"""Hessians of smooth and strongly convex functions: between two multiples of the identity."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import Ball, smoothness_constant, strong_convexity_constant
from vademecum.gradients import hessian
from vademecum.optimization.claims._objectives import gradients_of, logistic, softplus


def penalised(x: Tensor, y: Tensor, ridge: float) -> tuple[nn.Linear, Tensor, Any]:
    """A linear model, its inputs and its loss: a sum of logistic losses and a ridge penalty.

    The penalty is a half square of outputs, too, at the inputs sqrt(ridge) times the unit vectors.
    """
    n, d = x.shape
    inputs = torch.cat([x, ridge**0.5 * torch.eye(d)])

    def loss(z: Tensor, y: Tensor) -> Tensor:
        return softplus(-y * z[:n, 0]).sum() + z[n:].square().sum() / 2

    return nn.Linear(d, 1, bias=False), inputs, loss


@claim(
    by="sampling",
    sources=("A-105", "B-222"),
    budget=0.5,
    full={"n": 1000},
    short=r"f\ \mu\text{-strongly convex}, L\text{-smooth} \iff"
    r" \mu I \preceq \nabla^2 f(x) \preceq L I\ \forall x",
)
def hessian_bounds(quarter: float = 0.25, factor: float = 1.0, n: int = 10):
    r"""Hessian bounds of smooth strongly convex functions.

    A twice differentiable convex $f$ is $\mu$-strongly convex and $L$-smooth if and only if
    $\mu I \preceq \nabla^2 f(x) \preceq L I$ everywhere. For logistic regression with a ridge
    penalty, $\mu = \lambda$ and $L = \lambda + \frac14 \lambda_{\max}(X^\top X)$ (sum of losses).

    Checked with `hessian`, which must be $X^\top \operatorname{diag}(p (1 - p)) X + \lambda I$, and
    its eigenvalues: the upper end is reached at $\theta = 0$, the lower one everywhere if there are
    fewer examples than variables. Random pairs obey the inequalities of smoothness and of strong
    convexity with the same constants, which `smoothness_constant` and `strong_convexity_constant`
    find.

    Knobs:
        quarter: The factor of $\lambda_{\max}(X^\top X)$ in $L$.
        factor: What $\lambda$ is multiplied by in $\mu$.
        n: How many points are drawn.
    """
    for (s, d), ridge in (((3, 5), 0.2), ((12, 3), 1.5)):
        x, y = torch.randn(s, d), torch.randn(s).sign()
        mu = factor * ridge
        L = ridge + quarter * float(torch.linalg.eigvalsh(x.T @ x)[-1])
        at: dict[str, Any] = {"s": s, "d": d}
        model, inputs, loss = penalised(x, y, ridge)
        for theta in (torch.zeros(d), *(2 * torch.randn(n, d))):
            with torch.no_grad():
                model.weight.copy_(theta[None])
            H = hessian(model, inputs, y, loss=loss).dense()
            p = torch.sigmoid(x @ theta)
            exact = x.T @ ((p * (1 - p))[:, None] * x) + ridge * torch.eye(d)
            yield equals("Hessian of a penalised loss", H, exact, tol=1e-10, **at)
            values = torch.linalg.eigvalsh(H)
            yield at_least("least eigenvalue", values[0], mu, tol=1e-10, **at)
            yield at_most("largest eigenvalue", values[-1], L, tol=1e-10, **at)
            if not theta.any():
                yield equals("largest eigenvalue at 0", values[-1], L, tol=1e-10, **at)
            if s < d:
                yield equals("least eigenvalue, few examples", values[0], mu, tol=1e-10, **at)
        mean = logistic(x, y, ridge / s)
        risk = lambda w, f=mean, s=s: s * f(w)  # noqa: E731
        value = loss(model(inputs), y)
        yield equals("penalised loss", risk(model.weight.detach()), value, **at)
        a, b = torch.randn(2, n, d)
        square = (a - b).square().sum(1)
        change = gradients_of(risk, a) - gradients_of(risk, b)
        yield at_most("change of the gradient", change.norm(dim=1), L * square.sqrt(), **at)
        yield at_least("scalar product with the change", (change * (a - b)).sum(1), mu * square,
                       **at)  # fmt: skip
        ball = Ball(torch.zeros(d), 1e-3)  # where curvatures differ by 1e-5, however it is searched
        found = smoothness_constant(risk, ball, pairs=4, starts=1, steps=1).value
        yield equals("largest curvature found near 0", found / L, 1.0, tol=1e-4, **at)
        if s < d:
            found = strong_convexity_constant(risk, ball, pairs=4, starts=1, steps=1).value
            yield equals("least curvature found near 0", found, mu, tol=1e-7, **at)


hessian_bounds.foil("an eighth in place of a quarter", quarter=0.125)
hessian_bounds.foil("twice the penalty, with few examples", factor=2.0)
