"""Networks on sets: every layout against single sets, order, empty sets, gradients twice."""

import math

import pytest
import torch
from torch import Tensor, nn

from vademecum.geometry import DeepSets, PointNet
from vademecum.models import mlp
from vademecum.testing import check_part

SIZES = (4, 1, 7, 3)


def clouds(d: int = 3) -> list[Tensor]:
    return [torch.randn(M, d, dtype=torch.float64) for M in SIZES]


def padded(sets: list[Tensor], *, junk: float = math.nan) -> tuple[Tensor, Tensor]:
    M = max(map(len, sets)) + 1
    x = torch.full((len(sets), M, sets[0].shape[1]), junk, dtype=torch.float64)
    mask = torch.zeros(len(sets), M, dtype=torch.bool)
    for i, each in enumerate(sets):
        places = torch.randperm(M)[: len(each)].sort().values
        x[i, places], mask[i, places] = each, True
    return x, mask


def packed(sets: list[Tensor], *, mixed: bool = False) -> tuple[Tensor, Tensor]:
    x = torch.cat(sets)
    segments = torch.arange(len(sets)).repeat_interleave(torch.tensor([len(s) for s in sets]))
    order = torch.randperm(len(x)) if mixed else torch.arange(len(x))
    return x[order], segments[order]


def nets() -> dict[str, nn.Module]:
    made: dict[str, nn.Module] = {
        f"{how} {equivariant}": DeepSets(
            mlp([3, 8, 5], nn.Tanh), mlp([8 if equivariant else 5, 6, 2], nn.Tanh),
            aggregate=how, equivariant=equivariant,
        )
        for how in ("sum", "mean", "max")
        for equivariant in (False, True)
    }  # fmt: skip
    for task in ("classification", "segmentation"):
        made[task] = PointNet(3, 2, task=task, width=32)
    for net in made.values():
        for p in net.parameters():
            nn.init.normal_(p, 0, 0.5)
        net.double().eval()
    return made


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", nets())
def test_a_set_gives_the_same_alone_padded_and_packed(name):
    net, sets = nets()[name], clouds()
    alone = [net(s[None])[0] for s in sets]
    x, mask = padded(sets)
    y = net(x, mask=mask)
    rows, segments = packed(sets, mixed=True)
    z = net(rows, segments=segments)
    for i, wanted in enumerate(alone):
        if wanted.ndim == 1:
            close(y[i], wanted)
            close(z[i], wanted)
        else:
            close(y[i][mask[i]], wanted)
            assert not y[i][~mask[i]].any()
            got = z[segments == i]
            order = [int((sets[i] == row).all(1).nonzero()) for row in rows[segments == i]]
            close(got, wanted[order])


@pytest.mark.parametrize("name", ["sum False", "max True", "classification"])
def test_a_set_gives_the_same_among_a_thousand(name):
    net, rest = nets()[name], [torch.randn(1 + i % 9, 3, dtype=torch.float64) for i in range(999)]
    rows, segments = packed([clouds()[0], *rest])
    first = rows[segments == 0]
    alone, among = net(first[None]), net(rows, segments=segments)
    close(among[: len(first)] if among.shape[0] == len(rows) else among[0], alone[0])


@pytest.mark.parametrize("name", nets())
def test_order_does_not_matter(name):
    net, x = nets()[name], torch.randn(2, 6, 3, dtype=torch.float64)
    order = torch.randperm(6)
    y = net(x)
    close(net(x[:, order]), y[:, order] if y.ndim == 3 else y)


def test_padding_enters_no_statistic():
    sets = clouds()
    x, mask = padded(sets)
    pair = []
    for given, how in ((x, {"mask": mask}), (packed(sets)[0], {"segments": packed(sets)[1]})):
        torch.manual_seed(0)
        net = PointNet(3, 2, width=32, dropout=0.0).double().train()
        for p in net.parameters():
            nn.init.normal_(p, 0, 0.5)
        net(given, **how)
        pair.append(dict(net.named_buffers()))
        first = net.points[1]
        assert isinstance(first, nn.BatchNorm1d)
    for name, buffer in pair[0].items():
        close(buffer.double(), pair[1][name].double())
    net = DeepSets(nn.BatchNorm1d(3), nn.Identity(), aggregate="mean").double()
    net(x, mask=mask)
    norm = net.encoder
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    close(norm.running_mean, 0.1 * torch.cat(sets).mean(0))


def test_empty_sets_have_the_sum_zero():
    net = DeepSets(nn.Linear(3, 2), nn.Identity()).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    y = net(x, segments=torch.tensor([0, 0, 2, 2, 2]), num_sets=4)
    assert not y[1].any()
    assert not y[3].any()
    close(y[0], net(x[None, :2])[0])
    mask = torch.tensor([[True, False], [False, False]])
    assert not net(torch.randn(2, 2, 3, dtype=torch.float64), mask=mask)[1].any()
    assert net(torch.zeros(2, 0, 3, dtype=torch.float64)).tolist() == [[0, 0], [0, 0]]
    assert net(x[:0], segments=torch.tensor([], dtype=torch.long)).shape == (0, 2)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
@pytest.mark.parametrize("layout", ["mask", "segments"])
def test_gradients_twice(how, layout):
    net, sets = DeepSets(mlp([3, 4], nn.Tanh), nn.Tanh(), aggregate=how).double(), clouds()
    x, given = padded(sets, junk=0.0) if layout == "mask" else packed(sets, mixed=True)
    x.requires_grad_()

    def call(x):
        return net(x, **{layout: given})

    assert torch.autograd.gradcheck(call, (x,))
    assert torch.autograd.gradgradcheck(call, (x,))


def test_of_equal_maxima_the_first_gets_the_gradient():
    net = DeepSets(nn.Identity(), nn.Identity(), aggregate="max")
    for given in ({}, {"segments": torch.tensor([0, 0, 0, 1])}, {"mask": torch.ones(1, 4).bool()}):
        x = torch.tensor([[1.0], [2.0], [2.0], [0.0]], requires_grad=True)
        net(x if "segments" in given else x[None], **given)[0].sum().backward()
        assert x.grad is not None
        assert x.grad.flatten().tolist() == [0, 1, 0, 0]


PARTS = {
    "invariant": lambda: DeepSets(mlp([3, 8, 5]), mlp([5, 2])),
    "equivariant": lambda: DeepSets(mlp([3, 8, 5]), mlp([8, 2]), aggregate="max", equivariant=True),
    "PointNet": lambda: PointNet(3, 2, width=32),
    "segments": lambda: PointNet(3, 2, width=32, task="segmentation", transforms=(False, True)),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    part = PARTS[name]()
    for p in part.parameters():
        nn.init.normal_(p, 0, 0.5)
    check_part(part, torch.randn(3, 6, 3), devices=("cpu", "meta"))


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_elements_that_are_nan_spoil_their_own_set_alone(how):
    net = DeepSets(nn.Identity(), nn.Identity(), aggregate=how)
    sets = clouds()
    sets[2][3, 1] = torch.nan
    x, segments = packed(sets)
    wanted = torch.stack([net(each[None])[0] for each in sets])
    found = net(x, segments=segments)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert found.isnan().nonzero().tolist() == [[2, 1]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_cuda_gives_the_same_bits_twice_and_the_numbers_of_the_cpu(how):
    net = DeepSets(nn.Identity(), nn.Identity(), aggregate=how).cuda()
    x, segments = torch.randn(100_000, 8), torch.randint(50, (100_000,))
    runs, grads = [], []
    for _ in range(2):
        z = x.cuda().requires_grad_()
        y = net(z, segments=segments.cuda())
        y.square().sum().backward()
        assert z.grad is not None
        runs.append(y.detach())
        grads.append(z.grad)
    assert runs[0].equal(runs[1])
    assert grads[0].equal(grads[1])
    torch.testing.assert_close(runs[0].cpu(), net.cpu()(x, segments=segments), rtol=1e-4, atol=1e-3)
