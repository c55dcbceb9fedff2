r"""How far a network's decision is from each example, by bisection over the radius of any attack.

The minimal radius of an example $x$ of class $y$ is

$$\rho(x) = \inf\{\|r\|_p : \arg\max_i f_i(x + r) \ne y,\ x + r \in \text{box}\}.$$

An attack that succeeds within radius $\epsilon$ returns a point at a distance $d \le \epsilon$, so
that $\rho(x) \le d$; one that fails shows nothing, and only says where to look next. The search
begins at a 64th of the largest radius and goes up or down by factors of 4, or, where `deepfool`
has been there before, below what that found by factors that grow from 1.15 to 4, until the attack
has succeeded and failed; then it takes the geometric mean of the largest radius at which it failed,
$a$, and the shortest distance found, $d$, until $d \le (1 + \tau)\, a$. All examples are searched
at once, each with radii of its own.

What is returned are upper bounds of $\rho$, each with the point that shows it. How close they are
is the attack's business: for a linear model of two classes `fgsm` finds them up to the tolerance.
The claim is `minimal_vs_constrained`.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vademecum.arguments import choice, floats, number, whole
from vademecum.randomness import given_back
from vademecum.results import one_line
from vademecum.robustness._logits import as_labels
from vademecum.robustness._threat import as_threat
from vademecum.robustness.attacks import Attack, deepfool, pgd

__all__ = ["MinimalRadius", "minimal_radius"]

_GROWTH = 4.0  # of the radius while the attack fails
_NEAR = 1.15  # what `deepfool` finds over the result: of 64 images in l2 and linf 95 % are below
_FIRST = _GROWTH**-3  # the first radius, as a share of the largest
_CLIMB = partial(pgd, steps=20, random_start=False)


class MinimalRadius(NamedTuple):
    """The shortest perturbations that an attack found, one for each example.

    Example:
        >>> MinimalRadius(torch.ones(2), torch.zeros(2), torch.zeros(2, 3), torch.tensor(True), 7)
        MinimalRadius(radius=tensor([1., 1.]), failed=tensor([0., 0.]), x=tensor([[0., 0., 0.],
        [0., 0., 0.]]), converged=tensor(True), calls=7)
    """

    radius: Float[Tensor, " n"]
    """Its length, in double precision, an upper bound of the minimal radius; 0 where the model is
    wrong without it, infinite where none was found."""
    failed: Float[Tensor, " n"]
    """The largest radius below it at which the attack failed, which bounds nothing."""
    x: Float[Tensor, " n *shape"]
    """The perturbed examples; where none was found, the examples."""
    converged: Bool[Tensor, " n"]
    """Whether the last two agree up to the tolerance, or nothing was left to search."""
    calls: int
    """How often the attack was called."""

    __repr__ = one_line


def minimal_radius(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Int[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
    attack: Callable[..., Any] | None = None,
    largest: float | None = None,
    box: tuple[float, float] | None = (0.0, 1.0),
    max_iter: int = 40,
    tol: float = 0.01,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> MinimalRadius:
    r"""The smallest radius at which an attack fools the model, for each example.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module that gives logits.
        x: The examples.
        y: Their classes.
        norm: "linf", "l2" or "l1".
        attack: An attack of this room, or any function with its arguments and result; knobs of its
            own are fixed with `functools.partial`. By default `pgd` with 20 steps from the example
            itself on the margin and, where that fails, on the cross-entropy: neither is shorter for
            every example. In l2 and linf it begins with what `deepfool` finds, so that no result is
            longer than that.
        largest: The largest radius to try; by default the diameter of the box.
        box: The lowest and the highest value of an input, or None for no such limits; then
            `largest` must be given.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a call of
            the attack.
        tol: How far the result may exceed a radius at which the attack failed, relative to it.
        preprocess: What stands between `x` and the model, such as a normalisation.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If the attack refuses its arguments, or there is neither a box nor `largest`.

    References:
        Moosavi-Dezfooli, Fawzi and Frossard, DeepFool: a simple and accurate method to fool deep
        neural networks, CVPR, 2016.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
        >>> x, y = torch.tensor([[0.5, 0.5], [0.2, 0.1]]), torch.tensor([0, 0])
        >>> found = minimal_radius(model, x, y, norm="linf", box=None, largest=10.0, tol=1e-3)
        >>> found.radius.round(decimals=3)  # 3.5 / 7 and 1 / 7
        tensor([0.5000, 0.1430], dtype=torch.float64)
    """
    choice("norm", norm, ("linf", "l2", "l1"))
    number("tol", tol, above=0)
    whole("max_iter", max_iter, low=1)
    y = as_labels("y", y, floats("x", x))
    inside = as_threat(x, norm, 0.0, box).box
    reach = _diameter(norm, x[0].numel(), inside) if largest is None else largest
    search, seek = _Search(x, number("largest", reach, above=0), tol), attack or _either
    knobs = {"norm": norm, "box": box, "preprocess": preprocess, "memory": memory}
    with given_back(generator):
        if attack is None and norm != "l1":
            rows = torch.arange(len(x), device=x.device)
            search.keep(rows, deepfool(model, x, y, radius=reach, generator=generator, **knobs))
            search.shrink.fill_(_NEAR)
        while len(rows := search.rows()) and search.calls < max_iter:
            radius = search.next_radii(rows)
            found = seek(model, x[rows], y[rows], radius=radius, generator=generator, **knobs)
            search.learn(rows, radius, found)
    return search.result()


def _either(model: nn.Module, x: Tensor, y: Tensor, *, radius: Tensor, **knobs: Any) -> Attack:
    """Climb the margin, which aims at the likeliest class, and for those left the cross-entropy."""
    found = _CLIMB(model, x, y, radius=radius, loss="margin", **knobs)
    left = (~found.fooled).nonzero()[:, 0]
    if len(left):
        other = _CLIMB(model, x[left], y[left], radius=radius[left], loss="ce", **knobs)
        won = left[other.fooled]
        for mine, its in zip(found[:3], other[:3], strict=True):
            mine[won] = its[other.fooled]
        found.steps[left] += other.steps
        found.queries[left] += other.queries
    return found


def _diameter(norm: str, d: int, box: tuple[float, float] | None) -> float:
    """The largest distance in a box."""
    side = math.inf if box is None else box[1] - box[0]
    if math.isinf(side):
        raise ValueError("largest must be given where there is no box, got None")
    return {"linf": side, "l2": side * math.sqrt(d), "l1": side * d}[norm]


class _Search:
    """What is known of each example's radius, all in double precision."""

    def __init__(self, x: Tensor, largest: float, tol: float) -> None:
        zero = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        self.failed, self.found = zero, torch.full_like(zero, math.inf)
        self.shrink = torch.full_like(zero, _GROWTH)  # of the radius while the attack succeeds
        self.x, self.tol, self.calls = x.clone(), tol, 0
        self.largest = float(torch.tensor(largest, dtype=x.dtype))  # as the attack will have it

    def open(self) -> Tensor:
        """Which examples there is still something to try for."""
        wide = self.found > (1 + self.tol) * self.failed  # also while nothing was found
        tiny = self.found <= self.largest * torch.finfo(self.x.dtype).eps
        return wide & ~tiny & (self.failed < self.largest)

    def rows(self) -> Tensor:
        return self.open().nonzero()[:, 0]

    def next_radii(self, rows: Tensor) -> Tensor:
        """The radii to try next, in the dtype of the examples."""
        low, high = self.failed[rows], self.found[rows]
        growing = (_GROWTH * low).clamp(self.largest * _FIRST, self.largest)
        between = torch.where(low > 0, (low * high).sqrt(), high / self.shrink[rows])
        return torch.where(high.isinf(), growing, between).to(self.x.dtype)

    def learn(self, rows: Tensor, radius: Tensor, found: Any) -> None:
        """Take what the attack found, or that it found nothing."""
        self.calls += 1
        self.keep(rows, found)
        # an attack may miss at a large radius what it found at a small one
        tried = radius.to(self.failed).maximum(self.failed[rows])
        self.failed[rows] = torch.where(found.fooled, self.failed[rows], tried)
        shrink = self.shrink[rows]
        self.shrink[rows] = torch.where(found.fooled, shrink.square().clamp(max=_GROWTH), shrink)

    def keep(self, rows: Tensor, found: Any) -> None:
        """Keep what is shorter."""
        distance = found.distance.to(self.found)
        better = found.fooled & (distance < self.found[rows])
        self.found[rows] = torch.where(better, distance, self.found[rows])
        shape = (-1, *[1] * (self.x.ndim - 1))
        self.x[rows] = torch.where(better.view(shape), found.x, self.x[rows])

    def result(self) -> MinimalRadius:
        left = self.open()
        if bool(left.any()):
            message = f"minimal_radius did not converge in {self.calls} iterations for"
            message = f"{message} {int(left.sum())} of {len(left)} examples"
            warnings.warn(f"{message}, for a tolerance of {self.tol:.3g}", ConvergenceWarning,
                          stacklevel=3)  # fmt: skip
        return MinimalRadius(self.found, self.failed, self.x, ~left, self.calls)
