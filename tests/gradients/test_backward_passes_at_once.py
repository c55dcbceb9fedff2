"""Jacobians in inputs by backward passes that go together, as on a GPU, against autograd's rows."""

import pytest
import torch
from torch import Tensor, nn

from tests.gradients.nets import call, close, make
from vademecum.gradients import _jacobian_blocks as blocks
from vademecum.gradients import _recorded_pass as recorded_pass
from vademecum.gradients import jacobian
from vademecum.models import SlowPathWarning


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    for module in (blocks, recorded_pass):
        monkeypatch.setattr(module, "ONE_BY_ONE", set())


def own_blocks(net: nn.Module, x: Tensor) -> Tensor:
    """The derivatives of each example's outputs in its inputs."""
    wanted = torch.autograd.functional.jacobian(lambda x: call(net, x), x)
    assert isinstance(wanted, Tensor)
    return torch.stack([wanted[i, :, i].flatten(1) for i in range(len(x))])


@pytest.mark.parametrize("name", ["residual", "along a line", "attention", "norms"])
def test_all_at_once(name, monkeypatch):
    counts, together = list[int](), blocks.together

    def counted(pull, u):
        counts.append(len(u))
        return together(pull, u)

    monkeypatch.setattr(blocks, "together", counted)
    net, x, _ = make(name)
    wanted = own_blocks(net, x)
    close(name, jacobian(net, x, wrt="x").blocks(), wanted)
    assert counts == [wanted.shape[1]]
    close(name, jacobian(net, x, wrt="x", memory=10**9).blocks(), wanted)
    assert len(counts) == 1  # where memory is short they go in turn


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_an_error_of_a_hundredth_is_seen_at_any_size(size, monkeypatch):
    class Scaled(nn.Sequential):
        def forward(self, input):
            return size * super().forward(input)

    net = Scaled(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, together = torch.randn(5, 3).double(), blocks.together

    def wrongly(pull, u):
        found = together(pull, u)
        assert found is not None
        return [None if g is None else 0.99 * g for g in found]

    monkeypatch.setattr(blocks, "together", wrongly)
    with pytest.warns(SlowPathWarning, match="all at once they give others"):
        found = jacobian(net, x, wrt="x").blocks()
    torch.testing.assert_close(found / size, own_blocks(net, x) / size)


@pytest.mark.parametrize("limit", [10**4, 10**9])
def test_outputs_that_are_too_many_go_in_turn(limit, monkeypatch):
    net, x = nn.Sequential(nn.Linear(3, 40), nn.Tanh()).double(), torch.randn(5, 3).double()
    counts = list[int]()
    monkeypatch.setattr(blocks, "_PORTION", {"cpu": limit})
    monkeypatch.setattr(blocks, "together", lambda pull, u: counts.append(len(u)))
    torch.testing.assert_close(jacobian(net, x, wrt="x").blocks(), own_blocks(net, x))
    assert counts == ([40] if limit == 10**9 else [])
