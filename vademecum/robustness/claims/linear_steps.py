"""DeepFool's linear problem: its constraint, and the shortest step that meets it."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import robustness
from vademecum.claims import at_least, at_most, claim, equals, slope
from vademecum.models import mlp
from vademecum.robustness.attacks.nearest_face import face_step


def condition(r: Tensor, w: Tensor, f1: Tensor, f2: Tensor, version: str) -> Tensor:
    """The left side of the linearised condition, which asks it to be at least 0.

    w is the gradient of f_2 less that of f_1.
    """
    along = (w * r).sum(-1)
    if version == "B-447":
        return -along + f1 - f2
    return along + (f2 - f1 if version == "right" else f1 - f2)


@claim(
    by="identity",
    sources=("B-446", "B-447", "C-346"),
    budget=0.5,
    short=r"(\nabla f_2(x) - \nabla f_1(x))^\top r + f_2(x) - f_1(x) \ge 0",
)
def deepfool_linearisation(
    version: Literal["right", "B-447", "C-346"] = "right", order: float = 2.0
):
    r"""Linearised DeepFool problem.

    With class 1 predicted, DeepFool solves $\min \|r\|_p$ subject to
    $f_2(x + r) - f_1(x + r) \ge 0$ (with a tiny overshoot, since the strict inequality has no
    minimiser) and linearises the constraint to
    $(\nabla f_2(x) - \nabla f_1(x))^\top r + f_2(x) - f_1(x) \ge 0$, equivalently
    $(\nabla f_1 - \nabla f_2)^\top r \le f_2(x) - f_1(x)$. It is violated at $r = 0$.

    *Checked* for random affine pairs: the left side is negative at $r = 0$, 0 at the step that
    `deepfool` takes without overshoot, and positive just beyond it; on smooth networks, with
    gradients from central differences, its error is of second order in $r$ (the root of the mean
    square over 20 points: at a single one the second-order term can vanish).

    Knobs:
        version: How the condition is printed.
        order: The order of the error.
    """
    for d in (3, 7):
        model, x = nn.Linear(d, 2), torch.randn(15, d)
        with torch.no_grad():
            model.weight.normal_()
            w = model.weight[1] - model.weight[0]
            margin = torch.rand(15) + 0.05  # by which class 1 shall be ahead
            z = model(x)
            x = x + ((z[:, 1] - z[:, 0] + margin) / -w.square().sum())[:, None] * w
            f = model(x)
        y, w = torch.zeros(15, dtype=torch.long), w.expand_as(x)
        left = condition(torch.zeros_like(x), w, f[:, 0], f[:, 1], version)
        yield at_most("left side at $r = 0$", left, -0.04, d=d)
        r = robustness.deepfool(model, x, y, box=None, overshoot=0.0).x - x
        ends = [condition(part * r, w, f[:, 0], f[:, 1], version) for part in (1.0, 1.1)]
        yield equals("left side at the step", ends[0], 0.0, d=d)
        yield at_least("left side a tenth beyond", ends[1], 0.001, d=d)
    model, x = mlp([4, 9, 2], nn.Tanh), torch.randn(20, 4)
    u = torch.randn(20, 4)
    u = u / u.square().sum(1, keepdim=True).sqrt()
    with torch.no_grad():
        grid = 1e-5 * torch.eye(4)
        ends = [model(x[:, None] + sign * grid) for sign in (1, -1)]
        w = ((ends[0] - ends[1]) / 2e-5).diff(dim=2)[..., 0]
        f = model(x)
        sizes, errors = torch.logspace(-3, -0.5, 11), []
        for size in sizes.tolist():
            true = model(x + size * u).diff(dim=1)[:, 0]
            errors.append(true - condition(size * u, w, f[:, 0], f[:, 1], "right"))
    error = torch.stack(errors).square().mean(1).sqrt()
    yield slope("error of the linearisation", sizes, error, order)


deepfool_linearisation.erratum(
    "B-447",
    printed=r"$(\nabla_x f_1(x) - \nabla_x f_2(x))^T r + f_1(x) - f_2(x) > 0$",
    right=r"$(\nabla_x f_2(x) - \nabla_x f_1(x))^T r + f_2(x) - f_1(x) \ge 0$",
    why=r"Sign reversed: class 1 is predicted, so $f_1(x) > f_2(x)$ and the printed condition"
    r" already"
    r" holds at $r = 0$; it describes staying in class 1.",
    weight="hard",
    refuted_by="left side at $r = 0$",
    version="B-447",
)
deepfool_linearisation.erratum(
    "C-346",
    printed=r"$\arg\min \|\eta\|_2$ s.t. $(\nabla f_1 - \nabla f_2)^\top \eta < f_1(x) - f_2(x)$",
    right=r"$\arg\min \|\eta\|_2$ s.t. $(\nabla f_1 - \nabla f_2)^\top \eta \le f_2(x) - f_1(x)$",
    why=r"Sign of the right side wrong: if class 1 is predicted, $f_1 - f_2 > 0$ and $\eta = 0$ is"
    " feasible, so nothing moves.",
    weight="hard",
    refuted_by="left side at $r = 0$",
    version="C-346",
)
deepfool_linearisation.foil("an error of higher order", order=2.3)


@claim(
    by="identity",
    sources=("B-449", "C-345"),
    budget=0.4,
    short=r"r^* = \frac{f_1(x) - f_2(x)}{\|w\|_q^q} |w|^{q-1} \odot \operatorname{sign}(w),"
    r" \quad w = \nabla f_2 - \nabla f_1",
)
def deepfool_step(sign: float = 1.0, exponents: tuple[float, ...] = (1.5, 2.0, 3.0, math.inf)):
    r"""Optimal DeepFool step.

    With $w = \nabla f_2(x) - \nabla f_1(x)$, class 1 predicted and $\frac1p + \frac1q = 1$:
    $$r^* = \frac{f_1(x) - f_2(x)}{\|w\|_q^q}\, |w|^{q-1} \odot \operatorname{sign}(w),$$
    of norm $\|r^*\|_p = (f_1(x) - f_2(x)) / \|w\|_q$; for $p = 2$ it is
    $\frac{f_1 - f_2}{\|w\|_2^2} w$.

    *Checked* for linear logits in 3 and 6 dimensions, for the formula and for the steps of
    `deepfool`, by itself for $p = 2, \infty$ and through its rule for all $p$: the margin
    $f_1 - f_2$ after the step is 0, the norm is that of the formula, and vectors of 0.999 times
    that norm leave the margin positive.

    Knobs:
        sign: The sign of the formula.
        exponents: The exponents p of the norm.
    """
    for p in exponents:
        q = 1.0 if p == math.inf else p / (p - 1)
        for d in (3, 6):
            at, w, margin = {"p": p, "d": d}, torch.randn(8, d), torch.rand(8) + 0.5
            power = (w.abs() ** q).sum(1)
            r = sign * (margin / power)[:, None] * w.abs() ** (q - 1) * w.sign()
            after = (margin - (w * r).sum(1)) / margin
            yield equals("margin after the step, over that before", after, 0.0, tol=1e-12, **at)
            size = torch.linalg.vector_norm(r, p, dim=1)
            yield equals("norm of the step", size, margin / power ** (1 / q), **at)
            found, length = face_step(-margin, w, p)
            yield equals("step of the room", found, r, **at)
            yield equals("its length", length, size, **at)
            u = torch.randn(2000, 8, d)
            u = 0.999 * size[:, None] * u / torch.linalg.vector_norm(u, p, dim=2, keepdim=True)
            least = (margin - (w * u).sum(2)).amin(0)
            yield at_least("margin after shorter vectors", least, 0.0005 * margin, **at)
    yield from _taken(sign)


def _taken(sign: float):
    """The step that the whole attack takes on a linear model."""
    model = nn.Linear(5, 2)
    w = (model.weight[1] - model.weight[0]).detach()
    x = -torch.rand(6, 1) * w + 0.1 * torch.randn(6, 5)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, 0.0]))
    margin = (model(x)[:, 0] - model(x)[:, 1]).detach()
    y = torch.zeros(6, dtype=torch.long)
    steps: Any = {"l2": w / w.square().sum(), "linf": w.sign() / w.abs().sum()}
    for norm, r in steps.items():
        found = robustness.deepfool(model, x, y, norm=norm, box=None, overshoot=0.0)
        yield equals(
            "step of deepfool", found.x - x, sign * margin[:, None] * r, tol=1e-7, norm=norm
        )
        yield equals("steps of deepfool", found.steps, 1, norm=norm)


deepfool_step.erratum(
    "B-449",
    printed=r"$r^* = \frac{f_1(x) - f_2(x)}{\|\nabla_x f_1(x) - \nabla_x f_2(x)\|_{p^*}^{p^*}}"
    r" \cdot"
    r" |\nabla_x f_1(x) - \nabla_x f_2(x)|^{p^*-1} \odot \text{sgn}(\nabla_x f_1(x) - \nabla_x"
    r" f_2(x))$",
    right=r"the same with $\text{sgn}(\nabla_x f_2(x) - \nabla_x f_1(x))$",
    why=r"The sign vector points the wrong way, so the step increases $f_1 - f_2$: with linear"
    " logits the margin becomes 2 times what it was, with the opposite sign 0. The sheet's"
    " multi-class formula has the right sign.",
    weight="hard",
    refuted_by="margin after the step, over that before",
    sign=-1.0,
)
deepfool_step.foil("half the step", sign=0.5, refuted_by="margin after the step, over that before")
