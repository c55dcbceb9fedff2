"""The networks: laws of parts, names, equations written out, sizes they take and refuse."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import (
    TCN,
    VGG,
    AlexNet,
    DenseBlock,
    DenseNet,
    GoogLeNet,
    GoogLeNetOutput,
    InceptionModule,
    LeNet5,
    ResidualBlock,
    ResNet,
    TextCNN,
    UNet,
    scaled_tanh,
)
from vademecum.testing import check_part

IMAGES = {
    "lenet5": (lambda: LeNet5(4, size=16, channels=2, width=3), (3, 2, 16, 16)),
    "lenet5_1998": (lambda: LeNet5(variant="1998", size=20), (3, 1, 20, 20)),
    "alexnet": (lambda: AlexNet(4, width=2), (3, 3, 67, 63)),
    "alexnet_2012": (lambda: AlexNet(4, width=6, variant="2012"), (3, 3, 67, 70)),
    "vgg": (lambda: VGG(11, 4, width=2), (3, 3, 32, 35)),
    "googlenet": (lambda: GoogLeNet(4, width=4), (3, 3, 33, 48)),
    "googlenet_heads": (lambda: GoogLeNet(4, width=4, auxiliary=True), (3, 3, 33, 48)),
    "googlenet_2014": (lambda: GoogLeNet(4, width=16, variant="2014"), (3, 3, 33, 48)),
    "resnet18": (lambda: ResNet(18, 4, width=3), (3, 3, 40, 33)),
    "resnet50": (lambda: ResNet(50, 4, width=2, channels=1), (3, 1, 40, 33)),
    "densenet": (lambda: DenseNet(121, 4, width=2), (3, 3, 32, 40)),
    "unet": (lambda: UNet(2, width=2, depth=2), (3, 1, 12, 16)),
    "unet_valid": (lambda: UNet(2, width=2, depth=1, padding="valid"), (3, 1, 20, 22)),
    "residual_block": (lambda: ResidualBlock(4, 3, stride=2, bottleneck=True), (3, 4, 7, 6)),
    "dense_block": (lambda: DenseBlock(3, 4, 2), (3, 4, 5, 6)),
    "inception": (lambda: InceptionModule(4, (2, 3, 4, 1, 2, 3)), (3, 4, 5, 6)),
    "tcn": (lambda: TCN(3, channels=2, width=4, depth=2), (3, 2, 17)),
}
ODD = {
    "googlenet_heads": {"gradient": "auxiliary heads have none in eval mode"},
}


@pytest.mark.parametrize("name", IMAGES)
def test_laws_of_parts(name):
    make, shape = IMAGES[name]
    net = make()
    if name == "googlenet_2014":  # its first weights leave almost nothing of the signal
        for p in net.parameters():
            p.data.mul_(8)
    tol = 1e-4 if name in ("densenet", "resnet50") else None
    check_part(net, torch.randn(shape), skip=ODD.get(name), tol=tol)


def test_text_cnn_keeps_the_laws():
    net = TextCNN(20, 3, dimension=5, width=6)
    check_part(net, torch.randint(20, (4, 9)))


def test_google_le_net_output_of_auxiliary_heads_comes_in_training_only():
    net = GoogLeNet(4, width=4, auxiliary=True)
    x = torch.randn(2, 3, 64, 64)
    trained = net(x)
    assert isinstance(trained, GoogLeNetOutput)
    assert trained.logits.shape == trained.auxiliary[0].shape == (2, 4)
    assert isinstance(net.eval()(x), torch.Tensor)


# torchvision's names, written down from its files

RESNET = """conv1.weight bn1.weight bn1.bias bn1.running_mean bn1.running_var
layer1.0.conv1.weight layer1.0.bn1.weight layer1.0.conv2.weight layer1.0.bn2.running_var
layer2.0.downsample.0.weight layer2.0.downsample.1.weight layer4.1.bn2.bias fc.weight fc.bias"""
NAMES = [
    (lambda: ResNet(18), RESNET, 122),
    (lambda: ResNet(50), "layer1.0.conv3.weight layer1.0.bn3.bias layer3.5.conv2.weight", 320),
    (lambda: AlexNet(), "features.0.weight features.3.bias features.10.weight classifier.1.weight"
     " classifier.4.bias classifier.6.weight", 16),
    (lambda: VGG(16), "features.0.weight features.28.bias classifier.0.weight classifier.3.weight"
     " classifier.6.bias", 32),
    (lambda: DenseNet(121), "features.conv0.weight features.norm0.running_mean"
     " features.denseblock1.denselayer1.norm1.weight features.denseblock4.denselayer16.conv2.weight"
     " features.transition1.norm.bias features.transition3.conv.weight features.norm5.weight"
     " classifier.bias", 727),
    (lambda: GoogLeNet(auxiliary=True), "conv1.conv.weight conv1.bn.running_var"
     " inception3a.branch1.conv.weight inception3a.branch2.0.conv.weight"
     " inception5b.branch3.1.bn.bias inception4c.branch4.1.conv.weight aux1.conv.conv.weight"
     " aux2.fc1.weight aux1.fc2.bias fc.weight", 59 * 6 + 10),
]  # fmt: skip


@pytest.mark.parametrize(("make", "names", "count"), NAMES)
def test_state_dicts_bear_torchvision_s_names(make, names, count):
    with torch.device("meta"):
        own = make().state_dict()
    assert set(names.split()) <= set(own)
    assert len(own) == count


# Equations written out


def test_the_blocks_of_resnet_are_their_equations():
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64)
    for bottleneck in (False, True):
        block = ResidualBlock(4, 3, stride=2, bottleneck=bottleneck).double().eval()
        for norm in (m for m in block.modules() if isinstance(m, nn.BatchNorm2d)):
            nn.init.normal_(norm.state_dict()["running_mean"])
            nn.init.normal_(norm.weight)
        state = block.state_dict()

        def norm(y, name, state=state):
            mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
            y = (y - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
            return y * state[f"{name}.weight"][:, None, None] + state[f"{name}.bias"][:, None, None]

        def conv(y, name, stride, padding, state=state):
            return nn.functional.conv2d(y, state[f"{name}.weight"], None, stride, padding)

        if bottleneck:
            y = norm(conv(x, "conv1", 1, 0), "bn1").relu()
            y = norm(conv(y, "conv2", 2, 1), "bn2").relu()
            y = norm(conv(y, "conv3", 1, 0), "bn3")
        else:
            y = norm(conv(x, "conv1", 2, 1), "bn1").relu()
            y = norm(conv(y, "conv2", 1, 1), "bn2")
        shortcut = norm(conv(x, "downsample.0", 2, 0), "downsample.1")
        torch.testing.assert_close(block(x), (y + shortcut).relu())


def test_lenet_of_1998_compares_units_with_codes():
    net = LeNet5(variant="1998").double()
    x = torch.randn(3, 1, 32, 32, dtype=torch.float64)
    features = scaled_tanh(net.fc2(scaled_tanh(net.fc1(maps_of_1998(net, x)))))
    codes = net.state_dict()["fc3.codes"]
    assert codes.abs().eq(1).all()
    wanted = -torch.stack([(features - code).square().sum(1) for code in codes], 1)
    torch.testing.assert_close(net(x), wanted)


def test_lenet_of_1998_keeps_its_table_when_made_without_values():
    net = LeNet5(variant="1998")
    with torch.device("meta"):
        other = LeNet5(variant="1998")
    other.to_empty(device="cpu").load_state_dict(net.state_dict())
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(other(x), net(x))


def maps_of_1998(net, x):
    state = net.state_dict()
    x = scaled_tanh(nn.functional.conv2d(x, state["conv1.weight"], state["conv1.bias"]))
    for i in (1, 2):
        if i == 2:
            full = torch.zeros(16, 6, 5, 5, dtype=x.dtype)
            at = 0
            for row, maps in enumerate(TABLE):
                for m in maps:
                    full[row, m] = state["conv2.weight"][at]
                    at += 1
            x = scaled_tanh(nn.functional.conv2d(x, full, state["conv2.bias"]))
        means = x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
        x = scaled_tanh(means * state[f"pool{i}.weight"] + state[f"pool{i}.bias"])
    return x.flatten(1)


ROWS = "012 123 234 345 045 015 0123 1234 2345 0345 0145 0125 0134 1245 0235 012345"
TABLE = [[int(c) for c in row] for row in ROWS.split()]


def test_unet_without_padding_crops_the_middle():
    """A network with mirror-symmetric kernels commutes with mirroring only if it does."""
    net = UNet(2, width=3, depth=2, padding="valid").double()
    for p in net.parameters():
        if p.ndim == 4:
            p.data.copy_((p + p.flip(2)) / 2)
            p.data.copy_((p + p.flip(3)) / 2)
    x = torch.randn(1, 1, 44, 52, dtype=torch.float64)
    y = net(x)
    assert y.shape == (1, 2, net.output_size(44), net.output_size(52))
    for axis in (2, 3):
        torch.testing.assert_close(net(x.flip(axis)), y.flip(axis))
    assert y.std() > 0


def test_tcn_knows_its_field_and_no_more():
    net = TCN(2, channels=3, width=4, depth=3, kernel_size=2).double()
    x = torch.randn(1, 3, 40, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x)[0, :, 30].sum(), x)
    known = slope[0].abs().sum(0).nonzero().flatten()
    assert net.field == 15
    assert known.max() == 30
    assert known.min() >= 30 - net.field + 1
    assert len(known) > net.field // 2


def test_zero_last_begins_as_the_shortcut():
    torch.manual_seed(0)
    block: Any = ResNet(50, 3, width=2, zero_last=True).layer2[1]
    assert block.bn3.weight.eq(0).all()
    x = torch.rand(2, block.conv1.in_channels, 4, 4)
    assert torch.equal(block(x), x)


def test_pretrained_embeddings_are_copied_and_can_be_frozen():
    table = torch.randn(5, 4)
    net = TextCNN(5, dimension=4, embeddings=table, freeze=True)
    assert torch.equal(net.embedding.weight, table)
    assert net.embedding.weight.data_ptr() != table.data_ptr()
    assert not net.embedding.weight.requires_grad


# Bad input

IMAGE = torch.zeros(1, 3, 64, 64)


def wrongly(anything: Any) -> Any:
    return anything


MISTAKES = [
    (lambda: wrongly(ResNet)(20), "depth must be one of 18, 34, 50, 101, 152, got 20"),
    (lambda: wrongly(VGG)(17), "depth must be one of 11, 13, 16, 19, got 17"),
    (lambda: wrongly(DenseNet)(100), "depth must be one of 121, 161, 169, 201, got 100"),
    (lambda: ResNet(18, 0), "num_classes must be >= 1, got 0"),
    (lambda: VGG(11, width=0), "width must be >= 1, got 0"),
    (lambda: AlexNet(dropout=1.5), "dropout must be <= 1, got 1.5"),
    (lambda: AlexNet(width=64, variant="2012"), "width must be a multiple of 6 in 2012, got 64"),
    (lambda: wrongly(AlexNet)(variant="2013"), "variant must be one of '2014', '2012', got '2013'"),
    (lambda: LeNet5(width=4, variant="1998"), "width must be 6, for which the table of 1998"),
    (lambda: LeNet5(size=15), "size must be >= 16, got 15"),
    (lambda: LeNet5()(torch.zeros(1, 1, 28, 28)), "x must be images of at least 32 x 32, got 28"),
    (lambda: LeNet5()(torch.zeros(1, 1, 40, 40)), "x must be images of 32 x 32, as the network"),
    (lambda: GoogLeNet(width=5), "width must be even, got 5"),
    (lambda: wrongly(InceptionModule)(3, (1, 2, 3)), "widths must be six numbers, got (1, 2, 3)"),
    (lambda: InceptionModule(3, (1, 2, 0, 1, 1, 1)), "widths[2] must be >= 1, got 0"),
    (lambda: ResNet(18, width=2)(torch.zeros(3, 64, 64)),
     "x must be images (n, 3, height, width), got (3, 64, 64)"),
    (lambda: ResNet(18, width=2, channels=1)(IMAGE),
     "x must be images (n, 1, height, width), got (1, 3, 64, 64)"),
    (lambda: VGG(11, width=1)(IMAGE[..., :31]), "images of at least 32 x 32, got 64 x 31"),
    (lambda: UNet(width=1)(torch.zeros(1, 1, 20, 32)),
     "sides that the network can halve 4 times, got 20; the nearest that fit: 16 or 32"),
    (lambda: UNet(width=1, padding="valid")(torch.zeros(1, 1, 100, 188)),
     "got 100; the nearest that fit: 188"),
    (lambda: wrongly(UNet)(padding="full"), "padding must be one of 'same', 'valid', got 'full'"),
    (lambda: DenseBlock(0, 3, 2), "layers must be >= 1, got 0"),
    (lambda: ResidualBlock(3, 3, stride=0), "stride must be >= 1, got 0"),
    (lambda: TCN(2, kernel_size=1), "kernel_size must be >= 2, got 1"),
    (lambda: TextCNN(5, sizes=()), "sizes must name at least one size, got none"),
    (lambda: TextCNN(5, dimension=3)(torch.zeros(2, 3, dtype=torch.long)),
     "x must have at least 4 words, as the largest filter, got 3: pad it"),
    (lambda: TextCNN(5, dimension=3)(torch.zeros(2, 8)), "x must be numbers of words (n, length)"),
    (lambda: TextCNN(5, dimension=3, embeddings=torch.zeros(5, 4)),
     "embeddings must have the shape (5, 3), got (5, 4)"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("make", "smallest"), [
    (lambda: AlexNet(2, width=1), 63), (lambda: AlexNet(2, width=6, variant="2012"), 67),
    (lambda: VGG(11, 2, width=1), 32), (lambda: DenseNet(121, 2, width=1), 29),
    (lambda: GoogLeNet(2, width=2), 15), (lambda: GoogLeNet(2, width=2, variant="2014"), 31),
    (lambda: ResNet(18, 2, width=1), 1),
    (lambda: LeNet5(size=16), 16),
])  # fmt: skip
def test_the_smallest_images_are_taken_and_no_smaller(make, smallest):
    net = make().eval()
    channels = 1 if isinstance(net, LeNet5) else 3
    assert net(torch.zeros(1, channels, smallest, smallest)).isfinite().all()
    if smallest > 1:
        with pytest.raises(ValueError, match=f"at least {smallest} x {smallest}"):
            net(torch.zeros(1, channels, smallest, smallest - 1))
