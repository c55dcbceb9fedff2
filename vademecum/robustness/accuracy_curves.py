r"""Robust accuracy against radius: how many examples survive an attack, at each of several radii.

An attack finds for example $i$ perturbations of lengths $d_i$ at which the network errs ($d_i = 0$
where it errs without one, $d_i = \infty$ where none is found). With the shortest of them,

$$\hat a(\epsilon) = \frac1n \#\{i : d_i > \epsilon\},$$

which never rises with $\epsilon$: the radii are tried from the smallest to the largest, and what is
fooled at one is fooled at all larger ones, by the same point. The interval beside each value is
Clopper and Pearson's, for examples drawn independently, at each radius by itself.

It is the accuracy against *this* attack: an upper bound of robust accuracy, which a better attack
can only lower. `certified_accuracy` bounds it from below.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import floats, number
from vademecum.foundations import clopper_pearson
from vademecum.models import batches
from vademecum.randomness import given_back
from vademecum.results import one_line
from vademecum.robustness.attacks import auto_attack

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RobustAccuracy", "draw_robust_accuracy", "robust_accuracy"]


class RobustAccuracy(NamedTuple):
    """A curve of robust accuracy.

    Example:
        >>> RobustAccuracy(*torch.tensor([[0.1], [0.5], [0.4], [0.6]]), torch.zeros(100))
        RobustAccuracy(radii=tensor([0.1000]), accuracy=tensor([0.5000]), low=tensor([0.4000]),
        high=tensor([0.6000]), distance=float32[100])
    """

    radii: Float[Tensor, " k"]
    """The radii, in the order in which they were given."""
    accuracy: Float[Tensor, " k"]
    """The share of examples that survive the attack at each of them."""
    low: Float[Tensor, " k"]
    """The lower ends of the confidence intervals."""
    high: Float[Tensor, " k"]
    """The upper ends."""
    distance: Float[Tensor, " n"]
    """How long the shortest perturbation of each example is that was found: 0 where the model errs
    without, infinite where it does not err at any of the radii."""

    __repr__ = one_line


def robust_accuracy(
    model: nn.Module,
    x: Float[Tensor, " n *shape"] | DataLoader[Any],
    y: Int[Tensor, " n"] | None = None,
    *,
    radii: Sequence[float] | Float[Tensor, " k"],
    norm: Literal["linf", "l2", "l1"] = "linf",
    attack: Callable[..., Any] = auto_attack,
    box: tuple[float, float] | None = (0.0, 1.0),
    confidence: float = 0.95,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    quantum: float | None = None,
    memory: int | None = None,
    progress: bool = False,
    generator: torch.Generator | None = None,
) -> RobustAccuracy:
    """The accuracy under attack at several radii, a curve that never rises.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module that gives logits.
        x: The examples; or a `DataLoader` of examples and classes, batch by batch.
        y: Their classes; None where `x` is a loader.
        radii: The radii, at least 0; at 0 it is the plain accuracy.
        norm: "linf", "l2", "l1", or what else the attack takes.
        attack: An attack of this room, or any function with its arguments and result; knobs of its
            own are fixed with `functools.partial`.
        box: The lowest and the highest value of an input, or None for no such limits.
        confidence: What each interval promises, in (0, 1).
        preprocess: What stands between `x` and the model, such as a normalisation.
        quantum: The distance of neighbouring values of an input, 1/255 for pixels: perturbed
            examples lie on that grid. None for no grid.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If there is no radius, one is negative, or the attack refuses its arguments.

    References:
        Carlini et al., On evaluating adversarial robustness, arXiv:1902.06705, 2019.

    Example:
        >>> from vademecum.robustness import pgd
        >>> model = nn.Linear(1, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[-1.0], [1.0]]))
        >>> x, y = torch.tensor([[0.1], [0.2], [0.3], [-0.1]]), torch.tensor([1, 1, 1, 1])
        >>> found = robust_accuracy(model, x, y, radii=[0, 0.15, 0.25], attack=pgd, box=None)
        >>> found.accuracy.tolist()
        [0.75, 0.5, 0.25]
    """
    number("confidence", confidence, above=0, below=1)
    wanted = _radii(radii)
    knobs = {"norm": norm, "box": box, "preprocess": preprocess, "quantum": quantum}
    device = next((p.device for p in model.parameters()), None)
    distances = []
    with given_back(generator), closing(batches(x, y, device=device, progress=progress)) as each:
        for inputs, classes in each:
            distances.append(
                _distances(attack, model, inputs, classes, wanted, memory=memory,
                           generator=generator, **knobs)
            )  # fmt: skip
    if not distances:
        raise ValueError("x must hold batches, got an empty DataLoader")
    distance = torch.cat(distances)
    survived = (distance[:, None] > wanted.to(distance.device)).sum(0)
    low, high = clopper_pearson(survived, len(distance), confidence=confidence)
    share = survived.double() / len(distance)
    return RobustAccuracy(wanted.to(distance), share, low, high, distance)


def _radii(radii: Any) -> Tensor:
    given = radii if isinstance(radii, Tensor) else torch.tensor(list(radii), dtype=torch.float64)
    given = floats("radii", given, ndim=1).detach().double().cpu()
    if bool((given < 0).any()):
        raise ValueError(f"radii must be >= 0, got {float(given.min())}")
    return given


def _distances(
    attack: Callable[..., Any], model: nn.Module, x: Any, y: Any, radii: Tensor, **knobs: Any
) -> Tensor:
    """The shortest perturbation found for each example, attacked until it is fooled."""

    def reached(radius: float, x: Tensor, y: Tensor) -> Tensor:
        result = attack(model, x, y, radius=radius, **knobs)
        return result.distance.double().clamp(max=radius).where(result.fooled, torch.inf)

    smallest, *others = radii.unique().tolist()
    found = reached(smallest, x, y)
    for radius in others:
        rows = found.isinf().nonzero()[:, 0]
        if len(rows):
            found[rows] = reached(radius, x[rows], y[rows])
    return found


def draw_robust_accuracy(
    result: RobustAccuracy, axes: Any = None, *, label: str | None = None
) -> "Figure":
    """Draw robust accuracy against radius, with the intervals as a band.

    Args:
        result: What `robust_accuracy` gave.
        axes: Where to draw, in a figure of its own by default.
        label: What to call the curve, where there are several.

    Example:
        >>> result = RobustAccuracy(*torch.tensor([[0.1], [0.5], [0.4], [0.6]]), torch.zeros(9))
        >>> len(draw_robust_accuracy(result).axes)
        1
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.2, 3.6), layout="constrained").add_subplot()
    order = result.radii.argsort()
    radii, accuracy, low, high = (column[order].cpu() for column in result[:4])
    (line,) = axes.plot(radii, accuracy, "o-", ms=4, label=label)
    axes.fill_between(radii, low, high, color=line.get_color(), alpha=0.2, lw=0)
    axes.set(xlabel="radius", ylabel="accuracy under attack", ylim=(-0.02, 1.02))
    if label is not None:
        axes.legend()
    return axes.figure
