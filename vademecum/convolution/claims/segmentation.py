"""U-Net: its sizes, and what its skips keep."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.convolution import UNet
from vademecum.convolution.claims._counts import sides


@claim(
    by="exhaustion",
    sources=("D-247", "D-248", "D-249"),
    short=r"572 \to 284 \to 140 \to 68 \to 32, \quad 28 \to 52 \to 100 \to 196 \to 388",
)
def unet(
    lost: int = 4, divisor: int = 16, maps: Callable[[int], int] = lambda level: 4 * 2**level
) -> Iterator[Evidence]:
    r"""U-Net is a symmetric encoder-decoder with scores for each pixel.

    Four levels of two $3 \times 3$ convolutions and $2 \times 2$ max pooling double the channels
    and halve the size, four levels of stride-2 up-convolutions bring it back. The original, without
    padding, maps $572 \times 572$ to $388 \times 388$ (284, 140, 68, 32 behind the poolings, 52,
    100, 196, 388 behind the levels of the decoder), and so with every size that can be halved four
    times on its way: each pair of convolutions takes off 4. The variant with same padding keeps the
    size and takes just the sizes divisible by 16. All sizes up to 80 (same) and from 150 to 220
    (valid) are tried.

    Knobs:
        lost: By how many pixels two convolutions without padding shrink a map.
        divisor: What divides the sizes that the variant with same padding takes.
        maps: How many channels a level has, counted from 0, for a network that begins with 4.
    """
    with torch.device("meta"):
        valid, same = UNet(width=4, padding="valid"), UNet(width=4)
        x = torch.empty(1, 1, 572, 572)
    found = sides(valid, x, nn.Sequential)
    down, size = [], 572
    for _ in range(4):
        down.append(size - lost)
        size = (size - lost) // 2
    up = [size - lost]
    for _ in range(4):
        up.append(2 * up[-1] - lost)
    for level, (side, wanted) in enumerate(zip(found, down + up, strict=True)):
        yield equals("side behind two convolutions", side, wanted, place=level)
    stated = [568, 280, 136, 64, 28, 52, 100, 196, 388]
    yield equals("sides as stated", torch.tensor(down + up), torch.tensor(stated))
    for level, pair in enumerate(same.down):
        out = [m.out_channels for m in pair.modules() if isinstance(m, nn.Conv2d)][-1]
        yield equals("channels of a level", out, maps(level), level=level)
    for size in range(1, 81):
        kept = taken(same, size)
        yield equals("side of the output, 0 where a size is refused", kept,
                     0 if size % divisor else size, size=size)  # fmt: skip
    for size in range(150, 221):
        fits, side = True, size
        for _ in range(4):
            side -= lost
            fits, side = fits and side % 2 == 0, side // 2
        side -= lost
        for _ in range(4):
            side = 2 * side - lost
        yield equals("side of the output without padding, 0 where a size is refused",
                     taken(valid, size), side if fits and side > 0 else 0, size=size)  # fmt: skip


unet.foil("a convolution alone: 2 pixels", lost=2)
unet.foil("sizes that can be halved twice, such as 20", divisor=4)
unet.foil("as many channels at all levels", maps=lambda level: 4)


def taken(net: UNet, size: int) -> int:
    """The side of the output for a size; 0 if the network refuses it."""
    try:
        return net(torch.empty(1, 1, size, size, device="meta")).shape[-1]
    except ValueError:
        return 0


@claim(
    by="identity",
    sources=("D-250",),
    short=r"\operatorname{rank} \partial f / \partial x \le"
    r" \#\text{units of the bottleneck, without skips}",
)
def unet_skip(
    skips: bool = True, units: Callable[[int], int] = lambda n: n, draws: int = 5
) -> Iterator[Evidence]:
    r"""U-Net's skips restore detail: they lift the bound on the rank of its Jacobian.

    Encoder features of equal resolution are concatenated to the decoder's input, so that channel
    counts add. Without skips everything passes the bottleneck: for every choice of weights the
    Jacobian of the output in the input has at most the rank of the number of its units. With a
    full-resolution skip full rank is possible: the choice that shows it has convolutions near the
    identity. (With smooth units almost all choices then have full rank, since a determinant that is
    analytic and not 0 everywhere vanishes almost nowhere; that is quoted.)

    Images are $8 \times 8$, units are tanh, and the narrowest place, behind the second pooling, has
    $4 \cdot 2 \cdot 2 = 16$ units; the weights of skips are set to 0 to be without. Rounding leaves
    singular values of about $64 \epsilon = 10^{-14}$ times the largest.

    Knobs:
        skips: Whether the network that is said to have full rank has its skips.
        units: The bound on the rank, from the number of units of the bottleneck.
        draws: How many choices of weights without skips are tried.
    """
    for draw in range(draws):
        net = tanh_unet(skips=False)
        values = spectrum(net)
        beyond = (values[units(16)] / values[0]).log10()
        yield at_most("log10 of the singular value beyond the bound on the rank, over the largest",
                      beyond, -13.0, draw=draw)  # fmt: skip
    net = tanh_unet(skips=skips, identity=True)
    values = spectrum(net)
    yield at_least("least singular value with skips, over the largest", values[-1] / values[0],
                   1e-3)  # fmt: skip
    for up, merge in zip(net.up, net.merge, strict=True):
        assert isinstance(up, nn.ConvTranspose2d)
        conv = next(m for m in merge.modules() if isinstance(m, nn.Conv2d))
        level = conv.out_channels
        yield equals("channels that the decoder reads", conv.in_channels,
                     up.out_channels + level, level=level)  # fmt: skip


unet_skip.foil("a decoder alone restores the rank", skips=False)
unet_skip.foil("half the units bound the rank", units=lambda n: n // 2)


def tanh_unet(*, skips: bool, identity: bool = False) -> UNet:
    """A U-Net of two levels with tanh; with or without skips, its kernels near copies or drawn."""
    net = UNet(width=2, depth=2)
    for pair in (*net.down, *net.merge):
        assert isinstance(pair, nn.Sequential)
        pair[1], pair[3] = nn.Tanh(), nn.Tanh()
    for conv in net.modules():
        if isinstance(conv, nn.Conv2d):
            nn.init.normal_(conv.weight, std=(9 * conv.in_channels) ** -0.5)
            if identity:
                nn.init.dirac_(conv.weight).data.add_(0.02 * torch.randn_like(conv.weight))
    for merge in net.merge if not skips else ():
        first = next(m for m in merge.modules() if isinstance(m, nn.Conv2d))
        with torch.no_grad():
            first.weight[:, : first.in_channels // 2] = 0
    return net


def spectrum(net: nn.Module) -> Tensor:
    """The singular values of the Jacobian at a random image of 8 x 8."""
    x = 0.1 * torch.randn(64)
    jacobian = torch.func.jacrev(lambda x: net(x.view(1, 1, 8, 8)).flatten())(x)
    return torch.linalg.svdvals(jacobian.detach())
