"""Parameters and shapes: counted layer by layer, followed through networks."""

from itertools import pairwise, product
from typing import Literal

import torch
from torch import nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.convolution import (
    VGG,
    AlexNet,
    CallRow,
    LeNet5,
    ResNet,
    UNet,
    conv_output_size,
    shape_trace,
)


@claim(
    by="identity",
    sources=("A-130", "B-275", "C-114", "D-265"),
    budget=1.0,
    short=r"C_{out} (p q c + 1)\ \text{parameters}; \quad 3 \times 3,\ 3 \to 16: 448,\ \text{dense}"
    r"\ 50\,348\,032",
)
def parameter_count(
    biases: Literal["one a kernel", "one a position", "one"] = "one a kernel", layers: int = 50
):
    r"""A convolution layer has $C_{out} (p q c + 1)$ parameters, whatever the size of the image.

    With $C_{out}$ kernels of size $p \times q$ over $c$ input channels there are $C_{out}\, p q c$
    weights and $C_{out}$ biases: sharing and locality make the layer small. A $3 \times 3$ layer
    from 3 to 16 channels on $32 \times 32$ images has 448 parameters, the dense layer between the
    same tensors $(3072 + 1) \cdot 16384 = 50\,348\,032$.

    Checked for random sizes, by the entries of the layers, and by `shape_trace` on images of two
    sizes; 1728 weights for 3 to 64 channels at $3 \times 3$, 156 parameters in the first layer of
    LeNet-5.

    Knobs:
        biases: How many biases the layer is said to have.
        layers: How many layers are drawn.
    """
    for _ in range(layers):
        out, c, p, q = torch.randint(2, 9, (4,)).tolist()
        layer = nn.Conv2d(c, out, (p, q))
        at = {"kernels": out, "channels": c, "p": p, "q": q}
        for side in (9, 13):
            places = conv_output_size(side, p) * conv_output_size(side, q)
            b = {"one a kernel": out, "one a position": out * places, "one": 1}[biases]
            found = shape_trace(layer, (c, side, side)).parameters
            yield equals("parameters of the layer", found, out * p * q * c + b, side=side, **at)
        entries = sum(t.numel() for t in layer.state_dict().values())
        yield equals("entries of its tensors", entries, out * (p * q * c + 1), **at)
    yield equals("weights for 3 to 64 channels", nn.Conv2d(3, 64, 3).weight.numel(), 1728)
    first = next(row for row in shape_trace(LeNet5(), (1, 32, 32)).calls if row.parameters)
    yield equals("parameters in the first layer of LeNet-5", first.parameters, 156)
    with torch.device("meta"):
        small, dense = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(3 * 32**2, 16 * 32**2)
    found = shape_trace(small, (3, 32, 32)).parameters
    yield equals("parameters for 3 to 16 channels", found, 448)
    found = shape_trace(dense, (3072,)).parameters
    yield equals("parameters of the dense layer", found, 50_348_032)


parameter_count.foil("a bias for every output position", biases="one a position")
parameter_count.foil("one bias for the whole layer", biases="one")


@claim(
    by="exhaustion",
    sources=("A-130", "D-266"),
    budget=1.0,
    short=r"(m n c + 1)(m - p + 1)(n - q + 1) K \ \text{parameters}",
)
def dense_parameter_count(
    plus_one: Literal["with the fan-in", "with a side", "with the outputs"] = "with the fan-in",
):
    r"""The dense layer in the place of a convolution has a weight for every pair, and biases.

    A fully connected layer between an $m \times n \times c$ input and the
    $(m - p + 1) \times (n - q + 1) \times K$ output of a valid convolution has
    $(m n c + 1)(m - p + 1)(n - q + 1) K$ parameters: $m n c$ weights and one bias for every output.
    For $m = n = 4$, $p = q = 3$, $c = K = 1$ these are 68.

    Checked for all $p \le m \le 6$, $q \le n \le 6$ and $c, K \le 3$, by the entries of a layer
    between tensors of these sizes.

    Knobs:
        plus_one: Where the one for the biases is added.
    """
    sizes = [(m, n, p, q) for m, n in product(range(1, 7), repeat=2)
             for p in range(1, m + 1) for q in range(1, n + 1)]  # fmt: skip
    counts, stated, one = [], [], torch.ones(())
    for (m, n, p, q), c, K in product(sizes, (1, 2, 3), (1, 2, 3)):
        rows, columns = conv_output_size((m, n), (p, q))
        fan_in, outputs = m * n * c, rows * columns * K
        weight, bias = one.expand(outputs, fan_in), one.expand(outputs)
        counts.append(weight.numel() + bias.numel())
        stated.append({
            "with the fan-in": (m * n * c + 1) * (m - p + 1) * (n - q + 1) * K,
            "with a side": m * n * c * (m - p + 1) * (n - q + 1 + 1) * K,
            "with the outputs": m * n * c * ((m - p + 1) * (n - q + 1) + 1) * K,
        }[plus_one])  # fmt: skip
    yield equals("parameters of the dense layer", counts, stated)
    at = {"m": 4, "n": 4, "p": 3, "q": 3, "c": 1, "K": 1}
    place = list(product(sizes, (1, 2, 3), (1, 2, 3))).index(((4, 4, 3, 3), 1, 1))
    found = shape_trace(nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), (1, 4, 4)).parameters
    yield equals("parameters of the layer in the example", found, stated[place], **at)
    found = shape_trace(nn.Sequential(nn.Flatten(), nn.Linear(60, 24)), (3, 4, 5)).parameters
    place = list(product(sizes, (1, 2, 3), (1, 2, 3))).index(((4, 5, 3, 2), 3, 3))
    yield equals("parameters of a layer of other sides", found, stated[place])


dense_parameter_count.foil(
    "a one beside the outputs, 80 in the example", plus_one="with the outputs"
)
dense_parameter_count.erratum(
    "D-266",
    printed=r"$mnc(m-p+1)(n-q+1+1)K$",
    right=r"$(mnc+1)(m-p+1)(n-q+1)K$",
    why=r"The one of the bias stands with a side instead of with the fan-in: for $m = n = 4$,"
    r" $p = q = 3$, $c = K = 1$ there are 4 outputs with $16 + 1$ parameters, 68; the printed"
    r" expression is 96.",
    weight="hard",
    refuted_by="parameters of the layer in the example",
    plus_one="with a side",
)


def maps_of(rows: tuple[CallRow, ...], *kinds: str) -> list[tuple[int, int]]:
    """Channels and side of what calls of some kinds gave, shortcuts apart."""
    main = [row for row in rows if row.kind in kinds and "downsample" not in row.name]
    return [(shape[1], shape[2]) for row in main for shape in row.outputs[:1]]


def traced(name: str) -> tuple[CallRow, ...]:
    """The calls of a network, for images of the size that it was made for."""
    with torch.device("meta"):
        net = {
            "LeNet-5": LeNet5,
            "AlexNet": lambda: AlexNet(variant="2012"),
            "VGG-16": lambda: VGG(16),
            "ResNet-50": lambda: ResNet(50),
            "U-Net": UNet,
        }[name]()
    shape = {"LeNet-5": (1, 32, 32), "U-Net": (1, 64, 64)}.get(name, (3, 224, 224))
    return shape_trace(net, shape).calls


@claim(
    by="exhaustion",
    sources=("D-230", "D-231"),
    budget=1.0,
    short=r"\text{VGG-16: sides } 224, 112, 56, 28, 14, 7,"
    r"\ \text{channels } 64, 128, 256, 512, 512",
)
def shape_pyramid(
    shrinking: tuple[str, ...] = ("LeNet-5", "AlexNet", "VGG-16", "ResNet-50"),
    growing: tuple[str, ...] = ("LeNet-5", "VGG-16", "ResNet-50"),
):
    r"""Classic vision networks shrink space and grow channels.

    They are sequences of convolutions with sub-sampling in which the side of the maps never
    increases with depth and the number of channels as a rule grows; AlexNet's last convolution is
    an exception, with 96, 256, 384, 384, 256. VGG-16 goes through the sides 224, 112, 56, 28, 14, 7
    with 64, 128, 256, 512, 512 channels, and the size of the tensor still falls from stage to
    stage. U-Net's decoder grows again.

    Checked by `shape_trace` on LeNet-5, AlexNet (2012), VGG-16 and ResNet-50, of which the channels
    are compared between the outputs of its stages.

    Knobs:
        shrinking: The networks whose maps are said to shrink.
        growing: The networks whose channels are said to grow.
    """
    layers = ("Conv2d", "MaxPool2d", "AvgPool2d", "ConvTranspose2d")
    calls = {name: traced(name) for name in dict.fromkeys([*shrinking, *growing])}
    for name in shrinking:
        sides = [side for _, side in maps_of(calls[name], *layers)]
        rise = max(b - a for a, b in pairwise(sides))
        yield at_most("largest rise of the side of maps", rise, 0, network=name)
        yield at_least(
            "how often it falls", sum(b < a for a, b in pairwise(sides)), 2, network=name
        )
    for name in growing:
        maps = maps_of(calls[name], "Conv2d")
        if name == "ResNet-50":
            stages = [row for row in calls[name] if row.name in [f"layer{i}" for i in range(1, 5)]]
            maps = [(shape[1], shape[2]) for row in stages for shape in row.outputs]
        fall = max(a - b for (a, _), (b, _) in pairwise(maps))
        yield at_most("largest fall of the number of channels", fall, 0, network=name)
    if "VGG-16" in calls:
        maps = maps_of(calls["VGG-16"], "MaxPool2d")
        sides = [maps_of(calls["VGG-16"], "Conv2d")[0][1], *(side for _, side in maps)]
        yield equals("sides of VGG-16", sides, [224, 112, 56, 28, 14, 7])
        yield equals("channels of VGG-16", [c for c, _ in maps], [64, 128, 256, 512, 512])
        sizes = [c * side**2 for c, side in maps]
        yield at_most(
            "ratios of sizes from stage to stage", [b / a for a, b in pairwise(sizes)], 0.5
        )


shape_pyramid.foil("U-Net, whose decoder grows again", shrinking=("VGG-16", "U-Net"))
shape_pyramid.foil("AlexNet's channels, which fall at the end", growing=("VGG-16", "AlexNet"))
