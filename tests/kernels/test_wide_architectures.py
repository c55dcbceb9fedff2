"""Architectures that have a limit of infinite width, in the many ways they may be written."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.test_infinite_width import B, Residual, W, inputs, mlp
from tests.kernels.test_wide_refusals import Code
from tests.kernels.wide_oracles import dense_relu
from vademecum.expectations import GaussianExpectations
from vademecum.kernels import GaussianProcess, gram, infinite_width, ntk_parametrize

X = inputs(4, 3)


def kernels(model):
    limit = infinite_width(model, weight_variance=W, bias_variance=B)
    return limit.nngp(X), limit.ntk(X)


def relu(k):
    q = k.diagonal()
    r = (q[:, None] * q[None]).sqrt()
    angle = (k / r).clamp(-1, 1).fill_diagonal_(1).acos()
    value = r * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    return value, (math.pi - angle) / (2 * math.pi)


def layer(k, theta):
    new = W * k + B
    return new, new + W * theta


FIRST = layer(X @ X.T / 3, torch.zeros(4, 4, dtype=torch.float64))


def through_relu(pair):
    value, slope = relu(pair[0])
    return value, slope * pair[1]


def both(function, one, other):
    return tuple(function(a, b) for a, b in zip(one, other, strict=True))


BLOCK = layer(*through_relu(FIRST))  # two(relu(one(x)))
NORMED = tuple(t / torch.outer(*[(FIRST[0].diagonal() + 1e-5).sqrt()] * 2) for t in FIRST)

FEATURES = torch.cat([X.exp()[:, :2] / X.exp().sum(1, keepdim=True), X.max(1).values[:, None]], 1)

WRITTEN = {
    "residual": (
        lambda m, x: m.three((h := m.one(x)) + m.two(torch.relu(h))),
        lambda: layer(*both(torch.add, FIRST, BLOCK)),
    ),
    "a difference of multiples": (
        lambda m, x: m.three(0.5 * (h := m.one(x)) - m.two(torch.relu(h)) / 4),
        lambda: layer(*both(lambda a, b: a / 4 + b / 16, FIRST, BLOCK)),
    ),
    "alpha": (
        lambda m, x: m.three(torch.add(h := m.one(x), m.two(torch.relu(h)), alpha=3)),
        lambda: layer(*both(lambda a, b: a + 9 * b, FIRST, BLOCK)),
    ),
    "an activation kept": (
        lambda m, x: m.three((h := torch.relu(m.one(x))) + m.two(h)),
        lambda: layer(*both(torch.add, through_relu(FIRST), BLOCK)),
    ),
    "the input kept": (
        lambda m, x: m.three(x + m.two(torch.relu(m.one(x)))),
        lambda: layer(BLOCK[0] + X @ X.T / 3, BLOCK[1]),
    ),
    "in place": (
        lambda m, x: m.three(F.relu_(m.two(F.relu(m.one(x), inplace=True)))),
        lambda: layer(*through_relu(BLOCK)),
    ),
    "clamped": (
        lambda m, x: m.three(m.one(x).clamp(min=0).mul(2)),
        lambda: layer(*(4 * t for t in through_relu(FIRST))),
    ),
    "dropout and identity": (
        lambda m, x: m.three(F.dropout(m.one(x), 0.5, m.training).contiguous().relu()),
        lambda: layer(*through_relu(FIRST)),
    ),
    "normalised": (
        lambda m, x: m.three(F.layer_norm(m.one(x), (3,))),
        lambda: layer(*NORMED),
    ),
    "an input of its own": (
        lambda m, x: m.three(m.one((x - 0.5) * 2 + 1)),
        lambda: layer(*layer(2 * X @ (2 * X).T / 3, 0 * X @ X.T)),
    ),
    "features of the input": (
        lambda m, x: m.three(m.one(torch.cat([x.softmax(1)[:, :2], x.amax(1, keepdim=True)], 1))),
        lambda: layer(*layer(FEATURES @ FEATURES.T / 3, 0 * X @ X.T)),
    ),
    "twice the same": (
        lambda m, x: m.three((h := m.one(x)) + h),
        lambda: layer(*(4 * t for t in FIRST)),
    ),
    "views": (
        lambda m, x: m.three(m.one(x).view(len(x), 1, 3).transpose(1, 2).flatten(1).relu()),
        lambda: layer(*through_relu(FIRST)),
    ),
    "an output of one number": (
        lambda m, x: m.three(m.one(x).relu()).squeeze(-1),
        lambda: layer(*through_relu(FIRST)),
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_code_in_many_forms(name):
    code, wanted = WRITTEN[name]
    for one, other in zip(kernels(Code(code)), wanted(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_what_counts_of_the_output():
    wanted = infinite_width(Code(lambda m, x: m.three(torch.relu(m.one(x))))).ntk(X)
    for code, output in (
        (lambda m, x: {"aux": x, "main": m.three(torch.relu(m.one(x)))}, "main"),
        (lambda m, x: (x, m.three(torch.relu(m.one(x)))), 1),
    ):
        assert infinite_width(Code(code), output=output).ntk(X).equal(wanted)


def test_layers_without_biases_and_frozen_ones():
    """A frozen layer passes the tangent kernel on, and adds no term of its own."""
    model = Code(lambda m, x: m.three(torch.relu(m.one(x))))
    model.one.weight.requires_grad_(False)
    nngp, ntk = kernels(model)
    value, slope = relu(FIRST[0])
    torch.testing.assert_close(nngp, W * value + B)
    torch.testing.assert_close(ntk, W * value + B + W * slope * B)  # of the first biases alone
    model.one.requires_grad_(False)
    torch.testing.assert_close(kernels(model)[1], W * value + B)
    model.one.requires_grad_(True)
    model.three.weight.requires_grad_(False)
    torch.testing.assert_close(kernels(model)[1], B + W * slope * FIRST[1])
    model.one.bias.requires_grad_(False)
    torch.testing.assert_close(kernels(model)[1], B + W * slope * (FIRST[0] - B))
    model.three.bias.requires_grad_(False)
    torch.testing.assert_close(kernels(model)[1], W * slope * (FIRST[0] - B))


def test_normalisation_after_an_activation_takes_the_mean_away():
    """LayerNorm and RMSNorm after ReLU, whose mean is sqrt(q / 2 pi)."""
    q = FIRST[0].diagonal()
    value, slope = relu(FIRST[0])
    mean = (q / (2 * math.pi)).sqrt()
    centred = Code(lambda m, x: m.three(F.layer_norm(torch.relu(m.one(x)), (3,), eps=0.1)))
    plain = Code(lambda m, x: m.three(F.rms_norm(torch.relu(m.one(x)), (3,), eps=0.1)))
    for model, top, var in (
        (centred, value - torch.outer(mean, mean), q / 2 - mean**2 + 0.1),
        (plain, value, q / 2 + 0.1),
    ):
        size = torch.outer(var, var).sqrt()
        want = layer(top / size, slope * FIRST[1] / size)
        for one, other in zip(kernels(model), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


MEANS = [F.gelu, lambda u: 2 * F.gelu(0.6 * u), lambda u: 0.7 * torch.cos(1.3 * u), torch.sigmoid]


@pytest.mark.parametrize("f", MEANS)
def test_means_of_activations_are_taken_away(f):
    """Means and products by quadrature of a function that is not recognised."""
    blind = GaussianExpectations(lambda u: f(u))
    model = Code(lambda m, x: m.three(F.layer_norm(f(m.one(x)), (3,), eps=0.1)))
    q, k = FIRST[0].diagonal()[:2], FIRST[0][0, 1]
    mean, square = blind.mean(q), blind.square(q)
    root = (square - mean**2 + 0.1).sqrt()
    top = blind.product(q[0], k / q.prod().sqrt(), q[1]) - mean.prod()
    wanted = W * float(top / root.prod()) + B
    assert float(kernels(model)[0][0, 1]) == pytest.approx(wanted, rel=2e-9)


def test_diagonals_of_matrices_are_those_of_double_precision():
    x = inputs(40, 3).float()
    for kernel in infinite_width(mlp(), weight_variance=W, bias_variance=B):
        assert kernel(x).diagonal().equal(kernel.diagonal(x.double()).float())


def test_widths_weights_dtype_and_mode_do_not_matter():
    wanted = kernels(mlp())
    for model in (mlp(64), mlp().double(), mlp().train(), ntk_parametrize(mlp())):
        before = copy.deepcopy(model.state_dict())
        found = kernels(model)
        assert all(a.equal(b) for a, b in zip(found, wanted, strict=True))
        assert all(
            a.equal(b) for a, b in zip(model.state_dict().values(), before.values(), strict=True)
        )


def test_kernels_join_others_and_go_through_tiles():
    limit = infinite_width(mlp(), weight_variance=W, bias_variance=B)
    wanted = dense_relu(X, X, 2, W, B)
    torch.testing.assert_close((limit.nngp + 2.0 * limit.ntk)(X), wanted[0] + 2 * wanted[1])
    torch.testing.assert_close(gram(limit.ntk, X), wanted[1])
    again = pickle.loads(pickle.dumps(limit.ntk))
    assert again(X).equal(limit.ntk(X))
    few = infinite_width(mlp(), weight_variance=W, bias_variance=B, memory=1)
    torch.testing.assert_close(few.ntk(X), wanted[1], rtol=1e-13, atol=0)


def test_derivatives_in_both_variances():
    """Against differences of the recursion itself."""
    kernel = infinite_width(mlp(), weight_variance=W, bias_variance=B).ntk
    assert kernel.hyperparameters() == {"weight_variance": W, "bias_variance": B}
    found = kernel.weighted_gradients(X, torch.ones(4, 4, dtype=torch.float64))
    h = 1e-5
    for name, at in (("weight_variance", 0), ("bias_variance", 1)):
        ends = []
        for sign in (1, -1):
            values = [W, B]
            values[at] *= math.exp(sign * h)
            ends.append(float(dense_relu(X, X, 2, *values)[1].sum()))
        assert float(found[name]) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)
    assert list(infinite_width(mlp()).ntk.hyperparameters()) == ["weight_variance"]
    moved = kernel.replaced({"weight_variance": 1.0})
    torch.testing.assert_close(moved(X), dense_relu(X, X, 2, 1.0, B)[1])


def test_a_gaussian_process_of_infinite_width():
    limit = infinite_width(mlp(), weight_variance=W, bias_variance=B)
    y = X[:, 0]
    process = GaussianProcess(limit.nngp, noise=0.1, learn=False).fit(X, y)
    K = dense_relu(X, X, 2, W, B)[0]
    wanted = K @ torch.linalg.solve(K + 0.1**2 * torch.eye(4), y)
    torch.testing.assert_close(torch.as_tensor(process.predict(X)), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_cuda_as_on_the_cpu(dtype):
    x, images = X.to(dtype), inputs(3, 2, 8, 8).to(dtype)
    pooled = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(4, 4, 1), Residual(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    )  # fmt: skip
    odd = nn.Sequential(
        nn.Conv2d(2, 4, (2, 3), padding=(1, 2)), nn.LeakyReLU(0.2),
        nn.Conv2d(4, 4, 3, stride=2, dilation=(1, 2), padding=1), nn.ReLU(), nn.Conv2d(4, 4, 2),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    )  # fmt: skip
    odd[2].weight.requires_grad_(False)
    odd[4].bias.requires_grad_(False)
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 1e-11, "atol": 0}
    tanh = mlp(activation=nn.Tanh)
    for model, given in ((mlp(), x), (tanh, x), (pooled, images), (odd, images)):
        here = infinite_width(model, weight_variance=W, bias_variance=B)
        there = infinite_width(copy.deepcopy(model).cuda(), weight_variance=W, bias_variance=B)
        for kernel, other in ((here.nngp, there.nngp), (here.ntk, there.ntk)):
            found = other(given.cuda())
            assert found.is_cuda
            torch.testing.assert_close(found.cpu(), kernel(given), **tolerance)
            crossed = kernel(given.cuda(), given[:2].cuda())  # a model elsewhere will do
            torch.testing.assert_close(crossed.cpu(), kernel(given, given[:2]), **tolerance)
