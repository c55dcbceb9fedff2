"""Networks that have been studied before: fewer passes, and the same numbers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_whole_batches import INSTRUMENTS, Batch, N, data
from vademecum.gradients import _jacobian_blocks, jacobian
from vademecum.gradients.jacobian_operator import Jacobian
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients


def without_graph(h, x):
    return h if torch.is_grad_enabled() else h + 0.1


@pytest.mark.parametrize("instrument", ["gradients", "norms"])
def test_a_model_that_computes_in_another_way_without_a_graph(instrument):
    net, (x, y) = Batch(without_graph).double(), data()
    first, *others = (INSTRUMENTS[instrument](net, x, y) for _ in range(3))
    for found in others:
        torch.testing.assert_close(found, first, rtol=0, atol=0)


@pytest.mark.parametrize("instrument", ["gradients", "norms"])
def test_a_known_model_that_goes_another_way_is_studied_anew(instrument):
    """Nothing but its graph tells, and each example by itself would be its own mean."""
    together = list[bool]()
    net, (x, y) = Batch(lambda h, x: h - h.mean(0) if together else h).double(), data()
    INSTRUMENTS[instrument](net, x, y)
    together.append(True)
    for _ in range(2):
        with pytest.raises(ValueError, match="in evaluation mode"):
            INSTRUMENTS[instrument](net, x, y)


class Direct(nn.Module):
    """Its code calls the `forward` of a layer itself, and may fail."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        if x.shape[1] != 3:
            raise RuntimeError("three numbers, please")
        return self.last(self.first.forward(x).tanh())


def test_layers_whose_forward_is_called_directly():
    net, x, y = Direct().double(), torch.randn(5, 3).double(), torch.randn(5, 2).double()
    own = list(net.parameters())
    each = [torch.autograd.grad(mse_loss(net(a), b), own)
            for a, b in zip(x.split(1), y.split(1), strict=True)]  # fmt: skip
    wanted = torch.stack([torch.cat([g.flatten() for g in one]) for one in each])
    torch.testing.assert_close(per_example_gradients(net, x, y, loss=mse_loss), wanted)
    with pytest.raises(RuntimeError, match="three numbers"):
        per_example_gradients(net, x[:, :2], y, loss=mse_loss)
    assert all("forward" not in vars(module) for module in net.modules())


class Looks(TorchDispatchMode):
    """Counts what would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.name() in ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_passes_of_a_network_that_is_known(instrument):
    """One of all, one of three and one of two others, and one look at how they differ."""
    net, (x, y), passes = Batch(lambda h, x: h).double(), data(), []
    net.register_forward_pre_hook(
        lambda _, args: passes.append((len(args[0]), torch.is_grad_enabled()))
    )
    INSTRUMENTS[instrument](net, x, y)
    passes.clear()
    with Looks() as looks:
        INSTRUMENTS[instrument](net, x, y)
    assert passes == [(3, False), (N, True), (2, False)]
    assert looks.count == 1


def test_passes_with_one_example():
    """Copies of it keep each other company once: another pass would be the same."""
    net, (x, y), passes = Batch(lambda h, x: h).double(), data(), list[int]()
    net.register_forward_pre_hook(lambda _, args: passes.append(len(args[0])))
    per_example_gradients(net, x[:1], y[:1], loss=F.cross_entropy)
    assert sorted(passes) == [1, 2, 3]


@pytest.mark.parametrize("known", [False, True])
def test_a_jacobian_that_is_larger_than_a_portion(known, monkeypatch):
    """Rows that rules write at once take no room before: one pass, where portions take several."""
    net, (x, _) = Batch(lambda h, x: h.tanh()).double(), data()
    size = sum(p.numel() for p in net.parameters())
    bytes_of_one = 3 * size * 8  # three outputs, in double precision
    monkeypatch.setattr(_jacobian_blocks, "_PORTION", {"cpu": 5 * bytes_of_one})
    passes = list[tuple[int, bool]]()
    net.register_forward_pre_hook(
        lambda _, args: passes.append((len(args[0]), torch.is_grad_enabled()))
    )
    if known:
        INSTRUMENTS["jacobian"](net, x, None)
    wanted = by_rows(net, x).view(N, 3, size)
    passes.clear()
    found = jacobian(net, x).blocks()
    assert [n for n, graph in passes if graph][-1] == N
    assert len(passes) == (3 if known else 4)
    torch.testing.assert_close(found, wanted)
    chunks = [block for _, block in jacobian(net, x).chunks()]
    assert len(chunks) > 1
    assert max(block.nbytes for block in chunks) <= 5 * bytes_of_one
    torch.testing.assert_close(torch.cat(chunks), wanted)


class Normalised(nn.Module):
    """A weight that is computed of a parameter, whose gradient is formed before it is written."""

    def __init__(self):
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(F.linear(x, self.weight / self.weight.norm()).tanh())


def test_rows_that_are_formed_before_count_as_room(monkeypatch):
    net, (x, _) = Normalised().double(), data()
    wanted = by_rows(net, x)
    monkeypatch.setattr(_jacobian_blocks, "_PORTION", {"cpu": 10**4})
    J = Jacobian(net, x)
    torch.testing.assert_close(J.dense(), wanted)
    assert J._blocks.plan.covered
    passes = list[tuple[int, bool]]()
    net.register_forward_pre_hook(
        lambda _, args: passes.append((len(args[0]), torch.is_grad_enabled()))
    )
    torch.testing.assert_close(jacobian(net, x).blocks().flatten(0, 1), wanted)
    assert max(n for n, graph in passes if graph) < N


def test_a_submodule_that_is_another_one_now():
    """A function that was made before has its parameters in the places of those that are new."""
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Dropout()), torch.randn(5, 4)
    f, wanted = functional(net), net[0](x)
    net[0], net[1] = nn.Linear(4, 3), nn.Dropout(0.9)
    torch.testing.assert_close(f(f.theta, x), wanted, rtol=0, atol=0)
    assert all(module.training for module in net.modules())
