"""Flows that bend: along one direction, or half of the coordinates as the other half says."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy import optimize
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import PlanarFlow, RealNVP
from vademecum.generative.claims._flow_oracles import jacobians

BENDS: dict[str, Any] = {
    "tanh": (np.tanh, lambda a: 1 - np.tanh(a) ** 2, 1.0),
    "logistic": (
        lambda a: 1 / (1 + np.exp(-a)),
        lambda a: np.exp(-a) / (1 + np.exp(-a)) ** 2,
        0.25,
    ),
}
"""Functions, their derivatives, and the largest value of those."""


def directions(flow: PlanarFlow) -> tuple[np.ndarray, np.ndarray, float]:
    """The u, w and b of a planar flow; u is read off how far the flow moves a point."""
    w, b = flow.w.detach(), float(flow.b.detach())
    x = torch.randn(flow.d)
    x = x + (1 - b - x @ w) / (w @ w) * w  # where w x + b = 1, and so the function is not small
    moved = (flow(x[None]).value[0] - x).detach().numpy()
    return moved / BENDS[flow.activation][0](1.0), w.numpy(), b


@claim(
    by="identity",
    sources=("A-359", "B-500"),
    budget=0.3,
    short=r"F(z) = z + u\,\sigma(w^\top z + b):\ \det\partial F(z) = 1 + \sigma'(w^\top z + b)\,"
    r"u^\top w",
)
def planar_flow_determinant(product: Literal["inner", "norms"] = "inner"):
    r"""Determinant of a planar flow.

    For $F(z) = z + u\, \sigma(w^\top z + b)$ the matrix determinant lemma gives $\det \partial F(z)
    = 1 + \sigma'(w^\top z + b)\, u^\top w$ in $O(n)$.

    *Checked* for tanh and the logistic function in dimensions 2, 5 and 20 against determinants of
    $I + \sigma' u w^\top$ and of the Jacobian of `PlanarFlow` by autograd; its parameters keep
    $u^\top w$ where the flow is invertible. That the cost is linear is quoted: the formula has one
    inner product.

    Knobs:
        product: What stands for $u^\top w$: the inner product, or the product of the norms.
    """
    for name, (_, slope, _) in BENDS.items():
        for d in (2, 5, 20):
            flow = PlanarFlow(d, activation=name)  # pyright: ignore[reportArgumentType]
            flow.requires_grad_(False)
            u, w, b = directions(flow)
            z = torch.randn(1, d)
            steep = slope(float(z.numpy()[0] @ w) + b)
            inner = u @ w if product == "inner" else math.sqrt((u @ u) * (w @ w))
            formula, at = 1 + steep * inner, {"sigma": name, "d": d}
            exact = np.linalg.det(np.eye(d) + steep * np.outer(u, w))
            yield equals("formula", formula, exact, **at)
            yield equals("log_det", flow(z).log_det, math.log(exact), **at)
            J = jacobians(lambda v, f=flow: f(v).value, z)
            yield equals("determinant of the Jacobian", formula, torch.linalg.det(J)[0], **at)


planar_flow_determinant.foil("norms in place of the inner product", product="norms")


def least_rise(sigma: Any, c: float, b: float) -> float:
    """The least difference quotient of t + c sigma(t + b) on a fine grid around -b.

    Neighbours are h = 1e-3 apart; where the derivative vanishes at -b alone, the quotient next to
    it is h^2 / 3 = 3e-7 (tanh, c = -1) or h^2 / 12 = 8e-8 (logistic, c = -4), far above the
    rounding of 1e-11.
    """
    t = np.linspace(-12, 12, 24_001) - b
    return float((np.diff(t + c * sigma(t + b)) / np.diff(t)).min())


@claim(
    by="identity",
    sources=("A-359", "B-499"),
    budget=0.5,
    short=r"z + u\,\sigma(w^\top z + b)\ \text{invertible} \iff u^\top w \ge -1/\sup\sigma'"
    r"\ (-1: \tanh, -4: \text{logistic})",
)
def planar_flow_invertibility(threshold: float = -1.0):
    r"""When a planar flow is invertible.

    $F(z) = z + u\, \sigma(w^\top z + b)$ with continuous increasing bounded $\sigma$ is invertible
    iff $t \mapsto t + (u^\top w)\, \sigma(t + b)$ is strictly increasing on $\mathbb R$. For
    differentiable $\sigma$ this holds if $u^\top w > -1/\sup \sigma'$ and fails if $u^\top w <
    -1/\sup \sigma'$; at equality it holds when $\sigma'$ attains its supremum at isolated points
    only, so the condition is $u^\top w \ge -1$ for tanh and $\ge -4$ for the logistic function.
    (Without boundedness: for ReLU $u^\top w > -1$ is needed for an increasing map, and $-1$ itself
    fails.)

    *Checked* for tanh and the logistic function on a fine grid of $t$, for $u^\top w$ a hundredth
    above, at, and a tenth below the threshold and for $u^\top w = -10$: where the condition fails,
    two points of five-dimensional space have one image; for ReLU at $-0.99$ and $-1$. `PlanarFlow`
    keeps to the condition for any parameters, and its inverse is what Brent's root along $w$ gives.

    Knobs:
        threshold: The least value of $(u^\top w) \sup \sigma'$ at which the flow is said to be
            invertible; minus infinity says that no condition is needed.
    """
    for name, (sigma, _, top) in BENDS.items():
        b = float(torch.randn(()))
        for c in (-10.0, -1.1 / top, -1 / top, -0.99 / top):
            rise, at = least_rise(sigma, c, b), {"product": c}
            many = preimages(sigma, c, b)
            if c * top >= threshold:
                yield at_least(
                    f"least slope with {name}, said to increase", rise, 1e-9, tol=0, **at
                )
                yield at_most(f"points with one image under {name}", many, 1, **at)
            else:
                yield at_most(f"least slope with {name}, said to fall", rise, 0.0, tol=0, **at)
                yield at_least(f"points with one image under {name}", many, 2, **at)
                one, other = two_points(sigma, c, b)
                yield equals("their images", one[1], other[1], **at)
                yield at_least("their distance", np.linalg.norm(one[0] - other[0]), 0.1, **at)
        for size in (0.3, 1.0, 20.0):
            yield from kept(name, size)
    for c in (-0.99, -1.0):
        rise = least_rise(lambda a: np.maximum(a, 0), c, 0.0)
        yield equals("least slope with ReLU", rise, 1 + c, product=c)


def preimages(sigma: Any, c: float, b: float) -> int:
    """How often t + c sigma(t + b) takes the value that it has at -b."""
    t = np.linspace(-12, 12, 3000) - b  # an even number, so that -b is none of them
    values = t + c * sigma(t + b) - (-b + c * sigma(0.0))
    return int((np.diff(np.sign(values)) != 0).sum())


def two_points(sigma: Any, c: float, b: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two points of space, and their images, where the scalar map takes one value twice."""
    w, side = np.asarray(torch.randn(5)), np.asarray(torch.randn(5))
    u = side + (c - side @ w) / (w @ w) * w
    goal = -b + c * sigma(0.0)
    far: Any = optimize.brentq(lambda t: t + c * sigma(t + b) - goal, 0.1 - b, 40 - b)
    image = np.asarray(torch.randn(5))
    image = image + (goal - image @ w) / (w @ w) * w
    points = [image - u * sigma(t + b) for t in (-b, float(far))]
    return [(z, z + u * sigma(w @ z + b)) for z in points]


def kept(name: Any, size: float):
    """The part keeps the condition, and inverts; with parameters of some size.

    Slopes are at least 1e-3, so that roundings of some 1e-13 grow to 1e-10 at most.
    """
    flow = PlanarFlow(5, activation=name).requires_grad_(False)
    for p in flow.parameters():
        p.mul_(size)
    flow.u.data = flow.u - 3 * flow.w  # against w, where a condition is needed
    u, w, b = directions(flow)
    sigma, _, top = BENDS[name]
    at = {"sigma": name, "size": size}
    yield at_least("product that the flow keeps", (u @ w) * top, -1.0, tol=1e-9, **at)
    y = 2 * torch.randn(8, 5)
    x = flow.inverse(y).value.numpy()
    reach, found = abs(u @ w) + 1, []
    for row, goal in zip(y.numpy(), y.numpy() @ w, strict=True):
        t: Any = optimize.brentq(lambda t, g=goal: t + (u @ w) * sigma(t + b) - g, goal - reach,
                            goal + reach, xtol=1e-14)  # fmt: skip
        found.append(row - u * sigma(float(t) + b))
    yield equals("inverse by a root along w", x, np.stack(found), tol=1e-8, **at)
    yield equals("point that comes back", flow(torch.from_numpy(x)).value, y, tol=1e-8, **at)


planar_flow_invertibility.foil("a condition that is half as strict", threshold=-2.0)
planar_flow_invertibility.foil("a condition that is a tenth too strict", threshold=-0.9)
planar_flow_invertibility.foil("the limit itself left out", threshold=-0.995)
planar_flow_invertibility.erratum(
    "A-359",
    printed=r"Invertible linear time flows: $F_j(z) = z + u\, \sigma(\langle w, z\rangle + b)$,"
    " no condition",
    right=r"$u^\top w \ge -1 / \sup \sigma'$",
    why=r"A condition on $u^\top w$ is missing: for $u^\top w = -10$ and the logistic function the"
    r" slope along $w$ is $1 - 2.5 < 0$ in the middle and 1 far out, so that $F$ is not injective.",
    weight="soft",
    refuted_by="least slope with logistic, said to increase",
    threshold=-math.inf,
)
planar_flow_invertibility.erratum(
    "B-499",
    printed=r"Invertible linear time flows: $F(z) = z + u\sigma(w \cdot z + b)$ (no condition)",
    right=r"$u \cdot w \ge -1 / \sup \sigma'$",
    why=r"The same hypothesis is missing: for tanh and $u \cdot w = -10$ the scalar map takes a"
    r" value three times.",
    weight="soft",
    refuted_by="points with one image under tanh",
    threshold=-math.inf,
)


class Wavy(nn.Module):
    """An arbitrary network: waves of a random linear map, then a kink."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 9), nn.Linear(9, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.last(torch.sin(3 * self.first(x)).abs() - 0.5)


@claim(
    by="identity",
    sources=("D-424", "D-425"),
    budget=0.3,
    short=r"y_b = x_b \odot e^{s(x_a)} + t(x_a),\quad x_b = (y_b - t(y_a)) \odot e^{-s(y_a)},\quad"
    r" \det J = e^{\sum_j s_j}",
)
def realnvp_coupling(read: Literal["kept", "moved"] = "kept", power: float = 1.0):
    r"""RealNVP affine coupling layer.

    $y_{1:d} = x_{1:d}$, $y_{d+1:D} = x_{d+1:D} \odot e^{s(x_{1:d})} + t(x_{1:d})$ is invertible for
    arbitrary networks $s, t$, with inverse $x_{d+1:D} = (y_{d+1:D} - t(y_{1:d})) \odot
    e^{-s(y_{1:d})}$; its Jacobian is triangular and $\det J = \exp\big(\sum_j s_j(x_{1:d})\big)$.

    *Checked* for `RealNVP` with networks of waves and kinks, which nobody could invert, for $D = 6$
    and 4: coordinates of even number are the half that is kept. One layer is the formula, both
    ways; four layers, which move the halves in turn, still invert, and have the determinant of the
    Jacobian by autograd.

    Knobs:
        read: Which half the networks of the formula read: the one that is kept, or the one that
            moves, which the inverse does not know.
        power: The power of the determinant.
    """
    for D in (6, 4):
        options: Any = {"network": Wavy, "max_log_scale": math.inf}
        flow = RealNVP(D, transforms=1, **options).requires_grad_(False)
        x, at = torch.randn(7, D), {"D": D}

        def numbers(v: Tensor, net: Any = flow.networks[0]) -> tuple[Tensor, ...]:
            return net(v[:, ::2] if read == "kept" else v[:, 1::2]).chunk(2, 1)

        s, t = numbers(x)
        y = x.clone()
        y[:, 1::2] = x[:, 1::2] * s.exp() + t
        value, log_det = flow(x)
        yield equals("value", value, y, **at)
        yield equals("log_det", log_det, power * s.sum(1), **at)
        s, t = numbers(y)
        back = y.clone()
        back[:, 1::2] = (y[:, 1::2] - t) * (-s).exp()
        yield equals("point that the stated inverse gives", back, x, **at)
        yield equals("inverse", flow.inverse(value).value, x, **at)
        J = jacobians(lambda v, f=flow: f(v).value, x)
        yield equals("how kept coordinates follow moved ones", J[:, ::2, 1::2], 0.0, tol=0.0, **at)
        yield equals("logarithm of the product of the diagonal", J.diagonal(0, 1, 2).log().sum(1),
                     power * numbers(x)[0].sum(1), **at)  # fmt: skip
        stack = RealNVP(D, transforms=4, **options).requires_grad_(False)
        value, log_det = stack(x)
        yield equals(
            "point that comes back through four layers", stack.inverse(value).value, x, **at
        )
        exact = torch.linalg.slogdet(jacobians(lambda v, f=stack: f(v).value, x))[1]
        yield equals("log_det of four layers", log_det, exact, **at)


realnvp_coupling.foil("networks that read the half that moves", read="moved")
realnvp_coupling.foil(
    "the stated inverse with such networks",
    read="moved",
    refuted_by="point that the stated inverse gives",
)
realnvp_coupling.foil("the determinant of the inverse", power=-1.0)
