"""Output sizes against the layers themselves, over all small settings."""

from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vademecum.convolution import conv_output_size


def test_conv_output_size_is_that_of_torchs_layers():
    for size, k, s, p, d in product(range(1, 9), range(1, 5), range(1, 4), range(3), range(1, 4)):
        x, w = torch.zeros(1, 1, size), torch.zeros(1, 1, k)
        knobs: dict[str, Any] = {"stride": s, "padding": p, "dilation": d}
        if size + 2 * p < d * (k - 1) + 1:
            with pytest.raises(ValueError, match="kernel_size must span at most the padded input"):
                conv_output_size(size, k, **knobs)
            continue
        assert conv_output_size(size, k, **knobs) == F.conv1d(x, w, **knobs).shape[2]


def test_sizes_rounded_up_are_those_of_torchs_pooling():
    for size, k, s in product(range(1, 9), range(1, 6), range(1, 6)):
        for p in range(k // 2 + 1):
            knobs: dict[str, Any] = {"stride": s, "padding": p, "ceil_mode": True}
            if k - size - 2 * p >= s:
                with pytest.raises(ValueError, match="kernel_size must span at most the padded"):
                    conv_output_size(size, k, **knobs)
                continue
            found = F.avg_pool1d(torch.zeros(1, 1, size), k, **knobs)
            assert conv_output_size(size, k, **knobs) == found.shape[2]


def test_transposed_ones_are_those_of_torchs_layers():
    for size, k, s, p, d in product(range(1, 5), range(1, 5), range(1, 4), range(3), range(1, 3)):
        for extra in range(max(s, d)):
            knobs: dict[str, Any] = {
                "stride": s,
                "padding": p,
                "dilation": d,
                "output_padding": extra,
            }
            if (size - 1) * s - 2 * p + d * (k - 1) + 1 + extra < 1:
                with pytest.raises(ValueError, match="padding must leave an output"):
                    conv_output_size(size, k, transposed=True, **knobs)
                continue
            found = F.conv_transpose1d(torch.zeros(1, 1, size), torch.zeros(1, 1, k), **knobs)
            assert conv_output_size(size, k, transposed=True, **knobs) == found.shape[2]


def test_several_axes_take_one_number_or_one_each():
    assert conv_output_size([7, 8], (3, 1), stride=[2, 3], padding=1) == (4, 4)
    assert conv_output_size((7,), 3) == (5,)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size must be >= 1, got 0"),
        ({"stride": 0}, "stride must be >= 1, got 0"),
        ({"dilation": 0}, "dilation must be >= 1, got 0"),
        ({"padding": -1}, "padding must be >= 0, got -1"),
        ({"kernel_size": 9}, r"the padded input, got 9 places for 5 \+ 2 \* 0"),
        ({"kernel_size": 2.5}, "kernel_size must be an integer, got 2.5"),
        ({"stride": (1, 2)}, r"stride must have 1 entries, got \(1, 2\)"),
        ({"output_padding": 1}, "output_padding must be 0 unless transposed, got 1"),
        ({"ceil_mode": True, "transposed": True}, "ceil_mode must be False if transposed, got"),
        ({"output_padding": 1, "transposed": True}, "must be below stride or dilation, 1, got 1"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(ValueError, match=message):
        conv_output_size(**{"size": 5, "kernel_size": 3, **given})
