r"""Causal convolutions: the output at time $t$ knows the inputs up to $t$, and none after it.

With $K$ taps, dilation $d$ and zeros before the beginning,

$$y_t = b + \sum_{j=0}^{K-1} w_j\, x_{t - d (K - 1 - j)} ,$$

which is torch's convolution after $d (K - 1)$ zeros on the left. One step in time needs the inputs
at the times $t - d, t - 2d, \dots, t - (K-1) d$. All of these are congruent modulo $d$, so a buffer
of $d$ phases with $K - 1$ inputs each is enough: a step reads and writes one phase, and the cost
does not grow with the dilation.

Exact: steps and the whole sequence compute the same sums, up to rounding. The claim is
`causal_convolution`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.results import one_line

__all__ = ["CausalConv1d", "CausalState", "CausalStep"]


class CausalState(NamedTuple):
    """The inputs that a causal convolution still needs.

    Example:
        >>> CausalConv1d(2, 4, 3, dilation=8).initial_state(1).inputs.shape
        torch.Size([8, 1, 2, 2])
    """

    inputs: Float[Tensor, " d n c taps"]
    """Those of each phase of the dilation, for each example and channel, the oldest first."""
    phase: "int | Tensor"
    """The phase of the next step; a tensor on CUDA devices, so that a graph can advance it."""

    __repr__ = one_line


class CausalStep(NamedTuple):
    """What a step of a causal convolution gives.

    Example:
        >>> layer = CausalConv1d(2, 4, 3)
        >>> layer.step(torch.zeros(1, 2), layer.initial_state(1)).output.shape
        torch.Size([1, 4])
    """

    output: Float[Tensor, " n maps"]
    """The output at this time."""
    state: CausalState
    """What the next step needs, in the memory of the state given."""

    __repr__ = one_line


class CausalConv1d(nn.Module):
    r"""A convolution over time that sees no future; as long as its input, and also step by step.

    Parameters are those of `nn.Conv1d`, in name, shape and initial law.

    Args:
        in_channels: The number of channels of the input.
        out_channels: The number of channels of the output.
        kernel_size: The number $K$ of taps.
        dilation: The distance $d$ of neighbouring taps.
        groups: The number of blocks of channels that do not mix.
        bias: Whether there is a constant $b$ for each output channel.

    Raises:
        ValueError: If a number is below 1, or `groups` does not divide both numbers of channels.

    References:
        Van den Oord et al., WaveNet: a generative model for raw audio, 2016. Le Paine et al., Fast
        WaveNet generation algorithm, 2016.

    Example:
        >>> layer = CausalConv1d(1, 1, 2, dilation=2, bias=False)
        >>> layer.weight.data = torch.tensor([[[10.0, 1.0]]])  # y_t = 10 x_{t-2} + x_t
        >>> layer(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])).tolist()
        [[[1.0, 2.0, 13.0, 24.0]]]
        >>> state = layer.initial_state(1)
        >>> for t in (1.0, 2.0, 3.0):
        ...     y, state = layer.step(torch.tensor([[t]]), state)
        >>> y.tolist()
        [[13.0]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.kernel_size = whole("kernel_size", kernel_size, low=1)
        self.dilation = whole("dilation", dilation, low=1)
        self.groups = whole("groups", groups, low=1)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups = {groups}, got {channels}")
        drawn = nn.Conv1d(in_channels, out_channels, kernel_size, groups=groups, bias=bias)
        self.weight, self.bias = drawn.weight, drawn.bias

    def forward(self, x: Float[Tensor, " n c T"]) -> Float[Tensor, " n maps T"]:
        """The outputs at all times."""
        if x.ndim != 3 or x.shape[1] != self.in_channels or not x.shape[2]:
            raise ValueError(
                f"x must have the shape (n, {self.in_channels}, T), T >= 1, got {tuple(x.shape)}"
            )
        x = F.pad(x, (self.dilation * (self.kernel_size - 1), 0))
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)

    def initial_state(self, n: int) -> CausalState:
        """The state before the first input: zeros, of the dtype and on the device of the weights.

        Args:
            n: How many sequences there are.
        """
        shape = (self.dilation, whole("n", n, low=1), self.in_channels, self.kernel_size - 1)
        inputs = torch.zeros(shape, dtype=self.weight.dtype, device=self.weight.device)
        graphs = inputs.is_cuda
        phase = torch.zeros(1, dtype=torch.long, device=inputs.device) if graphs else 0
        return CausalState(inputs, phase)

    def step(self, x: Float[Tensor, " n c"], state: CausalState) -> CausalStep:
        """The output at the next time.

        Args:
            x: The inputs at this time, one for each sequence.
            state: What the step before gave, or `initial_state`. It is used up: the new state lies
                in the same memory, so clone its tensors to come back to it.
        """
        inputs, phase = state
        if x.shape != inputs.shape[1:3]:
            raise ValueError(
                f"x must have the shape {tuple(inputs.shape[1:3])}, got {tuple(x.shape)}"
            )
        if isinstance(phase, int):
            past = inputs[phase]
            window = torch.cat((past, x[:, :, None]), 2)
            past.copy_(window[:, :, 1:])
            phase = (phase + 1) % self.dilation
        else:
            window = torch.cat((inputs.index_select(0, phase)[0], x[:, :, None]), 2)
            inputs.index_copy_(0, phase, window[None, :, :, 1:])
            phase.add_(1).remainder_(self.dilation)
        return CausalStep(self._sums(window), CausalState(inputs, phase))

    def _sums(self, window: Tensor) -> Tensor:
        if self.groups == 1:
            return F.linear(window.flatten(1), self.weight.flatten(1), self.bias)
        return F.conv1d(window, self.weight, self.bias, groups=self.groups)[:, :, 0]

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        sizes = f"{self.in_channels}, {self.out_channels}, {self.kernel_size}"
        sizes += f", dilation={self.dilation}" if self.dilation > 1 else ""
        sizes += f", groups={self.groups}" if self.groups > 1 else ""
        return sizes + (", bias=False" if self.bias is None else "")
