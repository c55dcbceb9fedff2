r"""TCN: residual blocks of dilated causal convolutions, a recurrent network's rival.

Block $i$ has two causal convolutions with $K$ taps and dilation $2^i$, each with weight
normalisation, ReLU and dropout, beside a shortcut. After $D$ blocks an output knows the last
$1 + 2 (K - 1)(2^D - 1)$ inputs, and all times of a layer are computed at once.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from vademecum.arguments import number, whole
from vademecum.convolution.causal import CausalConv1d

__all__ = ["TCN"]


class TCN(nn.Module):
    """A temporal convolutional network, from a sequence to logits at every time.

    Args:
        num_classes: How many logits there are at each time.
        channels: How many numbers the input has at each time.
        width: How many channels the blocks have.
        depth: How many blocks there are.
        kernel_size: How many taps a convolution has.
        dropout: The rate behind every convolution.

    References:
        Bai, Kolter, Koltun, An empirical evaluation of generic convolutional and recurrent networks
        for sequence modeling, 2018.

    Example:
        >>> net = TCN(3, channels=2, width=4, depth=2)
        >>> net(torch.zeros(5, 2, 30)).shape
        torch.Size([5, 3, 30])
        >>> net.field
        13
    """

    def __init__(
        self,
        num_classes: int,
        *,
        channels: int = 1,
        width: int = 64,
        depth: int = 8,
        kernel_size: int = 3,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.channels, width = whole("channels", channels, low=1), whole("width", width, low=1)
        self.depth = whole("depth", depth, low=1)
        self.kernel_size = whole("kernel_size", kernel_size, low=2)
        number("dropout", dropout, low=0, high=1)
        self.blocks = nn.Sequential(
            *(
                _Block(width if i else channels, width, kernel_size, 2**i, dropout)
                for i in range(depth)
            )
        )
        self.head = nn.Conv1d(width, whole("num_classes", num_classes, low=1), 1)

    @property
    def field(self) -> int:
        """How many inputs an output knows."""
        return 1 + 2 * (self.kernel_size - 1) * (2**self.depth - 1)

    def forward(self, x: Float[Tensor, " n c T"]) -> Float[Tensor, " n k T"]:
        """The logits at every time, from the inputs up to then."""
        return self.head(self.blocks(x))


class _Block(nn.Module):
    def __init__(self, channels: int, width: int, taps: int, dilation: int, dropout: float):
        super().__init__()
        self.conv1 = weight_norm(CausalConv1d(channels, width, taps, dilation=dilation))
        self.conv2 = weight_norm(CausalConv1d(width, width, taps, dilation=dilation))
        self.shortcut = nn.Conv1d(channels, width, 1) if channels != width else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(torch.relu(self.conv1(x)))
        y = self.dropout(torch.relu(self.conv2(y)))
        return torch.relu(y + self.shortcut(x))
