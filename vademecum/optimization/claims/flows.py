"""Gradient flow: and gradient descent as its discretisation."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, with_eigenvalues
from vademecum.optimization import gradient_flow as flow_of
from vademecum.optimization.claims._objectives import descend, gradients_of, unit


def rosenbrock(x: Tensor) -> Tensor:
    r"""$100 (x_2 - x_1^2)^2 + (1 - x_1)^2$."""
    return 100 * (x[..., 1] - x[..., 0] ** 2) ** 2 + (1 - x[..., 0]) ** 2


@claim(
    by="identity",
    sources=("A-073", "B-211", "C-076", "D-157"),
    budget=1.0,
    short=r"\dot\theta = -\nabla f: \dot f = -\|\nabla f\|^2, \quad"
    r" \nabla f = H \theta: \theta(t) = e^{-Ht} \theta_0",
)
def gradient_flow(power: int = 2, scheme: Literal["flow", "Euler"] = "flow"):
    r"""Gradient flow.

    Gradient flow is the equation $\dot\theta = -\nabla f(\theta)$; along it
    $\frac{d}{dt} f(\theta(t)) = -\|\nabla f(\theta(t))\|^2 \le 0$. On
    $f = \frac12 \theta^\top H \theta$ it is solved by $\theta(t) = e^{-H t} \theta_0$.

    Checked for `gradient_flow` on quadratics against the matrix exponential, and against a sum of
    the squared gradients at Gauss' nodes; on Rosenbrock's function from $(-1.2, 1)$, where $f$
    never rises and what it loses is what the solver has integrated.

    Knobs:
        power: The power of $\|\nabla f\|$ at which $f$ falls.
        scheme: What is offered as the flow of $\frac12 \theta^2$ at time 1: the solution, or
            Euler's iterates with step 0.1.
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    T = 1.0
    times = torch.from_numpy(T * (nodes + 1) / 2)
    for d in (2, 3):
        H, start = with_eigenvalues(torch.linspace(0.3, 3, d)), 10 * unit(d)
        t = torch.cat([torch.zeros(1), times, torch.tensor([T])])
        found = flow_of(lambda x, H=H: x @ H @ x / 2, start, t, tol=1e-7)
        exact = torch.stack([torch.linalg.matrix_exp(-H * s) @ start for s in t])
        # Some hundred steps of the solver, each within 1e-7 of the largest entry.
        yield equals("solution on a quadratic", found.x, exact, tol=1e-4, d=d)
        slopes = (exact @ H).norm(dim=1)[1:-1] ** power
        fall = float(T / 2 * (torch.from_numpy(weights) * slopes).sum())
        loss = [float(x @ H @ x / 2) for x in found.x]
        yield equals("what f loses, against the integral", loss[0] - loss[-1], fall, tol=1e-4, d=d)
    t = torch.linspace(0, 0.1, 21)
    found = flow_of(rosenbrock, torch.tensor([-1.2, 1.0]), t, tol=1e-6)
    yield at_most("growth of Rosenbrock's function", found.values.diff(), 1e-6)
    lost = found.values[0] - found.values[-1]
    yield equals("what Rosenbrock's function loses", lost, found.dissipated[-1], tol=1e-4)
    line = flow_of(lambda x: x @ x / 2, torch.ones(1), torch.ones(1), tol=1e-8).x.item()
    place = line if scheme == "flow" else 0.9**10
    yield equals("place at time 1 on a parabola", place, math.exp(-1), tol=1e-6)


gradient_flow.foil(r"the rate $-\|\nabla f\|$, its square forgotten", power=1)
gradient_flow.erratum(
    "D-157",
    printed=r"Gradient Flow can be seen as the numerical integration of the continuous-time ODE"
    r" $\dot x = -\nabla f(x)$",
    right=r"Gradient flow is the solution of the ODE $\dot x = -\nabla f(x)$; its explicit Euler"
    " integration is gradient descent",
    why="The names are swapped: the flow is the solution of the ODE, its explicit Euler integration"
    r" is gradient descent. On $x^2 / 2$ the flow is $e^{-t} x_0$, the scheme"
    r" $(1 - \eta)^{t / \eta} x_0$: 0.368 against 0.349 at $t = 1$ for $\eta = 0.1$.",
    weight="soft",
    refuted_by="place at time 1 on a parabola",
    scheme="Euler",
)


@claim(
    by="identity",
    sources=("A-074", "B-211", "B-213", "C-076", "D-157"),
    budget=1.0,
    short=r"\|\theta_{t / \eta} - \theta(t)\| = O(\eta): \text{ gradient descent is Euler's method"
    r" for } \dot\theta = -\nabla f",
)
def euler_discretisation(order: int = 1):
    r"""Gradient descent is explicit Euler on the gradient flow.

    A gradient descent step is one explicit Euler step of length $\eta$ for
    $\dot\theta = -\nabla f(\theta)$; for smooth $f$ the distance to the flow at a fixed time
    $t = k \eta$ is $O(\eta)$, so smaller steps follow the flow more closely (and need more
    iterations).

    Checked for torch's `SGD` at $t = 1$ with $\eta = 2^{-3}, \dots, 2^{-7}$, on a quadratic with
    spectrum in $[0.5, 2]$, where the flow is $e^{-H t} \theta_0$ and the error
    $-\frac\eta2 t H^2 e^{-H t} \theta_0$ to leading order; and on a sum of $\log\cosh$, against
    `gradient_flow`. Halving $\eta$ halves the error.

    Knobs:
        order: The power of $\eta$ with which the error falls.
    """
    d = 3
    H, A, start = with_eigenvalues(torch.linspace(0.5, 2, d)), torch.randn(5, d) / 2, torch.randn(d)

    def bowl(x: Tensor) -> Tensor:
        return ((x @ H) * x).sum(-1) / 2

    def waves(x: Tensor) -> Tensor:
        return (x @ A.T).cosh().log().sum(-1)

    one = torch.ones(1)
    exact = torch.linalg.matrix_exp(-H) @ start
    ends = {"quadratic": exact, "log cosh": flow_of(waves, start, one, tol=1e-9).x[0]}
    for name, f in (("quadratic", bowl), ("log cosh", waves)):
        gaps = []
        for k in range(3, 8):
            path = descend(f, start[None], 2.0**-k, 2**k)[:, 0]
            gaps.append(path[-1] - ends[name])
        sizes = torch.stack(gaps).norm(dim=1)
        ratios = (sizes[:-1] / sizes[1:]).tolist()
        # The next term of the error is some eta times the first, so the ratio is off by that.
        for k, ratio in reversed(list(enumerate(ratios, 3))):
            yield equals("error over that of half the step", ratio, 2.0**order, tol=2.0**-k,
                         f=name, eta=f"2^-{k}")  # fmt: skip
        step = descend(f, start[None], 0.01, 1)[:, 0]
        slope = -gradients_of(f, start[None])[0]
        yield equals("step over its length", (step[1] - step[0]) / 0.01, slope, tol=1e-11, f=name)
        if name == "quadratic":
            lead = -(H @ H @ exact) / 2
            yield equals("error over the step", gaps[-1] * 2.0**7, lead, tol=0.02)


euler_discretisation.foil(
    "an error of second order, as the midpoint rule has",
    close="the next term of the error is some percent of the first",
    order=2,
)
