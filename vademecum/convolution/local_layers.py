r"""Locally connected layers: the windows of a convolution, with weights of their own everywhere.

$$y[r][s, t] = b[r][s, t] + \sum_u \sum_{i, j} w[s, t][r, u][i, j]\, x[u][S s + i, S t + j] .$$

With $p \times q$ windows, $c$ input and $K$ output channels there are, for an $m \times n$ image
without padding, $(p q c + 1)(m - p + 1)(n - q + 1) K$ parameters: those of a convolution times the
number of positions. Exact. The claim is `locally_connected_count`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.convolution.output_sizes import conv_output_size

__all__ = ["LocallyConnected2d"]

Pair = int | Sequence[int]


class LocallyConnected2d(nn.Module):
    r"""A convolution layer whose weights are not shared: each position has its own.

    Weights are drawn as those of `nn.Conv2d` are.

    Args:
        in_channels: The number of channels of the input.
        out_channels: The number of channels of the output.
        input_size: Height and width of the input, one number if they are equal.
        kernel_size: Those of the window.
        stride: The steps from window to window.
        padding: The zeros at either end.
        bias: Whether there is a constant for each entry of the output.

    Attributes:
        weight: Of shape (height, width, out_channels, in_channels, p, q): `weight[s, t]` is the
            kernel at one position.
        bias: Of the shape of an output, or None.

    Raises:
        ValueError: If a number is out of range, or the window larger than the padded input.

    References:
        LeCun, Generalization and network design strategies, 1989. Taigman, Yang, Ranzato and Wolf,
        DeepFace: closing the gap to human-level performance in face verification, CVPR, 2014.

    Example:
        >>> layer = LocallyConnected2d(1, 1, 4, 3)
        >>> sum(p.numel() for p in layer.parameters())  # 4 positions with 9 + 1
        40
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        input_size: Pair,
        kernel_size: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        bias: bool = True,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.input_size = _pair("input_size", input_size, 1)
        self.kernel_size = _pair("kernel_size", kernel_size, 1)
        self.stride, self.padding = _pair("stride", stride, 1), _pair("padding", padding, 0)
        self.output_size = conv_output_size(
            self.input_size, self.kernel_size, stride=self.stride, padding=self.padding
        )
        fan_in = in_channels * self.kernel_size[0] * self.kernel_size[1]
        shape = (*self.output_size, out_channels, in_channels, *self.kernel_size)
        limit = fan_in**-0.5
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-limit, limit))
        constants = torch.empty(out_channels, *self.output_size).uniform_(-limit, limit)
        self.bias = nn.Parameter(constants) if bias else None

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n maps oh ow"]:
        """The sums over all windows, each with its own weights."""
        wanted = (self.in_channels, *self.input_size)
        if x.ndim != 4 or tuple(x.shape[1:]) != wanted:
            raise ValueError(f"x must have the shape (n, {str(wanted)[1:]}, got {tuple(x.shape)}")
        windows = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        weight = self.weight.flatten(0, 1).flatten(2)  # positions, maps, inputs
        y = torch.bmm(weight, windows.permute(2, 1, 0))  # positions, maps, examples
        y = y.permute(2, 1, 0).unflatten(2, self.output_size)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        sizes = f"{self.in_channels}, {self.out_channels}, {self.input_size}, {self.kernel_size}"
        sizes += f", stride={self.stride}" if self.stride != (1, 1) else ""
        sizes += f", padding={self.padding}" if self.padding != (0, 0) else ""
        return sizes + (", bias=False" if self.bias is None else "")


def _pair(name: str, value: Pair, low: int) -> tuple[int, int]:
    each = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(each) != 2:
        raise ValueError(f"{name} must have 2 entries, got {value}")
    return whole(name, each[0], low=low), whole(name, each[1], low=low)
