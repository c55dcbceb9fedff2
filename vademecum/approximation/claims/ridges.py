"""Ridge functions: what is constant across a direction, and sums of such functions."""

import math
from collections.abc import Callable
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum.arrays import rational_rank, row_reduce
from vademecum.claims import claim, complex_step, equals


def level_set(phi: Callable[[Tensor], Tensor], z: float, w: Tensor, b: float) -> Tensor:
    """Points with phi(w x + b) = z, found by scanning lines along w from where w x + b = 0."""
    start = torch.randn(8, len(w))
    start -= ((start @ w + b) / (w @ w))[:, None] * w
    tau = torch.linspace(-4, 4, 82)
    line = start[:, None] + tau[:, None] * w / (w @ w)  # the pre-activation moves by tau
    gap = phi(line @ w + b) - z
    flat = line[gap == 0]
    low, high = (part[gap[:, :-1] * gap[:, 1:] < 0] for part in (line[:, :-1], line[:, 1:]))
    rising = phi(low @ w + b) < z
    for _ in range(60):
        middle = (low + high) / 2
        left = (phi(middle @ w + b) < z) == rising
        low, high = (
            torch.where(left[:, None], middle, low),
            torch.where(left[:, None], high, middle),
        )
    return torch.cat([flat, low])


def softplus(t: Tensor) -> Tensor:
    """The softplus of complex numbers too, which torch's own refuses."""
    return (1 + t.exp()).log()


RIDGES = {
    "tanh": (torch.tanh, lambda t: 1 - t.tanh() ** 2, 0.5),
    "softplus": (softplus, torch.sigmoid, 1.0),
    "sin": (torch.sin, torch.cos, None),
    "relu": (torch.relu, None, 0.0),
    "abs": (torch.abs, None, 1.0),
}


@claim(
    by="identity",
    sources=("A-022", "B-096", "B-097", "B-098"),
    budget=0.5,
    short=r"f(x) = \phi(w^\top x + b) \Rightarrow \nabla f(x) = \phi'(w^\top x + b)\, w",
)
def ridge_function(profiles: tuple[str, ...] = ("tanh", "softplus", "sin"), length: float = 1.0):
    r"""Ridge functions: their level sets and sensitivity.

    A ridge function $f(x) = \phi(w^\top x + b)$, $w \ne 0$, is constant along directions
    orthogonal to $w$. Where $\phi$ is differentiable its gradient $\phi'(w^\top x + b)\, w$ is
    parallel to $w$ and has the norm $|\phi'(w^\top x + b)|\, \|w\|$, which does depend on the
    point. The level set of $z$ is the union of the parallel hyperplanes $w^\top x + b = c$,
    $c \in \phi^{-1}(z)$: one hyperplane orthogonal to $w$ if exactly one $c$ has $\phi(c) = z$
    (checked for injective $\phi$), otherwise several, or a slab or half-space where $\phi$ is flat.

    Checked in two and five dimensions; gradients are those of the complex step.

    Knobs:
        profiles: The functions $\phi$.
        length: The power of $\|w\|$ in the norm of the gradient.
    """
    for name, d in product(profiles, (2, 5)):
        phi, derivative, z = RIDGES[name]
        w, b = torch.randn(d), float(torch.randn(()))
        w *= 2 / w.norm()
        f = lambda x, phi=phi, w=w, b=b: phi(x @ w.to(x) + b)  # noqa: E731
        x, along = torch.randn(20, d), torch.randn(20, d)
        along -= (along @ w)[:, None] * w / (w @ w)
        yield equals("value after a step orthogonal to $w$", f(x + along), f(x), d=d, phi=name)
        if derivative is not None:
            gradient = torch.stack([complex_step(f, x, e) for e in torch.eye(d)], 1)
            across = gradient - (gradient @ w)[:, None] * w / (w @ w)
            yield equals("gradient's part orthogonal to $w$", across, 0.0, tol=1e-12, d=d, phi=name)
            size = derivative(x @ w + b).abs() * w.norm() ** length
            yield equals("norm of the gradient", gradient.norm(dim=1), size, d=d, phi=name)
        if z is not None:
            members = level_set(phi, z, w, b)
            yield equals("value on the level set", f(members), z, d=d, phi=name)
            inner = (members - members[0]) @ w
            yield equals("inner product of $w$ and a difference in the level set", inner, 0.0, d=d,
                         phi=name)  # fmt: skip


ridge_function.foil("the gradient's norm without that of $w$", length=0.0)
ridge_function.foil("the level set of $|\\cdot|$ at 1 is two hyperplanes", profiles=("abs",))
ridge_function.erratum(
    "A-022",
    printed=r"$L_f(z) = \{x : \phi(w^\top x + b) = z\} \perp w$",
    right=r"$L_f(z) \perp w$ where exactly one $c$ has $\phi(c) = z$",
    why=r"Holds only where $\phi$ is injective. For ReLU and $z = 0$ the level set is the"
    r" half-space $w^\top x \le -b$, which contains the direction $-w$; for $|\cdot|$ it consists"
    " of two parallel hyperplanes.",
    weight="soft",
    profiles=("relu",),
)


def directions(count: int) -> list[tuple[int, int]]:
    """Random directions of the plane with integer coordinates, pairwise independent."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        a, b = torch.randint(-9 - count, 10 + count, (2,)).tolist()
        if (a or b) and all(a * d - b * c for c, d in found):
            found.append((a, b))
    return found


def powers_in_space(k: int) -> list[list[int]]:
    r"""The coefficients of $(x + t y + t^{k + 1} z)^k$, a row for each of $t = 1, 2, \dots$."""
    monomials = [(j, l) for j in range(k + 1) for l in range(k + 1 - j)]
    return [
        [math.comb(k, j + l) * math.comb(j + l, l) * t ** (j + (k + 1) * l) for j, l in monomials]
        for t in range(1, len(monomials) + 1)
    ]


@claim(
    by="identity",
    sources=("B-128", "B-129"),
    budget=0.5,
    full={"degree": 9},
    short=r"\textstyle\sum_j \sigma_j(\theta_j \cdot x) \text{ are dense},\ "
    r"x y = \tfrac14 [(x + y)^2 - (x - y)^2]",
)
def ridge_span(spare: int = 1, profile: Literal["power", "identity"] = "power", degree: int = 6):
    r"""Sums of ridge functions with free profiles are universal.

    Finite sums $\sum_j \sigma_j(x \cdot \theta_j)$ with arbitrary continuous profiles $\sigma_j$
    are dense in $C(\mathbb R^n)$ on compacts: every homogeneous polynomial of degree $k$ is a
    finite combination of powers $(x \cdot \theta)^k$, in the plane of those of any $k + 1$ pairwise
    independent directions, for example $x y = \frac14 [(x + y)^2 - (x - y)^2]$. The profile may
    differ from term to term, so this does not yet justify one fixed activation; dimension lifting
    closes that gap.

    *Proof in the plane.* $(a x + b y)^k = \sum_i \binom ki a^{k - i} b^i x^{k - i} y^i$, and the
    matrix of $a_j^{k - i} b_j^i$ is a homogeneous Vandermonde matrix. Two polynomials of degree $k$
    in each variable are equal if they agree on a grid of $(k + 1)^2$ points.

    Checked in fractions for every monomial up to a degree in the plane, with random directions, and
    for the dimension of the span of powers in space; quoted beyond.

    Knobs:
        spare: How many directions there are beyond $k$.
        profile: Whether the profiles are powers, or the identity.
        degree: The largest $k$.
    """
    for k in range(1, degree + 1):
        theta = directions(k + spare)
        columns = [[math.comb(k, i) * a ** (k - i) * b**i for a, b in theta] for i in range(k + 1)]
        yield equals("dimension of the span of powers in the plane", rational_rank(columns), k + 1,
                     k=k)  # fmt: skip
        power = k if profile == "power" else 1
        for i in range(k + 1):
            rows, pivots = row_reduce([[*row, int(i == j)] for j, row in enumerate(columns)])
            c = {p: row[-1] for row, p in zip(rows, pivots, strict=True) if p < len(theta)}
            grid = product(range(k + 1), repeat=2)
            off = [sum(c[j] * (theta[j][0] * x + theta[j][1] * y) ** power for j in c)
                   - x ** (k - i) * y**i for x, y in grid]  # fmt: skip
            yield equals("combination of ridge functions less the monomial", list(map(float, off)),
                         0.0, tol=0.0, k=k, i=i)  # fmt: skip
    for k in (1, 2, 3):
        rank = rational_rank(powers_in_space(k))
        yield equals("dimension of the span of powers in space", rank, math.comb(k + 2, 2), k=k)
    square = [(x + y) ** 2 - (x - y) ** 2 - 4 * x * y for x in range(3) for y in range(3)]
    yield equals("$(x + y)^2 - (x - y)^2 - 4 x y$", square, 0)


ridge_span.foil("$k$ directions span too little", spare=0)
ridge_span.foil(r"the profile $\sigma(z) = z$ alone", profile="identity")
