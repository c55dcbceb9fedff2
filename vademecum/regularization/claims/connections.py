"""Shortcuts as functions: what they add to a class, and what is joined instead of added."""

from collections.abc import Iterator
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.convolution import DenseBlock
from vademecum.regularization import Residual


def one_unit(n: int, units: int, w1: Tensor, w2: Tensor) -> nn.Sequential:
    """A block of one hidden ReLU layer without biases."""
    block = nn.Sequential(
        nn.Linear(n, units, bias=False), nn.ReLU(), nn.Linear(units, n, bias=False)
    )
    block[0].weight.data, block[2].weight.data = w1.reshape(units, n), w2.reshape(n, units)
    return block


@claim(
    by="identity",
    sources=("B-300",),
    short=r"w_2 (w_1 x)_+ \ne x,\ \text{but}\ x + 0 = x;\quad x = (x)_+ - (-x)_+",
)
def residual_expressivity(shortcut: bool = True, units: int = 2) -> Iterator[Evidence]:
    r"""At a fixed width shortcuts enlarge the class of functions.

    Shortcuts mainly help optimisation, but at fixed width they also add representational power: a
    ReLU block with one hidden unit is constant on a half-line and never equals the identity on
    $\mathbb R$, whereas the residual block with zero weights does, and $x + 2 (-x)_+ = |x|$, while
    plain networks of width 1 are monotone, whatever their depth, and stay at least 1/2 from $|x|$
    on $[-1, 1]$. A plain block widened by $2 n$ ReLUs emulates the shortcut exactly, $x = (x)_+ -
    (-x)_+$. That residual networks with one-neuron hidden layers are universal (Lin and Jegelka,
    2018), and plain ReLU networks of width at most the input dimension are not, is quoted.

    *Proof.* $w_2 (w_1 x)_+$ vanishes where $w_1 x \le 0$, which holds 1 or $-1$. A monotone $h$ has
    $h(0) \le \max(h(-1), h(1))$ and $\ge \min$, and $|x|$ is 1, 0, 1 there. Checked on a grid of
    weights, for random networks up to 4 layers, and for $n = 1, 3$.

    Knobs:
        shortcut: Whether the one-unit blocks in question, one of which is to be the identity on
            $[-1, 1]$, have a shortcut.
        units: How many ReLUs a coordinate gets in the widened block.
    """
    x = torch.linspace(-1, 1, 201)[:, None]
    grid = torch.linspace(-4, 4, 81)
    blocks = grid * (grid[:, None] * x[:, :, None]).relu()  # x, w1, w2
    away = (blocks - x[:, :, None]).abs().amax(0)
    yield at_least("distance of plain one-unit blocks from the identity", away, 1.0, tol=1e-12)
    away = (blocks + int(shortcut) * x[:, :, None] - x[:, :, None]).abs().amax(0).min()
    yield equals("least distance of the blocks in question", away, 0.0, tol=1e-12)
    for depth in (1, 2, 3, 4):
        h, far = x, torch.tensor([[1e3], [2e3], [-1e3], [-2e3]])
        for _ in range(depth):
            w, b = torch.randn(()).sign() * (0.2 + torch.rand(())), torch.randn(())
            h, far = (w * h + b).relu(), (w * far + b).relu()
        w, b = torch.randn(2)
        h, far = w * h + b, w * far + b
        flat = min((far[0] - far[1]).abs(), (far[2] - far[3]).abs())
        yield equals("change on a half-line", flat, 0.0, tol=0.0, depth=depth)
        bend = (h - x.abs()).abs().max()
        yield at_least(
            "distance of a plain network from the absolute value", bend, 0.5, depth=depth
        )
    for n in (1, 3):
        x = torch.randn(50, n)
        zero = Residual(one_unit(n, 1, torch.zeros(n), torch.zeros(n)))
        yield equals("residual block with zero weights", zero(x).detach(), x, tol=0.0, n=n)
        eye = torch.eye(n)
        wide = one_unit(n, units * n, torch.cat([eye, -eye])[: units * n],
                        torch.cat([eye, -eye], 1)[:, : units * n])  # fmt: skip
        yield equals("widened plain block", wide(x).detach(), x, tol=0.0, n=n)
    x = torch.randn(50, 1)
    bent = Residual(one_unit(1, 1, -torch.ones(1), 2 * torch.ones(1)))
    yield equals("residual block that is the absolute value", bent(x).detach(), x.abs(), tol=1e-15)


residual_expressivity.foil("as many ReLUs as inputs keep the positive part alone", units=1)
residual_expressivity.erratum(
    "B-300",
    printed="They improve training, but do not increase representational power!",
    right="They improve training, and at a fixed width they increase representational power.",
    why=r"$W_2 (W_1 x + b)_+ + c$ with one hidden unit is constant on a half-line, so it never"
    r" equals $x$ on $\mathbb R$, whereas $x + W_2 (W_1 x)_+$ with $W_2 = 0$ does; deep narrow"
    r" residual nets are universal where plain nets of the same width are not.",
    weight="hard",
    refuted_by="least distance of the blocks in question",
    shortcut=False,
)


@claim(
    by="identity",
    sources=("A-161", "A-163", "B-301", "B-302", "C-058"),
    short=r"\text{a dense block of}\ L\ \text{layers with growth}\ g\ \text{has}\ c_0 + L g\ "
    r"\text{channels}",
)
def dense_connectivity(
    count: Literal["c0 + L g", "c0 2^L", "c0 + g"] = "c0 + L g", join: bool = True
) -> Iterator[Evidence]:
    r"""Skip connections add (ResNet) or concatenate (DenseNet, U-Net) earlier activations.

    A skip connection makes earlier activations available later: by addition the number of channels
    is kept, by concatenation numbers add (some texts reserve the word skip for this form). In a
    dense block every layer receives all earlier outputs; with growth rate $g$ there are $c_0 + L g$
    channels after $L$ layers.

    Checked for $L \le 6$: the first $c_0$ channels are the input bit by bit, each further slice is
    what its layer gives for all before it, and the Jacobian holds an identity.

    Knobs:
        count: How many channels are said to come out.
        join: Whether the input is said to be among them, or added to the first of them.
    """
    for layers, (c0, g) in product(range(1, 7), ((3, 2), (2, 5))):
        at = {"layers": layers, "c0": c0, "g": g}
        block, x = DenseBlock(layers, c0, g).eval(), torch.randn(2, c0, 4, 3)
        with torch.no_grad():
            out = block(x)
            stated = {"c0 + L g": c0 + layers * g, "c0 2^L": c0 * 2**layers, "c0 + g": c0 + g}
            yield equals("channels", out.shape[1], stated[count], **at)
            yield equals(
                "first channels", out[:, :c0] if join else out[:, :c0] + x, x, tol=0.0, **at
            )
            for i, layer in enumerate(block.children()):
                end = c0 + i * g
                slice_, found = out[:, end : end + g], layer(out[:, :end])
                yield equals("what a layer adds", slice_, found, tol=1e-12, layer=i, **at)
            added = Residual(nn.Conv2d(c0, c0, 3, padding=1))(x)
            yield equals("channels after an addition", added.shape[1], c0, **at)
    block, x = DenseBlock(3, 2, 3).eval(), torch.randn(2, 2, 2)
    jacobian = torch.func.jacrev(lambda z: block(z[None])[0])(x).reshape(11 * 4, 8)
    yield equals("first rows of the Jacobian", jacobian[:8], torch.eye(8), tol=0.0)


dense_connectivity.foil("channels double", count="c0 2^L")
dense_connectivity.foil("only the last layer is kept", count="c0 + g")
dense_connectivity.foil("added where it should be joined", join=False)
