"""All strings, and small models of sequences with an input for each."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.recurrence import CaptionModel, FeedbackRNN, Seq2Seq


def all_strings(k: int, T: int) -> Tensor:
    """All strings of T symbols out of k, a row each, in the order of numbers to the base k."""
    return torch.tensor(list(itertools.product(range(k), repeat=T)))


def distinct_strings(k: int, T: int, end: int | None) -> Tensor:
    """All strings that go on with the end symbol once it has come."""
    y = all_strings(k, T)
    if end is None:
        return y
    stays = [not ((row[:-1] == end) & (row[1:] != end)).any() for row in y]
    return y[torch.tensor(stays)]


def seq2seq(**knobs: Any) -> Seq2Seq:
    return Seq2Seq(7, 3, **{"dimension": 4, "width": 5, **knobs})


MODELS: dict[str, tuple[Any, Any]] = {
    "feedback": (lambda: FeedbackRNN(2, 5, 3), lambda n: torch.randn(n, 4, 2)),
    "feedback, GRU, end": (
        lambda: FeedbackRNN(2, 5, 3, cell="gru", layers=2, end=1),
        lambda n: torch.randn(n, 4, 2),
    ),
    "feedback, LSTM": (
        lambda: FeedbackRNN(2, 5, 3, cell="lstm", dimension=2),
        lambda n: torch.randn(n, 4, 2),
    ),
    "no inputs": (lambda: FeedbackRNN(0, 5, 3, end=0), lambda n: torch.zeros(n, 4, 0)),
    "no feedback": (
        lambda: FeedbackRNN(2, 5, 3, feedback=False),
        lambda n: torch.randn(n, 4, 2),
    ),
    "GRU": (seq2seq, lambda n: torch.randint(7, (n, 6))),
    "LSTM, 2 layers": (
        lambda: seq2seq(cell="lstm", layers=2, end=2),
        lambda n: torch.randint(7, (n, 6)),
    ),
    "dot": (lambda: seq2seq(attention="dot", cell="lstm"), lambda n: torch.randint(7, (n, 6))),
    "additive": (
        lambda: seq2seq(attention="additive", layers=2),
        lambda n: torch.randint(7, (n, 6)),
    ),
    "captions": (
        lambda: CaptionModel(3, channels=2, features=6, dimension=4, width=5),
        lambda n: torch.randn(n, 2, 9, 8),
    ),
    "captions, LSTM": (
        lambda: CaptionModel(
            3,
            encoder=nn.Linear(6, 4),
            features=4,
            dimension=4,
            width=5,
            cell="lstm",
            layers=2,
            end=1,
        ),
        lambda n: torch.randn(n, 6),
    ),
}
"""What makes a model of three symbols, and what makes n inputs for at least four outputs."""
