"""Tangent kernels and limits of infinite width against neural-tangents, with copied weights.

They run where its environment is (`make .venv-neural-tangents/ready`), and are skipped elsewhere.
"""

import pytest
import torch
from torch import Tensor, nn

from bench.harness import PeerNotFoundError
from bench.neural_tangents import Pointwise, Residual
from bench.neural_tangents import empirical_ntk as their_ntk
from bench.neural_tangents import infinite_width as their_limit
from vademecum.kernels import empirical_ntk, infinite_width

pytestmark = pytest.mark.slow  # JAX compiles each kernel anew


Case = tuple[nn.Sequential, tuple[int, ...]]


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), *layers, nn.Linear(7, 3))


def images(*layers: nn.Module, channels: int = 4, size: int = 1) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size * size, 3))


def conv(d: int, m: int, **options) -> nn.Conv2d:
    return nn.Conv2d(d, m, 3, **{"padding": 1, **options})


POOL = nn.AdaptiveAvgPool2d(1)
FLAT = {
    "relu": flat(nn.ReLU()),
    "deep": flat(nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 7), nn.ReLU()),
    "without biases": nn.Sequential(
        nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 3, bias=False)
    ),
    "leaky relu": flat(nn.LeakyReLU(0.2)),
    "gelu": flat(nn.GELU()),
    "abs": flat(Pointwise("abs")),
    "erf": flat(Pointwise("erf")),
    "sin": flat(Pointwise("sin")),
    "cos": flat(Pointwise("cos")),
    "residual": flat(Residual(nn.ReLU(), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 7)), nn.ReLU()),
}
IMAGES = {
    "flattened": images(conv(2, 4), nn.ReLU(), size=6),
    "global pooling": images(conv(2, 4), nn.ReLU(), conv(4, 4), nn.ReLU(), POOL),
    "average pooling": images(conv(2, 4), nn.ReLU(), nn.AvgPool2d(2), conv(4, 4), nn.ReLU(), POOL),
    "strides": images(conv(2, 4, padding=0, stride=2), nn.ReLU(), size=2),
    "circular": images(conv(2, 4, padding_mode="circular"), nn.ReLU(), POOL),
    "residual blocks": images(conv(2, 4), Residual(nn.ReLU(), conv(4, 4)), nn.ReLU(), POOL),
    "no biases": images(conv(2, 4, bias=False), Pointwise("erf"), POOL),
}
FINITE_ONLY: dict[str, Case] = {
    "tanh": (flat(nn.Tanh()), (5,)),
    "sigmoid": (flat(nn.Sigmoid()), (5,)),
    "max pooling": (images(conv(2, 4), nn.ReLU(), nn.MaxPool2d(2), size=3), (2, 6, 6)),
}
INFINITE_ONLY: dict[str, Case] = {
    "layer norm": (flat(nn.LayerNorm(7, elementwise_affine=False), nn.ReLU()), (5,)),
}
BOTH: dict[str, Case] = {name: (net, (5,)) for name, net in FLAT.items()}
BOTH |= {name: (net, (2, 6, 6)) for name, net in IMAGES.items()}


def drawn(
    net: nn.Sequential, shape: tuple[int, ...], dtype
) -> tuple[nn.Sequential, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    net = net.to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=dice, dtype=dtype) / p[0].numel() ** 0.5)
    x1, x2 = (torch.randn(n, *shape, generator=dice, dtype=dtype) for n in (3, 4))
    return net, x1, x2


def answered(peer, *arguments, **options):
    try:
        return peer(*arguments, **options)()
    except PeerNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", [*BOTH, *FINITE_ONLY])
def test_tangent_kernels_of_networks_with_the_same_weights(name):
    net, x1, x2 = drawn(*(BOTH | FINITE_ONLY)[name], torch.float64)
    for outputs in ("full", "trace"):
        theirs = answered(their_ntk, net, x1, x2, outputs=outputs).ntk
        ours = empirical_ntk(net, x1, x2, outputs=outputs)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_tangent_kernels_in_single_precision_and_of_one_sample():
    net, x1, _ = drawn(*BOTH["deep"], torch.float32)
    for outputs in ("full", "diagonal", "trace"):
        theirs = answered(their_ntk, net, x1, outputs=outputs).ntk
        ours = empirical_ntk(net, x1, outputs=outputs)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias_variance", [0.0, 0.3])
@pytest.mark.parametrize("name", [*BOTH, *INFINITE_ONLY])
def test_limits_of_infinite_width(name, bias_variance):
    net, x1, x2 = drawn(*(BOTH | INFINITE_ONLY)[name], torch.float64)
    variances = {"weight_variance": 1.7, "bias_variance": bias_variance}
    theirs = answered(their_limit, net, x1, x2, **variances)
    ours = infinite_width(net, **variances)
    # theirs adds 1e-12 and more under roots, so that it keeps some nine digits
    torch.testing.assert_close(ours.nngp(x1, x2), theirs.nngp, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.ntk(x1, x2), theirs.ntk, rtol=1e-8, atol=1e-9)


def test_limits_of_one_sample_with_its_diagonal():
    net, x1, _ = drawn(*BOTH["deep"], torch.float64)
    theirs = answered(their_limit, net, x1)
    ours = infinite_width(net)
    torch.testing.assert_close(ours.nngp(x1), theirs.nngp, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.ntk(x1), theirs.ntk, rtol=1e-6, atol=1e-6)
