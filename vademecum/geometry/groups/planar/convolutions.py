r"""Convolutions on planar groups: equivariant to shifts, quarter turns and, with p4m, reflections.

For $H$ the four quarter turns (p4), or these and the reflections (p4m), a layer on features and a
*lifting* layer on images are

$$y(t, h) = \sum_{u, h'} \psi(h^{-1} u,\; h^{-1} h')\, x(t + u, h'), \qquad
y(t, h) = \sum_u \psi(h^{-1} u)\, x(t + u) .$$

So $y$ moves as $x$ does (`FeatureAction`). Both are one plain convolution, with filters that are
turned copies of $\psi$; these copies cost next to nothing beside it.

Exact up to rounding for all sizes that are accepted: a stride that leaves a rest at the end of an
axis would break the symmetry, and is refused with the sizes that fit. On CUDA devices two runs
agree bit by bit if `torch.backends.cudnn.deterministic` is set, as with any convolution. The claim
is `group_convolution`.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, whole
from vademecum.geometry.groups.actions import turned
from vademecum.geometry.groups.finite_groups import Group
from vademecum.geometry.groups.planar._grids import insist_on_grid
from vademecum.geometry.groups.planar.features import insist_on_features, point_group

__all__ = ["GroupConv2d"]


class GroupConv2d(nn.Module):
    r"""A convolution on the group p4 or p4m, with features (n, channels, turns, height, width).

    Args:
        in_channels: How many channels the input has, beside the turns.
        out_channels: How many the output has; one filter each, used in every turn.
        kernel_size: Height and width of the filters.
        group: "p4" for shifts and quarter turns, 4 turns; "p4m" with reflections, 8.
        lifting: Whether inputs are images (n, channels, height, width), as in the first layer.
        stride: The step from window to window.
        padding: Places added at each end of both axes.
        dilation: The distance of neighbouring taps.
        padding_mode: What is added: zeros, or the other end of the image ("circular").
        bias: Whether each output channel has a constant.

    Attributes:
        group: The turns H, a `Group`.

    References:
        Cohen, Welling, Group equivariant convolutional networks, ICML, 2016.

    Example:
        >>> net = nn.Sequential(GroupConv2d(3, 5, 3, lifting=True), nn.ReLU(), GroupConv2d(5, 2, 3))
        >>> x = torch.randn(1, 3, 9, 9)
        >>> net(x).shape
        torch.Size([1, 2, 4, 5, 5])
        >>> from vademecum.geometry import FeatureAction, ImageAction
        >>> turn, C4 = ImageAction(net[0].group), net[0].group
        >>> torch.allclose(net(turn(1, x)), FeatureAction(C4)(1, net(x)), atol=1e-6)
        True
    """

    index: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        group: Literal["p4", "p4m"] = "p4",
        lifting: bool = False,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        padding_mode: Literal["zeros", "circular"] = "zeros",
        bias: bool = True,
    ):
        super().__init__()
        self.group, self.lifting, self._kind = point_group(group), lifting, group
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.kernel_size = whole("kernel_size", kernel_size, low=1)
        self.stride, self.padding = whole("stride", stride, low=1), whole("padding", padding, low=0)
        self.dilation = whole("dilation", dilation, low=1)
        self.padding_mode = choice("padding_mode", padding_mode, ("zeros", "circular"))
        turns = () if lifting else (self.group.order,)
        taps = (*turns, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *taps))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.register_buffer("index", torch.empty(self.group.order, math.prod(taps)).long())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights anew, by the law of `nn.Conv2d`, and put each tap at its place."""
        self.index.copy_(_positions(self.group, tuple(self.weight.shape[2:])))
        limit = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -limit, limit)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -limit, limit)

    def filters(self) -> Float[Tensor, " filters inputs k k"]:
        """The filters of the plain convolution: for each output channel one for each turn."""
        turns, k = self.group.order, self.kernel_size
        # By index: of this the derivative is summed in a fixed order, of `gather` it is not.
        copies = self.weight.flatten(2)[:, :, self.index].transpose(1, 2)  # (out, turn, in, taps)
        return copies.reshape(self.out_channels * turns, -1, k, k)

    def forward(
        self, x: Float[Tensor, " n channels *turns h w"]
    ) -> Float[Tensor, " n k turns u v"]:
        """The features of the next layer.

        Args:
            x: Images if the layer lifts, else features.

        Raises:
            ValueError: If the shape is another one, or windows leave a rest.
        """
        if not self.lifting:
            insist_on_features(x, self.group.order, self.in_channels)
            x = x.flatten(1, 2)
        elif not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] != self.in_channels:
            given = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"x must have the shape (n, {self.in_channels}, height, width), got {given}"
            )
        span = self.dilation * (self.kernel_size - 1) + 1
        insist_on_grid(tuple(x.shape[2:]), span, self.stride, self.padding)
        padding = self.padding
        if self.padding_mode == "circular" and padding:
            if padding > min(x.shape[2:]):
                raise ValueError(f"height and width must be >= {padding} to be continued around")
            x, padding = F.pad(x, (padding,) * 4, mode="circular"), 0
        turns = self.group.order
        bias = None if self.bias is None else self.bias.repeat_interleave(turns)
        y = F.conv2d(x, self.filters(), bias, self.stride, padding, self.dilation)
        return y.unflatten(1, (self.out_channels, turns))

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        usual = {"lifting": False, "stride": 1, "padding": 0, "dilation": 1}
        own = [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        if self.padding_mode != "zeros":
            own.append(f"padding_mode={self.padding_mode!r}")
        own += [] if self.bias is not None else ["bias=False"]
        sizes = f"{self.in_channels}, {self.out_channels}, {self.kernel_size}"
        return ", ".join([sizes, f"group={self._kind!r}", *own])


def _positions(group: Group, taps: tuple[int, ...]) -> Tensor:
    """Which tap of a filter each tap of its copies is, (turns, taps): it moves as features do."""
    places = torch.arange(math.prod(taps), device="cpu").view(taps)
    rows = []
    for h in group:
        moved = places if len(taps) == 2 else places[group.table[group.inverse(h)]]
        rows.append(turned(group, h, moved).flatten())
    return torch.stack(rows)
