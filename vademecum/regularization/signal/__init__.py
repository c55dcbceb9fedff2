"""Signals in networks at initialisation: measured and predicted, drawn, and made to last."""

from vademecum.regularization.signal.propagation import signal_propagation
from vademecum.regularization.signal.rows import (
    SignalMoments,
    SignalPrediction,
    SignalPropagation,
    SignalRow,
)

__all__ = [
    "SignalMoments", "SignalPrediction", "SignalPropagation", "SignalRow", "signal_propagation",
]  # fmt: skip
