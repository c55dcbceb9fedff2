r"""Risk, risk on the training examples, and the gap between them.

With a loss in $[0, 1]$ the gap is $\mathcal R(f) - \hat{\mathcal R}_n(f)$: population minus
training risk. The first is never known, only bounded: on $m$ fresh examples with mean loss
$\hat r$, Chernoff's bound gives, with probability at least $1 - \delta$,

$$\mathrm{kl}^{-1}_-\big(\hat r, \tfrac{\ln(2/\delta)}m\big) \le \mathcal R(f) \le
\mathrm{kl}^{-1}_+\big(\hat r, \tfrac{\ln(2/\delta)}m\big).$$

On the training examples no such bound holds: what was selected on them looks better than it is. The
claim is `generalisation_gap`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.gradients import functional
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["GeneralisationGap", "generalisation_gap"]

ExampleLoss = Callable[[Any, Tensor], Tensor]


class GeneralisationGap(NamedTuple):
    """How much worse a model is on fresh examples.

    Example:
        >>> x, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1])
        >>> sign = nn.Linear(1, 2, bias=False)
        >>> _ = sign.weight.data.copy_(torch.tensor([[-1.0], [1.0]]))
        >>> found = generalisation_gap(sign, x[:1], y[:1], fresh=(x, y))
        >>> found.training, found.fresh, found.gap
        (0.0, 0.5, 0.5)
    """

    training: float
    """The mean loss on the training examples."""
    fresh: float
    """The mean loss on the fresh ones, an unbiased estimate of the risk."""
    gap: float
    """The second minus the first."""
    low: float
    """With the confidence stated, the population risk minus the first is at least this."""
    high: float
    """And at most this."""

    __repr__ = one_line


def generalisation_gap(
    model: nn.Module,
    x: Any,
    y: Tensor,
    *,
    fresh: tuple[Any, Tensor],
    loss: ExampleLoss | None = None,
    delta: float = 0.05,
    output: Output = None,
) -> GeneralisationGap:
    r"""The gap between the risk and the risk on the training examples, with an interval.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module.
        x: The training inputs.
        y: Their targets.
        fresh: Inputs and targets that nothing about the model depends on, independent and of the
            same law.
        loss: A function of outputs and targets with a number in [0, 1] for each example; by
            default the 0-1 loss of classes, the largest output.
        delta: The probability with which the interval may fail, in (0, 1).
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If losses are outside [0, 1], or not one for each example.

    Example:
        >>> x, y = torch.randn(8, 3), torch.zeros(8).long()
        >>> generalisation_gap(nn.Linear(3, 2), x, y, fresh=(x, y)).gap
        0.0
    """
    number("delta", delta, above=0, below=1)
    f = functional(model, output=output)
    with torch.no_grad():
        training = _losses("y", f(f.theta, x), y, loss)
        test = _losses("fresh", f(f.theta, fresh[0]), fresh[1], loss)
    risk, seen, c = test.mean().item(), training.mean().item(), math.log(2 / delta) / len(test)
    risk = min(max(risk, 0.0), 1.0)
    low, high = (kl_inverse(risk, c, side=side) for side in ("lower", "upper"))
    return GeneralisationGap(seen, risk, risk - seen, low - seen, high - seen)


def _losses(name: str, z: Any, y: Tensor, loss: ExampleLoss | None) -> Tensor:
    """The losses of the examples in double precision."""
    if loss is None:
        if not isinstance(z, Tensor) or z.ndim != 2 or y.shape != z.shape[:1]:
            given = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(
                f"{name} must hold a class for each row of the outputs, got shape"
                f" {tuple(y.shape)} for {given}"
            )
        if len(y) == 0 or bool(z.isnan().any()):
            what = "no example" if len(y) == 0 else "nan"
            raise ValueError(f"{name} must have examples with outputs, got {what}")
        return (z.argmax(1) != y).double()
    found = loss(z, y)
    if found.shape != y.shape[:1] or len(found) == 0:
        raise ValueError(
            f"loss must give a number for each of {len(y)} examples, got shape {tuple(found.shape)}"
        )
    good = (found >= 0) & (found <= 1)
    if not good.all():
        raise ValueError(f"losses must be in [0, 1], got {found[~good][0].item():g}")
    return found.double()
