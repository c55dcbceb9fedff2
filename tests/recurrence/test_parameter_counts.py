"""Counts of parameters by formula against the entries of layers."""

from itertools import product
from typing import Any

import pytest
from torch import nn

from vademecum.recurrence import CourseGRU, CourseLSTM, ElmanRNN, count_recurrent_params

KINDS: dict[str, Any] = {"simple": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def entries(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_count_recurrent_params_of_torchs_layers(kind):
    for d, m, layers, both, bias in product((1, 3), (2, 5), (1, 3), (False, True), (False, True)):
        knobs = {"num_layers": layers, "bidirectional": both, "bias": bias}
        made = KINDS[kind](d, m, device="meta", **knobs)
        counted = count_recurrent_params(
            kind, d, m, layers=layers, bidirectional=both, biases=2 if bias else 0
        )
        assert counted.total == entries(made)
        assert counted.weights + counted.biases == counted.total
        if kind == "lstm":
            made = nn.LSTM(d, m, proj_size=1, device="meta", **knobs)
            counted = count_recurrent_params(
                "lstm", d, m, projection=1, layers=layers, bidirectional=both,
                biases=2 if bias else 0,
            )  # fmt: skip
            assert counted.total == entries(made)


def test_count_recurrent_params_of_our_own():
    one: Any = {"biases": 1, "k": 2}
    assert count_recurrent_params("simple", 3, 4, **one).total == entries(ElmanRNN(3, 4, 2)) - 2
    assert count_recurrent_params("gru", 3, 4, **one).total == entries(CourseGRU(3, 4, 2))
    course = count_recurrent_params("lstm", 3, 4, mixing=True, **one)
    assert course.total == entries(CourseLSTM(3, 4, 2))
    assert (course.matrices, course.biases) == (6, 16)
    wide = count_recurrent_params("lstm", 3, 4, layers=2, bidirectional=True, projection=2, k=5)
    made = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2, device="meta")
    assert wide.total == entries(made) + 5 * 2 * 2  # the outputs read both directions
    assert wide.matrices == 2 * 2 * (4 + 1) + 1


count: Any = count_recurrent_params


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: count("rnn", 3, 4), "kind must be one of 'simple', 'gru', 'lstm'"),
        (lambda: count("gru", 0, 4), "d must be >= 1, got 0"),
        (lambda: count("gru", 3, 4, layers=0), "layers must be >= 1, got 0"),
        (lambda: count("gru", 3, 4, biases=3), "biases must be <= 2, got 3"),
        (lambda: count("gru", 3, 4, k=0), "k must be >= 1, got 0"),
        (lambda: count("lstm", 3, 4, projection=4), "projection must be <= 3, got 4"),
        (lambda: count("gru", 3, 4, projection=2), "projection must be left out unless"),
        (lambda: count("simple", 3, 4, mixing=True), "mixing must be left out unless"),
    ],
)  # fmt: skip
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
