"""Score matching: how scores are fitted without the density."""

import math

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, equals, in_mean
from vademecum.generative import score_matching_loss
from vademecum.generative.claims._score_oracles import (
    Field,
    density,
    grid_of,
    hermite,
    mixture,
    score_of,
)


@claim(
    by="identity",
    sources=("A-394",),
    budget=1.0,
    short=r"p\, s \to 0 \text{ at } \infty: \mathbb E_p\|\nabla \log p - s\|^2"
    r" = \mathbb E_p[\|s\|^2 + 2\,\mathrm{tr}\,\nabla s] + C",
)
def implicit_score_matching(factor: float = 2.0, law: str = "mixture", fields: int = 10):
    r"""Hyvarinen's implicit score matching.

    If $p$ and $s_\theta$ are smooth and $p\, s_\theta \to 0$ at infinity, then $\mathbb E_p
    \|\nabla \log p - s_\theta\|^2 = \mathbb E_p \big[\|s_\theta\|^2 + 2 \operatorname{tr} (\nabla
    s_\theta)\big] + C$ with $C = \mathbb E_p \|\nabla \log p\|^2$ independent of $\theta$, by
    integration by parts; the right side needs samples of $p$ only.

    Checked for random mixtures on a line and in a plane and random smooth fields, both sides by
    sums over a grid whose error is below 1e-12 (tails beyond eight standard deviations, waves of at
    most a third of the grid's frequency): on the right the room's implicit loss, on the
    left scores by the complex step. The gap of the two sides must be $C$ for every field. Without
    the condition at the boundary, for the uniform law on an interval, it is not constant.

    Knobs:
        factor: The factor of the trace.
        law: "mixture", or "uniform" on an interval, whose density does not vanish at the ends.
        fields: How many random fields are tried, for each dimension.
    """
    for d in (1, 2):
        if law == "mixture":
            known = mixture(d, 3)
            x, cell = grid_of(d, 12.0, 0.2 if d == 1 else 0.35)
            weights, true = density(x, *known) * cell, score_of(x, *known)
        else:
            nodes, w = np.polynomial.legendre.leggauss(40)
            line, w = torch.tensor(nodes), torch.tensor(w / 2)
            x, weights = torch.cartesian_prod(*[line] * d).reshape(-1, d), w
            weights = torch.cartesian_prod(*[w] * d).reshape(-1, d).prod(1)
            true = torch.zeros_like(x)
        constant = (weights * (true**2).sum(1)).sum()
        yield equals("mass of the law", weights.sum(), 1.0, d=d)
        for _ in range(fields):
            field = Field(d)
            squares = (field(x) ** 2).sum(1)
            loss = score_matching_loss(field, x, method="implicit", reduction="none").detach()
            right = squares + factor / 2 * (loss - squares)
            left = ((true - field(x)) ** 2).sum(1)
            gap = (weights * (left - right)).sum()
            yield equals("explicit minus implicit loss", gap, constant, tol=1e-9, d=d)
            trace = squares + 2 * field.divergence(x)
            yield equals("implicit loss at every point", loss, trace, tol=1e-10, d=d)


implicit_score_matching.foil(
    "no factor 2 before the trace", refuted_by="explicit minus implicit loss", factor=1.0
)
implicit_score_matching.foil(
    "a density that does not vanish at the boundary",
    refuted_by="explicit minus implicit loss", law="uniform",
)  # fmt: skip


def sphere(d: int) -> tuple[Tensor, Tensor]:
    """Nodes on the unit circle or sphere and their weights: exact for polynomials of low degree.

    The area of the sphere is even in height and angle (Archimedes): Gauss's nodes in the height.
    """
    angle = torch.arange(8) * math.pi / 4
    if d == 2:
        return torch.stack([angle.cos(), angle.sin()], 1), torch.full((8,), 1 / 8)
    nodes, w = (torch.tensor(v) for v in np.polynomial.legendre.leggauss(4))
    height, turn = torch.cartesian_prod(nodes, angle).T
    across = (1 - height**2).sqrt()
    points = torch.stack([across * turn.cos(), across * turn.sin(), height], 1)
    return points, w.repeat_interleave(8) / 16


@claim(
    by="identity",
    sources=("A-395",),
    budget=1.0,
    short=r"\mathbb E v v^\top = I: \mathbb E\|\nabla \log p - s\|^2 ="
    r" \mathbb E[(v^\top s)^2 + 2 v^\top \nabla s\, v] + C",
)
def sliced_score_matching(by_dimension: bool = True, factor: float = 2.0, n: int = 20_000):
    r"""Sliced score matching.

    For random directions with $\mathbb E[v v^\top] = I$ (Gaussian or Rademacher), $\mathbb E_p
    \|\nabla \log p - s_\theta\|^2 = \mathbb E_p \mathbb E_v \big[(v^\top s_\theta)^2 + 2\, v^\top
    \nabla s_\theta\, v\big] + C$, which replaces the trace by directional derivatives. For $v$
    uniform on the unit sphere $S^{d-1}$ the expectation must be multiplied by $d$ (the minimiser is
    the same either way).

    Checked for normal laws and affine fields, where all means are exact: over $p$ by Gauss's nodes,
    over all $2^d$ sign vectors, over the circle and the sphere by quadrature; and for the room's
    sliced loss, whose draws with signs are among the values that there are, and whose means over
    draws of each law (five standard errors) are the implicit loss, for $d = 2, 3$ and 5.

    Knobs:
        by_dimension: Whether the mean over the sphere is multiplied by $d$.
        factor: The factor of the directional derivative.
        n: How many directions are drawn, of each law.
    """
    for d in (2, 3):
        z, w = hermite(3)
        x = torch.cartesian_prod(*[z] * d)
        weights = torch.cartesian_prod(*[w] * d).prod(1)
        m, s = torch.randn(d), 0.5 + torch.rand(d)
        constant, x = (1 / s**2).sum(), m + s * x
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * d)
        laws = {"signs": (signs, torch.full((2**d,), 0.5**d)), "sphere": sphere(d)}
        for _ in range(4):
            A, b = torch.randn(d, d), torch.randn(d)
            for name, (v, each) in laws.items():
                along = (x @ A.T + b) @ v.T
                value = (along**2 + factor * ((v @ A) * v).sum(1)) @ each
                value = value * d if by_dimension and name == "sphere" else value
                left = (((m - x) / s**2 - x @ A.T - b) ** 2).sum(1)
                gap = (weights * (left - value)).sum()
                words = f"explicit minus sliced loss, {name}"
                yield equals(words, gap, constant, tol=1e-10, d=d)
                implicit = ((x @ A.T + b) ** 2).sum(1) + 2 * A.trace()
                yield equals(f"sliced loss at every point, {name}", value, implicit, tol=1e-10, d=d)
    yield from _drawn_slices(by_dimension, n)


def _drawn_slices(by_dimension: bool, n: int):
    """The room's own loss, at one point of which n copies get a direction each."""
    for d in (2, 3, 5):
        A, b, at = torch.randn(d, d), torch.randn(d), torch.randn(d)
        wanted = float(((A @ at + b) ** 2).sum() + 2 * A.trace())
        x = at.expand(n, d)
        for law in ("rademacher", "gaussian", "sphere"):
            with torch.no_grad():
                losses = score_matching_loss(lambda y, A=A, b=b: y @ A.T + b, x, method="sliced",
                                             law=law, reduction="none")  # fmt: skip
            losses = losses if by_dimension or law != "sphere" else losses / d
            yield in_mean("sliced loss over directions", losses, wanted, law=law, d=d)
            if law == "rademacher":
                v = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * d)
                every = (v @ (A @ at + b)) ** 2 + 2 * ((v @ A) * v).sum(1)
                nearest = (losses[:200, None] - every).abs().amin(1)
                yield equals("distance from the values that signs give", nearest, 0.0, d=d)


sliced_score_matching.foil(
    "no factor 2 before the directional derivative", factor=1.0,
    refuted_by="explicit minus sliced loss, signs",
)  # fmt: skip
sliced_score_matching.erratum(
    "A-395",
    printed=r"$\ell(p, \theta) = \mathbb E_p \mathbb E_{v \sim \mathcal U(S^d)}[(v^\top"
    r" s_\theta(x))^2 + 2 v^\top \nabla s_\theta(x) v] + C$",
    right=r"$\ell(p, \theta) = d\, \mathbb E_p \mathbb E_{v \sim \mathcal U(S^{d-1})}[(v^\top"
    r" s_\theta(x))^2 + 2 v^\top \nabla s_\theta(x) v] + C$",
    why=r"On the unit sphere of $\mathbb R^d$, which is $S^{d-1}$, $\mathbb E[v v^\top] = I / d$,"
    r" so that the expectation is $1/d$ of what it should be: a factor, which no additive constant"
    r" absorbs. The minimiser is the same.",
    weight="hard",
    refuted_by="sliced loss at every point, sphere",
    by_dimension=False,
)
