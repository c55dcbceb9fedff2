"""Modes: how linear networks learn them one after the other."""

import math
from collections.abc import Iterator
from functools import reduce
from typing import Literal

import numpy as np
import torch
from scipy.integrate import quad, solve_ivp
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, lowest
from vademecum.linear import DeepLinearNetwork, linear_network_flow, mode_strengths
from vademecum.linear.claims.autoencoder import orthogonal
from vademecum.linear.linear_flow import STEP


@claim(
    by="identity",
    sources=("B-095",),
    budget=0.5,
    full={"p": 7, "k": 3, "q": 9},
    short=r"\|\tilde D \tilde C - \Sigma\|_F^2 = \textstyle\sum_r (d_r \cdot c_r - \sigma_r)^2"
    r" + \sum_{r \ne q} (d_r \cdot c_q)^2",
)
def mode_competition(
    pairs: Literal["r != q", "r < q"] = "r != q",
    drive: Literal["square", "difference of squares"] = "square",
    p: int = 3,
    k: int = 2,
    q: int = 4,
):
    r"""Cooperation and competition of modes.

    In SVD coordinates, with $d_r$ the rows of $\tilde D$, $c_q$ the columns of $\tilde C$ and
    $\sigma_r$ the singular values of $\Gamma$,
    $$\tfrac12 \|\tilde D \tilde C - \Sigma\|_F^2 = \tfrac12 \sum_r (d_r \cdot c_r - \sigma_r)^2
    + \tfrac12 \sum_{r \ne q} (d_r \cdot c_q)^2 :$$
    the first sum drives each mode to its singular value, the second makes different modes
    orthogonal. Where $\tilde D \tilde C$ is not square, $\sigma_r = 0$ beyond its diagonal and the
    first sum ends with it.

    Knobs:
        pairs: Which pairs of modes compete.
        drive: What the strength of a mode and its singular value enter by.
        p: How many outputs there are.
        k: How many hidden units there are.
        q: How many inputs there are.
    """
    gamma = torch.randn(p, q)
    network = DeepLinearNetwork([q, k, p])
    u, s, vh = torch.linalg.svd(gamma)
    c, d = network.weights[0].detach() @ vh.mT, u.mT @ network.weights[1].detach()
    own, cross = 0.0, 0.0
    for r in range(p):
        for other in range(q):
            overlap = float(sum(d[r, h] * c[h, other] for h in range(k)))
            if r == other and drive == "square":
                own += (overlap - float(s[r])) ** 2 / 2
            elif r == other:
                own += (overlap**2 - float(s[r]) ** 2) / 2
            elif pairs == "r != q" or r < other:
                cross += overlap**2 / 2
    loss = (network.product() - gamma).square().sum() / 2
    yield equals("sum over the modes", own + cross, loss, tol=1e-12)
    own = [float(u[:, r] @ network.product().detach() @ vh[r]) for r in range(min(p, q))]
    strengths = mode_strengths(network.product(), gamma)
    yield equals("strengths of the modes", strengths, own, tol=1e-12)


mode_competition.foil("each pair once: half of the competition at most", pairs="r < q")
mode_competition.foil("a difference of squares for the square", drive="difference of squares")


def matrix_flow(start: list[Tensor], gamma: Tensor, times: Tensor) -> Tensor:
    """The products along the gradient flow of a chain of weights, integrated by SciPy."""
    shapes, target = [w.shape for w in start], gamma.numpy()
    cuts = np.cumsum([w.numel() for w in start])[:-1]

    def split(flat: np.ndarray) -> list[np.ndarray]:
        parts = np.split(flat, cuts)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        c, d = split(flat)
        residual = target - d @ c
        return np.concatenate([(d.T @ residual).ravel(), (residual @ c.T).ravel()])

    flat = np.concatenate([w.detach().numpy().ravel() for w in start])
    span = (0, float(times[-1]))
    path = solve_ivp(field, span, flat, "DOP853", times.numpy(), rtol=1e-10, atol=1e-12).y.T
    products = [reduce(lambda product, w: w @ product, split(flat)) for flat in path]
    return torch.from_numpy(np.stack(products))


@claim(
    by="identity",
    sources=("B-095",),
    budget=1.0,
    full={"points": 100},
    short=r"\dot a = 2 a (\sigma - a) \implies a(t) ="
    r" \frac{\sigma}{1 + (\sigma / a_0 - 1) e^{-2 \sigma t}}",
)
def mode_dynamics(
    depth: int = 2, rate: float = 2.0, epsilon: float = 0.05, n: int = 3, points: int = 8
):
    r"""Two layers learn modes in the order of their singular values, along sigmoids.

    Under gradient flow on $\frac12 \|D C - \Gamma\|_F^2$ from a balanced, aligned start the
    strength $a = d \cdot c$ of a mode obeys $\dot a = 2 a (\sigma - a)$, hence
    $$a(t) = \frac{\sigma}{1 + (\sigma / a_0 - 1) e^{-2 \sigma t}} :$$
    from small $a_0$ it stays on a plateau and reaches half height at
    $t = \frac{1}{2 \sigma} \ln(\sigma / a_0 - 1)$, strong modes first.

    *Proof.* The flow keeps $D = U \sqrt{\operatorname{diag} a}$ and
    $C = \sqrt{\operatorname{diag} a}\, V^\top$, so that each mode has $d = c = \sqrt a$ and
    $\dot d = c (\sigma - d c)$ (Saxe, McClelland and Ganguli, 2014).
    Here $\Gamma$ has the singular values $4 / i$ in random bases, and $a_0 = \epsilon^2$.

    Knobs:
        depth: How many layers the network of the prediction has.
        rate: The factor of $\sigma t$ in the exponent.
        epsilon: The root of the strength that all modes start with.
        n: How many inputs and outputs there are.
        points: At how many times the curves are compared.
    """
    lowest("n", n, 2)
    sigma = 4.0 / torch.arange(1, n + 1)
    u, v = orthogonal(n), orthogonal(n)
    gamma = (u * sigma) @ v.mT
    half = torch.log(sigma / epsilon**2 - 1) / (rate * sigma)
    times = torch.cat([torch.linspace(0, 3.5, points), half]).sort().values
    flow = linear_network_flow(gamma, times, depth=depth, strength=epsilon**2, tau=2 / rate)
    oracle = matrix_flow([epsilon * v.mT, epsilon * u], gamma, times)
    strengths = torch.einsum("pi,tpq,qi->ti", u, oracle, v)
    # The integrator keeps to 1e-10 of the strength a step, over some hundred steps.
    for i in range(n):
        at = {"tol": 1e-7, "sigma": round(float(sigma[i]), 3)}
        yield equals("predicted strengths", flow.predicted[:, i], strengths[:, i], **at)
    order = torch.tensor([int((times == t).nonzero()[0]) for t in half])
    middle = strengths[order, torch.arange(n)]
    yield equals("strength at the time of half height", middle, sigma / 2, tol=1e-6)
    yield at_least("delay of a weaker mode", half.diff(), 0.1)
    # A Runge-Kutta step misses log a by STEP**5 / 120, in log(sigma / a0) / STEP steps of growth;
    # and a = sigma / (1 + exp(-u)) changes by at most sigma / 4 = 1 for a change of u by 1.
    missed = math.log(4 / epsilon**2) * STEP**4 / 120
    yield equals("strengths along the weights", flow.measured, strengths, tol=missed)
    off = torch.einsum("pi,tpq,qj->tij", u, oracle, v) - torch.diag_embed(strengths)
    yield equals("overlaps of different modes", off, torch.zeros_like(off), tol=1e-7)
    yield from _other_flows()


def _other_flows() -> Iterator[Evidence]:
    """Three layers, whose time to a strength is an integral; and descent in steps of 0.1."""
    gamma = orthogonal(3)[:, :2] * torch.tensor([2.0, 1.0]) @ orthogonal(2)
    times = torch.tensor([0.0, 0.5, 1.0, 2.03])
    deep = linear_network_flow(gamma, times, depth=3, strength=0.1)
    steps = linear_network_flow(gamma, times, strength=0.1, learning_rate=0.1)
    for i, s in enumerate((2.0, 1.0)):
        speed = lambda a, s=s: 1 / (3 * a ** (4 / 3) * (s - a))  # noqa: E731
        passed = [quad(speed, 0.1, float(end))[0] for end in deep.predicted[:, i]]
        yield equals("time to a strength, with three layers", passed, times, tol=1e-6, sigma=s)
        there, way = deep.measured[:, i], deep.predicted[:, i]
        missed = math.log(s / 0.1) * STEP**4 / 120 * s / 4
        yield equals("strengths along three layers", there, way, tol=missed, sigma=s)
        weights = [0.1**0.5]
        for _ in range(30):
            weights.append(weights[-1] * (1 + 0.1 * (s - weights[-1] ** 2)))
        k, ahead = (10 * times + 1e-9).long(), 10 * times - (10 * times + 1e-9).long()
        a = torch.tensor(weights).square()
        line = torch.lerp(a[k], a[k + 1], ahead)
        yield equals("strengths after steps of descent", steps.measured[:, i], line, sigma=s)


mode_dynamics.foil("one layer: all modes saturate at the same rate", depth=1)
mode_dynamics.foil("the rate sigma instead of 2 sigma", rate=1.0)


@claim(
    by="identity",
    sources=("E-175", "E-176", "E-177"),
    budget=0.5,
    full={"starts": 100},
    short=r"\dot A = -\eta \nabla \mathcal R = 2 \eta (\Gamma - A) \implies"
    r" A(t) = \Gamma + e^{-2 \eta t} (A(0) - \Gamma)",
)
def one_layer_flow(
    lag: Literal["1 / (2 eta)", "eta / 2"] = "1 / (2 eta)",
    rate: float = 2.0,
    eta: float = 0.3,
    starts: int = 3,
):
    r"""Gradient flow takes a one-layer linear network to least squares, exponentially.

    With whitened inputs and $\Gamma = \mathbb E[y x^\top]$ the risk
    $\mathcal R(A) = \text{const} + \operatorname{Tr}(A A^\top)
    - 2 \operatorname{Tr}(A \Gamma^\top)$ has the gradient flow
    $\dot A = -\eta \nabla \mathcal R = 2 \eta (\Gamma - A)$, solved by
    $$A(t) = \Gamma + e^{-2 \eta t} (A(0) - \Gamma) ;$$
    hence $A(t) = \Gamma - \frac{1}{2 \eta} \dot A(t)$ and $\lim_{t \to \infty} A(t) = \Gamma$, the
    least-squares solution, from every start.

    SciPy follows the flow down the gradient of the risk itself, which autograd gives.

    Knobs:
        lag: The factor of $\dot A$.
        rate: The factor of $\eta t$ in the exponent.
        eta: The speed $\eta$ of the flow.
        starts: How many random starts there are.
    """
    gamma = torch.randn(3, 4)
    u, _, vh = torch.linalg.svd(gamma, full_matrices=False)
    times = torch.tensor([0.0, 0.4, 1.3, 3.0])
    shift = {"1 / (2 eta)": 1 / (2 * eta), "eta / 2": eta / 2}[lag]

    def exact(start: Tensor, t: complex, goal: Tensor = gamma) -> Tensor:
        return goal + np.exp(-rate * eta * t) * (start - goal)

    two, other = torch.full((1, 1), 2.0), torch.full((1, 1), 0.7)
    slope = exact(two, 1.3 + 1e-30j, other).imag / 1e-30
    value, line = exact(two, 1.3, other), other - shift * slope
    yield equals("$A$ at $t = 1.3$, from 2 towards 0.7", value, line, tol=1e-12, eta=eta)

    flow = linear_network_flow(gamma, times, depth=1, strength=0.5, tau=1 / (2 * eta))
    for k in range(starts + 1):
        start = 0.5 * u @ vh if k == 0 else torch.randn(3, 4)
        path = _down_the_risk(start, gamma, eta, times)
        for i, t in enumerate(times.tolist()):
            at = {"t": t, "start": k}
            yield equals("solution", exact(start, t), path[i], tol=1e-7, **at)
            slope = exact(start, t + 1e-30j).imag / 1e-30
            line = gamma - shift * slope
            yield equals("solution, from its speed", exact(start, t), line, tol=1e-12, **at)
            if k == 0:
                predicted, measured = ((u * s[i]) @ vh for s in (flow.predicted, flow.measured))
                yield equals("predicted flow", predicted, path[i], tol=1e-7, **at)
                # Each Runge-Kutta step misses STEP**5 / 120 of a distance that falls like exp(-t).
                missed = STEP**4 / 120 * float(torch.linalg.matrix_norm(start - gamma, 2))
                yield equals("measured flow", measured, path[i], tol=missed, **at)
        late = (exact(start, 20 / eta) - gamma).abs().max()
        yield at_most("distance from least squares in the end", late, 0.0, tol=1e-12)


def _down_the_risk(start: Tensor, gamma: Tensor, eta: float, times: Tensor) -> Tensor:
    """The flow down the gradient of the risk, which is found without a formula for it."""
    shape = tuple(gamma.shape)

    def risk(a: Tensor) -> Tensor:
        return (a @ a.mT).trace() - 2 * (a @ gamma.mT).trace()

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        a = torch.from_numpy(flat.reshape(shape)).requires_grad_()
        (slope,) = torch.autograd.grad(risk(a), a)
        return -eta * slope.numpy().ravel()

    span, first = (0, float(times[-1])), start.numpy().ravel()
    path = solve_ivp(field, span, first, "DOP853", times.numpy(), rtol=1e-10, atol=1e-12)
    return torch.from_numpy(path.y.T).reshape(-1, *shape)


one_layer_flow.foil("the rate eta in place of 2 eta", refuted_by="solution", rate=1.0)
one_layer_flow.erratum(
    "E-176",
    printed=r"$A(t) = -\frac12 \eta\, \dot A(t) + \Gamma$",
    right=r"$A(t) = -\frac{1}{2 \eta} \dot A(t) + \Gamma$",
    why=r"as scanned: dividing $2 \eta A = 2 \eta \Gamma - \dot A$ by $2 \eta$ puts $\eta$ into the"
    r" denominator; the scan, which also reads $I$ for $\Gamma$, may have read $\frac1{2 \eta}$ as"
    r" $\frac12 \eta$ (twice). With $\eta = 0.3$, $A(0) = 2$, $\Gamma = 0.7$, $t = 1.3$ the line as"
    r" scanned is off by 0.542; only the limit $\dot A \to 0$ is unaffected",
    weight="scan",
    refuted_by="$A$ at $t = 1.3$, from 2 towards 0.7",
    lag="eta / 2",
)
