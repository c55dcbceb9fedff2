"""Flows with the weights of zuko's: the same densities, the same samples."""

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.generative import MAF, RealNVP, SplineFlow
from vademecum.generative.flows._rational_quadratic import bent_by_spline, unbent_by_spline

pytest.importorskip("zuko")
zuko = importlib.import_module("zuko")


def dense(net: nn.Module) -> list[Any]:
    return [layer for layer in net.modules() if hasattr(layer, "weight")]


def by_parameter(rows: Tensor, numbers: int) -> Tensor:
    """From all numbers of a coordinate to all coordinates of a number."""
    return rows.unflatten(0, (-1, numbers)).transpose(0, 1).flatten(0, 1)


@pytest.mark.parametrize("context", [0, 3])
def test_real_nvp(context):
    torch.manual_seed(0)
    theirs = zuko.flows.RealNVP(6, context, transforms=3, hidden_features=(16, 8)).double()
    ours = RealNVP(6, transforms=3, hidden=(16, 8), context=context).double()
    for net, transform in zip(ours.networks, theirs.transform.transforms, strict=True):
        for mine, other in zip(dense(net), dense(transform.hyper), strict=True):
            mine.weight.data, mine.bias.data = other.weight.data.clone(), other.bias.data.clone()
        last = dense(net)[-1]
        for p in (last.weight, last.bias):  # theirs: shift, scale of each coordinate
            p.data = by_parameter(p.data, 2).unflatten(0, (2, -1)).flip(0).flatten(0, 1)
    x, given = torch.randn(7, 6).double(), torch.randn(7, context).double() if context else None
    law = theirs(given)
    torch.testing.assert_close(ours.log_prob(x, given), law.log_prob(x))
    torch.testing.assert_close(ours.inverse(x, given).value, law.transform.inv(x))


@pytest.mark.parametrize("context", [0, 3])
def test_maf(context):
    torch.manual_seed(1)
    theirs = zuko.flows.MAF(5, context, transforms=3, hidden_features=(16, 9)).double()
    ours = MAF(5, transforms=3, hidden=(16, 9), context=context).double()
    groups = 5 if context else 4
    for net, transform in zip(ours.networks, theirs.transform.transforms, strict=True):
        before = torch.arange(5 + context).roll(context)  # ours: the context comes first
        for mine, other in zip(dense(net), dense(transform.hyper), strict=True):
            after = (torch.arange(len(other.weight)) % groups).argsort(stable=True)
            if mine is dense(net)[-1]:
                after = by_parameter(torch.arange(10), 2).unflatten(0, (2, 5)).flip(0).flatten()
            mine.weight.data = other.weight.data[after][:, before]
            mine.bias.data = other.bias.data[after]
            assert mine.mask.bool().equal(other.mask.bool()[after][:, before])
            before = after
    x, given = torch.randn(7, 5).double(), torch.randn(7, context).double() if context else None
    law = theirs(given)
    torch.testing.assert_close(ours.log_prob(x, given), law.log_prob(x))
    torch.testing.assert_close(ours.inverse(x, given).value, law.transform.inv(x))


def test_splines():
    """Theirs squashes logits and has no least share, so that ours must be told the same knots."""
    torch.manual_seed(2)
    K, n, m = 5, 9, 4
    share = 0.05 + 0.75 * torch.rand(2, n, m, K).double().softmax(-1)
    share = share / share.sum(-1, keepdim=True)
    slopes = torch.randn(n, m, K - 1).double()
    ours = ((share - 1e-3 / K) / (1 - 1e-3)).log()
    numbers = torch.cat((*ours, slopes), -1).transpose(1, 2)
    level = share.log() - share.log().mean(-1, keepdim=True)
    theirs = level / (1 - 2 * level.abs() / math.log(1000))
    spline = zuko.transforms.MonotonicRQSTransform(*theirs, slopes, bound=3.0)
    x = 2 * torch.randn(n, m).double()
    y, log_slope = spline.call_and_ladj(x)
    found = bent_by_spline(x, numbers, 3.0)
    torch.testing.assert_close(found.value, y)
    torch.testing.assert_close(found.log_slope, log_slope)
    torch.testing.assert_close(unbent_by_spline(y, numbers, 3.0).value, spline.inv(y))


def test_spline_flow_has_as_many_parameters():
    univariate, shapes = zuko.transforms.MonotonicRQSTransform, [(8,), (8,), (7,)]
    kinds = {"univariate": univariate, "shapes": shapes, "hidden_features": (128, 128)}
    theirs = zuko.flows.coupling.NICE(6, transforms=6, **kinds)
    count = [sum(p.numel() for p in f.parameters()) for f in (theirs, SplineFlow(6))]
    assert count[0] == count[1]
