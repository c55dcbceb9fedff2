"""GoogLeNet, ResNet and DenseNet: what they hold, and what their connections keep."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals
from vademecum.convolution import (
    AlexNet,
    DenseBlock,
    DenseNet,
    GoogLeNet,
    InceptionModule,
    ResidualBlock,
    ResNet,
)
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
):
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


def resnet_table(depth: int, expansion: int, *, projections: bool) -> int:
    """The parameters of ResNet by a closed sum over its layers, with batch normalisation."""
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
    bottleneck = depth >= 50

    def layer(k: int, maps: int, out: int) -> int:
        return k * k * maps * out + 2 * out

    total, maps = layer(7, 3, 64), 64
    for stage, count in enumerate(blocks.get(depth, blocks[34])):
        width = 64 * 2**stage
        out = width * expansion if bottleneck else width
        for _ in range(count):
            if bottleneck:
                total += layer(1, maps, width) + layer(3, width, width) + layer(1, width, out)
            else:
                total += layer(3, maps, width) + layer(3, width, width)
            if maps != out and projections:
                total += layer(1, maps, out)
            maps = out
    return total + dense(maps, 1000)


def plain(block: ResidualBlock, x: Tensor) -> Tensor:
    """A block without its shortcut."""
    return block.bn2(block.conv2(block.bn1(block.conv1(x)).relu())).relu()


@claim(
    by="identity",
    sources=("A-160", "B-299"),
    short=r"x + F(x) = x\ \text{if}\ F = 0;\quad"
    r" \text{ResNet-18, 50}: 11{,}689{,}512,\ 25{,}557{,}032",
)
def resnet(
    run: Callable[[ResidualBlock, Tensor], Tensor] = lambda block, x: block(x),
    projections: bool = True,
    expansion: int = 4,
):
    r"""A ResNet is a stem, four stages of residual blocks, global pooling and one dense layer.

    The stem is a $7 \times 7$ convolution with stride 2, the stages have 64, 128, 256, 512 base
    channels, with a projection shortcut where size or channels change. Two $3 \times 3$
    convolutions a block give 18 and 34 layers (11,689,512 and 21,797,672 parameters for 1000
    classes), bottlenecks $1 \times 1$, $3 \times 3$, $1 \times 1$ with expansion 4 give 50, 101,
    152 (25,557,032, 44,549,160, 60,192,808). With the last scale of every branch set to 0 a block
    is its rectified shortcut, so the additional blocks of a deeper network start as the identity.

    Counts are by a closed sum: weights $k^2 c_{in} c_{out}$, two numbers a channel for each batch
    normalisation, the dense layer with bias.

    Knobs:
        run: What a block is taken to compute.
        projections: Whether shortcuts are projected, in the count by hand.
        expansion: How many times wider a bottleneck's output is, in the count by hand.
    """
    stated = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
    for depth, wanted in stated.items():
        with torch.device("meta"):
            net = ResNet(depth)  # pyright: ignore
        count = resnet_table(depth, expansion, projections=projections)
        yield equals("parameters, by a closed sum", entries(net), count, depth=depth)
        yield equals("parameters, as stated", entries(net), wanted, depth=depth)
    net = ResNet(34, width=3, zero_last=True).eval()
    for stage in (net.layer1, net.layer2[1:], net.layer3[1:]):
        blocks = [block for block in stage if isinstance(block, ResidualBlock)]
        x = torch.rand(2, blocks[0].conv1.in_channels, 5, 4)
        with torch.no_grad():
            for left_out in range(len(blocks) + 1):
                y = x
                for i, block in enumerate(blocks, 1):
                    y = run(block, y) if i != left_out else y
                yield equals("output of a stage whose last scales are 0, against its input", y, x,
                             tol=0.0, maps=x.shape[1], left_out=left_out)  # fmt: skip


resnet.foil("the plain network of the same layers: its output is 0", run=plain)
resnet.foil("no projections: 173,824 parameters fewer in 34 layers", projections=False)
resnet.foil("bottlenecks that do not expand", expansion=1)


def densenet_table(blocks: Sequence[int], g: int, growth: Callable[[int], int]) -> int:
    """The parameters of DenseNet by a closed sum over its layers."""
    maps = 2 * g
    total = conv(7, 3, maps, bias=False) + 2 * maps
    for i, layers in enumerate(blocks):
        if i:
            total += 2 * maps + conv(1, maps, maps // 2, bias=False)
            maps //= 2
        for _ in range(layers):
            total += 2 * maps + conv(1, maps, 4 * g, bias=False)
            total += 2 * 4 * g + conv(3, 4 * g, g, bias=False)
            maps += growth(g)
    return total + 2 * maps + dense(maps, 1000)


@claim(
    by="identity",
    sources=("A-161", "B-301"),
    short=r"c_0 + L g\ \text{maps after}\ L\ \text{layers},\quad L (L + 1) / 2\ \text{connections}",
)
def densenet(
    growth: Callable[[int], int] = lambda g: g,
    maps: Callable[[int, int, int], int] = lambda c0, layers, g: c0 + layers * g,
):
    r"""In a dense block every layer reads the block's input and all earlier outputs.

    Each layer adds $g$ channels (the growth rate), so after $L$ layers there are $c_0 + L g$; a
    $1 \times 1$ bottleneck of $4 g$ channels precedes each $3 \times 3$ convolution, and
    transitions halve channels and size. With $g = 32$ and blocks of 6, 12, 24, 16 layers
    (DenseNet-121) the widths after the blocks are 256, 512, 1024, 1024 and there are 7,978,856
    parameters; 169, 201 and 161 layers ($g = 48$) have 14,149,480, 20,013,928 and 28,681,000. $L$
    layers have $L (L + 1) / 2$ direct connections. Concatenation copies: the gradient of what is
    behind a block in what is before holds an identity, whatever the weights of the layers.

    Knobs:
        growth: How many channels a layer adds, from the growth rate $g$.
        maps: How many channels leave a block, from $c_0$, $L$ and $g$.
    """
    stated = {
        121: ((6, 12, 24, 16), 32, 7_978_856), 169: ((6, 12, 32, 32), 32, 14_149_480),
        201: ((6, 12, 48, 32), 32, 20_013_928), 161: ((6, 12, 36, 24), 48, 28_681_000),
    }  # fmt: skip
    for depth, (blocks, g, wanted) in stated.items():
        count = densenet_table(blocks, g, growth)
        yield equals("parameters, by a closed sum", entries(dense_net(depth)), count, depth=depth)
        yield equals("parameters, as stated", entries(dense_net(depth)), wanted, depth=depth)
    found = widths(dense_net(121), torch.empty(1, 3, 64, 64, device="meta"))
    for i, (width, wanted) in enumerate(zip(found, (256, 512, 1024, 1024), strict=True), 1):
        yield equals("maps behind a block of DenseNet-121", width, wanted, block=i)
    yield from connected(maps)


def connected(maps: Callable[[int, int, int], int]) -> Iterator[Evidence]:
    """A block against its layers, one by one, and what reaches what when all weights are 0."""
    for layers, c0, g in ((4, 3, 2), (2, 6, 5)):
        block = DenseBlock(layers, c0, g).eval()
        x = torch.randn(2, c0, 4, 5, requires_grad=True)
        y, parts = block(x), [x]
        for layer in block.children():
            parts.append(layer(torch.cat(parts, 1)))
        yield equals("maps behind the block", y.shape[1], maps(c0, layers, g), layers=layers)
        yield equals("output against its layers one by one", y, torch.cat(parts, 1), layers=layers)
        for p in block.parameters():
            nn.init.zeros_(p)
        u = torch.randn(2, c0, 4, 5)
        (gradient,) = torch.autograd.grad((block(x)[:, :c0] * u).sum(), x)
        yield equals("gradient through the copies, all weights 0", gradient, u, tol=0.0,
                     layers=layers)  # fmt: skip
        yield equals("direct connections", connections(block, x), layers * (layers + 1) // 2,
                     layers=layers)  # fmt: skip


def connections(block: DenseBlock, x: Tensor) -> int:
    """How many pairs of a layer and something before it there are where the layer sees the other.

    All weights are 0, so that a change goes no way but by copies.
    """
    layers, seen = list(block.children()), {}
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, given: seen.update({layer: given[0]}))
    count = 0
    for source in (None, *layers):
        with torch.no_grad():
            block(x)
            before = dict(seen)
            if source is None:
                block(x + 1)
            else:
                hook = source.register_forward_hook(lambda *call: call[2] + 1)
                block(x)
                hook.remove()
        count += sum(not torch.equal(seen[layer], before[layer]) for layer in layers)
    return count


densenet.foil("a layer adds as many as its bottleneck has", growth=lambda g: 4 * g)
densenet.foil("outputs that are added, as in a residual block", maps=lambda c0, layers, g: c0)


@cache
def dense_net(depth: int) -> DenseNet:
    """A DenseNet without numbers, made once: its hundreds of layers take half a second."""
    with torch.device("meta"):
        return DenseNet(depth)  # pyright: ignore


def widths(net: DenseNet, x: Tensor) -> list[int]:
    """How many maps leave each dense block."""
    seen: list[int] = []
    hooks = [
        module.register_forward_hook(lambda *call: seen.append(call[2].shape[1]))
        for module in net.modules()
        if isinstance(module, DenseBlock)
    ]
    net(x)
    for hook in hooks:
        hook.remove()
    return seen
