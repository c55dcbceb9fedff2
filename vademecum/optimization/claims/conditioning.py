"""The condition number of an objective: slow valleys, wrong directions, zigzags."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, slope, with_eigenvalues
from vademecum.optimization import condition_number as ratio_of_curvatures
from vademecum.optimization.claims._objectives import descend, gradients_of, quadratic, race


def steps_to(path: Tensor, share: float) -> Tensor:
    """After how many steps the squared distance from 0 is first at most a share of the start's.

    One more than the steps taken, if it never is.
    """
    above = path.square().sum(-1) > share * path[0].square().sum(-1)
    return above.long().cumprod(0).sum(0)


def half_square(z: Tensor, _: Tensor) -> Tensor:
    """A half of the sum of squares."""
    return z.square().sum() / 2


def measured(h: Tensor, kappa: float, values: Tensor) -> Iterator[Evidence]:
    """The condition number of a linear model with a given Hessian, and of one without minimum."""
    d = len(h)
    model, x = nn.Linear(d, 1, bias=False), torch.linalg.cholesky(h).T
    for scale in (1.0, 100.0):
        found = ratio_of_curvatures(model, scale**0.5 * x, x, loss=half_square)
        at = {"kappa": kappa, "d": d, "scale": scale}
        yield equals("condition number measured", found.value, kappa, **at)
        curvatures = torch.tensor([found.smallest, found.largest]) / scale
        ends = 0.3 * torch.stack([values.min(), values.max()])
        yield equals("curvatures measured", curvatures, ends, **at)
    found = ratio_of_curvatures(model, x[1:], x, loss=half_square)
    yield equals("condition number with too few examples", found.value, math.inf, d=d)


@claim(
    by="fit",
    sources=("D-051", "E-136", "E-166"),
    budget=1.0,
    full={"longest": 10_000},
    short=r"\kappa = L / \mu: \quad \eta = \tfrac1L \text{ needs }"
    r" O(\kappa \log \tfrac1\epsilon) \text{ steps}",
)
def condition_number(
    growth: float = 1.0, ruled_by: Literal["kappa", "gradient"] = "kappa", longest: int = 1000
):
    r"""The condition number of an objective.

    $\kappa = L / \mu \ge 1$, the ratio of largest to smallest curvature, governs first-order
    methods: gradient descent with step $\frac1L$ needs $O(\kappa \log \frac1\epsilon)$ steps to a
    squared distance of $\epsilon$ times that of the start, $\frac\kappa2 \log \frac1\epsilon$ at
    most. Multiplying the objective by a constant changes gradients but neither $\kappa$ nor the
    iterates (with $\eta = \frac1L$).

    *Proof.* A coordinate shrinks by $1 - \frac\lambda L \le 1 - \frac1\kappa \le e^{-1/\kappa}$.
    Checked for torch's `SGD` on quadratics with $10 \le \kappa \le 1000$: from the flat axis the
    number of steps is $\lceil \log \epsilon / (2 \log(1 - \frac1\kappa)) \rceil$, 88 for
    $\kappa = 10$, $\epsilon = 10^{-8}$, and grows like $\kappa$. The part `condition_number`
    measures $\kappa$ on linear models, infinite where there are too few examples.

    Knobs:
        growth: The power of $\kappa$ with which the number of steps grows.
        ruled_by: What is said to set the number of steps: $\kappa$, or the largest gradient.
        longest: The largest condition number.
    """
    scales = (1.0, 100.0, 0.01)
    for kappa, d in ((5.0, 2), (20.0, 4)):
        values = torch.cat([torch.tensor([1.0, kappa]), 1 + (kappa - 1) * torch.rand(d - 2)])
        h = with_eigenvalues(0.3 * values)
        yield from measured(h, kappa, values)
        f = quadratic(h)
        start = torch.randn(5, d)
        weights = torch.tensor(scales).repeat_interleave(5)
        scaled = lambda x, f=f, w=weights: w * f(x)  # noqa: E731
        sizes = [1 / (scale * 0.3 * kappa) for scale in scales]
        runs = race(scaled, start, [sizes] * int(kappa * 4))
        counts = steps_to(runs, 1e-3)
        most = math.ceil(kappa / 2 * math.log(1e3))
        yield at_most("steps to a thousandth", counts, most, kappa=kappa)
        slopes = gradients_of(scaled, start.repeat(3, 1)).norm(dim=1).view(3, 5)
        for i, scale in enumerate(scales):
            ratio, at = slopes[i] / slopes[0], {"scale": scale, "kappa": kappa}
            stated = 1.0 if ruled_by == "kappa" else ratio
            more = counts[i] / counts[0]
            yield equals("steps of the scaled objective over the others", more, stated, **at)
            yield equals("gradient of the scaled objective over the other", ratio, scale, **at)
            name = "iterates of the scaled objective"
            yield equals(name, runs[:, i], runs[:, 0], tol=1e-12, **at)
    kappas = torch.logspace(1, math.log10(longest), 9)
    spread = torch.stack([1 / kappas, torch.ones(9)], 1)
    valleys = lambda x: (x.view(-1, 9, 2).square() * spread).sum((1, 2)) / 2  # noqa: E731
    flat = torch.tensor([1.0, 0.0]).repeat(1, 9)
    path = descend(valleys, flat, 1.0, int(0.7 * longest))[:, 0].view(-1, 9, 2)
    found = steps_to(path, 0.25)
    exact = (math.log(0.25) / (2 * torch.log1p(-1 / kappas))).ceil().long()
    yield equals("steps to a quarter of the squared distance", found, exact)
    # The exact count is (log 2) (kappa - 1/2 - ...), and is rounded up: up to a seventh of the
    # least one, over log 100 = 4.6.
    yield slope("steps against the condition number", kappas, found, growth, tol=0.03)
    for share, known in ((1e-2, 22), (1e-4, 44), (1e-8, 88)):
        steps = int(steps_to(path[:, 0], share))
        yield equals("steps for the condition number 10", steps, known, epsilon=share)


condition_number.foil(
    "proportional to the root of $\\kappa$, as with acceleration",
    refuted_by="steps against the condition number",
    growth=0.5,
)
condition_number.foil(
    "a slower growth", refuted_by="steps against the condition number", growth=0.8
)
condition_number.erratum(
    "E-166",
    printed="one wants the maximal gradient to be small and the curvature to be large",
    right="one wants the largest and the smallest curvature to be close together",
    why=r"both constants bound curvature. Multiplying the objective by 100 makes gradients 100"
    r" times larger and leaves $\kappa$ and the rate unchanged; what one wants is largest and"
    " smallest curvature close together",
    weight="soft",
    refuted_by="steps of the scaled objective over the others",
    ruled_by="gradient",
)


@claim(
    by="sampling",
    sources=("D-053",),
    budget=0.5,
    full={"n": 100_000},
    short=r"\cos \angle(-\nabla f(x), x^* - x) \ge \frac{2 \sqrt\kappa}{1 + \kappa},"
    r" \quad f = \tfrac12 x^\top H x",
)
def gradient_angle(
    bound: Literal["2 sqrt(k)/(1+k)", "1/sqrt(k)", "root of kappa"] = "2 sqrt(k)/(1+k)",
    n: int = 2000,
):
    r"""The angle between the gradient and the direction to the minimum.

    For $f = \frac12 x^\top H x$, $H$ positive definite with condition number $\kappa$, the cosine
    between $-\nabla f(x)$ and $x^* - x$ is at least $\frac{2 \sqrt\kappa}{1 + \kappa}$
    (Kantorovich's inequality): 1 for spherical contours, where the gradient points at the minimum,
    close to 0 for $\kappa \gg 1$. Equality is attained in the plane of the extreme eigenvectors.

    Checked on random points for $\kappa$ from 1 to $10^4$; equality at
    $x = \sqrt\kappa\, q_{\min} \pm q_{\max}$.

    Knobs:
        bound: The bound of the cosine; "root of kappa" has $\sqrt\kappa$ in place of $\kappa$.
        n: How many points are drawn for each spectrum.
    """
    least = {
        "2 sqrt(k)/(1+k)": lambda k: 2 * k**0.5 / (1 + k),
        "1/sqrt(k)": lambda k: k**-0.5,
        "root of kappa": lambda k: 2 * k**0.25 / (1 + k**0.5),
    }[bound]
    for kappa in (1.0, 3.0, 100.0, 1e4):
        for d in (2, 5):
            values = torch.cat([torch.tensor([1.0, kappa]), 1 + (kappa - 1) * torch.rand(d - 2)])
            axes = torch.linalg.qr(torch.randn(d, d)).Q
            f = quadratic((axes * values) @ axes.T)
            low, high = axes[:, 0], axes[:, 1]
            x = torch.cat(
                [torch.randn(n, d), torch.randn(n, d) @ torch.diag(values**-0.5) @ axes.T]
            )
            worst = torch.stack([kappa**0.5 * low + sign * high for sign in (1, -1)])
            at = {"kappa": kappa, "d": d}
            for name, points, compare in (
                ("cosine of the angle", x, at_least),
                ("cosine of the worst angle", worst, equals),
            ):
                step = -gradients_of(f, points)
                cosine = nn.functional.cosine_similarity(step, -points, dim=1)
                yield compare(name, cosine, least(kappa), tol=1e-11, **at)


gradient_angle.foil(r"$1 / \sqrt\kappa$ is half of it for large $\kappa$", bound="1/sqrt(k)")
gradient_angle.foil(
    r"$\kappa$ replaced by its root",
    refuted_by="cosine of the worst angle",
    bound="root of kappa",
)


@claim(
    by="identity",
    sources=("D-054",),
    budget=0.5,
    short=r"f = \tfrac12 (\mu x^2 + L y^2),\ \tfrac1L < \eta < \tfrac2L: \quad"
    r" y_{t+1} = (1 - \eta L)\, y_t,\ 1 - \eta L < 0",
)
def zigzag(kappa: float = 100.0, steps: int = 100, etas: tuple[float, ...] = (1.1, 1.5, 1.9)):
    r"""The zigzag in a narrow valley.

    On $\frac12 (\mu x^2 + L y^2)$ with $\kappa = L / \mu \gg 1$ a step $\eta \in (\frac1L,
    \frac2L)$ makes the steep coordinate change its sign at every iteration, with factor
    $1 - \eta L < 0$, while the flat coordinate shrinks by only $1 - \eta \mu > 1 - \frac2\kappa$
    per step.

    Checked for torch's `SGD`; with $\kappa = 100$ and $\eta = \frac{1.9}L$ the flat coordinate
    loses 1.9 percent a step. For $\kappa > 2$ it keeps its sign. In other axes than these the
    gradients of two steps in a row form an obtuse angle, once the flat part is small beside the
    steep one.

    Knobs:
        kappa: The condition number.
        steps: How many steps are taken.
        etas: The step sizes, in units of $\frac1L$.
    """
    for L in (1.0, 8.0):
        f = quadratic(torch.diag(torch.tensor([L / kappa, L])))
        start = 1 + torch.rand(3, 2)
        runs = race(f, start, [[eta / L for eta in etas]] * steps)
        for eta, path in zip(etas, runs.unbind(1), strict=True):
            at = {"L": L, "eta": f"{eta:g}/L"}
            x, y = path.unbind(-1)
            turns = (y[1:].sign() != y[:-1].sign()).sum(0)
            yield equals("changes of sign of the steep coordinate", turns, steps, **at)
            turns = (x[1:].sign() != x[:-1].sign()).sum(0)
            yield equals("changes of sign of the flat coordinate", turns, 0, **at)
            yield equals("factor of the steep coordinate", y[1:] / y[:-1], 1 - eta, **at)
            lost = 1 - x[1:] / x[:-1]
            yield equals("share that the flat coordinate loses", lost, eta / kappa, tol=1e-12, **at)
            yield at_most("share that the flat coordinate loses", lost, 2 / kappa, **at)
    axes = torch.linalg.qr(torch.randn(2, 2)).Q
    f = quadratic(axes @ torch.diag(torch.tensor([1.0, kappa])) @ axes.T)
    path = descend(f, (axes @ torch.ones(2))[None], max(etas) / kappa, 10)[:, 0]
    g = gradients_of(f, path)
    cosine = nn.functional.cosine_similarity(g[1:], g[:-1], dim=1)
    yield at_most("cosine between gradients in a row", cosine, -0.9)


zigzag.foil("below 1/L the steep coordinate keeps its sign", etas=(0.9,))
zigzag.foil("with $\\kappa = 1.1$ the flat coordinate flips, too", kappa=1.1)
