r"""How accurate a network is for certain: certified at most robust at most attacked at most clean.

An example is *certified* if the margin of its class over every other one is above 0 for all inputs
of the region, by `interval_bounds` or else by `crown_bounds`. For float arithmetic that holds for
the predictions of the run itself: the logits that it computes are compared without rounding. The
other examples are attacked. What share a perfect adversary would leave lies between the two
numbers,

$$\text{certified} \le \text{robust} \le \text{attacked} \le \text{clean},$$

and is known where they meet. Certified examples need no attack, so the order holds by construction;
that no attack ever fools a certified example is a test.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.randomness import whence
from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier, as_labels
from vademecum.robustness._threat import as_threat
from vademecum.robustness.attacks import auto_attack
from vademecum.robustness.bounds import Bounds, crown_bounds, interval_bounds

__all__ = ["CertifiedAccuracy", "certified_accuracy"]


class CertifiedAccuracy(NamedTuple):
    """Three accuracies, and what became of each example.

    Example:
        >>> CertifiedAccuracy(0.5, 0.75, 1.0, torch.ones(9), torch.ones(9) < 0, "").attacked
        0.75
    """

    certified: float
    """The share of examples that are right for all inputs of their region, proven."""
    attacked: float
    """The share that is right and was not fooled."""
    clean: float
    """The share that is right."""
    margin: Float[Tensor, " n"]
    """A lower bound on the least margin of the label in the region; above 0 it is a certificate."""
    fooled: Bool[Tensor, " n"]
    """Which examples the attack fooled, or were wrong without one."""
    assumes: str
    """What certificates take for granted; nothing where it is empty."""

    __repr__ = one_line


def certified_accuracy(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Shaped[Tensor, " n"],
    *,
    norm: str,
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    arithmetic: str = "float",
    max_iter: int = 0,
    attack: Callable[..., Any] = auto_attack,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> CertifiedAccuracy:
    r"""Accuracy in a region around each example, from below by bounds and from above by an attack.

    Args:
        model: As `interval_bounds` takes it, giving logits of two or more classes.
        x: The inputs.
        y: Their labels.
        norm: The norm of the balls: "linf", "l2" or "l1".
        radius: Their radius, or one for each example.
        box: The least and the largest value of an entry, or None.
        arithmetic: "float" for certificates that hold for the run in the model's dtype; "real" for
            the exact function of the stored weights.
        max_iter: How many steps to make on slopes, as for `crown_bounds`.
        attack: An attack of this room, or any function with its arguments and result.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If a step of the model is not known, which is named; if an argument makes no
            sense.

    Example:
        >>> from vademecum.robustness import pgd
        >>> model = nn.Linear(1, 2, bias=False)
        >>> model.weight.data = torch.tensor([[-1.0], [1.0]])
        >>> x, y = torch.tensor([[0.1], [0.2], [0.3], [-0.1]]), torch.tensor([1, 1, 1, 1])
        >>> found = certified_accuracy(model, x, y, norm="linf", radius=0.15, box=None, attack=pgd)
        >>> found.certified, found.attacked, found.clean
        (0.5, 0.5, 0.75)
    """
    whole("max_iter", max_iter, low=0)
    whence(generator, None)
    as_threat(x, norm, radius, box)
    with as_classifier(model, x, y) as logits:
        z = logits(x)
        logits.insist_on_company(x, z)
        y = as_labels("y", y, x, z.shape[1])
    right = z.argmax(1) == y
    knobs = {"norm": norm, "box": box, "arithmetic": arithmetic, "memory": memory}
    margin, assumes = _margin(model, x, y, z, radius, knobs, max_iter)
    certified, fooled = margin > 0, ~right
    left = (right & ~certified).nonzero()[:, 0]
    if len(left):
        result = attack(
            model, x[left], y[left], norm=norm, radius=_of(radius, left, x), box=box,
            memory=memory, generator=generator,
        )  # fmt: skip
        fooled[left] = result.fooled
    sure, spared, clean = (float(each.double().mean()) for each in (certified, ~fooled, right))
    return CertifiedAccuracy(sure, spared, clean, margin, fooled, assumes)


def _margin(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    radius: float | Tensor,
    knobs: dict[str, Any],
    max_iter: int,
) -> tuple[Tensor, str]:
    """Lower bounds on margins, by intervals and, where these do not suffice, linear functions."""
    right, assumes = z.argmax(1) == y, ""
    margin = torch.full((len(x),), -torch.inf, dtype=torch.float64, device=x.device)
    for bounds in (interval_bounds, partial(crown_bounds, max_iter=max_iter)):
        left = (right & ~(margin > 0)).nonzero()[:, 0]
        if not len(left):
            break
        spec, given = _margins(y[left], z), _of(radius, left, x)
        found: Bounds = bounds(model, x[left], radius=given, spec=spec, **knobs)
        margin[left] = torch.maximum(margin[left], found.lower.double().amin(1))
        assumes = found.assumes
    return margin, assumes


def _of(radius: float | Tensor, index: Tensor, x: Tensor) -> float | Tensor:
    """The radii of some examples."""
    return radius.expand(len(x))[index] if isinstance(radius, Tensor) else radius


def _margins(y: Tensor, z: Tensor) -> Tensor:
    """The margins of labels over all other classes as functions `(n, k - 1, k)` of the logits."""
    k = z.shape[1]
    eye = torch.eye(k, dtype=z.dtype, device=z.device)
    rows = eye[y][:, None] - eye
    return rows[torch.arange(k, device=z.device) != y[:, None]].view(len(y), k - 1, k)
