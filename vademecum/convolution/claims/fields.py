"""Receptive fields: what a unit sees, and how far with depth and stride."""

from itertools import product
from math import prod
from typing import Literal

import torch
from torch import nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.convolution import AlexNet, ResNet
from vademecum.convolution import receptive_field as field_of
from vademecum.convolution.claims._stacks import Layer, extent, seen_by, stack


def without_zeros(layer: nn.Module) -> nn.Module:
    """A layer whose weights lie between 0.25 and 0.75, with random signs."""
    for p in layer.parameters():
        signs = torch.randint(2, p.shape) * 2 - 1
        nn.init.uniform_(p, 0.25, 0.75).data.mul_(signs)
    return layer


@claim(
    by="identity",
    sources=("A-131", "A-132", "B-274", "B-276", "B-282", "D-206", "D-207", "D-212"),
    budget=1.0,
    short=r"I_i = \{j : w^l_{ij} \ne 0\}: \quad"
    r" \partial x_i^l / \partial x_j^{l-1} = 0 \ \text{for}\ j \notin I_i",
)
def receptive_field(index: Literal["w_ij", "w_ji"] = "w_ij"):
    r"""A unit of a convolution depends on its receptive field, and on nothing else.

    The receptive field of unit $i$ of layer $l$ is the set of the units before it that it is
    connected to, $\mathcal I_i^l = \{j : w_{ij}^l \ne 0\}$, with $w^l$ the matrix of the layer.
    Hence $\partial x_i^l / \partial x_j^{l-1} = 0$ for $j \notin \mathcal I_i^l$: the Jacobian is
    sparse, and backpropagation should use it. A row in the interior has as many entries as the
    kernel has taps, however large the image is; in a dense layer it would have them all.

    *Proof.* $x_i^l = \phi(\sum_j w_{ij}^l x_j^{l-1} + b)$ does not contain the others.

    Checked for layers with tanh and kernels without zeros along one and two axes, with and without
    padding, strides 1 and 2: each input is moved in turn, and outputs that do not see it must keep
    every bit.

    Knobs:
        index: Which index of the matrix is the unit's; with $w_{ji}$ its transpose is read.
    """
    for stride, padding in ((1, 0), (2, 0), (1, 1), (2, 1)):
        for layer, shape in (
            (nn.Conv1d(1, 1, 3, stride, padding), (9,)),
            (nn.Conv2d(1, 1, (3, 2), stride, padding), (6, 5)),
        ):
            without_zeros(layer)
            n = torch.Size(shape).numel()
            units = torch.eye(n).view(n, 1, *shape)
            w = (layer(units) - layer(torch.zeros_like(units))).flatten(1).T.detach()
            stated = w != 0
            if index == "w_ji":
                room = torch.zeros(max(stated.shape), max(stated.shape), dtype=torch.bool)
                room[: len(w), :n] = stated
                stated = room.T[: len(w), :n]
            x = torch.randn(1, 1, *shape)
            with torch.no_grad():
                moved = torch.tanh(layer(x + units)) != torch.tanh(layer(x))
            at = {"axes": len(shape), "stride": stride, "padding": padding}
            yield equals("outputs that move with an input", moved.flatten(1).T, stated, **at)
            unit = nn.Sequential(layer, nn.Tanh())
            jacobian = torch.autograd.functional.jacobian(unit, x)
            found = jacobian.reshape(w.shape) != 0
            yield equals("derivatives that are not zero", found, stated, **at)
            places = list(product(*(range(k) for k in layer(x).shape[2:])))
            ours = torch.stack(
                [field_of(layer, (1, *shape), unit=u).mask.flatten() for u in places]
            )
            yield equals("receptive fields by the library", ours, stated, **at)
            middle = places.index(tuple(k // 2 for k in layer(x).shape[2:]))
            taps = layer.weight.numel()
            yield equals("inputs of a unit in the interior", int(found[middle].sum()), taps, **at)


receptive_field.foil(r"the transposed index set $\{j : w_{ji} \ne 0\}$", index="w_ji")


def recursion(layers: list[Layer], jump_of: str) -> tuple[int, int, int]:
    """The extent by the recursion from the input on, from the output back, and in closed form."""
    r, jump, total = 1, 1, 1
    for k, s, d in layers:
        wide = d * (k - 1)
        own = jump * s if jump_of == "own" else jump
        r, total = r + wide * own, total + wide * own
        jump *= s
    back = 1
    for k, s, d in reversed(layers):
        back = s * back + (d * (k - 1) + 1 - s)
    jumps = [1]
    for _, s, _ in layers:
        jumps.append(jumps[-1] * s)
    shift = int(jump_of == "own")
    closed = 1 + sum(d * (k - 1) * jumps[l + shift] for l, (k, _, d) in enumerate(layers))
    return r, back if jump_of == "previous" else r, closed


@claim(
    by="identity",
    sources=("B-292", "D-210", "D-211"),
    budget=1.0,
    short=r"r_l = r_{l-1} + (k_l - 1)\, j_{l-1}, \quad j_l = \textstyle\prod_{i \le l} s_i, \quad"
    r" r_0 = j_0 = 1",
)
def receptive_field_recursion(
    jump: Literal["previous", "own"] = "previous", stacks: int = 300, modules: int = 12
):
    r"""The extent of a receptive field grows by $(k_l - 1)$ jumps a layer.

    For layers with kernels $k_l$ and strides $s_l$ the extent $r_l$ of the field of layer $l$ in
    the input obeys $r_l = r_{l-1} + (k_l - 1)\, j_{l-1}$, $r_0 = 1$, with the jump
    $j_{l-1} = \prod_{i<l} s_i$, the distance in the input between neighbouring units. Equivalently
    one goes back from $r_L = 1$ by $r_{l-1} = s_l r_l + (k_l - s_l)$; in closed form the extent is
    $1 + \sum_l (k_l - 1) \prod_{i<l} s_i$. Dilation $d_l$ replaces $k_l$ by $d_l (k_l - 1) + 1$.
    Where $s_l > k_l$ the extent counts the holes, too. Kernels 3, 3, 2 with strides 1, 2, 2 give 7.

    *Proof.* Unit $o$ sees $s o, \dots, s o + d (k - 1)$; so a span of $r$ units sees
    $s (r - 1) + d (k - 1) + 1$.

    Checked for random stacks of one to five layers with $k \le 5$, $s \le 3$, $d \le 3$.

    Knobs:
        jump: Whether a layer's kernel counts by the jump before it, or by its own.
        stacks: How many stacks are drawn.
        modules: How many of them are built, and asked by `receptive_field`.
    """
    drawn: list[list[Layer]] = [[(3, 1, 1), (3, 2, 1), (2, 2, 1)]]
    yield equals("extent for kernels 3, 3, 2 and strides 1, 2, 2", recursion(drawn[0], jump)[0], 7)
    for _ in range(stacks):
        sizes = torch.stack([torch.randint(1, 6, (5,)), *torch.randint(1, 4, (2, 5))], 1).tolist()
        drawn.append([(k, s, d) for k, s, d in sizes[: int(torch.randint(1, 6, ()))]])
    truth = torch.tensor([extent(seen_by(layers)) for layers in drawn])
    found = torch.tensor([recursion(layers, jump) for layers in drawn])
    for i, name in enumerate(("from the input on", "from the output back", "in closed form")):
        yield equals(f"extent {name}", found[:, i], truth)
    steps = [min(seen_by(layers, 1)) - min(seen_by(layers)) for layers in drawn]
    jumps = [torch.tensor([s for _, s, _ in layers]).prod() for layers in drawn]
    yield equals("distance of neighbouring fields", steps, torch.stack(jumps))
    for layers, length in zip(drawn[:modules], truth.tolist(), strict=False):
        field = field_of(stack(layers), (1, 2 * length + 900))
        places = field.mask.nonzero().flatten() - field.start[0]
        yield equals("extent by the library", field.size[0], recursion(layers, jump)[0])
        yield equals("inputs seen by the library", places, sorted(seen_by(layers)))
        step = min(seen_by(layers, 1)) - min(seen_by(layers))
        yield equals("stride by the library", field.stride[0], step)


receptive_field_recursion.foil(r"with the layer's own stride in the jump: 11, not 7", jump="own")


def entries_of_row(model: nn.Module, length: int) -> int:
    """How many entries of a middle row of the Jacobian are not zero."""
    x = torch.randn(1, 1, length, requires_grad=True)
    y = model(x)
    (g,) = torch.autograd.grad(y[0, 0, y.shape[-1] // 2], x)
    return int((g != 0).sum())


def deep_field(layers: list[Layer]) -> int:
    """The extent of the field of a stack, by the library."""
    jump = prod(s for _, s, _ in layers)  # a few units behind each other, or there is no map
    length = extent(seen_by_span(layers)) + 3 * jump
    return field_of(stack(layers).to("meta"), (1, length)).size[0]


def seen_by_span(layers: list[Layer]) -> set[int]:
    """The first and the last input that an output is made of."""
    low = high = 0
    for k, s, d in reversed(layers):
        low, high = s * low, s * high + d * (k - 1)
    return {low, high}


@claim(
    by="identity",
    sources=("B-274", "B-278", "D-208", "D-209"),
    budget=1.0,
    short=r"r = 1 + L (k - 1); \quad k = 3: \ 224\ \text{pixels need 112 layers of stride 1}",
)
def receptive_field_growth(overlap: bool = True, small: bool = False):
    r"""Stacking enlarges the receptive field, linearly in depth.

    $L$ layers of stride 1 with kernel $k$ see $1 + L (k - 1)$ inputs: windows nest, so that
    dependencies reach further the deeper one looks, linearly unless strides, pooling or dilation
    are used. Covering 224 pixels takes 112 layers with $k = 3$ of stride 1, but five layers of
    stride 4 see 3, 11, 43, 171, 683. Small kernels are a choice, for fewer parameters and more
    nonlinearities, and no necessity: AlexNet begins with $11 \times 11$, ResNet with $7 \times 7$.

    *Proof.* Each layer adds $k - 1$ to the extent; with positive weights no path cancels.

    Checked for $k$ in 2, 3, 5 and $L \le 6$, by Jacobians.

    Knobs:
        overlap: Whether neighbouring windows overlap; if not, $L k$ inputs are said to be seen.
        small: Whether the first kernels of AlexNet and ResNet are said to be no larger than 3.
    """
    for k in (2, 3, 5):
        for depth in range(1, 7):
            stated = 1 + depth * (k - 1) if overlap else depth * k
            found = entries_of_row(stack([(k, 1, 1)] * depth), 40)
            at = {"k": k, "L": depth}
            yield equals("inputs of a unit", found, stated, **at)
            ours = int(field_of(stack([(k, 1, 1)] * depth), (1, 40)).mask.sum())
            yield equals("inputs of a unit by the library", ours, stated, **at)
    yield at_least("pixels that 112 layers see", deep_field([(3, 1, 1)] * 112), 224)
    yield at_most("pixels that 111 layers see", deep_field([(3, 1, 1)] * 111), 223)
    for depth, wanted in enumerate((3, 11, 43, 171, 683), 1):
        found = deep_field([(3, 4, 1)] * depth)
        yield equals("inputs of a unit with stride 4", found, wanted, L=depth)
    for net in (AlexNet(10, width=8), ResNet(18, 10, width=4)):
        first = next(layer for layer in net.modules() if isinstance(layer, nn.Conv2d))
        compare, bound = (at_most, 3) if small else (at_least, 7)
        side, name = first.kernel_size[0], type(net).__name__
        yield compare("side of the first kernel", side, bound, network=name)


receptive_field_growth.foil("windows side by side, $L k$ inputs", overlap=False)
receptive_field_growth.erratum(
    "D-209",
    printed="Fields soon cover the image, so convolutions must be small",
    right="Small kernels are a choice",
    why=r"A non sequitur: a large field is wanted, and it grows by 2 only with a $3 \times 3$ layer"
    r" of stride 1 (112 layers for 224 pixels); large kernels are used, $11 \times 11$ in AlexNet"
    r" and $7 \times 7$ in ResNet.",
    weight="soft",
    refuted_by="side of the first kernel",
    small=True,
)
