"""Gradients of drawn examples: the step that they make, and their mean."""

from fractions import Fraction
from itertools import combinations, product
from typing import Literal

import torch
from scipy.stats import chisquare
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from vademecum.claims import claim, consistent, equals, integers, lowest
from vademecum.gradients import gradient, per_example_gradients
from vademecum.optimization import certify_descent
from vademecum.optimization.claims._fractions import (
    apart,
    exactly,
    half_square,
    line,
    mean,
    slopes,
)


@claim(
    by="sampling",
    sources=("A-080", "B-226", "C-094", "D-154"),
    budget=0.4,
    full={"draws": 1_000_000},
    short=r"\theta_{t+1} = \theta_t - \eta_t \nabla f_{i_t}(\theta_t),"
    r"\quad i_t \text{ uniform on } 1, \dots, s",
)
def sgd(law: Literal["uniform", "proportional"] = "uniform", draws: int = 20_000):
    r"""Stochastic gradient descent.

    For $f = \frac1s \sum_i f_i$: draw $i_t$ uniformly and independently and step
    $\theta_{t + 1} = \theta_t - \eta_t \nabla f_{i_t}(\theta_t)$; mini-batch gradient descent with
    batch size one. The expected step is the gradient descent step. (Its cost, $1 / s$ of that, is
    quoted.)

    *Check.* On integer least squares the average of torch's step over all choices equals the full
    step exactly; batches of one from a loader make the steps of the rule. torch's sampler draws
    with the frequencies of the law, by a chi-square test. The mean squared distance after one step
    of `certify_descent`'s SGD agrees with its exact value, to five standard errors of the exact
    law.

    Knobs:
        law: With which probabilities examples are drawn: equal ones, or proportional to $i$ without
            any weights.
        draws: How many indices are drawn, and how many runs are made.
    """
    lowest("draws", draws, 1000)
    s, eta = 4, 0.25
    weights = [Fraction(1, s)] * s
    if law == "proportional":
        weights = [Fraction(i, s * (s + 1) // 2) for i in range(1, s + 1)]
    for d in (1, 3):
        x, y, theta = integers(s, d), integers(s), integers(d)
        steps = []
        for i in range(s):
            model = line(theta)
            half_square(model(x[i : i + 1]), y[i : i + 1, None]).backward()
            torch.optim.SGD(model.parameters(), lr=eta).step()
            steps.append(exactly(model.weight.detach()[0]))
        expected = [
            sum((w * v for w, v in zip(weights, column, strict=True)), Fraction(0))
            for column in zip(*steps, strict=True)
        ]
        whole = [Fraction(t) - g / 4 for t, g in zip(theta.tolist(), mean(slopes(x, y, theta)))]  # noqa: B905
        yield equals("entries of the mean step off the full one", apart(expected, whole), 0, d=d)
    yield from _in_batches_of_one()
    chances = torch.tensor([float(w) for w in weights])
    sampler = (
        RandomSampler(range(s), replacement=True, num_samples=draws)
        if law == "uniform"
        else WeightedRandomSampler(chances.tolist(), draws)
    )
    counts = torch.bincount(torch.tensor(list(sampler)), minlength=s)
    yield consistent("p-value of equal frequencies", float(chisquare(counts.numpy()).pvalue))
    a, c = torch.tensor([1.0, 2.0, 3.0, 2.0]), torch.tensor([1.0, -1.0, 2.0, -3.0])
    best = a @ c / a.sum()
    ends = (2 - eta * a * (2 - c) - best).square()  # after a step from 2
    found = certify_descent(
        lambda x: a / 2 * (x - c).square(), torch.tensor([2.0]), method="sgd", L=3.0, mu=2.0,
        eta=eta, steps=1, runs=draws, minimiser=best[None],
    ).gap[1]  # fmt: skip
    exact = float(ends @ chances)
    error = 5 * float(ends.var(correction=0)) ** 0.5 / draws**0.5
    yield equals("mean squared distance after a step", found, exact, tol=error / (1 + exact))


def _in_batches_of_one(s: int = 6, d: int = 2, eta: float = 0.1):
    """Batches of one from a loader of torch, against the rule by hand with the same indices."""
    x, y = torch.randn(s, d), torch.randn(s)
    model, theta, seed = line(torch.ones(d)), torch.ones(d), int(torch.randint(99, ()))
    optimizer = torch.optim.SGD(model.parameters(), lr=eta)
    dice = torch.Generator().manual_seed(seed)
    drawn = RandomSampler(range(s), replacement=True, num_samples=20, generator=dice)
    loader = DataLoader(TensorDataset(x, y[:, None]), batch_size=1, sampler=drawn)
    for inputs, targets in loader:
        optimizer.zero_grad()
        half_square(model(inputs), targets).backward()
        optimizer.step()
    dice.manual_seed(seed)
    for i in drawn:
        theta = theta - eta * (x[i] @ theta - y[i]) * x[i]
    yield equals("weights after 20 batches of one", model.weight.detach()[0], theta)


sgd.foil(
    "indices drawn in proportion to $i$, without weights",
    refuted_by="entries of the mean step off the full one",
    law="proportional",
)
sgd.foil(
    "the frequencies of such indices",
    refuted_by="p-value of equal frequencies",
    law="proportional",
)


@claim(
    by="identity",
    sources=("A-078", "A-079", "B-225", "B-227", "D-155", "E-143"),
    budget=0.4,
    full={"s": 6},
    short=r"\mathbb E\, \tfrac1r \sum_{t = 1}^r \nabla f_{i_t}(\theta) = \nabla f(\theta),"
    r"\quad f = \tfrac1s \sum_i f_i",
)
def unbiased_gradient(
    estimate: Literal["gradients", "losses"] = "gradients",
    objective: Literal["average", "sum"] = "average",
    divisor: Literal["r", "s"] = "r",
    s: int = 4,
):
    r"""Mini-batch gradients are unbiased.

    For the average $f = \frac1s \sum_i f_i$ and indices drawn uniformly, with or without
    replacement, $\mathbb E[\frac1r \sum_{t = 1}^r \nabla f_{i_t}(\theta)] = \nabla f(\theta)$ for
    every batch size $r \ge 1$. With a plain sum $\sum_i f_i$ the sampled gradient is too small by
    the factor $s$.

    *Check.* All $s^r$ ordered tuples and all $\binom sr$ subsets, by `gradient` of a linear unit on
    integer data, in fractions, against gradients by hand.

    Knobs:
        estimate: What is averaged over the batch: gradients, or the losses themselves.
        objective: Whether $f$ is the average of the $f_i$, or their sum.
        divisor: Whether the sum over a batch is divided by its size, or by $s$.
        s: How many examples there are.
    """
    lowest("s", s, 3)
    for d in (1, 2):
        x, y, theta = integers(s, d), integers(s), integers(d)
        model = line(theta)
        terms = slopes(x, y, theta)
        full = mean(terms, 1 if objective == "sum" else s)
        for r, kind in product((1, 2), ("tuples", "subsets")):
            batches = product(range(s), repeat=r) if kind == "tuples" else combinations(range(s), r)
            found = []
            for batch in map(list, batches):
                g = gradient(model, x[batch], y[batch, None], loss=half_square)
                found.append([Fraction(v) * r / (r if divisor == "r" else s) for v in g.tolist()])
            name = "entries of the mean estimate off the gradient"
            yield equals(name, apart(mean(found), full), 0, r=r, over=kind, d=d)
    for theta in (5.0, 1.0):  # around the target 3
        at, target = torch.tensor([theta]), torch.tensor([3.0])
        g = gradient(line(at), torch.ones(1, 1), target[None], loss=half_square)
        value = half_square(at[None], target[None])
        said = g if estimate == "gradients" else value
        yield equals("estimate from one example", said, theta - 3.0, theta=theta)
    x = 1.5  # of two terms x^2
    pair = per_example_gradients(
        line(torch.tensor([x])), torch.ones(2, 1), torch.zeros(2, 1), loss=lambda z, y: (z - y) ** 2
    )
    slope = (2.0 if objective == "average" else 4.0) * x
    yield equals("mean gradient of two terms $x^2$", pair.mean(), slope, n=2, x=x)


unbiased_gradient.foil("a batch divided by $s$", divisor="s")
unbiased_gradient.erratum(
    "A-078",
    printed=r"$\nabla \hat f_\theta = \frac1r \sum_{t=1}^r f_\theta(x_{i_t}, y_{i_t})$",
    right=r"$\nabla \hat f_\theta = \frac1r \sum_{t=1}^r \nabla f_\theta(x_{i_t}, y_{i_t})$",
    why=r"The nabla is missing on the right; a mean of scalar losses is no vector. For"
    r" $\frac12 (\theta - y)^2$ the loss is 2 at both $\theta = y \pm 2$ while the gradients are"
    r" $\pm 2$. (A scanning slip cannot be fully excluded.)",
    weight="scan",
    refuted_by="estimate from one example",
    estimate="losses",
)
unbiased_gradient.erratum(
    "B-225",
    printed=r"$f(x) = \sum_{i=1}^n f_i(x)$",
    right=r"$f(x) = \frac1n \sum_{i=1}^n f_i(x)$",
    why=r"With a plain sum and uniform sampling $\mathbb E[\nabla f_I] = \frac1n \nabla f$, so the"
    r" sheet's unbiasedness, variance and SGD theorem are off by $n$: for $n = 2$,"
    r" $f_1 = f_2 = x^2$ the sampled gradient is $2 x$, $\nabla f = 4 x$. It must be the average.",
    refuted_by="mean gradient of two terms $x^2$",
    objective="sum",
)
