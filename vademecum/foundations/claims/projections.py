"""That a projection is the nearest point."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.norms import dual_norm
from vademecum.foundations.projections import project

ORDERS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


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
    """The point of the set that goes farthest in the direction g: the support function's."""
    if onto == "simplex":
        return radius * torch.nn.functional.one_hot(g.argmax(-1), g.shape[-1])
    return radius * dual_norm(g, ORDERS[onto]).maximiser


@claim(by="identity", budget=0.5, full={"points": 500, "widths": (1, 2, 5, 30, 1000)})
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
    """
    for onto in sets:
        for d in widths:
            for radius in (0.5, 1.0, 7.0):
                x = 3 * torch.randn(points, d)
                x[0], x[0, 0] = 2.0, 3.0
                p = nearest(x, onto, radius=radius)
                g = x - p
                z = farthest(g, onto, radius)
                yield at_most((g * (z - p)).sum(-1), 0.0, d=d, radius=radius)
                if onto == "simplex":
                    yield at_least(p, 0.0, tol=0.0, d=d, radius=radius)
                    yield equals(p.sum(-1), radius, d=d, radius=radius)
                else:
                    size = torch.linalg.vector_norm(p, ORDERS[onto], dim=-1)
                    yield at_most(size, radius, d=d, radius=radius)
                here, there = torch.pdist(x), torch.pdist(p)
                yield at_most(there, here, d=d, radius=radius)
                yield equals(nearest(p, onto, radius=radius), p, d=d, radius=radius)


projection_nearest.foil(
    "clipped at zero and divided by the sum", sets=("simplex",), nearest=rescaled
)
projection_nearest.foil("the soft maximum", sets=("simplex",), nearest=softmax)
projection_nearest.foil("divided by the 1-norm", sets=("l1",), nearest=rescaled)
projection_nearest.foil("divided by the largest entry", sets=("linf",), nearest=rescaled)
