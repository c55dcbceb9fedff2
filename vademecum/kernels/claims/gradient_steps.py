"""Steps and flow: what they do to outputs, in terms of the tangent kernel."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from vademecum.claims import at_most, claim, complex_step, equals, slope
from vademecum.gradients import jacobian
from vademecum.kernels import empirical_ntk
from vademecum.kernels.claims.tangents import Pooled, moved, pooled


def gradient_of(f: Callable[[np.ndarray], Any], theta: np.ndarray) -> np.ndarray:
    """The gradient by complex steps."""
    return complex_step(lambda t: f(t).sum(), theta).numpy()


def example_loss(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A loss of one example that is not quadratic, log(1 + e^z) - y z summed over outputs."""
    return (np.log1p(np.exp(z)) - y * z).sum(-1)


@claim(
    by="fit",
    sources=("D-365",),
    budget=0.6,
    short=r"\Delta f(x) = -\eta\, K_\theta(x, \xi)\, \ell'(f(\xi)) + O(\eta^2)",
)
def ntk_coupling(
    kernel: Literal["tangent", "inputs"] = "tangent", sign: float = -1.0, factor: float = 1.0
):
    r"""The NTK couples predictions.

    One gradient step of size $\eta$ on the loss $\ell$ of the single example $\xi$ moves the
    prediction at $x$ by $\Delta f(x) = -\eta\, K_\theta(x, \xi)\, \ell'(f(\xi)) + O(\eta^2)$: the
    kernel measures how much learning $\xi$ changes $x$. For several outputs $K$ is a matrix and
    $\ell'$ a gradient.

    Checked at 20 points together for a logistic loss, of one output and of two: the derivative of
    the step in $\eta$ by complex steps, and the exponent of what the formula leaves out, for $\eta$
    from $10^{-4}$ to $10^{-2}$. (At a single point the second-order term may vanish.)

    Knobs:
        kernel: What measures the similarity of $x$ and $\xi$: the tangent kernel, or $x^\top \xi$.
        sign: The sign of the change.
        factor: A factor of the change.
    """
    eta = torch.logspace(-4, -2, 9)
    for k, d, m in ((1, 3, 6), (2, 4, 5)):
        net, x, xi = Pooled(d, m, k), torch.randn(20, 2, d), torch.randn(1, 2, d)
        theta, y = moved(net), np.full((1, k), 0.3)
        push = gradient_of(lambda t: example_loss(pooled(t, xi.numpy(), m, k), y), theta)  # noqa: B023
        slope_at = 1 / (1 + np.exp(-pooled(theta, xi.numpy(), m, k)[0])) - y[0]
        if kernel == "tangent":
            K = empirical_ntk(net, x, xi)[:, 0]
        else:
            K = (x.flatten(1) @ xi.flatten(1).T)[:, :, None] * torch.eye(k)
        first = sign * factor * (K @ torch.as_tensor(slope_at))
        rate = complex_step(lambda s: pooled(theta - s * push, x.numpy(), m, k), np.zeros(()), 1.0)  # noqa: B023
        yield equals("rate of change of the predictions", rate, first, tol=1e-10, k=k)
        now = pooled(theta, x.numpy(), m, k)
        left = [
            np.linalg.norm(pooled(theta - s * push, x.numpy(), m, k) - now - s * first.numpy())
            for s in eta.tolist()
        ]
        yield slope(r"what the formula leaves out, against $\eta$", eta, left, 2.0, tol=0.1, k=k)


ntk_coupling.foil(
    "similarity of inputs in the place of the kernel",
    kernel="inputs",
    refuted_by=r"what the formula leaves out, against $\eta$",
)
ntk_coupling.foil("the prediction moves up the loss", sign=1.0)
ntk_coupling.foil("twice the change", factor=2.0)


@claim(
    by="identity",
    sources=("A-289", "C-237"),
    budget=0.4,
    short=r"\dot\theta = \sum_i (y_i - f_\theta(x_i))\, \nabla_\theta f_\theta(x_i)"
    r" = J^\top (y - f)",
)
def parameter_gradient_flow(sign: int = 1, half: bool = True):
    r"""Gradient flow of the squared loss in parameter space.

    For $E = \frac12 \sum_i (f_\theta(x_i) - y_i)^2$ gradient flow reads $\dot\theta = \sum_i (y_i -
    f_\theta(x_i))\, \nabla_\theta f_\theta(x_i) = J^\top (y - f)$. Along it the loss changes at the
    rate $\dot E = -(y - f)^\top K_\theta\, (y - f)$ with the tangent kernel $K_\theta = J J^\top$,
    and falls.

    Checked against the gradient of the loss, and its rate along the flow, by complex steps, for two
    networks with one output and one with two; and for a small step.

    Knobs:
        sign: The sign of the residual $y - f$.
        half: Whether the loss has the factor 1/2.
    """
    for n, k, d, m in ((5, 1, 3, 6), (7, 1, 2, 4), (4, 2, 5, 3)):
        net, x, y = Pooled(d, m, k), torch.randn(n, 2, d), torch.randn(n, k)
        theta, size = moved(net), {"n": n, "k": k}

        def loss(t: np.ndarray, x=x, y=y, m=m, k=k) -> Any:
            squares = (pooled(t, x.numpy(), m, k) - y.numpy()) ** 2
            return squares.sum() / (2 if half else 1)

        residual = sign * (y - torch.as_tensor(pooled(theta, x.numpy(), m, k)))
        phi = jacobian(net, x).blocks()
        flow = torch.einsum("icp,ic->p", phi, residual)
        downhill = -gradient_of(loss, theta)
        yield equals("velocity of the parameters", torch.as_tensor(downhill), flow, **size)
        found = jacobian(net, x).T @ residual.flatten()
        yield equals("the same as $J^T (y - f)$", found, flow, **size)
        rate = complex_step(lambda s: loss(theta + s * flow.numpy()), np.zeros(()), 1.0)  # noqa: B023
        K = empirical_ntk(net, x)
        stated = -torch.einsum("ic,ijcd,jd->", residual, K, residual)
        yield equals("rate of the loss along the flow", rate, stated, tol=1e-9, **size)
        step = 1e-6 / float(flow.norm())
        change = loss(theta + step * flow.numpy()) - loss(theta)
        yield at_most("change of the loss in a small step", float(change), 0.0, tol=0.0, **size)


parameter_gradient_flow.foil(
    "the residual with the other sign", sign=-1, refuted_by="change of the loss in a small step"
)
parameter_gradient_flow.foil("without the factor 1/2", half=False)
