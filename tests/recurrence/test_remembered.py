"""What linear recurrent units keep between steps is never that of other parameters."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize, vector_to_parameters

from vademecum.recurrence import LRU
from vademecum.recurrence._remembered import Remembered


def layer_of(net: LRU) -> Any:
    return net.layers[0]


def by_hand(net: LRU, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """A step of the equation, from the parameters as they are."""
    layer = layer_of(net)
    B = torch.complex(layer.B[0::2], layer.B[1::2])
    C = torch.complex(layer.C[:, 0::2], -layer.C[:, 1::2])
    a = torch.exp(torch.complex(-layer.nu.exp(), layer.theta))
    h = a * h + layer.log_gamma.exp() * (x.to(B.dtype) @ B.T)
    r = (h @ C.T).real + layer.D * x + layer.bias
    return x + layer.activation(r) @ layer.W.T, h


def made() -> tuple[LRU, Tensor, Tensor]:
    """A unit that has gone some steps without gradients."""
    net, x = LRU(3, 5, r_min=0.3, r_max=0.9).double(), torch.randn(2, 3).double()
    h = torch.randn(1, 2, 5, dtype=torch.complex128)
    with torch.no_grad():
        net.step(x, h)
        net.step(x, h)
    return net, x, h


def insist(net: LRU, x: Tensor, h: Tensor) -> None:
    y, state = net.step(x, h)
    wanted, following = by_hand(net, x, h[0])
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state[0], following, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(net(x[:, None], h).output[:, 0], wanted, rtol=1e-12, atol=1e-12)


def by_data(p: nn.Parameter) -> None:
    p.data.add_(0.1)  # which no version counter sees


def by_numpy(p: nn.Parameter) -> None:
    p.detach().numpy()[1] += 0.1


def by_exchange(p: nn.Parameter) -> None:
    p.data = p.data + 0.1


def by_an_optimiser(p: nn.Parameter) -> None:
    p.grad = torch.ones_like(p)
    torch.optim.SGD([p], lr=0.1).step()


def by_a_vector(p: nn.Parameter) -> None:
    flat = p.detach().clone()
    vector_to_parameters(flat, [p])
    flat += 0.1


@pytest.mark.parametrize("name", ["nu", "theta", "log_gamma", "B"])
@pytest.mark.parametrize("change", [by_data, by_numpy, by_exchange, by_an_optimiser, by_a_vector])
def test_a_changed_parameter_is_noticed(name, change):
    net, x, h = made()
    before = net.step(x, h).state
    change(getattr(layer_of(net), name))
    with torch.no_grad():
        insist(net, x, h)
        assert not torch.allclose(net.step(x, h).state, before)


def test_other_weights_another_precision_and_copies():
    net, x, h = made()
    other = LRU(3, 5).double()
    with torch.no_grad():
        net.load_state_dict(other.state_dict())
        insist(net, x, h)
        for same in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            layer_of(same).nu += 0.3
            insist(same, x, h)
        insist(net, x, h)
        single = net.float().step(x.float(), h.to(torch.complex64))
        assert single.output.dtype == torch.float32
        insist(net.double(), x, h)
        layer_of(net).nu[0] = torch.nan
        assert net.step(x, h).state.isnan().any()


def test_gradients_flow_after_steps_without_any():
    net, x, h = made()
    with torch.inference_mode():
        net.step(x, h)
    found = torch.autograd.grad(net.step(x, h).output.sin().sum(), list(net.parameters()))
    wanted = torch.autograd.grad(by_hand(net, x, h[0])[0].sin().sum(), list(net.parameters()))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_what_stands_in_for_parameters_is_not_remembered():
    net, x, h = made()
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def step(nu: Tensor) -> Tensor:
        given = {**weights, "layers.0.nu": nu}
        return torch.func.functional_call(Stepping(net), put(given), (x, h))

    nu = weights["layers.0.nu"]
    many = torch.stack((nu, nu + 0.2))
    each = torch.stack([step(one) for one in many])
    torch.testing.assert_close(torch.func.vmap(step)(many), each, rtol=1e-12, atol=1e-12)
    slope = (step(nu + 1e-6) - step(nu - 1e-6)) / 2e-6
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(step(forward_ad.make_dual(nu, torch.ones_like(nu))))
    torch.testing.assert_close(tangent.tangent, slope, rtol=1e-6, atol=1e-8)
    insist(net, x, h)


class Stepping(nn.Module):
    """A network that is called for a step."""

    def __init__(self, net: LRU):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.net.step(x, h).output


def put(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"net.{name}": value for name, value in weights.items()}


class Shifted(nn.Module):
    def forward(self, p: Tensor) -> Tensor:
        return p + 0.2


def test_parametrised_weights():
    net, x, h = made()
    parametrize.register_parametrization(layer_of(net), "nu", Shifted())
    with torch.no_grad():
        insist(net, x, h)
        layer_of(net).parametrizations.nu.original += 0.1
        insist(net, x, h)


def test_it_computes_once_for_the_same_values():
    calls: list[int] = []
    total = Remembered(lambda p, q: calls.append(1) or p.sum() + q.sum())
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    with torch.no_grad():
        assert [float(total(p, q)) for _ in range(3)] == [5, 5, 5]
        assert len(calls) == 1
        q[2] = 2
        assert float(total(p, q)) == 6
        p.data, q.data = p.data.double(), q.data.double()  # the same values
        assert total(p, q).dtype == torch.float64
    assert total(p, q).requires_grad
    assert len(calls) == 4
