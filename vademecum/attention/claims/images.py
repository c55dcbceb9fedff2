"""Images as tokens: patches, their embedding, and what a vision transformer does not know."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.attention import ViT, patchify, unpatchify
from vademecum.claims import Evidence, at_least, claim, equals


def reshaped(x: Tensor, patch: tuple[int, int]) -> Tensor:
    """Rows of the array as it lies in memory."""
    c, p, q = x.shape[-3], *patch
    return x.reshape(*x.shape[:-3], -1, c * p * q)


def downwards(x: Tensor, patch: tuple[int, int]) -> Tensor:
    """Patches column by column, and not row by row."""
    tokens = patchify(x, patch)
    grid = x.shape[-2] // patch[0], x.shape[-1] // patch[1]
    return tokens.unflatten(-2, grid).transpose(-3, -2).flatten(-3, -2)


def drawn(**options: Any) -> ViT:
    """A small vision transformer whose numbers are all of order one."""
    net = ViT("Ti", 5, patch=4, width=12, heads=3, depth=2, **options).eval()
    for p in net.parameters():
        nn.init.normal_(p, 0, 0.3)
    return net


@claim(
    by="identity", sources=("A-273", "D-321"), budget=0.7,
    short=r"H \times W \times c \to (H/p)(W/p)\ \text{tokens of}\ p^2 c:\quad 196 \times 768",
)  # fmt: skip
def vit_patches(cut: Callable[..., Tensor] = patchify, largest: int = 24) -> Iterator[Evidence]:
    r"""Image patches as tokens.

    A vision transformer cuts an $H \times W \times c$ image into $p \times p$ patches that do not
    overlap and tile it, and uses the $(H/p)(W/p)$ vectors of patches as tokens: $224 \times 224$
    with $p = 16$ gives 196 tokens of length $p^2 c = 768$. Every pixel is in one token, at the
    place of its patch, row by row, and the image can be put together again. Also for patches $p
    \times q$. A side that $p$ does not divide is refused.

    Knobs:
        cut: What cuts images.
        largest: The largest side that is tried for a patch of 4.
    """
    for c, H, W, p, q in ((3, 8, 12, 4, 4), (2, 6, 12, 3, 2), (1, 4, 10, 4, 5)):
        x = torch.arange(2 * c * H * W).view(2, c, H, W)
        tokens, at = cut(x, (p, q)), {"c": c, "H": H, "W": W, "p": p, "q": q}
        stated = torch.empty(2, (H // p) * (W // q), c * p * q, dtype=torch.long)
        for i, j in np.ndindex(H // p, W // q):
            window = x[:, :, i * p : (i + 1) * p, j * q : (j + 1) * q]
            stated[:, i * (W // q) + j] = window.reshape(2, -1)
        yield equals("shape of the tokens", list(tokens.shape), list(stated.shape), **at)
        yield equals("pixels of the tokens", tokens, stated, **at)
        yield equals("pixels, each once", tokens.flatten().sort().values, x.flatten(), **at)
        yield equals("image put together", unpatchify(tokens, (p, q), (H, W)), x, **at)
    x = torch.zeros(3, 224, 224)
    yield equals("tokens of 224 x 224", list(cut(x, (16, 16)).shape), [196, 768])
    net, seen = ViT("Ti", width=8, depth=1, heads=2), []
    net.blocks.register_forward_pre_hook(lambda _, given: seen.extend(given[0].shape))
    net(x[None])
    yield equals("tokens of a ViT, one for the class", seen, [1, 196 + 1, 8])
    for side in range(1, largest + 1):
        for name, shape in (("height", (1, side, 8)), ("width", (1, 8, side))):
            wanted, call = int(side % 4 > 0), partial(patchify, torch.zeros(shape), 4)
            yield equals(f"whether a {name} is refused", refused(call), wanted, side=side)


def refused(call: Callable[[], Any]) -> int:
    """Whether a call raises a ValueError."""
    try:
        call()
    except ValueError:
        return 1
    return 0


vit_patches.foil("a plain reshape gives rows of pixels", cut=reshaped)
vit_patches.foil("patches column by column", cut=downwards)


@claim(
    by="identity", sources=("C-167", "C-168", "D-322"), budget=0.5,
    short=r"x^i = V\,\mathrm{vec}(\mathrm{patch}_i),\qquad V \in \mathbb R^{n \times p^2 c}",
)  # fmt: skip
def patch_embedding(
    columns: Callable[[int, int, int], int] = lambda p, q, c: p * q * c,
    order: Literal["channel, row, column", "row, column, channel"] = "channel, row, column",
) -> Iterator[Evidence]:
    r"""Patch embedding.

    Each flattened patch is mapped by one shared matrix, $x^i = V \mathrm{vec}(\mathrm{patch}_i) \in
    \mathbb R^n$ with $V \in \mathbb R^{n \times p^2 c}$; this is a convolution with kernel size and
    stride $p$ and $n$ output channels, whose kernels are the rows of $V$. $V$ has 48 columns for
    $p = 4$, 768 for $p = 16$, each for $c = 3$. Also for patches $p \times q$.

    Knobs:
        columns: How many columns $V$ has, of the height and width of a patch and $c$.
        order: How the numbers of a kernel are flattened into a row of $V$.
    """
    for c, p, q, n in ((3, 4, 4, 5), (4, 3, 2, 7), (2, 2, 6, 3)):
        x, V, at = torch.randn(2, c, 12, 12), torch.randn(n, c * p * q), {"c": c, "p": p, "q": q}
        yield equals("columns of V", V.shape[1], columns(p, q, c), **at)
        if order == "channel, row, column":
            kernels = V.view(n, c, p, q)
        else:
            kernels = V.view(n, p, q, c).permute(0, 3, 1, 2)
        stated = F.conv2d(x, kernels, stride=(p, q)).flatten(2).mT
        yield equals("embedded patches", patchify(x, (p, q)) @ V.T, stated, tol=1e-12, **at)
        net = ViT("Ti", size=12, patch=(p, q), channels=c, width=n, heads=1, depth=1)
        proj = net.patch_embed.proj
        assert proj.bias is not None
        V = proj.weight.flatten(1) if order == "channel, row, column" else (
            proj.weight.permute(0, 2, 3, 1).flatten(1))  # fmt: skip
        by_hand = patchify(x, (p, q)) @ V.T + proj.bias
        yield equals("embedding of a ViT", net.patch_embed(x), by_hand, tol=1e-12, **at)
    with torch.device("meta"):
        wide = ViT("Ti").patch_embed.proj.weight
    yield equals("numbers for each feature of a ViT's token", wide[0].numel(), columns(16, 16, 3),
                 p=16, c=3)  # fmt: skip


patch_embedding.foil("the exponent on the wrong factor: 144 for p = 16 and c = 3",
                     columns=lambda p, q, c: p * c * c)  # fmt: skip
patch_embedding.foil("channels last", order="row, column, channel")


def convolutional() -> nn.Module:
    """A small convolutional network, with a mean over the image at its end."""
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


@claim(
    by="identity", sources=("D-323",), budget=0.7,
    short=r"F(x^{\pi(1)}, \dots, x^{\pi(N)}) = F(x^1, \dots, x^N)\ \text{without positions}",
)  # fmt: skip
def vit_patch_permutation(
    model: Literal["bag", "positions", "convolution"] = "bag", permutations: int = 50
) -> Iterator[Evidence]:
    r"""Without positions a ViT sees a bag of patches.

    Flattening discards the arrangement of the patches: without positional embeddings the class
    output of a vision transformer (class token or mean of the patches) is invariant to every
    permutation of the patches; the arrangement enters through learned positions only, and with
    those it does. Self-attention commutes with permutations, and so does what treats every token
    alike; the class token attends to a set, and a mean does not depend on order. Checked for random
    networks with 9 and 6 patches and random permutations.

    Knobs:
        model: What sees the images: a vision transformer without positions or with them, or a
            convolutional network.
        permutations: How many permutations are drawn.
    """
    for pooling, (H, W) in (("class", (12, 12)), ("mean", (8, 12))):
        x = torch.randn(3, H, W)
        tokens = patchify(x, 4)
        mixed = [tokens[torch.randperm(len(tokens))] for _ in range(permutations)]
        images = torch.stack([x, *(unpatchify(each, 4, (H, W)) for each in mixed)])
        nets = {"bag": drawn(size=(H, W), pooling=pooling, positions=False),
                "positions": drawn(size=(H, W), pooling=pooling),
                "convolution": convolutional()}  # fmt: skip
        with torch.no_grad():
            logits = nets[model](images)
            known = nets["positions"](images)
        at: dict[str, Any] = {"pooling": pooling, "patches": len(tokens)}
        name = "logits of an image whose patches change places"
        yield equals(name, logits[1:], logits[:1], tol=1e-10, **at)
        gap = (known[1:] - known[:1]).abs().max()
        yield at_least("largest change of a logit, with positions", gap, 1e-4, **at)


vit_patch_permutation.foil("with positions", model="positions")
vit_patch_permutation.foil("a convolutional network", model="convolution")


@claim(
    by="identity", sources=("D-324",), budget=0.7,
    short=r"\mathrm{patches}(S^p x) = \Pi\,\mathrm{patches}(x),\ \text{but not for}\ S^1",
)  # fmt: skip
def vit_inductive_bias(
    step: Callable[[int], int] = lambda p: p, positions: bool = False
) -> Iterator[Evidence]:
    r"""ViT lacks translation equivariance.

    A circular convolution with stride 1 commutes with all shifts of an image. Patch tokens commute
    with circular shifts by multiples of the patch size only: these permute the tokens, while a
    shift by one pixel changes the tokens themselves unless $p = 1$: none of them is an old one.
    With positions not even the former: then no token of a shifted image is an old one. So the
    logits of a ViT without positions stay under shifts by $p$ alone. The weaker inductive bias is
    why a ViT needs more data than a convolutional network; this is quoted.

    Knobs:
        step: By how many pixels a shift of one patch moves the image, of $p$.
        positions: Whether the tokens have positions.
    """
    layer = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    for p, H, W in ((4, 12, 8), (3, 6, 12), (1, 4, 5)):
        x, pos = torch.randn(3, H, W), torch.randn((H // p) * (W // p), 3 * p * p)
        added = pos if positions else torch.zeros_like(pos)
        tokens, at = patchify(x, p) + added, {"p": p}
        for a, b in ((0, 1), (1, 0), (1, 2)):
            moved = patchify(x.roll((a * step(p), b * step(p)), (1, 2)), p) + added
            grid = tokens.unflatten(0, (H // p, W // p)).roll((a, b), (0, 1)).flatten(0, 1)
            name = "tokens of a shifted image, against the old ones in other places"
            yield equals(name, moved, grid, tol=0.0, down=a, right=b, **at)
            old = known(patchify(x.roll((a, b), (1, 2)), p), patchify(x, p))
            wanted = len(tokens) if p == 1 else 0
            yield equals("old tokens after a shift by a pixel", old, wanted, **at)
            placed = patchify(x.roll((a * p, b * p), (1, 2)), p) + pos
            yield equals("the same after a shift by a patch, with positions",
                         known(placed, patchify(x, p) + pos), 0, **at)  # fmt: skip
            with torch.no_grad():
                shifted = layer(x.roll((a, b), (1, 2))[None])
                maps = layer(x[None]).roll((a, b), (2, 3))
            yield equals("maps of a circular convolution", shifted, maps, tol=1e-12, **at)
    x, net = torch.randn(1, 3, 12, 8), drawn(size=(12, 8), positions=positions)
    with torch.no_grad():
        logits, pixel = net(x), net(x.roll((0, 1), (2, 3)))
        patch = net(x.roll((step(4), step(4)), (2, 3)))
    yield equals("logits after a shift by a patch", patch, logits, tol=1e-10)
    yield at_least("change of a logit after a shift by a pixel", (pixel - logits).abs().max(), 1e-4)


def known(tokens: Tensor, old: Tensor) -> int:
    """How many tokens are among the old ones."""
    rows = {tuple(row) for row in old.tolist()}
    return sum(tuple(row) in rows for row in tokens.tolist())


vit_inductive_bias.foil("equivariant to shifts by one pixel", step=lambda p: 1)
vit_inductive_bias.foil("by half a patch", step=lambda p: -(-p // 2))
vit_inductive_bias.foil("with positions, too", positions=True)
