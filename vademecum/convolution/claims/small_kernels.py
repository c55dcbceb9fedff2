"""Small kernels in place of large ones: stacks of 3 x 3, and 1 x 1 in front."""

from collections.abc import Callable, Iterator

import torch
from scipy.signal import convolve2d
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vademecum.claims import Evidence, claim, equals
from vademecum.convolution import receptive_field, shape_trace
from vademecum.convolution.claims._counts import entries


@claim(
    by="identity",
    sources=("D-243",),
    short=r"2 \cdot 9 C^2 = 18 C^2 < 25 C^2, \quad 3 \cdot 9 C^2 = 27 C^2 < 49 C^2",
)
def stacked_3x3(
    window: Callable[[int], int] = lambda layers: 1 + 2 * layers, rank: int = 17
) -> Iterator[Evidence]:
    r"""Two stacked $3 \times 3$ layers see a $5 \times 5$ window with fewer weights.

    With $C$ channels throughout and stride 1 they have $18 C^2$ instead of $25 C^2$; three see
    $7 \times 7$ with $27 C^2$ instead of $49 C^2$, and there are extra nonlinearities. Without
    these the stack is a single convolution with the convolved kernel, but for one channel only a
    17-dimensional family of the 25-dimensional space of $5 \times 5$ kernels is reached.

    Knobs:
        window: The side of the window that so many layers see.
        rank: The dimension of the family of $5 \times 5$ kernels.
    """
    for layers, channels in ((2, 2), (3, 3), (2, 5)):
        stack = [nn.Conv2d(channels, channels, 3, bias=False) for _ in range(layers)]
        x = torch.zeros(1, channels, 15, 15, requires_grad=True)
        y = nn.Sequential(*stack)(x)
        middle = y.shape[-1] // 2
        (seen,) = torch.autograd.grad(y[0, 0, middle, middle], x)
        side = int((seen[0].abs().amax((0, 1)) > 0).sum())
        yield equals("side of the window", side, window(layers), layers=layers)
        field = receptive_field(nn.Sequential(*stack), (channels, 15, 15))
        yield equals("window by the library", field.size, (window(layers),) * 2, layers=layers)
        large = nn.Conv2d(channels, channels, side, bias=False)
        yield equals("weights of the stack", entries(*stack), 9 * layers * channels**2,
                     layers=layers)  # fmt: skip
        yield equals("weights of one kernel that sees the same", entries(large),
                     (1 + 2 * layers) ** 2 * channels**2, layers=layers)  # fmt: skip
    a, b = torch.randn(2, 3, 3)
    image = torch.randn(1, 1, 9, 8)
    two = nn.functional.conv2d(nn.functional.conv2d(image, a[None, None]), b[None, None])
    joint = torch.from_numpy(convolve2d(a.numpy(), b.numpy()))
    once = nn.functional.conv2d(image, joint[None, None])
    yield equals("two layers against one with the convolved kernel", two, once, tol=1e-12)
    jacobian = torch.func.jacrev(lambda ab: product(ab[:9].view(3, 3), ab[9:].view(3, 3)))
    found = int(
        torch.linalg.matrix_rank(jacobian(torch.cat([a.flatten(), b.flatten()])), rtol=1e-9)
    )
    yield equals("rank of the map from two kernels to their product", found, rank)


stacked_3x3.foil(r"two layers see $6 \times 6$", window=lambda layers: 3 * layers)
stacked_3x3.foil(r"every $5 \times 5$ kernel is a product", rank=25)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The full convolution of two kernels, flattened."""
    return nn.functional.conv2d(a[None, None], b.flip(0, 1)[None, None], padding=2).flatten()


@claim(
    by="identity",
    sources=("D-246",),
    short=r"28^2 \cdot 192 \cdot 32 \cdot 25 = 120{,}422{,}400 \to 12{,}443{,}648"
    r"\ \text{through 16 channels}",
)
def pointwise_bottleneck(first: bool = True, rank: int = 16) -> Iterator[Evidence]:
    r"""A $1 \times 1$ convolution is the same linear map over channels at every pixel.

    Placed before an expensive filter it cuts the cost: $28 \times 28 \times 192$ to 32 channels
    with $5 \times 5$ kernels takes 120,422,400 multiplications directly and 12,443,648 through a
    16-channel bottleneck; the price is rank at most 16 in the channel dimension.

    Multiplications are half the operations that torch's own counter finds, and those of
    `shape_trace`.

    Knobs:
        first: Whether the bottleneck comes before the $5 \times 5$ filter.
        rank: Of the map over channels through the bottleneck.
    """
    x = torch.randn(2, 5, 4, 3)
    layer = nn.Conv2d(5, 7, 1)
    assert layer.bias is not None
    by_hand = torch.einsum("oc,nchw->nohw", layer.weight[:, :, 0, 0], x) + layer.bias[:, None, None]
    yield equals("layer against a map over channels", layer(x), by_hand, tol=1e-12)
    with torch.device("meta"):
        image = torch.empty(1, 192, 28, 28)
        direct = nn.Conv2d(192, 32, 5, padding=2)
        if first:
            small = nn.Sequential(nn.Conv2d(192, 16, 1), nn.Conv2d(16, 32, 5, padding=2))
        else:
            small = nn.Sequential(nn.Conv2d(192, 16, 5, padding=2), nn.Conv2d(16, 32, 1))
    for net, name, stated in ((direct, "directly", 120_422_400),
                              (small, "through the bottleneck", 12_443_648)):  # fmt: skip
        yield equals(f"multiplications {name}", multiplications(net, image), stated)
        ours = shape_trace(net, image).multiply_adds
        yield equals(f"multiplications {name}, by the library", ours, stated)
    yield equals("multiplications by hand", 28 * 28 * (192 * 16 + 16 * 32 * 25), 12_443_648)
    a, b = torch.randn(16, 192), torch.randn(32 * 25, 16)
    net = nn.Sequential(nn.Conv2d(192, 16, 1, bias=False), nn.Conv2d(16, 32, 5, bias=False))
    net[0].weight.data, net[1].weight.data = (
        a.view(16, 192, 1, 1),
        b.view(32, 5, 5, 16).permute(0, 3, 1, 2),
    )
    patches = torch.eye(192).repeat_interleave(25, 0).view(192, 5, 5, 192).permute(0, 3, 1, 2)
    with torch.no_grad():
        through = net(patches).flatten(1)
    yield equals("rank from 192 channels to the outputs",
                 int(torch.linalg.matrix_rank(through, rtol=1e-9)), rank)  # fmt: skip


pointwise_bottleneck.foil(r"the bottleneck behind the $5 \times 5$ filter", first=False)
pointwise_bottleneck.foil("the map over channels keeps the rank of its outputs", rank=32)


def multiplications(net: nn.Module, x: Tensor) -> int:
    """Half the operations that torch's counter finds."""
    with FlopCounterMode(display=False) as counter:
        net(x)
    return counter.get_total_flops() // 2
