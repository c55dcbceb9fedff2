"""Sizes, strides and starts of fields behind layers that resize or rearrange, by hand."""

import pytest
import torch
from torch import Tensor, nn

from tests.convolution.field_models import Calls, resized
from vademecum.convolution import receptive_field

S = nn.Sequential
LINES = {  # module, length, unit, then size, stride and start
    "adaptive, 10 to 4": (nn.AdaptiveAvgPool1d(4), 10, 1, 3, 2.5, 2),  # from 2.5 to 5
    "adaptive, two of them": (S(nn.AdaptiveMaxPool1d(4), nn.Conv1d(1, 1, 2)), 10, 1, 6, 2.5, 2),
    "adaptive, longer": (nn.AdaptiveAvgPool1d(8), 6, 3, 1, 0.75, 2),  # from 2.25 to 3
    "corners": (resized(size=9, mode="linear", align_corners=True), 5, 3, 2, 0.5, 1),  # at 1.5
    "corners, on an input": (resized(size=9, mode="linear", align_corners=True), 5, 4, 1, 0.5, 2),
    "corners, down": (resized(size=4, mode="linear", align_corners=True), 10, 2, 1, 3, 6),
    "centres": (resized(size=10, mode="linear"), 5, 4, 2, 0.5, 1),  # at 1.75
}


@pytest.mark.parametrize("case", LINES)
def test_along_a_line(case):
    model, length, unit, *wanted = LINES[case]
    found = receptive_field(model, (1, length), unit=unit)
    assert [found.size[0], found.stride[0], found.start[0]] == wanted
    assert spread(found.mask) == [(wanted[2], wanted[2] + wanted[0] - 1)]


PLANES = {  # module, shape, unit, then size, stride and start
    "bicubic": (  # at 2.75 and 1.25: two neighbours on either side
        resized(scale_factor=2, mode="bicubic"),
        *((1, 7, 6), (6, 3), (4, 4), (0.5, 0.5), (1, 0)),
    ),
    "bicubic, beyond the rim": (  # at -0.25 and 2.25
        resized(scale_factor=2, mode="bicubic"),
        *((1, 7, 6), (0, 5), (4, 4), (0.5, 0.5), (-2, 1)),
    ),
    "bicubic, on inputs": (  # 3 to 1: at 4 and 1, where the neighbours weigh nothing
        resized(scale_factor=1 / 3, mode="bicubic"),
        *((1, 9, 9), (1, 0), (1, 1), (3, 3), (4, 1)),
    ),
    "shuffled": (  # rows 5 to 7 of the larger map, columns 2 to 4
        S(nn.PixelShuffle(2), nn.Conv2d(1, 1, 3)),
        *((4, 6, 5), (5, 2), (2, 2), (0.5, 0.5), (2, 1)),
    ),
    "shuffled by three": (
        S(nn.PixelShuffle(3), nn.MaxPool2d(2)),
        *((9, 4, 4), (2, 1), (1, 2), (2 / 3, 2 / 3), (1, 0)),
    ),
    "unshuffled": (  # rows 2 to 4 of the smaller map, columns 0 to 2
        S(nn.PixelUnshuffle(2), nn.Conv2d(4, 1, 3)),
        *((1, 12, 8), (2, 0), (6, 6), (2, 2), (4, 0)),
    ),
    "unshuffled by three": (nn.PixelUnshuffle(3), (1, 9, 9), (2, 1), (3, 3), (3, 3), (6, 3)),
}


@pytest.mark.parametrize("case", PLANES)
def test_in_a_plane(case):
    model, shape, unit, *wanted = PLANES[case]
    found = receptive_field(model, shape, unit=unit)
    size, stride, start = wanted
    assert (found.size, found.start) == (size, start)
    assert found.stride == pytest.approx(stride)
    assert spread(found.mask) == [
        (max(low, 0), low + n - 1) for low, n in zip(start, size, strict=True)
    ]
    assert receptive_field(model.eval(), torch.randn(1, *shape), unit=unit).left == 0


def spread(mask: Tensor) -> list[tuple[int, int]]:
    """The first and the last position along each axis."""
    places = mask.nonzero()
    return list(zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True))


@pytest.mark.parametrize(("channel", "size"), [(0, 3), (1, 3), (2, 7), (3, 7)])
def test_groups_see_all_of_their_own_channels(channel, size):
    def forward(self, x: Tensor) -> Tensor:
        parts = [x, self.three(x), self.five(x), self.seven(x)]  # two for each group
        return self.groups(torch.cat(parts, 1))[:, channel : channel + 1]

    kernels = {"three": 3, "five": 5, "seven": 7}
    model = Calls(
        forward,
        groups=nn.Conv1d(4, 4, 1, groups=2),
        **{name: nn.Conv1d(1, 1, k, padding=k // 2) for name, k in kernels.items()},
    )
    found = receptive_field(model, torch.randn(1, 1, 11))
    assert found.size == (size,)
    assert (found.left, int(found.mask.sum())) == (0, size)
