"""Hyperplanes and patterns: where a network is affine, and units that do not move."""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.approximation import activation_pattern as pattern_of
from vademecum.approximation import (
    certify_regions,
    dead_units,
    linear_regions,
    local_affine_map,
    plane_through,
)
from vademecum.approximation.claims._networks import local_maps, piecewise_linear
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism import signed_distance
from vademecum.foundations import Box
from vademecum.models import mlp


@claim(
    by="identity",
    sources=("E-097",),
    budget=0.5,
    short=r"H = \{x : \langle w, x \rangle = b\}, \quad \mathrm{dist}(x, H) ="
    r" |\langle w, x \rangle - b| / \|w\|",
)
def hyperplane(normalised: bool = True):
    r"""A hyperplane with a normal, and the distance to it.

    For $w \ne 0$ and a point $p$ the hyperplane through $p$ with normal $w$ is
    $H = \{x : \langle w, x - p \rangle = 0\} = \{x : \langle w, x \rangle = b\}$ with offset
    $b = \langle w, p \rangle$; it does not depend on which $p \in H$ is taken. The Euclidean
    distance of $x$ to $H$ is $|\langle w, x \rangle - b| / \|w\|$.

    *Proof.* The shortest way from $x$ to $H$ is the least-norm solution $r$ of
    $\langle w, r \rangle = b - \langle w, x \rangle$, which is a multiple of $w$.

    Checked in two to six dimensions, for $\|w\|$ between 2 and 3.

    Knobs:
        normalised: Whether the distance is divided by $\|w\|$.
    """
    for d in range(2, 7):
        w, p, x = torch.randn(3, d)
        w *= (2 + torch.rand(())) / w.norm()
        b = w @ p
        kernel = torch.linalg.svd(w[None]).Vh[1:]
        q = p + torch.randn(d - 1) @ kernel  # another point of the hyperplane
        yield equals("offset at another point of the hyperplane", w @ q, b, d=d)
        yield equals(r"$\langle w, x - q \rangle$", w @ (x - q), w @ (x - p), d=d)
        shortest = torch.linalg.lstsq(w[None], (b - w @ x)[None], driver="gelsd").solution
        distance = signed_distance(w, -b, x).abs() * (1 if normalised else w.norm())
        yield equals("distance to the hyperplane", distance, shortest.norm(), d=d)
        side = signed_distance(w, -b, torch.stack([p + w, p - w])).sign()
        yield equals("side of the hyperplane", side, torch.tensor([1.0, -1.0]), tol=0.0, d=d)


hyperplane.foil(r"without the division by $\|w\|$", normalised=False)


def relu_network(*widths: int) -> nn.Sequential:
    """A random ReLU network with biases."""
    model = mlp(widths)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, std=0.3)
    return model


def composed(model: nn.Sequential, pattern: Tensor) -> tuple[Tensor, Tensor]:
    r"""The map $W_L D_{L-1} W_{L-1} \cdots D_1 W_1$ that a pattern selects, written out."""
    dense = [layer for layer in model if isinstance(layer, nn.Linear)]
    a, b = dense[0].weight.detach(), dense[0].bias.detach()
    for layer, kappa in zip(
        dense[1:], pattern.split([layer.out_features for layer in dense[:-1]]), strict=True
    ):
        a, b = layer.weight @ torch.diag(kappa * 1.0) @ a, layer.weight @ (kappa * b) + layer.bias
    return a.detach(), b.detach()


@claim(
    by="identity",
    sources=("A-057", "A-058", "A-059", "B-170", "B-173"),
    budget=1.0,
    full={"points": 20_000, "checked": 50},
    short=r"\mathrm{ReLU}(W x + b) = \operatorname{diag}(\kappa) (W x + b), \quad"
    r" \kappa = \mathbb{1}_{W x + b > 0}",
)
def activation_pattern(flips: int = 0, points: int = 1000, checked: int = 6):
    r"""Activation patterns, cells and local affinity.

    A ReLU splits input space by its hyperplane into an active and an inactive half-space; the
    pattern of a layer is $\kappa = \mathbb{1}_{W x + b > 0} \in \{0, 1\}^m$, and
    $\mathrm{ReLU}(W x + b) = \operatorname{diag}(\kappa)(W x + b)$. Inputs that share the patterns
    of all layers form a cell, a convex polyhedron (strict inequalities for active units), on which
    the whole network is one affine map: $x \mapsto W_L D_{L-1} W_{L-1} \cdots D_1 W_1 x + b'$ with
    $D_l = \operatorname{diag}(\kappa_l)$.

    *Proof.* On the inputs that share the patterns of the first layers the next layer's input is
    affine in $x$, so that its pattern is a system of linear inequalities: the cell is an
    intersection of half-spaces.

    Checked for a random network of widths 3, 8, 6 and 2; its cells in a plane are found by
    `linear_regions`, and certified by points drawn from each.

    Knobs:
        flips: How many bits of the first layer's pattern are flipped.
        points: How many inputs are drawn.
        checked: At how many of them the affine map is compared.
    """
    model = relu_network(3, 8, 6, 2)
    x = torch.randn(points, 3)
    alive = (pattern_of(model, x)[:, 8:] > 0).any(1)  # elsewhere the first layer does not matter
    x = torch.cat([x[alive], x[~alive]])
    y, pattern = model(x).detach(), pattern_of(model, x)
    a, b = local_affine_map(model, x[:checked])
    h = 1e-4
    for i in range(len(a)):
        kappa = pattern[i].clone()
        kappa[:flips] ^= 1
        matrix, offset = composed(model, kappa)
        value = matrix @ x[i] + offset
        yield equals("value of the affine map that the pattern selects", value, y[i], point=i)
        yield equals("matrix of the local affine map", a[i], matrix, point=i)
        yield equals("offset of the local affine map", b[i], offset, point=i)
        steps = x[i] + h * torch.cat([torch.eye(3), -torch.eye(3)])
        if (pattern_of(model, steps) == pattern[i]).all():
            ahead, behind = model(steps).detach().chunk(2)
            slopes = (ahead - behind).T / (2 * h)
            yield equals("Jacobian by central differences", slopes, matrix, point=i)
        same = (pattern == pattern[i]).all(1)
        mates = x[same]
        values = mates @ matrix.T + offset
        yield equals("affine map at inputs of the same cell", values, y[same], point=i)
        share = torch.rand(len(mates), 1)
        between = share * mates + (1 - share) * mates.flip(0)
        yield equals("pattern between two inputs of a cell", pattern_of(model, between), pattern[i],
                     point=i)  # fmt: skip
    found = linear_regions(model, plane_through(*torch.randn(3, 3)))
    check = certify_regions(model, found, samples=1)
    yield equals("distinct patterns among regions", check.patterns, check.regions)
    yield equals("points with another pattern than their region", check.strays, 0)
    yield equals("area that regions miss", check.area_gap, 0.0)
    for name, (net, inputs) in piecewise_linear().items():
        yield from local_maps(name, net, inputs)


activation_pattern.foil("the pattern with one bit of the first layer flipped", flips=1)


@claim(
    by="identity",
    sources=("B-178", "B-179"),
    budget=0.5,
    full={"steps": 300},
    short=r"w^\top x_i + b < 0 \ \forall i \ \Rightarrow\ \nabla_{w, b} \sum_i \ell_i = 0",
)
def dead_relu(slope: float = 0.0, removed: int = 3, steps: int = 40):
    r"""Dying ReLU.

    A ReLU that is inactive on every training input, from initialisation or after a bad update, has
    zero gradient in its incoming weights and bias; with plain gradient descent on those inputs (and
    no weight decay) it never recovers while the layers below it do not move it back. Such units can
    be pruned without changing the function on the data, or re-initialised.

    *Proof.* The derivative of the loss in a unit's weights is a sum over the inputs of products
    with the unit's slope, which is zero at all of them; so the weights stay, and so do the slopes.

    Checked by gradient descent on a network with one hidden layer, whose first layer has nothing
    below it that could move; that units recover when lower layers move is quoted.

    Knobs:
        slope: The slope of the units where they are inactive.
        removed: Which unit is pruned; the dead one is 3.
        steps: How many steps of gradient descent are taken.
    """
    dead, x = 3, 2 * torch.rand(100, 3) - 1
    y = torch.sin(3 * x.sum(1, keepdim=True))
    model = mlp([3, 8, 1], lambda: nn.LeakyReLU(slope))
    hidden, output = model[0], model[2]
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    hidden.bias.data.uniform_(0, 0.1)  # so that every other unit is active somewhere
    hidden.bias.data[dead] = -100.0
    found = dead_units(model, x)[0].dead
    wanted = (torch.arange(8) == dead).long()
    yield equals("dead units, as ones", found.long(), wanted)
    cube = Box(torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([1.0, -1.0, 0.6]))
    corners = torch.cartesian_prod(*torch.stack([cube.low, cube.high], 1))
    certified = dead_units(model, x, box=cube)[0].certified
    highest = (corners @ hidden.weight.T + hidden.bias).amax(0)
    yield equals("units that are dead on a box", certified, (highest <= 0) & (slope == 0))
    before = torch.cat([hidden.weight, hidden.bias[:, None]], 1).detach().clone()
    for _ in range(steps):
        loss = (model(x) - y).square().mean()
        for p, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            p.data -= 0.05 * gradient
    after = torch.cat([hidden.weight, hidden.bias[:, None]], 1).detach()
    moved = (after - before).abs().amax(1)
    yield equals("change of the dead unit's weights", moved[dead], 0.0, tol=0.0)
    yield at_least("largest change of a unit's weights", moved.max(), 1e-6)
    keep = torch.arange(8) != removed
    pruned = torch.relu(x @ hidden.weight[keep].T + hidden.bias[keep]) @ output.weight[:, keep].T
    yield equals("output without the pruned unit", pruned + output.bias, model(x))


dead_relu.foil(
    "a leaky unit has a slope everywhere, and moves",
    refuted_by="change of the dead unit's weights",
    slope=0.01,
)
dead_relu.foil(
    "an active unit cannot be pruned", refuted_by="output without the pruned unit", removed=0
)


@claim(
    by="identity",
    sources=("B-099",),
    budget=0.5,
    short=r"\nabla_{W, b}\, \ell(v^\top H(W x + b), y) = 0 \text{ almost everywhere}",
)
def step_zero_gradient(hidden: Literal["step", "logistic"] = "step", steps: int = 100):
    r"""Threshold units carry no gradient.

    Heaviside and sign activations have derivative 0 wherever it exists, so parameters that
    influence the loss only through such units receive a zero gradient almost everywhere, and
    gradient descent leaves them unchanged. This is why smooth or piecewise-linear surrogates are
    used.

    *Proof.* A step is constant on either side of its threshold; if no pre-activation is zero, a
    small change of the weights below changes no unit.

    The weights on top still learn. The loss is quadratic in them, with a curvature of at most
    $L = 2 \cdot 6$ for six units in $[-1, 1]$, so that a first step of size $\eta$ takes at least
    $\eta (1 - \frac{\eta L}{2}) \|\nabla\|^2$ off it, and later ones never add to it.

    Knobs:
        hidden: The first of two activations tried; the second is the sign.
        steps: How many steps of gradient descent are taken.
    """
    kinds = {"step": lambda z: (z.sign() + 1) / 2, "logistic": torch.sigmoid, "sign": torch.sign}
    w, b, x = torch.randn(6, 3), torch.randn(6), torch.randn(80, 3)
    x = x[((x @ w.T + b).abs() > 1e-3).all(1)]  # which no step below of 1e-6 can cross
    y, v, eta = torch.randn(len(x)), torch.randn(6), 0.05
    for kind in (hidden, "sign"):

        def loss(w: Tensor, b: Tensor, v: Tensor, *, phi: str = kind) -> Tensor:
            return (kinds[phi](x @ w.T + b) @ v - y).square().mean()

        both = torch.cat([w, b[:, None]], 1)
        change = []
        for nudge in 1e-6 * torch.eye(both.numel()).view(-1, 6, 4):
            ends = [loss(t[:, :3], t[:, 3], v) for t in (both + nudge, both - nudge)]
            change.append(ends[0] - ends[1])
        yield equals("change of the loss with a hidden weight", torch.stack(change), 0.0, tol=0.0,
                     unit=kind)  # fmt: skip
        theta = [t.clone().requires_grad_() for t in (w, b, v)]
        first = torch.autograd.grad(loss(*theta), theta[2])[0].square().sum()
        for _ in range(steps):
            for t, gradient in zip(theta, torch.autograd.grad(loss(*theta), theta), strict=True):
                t.data -= eta * gradient
        yield equals("hidden weights after descent", theta[0], w, tol=0.0, unit=kind)
        yield equals("hidden biases after descent", theta[1], b, tol=0.0, unit=kind)
        gain = eta * (1 - 6 * eta) * first
        yield at_most("loss after descent", loss(*theta), loss(w, b, v) - gain, unit=kind)


step_zero_gradient.foil(
    "logistic hidden units do move", refuted_by="hidden weights after descent", hidden="logistic"
)
