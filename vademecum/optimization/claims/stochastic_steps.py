"""One step of SGD and what it does in the mean: progress, saddles, sharp minima."""

import math
from fractions import Fraction
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, integers, lowest
from vademecum.optimization.claims._fractions import (
    Vector,
    exactly,
    half_square,
    less,
    line,
    mean,
    slopes,
    square,
)


def steps_from(theta: Tensor, x: Tensor, y: Tensor, eta: float) -> list[Vector]:
    """Where torch's SGD goes from a point with each of the examples, in fractions."""
    ends = []
    for i in range(len(x)):
        model = line(theta)
        half_square(model(x[i : i + 1]), y[i : i + 1, None]).backward()
        torch.optim.SGD(model.parameters(), lr=eta).step()
        ends.append(exactly(model.weight.detach()[0]))
    return ends


def inner(u: Vector, v: Vector) -> Fraction:
    """The inner product."""
    return sum((a * b for a, b in zip(u, v, strict=True)), Fraction(0))


def average(numbers: list[Fraction]) -> Fraction:
    """The mean of some numbers."""
    return sum(numbers, Fraction(0)) / len(numbers)


@claim(
    by="identity",
    sources=("A-111",),
    budget=0.2,
    full={"s": 40},
    short=r"\|e\|^2 - \mathbb E \|e'\|^2 = 2 \eta\, e^\top \nabla f"
    r" - \eta^2\, \mathbb E \|\nabla f_i\|^2,\; e = \theta - \theta_*",
)
def sgd_distance(
    moment: Literal["of terms", "of their mean"] = "of terms", crossed: float = 2.0, s: int = 5
):
    r"""The one-step distance identity of SGD.

    For single-sample SGD from a fixed $\theta$ and any reference point $\theta_*$:
    $\|\theta - \theta_*\|^2 - \mathbb E \|\theta' - \theta_*\|^2 = 2 \eta\, (\theta -
    \theta_*)^\top \nabla f(\theta) - \eta^2\, \mathbb E \|\nabla f_i(\theta)\|^2$.

    *Proof.* Expand the square of $\theta - \theta_* - \eta \nabla f_i(\theta)$ and average.

    *Check.* The exact average over all steps of torch's SGD on an integer least-squares problem
    with noisy targets, in fractions.

    Knobs:
        moment: Of what the squared norm in the last term is.
        crossed: The factor of the inner product.
        s: How many examples there are.
    """
    lowest("s", s, 3)
    for d, eta in ((1, Fraction(1, 4)), (3, Fraction(1, 32))):
        x, theta, reference = integers(s, d), integers(d), integers(d)
        x[:2] = 1.0
        y = x @ theta - torch.arange(1.0, s + 1)  # no point fits all
        terms, ends = slopes(x, y, theta), steps_from(theta, x, y, float(eta))
        away, goal = less(exactly(theta), exactly(reference)), exactly(reference)
        gained = square(away) - average([square(less(end, goal)) for end in ends])
        full = mean(terms)
        second = square(full) if moment == "of their mean" else average([*map(square, terms)])
        stated = Fraction(crossed) * eta * inner(away, full) - eta**2 * second
        at = {"d": d, "eta": float(eta)}
        yield equals("squared distance that is gained", float(gained), float(stated), **at)
        off = (gained - stated).numerator
        yield equals("numerator of the difference in fractions", off, 0, **at)


sgd_distance.foil(
    r"$\|\nabla f\|^2$ for $\mathbb E \|\nabla f_i\|^2$: the variance is forgotten",
    moment="of their mean",
)
sgd_distance.foil("the inner product without its 2", crossed=1.0)


@claim(
    by="identity",
    sources=("A-112",),
    budget=0.3,
    full={"s": 100},
    short=r"\mathbb E \|e'\|^2 < \|e\|^2 \iff 0 < \eta < 2\, e^\top \nabla f /"
    r" \mathbb E \|\nabla f_i\|^2,\; e = \theta - \theta_*",
)
def sgd_progress(noise: Literal["counted", "forgotten"] = "counted", s: int = 8):
    r"""The expected progress of SGD for small steps.

    If $(\theta - \theta_*)^\top \nabla f(\theta) > 0$, the expected squared distance to $\theta_*$
    strictly decreases for every $0 < \eta < \frac{2 (\theta - \theta_*)^\top \nabla
    f(\theta)}{\mathbb E \|\nabla f_i(\theta)\|^2}$ and strictly increases beyond; half of that is
    the best step.

    *Proof.* The distance identity is a parabola in $\eta$ through 0.

    *Check.* Noisy least squares around its minimiser, averaged over all steps of torch's SGD with
    0.01, 0.5, 0.99, 1 and 1.01 times the threshold. The gain $2 \eta a - \eta^2 b$ is $a^2 / b$ at
    the best step, and $c (2 - c)$ times that at $c$ times the best one.

    Knobs:
        noise: Whether the denominator is the mean of the squared gradients, or the square of their
            mean.
        s: How many examples there are.
    """
    lowest("s", s, 4)
    for d in (1, 3):
        x = torch.randn(s, d)
        y = x.sum(1) + 3 * torch.randn(s)
        best = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        theta = best + torch.randn(d)
        terms = (x @ theta - y)[:, None] * x
        full = terms.mean(0)
        a, b = float((theta - best) @ full), float(terms.square().sum(1).mean())
        limit = 2 * a / (b if noise == "counted" else float(full @ full))

        def gain(share: float, d=d, x=x, y=y, theta=theta, best=best, limit=limit) -> float:
            ends = steps_from(theta, x, y, share * limit)
            after = [sum((float(v) - float(w)) ** 2 for v, w in zip(e, best)) for e in ends]  # noqa: B905
            return float((theta - best).square().sum()) - sum(after) / s

        top = a * a / b
        for share in (0.01, 0.5, 0.99, 1.0, 1.01):
            stated = top * 2 * share * (2 - 2 * share)
            name = "squared distance that is gained, over the most"
            yield equals(name, gain(share) / top, stated / top, d=d, share=share)
        yield at_least("gain below the threshold, over the most", gain(0.99) / top, 0.03, d=d)
        yield at_most("gain beyond the threshold, over the most", gain(1.01) / top, -0.03, d=d)


sgd_progress.foil(
    r"$\|\nabla f\|^2$ in the denominator: a longer step, and the distance grows",
    refuted_by="gain below the threshold, over the most",
    noise="forgotten",
)


@claim(
    by="sampling",
    sources=("D-156",),
    budget=0.3,
    full={"runs": 20_000},
    short=r"f = x^2 - y^2 + \tfrac{y^4}4 \text{ from } (1, 0):"
    r"\ \text{descent ends at the saddle, SGD at } y = \pm \sqrt 2",
)
def saddle_escape(direction: Literal["both", "x"] = "both", growth: float = 2.0, runs: int = 1000):
    r"""Gradient noise leaves saddle points.

    Deterministic descent started on the stable manifold of a strict saddle converges to it;
    additive gradient noise with a component along the unstable direction is amplified by
    $1 + \eta |\lambda|$ per step and makes SGD leave almost surely. Checked for
    $f = x^2 - y^2 + \frac{y^4}4$ from $(1, 0)$, where $\lambda = -2$.

    *Check.* With $\eta = 0.1$, 250 steps of torch's SGD: without noise $y$ stays exactly 0; with
    normal gradient noise of deviation $\sigma = 0.01$ all runs end within 0.1 of
    $y = \pm \sqrt 2$ (the noise there has the deviation $0.00125$, and a run that has not left
    after 230 steps has a chance below $10^{-13}$). While $y$ is small,
    $\mathbb E y_t^2 = \eta^2 \sigma^2\, \frac{q^t - 1}{q - 1}$ with $q = (1 + \eta |\lambda|)^2$;
    the cubic term changes it by less than $10^{-5}$ at $t = 10$. The tolerance is six standard
    errors of the mean of squares of normal numbers.

    Knobs:
        direction: Which components of the gradient are noisy.
        growth: The curvature $|\lambda|$ of the unstable direction.
        runs: How many noisy runs there are.
    """
    lowest("runs", runs, 100)
    eta, sigma = 0.1, 0.01
    early = torch.empty(0)
    ends = {}
    for noisy in (0.0, 1.0):
        z = torch.tensor([1.0, 0.0]).repeat(runs if noisy else 1, 1).requires_grad_()
        optimizer = torch.optim.SGD([z], lr=eta)
        for t in range(250):
            x, y = z.detach().T
            noise = noisy * sigma * torch.randn_like(z)
            noise[:, 1] *= direction == "both"
            z.grad = torch.stack([2 * x, y**3 - 2 * y], 1) + noise
            optimizer.step()
            early = z.detach()[:, 1].clone() if t == 9 else early
        ends[noisy] = z.detach()
    yield equals("y without noise", ends[0.0][0, 1], 0.0, tol=0.0)
    yield at_most("distance to the saddle without noise", ends[0.0].norm(), 1e-12)
    off = (ends[1.0][:, 1].abs() - math.sqrt(2)).abs()
    yield at_most("distance of |y| to the root of 2", off, 0.1)
    q = (1 + eta * growth) ** 2
    stated = (q**10 - 1) / (q - 1)
    found = (early / (eta * sigma)).square().mean()
    error = 6 * stated * (2 / runs) ** 0.5  # of a mean of squares of normal numbers
    name = "mean square of y after ten steps, in units of the noise"
    yield equals(name, found, stated, tol=error / (1 + stated))
    left = float((ends[1.0][:, 1] > 0).double().mean())
    spread = 5 * 0.5 / runs**0.5
    yield equals("share of runs that end above", left, 0.5, tol=spread / 1.5)


saddle_escape.foil(
    "noise across the unstable direction does not help",
    refuted_by="distance of |y| to the root of 2",
    direction="x",
)
saddle_escape.foil(
    r"amplified by $1 + \eta$ only",
    close="a mean over runs, with six standard errors for its tolerance",
    growth=1.0,
)


@claim(
    by="identity",
    sources=("B-231",),
    budget=0.3,
    short=r"\mathbb E x'^2 = ((1 - \eta \bar a)^2 + \tfrac{\eta^2}B \mathrm{Var}(a))\, x^2,"
    r"\quad f_i = \tfrac{a_i}2 x^2",
)
def small_batch_instability(power: int = 1, noise: bool = True):
    r"""Small batches leave sharp minima.

    Near a common minimum of $f_i = \frac{a_i}2 x^2$ one SGD step with batch size $B$ (with
    replacement) multiplies $\mathbb E[x^2]$ by $(1 - \eta \bar a)^2 + \frac{\eta^2}B
    \mathrm{Var}(a)$. A minimum that is stable for full-batch descent can therefore be unstable for
    small batches, one precise form of the advice that small-batch noise helps to leave bad regions.

    *Proof.* The factor is $1 - \eta \bar a_B$, whose mean is $1 - \eta \bar a$ and whose variance
    is $\eta^2 \mathrm{Var}(a) / B$.

    *Check.* All batches, each with a step of torch's SGD. For $a = (0.5, 3.5)$ and $\eta = 0.8$ the
    factor is 1.80 at $B = 1$, 0.72 at $B = 4$ and 0.36 for full batches.

    Knobs:
        power: The power of $B$ below the line.
        noise: Whether the variance counts at all.
    """
    for a, eta in ((torch.tensor([0.5, 3.5]), 0.8), (torch.tensor([1.0, 2.0, 6.0]), 0.3)):
        for B in (1, 2, 4):
            batches = torch.tensor(list(product(range(len(a)), repeat=B)))
            x = torch.full((len(batches),), 2.0, requires_grad=True)
            (a[batches].mean(1) / 2 * x.square()).sum().backward()
            torch.optim.SGD([x], lr=eta).step()
            found = x.detach().square().mean() / 4
            stated = (1 - eta * a.mean()) ** 2
            stated += noise * eta**2 / B**power * a.var(correction=0)
            yield equals("factor of the mean square", found, stated, tol=1e-13, B=B, s=len(a))
            if len(a) == 2 and B != 2:
                known = {1: 1.80, 4: 0.72}[B]
                yield equals("factor of the mean square", float(stated), known, B=B)
    yield equals("factor of a full batch", (1 - 0.8 * 2.0) ** 2, 0.36)


small_batch_instability.foil("the factor of full batches for all", noise=False)
small_batch_instability.foil(r"$\mathrm{Var}(a) / B^2$", power=2)
