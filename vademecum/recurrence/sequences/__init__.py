"""Models of sequences of symbols: likelihood, search, and ways to train them."""

from vademecum.recurrence.sequences.beams import Beams, beam_search
from vademecum.recurrence.sequences.captions import CaptionModel
from vademecum.recurrence.sequences.coins import scheduled_sampling
from vademecum.recurrence.sequences.encoder_decoder import Seq2Seq
from vademecum.recurrence.sequences.feedback import FeedbackRNN
from vademecum.recurrence.sequences.likelihood import sequence_log_prob
from vademecum.recurrence.sequences.professor import ProfessorForcing, ProfessorLosses
from vademecum.recurrence.sequences.runs import Decoding, SequenceRun

__all__ = [
    "Beams", "CaptionModel", "Decoding", "FeedbackRNN", "ProfessorForcing", "ProfessorLosses",
    "Seq2Seq", "SequenceRun", "beam_search", "scheduled_sampling", "sequence_log_prob",
]  # fmt: skip
