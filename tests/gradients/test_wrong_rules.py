"""Derivatives that `torch.func` maps wrongly are seen, and taken one after the other."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.gradients import jacobian, per_example_gradients
from vademecum.gradients.network_function import functional
from vademecum.models import SlowPathWarning, mapped_derivatives


class Distances(nn.Module):
    """Tokens weighted by their distances from positions; of both there are as many."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions, self.last = (
            nn.Embedding(7, 3),
            nn.Embedding(4, 3),
            nn.Linear(3, 2),
        )

    def forward(self, ids):
        h, p = self.tokens(ids), self.positions(torch.arange(4))
        return self.last((torch.cdist(h, p).sum(-1, keepdim=True) * h).mean(1))


def rows(model: nn.Module, output: Tensor) -> Tensor:
    """The Jacobian from a backward pass for each entry."""
    leaves = list(model.parameters())
    found = [torch.autograd.grad(entry, leaves, retain_graph=True, materialize_grads=True)
             for entry in output.flatten()]  # fmt: skip
    return torch.stack([torch.cat([g.flatten() for g in each]) for each in found])


def test_distances_from_what_all_examples_share():
    model, ids = Distances().double(), torch.randint(7, (4, 4))
    with pytest.warns(SlowPathWarning, match="gives others than a backward pass"):
        found = jacobian(model, ids).dense()
    torch.testing.assert_close(found, rows(model, model(ids)))


def shrunk(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: 0.99 * each for name, each in found.items()}


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("derivative", [torch.func.grad, torch.func.jacrev])
def test_an_error_of_a_hundredth_is_seen_at_any_size(size, derivative, monkeypatch):
    model, right = nn.Linear(3, 2).double(), torch.func.vmap
    x, y = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    monkeypatch.setattr(torch.func, "vmap", lambda f: lambda *args: shrunk(right(f)(*args)))

    def loss(z, y):
        return size * ((z - y).square().sum() if derivative is torch.func.grad else (z - y)[0])

    with pytest.warns(SlowPathWarning, match="gives others than a backward pass"):
        found = mapped_derivatives(functional(model), loss, x, y, derivative=derivative)["weight"]
    for i in range(5):
        value = loss(model(x[i, None]), y[i, None])
        wanted = [
            torch.autograd.grad(v, model.weight, retain_graph=True)[0] for v in value.flatten()
        ]
        one, other = found[i].flatten(), torch.stack(wanted).flatten()
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12 * size)


def test_right_rules_are_trusted():
    model, x, y = nn.PReLU().double(), torch.randn(5, 3).double(), torch.randn(5, 3).double()
    found = per_example_gradients(model, x, y, loss=F.mse_loss)
    wanted = [torch.autograd.grad(F.mse_loss(model(a), b), model.weight)[0]
              for a, b in zip(x, y, strict=True)]  # fmt: skip
    torch.testing.assert_close(found, torch.stack(wanted))
