"""Layers on p4 and p4m: exact for all sizes they take, by definition, and in what they refuse."""

import re
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.geometry import (
    FeatureAction,
    Group,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupPool,
    ImageAction,
    equivariance_error,
    invariance_error,
)
from vademecum.testing import check_part

GEOMETRIES = list(product((1, 2, 3), (1, 2, 3), (0, 1), (1, 2)))


def offset(layer: nn.Module, x: Tensor, g: int) -> float:
    """How far turned inputs and turned outputs are from each other."""
    group: Group = layer.group  # pyright: ignore
    move = ImageAction(group) if x.ndim == 4 else FeatureAction(group)
    y, after = layer(x), layer(move(g, x))
    back = FeatureAction(group) if y.ndim == 5 else ImageAction(group)
    return float((after - back(g, y)).abs().max().detach())


@pytest.mark.parametrize("group", ["p4", "p4m"])
@pytest.mark.parametrize("lifting", [True, False])
def test_group_conv2d_is_exact_for_all_sizes_it_takes(group, lifting):
    taken = 0
    for kernel, stride, padding, dilation in GEOMETRIES:
        layer = GroupConv2d(2, 1, kernel, group=group, lifting=lifting, stride=stride,
                            padding=padding, dilation=dilation).double()  # fmt: skip
        turns = () if lifting else (layer.group.order,)
        for size in (3, 5, 6, 7, 8):
            x = torch.randn(1, 2, *turns, size, 7, dtype=torch.float64)
            rest = [(s + 2 * padding - dilation * (kernel - 1) - 1) for s in (size, 7)]
            if min(rest) < 0 or any(r % stride for r in rest):
                with pytest.raises(ValueError, match=r"^(height|width) must be"):
                    layer(x)
                continue
            taken += 1
            assert max(offset(layer, x, g) for g in layer.group.generators) < 1e-13
    assert taken > 60


@pytest.mark.parametrize("size", range(5, 13))
def test_sizes_that_are_refused_would_break_the_symmetry(size):
    """A plain convolution with the same filters is equivariant for the sizes that are taken."""
    layer = GroupConv2d(1, 1, 3, lifting=True, stride=2).double()
    x = torch.randn(2, 1, size, size, dtype=torch.float64)

    class Plain(nn.Module):
        def forward(self, x):
            assert layer.bias is not None
            bias = layer.bias.repeat_interleave(4)
            return F.conv2d(x, layer.filters(), bias, stride=2).unflatten(1, (1, 4))

    act = FeatureAction(layer.group)
    found = equivariance_error(Plain(), x, group=layer.group, out_action=act)
    if size % 2:
        assert found.error < 1e-14
        assert layer(x).equal(Plain()(x))
    else:
        assert found.error > 0.01
        fit = f"height must be {size - 1} or {size + 1}, or differ from that by multiples of the"
        with pytest.raises(ValueError, match=re.escape(fit)):
            layer(x)


def test_group_conv2d_is_its_definition():
    """Sums over offsets and turns, with the filter turned by coordinates."""
    layer = GroupConv2d(2, 3, 3, group="p4m").double().requires_grad_(False)
    assert layer.bias is not None
    group, x = layer.group, torch.randn(1, 2, 8, 5, 6, dtype=torch.float64)
    y = layer(x)
    for h in group:
        k, _, mirrored = group.turn(h) or (0, 4, False)
        wanted = torch.zeros(3, 3, 4, dtype=torch.float64) + layer.bias[:, None, None]
        for other, a, b in product(group, (-1, 0, 1), (-1, 0, 1)):
            right, up = a, b
            for _ in range(k):  # backwards
                right, up = up, -right
            up = -up if mirrored else up
            psi = layer.weight[:, :, group.multiply(group.inverse(h), other), 1 - up, 1 + right]
            part = x[0, :, other, 1 - b : 4 - b, 1 + a : 5 + a]
            wanted += torch.einsum("oc,chw->ohw", psi, part)
        torch.testing.assert_close(y[0, :, h], wanted)


def test_group_conv2d_keeps_the_laws_of_parts():
    lift = GroupConv2d(2, 3, 3, lifting=True, padding=1, padding_mode="circular")
    check_part(lift, torch.randn(3, 2, 5, 5), devices=("cpu", "meta"))
    check_part(GroupConv2d(2, 3, 3, group="p4m", stride=2, bias=False),
               torch.randn(3, 2, 8, 5, 7), devices=("cpu", "meta"))  # fmt: skip
    for part in (GroupPool("p4m"), GroupPool("p4m", reduce="mean", kernel_size=2, padding=1),
                 GroupBatchNorm2d(2)):  # fmt: skip
        skip = {"gradient": "it has no parameters"} if isinstance(part, GroupPool) else {}
        check_part(part, torch.randn(3, 2, 8, 6, 6), devices=("cpu", "meta"), skip=skip)
    assert repr(lift).endswith("lifting=True, padding=1, padding_mode='circular')")


def test_gradients_are_right_twice():
    layer = GroupConv2d(1, 2, 2, group="p4m").double()
    x = torch.randn(1, 1, 8, 3, 3, dtype=torch.float64, requires_grad=True)

    def call(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    tensors = (x, *layer.parameters())
    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("group", ["p4", "p4m"])
def test_whole_networks_are_invariant_also_after_training_steps(group):
    net = nn.Sequential(
        GroupConv2d(1, 4, 3, group=group, lifting=True), GroupBatchNorm2d(4), nn.ReLU(),
        GroupPool(group, kernel_size=2), GroupConv2d(4, 3, 3, group=group), nn.ReLU(),
        GroupConv2d(3, 4, 3, group=group, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(),
        GroupPool(group), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    ).double()  # fmt: skip
    x, y = torch.randn(6, 1, 16, 16, dtype=torch.float64), torch.arange(6) % 3
    descent = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        descent.zero_grad()
        F.cross_entropy(net(x), y).backward()
        descent.step()
    turns = Group.cyclic(4) if group == "p4" else Group.dihedral(4)
    assert invariance_error(net, x, group=turns).error < 1e-13
    if group == "p4":
        assert invariance_error(net, x, group=Group.dihedral(4)).error > 1e-3


def test_group_pool_over_turns_and_windows():
    x = torch.randn(2, 3, 4, 6, 6)
    assert GroupPool("p4")(x).equal(x.amax(2))
    torch.testing.assert_close(GroupPool("p4", reduce="mean")(x), x.mean(2))
    windows = GroupPool("p4", kernel_size=3, stride=1)(x)
    torch.testing.assert_close(windows[:, :, 1], F.max_pool2d(x[:, :, 1], 3, 1))
    with pytest.raises(ValueError, match="height must be 5 or 7, or differ"):
        GroupPool("p4", kernel_size=3, stride=2)(x)


def test_group_batch_norm2d_shares_statistics_among_turns():
    x = 3 + 2 * torch.randn(2, 3, 8, 4, 5)
    layer = GroupBatchNorm2d(3, momentum=1.0)
    y = layer(x)
    torch.testing.assert_close(layer.running_mean, x.mean((0, 2, 3, 4)))
    torch.testing.assert_close(y.var((0, 2, 3, 4), correction=0), torch.ones(3), rtol=1e-4, atol=0)
    torch.testing.assert_close(y[:, 1], (x[:, 1] - x[:, 1].mean()) / x[:, 1].std(correction=0),
                               rtol=1e-4, atol=1e-5)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("group", ["p4", "p4m"])
def test_group_conv2d_on_cuda_is_the_same_each_time(group):
    layer = GroupConv2d(8, 8, 3, group=group, padding=1).cuda()
    x = torch.randn(4, 8, layer.group.order, 16, 16, device="cuda", requires_grad=True)
    wanted = (x, *layer.parameters())
    with torch.backends.cudnn.flags(deterministic=True):
        runs = [torch.autograd.grad(layer(x).tanh().sum(), wanted) for _ in range(2)]
    for a, b in zip(*runs, strict=True):
        assert a.equal(b)
    twin = GroupConv2d(8, 8, 3, group=group, padding=1).double()
    twin.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x).cpu().double(), twin(x.detach().cpu().double()),
                               rtol=0, atol=2e-2)  # fmt: skip
    act = FeatureAction(layer.group)
    found = equivariance_error(layer.double(), x.double(), group=layer.group, action=act)
    assert found.error < 1e-13
