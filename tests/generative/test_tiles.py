"""Tiles of pairs: how large they are, and the middle that distances are taken about."""

import pytest
import torch

from vademecum.generative.measures._blocks import blocks, centre


def widths(parts):
    return [part.stop - part.start for part in parts]


@pytest.mark.parametrize("d", [1, 3, 40])
def test_tiles_are_as_large_as_the_memory_allows(d):
    for memory in (16 + 32 * d, 5000 + 100 * d, 70_001 + 999 * d, 10**6):
        side = max(widths(blocks(torch.zeros(1000, d), memory)))
        # Two numbers of eight bytes a pair; four for the features of each example of a side.
        assert 16 * side**2 + 32 * side * d <= memory
        larger = side + 1
        assert side == 1000 or 16 * larger**2 + 32 * larger * d > memory


@pytest.mark.parametrize("memory", [None, 10**12])
@pytest.mark.parametrize(("device", "most"), [("cpu", 2048), ("meta", 8192)])
def test_tiles_are_no_larger_than_pays(device, most, memory):
    parts = blocks(torch.zeros(20_000, 2, device=device), memory)
    assert max(widths(parts)) == most
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, 20_000)


def test_the_middle_is_in_double_precision():
    x = torch.tensor([[1.0, 5.0], [1.0 + 2**-23, 5.0]])
    y = torch.tensor([[4.0, -5.0], [4.0 + 2**-21, -5.0]])
    assert centre(x, y).tolist() == [(1 + 2**-24 + 4 + 2**-22) / 2, 0]
