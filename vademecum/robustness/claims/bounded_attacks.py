"""Attacks of bounded size: how they differ from the smallest perturbation."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.robustness import fgsm, linear_radius, minimal_radius, robust_accuracy

EXPONENTS: dict[Any, float] = {"l2": 2.0, "linf": torch.inf}


@claim(
    by="sampling",
    sources=("B-442", "B-451", "B-452"),
    short=r"\mathrm{acc}_\epsilon = \frac1n \#\{i : k(x_i) = y_i,\ \rho(x_i) > \epsilon\}"
    r" \text{ with the minimal radius } \rho",
)
def minimal_vs_constrained(
    attack: Literal["minimal", "constrained"] = "minimal",
    counted: Literal["right", "all"] = "right",
    n: int = 500,
):
    r"""Minimal and norm-constrained robustness.

    Robustness is measured either by the smallest perturbation that changes the decision or by loss
    or accuracy under perturbations of bounded size $\|r\|_p \le \epsilon$; robust accuracy at
    $\epsilon$ is the fraction of points whose clean prediction is right and whose minimal
    perturbation exceeds $\epsilon$. A constrained attack need not return a minimal perturbation: it
    may be larger than needed.

    Checked for linear classifiers with $p = 2, \infty$ at 20 radii: accuracy under the attack
    `fgsm`, which is exact for them, against the share of minimal radii by formula, and against the
    worst points of the ball (all corners for $\infty$). Bisection over the attack finds lengths
    within 1 % above the minimal ones; the attack at a fixed radius has that radius itself.

    Knobs:
        attack: Which perturbations are said to be minimal: those of the bisection, or of the
            attack at a fixed radius.
        counted: Whether points with a wrong clean prediction count as wrong, or by their radius
            alone.
        n: How many points.
    """
    for norm, d in zip(EXPONENTS, (5, 4), strict=True):
        w, b, x = torch.randn(d), torch.randn(()), torch.randn(n, d)
        y = ((x @ w + b + torch.randn(n)) > 0).long()  # some are wrong
        model = two_logits(w, b)
        rho = linear_radius(w, b, x, norm=norm)
        right = ((x @ w + b) > 0) == y
        counts = right if counted == "right" else torch.ones_like(right)
        radii = torch.linspace(0.02, 2, 20) * float(rho.median())
        by_radius = torch.stack([(counts & (rho > r)).double().mean() for r in radii])
        curve = robust_accuracy(model, x, y, radii=radii, norm=norm, attack=fgsm, box=None)
        yield equals("accuracy under attack", curve.accuracy, by_radius, norm=norm)
        worst = torch.stack([worst_margin(w, b, x, y, norm, r) > 0 for r in radii])
        share = worst.double().mean(1)
        yield equals("accuracy at the worst points of the ball", share, by_radius, norm=norm)
        eps = float(rho.median())
        found = fgsm(model, x, y, norm=norm, radius=eps, box=None)
        made = length_of(found.x - x, norm)
        fooled = found.fooled & right
        yield at_most("length of a perturbation", made, eps, tol=0.0, norm=norm)
        yield at_least("its excess over the minimal one", (made - rho)[fooled], 0.0, norm=norm)
        if attack == "minimal":
            few = right.nonzero()[:40, 0]
            knobs: Any = {"norm": norm, "attack": fgsm, "largest": 50.0, "box": None}
            made, wanted = minimal_radius(model, x[few], y[few], **knobs).radius, rho[few]
        else:
            made, wanted = made[fooled], rho[fooled]
        ratio = made / wanted
        yield at_most("length over the minimal one", ratio, 1.01, tol=1e-6, norm=norm)
        yield at_least("length over the minimal one, from below", ratio, 1.0, tol=1e-9, norm=norm)


def two_logits(w: Tensor, b: Tensor) -> nn.Module:
    """The classifier with the logits 0 and w^T x + b."""
    model = nn.Linear(len(w), 2)
    model.weight.data = torch.stack([torch.zeros_like(w), w])
    model.bias.data = torch.stack([torch.zeros_like(b), b])
    return model


def length_of(r: Tensor, norm: str) -> Tensor:
    """The norms of the rows."""
    return torch.linalg.vector_norm(r, EXPONENTS[norm], dim=-1)


def worst_margin(w: Tensor, b: Tensor, x: Tensor, y: Tensor, norm: str, r: Tensor) -> Tensor:
    """The least margin in the ball: at all corners of the cube, or by Cauchy and Schwarz."""
    sign = 2 * y - 1
    if norm == "l2":
        return sign * (x @ w + b) - r * w.norm()
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * len(w))
    return (sign[:, None] * ((x @ w + b)[:, None] + r * (corners @ w))).amin(1)


minimal_vs_constrained.foil(
    "a constrained attack returns the minimal perturbation",
    attack="constrained",
    refuted_by="length over the minimal one",
)
minimal_vs_constrained.foil(
    "points that are wrong from the start counted by their radius", counted="all"
)
