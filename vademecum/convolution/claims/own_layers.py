"""Layers that torch lacks: unshared weights, and pooling between minimum and maximum."""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_least, claim, equals
from vademecum.convolution import LocallyConnected2d, SoftmaxPool
from vademecum.convolution.claims._signals import whole

Count = Callable[[int, int, int, int, int, int], int]


def with_bias(m: int, n: int, p: int, q: int, c: int, K: int) -> int:
    """The inputs of a window and a constant, for each output."""
    return (p * q * c + 1) * (m - p + 1) * (n - q + 1) * K


def misplaced_bias(m: int, n: int, p: int, q: int, c: int, K: int) -> int:
    """The one of the constant beside a number of positions."""
    return p * q * c * (m - p + 1) * (n - q + 1 + 1) * K


@claim(
    by="exhaustion", sources=("D-267",), budget=1.0,
    short=r"(p q c + 1)(m - p + 1)(n - q + 1) K \text{ parameters}",
)  # fmt: skip
def locally_connected_count(count: Count = with_bias, largest: int = 6):
    r"""A locally connected layer and its parameter count.

    Keeping the local windows of a valid convolution but untying the weights gives the locally
    connected layer with $(p q c + 1)(m - p + 1)(n - q + 1) K$ parameters, for an $m \times n$ image
    with $c$ channels and $K$ kernels of size $p \times q$. With equal weights at all positions it
    computes the convolution; the ratio of the two counts is the number of output positions. All
    sizes up to the largest, with one and three channels.

    Knobs:
        count: The number of parameters, from $m, n, p, q, c, K$.
        largest: The largest $m$ and $n$.
    """
    example = LocallyConnected2d(1, 1, 4, 3)
    yield equals("parameters", _size(example), count(4, 4, 3, 3, 1, 1), m=4, p=3)
    for m, n in product(range(1, largest + 1), repeat=2):
        for p, q in product(range(1, m + 1), range(1, n + 1)):
            for c, K in ((1, 2), (3, 1)):
                layer, at = LocallyConnected2d(c, K, (m, n), (p, q)), {"m": m, "n": n, "p": p}
                stated = count(m, n, p, q, c, K)
                yield equals("parameters", _size(layer), stated, **at, q=q, c=c, K=K)
    for m, n, p, q, c, K in ((5, 6, 2, 3, 2, 3), (4, 4, 3, 1, 3, 2)):
        conv, layer = nn.Conv2d(c, K, (p, q)), LocallyConnected2d(c, K, (m, n), (p, q))
        assert conv.bias is not None
        assert layer.bias is not None
        conv.weight.data = whole(*conv.weight.shape).double()
        layer.weight.data = conv.weight.data.expand_as(layer.weight)
        layer.bias.data = conv.bias.data[:, None, None].expand_as(layer.bias)
        x = whole(3, c, m, n).double()
        at = {"m": m, "n": n, "p": p, "q": q}
        yield equals("output with tied weights", layer(x), conv(x), tol=1e-12, **at)
        ratio = (m - p + 1) * (n - q + 1)
        yield equals("parameters per shared one", _size(layer), ratio * _size(conv), **at)
        s, t = m - p, n - q  # the last window, after its weights alone are changed
        layer.weight.data = layer.weight.data.clone()
        layer.weight.data[s, t] += 1
        gap = layer(x) - conv(x)
        window = x[:, :, s:, t:].sum((1, 2, 3))
        yield equals("change of the last output", gap[:, :, s, t], window[:, None], tol=1e-12, **at)
        gap[:, :, s, t] = 0
        yield equals("change of all others", gap, 0.0, tol=1e-12, **at)


def _size(layer: nn.Module) -> int:
    return sum(p.numel() for p in layer.parameters())


locally_connected_count.erratum(
    "D-267",
    printed="$pqc(m-p+1)(n-q+1+1)K$",
    right="$(pqc+1)(m-p+1)(n-q+1)K$",
    why="Same misplaced bias as in the dense count: 4 outputs with $9+1$ parameters each make 40,"
    r" the printed expression is $9 \cdot 2 \cdot 3 = 54$.",
    weight="hard",
    refuted_by="parameters",
    count=misplaced_bias,
)


def log_sum_exp(x: Tensor, beta: float) -> Tensor:
    """The logarithm of a sum of exponentials, over windows of three by three."""
    windows = x.unfold(2, 3, 3).unfold(3, 3, 3).flatten(4)
    return (beta * windows).logsumexp(-1) / beta if beta else windows.sum(-1)


@claim(
    by="identity", sources=("D-220",), budget=0.5,
    short=r"\textstyle\sum_i x_i e^{\beta x_i} / \sum_i e^{\beta x_i} \to \min x,"
    r" \bar x, \max x \ (\beta \to -\infty, 0, \infty)",
)  # fmt: skip
def pooling_family(pool: Literal["softmax", "log-sum-exp"] = "softmax"):
    r"""Min, max, average and softmax pooling.

    Softmax pooling $\sum_i x_i e^{\beta x_i} / \sum_i e^{\beta x_i}$ over a window interpolates the
    usual choices: $\beta \to -\infty$ gives min, $\beta = 0$ average and $\beta \to \infty$ max
    pooling, and it increases with $\beta$ unless the window is constant: its slope is the variance
    of the entries under its weights. That max pooling is the common default is quoted.

    Checked with windows of 9 values at least 0.1 apart, where $\beta = \pm 400$ is the limit up to
    $8 \cdot 4\, e^{-40}$, and on a grid of 50 values of $\beta$ from -5 to 5.

    Knobs:
        pool: Whether the weighted mean is taken, or $\frac1\beta \log \sum_i e^{\beta x_i}$, which
            has the same limits at infinity.
    """
    order = torch.stack([torch.randperm(9) for _ in range(12)]).view(2, 6, 9)
    x = -1.8 + 0.4 * order + 0.3 * torch.rand(2, 6, 9)  # neighbours are 0.1 apart or more
    x = x.view(2, 1, 2, 3, 3, 3).transpose(3, 4).reshape(2, 1, 6, 9)

    def pooled(beta: float) -> Tensor:
        return SoftmaxPool(3, beta=beta)(x) if pool == "softmax" else log_sum_exp(x, beta)

    yield equals("largest beta", pooled(400.0), F.max_pool2d(x, 3), tol=1e-12)
    yield equals("smallest beta", pooled(-400.0), -F.max_pool2d(-x, 3), tol=1e-12)
    yield equals("beta of zero", pooled(1e-9), F.avg_pool2d(x, 3), tol=1e-7)
    yield equals("average at zero", pooled(0.0), F.avg_pool2d(x, 3), tol=1e-12)
    grid = torch.linspace(-5, 5, 50).tolist()
    values = torch.stack([pooled(beta) for beta in grid])
    yield at_least("growth from beta to beta", values.diff(dim=0), 1e-6, tol=0.0)
    constant = SoftmaxPool(2)(torch.full((1, 1, 4, 4), 0.7))
    yield equals("constant windows", constant, 0.7, tol=1e-14)
    windows = x.unfold(2, 3, 3).unfold(3, 3, 3).flatten(4)
    for beta in (-2.0, 0.0, 1.5):
        layer: Any = SoftmaxPool(3, beta=beta, learn_beta=True)
        weights = (beta * windows).exp() / (beta * windows).exp().sum(-1, keepdim=True)
        mean = (weights * windows).sum(-1)
        variance = (weights * (windows - mean[..., None]) ** 2).sum(-1)
        (slope,) = torch.autograd.grad(layer(x).sum(), layer.beta)
        yield equals("slope in beta, summed", slope, variance.sum(), tol=1e-12, beta=beta)
        yield equals("weighted mean", layer(x), mean, tol=1e-13, beta=beta)


pooling_family.foil("log-sum-exp has no average in between", refuted_by="beta of zero",
                    pool="log-sum-exp")  # fmt: skip
