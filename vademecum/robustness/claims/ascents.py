"""One step to the edge of a ball: the best one for a linearised loss."""

import math
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import robustness
from vademecum.claims import at_least, claim, equals
from vademecum.models import mlp
from vademecum.robustness.claims._linear_scores import Score, linear


@claim(
    by="identity",
    sources=("A-328", "C-340"),
    budget=0.3,
    short=r"x' = x + \epsilon \operatorname{sign} \nabla_x \ell(f(x), y)",
)
def fgsm(
    step: Literal["sign", "gradient", "unit gradient"] = "sign", sizes: tuple[int, ...] = (4, 10)
):
    r"""Fast gradient sign method.

    $x' = x + \epsilon \operatorname{sign} \nabla_x \ell(f(x), y)$ maximises the linearised loss
    over the $\ell_\infty$ ball, and is exact for linear models with a loss that is monotone in the
    margin.

    *Checked* for linear logistic models: the loss at the result of `fgsm` equals the maximum over
    all corners of the cube, also of the part of it that lies in the box $[0, 1]$; its distance from
    $x$ is $\epsilon$; and for the $\ell_2$ and the $\ell_1$ ball the logit moves by
    $\epsilon \|w\|_2$ and $\epsilon \|w\|_\infty$.

    Knobs:
        step: What the step is: $\epsilon$ times the sign of the gradient, times the gradient, or
            times the gradient over its length.
        sizes: The dimensions.
    """
    for d, radius in product(sizes, (0.07, 0.3)):
        model, x, y = linear(d, 12)
        corners = torch.tensor(list(product((-1.0, 1.0), repeat=d)))
        at = {"d": d, "radius": radius}
        for box in (None, (0.0, 1.0)):
            found = _stepped(model, x, y, radius, box, step)
            best = (x + radius * corners[:, None]).clamp(*(box or (-9.0, 9.0)))
            highest = torch.stack([model.loss(c, y) for c in best]).amax(0)
            name = "loss in the cube" if box is None else "loss in cube and box"
            yield equals(name, model.loss(found, y), highest, tol=1e-12, **at)
            if box is None:
                moved = (found - x).abs()
                yield equals("moduli of the changes", moved, radius, tol=1e-15, **at)
        norms: Any = (("l2", 2), ("l1", math.inf))
        for norm, q in norms:
            found = robustness.fgsm(model, x, y, norm=norm, radius=radius, box=None).x
            shift = (1 - 2 * y) * ((found - x) @ model.w.detach())
            size = float(torch.linalg.vector_norm(model.w.detach(), q))
            yield equals("change of the logit", shift, radius * size, norm=norm, **at)


def _stepped(
    model: Score, x: Tensor, y: Tensor, radius: float, box: tuple[float, float] | None, step: str
) -> Tensor:
    """The room's attack, or a step along a gradient that is written down."""
    if step == "sign":
        return robustness.fgsm(model, x, y, norm="linf", radius=radius, box=box).x
    sign = (1 - 2 * y)[:, None]
    w = model.w.detach()
    g = sign * torch.sigmoid(sign * (x @ w + model.b)[:, None]) * w
    g = g if step == "gradient" else g / torch.linalg.vector_norm(g, dim=1, keepdim=True)
    return (x + radius * g).clamp(*(box or (-9.0, 9.0)))


fgsm.foil("the gradient without its sign", step="gradient")
fgsm.foil("the gradient over its length", step="unit gradient")


@claim(
    by="identity",
    sources=("A-328",),
    budget=0.4,
    short=r"\Pi_\epsilon(x + \alpha \operatorname{sign} g) = x + \epsilon \operatorname{sign} g,"
    r" \quad \alpha \ge \epsilon",
)
def fgsm_one_step(
    steps: int = 1,
    norm: Literal["linf", "l2"] = "linf",
    sizes: tuple[float, ...] = (1.0, 2.0, 40.0),
):
    r"""FGSM is one step of PGD.

    Started at $x$ itself, one PGD iteration for $p = \infty$ with any step size
    $\alpha \ge \epsilon$ and clipping to the ball gives
    $x + \epsilon \operatorname{sign} \nabla_x \ell$, the FGSM point; the unit step followed by
    scaling to radius $\epsilon$ gives the same, because $\|\operatorname{sign} g\|_\infty = 1$. For
    $\alpha < \epsilon$ the step ends inside the ball, and a random start changes the gradient.

    *Checked* for random tanh networks with three inputs of which one has no weight: the results of
    `fgsm` and of `pgd` are equal, bit by bit, and the unit step scaled, with gradients from
    autograd; for $\alpha = \epsilon / 2$ they differ by $\epsilon / 2$ wherever the gradient is not
    0; coordinates without gradient stay; gradients at draws of the ball are others.

    Knobs:
        steps: How many iterations are made.
        norm: The norm of the ball onto which they are projected.
        sizes: The step sizes, in units of the radius.
    """
    radius = 0.25
    for width, k in ((5, 2), (8, 4)):
        model: Any = mlp([3, width, k], nn.Tanh)
        x = torch.randn(30, 3)
        with torch.no_grad():
            model[0].weight[:, 1] = 0
        y, at = model(x).argmax(1), {"width": width, "classes": k}
        one = robustness.fgsm(model, x, y, norm="linf", radius=radius, box=None).x

        def iterated(size, model=model, x=x, y=y):
            return robustness.pgd(model, x, y, norm=norm, radius=radius, box=None, steps=steps,
                       step_size=size * radius, random_start=False).x  # fmt: skip

        for size in sizes:
            gap = (iterated(size) - one).abs()
            yield equals("distance of PGD from FGSM", gap, 0.0, tol=0.0, alpha=size, **at)
        g = _gradient(model, x, y)
        unit = g.sign() / g.sign().abs().amax(1, keepdim=True)
        yield equals("unit step, scaled", one, x + radius * unit, tol=1e-15, **at)
        start = x + robustness.sample_ball(30, (3,), norm="linf", radius=radius)
        change = (_gradient(model, start, y) - g).norm(dim=1) / g.norm(dim=1)
        yield at_least("median change of gradients at a random start", change.median(), 1e-3, **at)
        moved = (one - x)[:, [0, 2]].abs()
        yield equals("moduli of the changes", moved, radius, tol=1e-15, **at)
        yield equals("change without gradient", (one - x)[:, 1].abs(), 0.0, tol=0.0, **at)
        half = (one - iterated(0.5))[:, [0, 2]].abs()
        yield equals("distance for half a step", half, radius / 2, tol=1e-15, **at)


def _gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the cross-entropy in the inputs."""
    x = x.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
    return torch.autograd.grad(loss, x)[0]


fgsm_one_step.foil("two iterations of four tenths", steps=2, sizes=(0.4,))
fgsm_one_step.foil("a projection onto the Euclidean ball", norm="l2")
fgsm_one_step.foil("half the step size", sizes=(0.5,))
