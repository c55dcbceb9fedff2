"""The tables of the room: parameters, multiply-adds and fields of its networks, as published.

`pytest -s tests/convolution/test_tables.py` prints them.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import (
    TCN,
    VGG,
    AlexNet,
    DenseNet,
    GoogLeNet,
    LeNet5,
    ResNet,
    UNet,
    WaveNet,
    receptive_field,
    shape_trace,
)

IMAGE = (3, 224, 224)
PARAMETERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "LeNet-5": (LeNet5, 61_706),
    "AlexNet": (AlexNet, 61_100_840),
    "AlexNet, 2012": (lambda: AlexNet(variant="2012"), 60_965_224),
    "VGG-11": (lambda: VGG(11), 132_863_336),
    "VGG-13": (lambda: VGG(13), 133_047_848),
    "VGG-16": (lambda: VGG(16), 138_357_544),
    "VGG-19": (lambda: VGG(19), 143_667_240),
    "GoogLeNet": (GoogLeNet, 6_624_904),
    "GoogLeNet, 2014": (lambda: GoogLeNet(variant="2014"), 6_998_552),
    "ResNet-18": (lambda: ResNet(18), 11_689_512),
    "ResNet-34": (lambda: ResNet(34), 21_797_672),
    "ResNet-50": (lambda: ResNet(50), 25_557_032),
    "ResNet-101": (lambda: ResNet(101), 44_549_160),
    "ResNet-152": (lambda: ResNet(152), 60_192_808),
    "DenseNet-121": (lambda: DenseNet(121), 7_978_856),
    "DenseNet-169": (lambda: DenseNet(169), 14_149_480),
    "DenseNet-201": (lambda: DenseNet(201), 20_013_928),
    "DenseNet-161": (lambda: DenseNet(161), 28_681_000),
    "U-Net": (UNet, 31_030_593),
}
MULTIPLY_ADDS = {  # at 224 x 224, in thousands of millions, as torchvision publishes them
    "AlexNet": 0.714, "VGG-16": 15.47, "GoogLeNet": 1.498, "ResNet-18": 1.814, "ResNet-50": 4.089,
    "ResNet-152": 11.514, "DenseNet-121": 2.834,
}  # fmt: skip
FIELDS: dict[str, tuple[int, int]] = {
    "AlexNet": (195, 32), "VGG-16": (212, 32), "ResNet-18": (435, 32), "ResNet-34": (899, 32),
    "ResNet-50": (427, 32), "ResNet-101": (971, 32), "ResNet-152": (1451, 32),
}  # fmt: skip


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


@pytest.mark.parametrize("name", PARAMETERS)
def test_table_of_networks(name, capsys):
    make, parameters = PARAMETERS[name]
    model = on_meta(make)
    assert sum(p.numel() for p in model.parameters()) == parameters
    row = f"{name:16} {parameters:>12,}"
    if name in MULTIPLY_ADDS:
        trace = shape_trace(model, IMAGE)
        giga, digits = trace.multiply_adds / 1e9, 2 if name == "VGG-16" else 3
        row += f" {giga:>8.3f} G"
        assert round(giga, digits) == MULTIPLY_ADDS[name]
        assert (trace.parameters, trace.without_rule, trace.unused) == (parameters, {}, ())
    if name in FIELDS:
        field, (size, stride) = receptive_field(model, IMAGE), FIELDS[name]
        row += f" {field.size[0]:>5} x {field.size[1]} / {field.stride[0]}"
        assert (field.size, field.stride) == ((size, size), (stride, stride))
    with capsys.disabled():
        print(f"\n{row}", end=" ")


def test_auxiliary_heads_of_googlenet_have_no_effect_in_evaluation():
    trace = shape_trace(on_meta(lambda: GoogLeNet(auxiliary=True)), IMAGE)
    assert trace.parameters == 13_004_888
    assert sum(call.parameters for call in trace.calls) == 6_624_904
    assert all(name.startswith("aux") for name in trace.unused)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_context_of_wavenet(blocks):
    model = on_meta(lambda: WaveNet(blocks=blocks))
    samples = 1 + 1023 * blocks
    tokens = torch.zeros(1, samples + 40, dtype=torch.long, device="meta")
    found = receptive_field(model, tokens, unit=samples + 20)
    assert found.size == (samples,)
    assert found.mask.sum() == samples


THIN: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "LeNet-5": (LeNet5, (1, 32, 32)),
    "LeNet-5, 1998": (lambda: LeNet5(variant="1998"), (1, 32, 32)),
    "AlexNet": (lambda: AlexNet(10, width=8), (3, 95, 127)),
    "VGG-11": (lambda: VGG(11, 10, width=8), (3, 64, 96)),
    "GoogLeNet": (lambda: GoogLeNet(10, width=16), (3, 64, 64)),
    "ResNet-18": (lambda: ResNet(18, 10, width=8), (3, 64, 96)),
    "ResNet-50": (lambda: ResNet(50, 10, width=4), (3, 64, 64)),
    "DenseNet-121": (lambda: DenseNet(121, 10, width=4), (3, 64, 64)),
    "U-Net": (lambda: UNet(2, width=4, depth=2), (1, 32, 36)),
    "U-Net, valid": (lambda: UNet(2, width=4, depth=2, padding="valid"), (1, 60, 60)),
    "TCN": (lambda: TCN(3, width=6, depth=4), (1, 80)),
    "WaveNet": (lambda: WaveNet(16, width=8, skip=8, blocks=2, depth=5), 90),
}


@pytest.mark.parametrize("name", THIN)
def test_gradients_see_the_whole_field(name):
    make, shape = THIN[name]
    model = make().double()
    x = (
        torch.randn(2, *shape).double()
        if isinstance(shape, tuple)
        else torch.randint(16, (2, shape))
    )
    found = receptive_field(model, x)
    assert found.left == 0, found
    assert found.measured is not None
    assert found.measured.equal(found.mask)
