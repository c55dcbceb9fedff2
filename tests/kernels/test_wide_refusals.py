"""Networks without a limit of infinite width are refused: the layer, and the reason."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.test_infinite_width import inputs, mlp
from vademecum.kernels import infinite_width


class Code(nn.Module):
    """A network whose code is a function of it, with two linear layers and their input."""

    def __init__(self, code, n=3):
        super().__init__()
        self.code = code
        self.one, self.two, self.three = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, 1)

    def forward(self, x):
        return self.code(self, x)


X = inputs(4, 3)
HEAD = "model must be made of layers whose limit of infinite width is known, got "
IMAGE = inputs(2, 2, 6, 6)


def conv(*layers):
    return nn.Sequential(nn.Conv2d(2, 4, 3), *layers, nn.Flatten(), nn.LazyLinear(1))


class Sparse(nn.Module):
    def forward(self, w):
        return w * torch.eye(3)


SHARED = nn.Linear(3, 3)
SPARSE = nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", Sparse())
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
    "a weight over its norm": (
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), nn.Linear(3, 1)),
        X,
        "its weight is computed from others, so that it has no law of its own",
    ),
    "a weight without some numbers": (
        nn.Sequential(SPARSE, nn.Linear(3, 1)),
        X,
        "its weight is computed from others, so that it has no law of its own",
    ),
    "a softmax of one number": (
        Code(lambda m, x: F.log_softmax(m.three(m.one(x)), -1)),
        X,
        "activation must act on each number alone, got one that mixes them",
    ),
    "a logarithm": (
        Code(lambda m, x: m.three(m.one(x).log())),
        X,
        "m.one(x).log())),): activation must be finite, got nan at",
    ),
    "weights of the input": (
        Code(lambda m, x: m.three(x @ m.one.weight)),
        X,
        "it has parameters that meet the inputs otherwise than in a layer",
    ),
    "a vector of numbers": (
        Code(lambda m, x: m.three(m.one(x) * torch.full((3,), 2.0))),
        X,
        "it is no layer that is known, and no function of each entry alone",
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


@torch.no_grad()
def silent(layer, x):
    return layer(x)


CUT = "no gradient passes it, so that the tangent kernel is not that of its layers"
END = "an activation before the output, with no layer between, leaves the tangent kernel random"
WITHOUT_TANGENT = {
    "detached": (lambda m, x: m.three(m.one(x).detach()), CUT),
    "data": (lambda m, x: m.three((h := m.one(x)) + m.two(h.data)), CUT),
    "no gradients": (lambda m, x: m.three(silent(m.one, x)), CUT),
    "an activation at the end": (lambda m, x: torch.relu(m.three(m.one(x))), END),
    "a kept one": (lambda m, x: (h := torch.relu(m.one(x))) + m.two(h), END),
    "a jump": (lambda m, x: m.three(m.one(x).sign()), "got a jump at 0"),
    "a root": (
        lambda m, x: m.three(m.one(x).abs().sqrt()),
        "activation must have a derivative with a second moment, got nan",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_TANGENT)
def test_code_without_a_tangent_kernel(name):
    code, message = WITHOUT_TANGENT[name]
    limit = infinite_width(Code(code))
    assert bool(torch.isfinite(limit.nngp(X[:2])).all())
    with pytest.raises(ValueError, match=re.escape(message)):
        limit.ntk(X[:2])


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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_models_that_cannot_be_read():
    with pytest.raises(ValueError, match="model must not be scripted"):
        infinite_width(torch.jit.script(mlp()))
    graph = Code(lambda m, x: m.three(m.one(x)[[0, 5]]))
    with pytest.raises(ValueError, match=r"does not take inputs of shape \(3,\), one example at a"):
        infinite_width(graph).nngp(inputs(6, 3))


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
