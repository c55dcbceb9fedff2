"""Networks that have been studied before: fewer passes, and the same numbers."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gradients.test_whole_batches import INSTRUMENTS, Batch, N, data
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
    """One of three examples without a graph, one of all, and one look at what they differ in."""
    net, (x, y), passes = Batch(lambda h, x: h).double(), data(), []
    net.register_forward_pre_hook(
        lambda _, args: passes.append((len(args[0]), torch.is_grad_enabled()))
    )
    INSTRUMENTS[instrument](net, x, y)
    passes.clear()
    with Looks() as looks:
        INSTRUMENTS[instrument](net, x, y)
    assert passes == [(3, False), (N, True)]
    assert looks.count == 1


def test_a_submodule_that_is_another_one_now():
    """A function that was made before has its parameters in the places of those that are new."""
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Dropout()), torch.randn(5, 4)
    f, wanted = functional(net), net[0](x)
    net[0], net[1] = nn.Linear(4, 3), nn.Dropout(0.9)
    torch.testing.assert_close(f(f.theta, x), wanted, rtol=0, atol=0)
    assert all(module.training for module in net.modules())
