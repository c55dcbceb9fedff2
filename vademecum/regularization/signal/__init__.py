"""Signals in networks at initialisation: measured and predicted, drawn, and made to last."""

from vademecum.regularization.signal.init_plans import InitPlan, InitStep, suggest_init
from vademecum.regularization.signal.propagation import signal_propagation
from vademecum.regularization.signal.rows import (
    SignalMoments,
    SignalPrediction,
    SignalPropagation,
    SignalRow,
)
from vademecum.regularization.signal.signal_drawing import draw_signal

__all__ = [
    "InitPlan", "InitStep", "suggest_init",
    "SignalMoments", "SignalPrediction", "SignalPropagation", "SignalRow", "signal_propagation",
    "draw_signal",
]  # fmt: skip
