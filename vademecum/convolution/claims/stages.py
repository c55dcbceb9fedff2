"""Pooling and the stages of a network: what becomes of a shift."""

from collections.abc import Callable
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_least, claim, equals, integers
from vademecum.convolution import conv_output_size


def pooled(x: Tensor, r: int, stride: int, pool: str, beyond: int) -> Tensor:
    """Pooling by its definition, window by window, over all axes."""
    reach = r + beyond
    places = [range(0, n - r + 1, stride) for n in x.shape]
    out = torch.zeros([len(p) for p in places])
    for at in product(*(range(len(p)) for p in places)):
        low = [p[i] for p, i in zip(places, at, strict=True)]
        window = x[tuple(slice(i, i + reach) for i in low)]
        out[at] = window.max() if pool == "max" else window.mean()
    return out


def steps(pool: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Difference quotients of a piecewise linear function, a row for each output: exact here."""
    h = 2.0**-10
    units = h * torch.eye(x.numel()).view(-1, *x.shape)
    return torch.stack([((pool(x + e) - pool(x)) / h).flatten() for e in units], 1)


@claim(
    by="identity",
    sources=("A-134", "B-288", "B-289", "C-112", "D-221", "D-222"),
    budget=1.0,
    short=r"x^{\max}_{ij} = \max\{x_{i+k,\, j+l} : 0 \le k, l < r\}",
)
def max_pooling(pool: Literal["max", "average"] = "max", beyond: int = 0):
    r"""Max pooling takes the largest value of every window.

    With window $r$ it is, channel by channel, $x_i^{\max} = \max\{x_{i+k} : 0 \le k < r\}$, along
    two axes $x_{ij}^{\max} = \max\{x_{i+k,\,j+l} : 0 \le k, l < r\}$; this is stride 1, with stride
    $s$ every $s$-th value is kept. The square window separates into a pass along the rows and one
    along the columns, and the gradient goes to the largest entry alone.

    *Proof.* The maximum over pairs is the maximum of maxima; where the largest entry is unique,
    the maximum is that entry in a neighbourhood.

    Checked in whole numbers for $r \le 4$ and strides 1 to 3 with torch's layers and NumPy's
    windows, the gradient by differences at points without ties.

    Knobs:
        pool: What is taken of a window.
        beyond: How many entries beyond $r$ a window has; with 1 it is $0 \le k \le r$.
    """
    for r, stride in product((2, 3, 4), (1, 2, 3)):
        at = {"r": r, "stride": stride}
        line, image = integers(11), integers(9, 8)
        stated = pooled(line, r, stride, pool, beyond)
        found = F.max_pool1d(line[None, None], r, stride)[0, 0]
        yield equals("max pooling along one axis", found, stated, tol=0.0, axes=1, **at)
        stated = pooled(image, r, stride, pool, beyond)
        found = F.max_pool2d(image[None, None], r, stride)[0, 0]
        yield equals("max pooling along two axes", found, stated, tol=0.0, axes=2, **at)
        windows = np.lib.stride_tricks.sliding_window_view(image.numpy(), (r, r))
        found = windows[::stride, ::stride].max((2, 3))
        yield equals("maxima of NumPy's windows", found, stated, tol=0.0, axes=2, **at)
        rows = F.max_pool1d(image[:, None], r, stride)[:, 0]
        found = F.max_pool1d(rows.T[:, None], r, stride)[:, 0].T
        yield equals("rows first, then columns", found, stated, tol=0.0, axes=2, **at)
    x = torch.randperm(30).double().view(5, 6)
    slopes = steps(lambda x: F.max_pool2d(x[None, None], 2, 1)[0, 0], x)
    stated = steps(lambda x: pooled(x, 2, 1, pool, beyond), x)
    yield equals("derivatives of max pooling", slopes, stated, tol=0.0)
    yield equals("entries of a row that are 1", (slopes == 1).sum(1), torch.ones(20))
    yield equals("entries of a row that are 0", (slopes == 0).sum(1), torch.full((20,), 29))


max_pooling.foil("the average of a window", pool="average")
max_pooling.foil(r"a window with index $r$, too ($0 \le k \le r$)", beyond=1)


def correlated(x: Tensor, w: Tensor, stride: int) -> Tensor:
    """A convolution layer without padding, by its definition."""
    maps, _, k, _ = w.shape
    sides = [(n - k) // stride + 1 for n in x.shape[1:]]
    y = torch.zeros(maps, *sides)
    for i, j in product(*map(range, sides)):
        window = x[:, i * stride : i * stride + k, j * stride : j * stride + k]
        y[:, i, j] = (w * window).sum((1, 2, 3))
    return y


@claim(
    by="identity",
    sources=("B-287",),
    budget=1.0,
    short=r"\max\text{-pool}(\phi(x * w)) = \phi(\max\text{-pool}(x * w)),"
    r"\ \phi\ \text{non-decreasing}",
)
def conv_stage(pool: Literal["max", "average"] = "max"):
    r"""A stage of a network: convolution, nonlinearity, pooling and sub-sampling.

    They come in this order. Max pooling may be exchanged with a nonlinearity that does not
    decrease, such as ReLU, without changing the result; average pooling may not.

    *Proof.* $\max_i \phi(a_i) = \phi(\max_i a_i)$ for non-decreasing $\phi$.

    Checked for ReLU, the sign, hard tanh and $a^3$ bit by bit; the stage in whole numbers against
    its definition, and its size against the formula for the output of a layer, applied twice.

    Knobs:
        pool: Which pooling is exchanged with the nonlinearity.
    """
    for stride, r in ((1, 2), (2, 2), (1, 3)):
        layer = nn.Conv2d(2, 3, 3, stride, bias=False)
        layer.weight.data = integers(3, 2, 3, 3)
        x, stage = integers(1, 2, 13, 11), nn.Sequential(layer, nn.ReLU(), nn.MaxPool2d(r))
        with torch.no_grad():
            found, maps = stage(x)[0], layer(x)
        explicit = correlated(x[0], layer.weight.data, stride).clamp(min=0)
        windows = explicit.unfold(1, r, r).unfold(2, r, r)
        at = {"stride": stride, "r": r}
        yield equals("stage by its definition", found, windows.amax((3, 4)), tol=0.0, **at)
        sizes = conv_output_size(conv_output_size((13, 11), 3, stride=stride), r, stride=r)
        yield equals("size of the stage", found.shape[1:], sizes, **at)
        pooling = F.max_pool2d if pool == "max" else F.avg_pool2d
        for name, phi in (
            ("ReLU", torch.relu),
            ("sign", torch.sign),
            ("hard tanh", lambda a: F.hardtanh(a, -7.0, 7.0)),
            ("cube", lambda a: a**3),
        ):
            before, after = pooling(phi(maps), r), phi(pooling(maps, r))
            yield equals(f"{pool} pooling after and before {name}", before, after, tol=0.0, **at)


conv_stage.foil("average pooling exchanged with the nonlinearity", pool="average")


def circular(stride: int) -> nn.Sequential:
    """Two circular convolutions with ReLU, the first with a stride."""
    layers = [
        nn.Conv2d(1, 3, 3, stride, 1, padding_mode="circular"), nn.ReLU(),
        nn.Conv2d(3, 4, 3, 1, 1, padding_mode="circular"), nn.ReLU(),
    ]  # fmt: skip
    for layer in layers:
        for p in layer.parameters():
            nn.init.normal_(p)
    return nn.Sequential(*layers)


@claim(
    by="identity",
    sources=("D-232",),
    budget=1.0,
    short=r"\mathrm{pool}(f(S x)) = \mathrm{pool}(f(x))\ \text{for shifts } S"
    r"\ \text{by multiples of the stride}",
)
def global_pooling_invariance(
    read: Literal["pooled", "flattened"] = "pooled",
    shifts: Literal["multiples", "all"] = "multiples",
):
    r"""Global pooling turns where into what.

    A stack of circular convolutions of stride 1 with global pooling behind it does not change when
    the input is shifted: the features say what occurs and not where, while every layer before the
    pooling moves with the shift. With total stride $s$, which divides the size, this is guaranteed
    only for shifts by multiples of $s$. This is the exact core of the saying that deeper layers
    trade spatial detail for meaning.

    *Proof.* A circular convolution commutes with shifts, a function of single entries does too, and
    a mean or maximum over all positions does not see their order.

    Checked for random networks of two layers on $12 \times 12$ images, all 144 shifts, global mean
    and maximum; with stride 2 a shift by one changes the features, which is checked as well.

    Knobs:
        read: Whether maps are pooled, or read entry by entry.
        shifts: With stride 2, which shifts are said to leave the features as they are.
    """
    x = torch.randn(1, 1, 12, 12)
    for stride in (1, 2):
        net = circular(stride)
        apart = stride if shifts == "multiples" else 1
        some = list(product(range(0, 12, apart), repeat=2))
        moved = torch.cat([x.roll(by, (2, 3)) for by in some])
        with torch.no_grad():
            maps, own = net(moved), net(x)
        readings = {"mean": lambda h: h.mean((2, 3)), "maximum": lambda h: h.amax((2, 3))}
        if read == "flattened":
            readings = {"entries": lambda h: h.flatten(1)}
        for name, reading in readings.items():
            wanted = reading(own).expand_as(reading(maps))
            yield equals(f"{name} of the shifted maps", reading(maps), wanted, stride=stride)
        back = [
            h.roll([-i // stride for i in by], (1, 2)) for by, h in zip(some, maps, strict=True)
        ]
        yield equals("maps, shifted back", torch.stack(back), own.expand_as(maps), stride=stride)
    with torch.no_grad():
        odd = circular(2)
        changed = (odd(x.roll(1, 3)).mean((2, 3)) - odd(x).mean((2, 3))).abs().max()
    yield at_least("change by an odd shift with stride 2", changed, 1e-6, tol=0.0)


global_pooling_invariance.foil("flattened maps in place of pooled ones", read="flattened")
global_pooling_invariance.foil("all shifts with stride 2", shifts="all")
