r"""Images as sequences of patches, and back.

An image of $c$ channels, $H \times W$, is tiled by $(H / p)(W / q)$ patches of $p \times q$ pixels,
row by row from the upper left; each becomes a vector of $c p q$ numbers, in the order channel, row,
column, which is that of a convolution's kernel. So a matrix applied to every patch is a convolution
with kernel and stride $(p, q)$.

Exact: numbers are moved and none is changed, of whatever dtype. The claims are `vit_patches` and
`patch_embedding`.
"""

from collections.abc import Sequence

from jaxtyping import Shaped
from torch import Tensor

from vademecum.arguments import whole

__all__ = ["patchify", "unpatchify"]

Size = int | Sequence[int]


def patchify(x: Shaped[Tensor, " *n c h w"], patch: Size) -> Shaped[Tensor, " *n patches cpq"]:
    """Cut images into patches that tile them, one vector each.

    Args:
        x: Images, of any dtype and any number of channels.
        patch: The height and width of a patch; one number for squares.

    Raises:
        ValueError: If the patches do not tile the images; it names the nearest sizes they do.

    Example:
        >>> image = torch.arange(16).view(1, 4, 4)
        >>> patchify(image, 2)[:2].tolist()  # the two upper quarters
        [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    if not isinstance(x, Tensor) or x.ndim < 3 or not x.shape[-3]:
        given = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be images (..., channels, height, width), got {given}")
    p, q = pair("patch", patch)
    rows, columns = grid("x", (x.shape[-2], x.shape[-1]), (p, q))
    cut = x.unflatten(-1, (columns, q)).unflatten(-3, (rows, p))  # ..., c, rows, p, columns, q
    n = x.ndim - 3
    places = (*range(n), n + 1, n + 3, n, n + 2, n + 4)
    return cut.permute(places).flatten(-3).flatten(-3, -2)


def unpatchify(
    x: Shaped[Tensor, " *n patches cpq"], patch: Size, size: Size
) -> Shaped[Tensor, " *n c h w"]:
    """Put patches together to images: the inverse of `patchify`.

    Args:
        x: Patches, in the order of `patchify`.
        patch: The height and width of a patch; one number for squares.
        size: The height and width of the images; one number for squares.

    Raises:
        ValueError: If patches of this size do not tile such images, or there are more or fewer.

    Example:
        >>> image = torch.arange(2 * 4 * 6).view(2, 4, 6)
        >>> torch.equal(unpatchify(patchify(image, (2, 3)), (2, 3), (4, 6)), image)
        True
    """
    p, q = pair("patch", patch)
    rows, columns = grid("size", pair("size", size), (p, q))
    shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
    if not isinstance(x, Tensor) or x.ndim < 2 or x.shape[-2] != rows * columns:
        raise ValueError(f"x must be {rows * columns} patches (..., patches, cpq), got {shape}")
    if x.shape[-1] % (p * q) or not x.shape[-1]:
        raise ValueError(f"x must be patches of {p} x {q} numbers for each channel, got {shape}")
    cut = x.unflatten(-1, (-1, p, q)).unflatten(-4, (rows, columns))  # ..., rows, columns, c, p, q
    n = x.ndim - 2
    places = (*range(n), n + 2, n, n + 3, n + 1, n + 4)
    return cut.permute(places).flatten(-2).flatten(-3, -2)


def pair(name: str, size: Size) -> tuple[int, int]:
    """Height and width, from one number or two."""
    if isinstance(size, Sequence) and not isinstance(size, str):
        if len(size) != 2:
            raise ValueError(f"{name} must be one number or two, got {tuple(size)}")
        return whole(name, size[0], low=1), whole(name, size[1], low=1)
    side = whole(name, size, low=1)
    return side, side


def grid(name: str, size: tuple[int, int], patch: tuple[int, int]) -> tuple[int, int]:
    """How many patches tile an image of this size, below and beside each other."""
    for what, have, side in zip(("height", "width"), size, patch, strict=True):
        if have % side or not have:
            near = [m for m in (have // side * side, (have // side + 1) * side) if m]
            raise ValueError(
                f"{name} must have a {what} that is a multiple of {side}, got {have}: the nearest"
                f" {'are' if len(near) > 1 else 'is'} {' and '.join(map(str, near))}"
            )
    return size[0] // patch[0], size[1] // patch[1]
