"""Instruments that look at a run every so many steps, and leave it as it is.

| name | what it measures |
|---|---|
| `sharpness` | the largest curvature of the loss on some examples (`optimization.sharpness`) |
| `ntk_drift` | how far the tangent kernel on a few inputs has moved (`kernels.ntk_drift`) |

They see the same examples each time, the first of epoch 0, in evaluation mode and with random
numbers of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.models import map_tensors
from vademecum.randomness import own_randomness
from vademecum.train._batches import Source
from vademecum.train._losses import share
from vademecum.train._order import Order, Part, seed_for
from vademecum.train._training import Training

__all__ = ["INSTRUMENTS", "Tracking"]

_EXAMPLES, _KERNEL_EXAMPLES = 256, 32
"""Examples for curvature and for kernels, whose cost goes with their square."""


class Tracking:
    """Measures every so many steps, and before the first one.

    Args:
        training: The run as it starts.
        names: Which instruments.
        every: How many steps there are from one look to the next; an epoch by default.
        source: Where examples come from.
        order: Their order.
    """

    def __init__(
        self,
        training: Training,
        names: Sequence[str],
        every: int | None,
        source: Source,
        order: Order,
    ):
        self._names = [choice("track", name, tuple(INSTRUMENTS)) for name in names]
        self._every = every if every is None else whole("track_every", every, low=1)
        (self._part,) = Order(order.n, _EXAMPLES, order.seed).parts(0)
        (self._batch,) = source.batches([self._part])
        if not training.step:
            self(training)

    def __call__(self, training: Training) -> dict[str, float]:
        """Measure if it is time."""
        if training.step % (self._every or training.per_epoch) and not training.finished:
            return {}
        found = {}
        for name in self._names:
            with own_randomness(seed_for(training.seed, "track")):
                found[f"track.{name}"] = INSTRUMENTS[name](training, self._batch, self._part)
        return found


class _Paid(nn.Module):
    """An objective as a module that gives its loss."""

    def __init__(self, objective: nn.Module, part: Part, like: Any):
        super().__init__()
        self.objective, self._part, self._like = objective, part, like

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        batch: Any = kwargs or (args if type(self._like) is tuple else args[0])
        losses: Any = getattr(self.objective, "losses")(batch)  # noqa: B009
        ((player, loss),) = losses.items()
        return share(player, loss, self._part)[0]


def _sharpness(training: Training, batch: Any, part: Part) -> float:
    from vademecum.optimization import sharpness

    if len(training.optimizers) > 1:
        raise ValueError("track must not have sharpness where there are several players")
    paid = _Paid(training.objective, part, batch)
    return sharpness(paid, batch, loss=lambda z, _: z, frozen=False).value


def _ntk_drift(training: Training, batch: Any, part: Part) -> float:
    from vademecum.kernels import empirical_ntk, ntk_drift

    model: Any = getattr(training.objective, "model", None)
    if not isinstance(model, nn.Module) or not isinstance(batch, tuple | list):
        raise ValueError(
            "track can have ntk_drift for objectives with a model and batches (inputs, targets),"
            f" such as Supervised, got {type(training.objective).__name__}"
        )
    x = map_tensors(batch[0], lambda t: t[:_KERNEL_EXAMPLES])
    kernel = empirical_ntk(model, x, outputs="trace")
    start = training.kept.setdefault("ntk", kernel)
    return ntk_drift(kernel, None, start.to(kernel.device)).relative


INSTRUMENTS: dict[str, Callable[[Training, Any, Part], float]] = {
    "sharpness": _sharpness,
    "ntk_drift": _ntk_drift,
}
"""What can be tracked, by name."""
