"""Clipped gradients and cliffs: and gradients that grow while losses fall."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.optimization.claims._recorded import recorded


def by_norm(p: nn.Parameter, c: float) -> None:
    """Torch's clipping of the norm."""
    clip_grad_norm_([p], c)


def by_value(p: nn.Parameter, c: float) -> None:
    """Torch's clipping of each coordinate."""
    clip_grad_value_([p], c)


def always(p: nn.Parameter, c: float) -> None:
    """Every gradient gets the norm c."""
    if p.grad is not None:
        p.grad *= c / p.grad.norm().clamp(min=1e-300)


Clip = Callable[[nn.Parameter, float], None]


def clipped(g: Tensor, c: float, clip: Clip) -> Tensor:
    """What clipping makes of a gradient."""
    p = nn.Parameter(torch.zeros_like(g))
    p.grad = g.clone()
    clip(p, c)
    return p.grad


@claim(
    by="sampling",
    sources=("B-240", "E-169", "E-170"),
    budget=0.5,
    full={"n": 2000},
    short=r"g \leftarrow g \cdot \min\{1, c / \|g\|\}",
)
def gradient_clipping(clip: Clip = by_norm, n: int = 100):
    r"""Gradient norm clipping.

    Rescale the gradient when its norm exceeds a threshold, $g \leftarrow g \cdot \min\{1, c /
    \|g\|\}$: direction kept, norm at most $c$, shorter gradients untouched. It bounds the jump at a
    cliff by $\eta c$ and so avoids the choice between tiny steps everywhere and occasional huge
    jumps.

    Checked for torch's `clip_grad_norm_`, which divides by $\|g\| + 10^{-6}$, for norms from
    $10^{-3}$ to $10^6$ and the zero vector, and at the wall $100\, \sigma(50 x)$. Two limits of it:
    a NaN passes into all of the gradient, and a gradient whose norm overflows becomes zero.

    Knobs:
        clip: What clips the gradient of a parameter to $c$.
        n: How many gradients are drawn.
    """
    for d, c in ((3, 1.0), (7, 0.5)):
        sizes = 10 ** (9 * torch.rand(n) - 3)
        sizes[:3] = torch.tensor([1e-3, 1e6, c * (1 - 1e-3)])
        for size in sizes.tolist():
            g = size * nn.functional.normalize(torch.randn(d), dim=0)
            found, at = clipped(g, c, clip), {"d": d, "c": c}
            norm = found.norm() / min(size, c)
            yield equals("norm over the smaller of the norm and c", norm, 1.0,
                         tol=1e-6 / max(size, c) + 1e-12, **at)  # fmt: skip
            cosine = (found @ g) / (found.norm() * g.norm())
            yield equals("cosine between the gradient and what it becomes", cosine, 1.0, tol=1e-12,
                         **at)  # fmt: skip
            short = size < c - 1e-6
            yield equals("change of a short gradient", (found - g).abs().max() * short, 0.0,
                         tol=0.0, **at)  # fmt: skip
        yield equals("zero gradient", clipped(torch.zeros(d), c, clip), 0.0, tol=0.0)
    eta, c = 0.02, 1.0
    jumps = {}
    for name, limit in (("clipped", c), ("free", math.inf)):
        x = nn.Parameter(torch.tensor([0.2]))
        path = [x.item()]
        for _ in range(30):
            x.grad = torch.autograd.grad(100 * (50 * x).sigmoid().sum() + 2 * x.sum(), x)[0]
            if limit < math.inf:
                clip(x, limit)
            with torch.no_grad():
                x.sub_(eta * x.grad)
            path.append(x.item())
        jumps[name] = torch.tensor(path).diff().abs().max()
    yield at_most("longest jump at a wall, clipped", jumps["clipped"], eta * c)
    yield at_least("longest jump at a wall", jumps["free"], 10 * eta * c)
    lost = by_norm_of(torch.tensor([1.0, torch.nan, 2.0]))
    yield equals("entries that a NaN leaves finite", int(lost.isfinite().sum()), 0)
    yield equals("gradient whose norm overflows", by_norm_of(torch.full((2,), 1e200)), 0.0, tol=0.0)


def by_norm_of(g: Tensor) -> Tensor:
    """What torch's clipping to 1 makes of a gradient."""
    return clipped(g, 1.0, by_norm)


gradient_clipping.foil("each coordinate clipped, which turns the gradient", clip=by_value)
gradient_clipping.foil("unconditional normalisation, which lengthens short ones", clip=always)


def ramp(x: Tensor, h: float, s: float) -> Tensor:
    r"""$\frac hs [\mathrm{softplus}(s x) - \mathrm{softplus}(s (x - 1))]$."""
    softplus = partial(nn.functional.softplus, threshold=40)  # beyond it exp(-40) is nothing
    return h / s * (softplus(s * x) - softplus(s * (x - 1)))


def linear_error(start: float, end: float, h: float, s: float) -> float:
    """By how much the tangent at the start misses the ramp at the end."""
    x = torch.tensor(start, requires_grad=True)
    value = ramp(x, h, s)
    (slope,) = torch.autograd.grad(value, x)
    there = ramp(torch.tensor(end), h, s)
    return float((there - value - slope * (end - start)).detach().abs())


@claim(
    by="identity",
    sources=("E-169", "E-172"),
    budget=0.3,
    full={"points": 400_001},
    short=r"\text{cliff of slope } h, \text{ edges of width } 1/s: |\mathcal"
    r" R''| \approx h s / 4 \text{ at these alone}",
)
def cliffs(power: float = 0.0, edge: float = 0.25, points: int = 20_001):
    r"""Cliffs hurt through curvature, not steepness.

    On the face of a cliff the gradient is nearly constant and the linear model accurate; the
    trouble sits at its edges, where the gradient changes abruptly. For the ramp
    $\mathcal R_s(x) = \frac hs [\mathrm{softplus}(s x) - \mathrm{softplus}(s (x - 1))]$ of slope
    $h$ the curvature at the edge grows like $h s / 4$, while on the face the error of the linear
    model vanishes exponentially in $s$.

    *Proof.* $\mathcal R_s' = h\, [\sigma(s x) - \sigma(s (x - 1))]$, so $\mathcal R_s''(0) = h s\,
    \sigma'(0) = h s / 4$ up to $h s\, e^{-s}$, and the step from 0.5 to 0.3 has the error $\frac hs
    e^{-0.3 s}$ up to a factor $1 + O(s e^{-0.2 s})$. The step from 0.1 to $-0.2$ crosses the edge
    and misses $0.2\, h$. Checked for $h = 5$ and 5000.

    Knobs:
        power: With which power of the slope the relative error on the face grows.
        edge: The largest curvature in units of $h s$.
        points: How many points the curvature is evaluated at.
    """
    yield equals("error on the face", linear_error(0.5, 0.3, 5.0, 10.0), 0.0105, tol=1e-4, s=10)
    for h in (5.0, 5000.0):
        for s in (50.0, 70.0):
            error = linear_error(0.5, 0.3, h, s)
            stated = h / s * math.exp(-0.3 * s)
            room = 2 * s * math.exp(-0.2 * s) + 1e-15 * h / stated  # and rounding
            yield equals("error on the face, over its closed form", error / stated, 1.0, tol=room,
                         h=h, s=s)  # fmt: skip
        for s in (100.0, 1000.0):
            yield at_most("error on the face", linear_error(0.5, 0.3, h, s), 1e-12 * h, tol=0.0,
                          h=h, s=s)  # fmt: skip
            across = linear_error(0.1, -0.2, h, s) / h
            yield equals("error across the edge, over the slope", across, 0.2, tol=1e-3, h=h, s=s)
        for s, tol in ((1000.0, 1e-9), (100.0, 1e-9), (10.0, 1e-3)):
            x = (torch.linspace(-8, 8, points) / s).requires_grad_()
            (slope,) = torch.autograd.grad(ramp(x, h, s).sum(), x, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), x)
            yield equals("largest curvature over h s", bend.max() / (h * s), edge, tol=tol,
                         h=h, s=s)  # fmt: skip
    relative = [linear_error(0.5, 0.3, h, 20.0) / h for h in (5.0, 5000.0)]
    yield equals("relative error of the steeper face over the other", relative[1] / relative[0],
                 1000.0**power)  # fmt: skip


cliffs.foil("steepness by itself makes the linear model fail", power=1.0)
cliffs.foil("a curvature of $h s / 2$", edge=0.5)


def product_gradient(w: Tensor) -> Tensor:
    r"""Of $\frac12 (w_1 w_2 - 1)^2$."""
    return (w.prod() - 1) * w.flip(0)


def bowl_gradient(w: Tensor) -> Tensor:
    r"""Of $\frac12 (w_1^2 + 4 w_2^2)$."""
    return w * torch.tensor([1.0, 4.0])


@claim(
    by="sampling",
    sources=("E-137", "E-138", "E-139"),
    budget=0.5,
    full={"n": 500_000},
    short=r"\text{noisy } \tfrac12 x^2: \mathbb E\, \hat g_t^2 \to"
    r" \sigma^2 \big(1 + \tfrac{\eta}{2 - \eta}\big) > 0",
)
def gradient_norm_growth(
    falling: Literal["bowl", "network"] = "bowl", settles: float = 1.0, n: int = 20_000
):
    r"""Gradient norms need not shrink during training.

    For deterministic descent on strongly convex functions the gradient norm decays geometrically,
    but for networks it can grow while the loss falls, and stochastic gradients do not vanish at the
    end of training because constant-step iterates never settle at a critical point. Small gradients
    are therefore no reliable sign of the end of training, nor large ones of trouble.

    Checked with torch's `SGD`: on a diagonal quadratic with $\eta = 1 / L$; on the linear network
    $\frac12 (w_1 w_2 - 1)^2$ from $(0.1, 0.1)$ with $\eta = 0.1$, where the norm
    $\sqrt2\, w (1 - w^2)$ rises until $w = 1 / \sqrt 3$; and on $\frac12 x^2$ with noise of
    variance $\sigma^2$, where the mean square of the iterate tends to
    $\sigma^2 \frac{\eta}{2 - \eta}$, that of the stochastic gradient to $\sigma^2$ more.

    Knobs:
        falling: Where the gradient norm is said to fall whenever the loss does.
        settles: The mean square of the noise that is left at the end, in units of $\sigma^2$.
        n: How many noisy runs there are, side by side.
    """
    runs = {}
    for name, gradient, start, eta in (
        ("network", product_gradient, torch.tensor([0.1, 0.1]), 0.1),
        ("bowl", bowl_gradient, torch.tensor([1.0, 1.0]), 0.25),
    ):
        _, grads = recorded(lambda p, eta=eta: torch.optim.SGD(p, lr=eta), start, gradient, 60)
        runs[name] = grads.norm(dim=1)
    growth = runs[falling].diff().max()
    yield at_most("growth of the gradient norm in a step", growth, 0.0, tol=0.0, objective=falling)
    path, _ = recorded(
        lambda p: torch.optim.SGD(p, lr=0.1), torch.tensor([0.1, 0.1]), product_gradient, 60
    )
    loss = (path.prod(1) - 1).square() / 2
    yield at_most("growth of the network's loss in a step", loss.diff(), 0.0, tol=0.0)
    yield equals("network's gradient norm at the start", runs["network"][0], 0.099 * 2**0.5)
    peak = 2 * 2**0.5 / (3 * 3**0.5)
    yield equals("network's largest gradient norm", runs["network"].max(), peak, tol=0.01)
    yield equals("step with the largest gradient norm", int(runs["network"].argmax()), 20)
    eta, sigma = 0.5, 2.0
    x, noise = torch.zeros(n), torch.zeros(n)
    for _ in range(40):  # what is left of the start is (1 - eta)^80
        noise = sigma * torch.randn(n)
        x = x - eta * (x + noise)
    g2 = (x + sigma * torch.randn(n)).square()
    stated = sigma**2 * (settles + eta / (2 - eta))
    yield in_mean("mean square of the stochastic gradient", g2, stated, eta=eta, sigma=sigma)


gradient_norm_growth.foil("the norm falls whenever the loss does", falling="network")
gradient_norm_growth.foil("the noise settles", settles=0.0)
