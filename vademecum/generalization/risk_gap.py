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
from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import number
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.gradients import functional
from vademecum.gradients.network_function import Functional
from vademecum.models import Output, batches
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
    y: Tensor | None = None,
    *,
    fresh: tuple[Any, Tensor] | DataLoader[Any],
    loss: ExampleLoss | None = None,
    delta: float = 0.05,
    output: Output = None,
    progress: bool = False,
) -> GeneralisationGap:
    r"""The gap between the risk and the risk on the training examples, with an interval.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module.
        x: The training inputs; or a `DataLoader` of inputs and targets, batch by batch.
        y: Their targets; None where `x` is a loader.
        fresh: Inputs and targets that nothing about the model depends on, independent and of the
            same law; or a `DataLoader` of them.
        loss: A function of outputs and targets with a number in [0, 1] for each example; by
            default the 0-1 loss of classes, the largest output.
        delta: The probability with which the interval may fail, in (0, 1).
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If losses are outside [0, 1], or not one for each example.

    Example:
        >>> x, y = torch.randn(8, 3), torch.zeros(8).long()
        >>> generalisation_gap(nn.Linear(3, 2), x, y, fresh=(x, y)).gap
        0.0
    """
    number("delta", delta, above=0, below=1)
    f = functional(model, output=output)
    training = _all_losses("y", f, x, y, loss, progress)
    pair = (fresh, None) if isinstance(fresh, DataLoader) else fresh
    test = _all_losses("fresh", f, *pair, loss, progress)
    risk, seen, c = test.mean().item(), training.mean().item(), math.log(2 / delta) / len(test)
    risk = min(max(risk, 0.0), 1.0)
    low, high = (kl_inverse(risk, c, side=side) for side in ("lower", "upper"))
    return GeneralisationGap(seen, risk, risk - seen, low - seen, high - seen)


def _all_losses(
    name: str, f: Functional, x: Any, y: Any, loss: ExampleLoss | None, progress: bool
) -> Tensor:
    """The losses of all examples, batch by batch."""
    with closing(batches(x, y, device=f.device, progress=progress)) as each, torch.no_grad():
        found = [_losses(name, f(f.theta, inputs), given, loss) for inputs, given in each]
    if not found:
        what = "fresh" if name == "fresh" else "x"
        raise ValueError(f"{what} must hold batches, got an empty DataLoader")
    return torch.cat(found)


def _losses(name: str, z: Any, y: Any, loss: ExampleLoss | None) -> Tensor:
    """The losses of the examples in double precision."""
    if not isinstance(y, Tensor):
        raise ValueError(f"{name} must hold a tensor of targets, got {type(y).__name__}")
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
