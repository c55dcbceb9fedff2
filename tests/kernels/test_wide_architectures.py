"""Which architectures have a limit of infinite width, how they may be written, and which not."""

import copy
import math
import pickle
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.test_infinite_width import B, Residual, W, inputs, mlp
from tests.kernels.wide_oracles import dense_relu
from vademecum.kernels import GaussianProcess, gram, infinite_width, ntk_parametrize


class Code(nn.Module):
    """A network whose code is a function of it, with two linear layers and their input."""

    def __init__(self, code, n=3):
        super().__init__()
        self.code = code
        self.one, self.two, self.three = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, 1)

    def forward(self, x):
        return self.code(self, x)


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


HEAD = "model must be made of layers whose limit of infinite width is known, got "
IMAGE = inputs(2, 2, 6, 6)


def conv(*layers):
    return nn.Sequential(nn.Conv2d(2, 4, 3), *layers, nn.Flatten(), nn.LazyLinear(1))


SHARED = nn.Linear(3, 3)
REFUSED = {
    "batch norm": (
        conv(nn.BatchNorm2d(4), nn.ReLU()),
        IMAGE,
        HEAD + "submodule '1' (BatchNorm2d): batch normalisation makes an example depend on the"
        " others of its batch, so that no kernel of two inputs is its limit; LayerNorm has one",
    ),
    "max pooling": (
        conv(nn.ReLU(), nn.MaxPool2d(2)),
        IMAGE,
        HEAD + "submodule '2' (MaxPool2d): the maximum of correlated Gaussian signals has no"
        " covariance in closed form; average pooling has",
    ),
    "groups": (
        conv(nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2)),
        IMAGE,
        HEAD + "submodule '2' (Conv2d): groups=2: outputs that see a group of the channels alone"
        " have a limit only if each group grows, and then their inputs are not exchangeable",
    ),
    "group norm": (conv(nn.GroupNorm(2, 4)), IMAGE, "submodule '1' (GroupNorm)"),
    "instance norm": (conv(nn.InstanceNorm2d(4)), IMAGE, "submodule '1' (InstanceNorm2d)"),
    "shared": (
        nn.Sequential(SHARED, nn.ReLU(), SHARED),
        X,
        HEAD + "submodule '0' (Linear): it shares its weight with submodule '0' (Linear), and"
        " shared weights make layers depend on each other",
    ),
    "attention": (
        Code(
            lambda m, x: m.three(F.scaled_dot_product_attention(h := m.one(x)[:, None], h, h)[:, 0])
        ),
        X,
        "attention multiplies signals with one another",
    ),
    "softmax": (nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1), nn.Linear(3, 1)), X, "(Softmax)"),
    "a gate": (
        Code(lambda m, x: m.three(m.one(x) * torch.sigmoid(m.two(x)))),
        X,
        "it combines different signals otherwise than by adding them",
    ),
    "not Gaussian": (
        Code(lambda m, x: m.three(torch.relu((h := torch.relu(m.one(x))) + m.two(h)))),
        X,
        "its argument is no Gaussian signal at infinite width",
    ),
    "correlated": (
        Code(lambda m, x: m.three((h := m.one(x)) + F.layer_norm(h, (3,)))),
        X,
        "it adds signals that depend on each other, beyond x + f(x)",
    ),
    "two means": (
        Code(lambda m, x: m.three(torch.relu(m.one(x)) + torch.relu(m.two(x)))),
        X,
        "it adds two signals whose means are not zero",
    ),
    "mean of channels": (
        Code(lambda m, x: m.three(m.one(x).mean(1, keepdim=True).expand(-1, 3))),
        X,
        "it averages over channels",
    ),
    "positions left": (
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()),
        IMAGE,
        "model must give one vector for each example, so that positions are pooled, or joined"
        " before a linear layer, got an output of shape (2, 3, 4, 4) with positions (4, 4)",
    ),
    "no weights": (
        nn.Flatten(),
        IMAGE,
        "model must have a layer with weights, got none that its output needs",
    ),
    "a transposed convolution": (conv(nn.ConvTranspose2d(4, 4, 3)), IMAGE, "(ConvTranspose2d)"),
    "a weight of weights": (
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 1)),
        X,
        "its weight is computed from others, so that it has no law of its own",
    ),
    "joined": (
        Code(lambda m, x: m.three(torch.cat([m.one(x), m.two(x)], 1)[:, :3])),
        X,
        "signals side by side would be weighed by their widths, which are ignored",
    ),
    "always dropped": (
        Code(lambda m, x: m.three(F.dropout(m.one(x), 0.5))),
        X,
        "it drops units at random in evaluation, too",
    ),
    "a bias of the input": (
        nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 1)),
        X,
        "it has parameters that meet the inputs otherwise than in a layer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_limit_is_refused_by_name(name):
    model, x, message = REFUSED[name]
    if any(isinstance(m, nn.LazyLinear) for m in model.modules()):
        model(x.float())
    limit = infinite_width(model)
    with pytest.raises(ValueError, match=re.escape(message)):
        limit.nngp(x)


NO_TANGENT = {
    "norm before an activation": (
        nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1)),
        "the scale or shift of submodule '1' (LayerNorm) trains, and before an activation its part"
        " of the tangent kernel has no known limit; freeze both or set elementwise_affine=False",
    ),
    "a norm at the end": (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), "freeze both"),
    "parametric": (
        nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 1)),
        "a trainable number is shared by all units, so that its part of the tangent kernel stays"
        " random; freeze it",
    ),
}


@pytest.mark.parametrize("name", NO_TANGENT)
def test_covariances_without_a_tangent_kernel(name):
    model, message = NO_TANGENT[name]
    limit = infinite_width(model)
    assert bool(torch.isfinite(limit.nngp(X)).all())
    for call in (limit.ntk, limit.diagonal, limit.ntk.diagonal):
        with pytest.raises(ValueError, match="got submodule.*" + re.escape(message)):
            call(X)
    for module in model:
        if not isinstance(module, nn.Linear):
            module.requires_grad_(False)
    assert bool(torch.isfinite(infinite_width(model).ntk(X)).all())


ARGUMENTS = [
    ({"weight_variance": 0.0}, "weight_variance must be > 0, got 0.0"),
    ({"weight_variance": -1.0}, "weight_variance must be > 0, got -1.0"),
    ({"bias_variance": -0.1}, "bias_variance must be >= 0, got -0.1"),
    ({"bias_variance": math.nan}, "bias_variance must be >= 0, got nan"),
    ({"tol": 0.0}, "tol must be > 0, got 0.0"),
    ({"memory": 0}, "memory must be >= 1, got 0"),
]


@pytest.mark.parametrize(("given", "message"), ARGUMENTS)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        infinite_width(mlp(), **given)


INPUTS = [
    ((X[:0],), "x1 must not be empty"),
    ((X.long(),), "x1 must be floating point"),
    ((torch.full_like(X, math.nan),), "x1 must be finite"),
    ((X, X.float()), "x2 must be torch.float64 as x1 is, got torch.float32"),
    ((X, X[:, :2]), "x2 must hold inputs of shape (3,) as x1 does, got (2,)"),
]


@pytest.mark.parametrize(("given", "message"), INPUTS)
def test_bad_inputs(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        infinite_width(mlp()).ntk(*given)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_cuda_as_on_the_cpu(dtype):
    x, images = X.to(dtype), inputs(3, 2, 8, 8).to(dtype)
    pooled = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        Residual(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    )  # fmt: skip
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 1e-11, "atol": 0}
    for model, given in ((mlp(), x), (mlp(activation=nn.Tanh), x), (pooled, images)):
        here = infinite_width(model, weight_variance=W, bias_variance=B)
        there = infinite_width(copy.deepcopy(model).cuda(), weight_variance=W, bias_variance=B)
        for kernel, other in ((here.nngp, there.nngp), (here.ntk, there.ntk)):
            found = other(given.cuda())
            assert found.is_cuda
            torch.testing.assert_close(found.cpu(), kernel(given), **tolerance)
            crossed = kernel(given.cuda(), given[:2].cuda())  # a model elsewhere will do
            torch.testing.assert_close(crossed.cpu(), kernel(given, given[:2]), **tolerance)
