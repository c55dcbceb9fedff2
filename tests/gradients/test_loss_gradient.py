"""The gradient of a loss as one vector, and what all derivatives of losses share."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.gradients.nets import NETS, call, close, make
from tests.gradients.test_jacobian import Peak
from vademecum.gradients import _example_passes
from vademecum.gradients._example_passes import passes
from vademecum.gradients._independent_rows import study
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.loss_gradient import gradient
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian, hvp, jvp, vjp
from vademecum.models import mlp
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


@pytest.mark.parametrize("name", NETS)
def test_it_is_autograd_s_gradient(name):
    net, x, y = make(name)
    before = snapshot(net.train())
    found = gradient(net, x, y)
    assert not list(changes(before, snapshot(net)))
    value = F.cross_entropy(call(net, x), y)
    wanted = torch.autograd.grad(value, list(net.parameters()), materialize_grads=True)
    close(name, found, torch.cat([g.flatten() for g in wanted]).to(found.dtype))


def test_of_a_sum_it_is_the_sum_of_the_examples_own():
    net, x, y = make("residual")
    whole = gradient(net, x, y, loss=lambda z, y: F.cross_entropy(z, y, reduction="sum"))
    torch.testing.assert_close(whole, per_example_gradients(net, x, y).sum(0))


def test_the_default_for_numbers_is_the_mean_squared_error():
    net, x, y = nn.Linear(3, 2).double(), torch.randn(4, 3).double(), torch.randn(4, 2).double()
    given: Any = {"loss": F.mse_loss}
    for f in (gradient, per_example_gradients, gradient_norms):
        torch.testing.assert_close(f(net, x, y), f(net, x, y, **given))
    torch.testing.assert_close(hessian(net, x, y).dense(), hessian(net, x, y, **given).dense())
    v = torch.randn(8).double()
    torch.testing.assert_close(hvp(net, x, y, v), hvp(net, x, y, v, **given))


def test_frozen_parameters_are_left_out_on_request():
    net, x, y = make("residual")
    whole = functional(net).unravel(gradient(net, x, y))
    net.get_submodule("first").requires_grad_(False)
    found = functional(net, frozen=False).unravel(gradient(net, x, y, frozen=False))
    assert set(whole) - set(found) == {"first.weight", "first.bias"}
    for name, part in found.items():
        torch.testing.assert_close(part, whole[name])


def test_laws():
    def instrument(model, data):
        return gradient(model, *data)

    data = torch.randn(6, 2, 3), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), data, skip=without)


X, Y, NET = torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), nn.Linear(3, 2)
ERRORS = [
    ((nn.ReLU(), X, Y), {}, "model must have parameters to differentiate, got none"),
    ((NET, X * torch.nan, Y), {}, "x must be finite, got nan"),
    ((NET, X, None), {}, "y must be a tensor unless a loss is given, got NoneType"),
    ((NET, X, Y), {"loss": lambda z, y: z}, r"one differentiable number, got .* \(4, 2\)"),
    ((NET, X, Y), {"loss": lambda z, y: 1.0}, "one differentiable number, got float"),
    ((NET, X, Y), {"output": "b"}, "output must be an entry"),
    ((nn.LSTM(3, 2), X, Y), {}, "model must give a tensor, got tuple: say which entry counts"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "knobs", "message"), ERRORS)
def test_errors(arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        gradient(*arguments, **knobs)


# Outputs of any structure


class Scores(NamedTuple):
    hidden: Tensor
    logits: Tensor


class Structured(nn.Module):
    """Gives a dict, a tuple or an object with logits, as models of other libraries do."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.first, self.second = kind, nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        z = self.second(h)
        made = {"tuple": (h, z), "dict": {"hidden": h, "scores": z}, "logits": Scores(h, z)}
        return made[self.kind]


@pytest.mark.parametrize(("kind", "output"), [("tuple", 1), ("dict", "scores"), ("logits", None)])
def test_outputs_of_any_structure(kind, output):
    net = Structured(kind)
    plain = nn.Sequential(net.first, nn.Tanh(), net.second)
    v, u, w = torch.randn(26), torch.randn(4, 2), torch.randn(26)
    for f, more in [(gradient, ()), (per_example_gradients, ()), (gradient_norms, ()), (hvp, (w,))]:
        found, wanted = f(net, X, Y, *more, output=output), f(plain, X, Y, *more)
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(jvp(net, X, v, output=output), jvp(plain, X, v))
    torch.testing.assert_close(vjp(net, X, u, output=output), vjp(plain, X, u))
    for wrt in ("theta", "x"):
        J = jacobian(net, X, wrt=wrt, output=output)
        torch.testing.assert_close(J.dense(), jacobian(plain, X, wrt=wrt).dense())
    H = hessian(net, X, Y, output=output)
    torch.testing.assert_close(H.dense(), hessian(plain, X, Y).dense())


# Memory, progress, failures


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = (
            nn.MultiheadAttention(2, 1, batch_first=True, add_zero_attn=True),
            nn.Linear(2, 3),
        )

    def forward(self, x):
        return self.out(self.layer(x, x, x, need_weights=False)[0].mean(1))


def test_activations_count_for_portions():
    net, x, y = Attention(), torch.randn(20, 64, 2), torch.arange(20) % 3
    f = functional(net)
    one = f.size * 4 + study(f, x).saved
    assert study(f, x).saved > 64 * 64 * 4  # the matrix of attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_example_passes, "_PORTION", 7 * one)
        parts = [part for part, *_ in passes(f, F.cross_entropy, x, y, None, progress=False)]
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    assert [part.stop - part.start for part in parts] == [6, 7, 7]
    torch.testing.assert_close(found, per_example_gradients(net, x, y, loss=F.cross_entropy))


@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
@pytest.mark.parametrize("name", ["covered", "by hand"])
def test_memory_suffices(name, instrument):
    net: Any = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10))
    if name == "by hand":  # a use of a parameter that no rule knows
        net.register_forward_hook(lambda module, args, z: (z.mT * net[3].bias[:, None]).mT)
    x, y, memory = (
        torch.randn(64, 1, 8, 8),
        torch.arange(64) % 10,
        10**5 if name == "covered" else 4 * 10**5,
    )
    wanted = instrument(net, x, y)
    with Peak() as free:
        instrument(net, x, y)
    with Peak() as peak:
        found = instrument(net, x, y, memory=memory)
    torch.testing.assert_close(found, wanted)
    assert peak.most - found.nbytes <= memory < free.most - found.nbytes
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one example, got 9"):
        instrument(net, x, y, memory=9)


def test_progress_is_shown_on_request(capsys):
    net, x, y = mlp([3, 4, 2]), X, Y
    for shown in (False, True):
        per_example_gradients(net, x, y, progress=shown)
        gradient_norms(net, x, y, progress=shown)
        jacobian(net, x, progress=shown).blocks()
        jacobian(net, x, wrt="x", progress=shown).dense()
        out, err = capsys.readouterr()
        assert not out
        assert err.count("4/4 examples") == (4 if shown else 0)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("[alloc_cpu.cpp] failed")]
)
@pytest.mark.parametrize("name", ["residual", "time first"])
def test_memory_that_runs_out_is_no_reason_for_a_slower_way(name, error, monkeypatch):
    def vmap(function, *_):
        raise error

    net, x, y = make(name)
    monkeypatch.setattr(torch.func, "vmap", vmap)
    for f in (per_example_gradients, gradient_norms):
        with pytest.raises(type(error), match=str(error)[-6:]):
            f(net, x, y)
    if name == "time first":
        with pytest.raises(type(error), match=str(error)[-6:]):
            jacobian(net, x).dense()


class FewOnly(nn.Linear):
    """Fails for three examples, as a model with a fixed number of them does."""

    error: Exception

    def forward(self, input):
        if len(input) == 3:
            raise self.error
        return super().forward(input)


def test_a_fixed_number_of_examples_has_a_dense_jacobian_only():
    net = FewOnly(3, 2)
    net.error = RuntimeError("shape '[4, 3]' is invalid")
    wanted = jacobian(nn.Linear(3, 2), X).dense()
    torch.testing.assert_close(jacobian(net, X).dense(), wanted)
    with pytest.raises(ValueError, match="model must take any number of examples: shape"):
        jacobian(net, X).blocks()
    net.error = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        jacobian(net, X).dense()
