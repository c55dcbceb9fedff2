r"""Average relative robustness: how long the smallest perturbations are, measured by the inputs.

$$\hat\rho_{\mathrm{adv}} = \frac1n \sum_{i=1}^n \frac{\|r(x_i)\|_p}{\|x_i\|_p},$$

where $r(x_i)$ is the shortest perturbation found that changes the decision. It is a mean of ratios
and not a ratio of means, and has no unit, so that networks on other data can be compared.

Each $r(x_i)$ is as short as the attack makes it: an upper bound of the minimal one. For a binary
linear classifier `deepfool` with overshoot $o$ gives $(1 + o)$ times the exact
$|w^\top x_i + b| / (\|w\|_2 \|x_i\|_2)$; the claim is `average_robustness`.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.randomness import given_back
from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier, as_labels, finite
from vademecum.robustness._rows import in_portions
from vademecum.robustness._threat import as_threat
from vademecum.robustness.attacks import deepfool

__all__ = ["AverageRobustness", "average_robustness"]


class AverageRobustness(NamedTuple):
    """How long the smallest perturbations are, relative to the inputs.

    Example:
        >>> AverageRobustness(0.15, 0.05, 0, torch.tensor([0.1, 0.2]))
        AverageRobustness(mean=0.15, standard_error=0.05, missed=0, ratio=tensor([0.1000, 0.2000]))
    """

    mean: float
    """The mean of the ratios, over the examples for which a perturbation was found."""
    standard_error: float
    """Its standard error; NaN for fewer than two such examples."""
    missed: int
    """How many examples there are for which none was found; those are left out of the mean, which
    is then too small."""
    ratio: Float[Tensor, " n"]
    """The ratio of each example, infinite where no perturbation was found."""

    __repr__ = one_line


def average_robustness(
    model: nn.Module,
    x: Float[Tensor, " n *shape"],
    y: Int[Tensor, " n"] | None = None,
    *,
    norm: Literal["l2", "linf", "l1"] = "l2",
    attack: Callable[..., Any] = deepfool,
    box: tuple[float, float] | None = (0.0, 1.0),
    preprocess: Callable[[Tensor], Tensor] | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> AverageRobustness:
    r"""The mean of $\|r\| / \|x\|$ over examples, with the perturbations that an attack finds.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module that gives logits.
        x: The examples, none of which is zero.
        y: Their classes, where those that the model gets wrong count as 0; by default the classes
            that the model predicts.
        norm: "l2" or "linf"; "l1" if the attack takes it.
        attack: An attack that looks for short perturbations, with an infinite radius; knobs of its
            own are fixed with `functools.partial`.
        box: The lowest and the highest value of an input, or None for no such limits.
        preprocess: What stands between `x` and the model, such as a normalisation.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If an example is zero, or the attack refuses its arguments.

    References:
        Moosavi-Dezfooli, Fawzi and Frossard, DeepFool: a simple and accurate method to fool deep
        neural networks, CVPR, 2016.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
        >>> found = average_robustness(model, torch.tensor([[4.0, 3.0]]), box=None)
        >>> round(found.mean, 4)  # 1.02 * 24 / (5 * 5)
        0.9792
    """
    choice("norm", norm, ("l2", "linf", "l1"))
    threat = as_threat(x, norm, 0.0, box)
    size = threat.distance(torch.zeros_like(x), x)
    if bool((size == 0).any()):
        raise ValueError(f"x must have no example that is zero, got one at {int(size.argmin())}")
    if y is None:
        with as_classifier(model, x, None, preprocess) as logits:
            y = in_portions(lambda z: finite(logits(z), "x").argmax(1), x, memory=memory)
    y = as_labels("y", y, x)
    with given_back(generator):
        found = attack(model, x, y, norm=norm, radius=math.inf, box=box, preprocess=preprocess,
                       memory=memory, generator=generator)  # fmt: skip
    ratio = (found.distance.double() / size).where(found.fooled, torch.inf)
    kept = ratio[ratio.isfinite()]
    mean = float(kept.mean()) if len(kept) else math.inf
    error = float(kept.std()) / math.sqrt(len(kept)) if len(kept) > 1 else math.nan
    return AverageRobustness(mean, error, len(ratio) - len(kept), ratio)
