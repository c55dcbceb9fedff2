"""Attacks and the alignment of input gradients, on classifiers of arrays of floats.

What an attack returns is measured in double precision and shown to the oracle's twin of the model:
the distance must be what is said and at most the radius, and what fooled the model must fool the
twin. The cosines come from the oracle's Jacobian.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum import robustness

__all__ = ["ATTACKED"]

RADIUS = 0.5
FEW: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"steps": 5},
    "apgd": {"steps": 5},
    "deepfool": {"steps": 5},
    "square": {"steps": 20},
    "auto_attack": {"steps": 3, "square_steps": 5},
}


def _attack(s: Subject, o: Oracle, name: str) -> Iterator[str]:
    attack = getattr(robustness, name)
    knobs = {"norm": "l2", "radius": RADIUS, "box": None, "generator": _seeded(), **FEW[name]}
    found = attack(s.model, s.x, s.y, **knobs)
    length = (found.x.double() - s.x.double()).flatten(1).norm(dim=1)
    yield _same(o)("distance", found.distance.cpu(), length.cpu())
    if bool((length > RADIUS).any()):
        yield f"the distance is {float(length.max()):.17g}, above {RADIUS}"
    missed = found.fooled & (o.output_of(found.x).argmax(1) == s.y)
    if bool(missed.any()):
        yield f"the twin is not fooled by {int(missed.sum())} of {int(found.fooled.sum())} examples"


def _alignment(s: Subject, o: Oracle) -> Iterator[str]:
    found = robustness.gradient_alignment(s.model, s.x, s.y)
    x, y, n = s.x.detach().double().flatten(1), s.y, len(s.y)
    classes = y.unique()
    z = o.output.double()
    own = torch.arange(n)
    rows = o.in_x.double().view(n, z.shape[1], n, -1)[own, :, own]
    others = z[:, classes].masked_fill(classes == y[:, None], -torch.inf)
    rival = classes[others.argmax(1)]
    g = rows[own, y] - rows[own, rival]
    means = torch.stack([_mean(x, y == k) for k in range(z.shape[1])])
    wanted = cosine_similarity(g, means[y] - means[rival], dim=1, eps=1e-300)
    if bool((g.norm(dim=1) > 1e-6).all()):  # or there is no direction to compare
        yield _same(o)("cosines with the classes", found.with_classes.double(), wanted)


def _mean(x: Tensor, chosen: Tensor) -> Tensor:
    return x[chosen].mean(0) if bool(chosen.any()) else torch.zeros_like(x[0])


ATTACKED: dict[str, Check] = {
    **{name: partial(_attack, name=name) for name in FEW},
    "gradient_alignment": _alignment,
}
"""What asks each attack and the alignment, by their names."""
