"""Attacks of many steps: the best iterate within a ball, and why one step is not enough."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import robustness
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.models import mlp
from vademecum.robustness.claims._linear_scores import linear


def ascent(
    model: nn.Module, x: Tensor, y: Tensor, norm: str, radius: float, alpha: float, steps: int,
    projection: str,
) -> list[Tensor]:  # fmt: skip
    """The iteration as it is written, with gradients from autograd and no box: all iterates."""
    found, z = [], x
    for _ in range(steps):
        z = z.detach().requires_grad_()
        loss = nn.functional.cross_entropy(model(z), y, reduction="sum")
        (g,) = torch.autograd.grad(loss, z)
        size = g.square().sum(1, keepdim=True).sqrt()
        r = z.detach() + alpha * (g.sign() if norm == "linf" else g / size) - x
        long = r.square().sum(1, keepdim=True).sqrt()
        if projection == "rescaled":
            r = radius * r / (long if norm == "l2" else r.abs().amax(1, keepdim=True))
        elif projection == "nearest":
            r = r * (radius / long).clamp(max=1) if norm == "l2" else r.clamp(-radius, radius)
        z = x + r
        found.append(z)
    return found


@claim(
    by="identity",
    sources=("A-326", "A-327", "B-454", "C-341"),
    budget=0.6,
    short=r"x_k = \Pi_{B_\epsilon^p(x)} (x_{k-1} + \alpha \arg\max_{\|v\|_p \le 1} v^\top"
    r" \nabla_x \ell(f(x_{k-1}), y))",
)
def pgd(projection: Literal["nearest", "none", "rescaled"] = "nearest"):
    r"""Projected gradient attack.

    $$x_k = \Pi_{B_\epsilon^p(x)} \big(x_{k-1} + \alpha \operatorname*{argmax}_{\|v\|_p \le 1}
    v^\top \nabla_x \ell(f(x_{k-1}), y)\big):$$
    ascend along the steepest direction of the norm (sign of the gradient for $p = \infty$,
    normalised gradient for $p = 2$) and project back; the perturbation is $r_k = x_k - x$.

    *Checked* for $p = 2, \infty$: on random tanh networks `pgd` gives, after 1 to 6 steps, the
    iterate of this iteration with the largest loss, which lies in the ball and has a larger loss
    than $x$ in the mean; on linear logistic models, from a random start, 60 steps of
    $\alpha = \epsilon / 2$ reach $x + \epsilon v$ with the steepest direction $v$. (For $p = 2$ the
    error of the direction falls by $1 + \alpha / \epsilon$ in each step.)

    Knobs:
        projection: How iterates are brought back into the ball.
    """
    for norm, radius in (("l2", 0.5), ("linf", 0.2)):
        p = 2.0 if norm == "l2" else math.inf
        knobs = {"norm": norm, "radius": radius, "box": None, "random_start": False}
        model: Any = mlp([4, 6, 3], nn.Tanh)
        x = torch.randn(20, 4)
        with torch.no_grad():
            # Logits are at most 6 apart otherwise, so nothing is fooled and leaves early; with
            # much more the losses would all round to 0.
            model[-1].bias[0] += 8.0
        y = torch.zeros(20, dtype=torch.long)
        for steps in (1, 3, 6):
            at, alpha = {"norm": norm, "steps": steps}, 0.4 * radius
            path = ascent(model, x, y, norm, radius, alpha, steps, projection)
            away = torch.stack([torch.linalg.vector_norm(z - x, p, dim=1) for z in path])
            yield at_most("distance of an iterate", away, radius, tol=1e-12, **at)
            losses = torch.stack(
                [nn.functional.cross_entropy(model(z), y, reduction="none") for z in path]
            )
            best = losses.argmax(0)
            wanted = torch.stack(path)[best, torch.arange(20)]
            found = robustness.pgd(model, x, y, steps=steps, step_size=alpha, **knobs)
            yield equals("result of the attack", found.x, wanted.detach(), tol=1e-7, **at)
            yield at_most("its distance", found.distance, radius, tol=0.0, **at)
            before, after = (nn.functional.cross_entropy(model(z), y, reduction="none").detach()
                             for z in (x, found.x))  # fmt: skip
            yield at_least("mean rise of the loss", (after - before).mean(), 0.0, tol=0.0, **at)
        yield from _optimum(norm, radius, knobs)


def _optimum(norm: str, radius: float, knobs: dict[str, Any]):
    """Many steps on a linear model end at the closed form."""
    model, x, y = linear(7, 15)
    model.b += 40 * (1 if model.b > 0 else -1)  # nothing is fooled
    y = (model(x)[:, 1] > 0).long().detach()
    w = model.w.detach() * (1 - 2 * y)[:, None]
    v = w.sign() if norm == "linf" else w / w.square().sum(1, keepdim=True).sqrt()
    begun: dict[str, Any] = {**knobs, "random_start": True}
    found = robustness.pgd(model, x, y, steps=60, step_size=radius / 2, loss="margin", **begun)
    yield equals("end on a linear model", found.x, x + radius * v, tol=1e-6, norm=norm)
    gained = (1 - 2 * y) * ((found.x - x) @ model.w.detach())
    yield at_least("rise of the margin on a linear model", gained, 0.0, norm=norm)


pgd.foil("no projection", projection="none", refuted_by="distance of an iterate")
pgd.foil(
    "the rescaling that two sheets print", projection="rescaled", refuted_by="result of the attack"
)


class Landscape(nn.Module):
    """Two classes whose margin is a function of the inputs, less a large constant."""

    def __init__(self, surface: Callable[[Tensor], Tensor]):
        super().__init__()
        self.surface = surface

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        value = self.surface(x)
        return torch.stack([torch.full_like(value, 100.0), value], 1)


def parabola(x: Tensor) -> Tensor:
    """A loss with its maximum within reach."""
    return 1 - (x[:, 0] - 0.3) ** 2


@claim(
    by="sampling",
    sources=("B-459",),
    budget=0.8,
    short=r"\max_{k \le K} \ell(x_k) \le \max_{k \le K+1} \ell(x_k) \le \max_{\|r\| \le"
    r" \epsilon} \ell(x + r)",
)
def attack_strength(attack: Literal["pgd", "fgsm", "last iterate"] = "pgd", waves: int = 4):
    r"""Weak attacks overestimate robustness.

    Networks overfit to the attack used in training, so train and evaluate with many PGD iterations:
    the best loss over $K$ iterates (kept best) is non-decreasing in $K$, while a single full-length
    FGSM step can overshoot a curved loss and report robustness that is not there.

    *Checked* for $\ell(x) = 1 - (x - 0.3)^2$ from $x = 0$ with $\epsilon = 1$, where FGSM lands at
    0.51, below the clean 0.91, and PGD with steps of 0.1 reaches 0.99; for a linear loss, where
    FGSM attains the maximum; and for random smooth losses in 2 dimensions, where the best loss
    rises with $K$ and stays below the maximum over a grid of the ball, plus what the grid can
    miss. That networks overfit to an attack is quoted.

    Knobs:
        attack: What searches: PGD with the best of its iterates, FGSM, or PGD with its last one.
        waves: How many waves make a random loss.
    """
    y, origin = torch.tensor([0]), torch.zeros(1, 1)
    knobs = {"norm": "linf", "radius": 1.0, "box": None, "loss": "margin"}
    landed = float(parabola(robustness.fgsm(Landscape(parabola), origin, y, **knobs).x))
    yield equals("loss at the FGSM point of the parabola", landed, 0.51)
    yield at_most("the same, against the clean loss", landed, float(parabola(origin)))
    found = _searched(parabola, origin, 12, 0.1, attack)
    yield at_least("loss found on the parabola", found, 0.99)
    slope = torch.randn(3)
    line = Landscape(lambda x: x @ slope)
    reached = float(robustness.fgsm(line, torch.zeros(1, 3), y, **knobs).x[0] @ slope)
    yield equals("loss at the FGSM point of a line", reached, float(slope.abs().sum()))
    a, b, c = 2 * torch.randn(waves, 2), torch.rand(waves) * 6, torch.randn(waves)

    def surface(x: Tensor) -> Tensor:
        return torch.sin(x @ a.T + b) @ c

    start, found = torch.randn(6, 2), []
    for steps in range(1, 9):
        found.append(_searched(surface, start, steps, 0.3, attack))
        if steps > 1:
            yield at_least("best loss, one step more", found[-1], found[-2], tol=0.0, K=steps)
    ticks = torch.linspace(-1, 1, 101)
    grid = start[:, None] + torch.cartesian_prod(ticks, ticks)
    highest = surface(grid.flatten(0, 1)).view(6, -1).amax(1)
    missed = 0.02 / 2 * float((c.abs() * a.abs().sum(1)).sum())  # half a cell times the slope
    yield at_most("best loss, against a grid of the ball", found[-1], highest + missed)


def _searched(
    surface: Callable[[Tensor], Tensor], x: Tensor, steps: int, alpha: float, attack: str
) -> Tensor:
    """The losses that an attack of radius 1 reports."""
    model, y = Landscape(surface), torch.zeros(len(x), dtype=torch.long)
    knobs = {"norm": "linf", "radius": 1.0, "box": None, "loss": "margin"}
    if attack == "fgsm":
        return surface(robustness.fgsm(model, x, y, **knobs).x)
    if attack == "pgd":
        knobs |= {"steps": steps, "step_size": alpha, "random_start": False}
        return surface(robustness.pgd(model, x, y, **knobs).x)
    z = x
    for _ in range(steps):
        z = z.detach().requires_grad_()
        (g,) = torch.autograd.grad(surface(z).sum(), z)
        z = x + (z.detach() + alpha * g.sign() - x).clamp(-1, 1)
    return surface(z)


attack_strength.foil("one full step", attack="fgsm", refuted_by="loss found on the parabola")
attack_strength.foil(
    "the last iterate", attack="last iterate", refuted_by="best loss, one step more"
)
