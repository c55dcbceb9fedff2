r"""The vision transformer: patches of an image as tokens of a transformer.

Each of $N$ patches is mapped by one matrix, $x^i = V \mathrm{vec}(\mathrm{patch}_i) + b$; a learned
class token goes before them, and a learned vector is added for every place:

$$z_0 = [c;\ x^1; \dots; x^N] + P, \qquad
z' = z + \mathrm{MHA}(\mathrm{LN}(z)), \qquad z \leftarrow z' + \mathrm{MLP}(\mathrm{LN}(z')) ,$$

and the logits are a linear map of the normalised class token, or of the mean of the normalised
patches, after the last block. The arrangement of the patches is known by $P$ only. Where an image
has another size, $P$ is resized as an image is, by cubic interpolation. Checked by `vit_patches`,
`vit_patch_permutation` and `vit_inductive_bias`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, number, whole
from vademecum.attention.vision._blocks import EPS, VisionBlock
from vademecum.attention.vision.patches import Size, grid, pair

__all__ = ["ViT"]

VARIANTS = {"Ti": (192, 12, 3), "S": (384, 12, 6), "B": (768, 12, 12), "L": (1024, 24, 16)}
"""Width, depth and heads."""


class ViT(nn.Module):
    """A vision transformer, from images to logits; weights load by timm's and torchvision's names.

    Args:
        variant: Which one: "Ti", "S", "B" or "L". Their widths are 192, 384, 768 and 1024, with 64
            features a head; L has 24 blocks, the others have 12.
        num_classes: How many logits there are.
        size: The height and width of the images that positions are learned for; one number for
            squares. Others, whose sides the patch divides, are taken, too.
        patch: The height and width of a patch; one number for squares.
        channels: How many channels an image has.
        width: How many features a token has, in place of the variant's.
        depth: How many blocks there are, in place of the variant's.
        heads: How many heads attend, in place of the variant's.
        pooling: What the logits are made of: a class token, or the mean of the patches; then there
            is no class token.
        positions: Whether places have learned vectors; without them patches are a bag.
        dropout: The rate at which what each layer adds is dropped in training.

    Raises:
        ValueError: If a number is out of range, heads do not divide the width, or patches do not
            tile an image.

    References:
        Dosovitskiy et al., An image is worth 16x16 words: transformers for image recognition at
        scale, ICLR, 2021. Touvron et al., Training data-efficient image transformers, ICML, 2021.

    Example:
        >>> net = ViT("Ti", num_classes=5, size=32, patch=8, width=12, depth=2)
        >>> net(torch.zeros(2, 3, 32, 48)).shape
        torch.Size([2, 5])
    """

    old_names = (  # torchvision's, those of its first release last
        (r"^class_token$", "cls_token"),
        (r"^conv_proj\.", "patch_embed.proj."),
        (r"^encoder\.pos_embedding$", "pos_embed"),
        (r"^encoder\.ln\.", "norm."),
        (r"^heads\.head\.", "head."),
        (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
        (r"^(blocks\.\d+)\.ln_([12])\.", r"\1.norm\2."),
        (r"^(blocks\.\d+)\.self_attention\.in_proj_", r"\1.attn.qkv."),
        (r"^(blocks\.\d+)\.self_attention\.out_proj\.", r"\1.attn.proj."),
        (r"^(blocks\.\d+)\.mlp\.(?:0|linear_1)\.", r"\1.mlp.fc1."),
        (r"^(blocks\.\d+)\.mlp\.(?:3|linear_2)\.", r"\1.mlp.fc2."),
    )

    def __init__(
        self,
        variant: Literal["Ti", "S", "B", "L"],
        num_classes: int = 1000,
        *,
        size: Size = 224,
        patch: Size = 16,
        channels: int = 3,
        width: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        pooling: Literal["class", "mean"] = "class",
        positions: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        own = VARIANTS[choice("variant", variant, tuple(VARIANTS))]
        width, depth, heads = (
            mine if given is None else whole(name, given, low=1)
            for name, given, mine in zip(
                ("width", "depth", "heads"), (width, depth, heads), own, strict=True
            )
        )
        if width % heads:
            raise ValueError(f"heads must divide the width {width}, got {heads}")
        number("dropout", dropout, low=0, high=1)
        self.channels, self.patch = whole("channels", channels, low=1), pair("patch", patch)
        self.grid = grid("size", pair("size", size), self.patch)
        self.pooling = choice("pooling", pooling, ("class", "mean"))
        places = self.grid[0] * self.grid[1] + (pooling == "class")
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if pooling == "class" else None
        self.pos_embed = nn.Parameter(torch.zeros(1, places, width)) if positions else None
        self.patch_embed = _PatchEmbedding(channels, width, self.patch)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(VisionBlock(width, heads, 4 * width, dropout) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.head = nn.Linear(width, whole("num_classes", num_classes, low=1))
        self._draw()

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image, of any size that patches tile."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(
                f"x must be images (n, {self.channels}, height, width), got {tuple(x.shape)}"
            )
        shape = grid("x", (x.shape[2], x.shape[3]), self.patch)
        z = self.patch_embed(x)
        if self.cls_token is not None:
            z = torch.cat((self.cls_token.expand(len(z), -1, -1), z), 1)
        if self.pos_embed is not None:
            z = z + self._positions(shape)
        z = self.blocks(self.dropout(z))
        z = self.norm(z[:, 0]) if self.pooling == "class" else self.norm(z).mean(1)
        return self.head(z)

    @torch.no_grad()
    def resize(self, size: Size) -> None:
        """Let images of another size be the ones that positions are learned for, from now on.

        Logits stay what they were for images of that size. Where the grid of patches changes,
        positions are a new parameter: optimizers are made afterwards.

        Args:
            size: The height and width of the images; one number for squares.
        """
        shape = grid("size", pair("size", size), self.patch)
        if self.pos_embed is not None and shape != self.grid:
            self.pos_embed = nn.Parameter(self._positions(shape), self.pos_embed.requires_grad)
        self.grid = shape

    def _positions(self, shape: tuple[int, int]) -> Tensor:
        """The vectors of all places, resized to a grid of this shape."""
        assert self.pos_embed is not None
        if shape == self.grid:
            return self.pos_embed
        extra = self.pos_embed.shape[1] - self.grid[0] * self.grid[1]
        token, places = self.pos_embed[:, :extra], self.pos_embed[:, extra:]
        dtype = torch.promote_types(places.dtype, torch.float32)
        image = places.mT.unflatten(2, self.grid).to(dtype)
        image = F.interpolate(image, shape, mode="bicubic", antialias=True)
        return torch.cat((token, image.flatten(2).mT.to(token.dtype)), 1)

    @torch.no_grad()
    def _draw(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        for vectors in (self.pos_embed, self.cls_token):
            if vectors is not None:
                nn.init.trunc_normal_(vectors, std=0.02)


class _PatchEmbedding(nn.Module):
    """One matrix for every patch, as a convolution whose kernels are patches."""

    def __init__(self, channels: int, width: int, patch: tuple[int, int]):
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).mT
