"""Vision transformers: counts, the equations written out, names of files, sizes, permutations."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vademecum.attention import ViT, patchify, unpatchify
from vademecum.models import load_weights
from vademecum.testing import check_part

COUNTS = {"Ti": 5_717_416, "S": 22_050_664, "B": 86_567_656, "L": 304_326_632}
SMALL: dict[str, Any] = {"num_classes": 5, "size": (12, 8), "patch": 4, "width": 12, "depth": 2}


def small(**options: Any) -> ViT:
    """A narrow network whose numbers are all of order one, norms and biases included."""
    chosen: dict[str, Any] = {"heads": 3, **SMALL, **options}
    net = ViT("Ti", **chosen)
    for p in net.parameters():
        p.data.normal_(0, 0.3)
    return net.eval()


@pytest.mark.parametrize("variant", COUNTS)
def test_vit_has_the_published_number_of_parameters(variant):
    with torch.device("meta"):
        count = sum(p.numel() for p in ViT(variant).parameters())
    print(f"ViT-{variant}/16: {count:,}")
    assert count == COUNTS[variant]


def by_hand(net: ViT, x: torch.Tensor, heads: int) -> torch.Tensor:
    """The logits by the equations, one head and one image after the other, in timm's names."""
    w, d = net.state_dict(), net.norm.weight.numel()

    def norm(z, name):
        centred = z - z.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(z, name):
        return z @ w[f"{name}.weight"].flatten(1).T + w[f"{name}.bias"]

    logits = []
    for image in x:
        z = linear(patchify(image, 4), "patch_embed.proj")
        if "cls_token" in w:
            z = torch.cat((w["cls_token"][0], z))
        if "pos_embed" in w:
            z = z + w["pos_embed"][0]
        for i in range(len(net.blocks)):
            q, k, v = linear(norm(z, f"blocks.{i}.norm1"), f"blocks.{i}.attn.qkv").split(d, -1)
            each = []
            for h in range(heads):
                part = slice(h * d // heads, (h + 1) * d // heads)
                scores = q[:, part] @ k[:, part].T / math.sqrt(d // heads)
                each.append(scores.softmax(-1) @ v[:, part])
            z = z + linear(torch.cat(each, -1), f"blocks.{i}.attn.proj")
            inner = linear(norm(z, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1")
            bent = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
            z = z + linear(bent, f"blocks.{i}.mlp.fc2")
        z = norm(z, "norm")
        logits.append(linear(z[0] if "cls_token" in w else z.mean(0), "head"))
    return torch.stack(logits)


@pytest.mark.parametrize("options", [{}, {"pooling": "mean"}, {"positions": False}, {"heads": 4}])
def test_vit_is_its_equations(options):
    net = small(**options).double()
    x = torch.randn(3, 3, 12, 8, dtype=torch.float64)
    with torch.no_grad():
        assert (net(x) - by_hand(net, x, options.get("heads", 3))).abs().max() < 1e-12


LAWS = {
    "class": lambda: small(),
    "mean": lambda: small(pooling="mean", dropout=0.2),
    "bag": lambda: small(positions=False),
}


@pytest.mark.parametrize("name", LAWS)
def test_vit_keeps_the_laws_of_parts(name):
    check_part(LAWS[name](), torch.randn(3, 3, 12, 8), devices=("cpu", "meta"))


TIMM = [
    "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias",
    *(f"blocks.{i}.{name}.{kind}" for i in (0, 1)
      for name in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
      for kind in ("weight", "bias")),
    "norm.weight", "norm.bias", "head.weight", "head.bias",
]  # fmt: skip
OF_BLOCK = ["ln_1.weight", "ln_1.bias", "self_attention.in_proj_weight",
            "self_attention.in_proj_bias", "self_attention.out_proj.weight",
            "self_attention.out_proj.bias", "ln_2.weight", "ln_2.bias"]  # fmt: skip


def torchvision(first: str, second: str) -> list[str]:
    """The names of its files, in timm's order; those of the MLP changed with release 0.13."""
    of_mlp = [f"mlp.{layer}.{kind}" for layer in (first, second) for kind in ("weight", "bias")]
    return [
        *("class_token", "encoder.pos_embedding", "conv_proj.weight", "conv_proj.bias"),
        *(f"encoder.layers.encoder_layer_{i}.{name}" for i in (0, 1) for name in OF_BLOCK + of_mlp),
        *("encoder.ln.weight", "encoder.ln.bias", "heads.head.weight", "heads.head.bias"),
    ]


FILES = {"timm": TIMM, "torchvision": torchvision("0", "3"),
         "torchvision, before 0.13": torchvision("linear_1", "linear_2")}  # fmt: skip


@pytest.mark.parametrize("library", FILES)
def test_names_of_files_load(library):
    source, net, x = small(), small(), torch.randn(2, 3, 12, 8)
    assert list(source.state_dict()) == TIMM
    file = dict(zip(FILES[library], source.state_dict().values(), strict=True))
    load_weights(net, file)
    assert torch.equal(net(x), source(x))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    broken = file | {FILES[library][5]: torch.zeros(1), "extra": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"unknown extra; .* has the shape \(1,\) and must have"):
        load_weights(net, broken)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_vit_resizes_its_positions(pooling):
    """Constants stay, and what grows linearly along the image grows so between its borders."""
    net = small(size=(16, 24), pooling=pooling)  # 4 x 6 patches
    extra, pos = int(pooling == "class"), net.pos_embed
    assert pos is not None
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")
    pos.data[0, extra:] = (2 + 3 * rows + columns).flatten()[:, None]
    pos.data[:, :extra] = 7
    x = torch.randn(2, 3, 32, 48)
    logits = net(x)
    net.resize((32, 48))
    assert net.grid == (8, 12)
    assert torch.equal(net(x), logits)
    assert net.pos_embed is not None
    assert net.pos_embed.requires_grad
    found = net.pos_embed.detach()[0, extra:, 0].view(8, 12)
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(12.0), indexing="ij")
    stated = 2 + 3 * (rows / 2 - 0.25) + (columns / 2 - 0.25)  # of the middles of the patches
    assert (found - stated)[3:-3, 3:-3].abs().max() < 1e-5
    assert net.pos_embed[:, :extra].eq(7).all()


def test_vit_sizes_are_those_of_each_image():
    net = small()
    with torch.no_grad():
        for size in ((12, 8), (4, 4), (20, 12)):
            assert net(torch.randn(2, 3, *size)).shape == (2, 5)
    bag = small(positions=False)
    bag.resize(16)
    assert bag.grid == (4, 4)


def test_resizing_keeps_what_need_not_change():
    """The parameter where the grid stays, so that optimizers still have it; frozen stays frozen."""
    net = small()
    before = net.pos_embed
    net.resize((12, 8))
    assert net.pos_embed is before
    assert net.pos_embed is not None
    net.pos_embed.requires_grad_(False)
    net.resize((8, 8))
    assert not net.pos_embed.requires_grad


@pytest.mark.parametrize("pooling", ["class", "mean"])
@pytest.mark.parametrize("positions", [False, True])
def test_vit_without_positions_sees_a_bag_of_patches(pooling, positions):
    net = small(pooling=pooling, positions=positions).double()
    x = torch.randn(2, 3, 12, 8, dtype=torch.float64)
    mixed = unpatchify(patchify(x, 4)[:, torch.tensor([4, 2, 5, 0, 1, 3])], 4, (12, 8))
    with torch.no_grad():
        gap = float((net(mixed) - net(x)).abs().max())
    assert gap > 1e-3 if positions else gap < 1e-12


def test_vit_drops_in_training_only():
    net = small(dropout=0.5)
    x = torch.randn(2, 3, 12, 8)
    assert torch.equal(net(x), net(x))
    assert not torch.equal(net.train()(x), net(x))


def test_vit_drops_tokens_and_what_each_layer_adds():
    """At a rate of one there is nothing left of either, nor within the perceptrons."""
    net, x, seen = small(dropout=1.0).train(), torch.randn(2, 7, 12), []
    block: Any = net.blocks[0]
    assert torch.equal(block(x), x)
    assert torch.equal(block.mlp(x), block.mlp.fc2.bias.expand(2, 7, 12))
    net.blocks.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    net(torch.randn(2, 3, 12, 8))
    assert not seen[0].any()


def test_vit_learns():
    """Which half of an image is brighter: needs positions."""
    torch.manual_seed(0)
    net = ViT("Ti", 2, size=8, patch=4, channels=1, width=32, depth=2, heads=4)
    x = torch.randn(128, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    y = (x[..., :4].mean((1, 2, 3)) > x[..., 4:].mean((1, 2, 3))).long()
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(150):
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()
    assert (net(x).argmax(1) == y).float().mean() > 0.95


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_vit_in_other_precisions(dtype):
    net, x = small(), torch.randn(2, 3, 20, 16)
    wide = net(x)
    narrow = net.to(dtype)(x.to(dtype))
    assert narrow.dtype == dtype
    assert (narrow.float() - wide).abs().max() < (0.3 if dtype == torch.bfloat16 else 1e-4)


BAD = {
    "variant": (lambda: ViT("H"), "variant must be one of 'Ti', 'S', 'B', 'L', got 'H'"),  # pyright: ignore
    "classes": (lambda: small(num_classes=0), "num_classes must be >= 1, got 0"),
    "size": (lambda: small(size=30), "size must have a height that is a multiple of 4, got 30: the"
             " nearest are 28 and 32"),
    "heads": (lambda: small(heads=5), "heads must divide the width 12, got 5"),
    "width": (lambda: small(width=0), "width must be >= 1, got 0"),
    "pooling": (lambda: small(pooling="max"), "pooling must be one of 'class', 'mean', got 'max'"),
    "dropout": (lambda: small(dropout=1.5), "dropout must be <= 1, got 1.5"),
    "channels": (lambda: small()(torch.zeros(2, 1, 12, 8)), "x must be images (n, 3, height, width)"
                 ", got (2, 1, 12, 8)"),
    "one image": (lambda: small()(torch.zeros(3, 12, 8)), "x must be images (n, 3, height, width)"),
    "tiles": (lambda: small()(torch.zeros(2, 3, 12, 9)), "x must have a width that is a multiple of"
              " 4, got 9: the nearest are 8 and 12"),
    "resize": (lambda: small().resize(9), "size must have a height that is a multiple of 4, got 9"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, unchecked):
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)
