"""One hidden layer of rectifiers: universal, but dear for sawteeth."""

import math

import torch
from torch import Tensor, nn

from vademecum.approximation import interpolating_network, pwl_to_abs, sawtooth_network
from vademecum.approximation.claims._networks import dense
from vademecum.approximation.claims.splines import Network, sup_error
from vademecum.claims import at_most, claim, equals
from vademecum.models import mlp


def ridges(
    theta: Tensor, phase: Tensor, weight: Tensor, pieces: int
) -> tuple[nn.Sequential, float]:
    """A network for a sum of cosines of linear functions on a cube, and a bound of its error.

    Each cosine is interpolated as a function of one variable, and the units of all of them make one
    hidden layer.
    """
    hidden, out, bias, bound = [], [], torch.zeros(1), 0.0
    for direction, shift, w in zip(theta, phase, weight, strict=True):
        reach = float(direction.abs().sum())
        t = torch.linspace(-reach, reach, pieces + 1)
        scale, offset, heights, base = interpolating_network(
            t[:, None], torch.cos(t + shift)
        ).parameters()
        hidden.append(torch.cat([scale.data * direction, offset.data[:, None]], 1))
        out.append(w * heights.data)
        bias += w * base.data
        bound += float(w.abs()) * (2 * reach / pieces) ** 2 / 8
    both = torch.cat(hidden)
    layer = dense(both[:, :-1], both[:, -1])
    return nn.Sequential(layer, nn.ReLU(), dense(torch.cat(out, 1), bias)), bound


def without_bias(x: Tensor, y: Tensor) -> Network:
    """The least-squares fit by ReLUs without bias: in one variable there are only two of them."""
    features = lambda t: torch.cat([torch.relu(t), torch.relu(-t)], 1)  # noqa: E731
    weights = torch.linalg.lstsq(features(x[:, None]), y[:, None]).solution
    return lambda t: features(t) @ weights


@claim(
    by="sampling",
    sources=("A-065", "B-192", "C-066", "E-124"),
    budget=0.5,
    short=r"\|f - f_m\|_\infty \le \tfrac{(b - a)^2}{8 m^2} \max |f''|"
    r" \text{ with one layer of } m \text{ ReLUs}",
)
def relu_universality(bias: bool = True, n: int = 4001):
    r"""One hidden layer of rectifiers is universal.

    Networks with one hidden layer of ReLU or absolute value units are dense in $C(K)$ for compact
    $K \subset \mathbb{R}$, by interpolation and the expansions above. With $m$ equal pieces the
    interpolating network for $f \in C^2([a, b])$ has a uniform error of at most
    $\frac{(b - a)^2}{8 m^2} \max |f''|$. For compact $K \subset \mathbb{R}^d$ they are dense by
    dimension lifting: sums of $\cos(\langle \theta, x \rangle + \varphi)$ are dense, and each of
    them is a function of the one variable $\langle \theta, x \rangle$.

    Checked for sine and cosine, where the error in the middle of a piece is known, and for sums of
    cosines in two and three dimensions; there `interpolating_network` also goes through random
    points with random vectors for values. Bias-free ReLUs are not universal: they vanish at 0.

    Knobs:
        bias: Whether the ReLUs have biases.
        n: At how many points an error is measured.
    """
    x = torch.linspace(-math.pi, math.pi, n)[:, None]
    for pieces in (10, 50, 200):
        h = 2 * math.pi / pieces
        knots = torch.linspace(-math.pi, math.pi, pieces + 1)
        middle = (knots[1:, None] + knots[:-1, None]) / 2
        for f in (torch.cos, torch.sin):
            y, at = f(knots), {"pieces": pieces, "f": f.__name__}
            relus = interpolating_network(knots[:, None], y) if bias else without_bias(knots, y)
            for fit, units in ((relus, "ReLUs"), (pwl_to_abs(knots, y), "absolute values")):
                error = sup_error(fit, f, x)
                yield at_most("error of the network", error, h * h / 8, **at, units=units)
                off = (fit(middle) - f(middle)).detach()
                yield equals("error in the middle of a piece", off,
                             f(middle) * (math.cos(h / 2) - 1), **at, units=units)  # fmt: skip
    for d in (2, 3):
        theta, phase, weight = 2 * torch.randn(4, d), 6 * torch.rand(4), torch.randn(4)
        f = lambda x, t=theta, p=phase, w=weight: torch.cos(x @ t.T + p) @ w  # noqa: E731
        x = 2 * torch.rand(max(n // 4, 8), d) - 1
        for pieces in (10, 40):
            network, bound = ridges(theta, phase, weight, pieces)
            yield at_most("error for a sum of waves", sup_error(network, f, x), bound,
                          pieces=pieces, d=d)  # fmt: skip
        few, values = x[:8], torch.randn(8, 2)
        found = interpolating_network(few, values)(few).detach()
        yield equals("value of the network at a given point", found, values, d=d)


relu_universality.foil("without biases the network is 0 at 0, where the cosine is 1", bias=False)


def tent(numerator: Tensor, denominator: int, times: int) -> Tensor:
    """The tent map on fractions with a common denominator, applied several times: exact."""
    for _ in range(times):
        numerator = 2 * torch.minimum(numerator, denominator - numerator)
    return numerator


def bends(values: Tensor) -> int:
    """The number of kinks between values on a fine grid: runs of non-zero second differences."""
    bent = values.diff(n=2).abs() > 1e-9
    return int((bent[1:] & ~bent[:-1]).sum() + bent[0])


@claim(
    by="identity",
    sources=("E-121",),
    budget=0.5,
    full={"depths": 10, "nets": 1000},
    short=r"T^{\circ L} \text{ has } 2^L \text{ pieces: } 2 L \text{ ReLUs in } L \text{ layers,"
    r" } \ge 2^L - 1 \text{ in one}",
)
def sawtooth_depth(share: int = 1, depths: int = 8, nets: int = 20):
    r"""The sawtooth is exponentially cheaper for deep networks.

    The $L$-fold iterate of the tent map on $[0, 1]$ has $2^L$ linear pieces and is computed exactly
    by $L$ hidden layers of two ReLUs, whereas a network with one hidden layer of $N$ ReLUs has at
    most $N + 1$ pieces in one variable, and so needs $N \ge 2^L - 1$. Depth can thus beat width at
    equal numbers of parameters; trained networks need not use this capacity.

    *Proof.* A unit is linear but for one point, so $N$ units have at most $N$ kinks. The iterate
    takes the values 0 and 1 in turn at $j / 2^L$, so that it has a kink at each
    $0 < j < 2^L$. (Telgarsky, 2016.)

    Checked at dyadic points, exactly; zigzags with three pieces, iterated, at ninths.

    Knobs:
        share: What $2^L - 1$ is divided by for the units that one layer is said to need.
        depths: The largest $L$.
        nets: How many random networks with one hidden layer of up to 20 units are drawn.
    """
    for depth in range(1, depths + 1):
        pieces = 2 ** (depth + 2)
        j = torch.arange(pieces + 1)
        x = j[:, None] / pieces
        network = sawtooth_network(depth)
        deep = network(x)[:, 0].detach()
        wanted = tent(j, pieces, depth) / pieces
        yield equals("value of the deep sawtooth", deep, wanted, tol=0.0, depth=depth)
        if depth <= 10:  # beyond, one layer is too large for a check
            wide = sawtooth_network(1, 2**depth)(x)[:, 0].detach()
            yield equals("value of the sawtooth in one layer", wide, wanted, tol=0.0, depth=depth)
        kinks = int((deep.diff(n=2) != 0).sum())
        yield equals("kinks inside the interval", kinks, 2**depth - 1, depth=depth)
        units = sum(m.out_features for m in list(network)[:-1] if isinstance(m, nn.Linear))
        yield equals("units of the deep network", units, 2 * depth, depth=depth)
        name = "kinks inside the interval, against units of one layer"
        yield at_most(name, kinks, (2**depth - 1) // share, depth=depth)
    ninths = torch.arange(10)[:, None] / 9
    zigzag = sawtooth_network(2, 3)(ninths)[:, 0].detach()
    yield equals("zigzag of three pieces, applied twice", zigzag, torch.arange(10.0) % 2)
    grid = torch.linspace(-3, 3, 3001)[:, None]
    with torch.no_grad():
        for k in range(nets):
            units = k % 20 + 1
            net = mlp([1, units, 1])
            yield at_most("kinks of a random layer", bends(net(grid)[:, 0]), units, units=units)


sawtooth_depth.foil(
    "half as many units do for one layer",
    refuted_by="kinks inside the interval, against units of one layer",
    share=2,
)
