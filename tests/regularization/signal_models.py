"""Functions as modules, and the last row of what theory says of them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vademecum.regularization import SignalMoments, SignalPrediction, signal_propagation


class Code(nn.Module):
    """A function as a module that calls another, so that its sums and activations have rows."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def last(model: nn.Module, x: Any) -> tuple[SignalMoments, SignalPrediction]:
    """The last row, measured and predicted."""
    row = signal_propagation(model, x).rows[-1]
    assert row.predicted is not None
    return row.forward, row.predicted
