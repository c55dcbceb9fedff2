"""`receptive_field` against Jacobians of every unit, formulas, and walks in graphs."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.convolution.field_models import CASES, Calls
from vademecum.convolution import draw_receptive_field, receptive_field
from vademecum.testing import check_instrument

LAST = ("encoder", "causal", "scores", "running sum")


def positions(t: Tensor, case: str) -> list[int]:
    """The axes of positions, of a tensor without the batch."""
    channels = None if t.ndim == 2 else t.ndim - 2 if case in LAST else 0
    return [a for a in range(t.ndim - 1) if a != channels]


def dependence(model: nn.Module, x: Tensor, case: str) -> tuple[Tensor, list[int]]:
    """Which positions of the output depend on which of the input, by Jacobians at five points."""
    y, total = model(x), torch.zeros((), dtype=torch.float64)
    for _ in range(5):
        jacobian = torch.autograd.functional.jacobian(model, torch.randn_like(x))
        assert isinstance(jacobian, Tensor)
        total = total + jacobian.select(y.ndim, 0)[0].abs()
    ours = positions(y, case)
    theirs = [y.ndim - 1 + a for a in positions(x, case)]
    others = [a for a in range(total.ndim) if a not in (*ours, *theirs)]
    sizes = [y.shape[1 + a] for a in ours]
    return (total.sum(others) if others else total) > 0, sizes


@pytest.mark.parametrize("case", CASES)
def test_every_unit(case):
    model, shape = CASES[case]
    model = model.double().eval()
    wanted, sizes = dependence(model, torch.randn(1, *shape, dtype=torch.float64), case)
    middle = receptive_field(model, shape)
    assert middle.unit == tuple(n // 2 for n in sizes)
    assert middle.mask.equal(wanted[middle.unit])
    units = list(itertools.product(*map(range, sizes)))
    for unit in units[:: max(1, len(units) // 12)]:
        found = receptive_field(model, shape, unit=unit)
        assert found.mask.equal(wanted[unit]), (unit, found.mask.int(), wanted[unit].int())


@pytest.mark.parametrize("case", CASES)
def test_measured_equals_derived(case):
    model, shape = CASES[case]
    model = model.double().train()
    found = receptive_field(model, torch.randn(2, *shape, dtype=torch.float64))
    assert found.left == 0
    assert found.measured is not None
    assert found.effective is not None
    assert found.measured.equal(found.mask)
    assert found.effective.sum().isclose(torch.ones((), dtype=torch.float64))
    assert bool(((found.effective > 0) == found.mask).all())
    assert model.training


def conv(k: int, s: int = 1, p: int = 0, d: int = 1) -> nn.Module:
    return nn.Conv1d(1, 1, k, s, p, d)


FORMULAS = {  # layers, length, size, stride, start of the unit in the middle
    "kernels 3, 3, 2": ([conv(3), conv(3, 2), conv(2, 2)], 32, 7, 4, 12),
    "padding": ([conv(3, 1, 1), conv(3, 1, 1)], 11, 5, 1, 3),
    "beyond the rim": ([conv(9, 2, 4), conv(9, 2, 4)], 8, 25, 4, -8),
    "dilation": ([conv(3, d=4), conv(3, d=2)], 30, 13, 1, 9),
    "pooling": ([nn.MaxPool1d(3, 2, 1), nn.AvgPool1d(2)], 16, 5, 4, 7),
    "transposed": ([nn.ConvTranspose1d(1, 1, 4, 2, 1), conv(3, 1, 1)], 10, 3, 0.5, 4),
    "doubled": ([nn.Upsample(scale_factor=2), conv(3)], 10, 2, 0.5, 4),
    "halves again": ([conv(2, 2), nn.Upsample(scale_factor=2, mode="linear")], 12, 4, 1, 4),
    "adaptive": ([nn.AdaptiveAvgPool1d(4), conv(1)], 12, 3, 3, 6),
    "everything": ([conv(3), nn.AdaptiveAvgPool1d(1), nn.Upsample(3)], 12, 12, 0, 0),
    "shuffled": ([conv(3, 2), nn.MaxPool1d(2), nn.ConvTranspose1d(1, 1, 4, 4)], 33, 5, 1, 16),
}


@pytest.mark.parametrize("case", FORMULAS)
def test_size_stride_and_start(case):
    layers, length, *wanted = FORMULAS[case]
    found = receptive_field(nn.Sequential(*layers), (1, length))
    assert [found.size[0], found.stride[0], found.start[0]] == wanted, found


@pytest.mark.parametrize("draw", range(30))
def test_random_stacks_follow_the_recursion(draw):
    generator = torch.Generator().manual_seed(draw)
    layers, size, jump, start = [], 1, 1, 0
    for _ in range(int(torch.randint(1, 6, (), generator=generator))):
        k, s, d, p = (int(torch.randint(a, b, (), generator=generator)) for a, b in
                      ((1, 6), (1, 4), (1, 4), (0, 3)))  # fmt: skip
        layers.append(conv(k, s, p, d))
        size, start = size + d * (k - 1) * jump, start - p * jump
        jump *= s
    found = receptive_field(nn.Sequential(*layers), (1, 3 * size + 8 * jump))
    assert (found.size, found.stride) == ((size,), (jump,))
    assert found.start == (start + found.unit[0] * jump,)


def test_holes_of_dilation():
    model = nn.Sequential(*(nn.Conv2d(1, 1, 3, dilation=2) for _ in range(3)))
    found = receptive_field(model, (1, 20, 21))
    assert found.size == (13, 13)
    grid = torch.zeros(20, 21, dtype=torch.bool)
    grid[4:17:2, 4:17:2] = True
    assert found.mask.equal(grid)


def resnet(blocks: list[int], *, bottleneck: bool) -> nn.Module:
    """A thin residual network, by the published table of its layers."""

    def block(width: int, stride: int) -> nn.Module:
        body = [nn.Conv2d(4, 4, 3, stride, 1), nn.BatchNorm2d(4), nn.ReLU()]
        body += [] if bottleneck else [nn.Conv2d(4, 4, 3, 1, 1), nn.BatchNorm2d(4)]
        short = nn.Conv2d(4, 4, 1, stride) if stride > 1 else nn.Identity()
        return Calls(lambda s, x: F.relu(s.f(x) + s.g(x)), f=nn.Sequential(*body), g=short)

    stem = [nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    stages = [block(4, 2 if i and not j else 1) for i, n in enumerate(blocks) for j in range(n)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


@pytest.mark.parametrize(
    ("blocks", "bottleneck", "size"),
    [([2, 2, 2, 2], False, 435), ([3, 4, 6, 3], False, 899), ([3, 4, 6, 3], True, 427),
     ([3, 4, 23, 3], True, 971), ([3, 8, 36, 3], True, 1451)],
)  # fmt: skip
def test_published_sizes_of_residual_networks(blocks, bottleneck, size):
    found = receptive_field(resnet(blocks, bottleneck=bottleneck), (3, 224, 224))
    assert (found.size, found.stride, found.unit) == ((size, size), (32, 32), (3, 3))


def test_layers_after_the_last_map_do_not_count():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 5))
    found = receptive_field(model, (1, 8, 8))
    assert (found.size, found.layer) == ((3, 3), "submodule '0' (Conv2d)")


def test_without_a_map_units_are_outputs():
    found = receptive_field(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (3, 2, 2))
    assert (found.unit, found.size) == ((2,), (2, 2))


def test_what_is_left_is_said():
    model = nn.Sequential(nn.Conv1d(1, 1, 3), nn.ReLU(), nn.Conv1d(1, 1, 3))
    model[0].bias.data.fill_(-100.0)  # dead for every draw  # pyright: ignore
    found = receptive_field(model, torch.randn(1, 1, 9))
    assert int(found.mask.sum()) == 5
    assert found.left == 5
    assert found.draws < 20
    assert receptive_field(model, (1, 9)).left is None


def test_a_model_without_values():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 4000, 3), nn.Conv2d(4000, 4000, 3))
    for x in ((3, 900, 900), torch.zeros(1, 3, 900, 900, device="meta")):
        found = receptive_field(model, x)
        assert (found.size, found.measured) == ((5, 5), None)


def test_operations_without_a_rule_are_named_with_what_was_measured():
    model = Calls(lambda s, x: torch.renorm(s.f(x), 2, 1, 1.0), f=nn.Conv1d(2, 2, 3))
    for x in ((2, 7), torch.randn(1, 2, 7)):
        with pytest.raises(ValueError, match=r"got renorm in the model .*sees [357] positions"):
            receptive_field(model, x)
    with pytest.raises(ValueError, match="got renorm"):
        receptive_field(model.to("meta"), (2, 7))


BAD = {
    "a unit outside": ((1, 9), (7,), "unit must be <= 6, got 7"),
    "a unit of two axes": ((1, 9), (2, 2), r"unit must have 1 entries.* got \(2, 2\)"),
    "NaN": (torch.full((1, 1, 9), torch.nan), None, "x must be finite"),
    "too few channels": ((2, 9), None, r"model does not take inputs of shape \(1, 2, 9\)"),
    "smaller than the kernel": ((1, 2), None, r"model does not take inputs of shape \(1, 1, 2\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_inputs(case):
    x, unit, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        receptive_field(nn.Conv1d(1, 1, 3), x, unit=unit)


def test_laws():
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Tanh()).double()

    def instrument(model: nn.Module, x: Tensor) -> Any:
        found = receptive_field(model, x, generator=torch.Generator().manual_seed(0))
        return found.mask, found.effective, found.size

    held = check_instrument(instrument, model, torch.randn(4, 2, 5).double())
    assert held == ("finite", "untouched", "repeatable")


def test_draw_receptive_field():
    x = torch.randn(1, 1, 9, 9)
    figure = draw_receptive_field(receptive_field(nn.Conv2d(1, 1, 3), x))
    shown = figure.axes[0].images[0].get_array()
    assert shown is not None
    assert (shown > 0).sum() == 9
    figure = draw_receptive_field(receptive_field(nn.Conv1d(1, 1, 3, dilation=2), (1, 9)))
    heights = [bar.get_height() for bar in figure.axes[0].patches]  # pyright: ignore
    assert heights == [0, 0, 1, 0, 1, 0, 1, 0, 0]
    figure = draw_receptive_field(receptive_field(nn.Conv3d(1, 1, 3), (1, 5, 6, 7)))
    assert figure.axes[0].get_title() == "size 3 x 3 x 3, stride 1 x 1 x 1"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("case", ["residual", "bicubic", "indices", "encoder"])
def test_cuda(case):
    model, shape = CASES[case]
    found = receptive_field(model.cuda(), torch.randn(1, *shape, device="cuda"))
    wanted = receptive_field(model.cpu(), shape)
    assert found.mask.equal(wanted.mask)
    assert found.left == 0
