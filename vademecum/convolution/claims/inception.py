"""Inception modules: and the network that is made of nine of them."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals
from vademecum.convolution import AlexNet, GoogLeNet, InceptionModule
from vademecum.convolution.claims._counts import conv, dense, entries

INCEPTION = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
"""The table of Szegedy et al.: 1x1, reduction, 3x3, reduction, 5x5, behind the pooling."""


@claim(
    by="identity",
    sources=("D-245",),
    short=r"64 + 128 + 32 + 32 = 256\ \text{maps},\quad 163{,}696\ \text{parameters}",
)
def inception_module(
    total: Callable[[Sequence[int]], int] = sum, padding: Callable[[int], int] = lambda k: k // 2
) -> Iterator[Evidence]:
    r"""An Inception module puts four branches side by side.

    $1 \times 1$, $3 \times 3$ and $5 \times 5$ convolutions, the latter two behind $1 \times 1$
    reductions, and a pooling branch work on the same input with same padding and stride 1; their
    outputs are concatenated along channels, so that the width is the sum of the branches' at
    unchanged size. Module 3a takes 192 maps to $64 + 128 + 32 + 32 = 256$, of $28 \times 28$, with
    163,696 parameters. Each block of channels is its branch evaluated alone.

    Knobs:
        total: The width of the output from those of the branches.
        padding: The zeros around the input of a kernel, in the branches evaluated alone.
    """
    for maps, widths, side in ((192, INCEPTION[0], 28), (5, (2, 3, 4, 1, 6, 3), 9)):
        module = InceptionModule(maps, widths, variant="2014")
        x = torch.randn(1, maps, side, side)
        outs = widths[0], widths[2], widths[4], widths[5]
        with torch.no_grad():
            y = module(x)
            alone = [branch(module, i, x, padding) for i in range(4)]
        yield equals("maps of the output", y.shape[1], total(outs), maps=maps)
        for i, (block, one) in enumerate(zip(y.split(outs, 1), alone, strict=True), 1):
            yield equals("side of a branch", one.shape[-1], side, maps=maps, branch=i)
            least = min(side, one.shape[-1])
            yield equals("block of the output against its branch", block[..., :least, :least],
                         one[..., :least, :least], tol=1e-12, maps=maps, branch=i)  # fmt: skip
    one, reduce3, three, reduce5, five, pooled = INCEPTION[0]
    count = conv(1, 192, one) + conv(1, 192, reduce3) + conv(3, reduce3, three)
    count += conv(1, 192, reduce5) + conv(5, reduce5, five) + conv(1, 192, pooled)
    module = InceptionModule(192, INCEPTION[0], variant="2014")
    yield equals("parameters of module 3a", entries(module), count)
    yield equals("parameters of module 3a, as stated", count, 163_696)


inception_module.foil("branches that are added, which takes equal widths", total=max)
inception_module.foil("branches without padding", padding=lambda k: 0)


def branch(module: InceptionModule, i: int, x: Tensor, padding: Callable[[int], int]) -> Tensor:
    """What a branch makes of an input, from its weights alone."""
    branches = module.branch1, module.branch2, module.branch3, module.branch4
    if i == 3:
        x = nn.functional.max_pool2d(x, 3, 1, padding=padding(3))
    for layer in branches[i].modules():
        if isinstance(layer, nn.Conv2d):
            k = layer.kernel_size[0]
            x = nn.functional.conv2d(x, layer.weight, layer.bias, padding=padding(k)).relu()
    return x


@claim(
    by="exhaustion",
    sources=("D-244",),
    short=r"\text{GoogLeNet (2014)}: 6{,}998{,}552\ \text{parameters}",
)
def googlenet(reductions: bool = True, kernel: int = 5):
    r"""GoogLeNet has 6,998,552 parameters, 8.7 times fewer than AlexNet, at far greater depth.

    Nine Inception modules stand behind a stem of three convolutions, and global average pooling and
    one dense layer behind them; counted for 1000 classes and without the auxiliary heads. It aims
    at width and computational efficiency.

    Knobs:
        reductions: Whether $1 \times 1$ convolutions reduce the maps before larger kernels.
        kernel: The side of the largest kernel of a module; torchvision's has 3.
    """
    count, maps = conv(7, 3, 64) + conv(1, 64, 64) + conv(3, 64, 192), 192
    for one, reduce3, three, reduce5, five, pooled in INCEPTION:
        inner3, inner5 = (reduce3, reduce5) if reductions else (maps, maps)
        count += conv(1, maps, one) + conv(3, inner3, three) + conv(kernel, inner5, five)
        count += conv(1, maps, pooled)
        count += conv(1, maps, reduce3) + conv(1, maps, reduce5) if reductions else 0
        maps = one + three + five + pooled
    count += dense(maps, 1000)
    with torch.device("meta"):
        net, other = GoogLeNet(variant="2014"), AlexNet(variant="2012")
        layers = sum(isinstance(m, nn.Conv2d | nn.Linear) for m in net.modules())
    yield equals("parameters", entries(net), count)
    yield equals("parameters, as stated", entries(net), 6_998_552)
    yield equals("times fewer than AlexNet", entries(other) / entries(net), 8.711, tol=5e-4)
    yield equals("modules with weights", layers, 3 + 9 * 6 + 1)


googlenet.foil("no reductions before the larger kernels", reductions=False)
googlenet.foil(r"$3 \times 3$ in place of $5 \times 5$, as torchvision's has", kernel=3)
