"""The dual perceptron: inner products are all that it needs."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.arrays import rational_rank
from vademecum.claims import claim, equals, lowest
from vademecum.connectionism import KernelPerceptron, perceptron_path
from vademecum.connectionism.claims.perceptron import separated


def dual_rule(gram: Tensor, y: Tensor) -> tuple[list[int], Tensor]:
    """The cyclic rule on inner products: whom each update was for, and how often each was seen."""
    n, made, t, since = len(y), [], 0, 0
    signed = torch.zeros_like(gram[0])
    while since < n:
        i, t, since = t % n, t + 1, since + 1
        if y[i] * (gram[i] @ signed) <= 0:
            signed[i] += y[i]
            made.append(i)
            since = 0
    return made, torch.tensor([len(range(i, t, n)) for i in range(n)])


def powers(x: Tensor, degree: int, scale: int, constant: int) -> Tensor:
    r"""Features with $\langle \phi(x), \phi(z) \rangle = (a^2 \langle x, z \rangle + c^2)^p$."""
    lifted = torch.cat([scale * x, torch.full((len(x), 1), constant)], 1)
    features = lifted
    for _ in range(degree - 1):
        features = (features[:, :, None] * lifted[:, None]).flatten(1)
    return features


CASES: dict[str, tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "linear": ({"kernel": "linear"}, lambda x: x),
    "square": ({"kernel": "poly", "degree": 2, "gamma": 1.0}, lambda x: powers(x, 2, 1, 1)),
    "cube": ({"kernel": "poly", "gamma": 4.0, "coef0": 9.0}, lambda x: powers(x, 3, 2, 3)),
    "own": ({"kernel": lambda x, z: x @ z.T + 4}, lambda x: powers(x, 1, 1, 2)),
}
"""Kernels, and the features whose inner products they are."""


@claim(
    by="identity",
    sources=("C-011",),
    budget=0.5,
    short=r"w^t = \textstyle\sum_i \alpha_i y_i x_i \in \operatorname{span}(x_1, \dots, x_s),"
    r"\ \alpha_i = \#\text{mistakes on } i",
)
def perceptron_span(
    start: int = 0, count: Literal["mistakes", "visits"] = "mistakes", n: int = 3, d: int = 10
):
    r"""The weights of a perceptron stay in the span of the examples.

    If $w^0 \in \operatorname{span}(x_1, \dots, x_s)$ then so is every $w^t$, since each update adds
    a multiple of an example. From $w^0 = 0$, $w^t = \sum_i \alpha_i y_i x_i$ with $\alpha_i$ the
    number of mistakes on example $i$: the dual (kernel) perceptron, which needs inner products
    only, makes the same mistakes in the same order and the same predictions, in the feature space
    of any kernel.

    *Check.* In integers: the ranks in fractions, the linear and polynomial kernels by their
    features; in double precision the Gaussian kernel, by a plain loop.

    Knobs:
        start: The coordinate of $w^0$ along a direction orthogonal to the examples.
        count: What $\alpha_i$ counts, the mistakes on example $i$ or all its presentations.
        n: How many examples there are; so few that they are independent.
        d: How many coordinates they have, before the one that is 0 for all of them.
    """
    lowest("n", n, 2)
    lowest("d", d, n)
    for _ in range(3):
        x = torch.randint(-5, 6, (n, d + 1))
        x[:, -1] = 0
        x[:, :n] = x[:, :n].tril(-1)
        x[torch.arange(n), torch.arange(n)] = 7 + torch.arange(n)  # so that they are independent
        y = torch.randint(0, 2, (n,)) * 2 - 1
        y[:2] = torch.tensor([1, -1])
        inside = torch.randint(-3, 4, (n,)) @ x
        inside[-1] = start
        path = perceptron_path(x, y, theta0=inside)
        ranks = [rational_rank([*x.tolist(), w]) for w in path.weights.tolist()]
        yield equals("rank of the examples and the weights", ranks, n, d=d)

        path = perceptron_path(x, y)
        made, visits = dual_rule(x @ x.T, y)
        mistakes = torch.bincount(torch.tensor(made), minlength=n)
        alpha = mistakes if count == "mistakes" else visits
        yield equals("number of updates", len(path.examples), len(made), d=d)
        yield equals("example of each update", path.examples, torch.tensor(made), d=d)
        name = r"final weights, against $\sum_i \alpha_i y_i x_i$"
        yield equals(name, path.weights[-1], (alpha * y) @ x, d=d)
    yield from _kernels(count)
    yield from _many()


def _kernels(count: str):
    for kernel, (options, features) in CASES.items():
        for bias in (False, True):
            x, y, _ = separated(6, 2)
            x[1], y[1] = -x[0], -y[0]
            new, one = torch.randint(-5, 6, (20, 2)), torch.ones(26, int(bias), dtype=torch.long)
            phi = torch.cat([features(torch.cat([x, new])), one], 1)
            known, at = phi[:6], {"kernel": kernel, "bias": bias}
            made, visits = dual_rule(known @ known.T, y)
            mistakes = torch.bincount(torch.tensor(made), minlength=6)
            dual = _fitted(x.double(), y, fit_intercept=bias, **options)
            alpha = mistakes if count == "mistakes" else visits
            yield equals(r"$\alpha_i$ of the kernel perceptron", dual.alpha_, alpha, **at)
            scores = phi[6:] @ ((mistakes * y) @ known)
            answers = dual.decision_function(new.double())
            yield equals("scores of new points", answers, scores, tol=0.0, **at)

    x = torch.arange(8.0)[:, None] + torch.rand(8, 2) / 2  # no two nearer than 1/2
    y = (torch.randperm(8) % 2 * 2 - 1).double()
    for gamma in (None, 1.5):
        width = 1 / 2 if gamma is None else gamma
        rows = [[math.exp(-width * math.dist(p, q) ** 2) for q in x.tolist()] for p in x.tolist()]
        made, _ = dual_rule(torch.tensor(rows), y)
        mistakes = torch.bincount(torch.tensor(made), minlength=8)
        dual = _fitted(x, y, gamma=gamma, fit_intercept=False)
        at = {"kernel": "Gaussian", "gamma": width}
        yield equals(r"$\alpha_i$ of the kernel perceptron", dual.alpha_, mistakes, **at)
        scores = torch.tensor(rows) @ (mistakes * y)
        yield equals("scores of the examples", dual.decision_function(x), scores, **at)


def _many(n: int = 300, epochs: int = 2):
    """More examples than are shown at once, and more classes than two, which nothing separates."""
    x = torch.randint(-5, 6, (n, 2))
    gram = (x @ x.T + 1) ** 2
    for classes, memory in ((2, None), (3, 4 * 8 * 40 * n)):
        labels = torch.randint(classes, (n,))
        options = {"kernel": "poly", "degree": 2, "gamma": 1.0, "fit_intercept": False}
        options |= {"shuffle": False, "tol": None, "max_iter": epochs, "memory": memory}
        dual = KernelPerceptron(**options).fit(x.double(), labels)
        found = dual.alpha_.reshape(n, -1)
        for column, k in enumerate([1] if classes == 2 else range(classes)):
            y, signed = 2 * (labels == k).long() - 1, torch.zeros(n, dtype=torch.int64)
            for i in [*range(n)] * epochs:
                signed[i] += y[i] * (y[i] * (gram[i] @ signed) <= 0)
            at = {"classes": classes, "of": k}
            name = r"$\alpha_i$ of many examples, nothing separates them"
            yield equals(name, found[:, column], y * signed, **at)
            scores = dual.decision_function(x.double()).reshape(n, -1)[:, column]
            yield equals("scores of many examples", scores, gram @ signed, **at)
            made = torch.as_tensor(dual.mistakes_).flatten()[column]
            yield equals("mistakes on many examples", int(made), int((y * signed).sum()), **at)


def _fitted(x: Tensor, y: Tensor, **options: Any) -> KernelPerceptron:
    """A kernel perceptron that has gone through the examples in turn until all were right."""
    return KernelPerceptron(**options, shuffle=False, tol=None, max_iter=100_000).fit(x, y)


perceptron_span.foil("a start outside the span: its part outside stays for good", start=1)
perceptron_span.foil(r"$\alpha_i$ as the number of visits instead of mistakes", count="visits")
