"""Missed and made up: modes that a model misses, and examples that it makes up."""

import math

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.foundations import js_divergence, kl_divergence
from vademecum.generative.claims._laws_on_grids import gaussian, gaussian_mixture


@claim(
    by="identity",
    sources=("A-331", "A-365"),
    short=r"p_\theta = p(\cdot | A),\ p(A) < 1: \mathrm{KL}(p_\theta \| p) = -\log p(A),\ "
    r"\mathrm{KL}(p \| p_\theta) = \infty",
)
def mode_collapse_versus_false_generation(exchange: bool = False, totals: bool = False):
    r"""Mode collapse and false generation are seen by opposite KL directions.

    Mode collapse means $p \gg p_\theta \approx 0$ somewhere, false generation means $p_\theta \gg p
    \approx 0$ somewhere. A missed region of data mass $\epsilon$ makes $\mathrm{KL}(p \| p_\theta)$
    blow up but costs $\mathrm{KL}(p_\theta \| p)$ only $-\log(1 - \epsilon)$, if $p_\theta$ is $p$
    on the rest, and conversely. In the Jensen-Shannon divergence the missed region enters only
    $\mathrm{KL}(p \| \frac{p + p_\theta}2)$, with $\epsilon \log 2$, and a spurious region only
    $\mathrm{KL}(p_\theta \| \frac{p + p_\theta}2)$; the total of the two terms need not be ordered
    that way: for $\epsilon = \frac12$ they are $\frac12 \log \frac43$ and $\log \frac43$.

    Checked on random laws of 4 and 7 cells, one of them with $\epsilon = \frac12$, and for two
    Gaussian modes at $\pm 5$ of which one is dropped. There $\log 2 - \mathrm{KL}(p_\theta \| p) =
    \mathbb E \log(1 + e^{-10 x}) < 1.1 \cdot 10^{-6}$ under $\mathcal N(5, 1)$.

    Knobs:
        exchange: Whether the two directions change their places.
        totals: Whether the terms of the Jensen-Shannon divergence are compared as a whole, and not
            where mass is missed.
    """
    for n, half in ((4, True), (7, False)):
        p = torch.rand(n).add(0.1)
        missed = torch.arange(n) < n // 2
        if half:
            p = p / torch.where(missed, p[missed].sum(), p[~missed].sum())
        p = p / p.sum()
        eps = float(p[missed].sum())
        model = torch.where(missed, 0.0, p) / (1 - eps)
        for kind, data, other in (("missed", p, model), ("spurious", model, p)):
            there, back = kl_divergence(other, data), kl_divergence(data, other)
            there, back = (back, there) if exchange else (there, back)
            small, large = (there, back) if kind == "missed" else (back, there)
            yield equals(f"KL that forgives a {kind} region", small, -math.log(1 - eps), eps=eps)
            yield equals(f"KL that sees a {kind} region", large, math.inf, eps=eps)
        yield from terms(p, model, missed, eps, totals=totals)
    yield from dropped_mode(exchange=exchange)


def terms(p: Tensor, model: Tensor, missed: Tensor, eps: float, *, totals: bool):
    """Both terms of the Jensen-Shannon divergence: as a whole, and where mass is missed."""
    middle = (p + model) / 2
    whole = [float(kl_divergence(law, middle)) for law in (p, model)]
    kept = (1 - eps) * math.log(2 * (1 - eps) / (2 - eps))
    yield equals("term of the data", whole[0], eps * math.log(2) + kept, eps=eps)
    yield equals("term of the model", whole[1], math.log(2 / (2 - eps)), eps=eps)
    yield equals("Jensen-Shannon divergence", js_divergence(p, model), sum(whole) / 2, eps=eps)
    there = []
    for law in (p, model):
        a, m = law[missed].numpy(), middle[missed].numpy()
        there.append(float(np.where(a > 0, a * np.log(np.where(a > 0, a, 1) / m), 0).sum()))
    yield equals("part of the data's term there", there[0], eps * math.log(2), eps=eps)
    yield equals("part of the model's term there", there[1], 0.0, eps=eps)
    first, second = whole if totals else there
    yield at_least("by how much the data's term sees it more", first - second, 0.0, eps=eps)


def dropped_mode(*, exchange: bool):
    """One of two modes at distance 10 is dropped, or made up."""
    x = torch.arange(-15, 15, 0.2)
    both = gaussian_mixture(x, torch.ones(2) / 2, torch.tensor([-5.0, 5.0]), torch.ones(2))
    one = gaussian(x, 5.0, 1.0)
    p, model = (one, both) if exchange else (both, one)
    cost = kl_divergence(model, p)
    yield equals("KL(model, data) of a dropped mode", cost, math.log(2), tol=1e-6)
    blown = kl_divergence(p, model)  # half of the data has log-ratios of mean 10^2 / 2
    yield equals("KL(data, model) of a dropped mode", blown, 25 - math.log(2), tol=1e-6)


mode_collapse_versus_false_generation.foil(
    "a missed region is what KL(model, data) sees",
    refuted_by="KL that forgives a missed region",
    exchange=True,
)
mode_collapse_versus_false_generation.foil(
    "the whole term of the data is the larger one",
    refuted_by="by how much the data's term sees it more",
    totals=True,
)
