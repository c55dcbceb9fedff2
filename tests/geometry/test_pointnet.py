"""PointNet by hand, its T-Nets and penalty; critical points of any module that takes maxima."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.geometry import DeepSets, PointNet, critical_set
from vademecum.models import mlp
from vademecum.testing import check_instrument


def drawn(**knobs) -> PointNet:
    net = PointNet(3, 5, **knobs).double().eval()
    for p in net.parameters():
        nn.init.normal_(p, 0, 0.3)
    for b in net.buffers():
        if b.is_floating_point():
            nn.init.uniform_(b, 0.5, 1.5)
    return net


def by_hand(layers: nn.Module, x: Tensor) -> Tensor:
    """Dense layers with batch normalisation in evaluation and ReLU, one by one."""
    for layer in layers.children():
        if isinstance(layer, nn.Linear):
            x = x @ layer.weight.T + layer.bias
        elif isinstance(layer, nn.BatchNorm1d):
            assert layer.running_var is not None
            assert layer.running_mean is not None
            x = (x - layer.running_mean) / (layer.running_var + layer.eps).sqrt()
            x = x * layer.weight + layer.bias
        elif isinstance(layer, nn.ReLU):
            x = x.clamp(min=0)
    return x


def matrix(net: nn.Module | None, x: Tensor) -> Tensor:
    assert net is not None
    points, head, last = net.children()
    a = by_hand(head, by_hand(points, x).amax(0))
    assert isinstance(last, nn.Linear)
    return (last.weight @ a + last.bias).view(x.shape[1], x.shape[1])


@pytest.mark.parametrize("task", ["classification", "segmentation"])
@torch.no_grad()
def test_by_hand(task):
    net, x = drawn(task=task, width=32), torch.randn(2, 7, 3, dtype=torch.float64)
    out = net.run(x)
    penalties = []
    for i, cloud in enumerate(x):
        A = matrix(net.input_net, cloud)
        z = by_hand(net.points, cloud @ A)
        B = matrix(net.feature_net, z)
        z = z @ B
        u = by_hand(net.features, z).amax(0)
        each = u if task == "classification" else torch.cat([z, u.expand(7, -1)], 1)
        logits = by_hand(net.head, each) @ net.logits.weight.T + net.logits.bias
        torch.testing.assert_close(out.logits[i], logits)
        torch.testing.assert_close(out.feature[i], u)
        assert out.input_transform is not None
        torch.testing.assert_close(out.input_transform[i], A)
        penalties.append(sum(((i == j) - float(B[i] @ B[j])) ** 2
                             for i in range(len(B)) for j in range(len(B))))  # fmt: skip
    torch.testing.assert_close(out.penalty.item(), sum(penalties) / 2)
    assert net(x).equal(out.logits)


def test_published_sizes():
    net = PointNet(3)
    first, head = net.points[0], net.head[0]
    assert isinstance(first, nn.Linear)
    assert isinstance(head, nn.Linear)
    assert (first.out_features, head.in_features, head.out_features) == (64, 1024, 512)
    dense = sum(
        m.weight.numel() + m.bias.numel() for m in net.modules() if isinstance(m, nn.Linear)
    )
    tnet = 64 * 128 + 128 + 128 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256
    own = 4 * 64 + 65 * 64 + 65 * 64 + 65 * 128 + 129 * 1024 + 1025 * 512 + 513 * 256 + 257 * 40
    assert dense == 2 * tnet + 4 * 64 + 257 * 9 + 65 * 64 + 257 * 4096 + own
    assert (
        PointNet(2, 3, width=16, transforms=(False, False)).run(torch.zeros(2, 4, 2)).penalty == 0
    )


class Foreign(nn.Module):
    """With channels first, a pooled maximum, and a maximum over channels that does not count."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 1)

    def forward(self, x):
        z = self.conv(x)
        z = z - z.amax(1, keepdim=True).detach()
        return F.adaptive_max_pool1d(z, 1).flatten(1)


@torch.no_grad()
def test_critical_points_alone_give_the_output():
    x = torch.randn(3, 40, 3, dtype=torch.float64)
    small = DeepSets(mlp([3, 6]), nn.Identity(), aggregate="max").double()
    plain = drawn(width=16, transforms=(False, False))
    for net, width in ((plain, 16), (drawn(width=16), 48), (small, 6)):
        found = critical_set(net, x)
        assert found.features == width
        assert found.wins.sum(1).tolist() == [width] * 3
        assert bool((found.mask.sum(1) <= width).all())
        assert float(found.gap.max()) < 1e-12
        for i in range(3):
            torch.testing.assert_close(net(x[i][found.mask[i]][None]), net(x[i : i + 1]))
    net = DeepSets(mlp([3, 6]), nn.Identity(), aggregate="max").double()
    assert critical_set(net, x).mask[0].nonzero()[:, 0].tolist() == sorted(
        set(net.encoder(x[0]).argmax(0).tolist())
    )


@torch.no_grad()
def test_critical_points_of_other_modules():
    net, x = Foreign().double(), torch.randn(2, 3, 8, dtype=torch.float64)  # 8 points, 8 channels
    found = critical_set(net, x, dim=2)
    assert found.features == 8
    assert found.gap.max() < 1e-12
    z = net.conv(x)
    assert (z - z.amax(1, keepdim=True))[1].argmax(1).unique().tolist() == (
        found.mask[1].nonzero()[:, 0].tolist()
    )
    mixed = nn.Sequential(_Both())
    assert critical_set(mixed, torch.randn(1, 9, 2)).gap > 1e-3  # a sum sees all points


class _Both(nn.Module):
    def forward(self, x):
        return x.amax(1) + x.sum(1)


def test_critical_points_of_padded_clouds():
    net, x = drawn(width=16), torch.randn(3, 9, 3, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([[9], [4], [1]])
    found = critical_set(net, x, mask=mask)
    assert not bool((found.mask & ~mask).any())
    assert found.mask[2].tolist() == [True] + [False] * 8
    assert critical_set(net, x[1:2, :4]).mask[0].equal(found.mask[1, :4])


def test_critical_set_keeps_the_laws():
    models = {"PointNet": PointNet(3, 2, width=16), "DeepSets": DeepSets(
        mlp([3, 6]), nn.Linear(6, 2), aggregate="max")}  # fmt: skip

    def rows(model, x):
        found = critical_set(model, x)
        return found.mask, found.wins, found.gap

    check_instrument(rows, models, torch.randn(4, 20, 3), per_example=True, outputs=None)
