r"""LeNet-5: two convolutions with sub-sampling and three dense layers, for handwritten digits.

$$32 \xrightarrow{5 \times 5} 28 \xrightarrow{2 \times 2} 14 \xrightarrow{5 \times 5} 10
\xrightarrow{2 \times 2} 5 \to 120 \to 84 \to 10$$

The network of 1998 has three peculiarities. Each map of the second convolution reads some of the
six maps before it, by a table with 60 entries. Sub-sampling is trained, $f(a\,\bar x + b)$ for a
map with block means $\bar x$. And its units are $f(x) = 1.7159 \tanh(2x/3)$, with
$f(\pm 1) = \pm 1$; the output compares them with a fixed code $c_k \in \{-1, 1\}^{84}$ for each
class, $z_k = -\|f - c_k\|^2$. There are 60,000 parameters before the output, against 61,706 in the
form of today, where all maps are read and means are taken. Checked by `convolution.lenet5` and
`convolution.lecun_tanh`.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.convolution.networks._images import check_images

__all__ = ["LeNet5", "scaled_tanh"]

TABLE = (
    *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (0, 4, 5), (0, 1, 5)),
    *((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (0, 3, 4, 5), (0, 1, 4, 5), (0, 1, 2, 5)),
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)),
)
"""Which of the six maps each of the sixteen reads: table I of LeCun et al., 1998."""


def scaled_tanh(x: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    r"""The unit $1.7159 \tanh(2x/3)$ of LeNet-5, which takes $\pm 1$ to $\pm 1$.

    Example:
        >>> scaled_tanh(torch.tensor([-1.0, 0.0, 1.0])).round(decimals=4)
        tensor([-1.,  0.,  1.])
    """
    return 1.7159 * torch.tanh(x * (2 / 3))


class LeNet5(nn.Module):
    """LeNet-5, from images to logits.

    Args:
        num_classes: How many logits there are.
        channels: How many channels an image has.
        width: How many maps the first convolution has; others grow with it. That of 1998 has 6.
        size: The height and width of an image.
        padding: Zeros around it: 2 for digits of 28 x 28.
        variant: "modern": ReLU and means; or "1998", as the module describes it.

    References:
        LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition,
        Proceedings of the IEEE, 1998.

    Example:
        >>> net = LeNet5(size=28, padding=2)
        >>> sum(p.numel() for p in net.parameters())
        61706
        >>> net(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        channels: int = 1,
        width: int = 6,
        size: int = 32,
        padding: int = 0,
        variant: Literal["modern", "1998"] = "modern",
    ):
        super().__init__()
        whole("num_classes", num_classes, low=1)
        self.channels, self.size = whole("channels", channels, low=1), whole("size", size, low=1)
        width, padding = whole("width", width, low=1), whole("padding", padding, low=0)
        side = ((size + 2 * padding - 4) // 2 - 4) // 2
        if side < 1:
            raise ValueError(f"size must be >= {16 - 2 * padding}, got {size}")
        original = choice("variant", variant, ("modern", "1998")) == "1998"
        if original and width != 6:
            raise ValueError(f"width must be 6, for which the table of 1998 is made, got {width}")
        after, dense, features = -(-8 * width // 3), 20 * width, 14 * width
        self.conv1 = nn.Conv2d(channels, width, 5, padding=padding)
        self.pool1 = _Subsampling(width) if original else nn.AvgPool2d(2)
        self.conv2 = _TableConv2d(5) if original else nn.Conv2d(width, after, 5)
        self.pool2 = _Subsampling(after) if original else nn.AvgPool2d(2)
        self.fc1 = nn.Linear(after * side * side, dense)
        self.fc2 = nn.Linear(dense, features)
        self.fc3 = _Codes(features, num_classes) if original else nn.Linear(features, num_classes)
        self.unit = scaled_tanh if original else torch.relu

    def forward(self, x: Float[Tensor, " n c h w"]) -> Float[Tensor, " n k"]:
        """The logits of each image."""
        check_images(x, self.channels, self.size)
        if x.shape[2:] != (self.size, self.size):
            raise ValueError(
                f"x must be images of {self.size} x {self.size}, as the network was made for, got"
                f" {x.shape[2]} x {x.shape[3]}"
            )
        x = self.pool1(self.unit(self.conv1(x)))
        x = self.pool2(self.unit(self.conv2(x)))
        x = self.unit(self.fc1(x.flatten(1)))
        return self.fc3(self.unit(self.fc2(x)))


class _Subsampling(nn.Module):
    """Means of 2 x 2 blocks, scaled and shifted map by map, and through the unit."""

    def __init__(self, maps: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(maps, 1, 1))
        self.bias = nn.Parameter(torch.zeros(maps, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return scaled_tanh(self.weight * nn.functional.avg_pool2d(x, 2) + self.bias)


class _TableConv2d(nn.Module):
    """A convolution whose maps read those that the table names, with a kernel for each entry."""

    def __init__(self, kernel_size: int):
        super().__init__()
        entries = sum(map(len, TABLE))
        self.weight = nn.Parameter(torch.empty(entries, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(len(TABLE)))
        reads = torch.tensor([len(maps) for maps in TABLE for _ in maps])
        bound = (reads * kernel_size**2).float().rsqrt()[:, None, None]
        with torch.no_grad():
            self.weight.uniform_(-1, 1).mul_(bound)

    def forward(self, x: Tensor) -> Tensor:
        kernels, none = iter(self.weight.split(1)), torch.zeros_like(self.weight[:1])
        dense = torch.cat(
            [next(kernels) if j in maps else none for maps in TABLE for j in range(6)]
        )
        return nn.functional.conv2d(x, dense.unflatten(0, (len(TABLE), 6)), self.bias)


class _Codes(nn.Module):
    """Minus the squared distances from a code of -1 and +1 for each class, which is not trained."""

    codes: Tensor

    def __init__(self, features: int, classes: int):
        super().__init__()
        self.register_buffer("codes", torch.randint(2, (classes, features)) * 2.0 - 1)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x @ self.codes.T - x.square().sum(1, keepdim=True) - self.codes.shape[1]
