"""All conditionals in one pass: causal convolutions over time, masked ones over images."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from scipy.stats import chisquare
from torch import Tensor

from vademecum.claims import Evidence, claim, consistent, equals
from vademecum.convolution import CausalConv1d, WaveNet
from vademecum.generative import MaskedConv2d, PixelCNN

Mask = Literal["A", "B"]
Logits = Callable[[Tensor], Tensor]


def all_of(values: int, *shape: int) -> Tensor:
    """Every array of this shape with entries 0, ..., values - 1."""
    found = itertools.product(range(values), repeat=math.prod(shape))
    return torch.tensor(list(found)).view(-1, *shape)


def probabilities(logits: Tensor, x: Tensor) -> Tensor:
    """The product of conditionals of each example; logits have their classes on the second axis."""
    law = logits.detach().softmax(1).gather(1, x[:, None])
    return law.flatten(1).prod(1)


def dilated(k: int, dilations: tuple[int, int], first: Mask, ahead: int) -> Logits:
    """Two causal layers with a tanh between; mask A moves the input on by a step."""
    one = CausalConv1d(k, 5, 2, dilation=dilations[0])
    two = CausalConv1d(5, k, 2, dilation=dilations[1])

    def logits(x: Tensor) -> Tensor:
        seen = torch.nn.functional.one_hot(x, k).double().mT
        before = 1 if first == "A" else 0
        seen = torch.nn.functional.pad(seen, (before, 0))[:, :, : x.shape[1]]
        h = torch.tanh(2 * one(seen))
        return 3 * two(torch.nn.functional.pad(h[:, :, ahead:], (0, ahead)))

    return logits


def wavenet(k: int, first: Mask) -> Logits:
    """WaveNet says what follows the samples so far; the first one follows a class that is fixed."""
    net = WaveNet(k, width=6, skip=8, blocks=1, depth=2)
    for skip in (layer.skip for layer in net.gated):
        assert skip.bias is not None
        skip.bias.data.add_(3)  # 6 weights are at most 6^(-1/2) each: rectifiers are always on
    for p in net.head.parameters():
        p.data.abs_()

    def logits(x: Tensor) -> Tensor:
        start = torch.ones(len(x), 1, dtype=x.dtype)
        return 3 * net(torch.cat([start, x[:, :-1]], 1) if first == "A" else x)

    return logits


def influence(logits: Logits, k: int, T: int) -> Tensor:
    """Whether logits at t move, exactly, when the symbol at s becomes another: (t, s)."""
    x = torch.randint(k, (T,))
    changed = x.repeat(T, 1)
    changed.diagonal().add_(1).remainder_(k)
    both = logits(torch.cat([changed, x[None]])).detach()
    return ((both[:-1] - both[-1]).abs().amax(1) > 0).T.long()


@claim(
    by="identity",
    sources=("A-333", "D-260"),
    budget=0.5,
    short=r"\ell_t = \ell_t(x_{<t}) \;\Rightarrow\; \sum_x \prod_t p(x_t | x_{<t}) = 1",
)
def causal_masking(first: Mask = "A", ahead: int = 0):
    r"""Causal masking in convolutional autoregressive models.

    A network computes all conditionals of a sequence in one pass if the logits for $x_t$ are
    functions of $x_{<t}$ only: causal (optionally dilated) convolutions whose first layer also
    excludes the current position. Then the products of conditionals sum to 1 over all sequences, as
    in WaveNet, a deep model of raw audio made of causal dilated convolutions.

    *Proof.* Sum over the last symbol first: its conditional sums to 1, and no other factor knows
    it. *Checked* for two layers of `CausalConv1d` with two taps and dilations 1 and 2, 2 and 1, and
    1 and 1, and for `WaveNet` with two layers: for 3 symbols and length 4, and 2 symbols and length
    7, over all sequences; and the logits that move when one symbol changes are those that sums of
    taps reach, and no others.

    Knobs:
        first: What the first layer knows: earlier positions (A), or the current one, too (B).
        ahead: How many steps the second layer looks ahead.
    """
    for k, T in ((3, 4), (2, 7)):
        x = all_of(k, T)
        for dilations in ((1, 2), (2, 1), (1, 1)):
            net = dilated(k, dilations, first, ahead)
            yield from _normalised(f"dilations {dilations}", net, x, k)
            yield from _reached(f"dilations {dilations}", net, dilations, k, T)
        net = wavenet(k, first)
        yield from _normalised("WaveNet", net, x, k)
        yield from _reached("WaveNet", net, (1, 2), k, T)


def _normalised(net: str, logits: Logits, x: Tensor, k: int) -> Iterator[Evidence]:
    """Sums of at most 128 products of 7 numbers below 1: 1e-13 of rounding."""
    total = probabilities(logits(x), x).sum()
    yield equals("sum over all sequences", total, 1.0, tol=1e-12, net=net, k=k, T=x.shape[1])


def _reached(
    net: str, logits: Logits, dilations: tuple[int, int], k: int, T: int
) -> Iterator[Evidence]:
    """Which symbols are known at each time: those a sum of taps and one step ago."""
    lags = {1 + a + b for a in (0, dilations[0]) for b in (0, dilations[1])}
    wanted = torch.tensor([[int(t - s in lags) for s in range(T)] for t in range(T)])
    known = torch.stack([influence(logits, k, T) for _ in range(3)]).amax(0)
    yield equals("symbols that logits depend on", known, wanted, net=net, k=k, T=T)


causal_masking.foil("the first layer knows the current symbol (mask B)", first="B")
causal_masking.foil(
    "a later layer looks a step ahead", refuted_by="sum over all sequences", ahead=1
)


def pixels(shape: tuple[int, int, int], first: Mask, *, layers: int, stacks: Literal[1, 2]):
    """A random PixelCNN with kernels of 3 columns and as many layers, the first one included."""
    colours = shape[0]
    net = PixelCNN(
        shape, 2, width=8 * colours, depth=layers - 1, first_size=3, head=8 * colours,
        stacks=stacks,
    )  # fmt: skip
    if first == "B":
        own = net.first
        other = MaskedConv2d(
            own.in_channels, own.out_channels, 3, kind="B", colours=colours, rows=own.rows
        )
        net.first.mask.copy_(other.mask)
    for p in net.parameters():
        p.data.mul_(2)
    for p in (net.first.bias, net.head.weight, net.head.bias):
        if p is not None:
            p.data.abs_()  # so that no rectifier is off for all images
    return net


def seen_from(net: PixelCNN, places: list[tuple[int, int]]) -> Tensor:
    """Whether the logits at each place have a derivative in each pixel: (places, h, w)."""
    copies = 4  # images for each: 8 rectifiers that are on in half of them, off in all at 2^-32
    z = torch.randn(copies * len(places), *net.shape, requires_grad=True)
    rows, columns = torch.tensor(places).repeat_interleave(copies, 0).T
    found = net.relaxed(z)[torch.arange(len(z)), :, :, rows, columns]
    (gradient,) = torch.autograd.grad((found * torch.randn_like(found)).sum(), z)
    return gradient.view(len(places), copies, *net.shape).abs().amax((1, 2)) > 0


def reach(layers: int) -> set[tuple[int, int]]:
    """How many rows up and columns to the right a stack of masked 3 x 3 layers sees."""
    taps = {(1, -1), (1, 0), (1, 1), (0, -1)}  # of mask A
    found = set(taps)
    for _ in range(layers - 1):
        found |= {(a + up, b + right) for a, b in found for up, right in taps}
    return found


@claim(
    by="identity",
    sources=("A-333",),
    budget=1.0,
    short=r"p(x) = \prod_i p(x_i | x_{<i}); \text{ masks } 3 \times 3 \text{"
    r" miss } a \text{ rows up}, b > a \text{ to the right}",
)
def pixelcnn(first: Mask = "A", slope: float = 1.0, n: int = 2000):
    r"""PixelCNN.

    PixelCNN models an image pixel by pixel in raster order, $p(x) = \prod_i p(x_i \mid x_{<i})$,
    with masked convolutions: the first mask (A) excludes the current pixel, later ones (B) include
    it, rows below and pixels to the right are always excluded; with several channels the order of
    channels enters the masks too. The product of conditionals is normalised. A stack of masked $3
    \times 3$ layers has a blind spot: pixels $a$ rows above and $b > a$ columns to the right are
    never seen, at any depth (two stacks, one vertical and one horizontal, remove it).

    *Checked* for `PixelCNN` with random weights: the derivatives of five outputs in all pixels of
    $11 \times 11$ images for 1, 3 and 12 layers, against sums of taps, and with 12 layers, which
    reach all rows, the unseen earlier pixels are those of the blind spot (10 of 115 for the middle
    of the last row), or none with two stacks; the sum over all binary images of several sizes, one
    with two channels; samples, drawn with what layers made of earlier pixels kept, against the
    logits of a whole pass, and by a chi-squared test against the law.

    Knobs:
        first: The mask of the first layer.
        slope: A pixel is said to be unseen at any depth if $b$ exceeds $a$ times this.
        n: How many images are drawn for the test of the law.
    """
    yield from _sums(first)
    side, middle = 11, 5
    places = [(10, middle), (10, 2), (7, 9), (0, 4), (3, 0)]
    for layers in (1, 3, 12):
        net = pixels((1, side, side), first, layers=layers, stacks=1)
        offsets = reach(layers)
        wanted = [
            [[int((i - r, c - j) in offsets) for c in range(side)] for r in range(side)]
            for i, j in places
        ]
        known = seen_from(net, places).long()
        yield equals("pixels that outputs depend on", known, torch.tensor(wanted), layers=layers)
    for stacks in (1, 2):
        net = pixels((1, side, side), first, layers=12, stacks=stacks)
        known = seen_from(net, places)
        for place, seen in zip(places, known, strict=True):
            earlier = [divmod(p, side) for p in range(place[0] * side + place[1])]
            unseen = sum(not seen[pixel] for pixel in earlier)
            blind = sum(c - place[1] > slope * (place[0] - r) for r, c in earlier)
            at = {"stacks": stacks, "row": place[0], "column": place[1], "earlier": len(earlier)}
            yield equals("earlier pixels unseen", int(unseen), blind if stacks == 1 else 0, **at)
    yield from _samples(n)


def _sums(first: Mask) -> Iterator[Evidence]:
    """Sums of at most 64 products of 6 numbers below 1: 1e-13 of rounding."""
    for shape in ((1, 2, 2), (1, 2, 3), (2, 1, 2)):
        for stacks in (1, 2):
            net = pixels(shape, first, layers=3, stacks=stacks)
            x = all_of(2, *shape)
            at = {"shape": str(shape), "stacks": stacks}
            yield equals("sum over all images", net.log_prob(x).exp().sum(), 1.0, tol=1e-12, **at)
            by_hand = probabilities(net(x), x)
            yield equals("probabilities", net.log_prob(x).exp(), by_hand, tol=1e-12, **at)


def _samples(n: int) -> Iterator[Evidence]:
    """What was kept, against a whole pass, which is right for all pixels of a drawn image."""
    for shape in ((1, 3, 4), (3, 2, 3)):
        net = pixels(shape, "A", layers=4, stacks=1 if shape[0] == 1 else 2)
        drawn = net.sample(40, generator=torch.Generator().manual_seed(0))
        c, h, w = shape
        u = torch.rand(h, w, c, 40, generator=torch.Generator().manual_seed(0)).permute(3, 2, 0, 1)
        again = (net(drawn).softmax(1).cumsum(1) <= u[:, None]).sum(1)
        yield equals("values that a whole pass draws", drawn, again, shape=str(shape))
    net, x = pixels((1, 2, 2), "A", layers=2, stacks=2), all_of(2, 1, 2, 2)
    counts = (net.sample(n)[:, None] == x).flatten(2).all(2).sum(0).numpy()
    law = net.log_prob(x).exp().detach().numpy()
    keep = n * law >= 5  # for which the statistic's law is near enough that of chi squared
    seen = np.append(counts[keep], counts[~keep].sum())
    wanted = np.append(n * law[keep], n * law[~keep].sum())
    some = wanted > 0
    yield consistent("law of the samples", float(chisquare(seen[some], wanted[some]).pvalue))


pixelcnn.foil("mask B in the first layer", refuted_by="sum over all images", first="B")
pixelcnn.foil("depth closes the blind spot", refuted_by="earlier pixels unseen", slope=float("inf"))
pixelcnn.foil("twice as steep", refuted_by="earlier pixels unseen", slope=2.0)
