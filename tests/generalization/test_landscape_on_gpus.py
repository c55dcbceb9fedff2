"""The landscape on a GPU is that on the CPU."""

import copy
from typing import Any

import pytest
import torch

from tests.generalization.landscape_models import MODELS, convolutional, inputs, seeded
from vademecum.generalization import (
    align,
    draw_loss_plane,
    loss_plane,
    lottery_ticket,
    mode_connectivity,
    sharpness_measures,
)
from vademecum.regularization import permute_units

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def there(model):
    return copy.deepcopy(model).cuda()


def data(name="convolutional"):
    x = inputs(name, n=20)
    return x, torch.arange(20) % 3


@CUDA
@pytest.mark.gpu
def test_sharpness_and_planes():
    model, (x, y) = seeded(convolutional, 1).double(), data()
    one = sharpness_measures(model, x, y, tol=1e-8)
    other = sharpness_measures(there(model), x.cuda(), y.cuda(), tol=1e-8)
    assert other[:3] == pytest.approx(one[:3], rel=1e-6)
    plane = loss_plane(model, x, y, points=4)
    found = loss_plane(
        there(model), x.cuda(), y.cuda(), points=4, directions=plane.directions.cuda()
    )
    torch.testing.assert_close(found.losses.cpu(), plane.losses)
    assert found.sharpness_share == pytest.approx(plane.sharpness_share, rel=1e-3)
    assert draw_loss_plane(found).axes
    source = torch.Generator("cuda").manual_seed(0)
    drawn = loss_plane(there(model), x.cuda(), y.cuda(), points=3, generator=source)
    assert drawn.losses.isfinite().all()


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("by", ["weights", "activations"])
@pytest.mark.parametrize("name", ["mlp", "convolutional", "residual"])
def test_alignment(name, by):
    a, x = seeded(MODELS[name][0], 1).double().cuda(), inputs(name, n=40).cuda()
    for key, p in a.named_parameters():
        if key.endswith("bias"):
            torch.nn.init.constant_(p, 0.3)
    found = align(a, permute_units(a, x[:1]).model, x, by=by)
    assert found.distance == 0


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("path", ["line", "aligned", "curve"])
def test_paths(path):
    a, b = (seeded(convolutional, seed).double() for seed in (1, 2))
    x, y = data()
    knobs: Any = {"points": 5, "path": path, "updates": 5, "batch": None}
    given: Any = {"generator": torch.Generator().manual_seed(0)}
    one = mode_connectivity(a, b, x, y, **knobs, **given)
    given = {"generator": torch.Generator().manual_seed(0)}
    other = mode_connectivity(there(a), there(b), x.cuda(), y.cuda(), **knobs, **given)
    torch.testing.assert_close(other.losses, one.losses, rtol=1e-6, atol=1e-8)


@CUDA
@pytest.mark.gpu
def test_tickets():
    model, (x, y) = seeded(convolutional, 1).double(), data()
    model[7] = torch.nn.Identity()  # no dropout
    one = lottery_ticket(model, x, y, keep=0.3, updates=5, prunings=2, control=False)
    other = lottery_ticket(
        there(model), x.cuda(), y.cuda(), keep=0.3, updates=5, prunings=2, batch=20
    )
    assert torch.equal(one.kept, other.kept)
    for name, mask in one.masks[0].items():
        assert (other.masks[0][name].cpu() == mask).double().mean() > 0.99
