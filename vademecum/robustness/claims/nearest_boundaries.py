"""The nearest decision boundary: exact for linear models, by DeepFool's linear steps for others."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum import robustness
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.models import mlp


def linear(k: int, d: int, n: int) -> tuple[nn.Linear, Tensor, Tensor]:
    """A random linear model with points, and the classes that it gives them."""
    model, x = nn.Linear(d, k), torch.randn(n, d)
    with torch.no_grad():
        model.weight.normal_()
        return model, x, model(x).argmax(1)


def to_faces(model: nn.Linear, x: Tensor, c: Tensor) -> Tensor:
    """Distances to the faces of decision polyhedra (n, k), by least squares with least norm."""
    W, b = model.weight.detach().numpy(), model.bias.detach().numpy()
    found = np.full((len(x), len(b)), np.inf)
    for i, point in enumerate(x.numpy()):
        for j in range(len(b)):
            home = int(c[i])
            if j != home:
                w = (W[j] - W[home])[None]
                gap = W[home] @ point + b[home] - W[j] @ point - b[j]
                found[i, j] = np.linalg.norm(np.linalg.lstsq(w, np.array([gap]), rcond=None)[0])
    return torch.from_numpy(found)


@claim(
    by="identity",
    sources=("A-322", "A-323", "C-345"),
    budget=0.6,
    short=r"\eta_i = \frac{f_c(x) - f_i(x)}{\|w_c - w_i\|_2^2} (w_i - w_c), \quad \min_{i \ne c}"
    r" \|\eta_i\|",
)
def linear_minimal_perturbation(face: Literal["nearest", "runner-up"] = "nearest"):
    r"""Minimal perturbation of a linear multi-class model.

    For $k(x) = \operatorname{argmax}_i f_i(x)$, $f_i = w_i^\top x + b_i$, with predicted class $c$,
    the $\ell_2$-minimal perturbation reaching the decision boundary is the shortest of
    $$\eta_i = \frac{f_c(x) - f_i(x)}{\|w_c - w_i\|_2^2}\, (w_i - w_c), \quad i \ne c,$$
    of length $(f_c - f_i) / \|w_c - w_i\|$. It ends on the boundary (zero margin), so such examples
    have low confidence and can be detected.

    *Checked* for random models with 3 to 5 classes: $f_c = f_i$ at $x + \eta_i$; the shortest
    length equals the distance to the nearest face from least-norm solutions, what `linear_radius`
    says, and what `deepfool` without overshoot finds; its margin there is 0 up to rounding; no
    perturbation of 0.999 times that length that is drawn changes the class.

    Knobs:
        face: Which face counts: the nearest, or that of the class with the second largest logit.
    """
    for k, d in ((5, 4), (3, 6), (4, 2)):
        model, x, c = linear(k, d, 12)
        at, rows = {"classes": k, "d": d}, torch.arange(len(x))
        W, f = model.weight.detach(), model(x).detach()
        w = W - W[c][:, None]
        gap = f[rows, c][:, None] - f
        eta = (gap / w.square().sum(2).clamp(min=1e-300))[..., None] * w
        moved = torch.einsum("nid,nid->ni", w, eta) - gap
        yield equals("$f_i - f_c$ at the end of each perturbation", moved, 0.0, tol=1e-12, **at)
        lengths = eta.square().sum(2).sqrt().scatter(1, c[:, None], math.inf)
        second = f.scatter(1, c[:, None], -math.inf).argmax(1)
        shortest = lengths.amin(1) if face == "nearest" else lengths[rows, second]
        yield equals("distance to the nearest face", to_faces(model, x, c).amin(1), shortest, **at)
        exact = robustness.linear_radius(W, model.bias.detach(), x, norm="l2")
        yield equals("linear_radius", exact, shortest, **at)
        found = robustness.deepfool(model, x, c, box=None, overshoot=0.0)
        yield equals("length that deepfool finds", found.distance, shortest, tol=1e-8, **at)
        top = model(found.x).detach().topk(2, dim=1).values
        yield at_most(
            "gap of the top two logits there", top[:, 0] - top[:, 1], 0.0, tol=1e-10, **at
        )
        u = torch.randn(500, len(x), d)
        u = 0.999 * shortest[:, None] * u / u.square().sum(2, keepdim=True).sqrt()
        same = (model(x + u).argmax(2) == c).all(0).int()
        yield equals("whether shorter ones leave the class", same, 1, **at)
    yield from _far_runner_up(face)


def _far_runner_up(face: str):
    """Logits 1, 0.9 and 0.5, of which the last has the nearer boundary."""
    model, x = nn.Linear(2, 3), torch.zeros(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 5.0]]))
        model.bias.copy_(torch.tensor([1.0, 0.9, 0.5]))
    found = robustness.deepfool(model, x, torch.tensor([0]), box=None, overshoot=0.0)
    wanted = 0.1 if face == "nearest" else 1.0
    yield equals("length for logits 1, 0.9 and 0.5", float(found.distance), wanted, tol=1e-8)


linear_minimal_perturbation.foil("the face of the runner-up class", face="runner-up")


@claim(
    by="sampling",
    sources=("A-324", "B-443", "B-444", "B-448", "B-450"),
    budget=1.0,
    short=r"r \leftarrow r + \text{shortest}_{j \ne k(x)} \frac{|h_j|}{\|\nabla"
    r" h_j\|_2^2} \nabla h_j, \quad h_j = f_j - f_{k(x)}",
)
def deepfool(candidates: int = 5, overshoot: float = 0.02):
    r"""DeepFool attack.

    Repeat until the prediction changes: linearise the logits at the current point, compute for
    every class $j \ne k(x)$ with $h_j = f_j - f_{k(x)}$ the minimal step of length
    $|h_j| / \|\nabla h_j\|_q$ and add the shortest one (plus a small overshoot). It approximates
    the smallest $\ell_p$ perturbation, exact in one step for linear logits; its results lie close
    to the boundary with low confidence.

    *Checked* for linear models with 5 classes: one step, and a length of $1 + o$ times the exact
    distance with the overshoot $o$, for $p = 2, \infty$. For random smooth networks: the labels of
    at least 95 of 100 points change (observed: all), as a second question to the model confirms;
    the gap of the top two logits is at most 5 percent of the clean gap in the median (observed: 1
    to 2 percent), and the median $\ell_2$ length at most that of the smallest FGSM perturbation
    (observed: 0.7 to 0.8 of it).

    Knobs:
        candidates: How many classes are looked at, the predicted one among them.
        overshoot: By which part a perturbation on a linear model is said to be longer than the
            exact one; the attack's own is 0.02.
    """
    cases: Any = (("l2", 4), ("linf", 6))
    for norm, d in cases:
        model, x, c = linear(5, d, 40)
        found = robustness.deepfool(model, x, c, norm=norm, box=None, candidates=candidates)
        exact = robustness.linear_radius(model.weight.detach(), model.bias.detach(), x, norm=norm)
        if norm == "l2":
            exact = to_faces(model, x, c).amin(1)
        yield equals("length on a linear model", found.distance, (1 + overshoot) * exact,
                     tol=1e-8, norm=norm)  # fmt: skip
        yield equals("steps on a linear model", found.steps, 1, norm=norm)
    model: Any = mlp([6, 30, 5], nn.Tanh)
    x = torch.randn(100, 6)
    with torch.no_grad():
        model[0].weight.mul_(2)
    clean = model(x).detach()
    y, gaps = clean.argmax(1), clean.topk(2, dim=1).values
    found = robustness.deepfool(model, x, y, box=None)
    asked = model(found.x).detach()
    changed = (asked.argmax(1) != y).double().mean()
    yield at_least("share of labels that change", changed, 0.95)
    yield equals("share that the attack reports", found.fooled.double().mean(), float(changed))
    after = asked.topk(2, dim=1).values
    ratio = ((after[:, 0] - after[:, 1]) / (gaps[:, 0] - gaps[:, 1])).median()
    yield at_most("gap of the top two logits, as a part of the clean one", ratio, 0.05)
    lengths = torch.full((100,), math.inf)
    for radius in torch.logspace(1, -3, 60).tolist():
        one = robustness.fgsm(model, x, y, norm="linf", radius=radius, box=None)
        size = (one.x - x).square().sum(1).sqrt()
        lengths = torch.where(one.fooled, torch.minimum(size, lengths), lengths)
    yield at_most(
        "median length, against the smallest FGSM", found.distance.median(), lengths.median()
    )


deepfool.foil("the class with the largest other logit alone", candidates=2)
deepfool.foil("no overshoot counted", overshoot=0.0)
