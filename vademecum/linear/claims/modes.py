"""What the course claims of modes of linear networks: competition, dynamics, critical points."""

import math
from functools import reduce
from itertools import combinations

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.linear.claims.autoencoder import orthogonal
from vademecum.linear.deep_linear import DeepLinearNetwork
from vademecum.linear.landscape import critical_points
from vademecum.linear.linear_flow import STEP, linear_network_flow


@claim(by="identity", sources=("B-095",), budget=0.5, full={"p": 7, "k": 3, "q": 9})
def mode_competition(
    pairs: str = "r != q", drive: str = "square", p: int = 3, k: int = 2, q: int = 4
):
    r"""Cooperation and competition of modes.

    In SVD coordinates, with $d_r$ the rows of $\tilde D$, $c_q$ the columns of $\tilde C$ and
    $\sigma_r$ the singular values of $\Gamma$,
    $$\tfrac12 \|\tilde D \tilde C - \Sigma\|_F^2 = \tfrac12 \sum_r (d_r \cdot c_r - \sigma_r)^2
    + \tfrac12 \sum_{r \ne q} (d_r \cdot c_q)^2 :$$
    the first sum drives each mode to its singular value, the second makes different modes
    orthogonal. Where $\tilde D \tilde C$ is not square, $\sigma_r = 0$ beyond its diagonal and the
    first sum ends with it.
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
    yield equals(own + cross, (network.product() - gamma).square().sum() / 2, tol=1e-12)


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
        if len(shapes) == 1:
            return target.ravel() - flat
        c, d = split(flat)
        residual = target - d @ c
        return np.concatenate([(d.T @ residual).ravel(), (residual @ c.T).ravel()])

    flat = np.concatenate([w.detach().numpy().ravel() for w in start])
    span = (0, float(times[-1]))
    path = solve_ivp(field, span, flat, "DOP853", times.numpy(), rtol=1e-10, atol=1e-12).y.T
    products = [reduce(lambda product, w: w @ product, split(flat)) for flat in path]
    return torch.from_numpy(np.stack(products))


@claim(by="identity", sources=("B-095",), budget=0.5, full={"points": 100})
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
    Here $\Gamma$ has the singular values 4, 2, 1 in random bases, and $a_0 = \epsilon^2$.
    """
    sigma = torch.tensor([4.0, 2.0, 1.0])
    u, v = orthogonal(n), orthogonal(n)
    gamma = (u * sigma) @ v.mT
    half = torch.log(sigma / epsilon**2 - 1) / (rate * sigma)
    times = torch.cat([torch.linspace(0, 3.5, points), half]).sort().values
    flow = linear_network_flow(gamma, times, depth=depth, strength=epsilon**2, tau=2 / rate)
    oracle = matrix_flow([epsilon * v.mT, epsilon * u], gamma, times)
    strengths = torch.einsum("pi,tpq,qi->ti", u, oracle, v)
    yield equals(flow.predicted, strengths, tol=1e-6)
    order = torch.tensor([int((times == t).nonzero()[0]) for t in half])
    yield equals(strengths[order, torch.arange(n)], sigma / 2, tol=1e-4)
    yield at_least(half.diff(), 0.0)
    # A step of Runge-Kutta misses growth by STEP**5 / 120; there are log(sigma / a0) / STEP of it.
    missed = 10 * math.log(4 / epsilon**2) * STEP**4 / 120
    yield equals(flow.measured, strengths, tol=missed)
    off = torch.einsum("pi,tpq,qj->tij", u, oracle, v) - torch.diag_embed(strengths)
    yield equals(off, torch.zeros_like(off), tol=1e-7)


mode_dynamics.foil("one layer: all modes saturate at the same rate", depth=1)
mode_dynamics.foil("the rate sigma instead of 2 sigma", rate=1.0)


def _count(rule: str, r: int, k: int) -> int:
    return math.comb(r, k) if rule == "full rank" else sum(math.comb(r, j) for j in range(k + 1))


@claim(by="sampling", sources=("A-036",), budget=0.5, full={"starts": 60})
def two_layer_critical_points(count: str = "all ranks", minima: str = "strongest", starts: int = 4):
    r"""The critical points of a two-layer linear network: one for each set of modes that fits.

    Let $\Gamma = \sum_{i \le r} \sigma_i u_i v_i^\top$ have distinct positive singular values. The
    products $W_2 W_1$ at the critical points of $\|W_2 W_1 - \Gamma\|_F^2$ with hidden width $k$
    are exactly $\sum_{i \in I} \sigma_i u_i v_i^\top$ with $|I| \le k$, in total
    $\sum_{j \le \min(k, r)} \binom rj$, of which $\binom rk$ have full rank $k \le r$. Only the top
    $\min(k, r)$ singular directions give a minimum (global; in $(W_1, W_2)$ a whole manifold); all
    other critical points are saddles with a direction of negative curvature.

    *Proof.* Baldi and Hornik (1989). With $\Gamma = \operatorname{diag}(3, 2, 1)$ and $k = 2$ the
    exact Hessian of half the loss has $-1$ or less among its eigenvalues at every saddle. That
    there are no further critical points is searched for, from random starts.
    """
    for sigma, k in (((3.0, 2.0, 1.0), 2), ((2.0, 1.0), 1)):
        r = len(sigma)
        u, v = (orthogonal(r), orthogonal(r)) if r == 3 else (torch.eye(2), torch.eye(2))
        gamma = (u * torch.tensor(sigma)) @ v.mT
        points = critical_points(gamma, k)
        stationary = 0
        for chosen in (c for j in range(r + 1) for c in combinations(range(r), j)):
            network = DeepLinearNetwork.balanced(_partial(u, sigma, v, chosen), width=k)
            slopes = network.gradients(network.product() - gamma)
            stationary += max(float(g.abs().max()) for g in slopes) < 1e-12 and len(chosen) <= k
        yield equals(stationary, _count(count, r, k), width=k)
        yield equals(len(points), _count(count, r, k), width=k)
        for point in points:
            target = _partial(u, sigma, v, point.modes)
            yield equals(point.product, target, tol=1e-12, width=k)
            network = DeepLinearNetwork.balanced(point.product, width=k)
            bends = torch.linalg.eigvalsh(_hessian(network, gamma))
            yield equals(int((bends < -1e-10).sum()), point.saddle_index, width=k)
            yield equals((target - gamma).square().sum() / 2, point.loss, tol=1e-12, width=k)
            best = tuple(range(k)) if minima == "strongest" else tuple(range(r - k, r))
            if point.modes == best:
                yield equals(bends.min(), 0.0, width=k)
            else:
                yield at_most(bends.min(), -1.0, width=k)
        found = torch.stack([p.product for p in points])
        for end in _searched(gamma, k, starts):
            distance = (found - end).abs().amax((1, 2)).min()
            yield at_most(distance, 0.0, tol=1e-6, width=k)


def _partial(u: Tensor, sigma: tuple[float, ...], v: Tensor, modes: tuple[int, ...]) -> Tensor:
    chosen = list(modes)
    return (u[:, chosen] * torch.tensor(sigma)[chosen]) @ v[:, chosen].mT


def _hessian(network: DeepLinearNetwork, gamma: Tensor) -> Tensor:
    """The Hessian of half the squared distance in all weights, by automatic differentiation."""
    c, d = (w.detach() for w in network.weights)

    def loss(flat: Tensor) -> Tensor:
        first, second = flat[: c.numel()].view_as(c), flat[c.numel() :].view_as(d)
        return (second @ first - gamma).square().sum() / 2

    return torch.func.hessian(loss)(torch.cat([c.flatten(), d.flatten()]))


def _searched(gamma: Tensor, k: int, starts: int) -> list[Tensor]:
    """Products where Levenberg and Marquardt's method, from random starts, finds no gradient."""
    (p, q), target, ends = gamma.shape, gamma.numpy(), []

    def slopes(flat: np.ndarray) -> np.ndarray:
        c, d = flat[: k * q].reshape(k, q), flat[k * q :].reshape(p, k)
        residual = d @ c - target
        return np.concatenate([(d.T @ residual).ravel(), (residual @ c.T).ravel()])

    for _ in range(starts):
        start = torch.randn(k * (p + q)).numpy()
        end = least_squares(slopes, start, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
        if np.linalg.norm(end.fun) < 1e-10:
            c, d = end.x[: k * q].reshape(k, q), end.x[k * q :].reshape(p, k)
            ends.append(torch.from_numpy(d @ c))
    return ends


two_layer_critical_points.foil("the weakest modes as the minimum", minima="weakest")
two_layer_critical_points.erratum(
    "A-036",
    printed=r"SVM-based analysis of 2-layer linear networks with "
    r"$\binom{\operatorname{rank}(\Gamma)}{\text{width}}$ fixed points and one global minimum",
    right=r"SVD-based; $\sum_{j \le \min(k, r)} \binom rj$ products, the minimum a whole manifold",
    why=r"The count misses critical points of lower rank: for $\Gamma = \mathrm{diag}(2, 1)$ and"
    r" width 1 the products 0, diag(2, 0) and diag(0, 1) are three and not two.",
    count="full rank",
)


@claim(by="identity", sources=("E-175", "E-176", "E-177"), budget=0.5, full={"starts": 100})
def one_layer_flow(lag: str = "1 / (2 eta)", rate: float = 2.0, eta: float = 0.3, starts: int = 3):
    r"""Gradient flow takes a one-layer linear network to least squares, exponentially.

    With whitened inputs and $\Gamma = \mathbb E[y x^\top]$ the risk
    $\mathcal R(A) = \text{const} + \operatorname{Tr}(A A^\top)
    - 2 \operatorname{Tr}(A \Gamma^\top)$ has the gradient flow
    $\dot A = -\eta \nabla \mathcal R = 2 \eta (\Gamma - A)$, solved by
    $$A(t) = \Gamma + e^{-2 \eta t} (A(0) - \Gamma) ;$$
    hence $A(t) = \Gamma - \frac{1}{2 \eta} \dot A(t)$ and $\lim_{t \to \infty} A(t) = \Gamma$, the
    least-squares solution, from every start.
    """
    gamma = torch.randn(3, 4)
    u, _, vh = torch.linalg.svd(gamma, full_matrices=False)
    times = torch.tensor([0.0, 0.4, 1.3, 3.0])
    shift = {"1 / (2 eta)": 1 / (2 * eta), "eta / 2": eta / 2}[lag]

    def exact(start: Tensor, t: complex) -> Tensor:
        return gamma + np.exp(-rate * eta * t) * (start - gamma)

    flow = linear_network_flow(gamma, times, depth=1, strength=0.5, tau=1 / (2 * eta))
    for k in range(starts + 1):
        start = 0.5 * u @ vh if k == 0 else torch.randn(3, 4)
        path = matrix_flow([start], gamma, 2 * eta * times)
        for i, t in enumerate(times.tolist()):
            yield equals(exact(start, t), path[i], tol=1e-7, t=t)
            slope = exact(start, t + 1e-30j).imag / 1e-30
            yield equals(exact(start, t), gamma - shift * slope, tol=1e-12, t=t)
            yield equals(slope, 2 * eta * (gamma - exact(start, t)), tol=1e-12, t=t)
            if k == 0:
                yield equals((u * flow.predicted[i]) @ vh, exact(start, t), tol=1e-12, t=t)
                yield equals((u * flow.measured[i]) @ vh, exact(start, t), tol=1e-5, t=t)
        yield at_most((exact(start, 20 / eta) - gamma).abs().max(), 0.0, tol=1e-12)


one_layer_flow.foil("the rate eta in place of 2 eta", rate=1.0)
one_layer_flow.erratum(
    "E-176",
    printed=r"$A(t) = -\frac12 \eta\, \dot A(t) + \Gamma$ (as scanned)",
    right=r"$A(t) = -\frac{1}{2 \eta} \dot A(t) + \Gamma$",
    why=r"Dividing $2 \eta A = 2 \eta \Gamma - \dot A$ by $2 \eta$ puts $\eta$ below the line.",
    lag="eta / 2",
)
