"""Projections: the nearest point of a convex set."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, lowest
from vademecum.foundations import project

ORDERS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
CONJUGATE = {"l1": math.inf, "l2": 2.0, "linf": 1.0}


def rescaled(x: Tensor, onto: str, *, radius: float) -> Tensor:
    """Points brought into the set by a factor, on the simplex after clipping at zero."""
    if onto == "simplex":
        x = x.clamp(min=0)
        return radius * x / x.sum(-1, keepdim=True)
    size = torch.linalg.vector_norm(x, ORDERS[onto], dim=-1, keepdim=True)
    return x * (radius / size).clamp(max=1)


def softmax(x: Tensor, onto: str, *, radius: float) -> Tensor:
    """The soft maximum in place of the projection onto the simplex."""
    return radius * x.softmax(-1)


def farthest(g: Tensor, onto: str, radius: float) -> Tensor:
    r"""The largest $\langle g, z \rangle$ over the points z of the set: its support function."""
    if onto == "simplex":
        return radius * g.amax(-1)
    return radius * torch.linalg.vector_norm(g, CONJUGATE[onto], dim=-1)


@claim(
    by="identity",
    budget=0.5,
    full={"points": 500, "widths": (1, 2, 5, 30, 1000)},
    short=r"\langle x - Px, z - Px \rangle \le 0\ \forall z \in C, \quad \|Px - Py\| \le \|x - y\|",
)
def projection_nearest(
    sets: tuple[str, ...] = ("l1", "l2", "linf", "simplex"),
    nearest: Callable[..., Tensor] = project,
    points: int = 50,
    widths: tuple[int, ...] = (1, 2, 5, 30),
):
    r"""The projection onto a convex set is the nearest point, and does not increase distances.

    For a closed convex $C \subset \mathbb R^d$ and any $x$ there is one nearest point $Px \in C$.
    It is the only $p \in C$ with $\langle x - p, z - p \rangle \le 0$ for all $z \in C$, and
    $\|Px - Py\| \le \|x - y\|$ for all $x, y$; points of $C$ stay where they are. Here for the
    balls of the norms 1, 2, $\infty$ and for the simplex, all $z$ at once: the largest
    $\langle x - p, z \rangle$ over a ball is the dual norm of $x - p$ times the radius.

    *Proof.* $\|x - z\|^2 = \|x - p\|^2 - 2 \langle x - p, z - p \rangle + \|z - p\|^2$. Adding the
    inequalities of $x$ at $Py$ and of $y$ at $Px$ gives
    $\|Px - Py\|^2 \le \langle x - y, Px - Py \rangle$.

    Knobs:
        sets: The convex sets: balls of norms, and the simplex.
        nearest: The projection of points onto a set of a radius.
        points: How many points are drawn for each set, dimension and radius.
        widths: The dimensions.
    """
    lowest("points", points, 4)
    for onto in sets:
        for d, radius in product(widths, (0.5, 1.0, 7.0)):
            at = {"d": d, "set": onto, "radius": radius}
            x = 3 * torch.randn(points, d)
            x[0], x[0, 0] = 2.0, 3.0
            p = nearest(x, onto, radius=radius)
            g = x - p
            angle = farthest(g, onto, radius) - (g * p).sum(-1)
            yield at_most(r"largest $\langle x - p, z - p \rangle$ over the set", angle, 0.0, **at)
            if onto == "simplex":
                yield at_least("entries of the projection", p, 0.0, tol=0.0, **at)
                yield equals("sum of the entries of the projection", p.sum(-1), radius, **at)
            else:
                size = torch.linalg.vector_norm(p, ORDERS[onto], dim=-1)
                yield at_most("norm of the projection", size, radius, **at)
            blocks = nearest(x[:4].view(2, 2, d), onto, radius=radius)
            yield equals("projections of a batch in two axes", blocks.view(4, d), p[:4], **at)
            there = torch.pdist(p)
            yield at_most("distances of projections", there, torch.pdist(x), **at)
            yield equals("projections projected again", nearest(p, onto, radius=radius), p, **at)
            if d == 5:
                yield from _derivative(lambda x, o=onto, r=radius: nearest(x, o, radius=r), x, **at)


def _derivative(f: Callable[[Tensor], Tensor], x: Tensor, **at: Any) -> Iterator[Evidence]:
    """The derivative along a direction, forwards and backwards, against a difference quotient."""
    x = x[-3:].clone().requires_grad_()
    u, v = torch.randn(2, *x.shape)
    h = 1e-9  # so small that no piece ends within it; rounding leaves some 1e-6
    wanted = (f(x.detach() + h * v) - f(x.detach() - h * v)) / (2 * h)
    found = torch.func.jvp(f, (x.detach(),), (v,))[1]
    yield equals("derivative of the projection", found, wanted, tol=1e-5, **at)
    (pulled,) = torch.autograd.grad((u * f(x)).sum(), x)
    yield equals("derivative, backwards", (pulled * v).sum(), (u * wanted).sum(), tol=1e-5, **at)


projection_nearest.foil(
    "clipped at zero and divided by the sum", sets=("simplex",), nearest=rescaled
)
projection_nearest.foil("the soft maximum", sets=("simplex",), nearest=softmax)
projection_nearest.foil("divided by the 1-norm", sets=("l1",), nearest=rescaled)
projection_nearest.foil("divided by the largest entry", sets=("linf",), nearest=rescaled)
