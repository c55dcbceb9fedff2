"""Networks that read sequences: recurrent and gated cells, linear recurrences, encoder and decoder.

A *recurrent* network carries a state through time and applies one map at every step. Whether it
remembers is decided by products of Jacobians, which fade or explode; *gates* and *linear*
recurrences with eigenvalues near the unit circle are the two ways out, and the second can be
computed for all steps at once, by a *scan*.
"""

from vademecum.recurrence.elman import ElmanRNN, RNNTrace
from vademecum.recurrence.gated import (
    CourseGRU,
    CourseLSTM,
    GateTrace,
    GRUTrace,
    LSTMState,
    LSTMTrace,
    gates,
)
from vademecum.recurrence.linear_recurrences import (
    DiagonalForm,
    LinearRecurrence,
    diagonalize_recurrence,
)
from vademecum.recurrence.linear_scan import scan
from vademecum.recurrence.linear_units import LRU
from vademecum.recurrence.long_lags import SequenceTask, adding_task, copying_task, latch_task
from vademecum.recurrence.parameter_counts import RecurrentCount, count_recurrent_params
from vademecum.recurrence.recurrent_outputs import RecurrentOutput
from vademecum.recurrence.sequences import (
    Beams,
    CaptionModel,
    Decoding,
    FeedbackRNN,
    ProfessorForcing,
    ProfessorLosses,
    Seq2Seq,
    SequenceRun,
    beam_search,
    scheduled_sampling,
    sequence_log_prob,
)
from vademecum.recurrence.through_time import (
    BPTT,
    JacobianProfile,
    bptt,
    draw_jacobian_profile,
    jacobian_profile,
)
from vademecum.recurrence.time_scales import memory_length
from vademecum.recurrence.unit_circle import LRUInit, lru_init

__all__ = [
    # linear recurrences
    "scan", "RecurrentOutput", "LRU", "LRUInit", "lru_init", "DiagonalForm", "LinearRecurrence",
    "diagonalize_recurrence", "memory_length",
    # simple and gated networks
    "ElmanRNN", "CourseGRU", "CourseLSTM", "LSTMState",
    # what goes on inside
    "GRUTrace", "GateTrace", "LSTMTrace", "RNNTrace", "gates", "RecurrentCount",
    "count_recurrent_params",
    # tasks with long lags
    "SequenceTask", "adding_task", "copying_task", "latch_task",
    # gradients through time
    "BPTT", "JacobianProfile", "bptt", "draw_jacobian_profile", "jacobian_profile",
    # models of sequences
    "FeedbackRNN", "Seq2Seq", "CaptionModel", "SequenceRun", "Decoding", "sequence_log_prob",
    "Beams", "beam_search", "scheduled_sampling", "ProfessorForcing", "ProfessorLosses",
]  # fmt: skip
