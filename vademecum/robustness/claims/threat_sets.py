"""Balls: their steepest directions and their nearest points."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.foundations import dual_norm
from vademecum.robustness import sample_ball
from vademecum.robustness._threat import as_threat

ORDERS: dict[Any, float] = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


def length(v: Tensor, p: float) -> Tensor:
    """The p-norm of rows, from its definition."""
    size = v.abs().flatten(1)
    return size.amax(1) if p == math.inf else (size**p).sum(1) ** (1 / p)


def conjugate(p: float) -> float:
    """The exponent q with 1/p + 1/q = 1."""
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def direction(z: Tensor, p: float) -> Tensor:
    """The room's steepest direction where it has one, else that of the dual norm."""
    for norm, order in ORDERS.items():
        if order == p:
            return as_threat(z, norm, 1.0, None).step(z.view(len(z), 1, -1)).view_as(z)
    return dual_norm(z, p).maximiser


@claim(
    by="identity",
    sources=("A-327", "B-456"),
    budget=0.3,
    short=r"\arg\max_{\|v\|_p \le 1} v^\top z = \operatorname{sign}(z) \odot |z|^{q-1} /"
    r" \|z\|_q^{q-1}",
)
def steepest_direction(exponent: Literal["q - 1", "p - 1"] = "q - 1", power: float = 1.0):
    r"""Steepest ascent direction in the p-norm.

    For $\frac1p + \frac1q = 1$ and $1 < p \le \infty$
    $$\operatorname*{argmax}_{\|v\|_p \le 1} v^\top z =
    \frac{\operatorname{sign}(z) \odot |z|^{q-1}}{\|z\|_q^{q-1}}$$
    with the maximum $\|z\|_q$: $z / \|z\|_2$ for $p = 2$ and $\operatorname{sign}(z)$ for
    $p = \infty$; for $p = 1$ all weight is on a largest coordinate. It is the case of equality in
    Hölder's inequality.

    *Checked* for six exponents in 3 and 8 dimensions: the formula and the direction that attacks
    use have norm 1 and the slope $\|z\|_q$, they agree, and no vector of norm 1 that is drawn has a
    larger slope.

    Knobs:
        exponent: The exponent of the moduli.
        power: The power of the norm in the denominator, in units of the exponent.
    """
    for p in (1.0, 1.5, 2.0, 3.0, 10.0, math.inf):
        q = conjugate(p)
        for d in (3, 8):
            at, z, u = {"p": p, "d": d}, torch.randn(5, d), torch.randn(2000, d)
            found = direction(z, p)
            if p > 1:
                e = q - 1 if exponent == "q - 1" or p == math.inf else p - 1
                formula = z.sign() * z.abs() ** e / length(z, e + 1)[:, None] ** (power * e)
                yield equals("norm of the formula", length(formula, p), 1.0, **at)
                yield equals("slope of the formula", (formula * z).sum(1), length(z, q), **at)
                yield equals("direction of attacks", found, formula, **at)
            yield equals("norm of the direction of attacks", length(found, p), 1.0, **at)
            yield equals("its slope", (found * z).sum(1), length(z, q), **at)
            u = u / length(u, p)[:, None]
            yield at_most("slopes of vectors of norm 1", (u @ z.T).amax(0), length(z, q), **at)


steepest_direction.foil("the exponent of the norm itself", exponent="p - 1")
steepest_direction.foil("a root of the norm missing", power=2.0)


def mapped(z: Tensor, norm: str, radius: float, rule: str) -> Tensor:
    """Points brought into a ball around 0 by the room, or by a printed rule."""
    if rule == "projection":
        centre = torch.zeros_like(z)
        return as_threat(centre, norm, radius, None).project(centre, z)
    size = length(z, ORDERS[norm])[:, None]
    return (radius if rule == "to the sphere" else 1.0) * z / size


@claim(
    by="identity",
    sources=("A-326", "B-455", "C-342", "C-343"),
    budget=0.4,
    short=r"\Pi z = z \min\{1, \epsilon / \|z\|_2\}\ (p = 2), \quad \min(\max(z, -\epsilon),"
    r" \epsilon)\ (p = \infty)",
)
def ball_projection(
    rule: Literal["projection", "to the sphere", "to length 1"] = "projection",
    norms: tuple[str, ...] = ("l2", "linf", "l1"),
    radii: tuple[float, ...] = (0.1, 1.0, 3.0),
):
    r"""Projection onto norm balls.

    The Euclidean projection onto $\{\|z\|_p \le \epsilon\}$ is $z \min\{1, \epsilon / \|z\|_2\}$
    for $p = 2$, coordinatewise clipping to $[-\epsilon, \epsilon]$ for $p = \infty$ and
    soft-thresholding with the level that meets the radius for $p = 1$. It fixes every point of the
    ball, is idempotent and does not increase distances.

    *Checked* in 5 dimensions: interior points stay, bit by bit; results lie in the ball, up to the
    rounding of a norm; $(z - \Pi z)^\top (y - \Pi z) \le 0$ for *all* $y$ of the ball, since the
    largest $g^\top y$ over it is $\epsilon \|g\|_q$; and likewise for points that are drawn in the
    intersection of ball and box, onto which attacks project.

    Knobs:
        rule: How points are brought into the ball.
        norms: The norms.
        radii: The radii.
    """
    norm: Any
    for norm in norms:
        p, q = ORDERS[norm], conjugate(ORDERS[norm])
        for radius in radii:
            at = {"norm": norm, "radius": radius}
            inner, z = (
                sample_ball(20, (5,), norm=norm, radius=0.999 * radius),
                4 * torch.randn(20, 5),
            )
            z[0] = radius * torch.tensor([2.0, 0.5, 0.0, 0.0, 0.0])
            there = mapped(inner, norm, radius, rule)
            yield equals("interior points", there, inner, tol=0.0, **at)
            half = mapped(radius / 2 * torch.eye(5)[:1], norm, radius, rule)[0, 0]
            yield equals("where half a radius leads", half, radius / 2, tol=0.0, **at)
            found = mapped(z, norm, radius, rule)
            yield at_most("norm of the result", length(found, p), radius, tol=1e-15, **at)
            g = z - found
            angle = radius * length(g, q) - (g * found).sum(1)
            yield at_most(r"largest $(z - \Pi z)^\top (y - \Pi z)$", angle, 0.0, **at)
            wanted = {"linf": [1.0, 0.5], "l2": [2 / 4.25**0.5, 0.5 / 4.25**0.5], "l1": [1.0, 0.0]}
            corner = radius * torch.tensor(wanted[norm])
            yield equals("where $(2, 0.5)$ radii lead", found[0, :2], corner, **at)
            yield equals("results once more", mapped(found, norm, radius, rule), found, **at)
            yield at_most("distances of results", torch.pdist(found), torch.pdist(z), **at)
            yield from _within_box(norm, radius)


def _within_box(norm: str, radius: float):
    """The projection onto the part of a ball that lies in a box, against points of it."""
    at = {"norm": norm, "radius": radius}
    x0 = torch.rand(4, 5)
    threat = as_threat(x0, norm, radius, (0.0, 1.0))
    z = x0 + 2 * torch.randn(4, 5)
    found = threat.project(x0, z)
    y = x0[:, None] + sample_ball(400, (4, 5), norm="linf", radius=1.0).transpose(0, 1)
    y = y - x0[:, None]
    y = x0[:, None] + y * (radius / length(y.flatten(0, 1), ORDERS[norm])).clamp(max=1).view(
        4, -1, 1
    )
    angle = ((z - found)[:, None] * (y.clamp(0, 1) - found[:, None])).sum(2)
    yield at_most("the same over points of ball and box", angle, 0.0, **at)
    yield at_most("how far entries leave the box", (found - 0.5).abs(), 0.5, tol=0.0, **at)


ball_projection.erratum(
    "A-326",
    printed=r"$\Pi_p z = \epsilon z / \|z\|_p$",
    right=r"$\Pi_2 z = z \min\{1, \epsilon / \|z\|_2\}$, $\Pi_\infty z = \min(\max(z,"
    r" -\epsilon), \epsilon)$",
    why=r"A rescaling to the sphere, no projection: for $\epsilon = 1$ it pushes the interior"
    r" point $\frac12 e_1$ to $e_1$ and for $p = \infty$ takes $(2, 0.5)$ to $(1, 0.25)$ instead of"
    r" the nearest point $(1, 0.5)$; at $z = 0$ it divides by zero.",
    weight="hard",
    refuted_by="where half a radius leads",
    rule="to the sphere",
    radii=(1.0,),
)
ball_projection.erratum(
    "C-342",
    printed=r"$\Pi_\epsilon[z] := z / \|z\|_2$ for $p = 2$",
    right=r"$\Pi_\epsilon[z] := z \min\{1, \epsilon / \|z\|_2\}$",
    why=r"The radius is missing: for $\epsilon = 0.1$ every $z$ is sent to length 1, outside the"
    " ball. (As scanned; with the radius it still moves interior points.)",
    weight="hard",
    refuted_by="norm of the result",
    rule="to length 1",
    norms=("l2",),
    radii=(0.1,),
)
ball_projection.erratum(
    "C-343",
    printed=r"$\Pi_\epsilon[z] := z / \|z\|_\infty$ for $p = \infty$",
    right=r"$\Pi_\epsilon[z] := \min(\max(z, -\epsilon), \epsilon)$",
    why=r"Rescaling is no projection onto a cube: for $\epsilon = 1$ the point $(2, 0.5)$ goes to"
    r" $(1, 0.25)$, at distance 1.03, while $(1, 0.5)$ is at distance 1.",
    weight="hard",
    refuted_by="where $(2, 0.5)$ radii lead",
    rule="to length 1",
    norms=("linf",),
    radii=(1.0,),
)
ball_projection.foil("rescaled in the 1-norm", rule="to the sphere", norms=("l1",))
