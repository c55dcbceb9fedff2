"""Networks that have been studied before: fewer passes, and the same numbers."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gradients.test_whole_batches import INSTRUMENTS, Batch, N, data
from vademecum.gradients.network_function import functional


def without_graph(h, x):
    return h if torch.is_grad_enabled() else h + 0.1


@pytest.mark.parametrize("instrument", ["gradients", "norms"])
def test_a_model_that_computes_in_another_way_without_a_graph(instrument):
    net, (x, y) = Batch(without_graph).double(), data()
    first, *others = (INSTRUMENTS[instrument](net, x, y) for _ in range(3))
    for found in others:
        torch.testing.assert_close(found, first, rtol=0, atol=0)


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
