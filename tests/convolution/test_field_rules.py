"""Receptive fields where axes change their places: channels, reductions, norms, products."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.convolution import receptive_field


class Then(nn.Module):
    """Layers, and functions between them."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(s for s in steps if isinstance(s, nn.Module))

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x


class Statistics(nn.BatchNorm2d):
    """A norm that takes the batch's statistics always."""

    def forward(self, input: Tensor) -> Tensor:
        return F.batch_norm(input, self.running_mean, self.running_var, training=True)


def conv() -> nn.Module:
    return nn.Conv2d(1, 4, 3, padding=1)


CASES = {
    "a permutation that is not its own inverse": (
        Then(conv(), lambda x: x.permute(0, 2, 3, 1)),
        *((3, 3), (1, 2), (2, 3)),
    ),
    "one channel of several": (Then(conv(), lambda x: x[:, 0]), (3, 3), (1, 2), (2, 3)),
    "a norm over channels and positions": (
        Then(conv(), nn.LayerNorm([4, 5, 7])),
        *((7, 9), (-1, -1), (2, 3)),
    ),
    "statistics of the batch": (
        Then(conv(), Statistics(4)),
        *((7, 9), (-1, -1), (2, 3)),
    ),
    "a draw along rows": (
        Then(conv(), lambda x: F.gumbel_softmax(x, 1.0, False, 1e-10, 2)),
        *((7, 3), (-1, 2), (2, 3)),
    ),
    "a transposition by einsum": (
        Then(
            nn.Conv2d(1, 4, 1),
            lambda x: torch.einsum("nchw->ncwh", x),
            nn.Conv2d(4, 2, (5, 1), padding=(4, 0)),
        ),
        *((1, 5), (2, 1), (5, 2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_axes_keep_their_meaning(name):
    model, size, start, unit = CASES[name]
    field = receptive_field(model, (1, 5, 7))
    assert (field.size, field.start, field.unit) == (size, start, unit)
    seen = receptive_field(model, torch.randn(2, 1, 5, 7))  # within, or there is an error
    assert torch.equal(seen.mask, field.mask)


def test_spans_pass_a_mean_over_channels():
    model = Then(conv(), lambda x: x.mean(1), nn.Conv1d(5, 2, 3, padding=1))
    field = receptive_field(model, (1, 5, 7), unit=0)
    assert (field.size, field.start) == ((7, 5), (-1, -2))


def test_spans_pass_a_permutation_that_is_not_its_own_inverse():
    last = nn.Conv2d(7, 2, (1, 5), padding=(0, 4))
    model = Then(nn.Conv2d(1, 4, 1), lambda x: x.permute(0, 3, 1, 2), last)
    field = receptive_field(model, (1, 5, 7), unit=(2, 0))
    assert (field.size, field.start) == ((5, 7), (-4, 0))


THREE, PAIRS = nn.Conv1d(1, 1, 3), nn.Conv1d(1, 1, 2, 2)  # of 10 positions, 8 and 5 are left


def beside(x: Tensor) -> Tensor:
    return torch.cat([THREE(x), PAIRS(x)], 2)


PARTS = {  # module, unit, then size, stride and start
    "the first of two": (Then(beside), 7, 3, 1, 7),
    "the second of two": (Then(beside), 10, 2, 2, 4),  # its third
    "across both": (Then(beside, nn.Conv1d(1, 1, 2)), 7, 10, 0, 0),  # the last and the first
    "a split": (Then(THREE, lambda x: x.split([3, 5], 2)[1]), 2, 3, 1, 5),
    "the third of three": (Then(PAIRS, lambda x: x.split([1, 2, 2], 2)[2]), 1, 2, 2, 8),
    "a slice": (Then(THREE, lambda x: x[:, :, 3:]), 2, 3, 1, 5),
    "every second": (Then(THREE, lambda x: x[:, :, 1::2]), 2, 3, 2, 5),
    "every third pair": (Then(PAIRS, lambda x: x[:, :, 1::3]), 1, 2, 6, 8),
}


@pytest.mark.parametrize("name", PARTS)
def test_spans_pass_parts_along_positions(name):
    model, unit, size, stride, start = PARTS[name]
    field = receptive_field(model, (1, 10), unit=unit)
    assert (field.size, field.stride, field.start) == ((size,), (stride,), (start,))
    places = field.mask.nonzero().flatten().tolist()
    assert (places[0], places[-1]) == (start, start + size - 1)


SPELLINGS: dict[str, tuple[Any, tuple[int, ...]]] = {  # and where the unit is in the part
    "slices": (lambda y: y[:, :, 1::2], (2,)),
    "an Ellipsis": (lambda y: y[..., 1::2], (2,)),
    "an Ellipsis between": (lambda y: y[:, ..., 1::2], (2,)),
    "an Ellipsis that stands for nothing": (lambda y: y[:, :, 1::2, ...], (2,)),
    "a new axis": (lambda y: y[:, None, :, 1::2], (0, 2)),
    "a new axis at the end": (lambda y: y[..., 1::2, None], (2, 0)),
    "a new axis before the examples": (lambda y: y[None, ..., 1::2], (0, 2)),
    "one channel": (lambda y: y[:, 0, 1::2], (2,)),
    "one channel from the end": (lambda y: y[:, np.int64(-2), 1::2], (2,)),
    "one example": (lambda y: y[0, ..., 1::2], (2,)),
    "one example and channel": (lambda y: y[0, 1, 1::2], (2,)),
    "turned": (lambda y: y.transpose(1, 2)[:, 1::2, None], (2, 0)),
    "in two steps": (lambda y: y[..., 1:][0][..., ::2], (2,)),
    "and more": (lambda y: (y[:, 0, 1::2].tanh() * 2)[..., :-1], (2,)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_second_position_however_it_is_spelt(name):
    part, unit = SPELLINGS[name]
    for x in ((1, 10), torch.randn(2, 1, 10)):
        field = receptive_field(Then(nn.Conv1d(1, 3, 3), part), x, unit=unit)
        assert (field.size, field.stride, field.start) == ((3,), (2,), (5,))
        assert field.mask.nonzero().flatten().tolist() == [5, 6, 7]
        assert field.unit == unit
        assert field.left in (None, 0)


def test_an_index_that_takes_one_position_leaves_the_map_before_it():
    field = receptive_field(Then(nn.Conv1d(1, 3, 3), lambda y: y[..., 4]), (1, 10), unit=6)
    assert (field.stride, field.start, field.layer) == ((1,), (6,), "submodule 'layers.0' (Conv1d)")


def test_truth_values_are_no_whole_numbers():
    field = receptive_field(Then(nn.Conv1d(1, 3, 3), lambda y: y[True]), (1, 10), unit=6)
    assert (field.size, field.start) == ((3,), (6,))


def test_backward_slices_are_refused():
    with pytest.raises(ValueError, match="step must be greater than zero"):
        receptive_field(Then(nn.Conv1d(1, 3, 3), lambda y: y[..., ::-1]), (1, 10))


def test_distances_need_the_rows_that_they_compare():
    model = Then(nn.Linear(2, 4), lambda x: torch.cdist(x, x)[:, :, :3])
    field = receptive_field(model, torch.randn(1, 8, 2), unit=5)
    assert field.mask.nonzero().flatten().tolist() == [0, 1, 2, 5]
    assert field.left == 0


def test_nodes_share_the_statistics_of_a_norm_without_its_own():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.norm(x)

    field = receptive_field(Graph(), (torch.randn(6, 3), torch.tensor([[0, 1], [1, 2]])))
    assert field.mask.all()
