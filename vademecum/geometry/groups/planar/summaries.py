r"""Pooling and normalisation of features on planar groups, which keep the symmetry.

Over the turns, a maximum or a mean of $x(t, h)$ over $h$ gives an image that turns as the input
does; over windows, each turn has its own, and windows must fit the grid. Normalisation shares mean
and variance of a channel among its turns. All exact up to rounding.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, whole
from vademecum.geometry.groups.planar._grids import insist_on_grid
from vademecum.geometry.groups.planar.features import insist_on_features, point_group

__all__ = ["GroupBatchNorm2d", "GroupPool"]


class GroupPool(nn.Module):
    """A maximum or a mean over the turns of features, or over windows of the plane.

    Args:
        group: "p4" or "p4m".
        reduce: What is taken of the entries.
        kernel_size: Height and width of windows in the plane, whose turns stay apart; None pools
            over the turns, to an image (n, channels, height, width).
        stride: The step from window to window; the kernel size by default.
        padding: Places added at each end, which count for nothing in a maximum and as zeros in a
            mean.

    Raises:
        ValueError: At a call, if windows leave a rest, which would break the symmetry.

    Example:
        >>> x = torch.arange(16.0).view(1, 1, 4, 2, 2)
        >>> GroupPool("p4")(x)
        tensor([[[[12., 13.],
                  [14., 15.]]]])
        >>> GroupPool("p4", reduce="mean", kernel_size=2)(x).flatten()
        tensor([ 1.5000,  5.5000,  9.5000, 13.5000])
    """

    def __init__(
        self,
        group: Literal["p4", "p4m"],
        *,
        reduce: Literal["max", "mean"] = "max",
        kernel_size: int | None = None,
        stride: int | None = None,
        padding: int = 0,
    ):
        super().__init__()
        self.group, self._kind = point_group(group), group
        self.reduce = choice("reduce", reduce, ("max", "mean"))
        if kernel_size is None and (stride is not None or padding):
            raise ValueError("kernel_size must be given with stride or padding")
        self.kernel_size = None if kernel_size is None else whole("kernel_size", kernel_size, low=1)
        self.stride = kernel_size if stride is None else whole("stride", stride, low=1)
        self.padding = whole("padding", padding, low=0, high=(kernel_size or 0) // 2)

    def forward(
        self, x: Float[Tensor, " n channels turns h w"]
    ) -> Float[Tensor, " n channels *turns u v"]:
        """Features or images.

        Args:
            x: Features.
        """
        insist_on_features(x, self.group.order)
        if self.kernel_size is None or self.stride is None:
            return x.amax(2) if self.reduce == "max" else x.mean(2)
        insist_on_grid(tuple(x.shape[3:]), self.kernel_size, self.stride, self.padding)
        pool = F.max_pool2d if self.reduce == "max" else F.avg_pool2d
        y = pool(x.flatten(1, 2), self.kernel_size, self.stride, self.padding)
        return y.unflatten(1, x.shape[1:3])

    def extra_repr(self) -> str:
        """The arguments, as the constructor takes them."""
        windows = ""
        if self.kernel_size is not None:
            windows = f", kernel_size={self.kernel_size}, stride={self.stride}"
            windows += f", padding={self.padding}" if self.padding else ""
        return f"{self._kind!r}, reduce={self.reduce!r}{windows}"


class GroupBatchNorm2d(nn.BatchNorm3d):
    """Batch normalisation of features on a planar group: one mean and variance for all turns.

    It is `nn.BatchNorm3d`, for which the turns are a third axis of places, with its arguments and
    its state. `nn.GroupNorm` keeps the symmetry as it is; `nn.LayerNorm`, with a weight for each
    place and turn, does not.

    Args:
        num_features: How many channels there are, beside the turns.
        knobs: What else `nn.BatchNorm3d` takes: `eps`, `momentum`, `affine`, ...

    Example:
        >>> x = torch.randn(2, 3, 4, 5, 5)
        >>> y = GroupBatchNorm2d(3)(x)
        >>> y.mean((0, 2, 3, 4)).abs().max() < 1e-6
        tensor(True)
    """

    def __init__(self, num_features: int, **knobs: float | bool | None):
        super().__init__(num_features, **knobs)  # pyright: ignore[reportArgumentType]
