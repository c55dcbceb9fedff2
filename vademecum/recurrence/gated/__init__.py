"""Gated cells as the course writes them, and the gates of anybody's."""

from vademecum.recurrence.gated.gate_traces import GateTrace, gates
from vademecum.recurrence.gated.gru_cell import CourseGRU, GRUTrace
from vademecum.recurrence.gated.lstm_cell import CourseLSTM, LSTMState, LSTMTrace

__all__ = [
    "CourseGRU", "CourseLSTM", "GRUTrace", "GateTrace", "LSTMState", "LSTMTrace", "gates",
]  # fmt: skip
