"""ResNet and DenseNet: what they hold, and what their connections keep."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals
from vademecum.convolution import DenseBlock, DenseNet, ResidualBlock, ResNet
from vademecum.convolution.claims._counts import conv, dense, entries, resnet_table


def plain(block: ResidualBlock, x: Tensor) -> Tensor:
    """A block without its shortcut."""
    y = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu())).relu()
    return block.bn3(block.conv3(y)).relu() if block.bottleneck else y


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
) -> Iterator[Evidence]:
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
        net, count = res_net(depth), resnet_table(depth, expansion, projections=projections)
        yield equals("parameters, by a closed sum", entries(net), count, depth=depth)
        yield equals("parameters, as stated", entries(net), wanted, depth=depth)
    net = ResNet(34, width=3, zero_last=True).eval()
    for stage in (list(net.layer1), list(net.layer2)[1:], list(net.layer3)[1:]):
        blocks = [block for block in stage if isinstance(block, ResidualBlock)]
        x = torch.rand(2, blocks[0].conv1.in_channels, 5, 4)
        with torch.no_grad():
            for left_out in range(len(blocks) + 1):
                y = x
                for i, block in enumerate(blocks, 1):
                    y = run(block, y) if i != left_out else y
                yield equals("output of a stage whose last scales are 0, against its input", y, x,
                             tol=0.0, maps=x.shape[1], left_out=left_out)  # fmt: skip
    for bottleneck in (False, True):
        block = ResidualBlock(3, 2, stride=2, bottleneck=bottleneck).eval()
        assert block.downsample is not None
        nn.init.zeros_(block.last_norm.weight)
        x = torch.randn(2, 3, 6, 5)
        with torch.no_grad():
            yield equals("block whose last scale is 0, against its rectified projection",
                         run(block, x), block.downsample(x).relu(), tol=0.0,
                         bottleneck=bottleneck)  # fmt: skip


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
) -> Iterator[Evidence]:
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
def res_net(depth: int) -> ResNet:
    """A ResNet without numbers, made once."""
    with torch.device("meta"):
        return ResNet(depth)  # pyright: ignore


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
