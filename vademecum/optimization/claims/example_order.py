"""Which examples come, and which objective: importance, curricula, continuation."""

import math
from typing import Any, Literal

import torch
from scipy.stats import chisquare, ttest_1samp
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, consistent, equals, rejects
from vademecum.optimization import CurriculumSampler, ImportanceSampler
from vademecum.optimization import continuation as follow


def variance(g: Tensor, p: Tensor, weights: Tensor) -> Tensor:
    r"""$\sum_i p_i \|w_i g_i - \bar g\|^2$, as it is defined."""
    return (p[:, None] * (weights[:, None] * g - g.mean(0)).square()).sum()


@claim(
    by="sampling",
    sources=("E-193",),
    budget=0.8,
    full={"n": 20_000},
    short=r"\textstyle\sum_i p_i \frac{\nabla f_i}{s\, p_i} = \nabla f,\quad \text{least variance"
    r" for } p_i \propto \|\nabla f_i\|",
)
def importance_sampling(
    weighting: Literal["1 / (s p)", "none", "p"] = "1 / (s p)", power: float = 1.0, n: int = 300
):
    r"""Importance sampling of training examples.

    Drawing example $i$ of $s$ with probability $p_i > 0$ and stepping along $\nabla f_i / (s\,
    p_i)$ keeps the gradient unbiased; the variance is smallest for $p_i \propto \|\nabla f_i\|$,
    with the value $(\frac1s \sum_i \|\nabla f_i\|)^2 - \|\bar g\|^2$. Showing informative examples
    more often without the weight optimises a different objective.

    *Proof.* The second moment $\frac{1}{s^2} \sum_i \|\nabla f_i\|^2 / p_i$ is at least
    $(\frac1s \sum_i \|\nabla f_i\|)^2$ by Cauchy and Schwarz, with equality for the said $p$.
    Checked for the probabilities and weights of `ImportanceSampler`, with and without equal shares
    mixed in, and for what it draws.

    Knobs:
        weighting: What an example that is drawn counts.
        power: The power of the gradient norm that is said to be best.
        n: How many other probabilities are drawn.
    """
    for s, d in ((6, 3), (9, 2)):
        g, at = torch.randn(s, d) * torch.rand(s, 1) * 4 + 0.3, {"s": s}
        sizes = g.norm(dim=1)
        best = ImportanceSampler(sizes**power)
        least = variance(g, best.probabilities, best.weights)
        closed = sizes.mean() ** 2 - g.mean(0).square().sum()
        yield equals("variance of the best probabilities", least, closed, tol=1e-12, **at)
        for uniform in (0.0, 0.3):
            sampler = ImportanceSampler(torch.rand(s) + 0.05, uniform=uniform)
            p = sampler.probabilities
            counts = {"1 / (s p)": sampler.weights, "none": torch.ones(s), "p": p}[weighting]
            mean = (p[:, None] * counts[:, None] * g).sum(0)
            yield equals("mean of the weighted gradient", mean, g.mean(0), tol=1e-13, **at)
        for _ in range(n):
            other = ImportanceSampler(torch.rand(s) + 1e-3)
            found = variance(g, other.probabilities, other.weights)
            yield at_least("variance of other probabilities", found, least, **at)
    scores = torch.tensor([1.0, 2.0, 0.0, 5.0])
    drawn = torch.tensor(list(ImportanceSampler(scores, size=8000, uniform=0.25)))
    wanted = 8000 * (0.75 * scores / 8 + 0.25 / 4)
    p_value = chisquare(drawn.bincount(minlength=4).numpy(), wanted.numpy()).pvalue
    yield consistent("p-value of what is drawn", float(p_value))


importance_sampling.foil("no weight, which is another objective", weighting="none")
importance_sampling.foil("the weight $p_i$", weighting="p")
importance_sampling.foil(r"probabilities $\propto \|\nabla f_i\|^2$", power=2.0)
importance_sampling.foil("equal probabilities", power=0.0)


def online_angles(x: Tensor, teacher: Tensor, order: Tensor, early: int) -> tuple[Tensor, Tensor]:
    """Angles to the teachers, early and after one pass of online logistic regression each."""
    runs, found = torch.arange(len(x)), []
    y, w = (x @ teacher[:, :, None])[:, :, 0].sign(), torch.zeros_like(teacher)
    for k, i in enumerate(order.T, 1):
        xi, yi = x[runs, i], y[runs, i]
        w = w + 0.05 * (yi * (-yi * (w * xi).sum(1)).sigmoid())[:, None] * xi
        if k in (early, len(order.T)):
            found.append(torch.arccos((w * teacher).sum(1) / w.norm(dim=1)))
    return found[0], found[1]


@claim(
    by="sampling",
    sources=("E-192",),
    budget=1.0,
    full={"runs": 2000},
    short=r"\text{online logistic regression, large margins first:"
    " smaller angle early, no advantage after the pass}",
)
def curriculum(first: Literal["easy", "hard"] = "easy", runs: int = 100):
    r"""Curriculum learning.

    Present examples from easy to hard and raise the difficulty as the model improves (Bengio,
    Louradour, Collobert and Weston, 2009). In online logistic regression with a linear teacher,
    showing large-margin examples first gives much better directions early; after one full pass over
    the data the advantage has vanished.

    Checked with the orders of `CurriculumSampler` for teachers and 200 Gaussian inputs in 20
    dimensions, $\eta = 0.05$: angles to the teacher after 50 examples against those of a random
    order, by a paired one-sided test, and after all.

    Knobs:
        first: Which examples come first.
        runs: How many teachers there are, each with data of its own.
    """
    n, d = 200, 20
    teacher = nn.functional.normalize(torch.randn(runs, d), dim=1)
    x = torch.randn(runs, n, d)
    margins = (x @ teacher[:, :, None])[:, :, 0].abs()
    sign = -1 if first == "easy" else 1
    order = torch.tensor([list(CurriculumSampler(sign * m)) for m in margins])
    sorted_margins = margins.gather(1, order)
    yield equals(
        "index in the order, sorted", order.sort(1).values, torch.arange(n).expand(runs, n)
    )
    yield at_most("growth of the margin along the order", sorted_margins.diff(dim=1), 0.0, tol=0.0)
    half = list(CurriculumSampler(sign * margins[0], share=0.5, shuffle=True))
    yield equals("indices of an easy half", sorted(half), order[0, : n // 2].sort().values)
    chance = torch.stack([torch.randperm(n) for _ in range(runs)])
    early, late = online_angles(x, teacher, order, 50)
    plain, plain_late = online_angles(x, teacher, chance, 50)
    test: Any = ttest_1samp((early - plain).numpy(), 0.0, alternative="less")
    yield rejects("p-value of no advantage after 50 examples", float(test.pvalue))
    gain = (plain - early).mean()
    yield at_least("advantage after 50 examples, in radians", gain, 0.2, tol=0.0)
    # Paired differences at the end have a deviation of about 0.03 (observed).
    rest = (plain_late - late).mean().abs() / gain.abs()
    yield at_most("advantage after the pass, over the early one", rest, 0.1, tol=0.0)


curriculum.foil("hard examples first", refuted_by="p-value of no advantage after 50 examples",
                first="hard")  # fmt: skip


def smoothed(x: Tensor, sigma: float) -> Tensor:
    r"""$\frac{1}{20} (x - 0.3)^2 - \cos 3 x$, its cosine averaged over a Gaussian."""
    return ((x - 0.3).square() / 20 - math.exp(-4.5 * sigma**2) * (3 * x).cos()).sum(-1)


@claim(
    by="identity",
    sources=("E-194",),
    budget=0.8,
    full={"stages": 41, "steps": 200},
    short=r"f = \tfrac1{20} (x - 0.3)^2 - \cos 3x,\ f * N(0, \sigma^2),\ \sigma:"
    r" 2 \to 0: \text{tracking finds } \min f",
)
def continuation(sigma: float = 2.0, stages: int = 13, steps: int = 30):
    r"""Continuation (graduated optimisation).

    Minimise a family of objectives that starts with a simple, smoothed one and is gradually
    deformed into the target, tracking the minimiser; it can reach a global minimum where plain
    descent stops in the nearest local one, without guarantee in general.

    Checked for `continuation` on $f = \frac{1}{20} (x - 0.3)^2 - \cos 3 x$ with its exact Gaussian
    smoothing, $-e^{-9 \sigma^2 / 2} \cos 3 x$ in place of the cosine (and $\sigma^2 / 20$ more,
    which moves nothing): all 81 starts on $[-10, 10]$ end at the minimum that a grid finds, while
    plain descent ends in eleven different ones, and a ninth of its starts succeed.

    Knobs:
        sigma: The smoothing of the first stage.
        stages: How many stages there are, down to no smoothing.
        steps: How many gradient steps are taken at most in a stage.
    """
    z = torch.linspace(-3, 3, 20_001)[:, None]
    for s in (0.2, 0.7):  # the smoothing itself, by quadrature with Hermite's nodes
        nodes, weights = hermite(40)
        average = sum(
            w * smoothed(z[::4000] + s * t, 0.0) for t, w in zip(nodes, weights, strict=True)
        )
        closed = smoothed(z[::4000], s) + s * s / 20
        yield equals("objective averaged over a Gaussian", average, closed, sigma=s)
    grid = torch.linspace(-11, 11, 220_001)[:, None]
    best = float(grid[smoothed(grid, 0.0).argmin()])
    starts = torch.linspace(-10, 10, 81)[:, None]
    levels = torch.linspace(sigma, 0, stages).tolist()
    found = follow(smoothed, starts, levels, lr=0.2, max_iter=steps, tol=1e-6)
    gap = (found.x - best).abs().max()
    yield equals("distance from the global minimum", gap, 0.0, tol=1e-4, stages=stages)
    plain = follow(smoothed, starts, [0.0], lr=0.2, max_iter=100, tol=1e-6)
    ends = plain.x.round(decimals=2).unique()
    yield equals("number of minima that plain descent ends in", len(ends), 11)
    near = ((plain.x - best).abs() < 1e-4).double().mean()
    yield equals("share of starts from which plain descent succeeds", near, 1 / 9)


def hermite(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for averages over a standard Gaussian."""
    import numpy as np

    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return torch.from_numpy(nodes), torch.from_numpy(weights) / math.sqrt(2 * math.pi)


continuation.foil("too little smoothing to begin with", sigma=0.2)
continuation.foil("plain descent", sigma=0.0, stages=1, steps=100)
