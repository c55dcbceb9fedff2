"""Where the game ends: its optimum, and what discriminators of a small family see of it."""

import math
from itertools import combinations

import numpy as np
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import js_divergence
from vademecum.generative import optimal_discriminator as best_response
from vademecum.generative.claims._finite_games import cards, drawn_counts, game
from vademecum.generative.claims._laws_on_grids import minimise
from vademecum.generative.claims.games_and_transport.adversarial_games import value


def hands(k: int, n: int) -> list[Tensor]:
    """All ways to deal n cards over k outcomes."""
    ways = combinations(range(n + k - 1), k - 1)
    return [torch.diff(torch.tensor([-1, *bars, n + k - 1])) - 1 for bars in ways]


@claim(
    by="identity",
    sources=("B-509", "D-429"),
    short=r"\min_\theta \sup_\phi V = -\log 4 \text{ at } p_\theta = p,\ D = \tfrac12",
)
def gan_equilibrium(responds: bool = True):
    r"""Global optimum of the GAN game.

    For players rich enough to represent every law and every discriminator, the saddle point of
    $\min_\theta \sup_\phi V$ is $p_\theta = p$ with $D = \frac12$ and value $-\log 4$ ($-\log 2$
    for $\ell = V / 2$), and it is attained only there.

    *Proof.* $\sup_\phi V = 2\, \mathrm{JS}(p, p_\theta) - \log 4 \ge \mathrm{TV}(p, p_\theta)^2 -
    \log 4$. Checked for `GAN` on all laws with denominators 8 and 10 over 4 and 3 outcomes, against
    this bound; at the saddle point no move of one player helps it; and by descent over softmax laws
    from random starts, which ends at $p$.

    Knobs:
        responds: Whether the discriminator answers each generator, or stays at 1/2.
    """
    for k, n in ((4, 8), (3, 10)):
        p = drawn_counts(k, n)
        values, distances = [], []
        for q in hands(k, n):
            a, b = p / n, q / n
            D = best_response(a, b) if responds else torch.full((k,), 0.5)
            values.append(float(value(p, q, D.logit())) + math.log(4))
            distances.append(float((a - b).abs().sum()) / 2)
        gaps, tv = torch.tensor(values), torch.tensor(distances)
        yield equals("least value above $-\\log 4$", gaps.min(), 0.0, tol=1e-12, outcomes=k)
        yield at_least("value above $-\\log 4$", gaps, tv**2, tol=1e-12, outcomes=k)
        yield equals("distance of the best law", tv[gaps.argmin()], 0.0, tol=0.0, outcomes=k)
        yield from saddle(p, n)
    p = drawn_counts(5, 40) / 40

    def law(free: Tensor) -> Tensor:
        return torch.cat([free, torch.zeros(1)]).softmax(0)

    for start in torch.randn(3, 4):
        found = law(minimise(lambda t: js_divergence(p, law(t)), start))
        # gradients of 1e-10, curvatures of a hundredth or more
        yield equals("law at which descent ends", found, p, tol=1e-7)


def saddle(p: Tensor, n: int):
    """At the saddle point neither player gains by another move."""
    k = len(p)
    half, logits = best_response(p / n, p / n), torch.randn(50, k)
    yield equals("discriminator at the saddle point", half, 0.5, tol=0.0, outcomes=k)
    moves = torch.stack([value(p, p, row) for row in logits])
    yield at_most("value after a move of the discriminator", moves, -math.log(4), outcomes=k)
    other = drawn_counts(k, n)
    paid = game(other, half.logit()).losses(cards(p))["generator"]
    # the generator's share alone: its other half does not depend on it
    yield equals("value after a move of the generator", paid, -math.log(2), outcomes=k)


gan_equilibrium.foil(
    "unique against a discriminator that stays at one half",
    refuted_by="value above $-\\log 4$",
    responds=False,
)


@claim(
    by="identity",
    sources=("B-506", "B-507", "C-314"),
    short=r"\sup_\phi \ell(\theta, \phi) \le \mathrm{JS}(p, p_\theta) - \log 2",
)
def parametric_discriminator_bound(side: int = 1, rich: bool = False):
    r"""A restricted discriminator bounds the Jensen-Shannon objective from below.

    For any family $\{q_\phi\}$ of discriminators $\sup_\phi \ell(\theta, \phi) \le \ell(\theta,
    \phi^*) = \mathrm{JS}(p, p_\theta) - \log 2$, with equality iff the family contains (or
    approximates) $p / (p + p_\theta)$; the generator thus minimises a *lower* bound of its
    objective.

    Checked with `GAN` on 6 outcomes for discriminators that cannot tell the outcomes of a group
    apart: their supremum, found by Newton's method, is the Jensen-Shannon divergence of the laws of
    groups, less log 2, and reaches the bound where $p / p_\theta$ is constant on groups; and by
    quadrature for logits that are linear in $x$: equality for $\mathcal N(0, 1)$ and $\mathcal
    N(1, 1)$, a gap for $\mathcal N(0, 1)$ and $\mathcal N(0, 4)$, where the best logit is
    quadratic.

    Knobs:
        side: 1 for a lower bound, -1 for an upper bound.
        rich: Whether the gap is said to vanish for every family.
    """
    apart = torch.cat([torch.tensor([6, 2]), drawn_counts(4, 28)])
    other = torch.cat([torch.tensor([2, 6]), drawn_counts(4, 28)])
    alike = torch.tensor([2, 4, 3, 6, 9, 6]), torch.tensor([4, 8, 1, 2, 3, 12])
    for kind, p, q in (("differ", apart, other), ("agree", *alike)):
        groups = torch.tensor([0, 0, 1, 1, 1, 2])
        best, found = suprema(p, q, groups)
        together = [np.bincount(groups.numpy(), c.numpy()) for c in (p, q)]
        whole, coarse = divergence(p, q), divergence(*together)
        wanted = (whole if rich else coarse) - math.log(2)
        yield equals("supremum over discriminators of groups", best, wanted, ratios=kind)
        bound = side * (whole - math.log(2))
        yield at_most("supremum, and the bound", side * best, bound, ratios=kind)
        yield at_most("discriminators of groups, and the bound", found, bound, ratios=kind)
    # both laws give 8 of 36 to the first group, and (6, 2) and (2, 6) within it
    least = 8 / 36 * divergence(*np.array([[6, 2], [2, 6]]))
    gap = divergence(apart, other) - math.log(2) - suprema(apart, other, groups)[0]
    yield at_least("gap where ratios differ", gap, least)
    yield from linear_logits(side)


def divergence(p: Tensor | np.ndarray, q: Tensor | np.ndarray) -> float:
    """The Jensen-Shannon divergence of counts, by SciPy."""
    return float(jensenshannon(np.asarray(p), np.asarray(q)) ** 2)


def suprema(p: Tensor, q: Tensor, groups: Tensor) -> tuple[float, Tensor]:
    """The best of discriminators that see groups alone, and what random ones reach."""

    def half(logits: Tensor) -> Tensor:
        return value(p, q, logits[groups]) / 2

    best = minimise(lambda t: -half(t), torch.zeros(3))
    return float(half(best)), torch.stack([half(t) for t in 2 * torch.randn(40, 3)])


def linear_logits(side: int):
    """Gaussians, and logits that are linear in x, by Gauss-Hermite quadrature."""
    nodes, weights = (torch.from_numpy(t) for t in np.polynomial.hermite_e.hermegauss(80))
    weights = weights / weights.sum()
    grid = torch.arange(-30, 30, 0.05)
    for mean, deviation in ((1.0, 1.0), (0.0, 2.0)):

        def half(t: Tensor, mean: float = mean, deviation: float = deviation) -> Tensor:
            real, made = t[0] * nodes + t[1], t[0] * (mean + deviation * nodes) + t[1]
            log = torch.nn.functional.logsigmoid
            return weights @ (log(real) + log(-made)) / 2

        best = half(minimise(lambda t, f=half: -f(t), torch.tensor([0.3, -0.2])))
        pair = [
            (-(((grid - m) / s) ** 2) / 2).softmax(0) for m, s in ((0.0, 1.0), (mean, deviation))
        ]
        bound = float(js_divergence(*pair)) - math.log(2)
        yield at_most("supremum over linear logits", side * best, side * bound, mean=mean)
        if mean:
            yield equals("supremum, equal variances", best, bound, tol=1e-8)
        else:
            yield equals("supremum, equal means", best, -math.log(2), tol=1e-8)
            yield at_least("its gap", bound - best, 0.01)


parametric_discriminator_bound.foil("an upper bound", side=-1)
parametric_discriminator_bound.foil(
    "no gap for any family",
    refuted_by="supremum over discriminators of groups",
    rich=True,
)
