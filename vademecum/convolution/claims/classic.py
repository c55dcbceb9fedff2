"""LeNet-5, AlexNet and VGG: what they hold, and where."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.convolution import VGG, AlexNet, LeNet5, ResNet, scaled_tanh
from vademecum.convolution.claims._counts import (
    conv,
    dense,
    entries,
    held,
    resnet_table,
    sides,
)

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


def alexnet_table(groups: int) -> tuple[int, int]:
    """The parameters of AlexNet's convolutions and of its dense layers, from the paper's table."""
    convolutions = conv(11, 3, 96) + conv(5, 96, 256, groups=groups) + conv(3, 256, 384)
    convolutions += conv(3, 384, 384, groups=groups) + conv(3, 384, 256, groups=groups)
    return convolutions, dense(9216, 4096) + dense(4096, 4096) + dense(4096, 1000)


def vgg_table(stages: tuple[tuple[int, int], ...], *, bias: bool = True) -> tuple[int, int]:
    """The parameters of VGG's convolutions and of its dense layers."""
    total, maps = 0, 3
    for layers, out in stages:
        for _ in range(layers):
            total += conv(3, maps, out, bias=bias)
            maps = out
    return total, dense(25088, 4096) + dense(4096, 4096) + dense(4096, 1000)


@claim(
    by="exhaustion",
    sources=("D-233",),
    short=r"\text{dense: AlexNet}\ 58.6 / 61.0\,\mathrm M,"
    r" \text{ResNet-50}\ 2.0 / 25.6\,\mathrm M",
)
def dense_layers_dominate(mostly_dense: tuple[str, ...] = ("AlexNet", "VGG-16"), groups: int = 2):
    r"""Most parameters of classic networks sit in their dense layers.

    AlexNet with its two groups has 58,631,144 of its 60,965,224 parameters there (96.2 %), VGG-16
    has 123,642,856 of 138,357,544 (89.4 %). Networks with global average pooling do not follow
    this: the head of ResNet-50 has 2,049,000 of 25,557,032 (8.0 %). Counted layer by layer from the
    architectures' tables, and in the modules.

    Knobs:
        mostly_dense: The networks that are said to have more than half of their parameters in dense
            layers.
        groups: In how many groups AlexNet's layers 2, 4 and 5 are split.
    """
    tables = {
        "AlexNet": alexnet_table(groups),
        "VGG-16": vgg_table(STAGES),
        "ResNet-50": (resnet_table(50, 4, projections=True) - 2_049_000, dense(2048, 1000)),
    }
    printed = {"AlexNet": 60_965_224, "VGG-16": 138_357_544, "ResNet-50": 25_557_032}
    with torch.device("meta"):
        networks = {"AlexNet": AlexNet(variant="2012"), "VGG-16": VGG(16), "ResNet-50": ResNet(50)}
    for name, net in networks.items():
        features, head = tables[name]
        found = held(net, nn.Linear)
        yield equals("parameters of dense layers", found, head, network=name)
        yield equals("all parameters", entries(net), features + head, network=name)
        yield equals("all parameters, as printed", entries(net), printed[name], network=name)
        compare = at_least if name in mostly_dense else at_most
        yield compare("share of the dense layers", found / entries(net), 0.5, network=name)


dense_layers_dominate.foil(
    "so have networks with global pooling", mostly_dense=("AlexNet", "VGG-16", "ResNet-50")
)
dense_layers_dominate.foil("AlexNet in one group: 62,378,344", groups=1)


@claim(
    by="exhaustion",
    sources=("D-234", "D-235"),
    short=r"156 + 2416 + 48120 + 10164 + 850 = 61706;\ \text{1998: } 156 + 12 + 1516 + 32 + 48120 "
    r"+ 10164 = 60000",
)
def lenet5(padding: int = 0, read: int = 60) -> Iterator[Evidence]:
    r"""LeNet-5 has two $5 \times 5$ convolutions with sub-sampling, and dense layers 120-84-10.

    On digits of $32 \times 32$ its maps have the sides 28, 14, 10, 5. With a second convolution
    that reads all maps, and pooling without parameters, it has 61,706 parameters; the original,
    whose second convolution reads by a table of 60 entries and whose sub-sampling is trained, has
    60,000 before the output layer. Of the sixteen maps in that table six read three neighbours of
    the six maps before, six read four neighbours, three read four that are not, and one reads all;
    each of the six is read ten times. The network combined local fields, shared weights and
    sub-sampling, which are older: Neocognitron (1980), LeCun et al. (1989); that is quoted.

    Knobs:
        padding: Zeros around the digit; with 2 the first convolution keeps the size.
        read: How many entries the table of the second convolution has.
    """
    x = torch.zeros(1, 1, 32, 32)
    for variant in ("modern", "1998"):
        net = LeNet5(padding=padding, variant=variant)
        pooling = type(net.pool1)
        found = sides(net, x, nn.Conv2d, type(net.conv2), pooling)
        for place, (side, wanted) in enumerate(zip(found, (28, 14, 10, 5), strict=True), 1):
            yield equals("side of the maps", side, wanted, layer=place, variant=variant)
        table = read if variant == "1998" else 96
        parts = {
            "C1": (net.conv1, 25 * 6 + 6), "C3": (net.conv2, 25 * table + 16),
            "C5": (net.fc1, (25 * 16 + 1) * 120), "F6": (net.fc2, 121 * 84),
        }  # fmt: skip
        if variant == "1998":
            parts |= {"S2": (net.pool1, 6 * 2), "S4": (net.pool2, 16 * 2)}
        else:
            parts |= {"output": (net.fc3, 85 * 10)}
        for name, (part, wanted) in parts.items():
            yield equals("parameters", entries(part), wanted, layer=name, variant=variant)
        yield equals("all parameters", entries(net), sum(w for _, w in parts.values()),
                     variant=variant)  # fmt: skip
        stated = 60_000 if variant == "1998" else 61_706
        yield equals("all parameters, as stated", entries(net), stated, variant=variant)
    reads = connections(LeNet5(variant="1998").conv2)
    yield equals("maps that each map reads", reads.sum(1).sort().values,
                 torch.tensor([3] * 6 + [4] * 9 + [6]))  # fmt: skip
    yield equals("how often each map is read", reads.sum(0), torch.full((6,), 10))
    breaks = (reads != reads.roll(1, 1)).sum(1) // 2  # runs of neighbours around the circle
    yield equals("maps that read one run of neighbours", int((breaks == 1).sum()), 12)
    yield equals("different sets of maps read", len({tuple(row.tolist()) for row in reads}), 16)


lenet5.foil("padding in the first convolution: 32, 16, 12, 6", padding=2)
lenet5.foil("a table of 64 entries, as if each map read four", read=64)


def connections(layer: nn.Module) -> Tensor:
    """Which maps of the input move which maps of the output, as 0 and 1."""
    x = torch.zeros(7, 6, 5, 5)
    x[range(1, 7), range(6)] = torch.randn(6, 5, 5)
    with torch.no_grad():
        y = layer(x)[:, :, 0, 0]
    return (y[1:] != y[0]).int().T


@claim(
    by="identity",
    sources=("D-236",),
    short=r"f(x) = 1.7159 \tanh(2x/3): \quad f(\pm 1) = \pm 1,\ f'(0) = 1.1439",
)
def lecun_tanh(
    unit: Callable[[Tensor], Tensor] = scaled_tanh, slope: float = 1.14393
) -> Iterator[Evidence]:
    r"""LeNet-5 used the unit $f(x) = 1.7159 \tanh(2x/3)$, which predates ReLU.

    The constants make $f(\pm 1) = \pm 1$ (to $3 \cdot 10^{-6}$), give the slope $1.14393$ at 0, and
    put the extrema of $f''$ at $\pm \frac32 \operatorname{artanh}(1 / \sqrt 3) = \pm 0.9877$, close
    to the targets $\pm 1$: there $\tanh^2 = 1/3$. $f$ is odd.

    Knobs:
        unit: The unit.
        slope: Its slope at 0, to five decimals.
    """
    ends = torch.tensor([-1.0, 1.0])
    yield equals(r"$f(\pm 1)$", unit(ends), ends, tol=3e-6)  # as stated
    x = torch.linspace(0, 4, 41)
    yield equals("$f(-x)$ against $-f(x)$", unit(-x), -unit(x), tol=1e-14)
    step = torch.tensor(1e-4)  # the difference quotient errs by f''' h^2 / 6 < 1e-8
    yield equals("slope at 0", (unit(step) - unit(-step)) / (2 * step), slope, tol=6e-6)
    place = 1.5 * math.atanh(1 / math.sqrt(3))
    yield equals("place of the extremum", place, 0.9877, tol=5e-5)
    around = place + torch.linspace(-0.5, 0.5, 101)
    second = derivative(derivative(unit))(around)
    yield equals("where $|f''|$ is largest, on a grid", around[second.abs().argmax()], place,
                 tol=1e-9)  # fmt: skip
    yield equals("$f'''$ at the extremum of $f''$",
                 derivative(derivative(derivative(unit)))(torch.tensor([place])), 0.0,
                 tol=1e-12)  # fmt: skip


lecun_tanh.foil(r"plain $\tanh$: $\tanh 1 = 0.76$", unit=torch.tanh)
lecun_tanh.foil("the slope of $1.7159 \\tanh x$", slope=1.7159)


def derivative(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The derivative of a function of each entry."""
    return torch.func.grad(lambda x: f(x).sum())


@claim(
    by="exhaustion",
    sources=("D-237", "D-238", "D-241"),
    short=r"\text{AlexNet}: 2{,}334{,}080 \text{ (convolutions)} + 58{,}631{,}144 \text{ (dense)} "
    r"= 60{,}965{,}224",
)
def alexnet(side: int = 227, groups: int = 2, unit: Callable[[Tensor], Tensor] = torch.relu):
    r"""AlexNet has five convolutions, the first $11 \times 11$ with stride 4, and three dense ones.

    It was trained on two GPUs, so layers 2, 4 and 5 are split into two groups:
    $2{,}334{,}080 + 58{,}631{,}144 = 60{,}965{,}224$ parameters, and on images of 227 the sides
    55, 27, 13, 13, 13, 6. The slope of ReLU is 1 for every positive input, while that of tanh is
    $1 - \tanh^2 x$ and decays like $4 e^{-2x}$: through five layers at 3 the product is 1 against
    less than $10^{-9}$. That this is why it trains faster is quoted.

    Knobs:
        side: That of the images.
        groups: In how many groups layers 2, 4 and 5 are split, in the count by hand.
        unit: What is said to have slope 1 for positive inputs.
    """
    with torch.device("meta"):
        net, x = AlexNet(variant="2012"), torch.empty(1, 3, side, side)
    found = sides(net.features, x, nn.Conv2d, nn.MaxPool2d)
    for layer, (one, wanted) in enumerate(
        zip(found, (55, 27, 27, 13, 13, 13, 13, 6), strict=True), 1
    ):
        yield equals("side behind convolutions and poolings", one, wanted, layer=layer)
    convolutions, head = alexnet_table(groups)
    yield equals("parameters of convolutions", held(net, nn.Conv2d), convolutions)
    yield equals("parameters of dense layers", held(net, nn.Linear), head)
    yield equals("all parameters", entries(net), 60_965_224)
    x = torch.tensor([0.1, 1.0, 3.0, 5.0])
    yield equals("slope for positive inputs", derivative(unit)(x), torch.ones(4))
    saturated = torch.tensor([5.0, 8.0])
    ratio = derivative(torch.tanh)(saturated) / (4 * (-2 * saturated).exp())
    bound = 3 * (-2 * saturated).exp()  # 1 / cosh^2 = 4 e^(-2x) / (1 + e^(-2x))^2
    yield at_most(r"slope of tanh over $4 e^{-2x}$, from 1", (ratio - 1).abs(), bound)
    product = derivative(torch.tanh)(torch.tensor([3.0])).prod() ** 5
    yield at_most("product of five slopes of tanh at 3", product, 1e-9)


alexnet.foil("images of 224 without padding: 54", side=224)
alexnet.foil("one group a layer: 62,378,344 parameters", groups=1)
alexnet.foil("tanh has slope 1 for no positive input", unit=torch.tanh)


@claim(
    by="exhaustion",
    sources=("D-242",),
    short=r"\text{VGG-16}: 14{,}714{,}688 \text{ (convolutions)} + 123{,}642{,}856 \text{ "
    r"(dense)} = 138{,}357{,}544",
)
def vgg16(depth: int = 16, bias: bool = True):
    r"""VGG-16 has thirteen $3 \times 3$ convolutions, five poolings and three dense layers.

    That are 14,714,688 convolutional and 123,642,856 dense parameters, 138,357,544 in all for 1000
    classes on images of $224 \times 224 \times 3$, which the poolings halve to 112, 56, 28, 14, 7.

    Knobs:
        depth: How many layers with weights the module has.
        bias: Whether convolutions have biases, in the count by hand.
    """
    with torch.device("meta"):
        net, x = VGG(depth), torch.empty(1, 3, 224, 224)  # pyright: ignore
    convolutions, head = vgg_table(STAGES, bias=bias)
    kinds: Any = nn.Conv2d
    yield equals("number of convolutions", sum(isinstance(m, kinds) for m in net.modules()), 13)
    yield equals("parameters of convolutions", held(net, nn.Conv2d), convolutions)
    yield equals("parameters of dense layers", held(net, nn.Linear), head)
    yield equals("all parameters", entries(net), 138_357_544)
    for place, side in enumerate(sides(net, x, nn.MaxPool2d), 1):
        yield equals("side behind a pooling", side, 224 >> place, pooling=place)


vgg16.foil("the table of VGG-19", depth=19)
vgg16.foil("convolutions without biases", bias=False)
