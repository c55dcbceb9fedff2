"""Tangent kernels of networks in half precision, beside the same numbers in double precision."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import kernel
from vademecum.kernels import empirical_ntk


def looked(model: nn.Module, x: torch.Tensor) -> Any:
    draw = torch.Generator().manual_seed(0)
    return examine(model, x, sections=["kernel"], budget=math.inf, generator=draw)["kernel"]


def exact(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Eigenvalues of the same network, its weights as they are, in double precision."""
    K = empirical_ntk(copy.deepcopy(model).double(), x.double())
    matrix = K.transpose(1, 2).reshape(K.shape[0] * K.shape[2], -1)
    return torch.linalg.eigvalsh(matrix).flip(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("draw", [0, 1, 2])
def test_a_kernel_is_no_sharper_than_the_network(dtype, draw):
    """Inputs far from zero: rounding of half precision shows in all eigenvalues."""
    torch.manual_seed(draw)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(),
                          nn.Linear(24, 3)).to(dtype)  # fmt: skip
    x = (torch.randn(48, 6) + 30).to(dtype)
    section, values = looked(model, x), exact(model, x)
    error = section["largest_eigenvalue"].error
    assert abs(section.largest_eigenvalue - float(values[0])) < error
    assert error == pytest.approx(4 * torch.finfo(dtype).eps * section.largest_eigenvalue)
    assert 0 < section.rank <= int((values > 2.0**-23 * values[0]).sum())


@pytest.mark.parametrize(("dtype", "eps"), [(torch.float32, 2.0**-23), (torch.float64, 2.0**-49)])
def test_a_kernel_of_full_precision_is_as_sharp_as_it_is(dtype, eps):
    section = looked(nn.Linear(6, 3).to(dtype), torch.randn(48, 6).to(dtype))
    assert section["largest_eigenvalue"].error == pytest.approx(eps * section.largest_eigenvalue)


def test_one_direction_is_told_as_one():
    section = looked(nn.Linear(1, 1, bias=False), torch.arange(1.0, 9.0)[:, None])
    assert section.rank == 1
    assert (
        "the one direction in which its outputs can move would take 1 step or" in section.sentence
    )


def test_what_time_was_short_for_is_told_of_all_parts(monkeypatch):
    study = Study(nn.Linear(3, 2), torch.randn(60, 3), torch.arange(60) % 2)
    clock = Clock(0.0)
    assert list(kernel.twin_of_infinite_width(study, clock))
    assert clock.cut == "8 of 60 examples for the infinite twin"

    def short(what):
        def part(study, clock, *_):
            clock.cut = what
            yield from ()

        return part

    for name, what in (("_laziness", "one part"), ("twin_of_infinite_width", "another")):
        monkeypatch.setattr(kernel, name, short(what))
    clock = Clock(math.inf)
    assert list(kernel.kernel(study, clock))
    assert clock.cut == "one part, another"
