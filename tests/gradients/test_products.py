"""Products with Jacobians and Hessians against the matrices from autograd."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import NETS, call, close, make
from tests.gradients.test_per_example import AcrossExamples, Argmax, Detached
from vademecum.gradients.network_function import functional
from vademecum.gradients.products import hessian, hvp, jvp, vjp
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


SMOOTH = sorted(  # no kinks; and torch leaves the padding token out of gradients
    NETS.keys()
    - {"residual", "norms", "planar", "along a line", "words", "time first", "two precisions"}
)


CENTRAL: Any = {"rtol": 1e-5, "atol": 1e-6}  # a hundred times the square of the step


def central(value, theta, step=1e-4):
    """The Hessian from differences of gradients, which also rounds by the precision / step."""
    e = step * torch.eye(len(theta), dtype=theta.dtype)
    gradients = [torch.func.grad(value)(theta + d) - torch.func.grad(value)(theta - d) for d in e]
    return torch.stack(gradients) / (2 * step)


@pytest.mark.parametrize("name", NETS)
def test_hessian_and_hvp(name):
    net, x, y = make(name, 3)
    f = functional(net.train())
    v = torch.randn(f.size, 2).double()
    before = snapshot(net)
    H = hessian(net, x, y, loss=F.cross_entropy)
    found = H @ v
    assert not list(changes(before, snapshot(net)))
    if name != "attention":  # whose fast kernel has no second derivative
        parameters = list(net.parameters())
        value = F.cross_entropy(call(net, x), y)
        plain = torch.autograd.grad(value, parameters, create_graph=True)
        parts = list(f.unravel(v[:, 0]).values())
        wanted = torch.autograd.grad(plain, parameters, parts)
        close(name, found[:, 0], torch.cat([g.flatten().to(f.dtype) for g in wanted]))
    w = torch.randn(f.size).double()
    close(name, (H @ w) @ v, w @ found)
    torch.testing.assert_close(hvp(net, x, y, v[:, 0], loss=F.cross_entropy), found[:, 0])
    torch.testing.assert_close(H @ v, found, rtol=0, atol=0)  # the graph is still there


@pytest.mark.parametrize("name", SMOOTH)
def test_hessian_as_a_matrix(name):
    net, x, y = make(name, 3)
    f = functional(net)
    wanted = central(lambda theta: F.cross_entropy(f(theta, x), y), f.theta)
    torch.testing.assert_close(hessian(net, x, y, loss=F.cross_entropy).dense(), wanted, **CENTRAL)


def test_hessian_over_examples_that_influence_each_other():
    net, x, y = AcrossExamples(3, 2).double(), torch.randn(4, 3).double(), torch.randint(2, (4,))
    f = functional(net)
    wanted = central(lambda theta: F.cross_entropy(f(theta, x), y), f.theta)
    torch.testing.assert_close(hessian(net, x, y, loss=F.cross_entropy).dense(), wanted, **CENTRAL)


@pytest.mark.parametrize("name", ["keywords", "norms", "language", "recurrent"])
def test_jvp_and_vjp(name):
    net, x, _ = make(name)
    f = functional(net)
    v = torch.randn_like(f.theta)
    out, moved, *_ = torch.func.jvp(lambda theta: f(theta, x), (f.theta,), (v,))
    torch.testing.assert_close(jvp(net, x, v), moved)
    u = torch.randn_like(out)
    (back,) = torch.func.vjp(lambda theta: f(theta, x), f.theta)[1](u)
    torch.testing.assert_close(vjp(net, x, u), back)


def test_jvp_and_vjp_in_inputs():
    net, x, _ = make("norms")
    f, v = functional(net), torch.randn_like(x)
    out, moved, *_ = torch.func.jvp(lambda x: f(f.theta, x), (x,), (v,))
    torch.testing.assert_close(jvp(net, x, v, wrt="x"), moved)
    u = torch.randn_like(out)
    (back,) = torch.func.vjp(lambda x: f(f.theta, x), x)[1](u)
    torch.testing.assert_close(vjp(net, x, u, wrt="x"), back)


def test_one_product_takes_one_pass_forwards():
    net, x, _ = make("residual")
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    jvp(net, x, torch.ones(functional(net).size).double())
    vjp(net, x, torch.ones(5, 3).double())
    vjp(net, x, torch.ones(5, 3).double(), wrt="x")
    assert len(calls) == 3


def test_a_linear_model_has_no_curvature():
    x, y = torch.randn(3, 2), torch.zeros(3, 1)
    H = hessian(nn.Linear(2, 1), x, y, loss=lambda z, y: (z - y).sum())
    assert (H.dense() == 0).all()


def test_frozen_parameters_are_left_out_on_request():
    net, x, y = make("twice", 3)
    whole = hessian(net, x, y, loss=F.cross_entropy).dense()
    net[4].requires_grad_(False)
    part = hessian(net, x, y, loss=F.cross_entropy, frozen=False).dense()
    torch.testing.assert_close(part, whole[:30, :30])


def test_laws():
    def instrument(model, data):
        theta = functional(model).theta
        x, y = data
        return (
            hvp(model, x, y, torch.ones_like(theta), loss=F.cross_entropy),
            jvp(model, x, torch.ones_like(theta)),
            vjp(model, x, torch.ones(len(x), 3)),
        )

    data = torch.randn(6, 5), torch.randint(3, (6,))
    without = {"no_parameters": "there is nothing to differentiate"}
    check_instrument(instrument, nn.Linear(5, 3), data, skip=without)


X, Y = torch.linspace(-1, 1, 12).view(4, 3).sin(), torch.tensor([0, 1, 0, 1])
NET, CE = nn.Linear(3, 2), F.cross_entropy
ERRORS = [
    (
        lambda: hessian(nn.ReLU(), X, Y, loss=CE),
        "model must have parameters to differentiate, got none",
    ),
    (lambda: hessian(NET, X * math.nan, Y, loss=CE), "x must be finite, got nan"),
    (lambda: hessian(NET, X[:0], Y[:0], loss=CE), "x must not be empty"),
    (
        lambda: hessian(NET, X, Y, loss=lambda z, y: z),
        r"one differentiable number, got .* \(4, 2\)",
    ),
    (lambda: hessian(NET, X, Y, loss=lambda z, y: z.detach().sum()), "one differentiable number"),
    (lambda: hessian(Argmax(3, 2), X, Y, loss=CE), "outputs of model must be floating point"),
    (lambda: hessian(Detached(3, 2), X, Y, loss=CE), "outputs of model must be differentiable"),
    (lambda: hvp(NET, X, Y, torch.ones(3), loss=CE), "x must have 8 rows"),
    (lambda: hvp(NET, X, Y, torch.ones(8) * math.nan, loss=CE), "v must be finite"),
    (lambda: jvp(NET, X, torch.ones(3)), r"v must have the shape \(8,\), got \(3,\)"),
    (lambda: jvp(NET, X, torch.ones(8).long()), "v must be floating point"),
    (lambda: jvp(NET, X, torch.ones(3), wrt="x"), r"v must have the shape \(4, 3\), got \(3,\)"),
    (lambda: vjp(NET, X, torch.ones(4)), r"u must have the shape \(4, 2\), got \(4,\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["planar", "attention", "recurrent"])
def test_cuda(name):
    net, x, y = make(name)
    v = torch.randn_like(functional(net).theta)
    wanted = hvp(net, x, y, v, loss=CE), jvp(net, x, v)
    net = net.cuda()
    found = hvp(net, x.cuda(), y.cuda(), v.cuda(), loss=CE), jvp(net, x.cuda(), v.cuda())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-6, atol=1e-8)
