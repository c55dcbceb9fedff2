"""Critical points and the Hessian test: what curvatures say of a point, and what not."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, with_eigenvalues
from vademecum.generalization import classify_critical_point
from vademecum.linear import DeepLinearNetwork, critical_points

KINDS = ("minimum", "maximum", "saddle", "undecided", "not critical")
PLANE = {
    "x^2 + y^2": (lambda x, y: x**2 + y**2, "minimum"),
    "-2 x^2 - y^2 + x^3": (lambda x, y: -2 * x**2 - y**2 + x**3, "maximum"),
    "x^2 - y^2": (lambda x, y: x**2 - y**2, "saddle"),
    "x^2 + y^4": (lambda x, y: x**2 + y**4, "undecided"),
    "x^2 - y^4": (lambda x, y: x**2 - y**4, "undecided"),
    "x^3 - 3 x y^2": (lambda x, y: x**3 - 3 * x * y**2, "undecided"),
    "-x^4 - y^2": (lambda x, y: -(x**4) - y**2, "undecided"),
}
"""Functions with a critical point at 0, and what the Hessian says of it."""
ANSWER = f"answer ({', '.join(f'{i} {kind}' for i, kind in enumerate(KINDS))})"


def around(f) -> tuple[list[float], list[float]]:
    """The least and the largest values on circles of three radii, over $r^4$."""
    turns = [2 * math.pi * i / 360 for i in range(360)]
    rings = [[f(r * math.cos(t), r * math.sin(t)) / r**4 for t in turns] for r in (0.1, 0.2, 0.3)]
    return [min(ring) for ring in rings], [max(ring) for ring in rings]


def eigenvalues(f) -> list[float]:
    """Those of the Hessian at 0, in ascending order, by SymPy."""
    import sympy

    x, y = sympy.symbols("x y")
    H = sympy.hessian(f(x, y), (x, y)).subs({x: 0, y: 0})
    return sorted(float(v) for v, times in H.eigenvals().items() for _ in range(times))


def answers(found: str, wanted: str, **at: Any) -> Evidence:
    """What was answered against what is right, by number."""
    return equals(ANSWER, KINDS.index(found), KINDS.index(wanted), **at)


def half_squares(z: Tensor, y: Tensor) -> Tensor:
    """Half the squared distance."""
    return (z - y).square().sum() / 2


def planted(signs: Tensor):
    """A function with a critical point whose Hessian's eigenvalues have these signs, and where."""
    d = len(signs)
    A, c = with_eigenvalues(signs * (0.5 + torch.rand(d))), torch.randn(d)
    u = torch.randn(d)
    return (lambda v: (v - c) @ A @ (v - c) / 2 + ((v - c) @ u) ** 3 / 10), c


@claim(
    by="identity",
    sources=("C-283", "C-284", "C-285"),
    budget=0.8,
    short=r"H \succ 0 \Rightarrow \text{minimum} \Rightarrow H \succeq 0,\quad"
    r" H \text{ indefinite} \Rightarrow \text{saddle}",
)
def hessian_test(
    minimum: Literal["definite", "semidefinite"] = "definite",
    least: float = 0.0,
    shift: float = 0.0,
):
    r"""Critical points and the Hessian test.

    At a critical point ($\nabla \mathcal L = 0$): a local minimum has $H \succeq 0$ (necessary), $H
    \succ 0$ implies a strict local minimum (sufficient), an indefinite $H$ implies a saddle; $H
    \succeq 0$ with a zero eigenvalue decides nothing, and saddles with degenerate Hessian exist.

    *Proof.* Taylor's formula to second order. Checked for seven functions of the plane: what
    `classify_critical_point` says, with eigenvalues by SymPy, against the signs of the function on
    three small circles; for planted eigenvalues of all signs in 3, 5 and 300 dimensions, the last
    by Lanczos' method; and for two-layer linear networks, whose saddles have known indices and
    whose minima are flat along a symmetry, so that nothing is decided there.

    Knobs:
        minimum: Which Hessians are said to show a minimum.
        least: How far eigenvalues are said to be from zero at all minima, and at all saddles.
        shift: How far from the critical point one looks.
    """
    for text, (f, wanted) in PLANE.items():
        (low, high), lam = around(f), eigenvalues(f)
        found = classify_critical_point(lambda v, f=f: f(*v), torch.zeros(2))
        pair = torch.tensor([found.smallest, found.largest])
        yield equals("extreme eigenvalues", pair, lam, tol=1e-12, f=text)
        yield answers(found.kind, wanted, f=text)
        enough = lam[0] > 0 or (minimum == "semidefinite" and lam[0] >= 0)
        if enough or found.kind == "minimum":
            yield at_least(
                "lowest value, over r^4, around what is called a minimum", low, 0.0, tol=0.0, f=text
            )
        if found.kind == "maximum":
            yield at_most("highest value around a maximum", high, 0.0, tol=0.0, f=text)
        if found.kind == "saddle":
            yield at_most("lowest value around a saddle", low, 0.0, tol=0.0, f=text)
            yield at_least("highest value around a saddle", high, 0.0, tol=0.0, f=text)
        if min(low) > 0:
            yield at_least("smallest eigenvalue at a minimum", lam[0], least, tol=0.0, f=text)
        if min(low) < 0 < max(high):
            yield at_most("smallest eigenvalue at a saddle", lam[0], -least, tol=0.0, f=text)
    for d in (3, 5, 300):
        mixed = torch.cat([-torch.ones(2), torch.ones(d - 2)])
        cases = {"minimum": torch.ones(d), "maximum": -torch.ones(d), "saddle": mixed}
        for wanted, signs in cases.items():
            f, c = planted(signs)
            found = classify_critical_point(f, c + shift)
            yield answers(found.kind, wanted, d=d)
            if d < 300:
                yield equals(
                    "negative eigenvalues", found.saddle_index, int((signs < 0).sum()), d=d
                )
            yield answers(classify_critical_point(f, c + 0.1).kind, "not critical", d=d, off=0.1)
    yield from linear_networks()


def linear_networks() -> Iterator[Evidence]:
    """All critical points of a two-layer linear network, whose indices are known."""
    U, V = (torch.linalg.qr(torch.randn(k, k)).Q[:, :3] for k in (3, 4))
    gamma = (U * torch.tensor([3.0, 2.0, 1.2])) @ V.T
    for point in critical_points(gamma, 2):
        net = DeepLinearNetwork.balanced(point.product, width=2)
        found = classify_critical_point(net, torch.eye(4), gamma.T, loss=half_squares)
        wanted, modes = "saddle" if point.saddle_index else "undecided", str(point.modes)
        yield answers(found.kind, wanted, modes=modes)
        index = (found.saddle_index, point.saddle_index)
        yield equals("negative eigenvalues of a linear network", *index, modes=modes)


hessian_test.foil(
    "all minima have positive eigenvalues", refuted_by="smallest eigenvalue at a minimum", least=0.1
)
hessian_test.foil(
    "a saddle if and only if the Hessian is indefinite",
    refuted_by="smallest eigenvalue at a saddle",
    least=0.1,
)
hessian_test.foil("the signs decide wherever one looks", refuted_by=ANSWER, shift=0.01)
hessian_test.erratum(
    "C-284",
    printed=r"Local min: $H \succeq 0$",
    right=r"Local min $\Rightarrow H \succeq 0$; $H \succ 0 \Rightarrow$ local min",
    why=r"Necessary, not sufficient: $x^2 - y^4$ has $H(0) = \mathrm{diag}(2, 0) \succeq 0$ and a"
    r" saddle at 0, with the value $-r^4$ on a circle of radius $r$.",
    weight="soft",
    refuted_by="lowest value, over r^4, around what is called a minimum",
    minimum="semidefinite",
)
