"""Boxes: carried through a network, and what they certify."""

import itertools
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.models import mlp
from vademecum.robustness import interval_bounds as by_intervals
from vademecum.robustness import pgd

Rule = Literal["centre and radius", "ends by ends", "half the radius"]


def ends(model: nn.Sequential, x: Tensor, radius: float, rule: Rule) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of outputs: by the room's part, or by another rule for affine layers."""
    if rule == "centre and radius":
        found = by_intervals(model, x, norm="linf", radius=radius, box=None, arithmetic="real")
        return found.lower, found.upper
    low, high = x - radius, x + radius
    for layer in model:
        if rule == "half the radius" and isinstance(layer, nn.Linear):
            middle = layer((low + high) / 2)
            reach = (high - low) / 4 @ layer.weight.abs().T
            low, high = middle - reach, middle + reach
        else:
            low, high = layer(low), layer(high)
    return low.detach(), high.detach()


def by_signs(model: nn.Sequential, x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The same with each end from the ends that weights of either sign make extreme."""
    low, high = x - radius, x + radius
    for layer in model:
        if isinstance(layer, nn.Linear):
            up, down, b = layer.weight.clamp(min=0).T, layer.weight.clamp(max=0).T, layer.bias
            low, high = low @ up + high @ down + b, high @ up + low @ down + b
        else:
            low, high = layer(low), layer(high)
    return low.detach(), high.detach()


def corners(x: Tensor, radius: float) -> Tensor:
    """All corners of the cubes around inputs."""
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=x.shape[1])))
    return x[:, None] + radius * signs


@claim(
    by="sampling",
    sources=("C-348",),
    budget=1.0,
    short=r"[Wc + b \pm |W| \rho] \supseteq W [c \pm \rho] + b, \text{ units act on both ends}",
)
def interval_bounds(rule: Rule = "centre and radius", against: Literal["upper", "lower"] = "upper"):
    r"""Certified robustness by interval bound propagation.

    A box with centre $c$ and radius $\rho \ge 0$ is mapped by an affine layer into the box with
    centre $W c + b$ and radius $|W| \rho$; an increasing unit acts on both ends. If the lower bound
    of the true logit exceeds the upper bounds of all others, no perturbation in the $\ell_\infty$
    ball changes the label. Bounds are exact for one affine layer and in general conservative.

    *Checked* for the part `interval_bounds`: against all corners for one layer with 6 and with 5
    inputs; for networks of three layers with rectifiers and with tanh against ends carried by the
    positive and the negative weights, and at corners and random points of boxes, none of which
    leaves the bounds (which is a theorem); by `pgd` for points that are
    certified, of which there are some; and for $\max(0, x) - \max(0, x)$, which is 0, and whose
    bounds have the width $2 \cdot 2 \rho$ for $x > \rho$.

    Knobs:
        rule: How affine layers map a box: by centre and radius; by $W l + b$ and $W u + b$, as
            though no weight were negative; or with half the radius.
        against: Which bounds of the other logits the lower bound of the true one must exceed.
    """
    for d, k in ((6, 3), (5, 4)):
        layer, x = nn.Sequential(nn.Linear(d, k)), torch.randn(2, d)
        low, high = ends(layer, x, 0.3, rule)
        images = layer(corners(x, 0.3)).detach()
        yield equals("lower ends of one layer", low, images.amin(1), tol=1e-12, d=d)
        yield equals("upper ends of one layer", high, images.amax(1), tol=1e-12, d=d)
    for unit in (nn.ReLU, nn.Tanh):
        model, x = mlp([4, 9, 7, 3], unit), torch.randn(3, 4)
        low, high = ends(model, x, 0.4, rule)
        points = torch.cat([corners(x, 0.4), x[:, None] + 0.8 * torch.rand(3, 3_000, 4) - 0.4], 1)
        images = model(points).detach()
        wanted = by_signs(model, x, 0.4)
        yield equals("lower ends of three layers", low, wanted[0], tol=1e-12, unit=unit.__name__)
        yield equals("upper ends of three layers", high, wanted[1], tol=1e-12, unit=unit.__name__)
        yield at_least("outputs in a box", images.amin(1), low, tol=0.0, unit=unit.__name__)
        yield at_most("outputs in a box", images.amax(1), high, tol=0.0, unit=unit.__name__)
    twins = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    for p, v in zip(twins.parameters(), ([[1.0], [1.0]], [0.0, 0.0], [[1.0, -1.0]], [0.0]),
                    strict=True):  # fmt: skip
        p.data = torch.tensor(v)
    rho = 0.25 + 0.5 * torch.rand(())
    low, high = ends(twins, rho.view(1, 1) + 1, float(rho), rule)
    yield equals("width for a difference of equals", high - low, 4 * rho.view(1, 1), tol=1e-12)
    yield from _certified(rule, against)


def _certified(rule: Rule, against: str):
    """No attack changes the label of what is certified."""
    for model, name in ((mlp([3, 4]), "one layer"), (mlp([3, 12, 4]), "two layers")):
        x, radius = 2 * torch.randn(1_000, 3), 0.05
        y = model(x).argmax(1)
        low, high = ends(model, x, radius, rule)
        others = (high if against == "upper" else low).scatter(1, y[:, None], -torch.inf)
        certified = low.gather(1, y[:, None])[:, 0] > others.amax(1)
        attack = pgd(model, x, y, norm="linf", radius=radius, box=None, steps=5)
        fooled = int((certified & attack.fooled).sum())
        yield at_most("certified points that are fooled", fooled, 0, of=name)
        yield at_least("certified points", int(certified.sum()), 1, of=name)


interval_bounds.foil("signs of weights ignored", rule="ends by ends")
interval_bounds.foil("half the radius", rule="half the radius")
interval_bounds.foil("a lower bound above other lower bounds", against="lower")
