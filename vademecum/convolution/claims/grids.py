"""Layers with channels: on grids of one to three dimensions."""

from itertools import permutations
from typing import Any, Literal

import numpy as np
import torch
from scipy import signal
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_least, claim, equals
from vademecum.convolution import LocallyConnected2d, conv_output_size, convolve, correlate
from vademecum.convolution.claims._signals import crooked, whole


@claim(
    by="identity", sources=("A-135", "B-290", "C-113", "D-227", "D-228"), budget=0.5,
    short=r"y_r[s, t] = b_r + \textstyle\sum_u \sum_{i, j} w_{r u}[i, j]\, x_u[s + i, t + j]",
)  # fmt: skip
def conv2d_layer(
    slides: Literal["as it is", "flipped"] = "as it is",
    channels: Literal["summed", "the first"] = "summed",
):
    r"""A multi-channel 2-d convolution layer.

    With input channels $u$ and output channels $r$: $y[r][s, t] = b[r] + \sum_u \sum_{\Delta s,
    \Delta t} w[r, u][\Delta s, \Delta t]\, x[u][s + \Delta s, t + \Delta t]$, a sum over input
    channels of 2-d cross-correlations with kernels shared by all positions. Each filter spans all
    input channels, so a $7 \times 7 \times 3$ input and two filters give $3 \times 3 \times 2$,
    either by $3 \times 3$ windows with stride 2 or by $5 \times 5$ windows with stride 1.

    Knobs:
        slides: Which form of a kernel is slid over its channel.
        channels: What is made of the correlations of all input channels.
    """
    for size, stride in (((1, 2), (1, 1)), ((2, 3), (2, 1)), ((4, 3), (1, 2)), ((3, 3), (2, 2))):
        x, w, b = whole(3, 7, 8).double(), whole(4, 3, *size).double(), whole(4).double()
        w[..., -1, -1] += 20  # or a kernel may be its own rotation
        y = F.conv2d(x[None], w, b, stride)[0]
        kernels = w if slides == "as it is" else w.flip((2, 3))
        cut = (slice(None, None, stride[0]), slice(None, None, stride[1]))
        at: dict[str, Any] = {"kernel": " by ".join(map(str, size)), "stride": str(stride)}

        def peer(u: Tensor, k: Tensor) -> np.ndarray:
            return signal.correlate2d(u.numpy(), k.numpy(), "valid")

        for name, slide in (("SciPy's correlations", peer), ("correlate", _valid)):
            each = [[torch.as_tensor(slide(u, k)) for u, k in zip(x, filters, strict=True)]
                    for filters in kernels]  # fmt: skip
            sums = [torch.stack(maps).sum(0) if channels == "summed" else maps[0] for maps in each]
            stated = torch.stack([c + m[cut] for m, c in zip(sums, b, strict=True)])
            yield equals(f"layer as sums of {name}", y, stated, tol=0.0, **at)
    for k, s in ((3, 2), (5, 1)):
        shape = nn.Conv2d(3, 2, k, stride=s)(torch.zeros(1, 3, 7, 7)).shape[1:]
        yield equals("shape of two filters on 7 x 7 x 3", list(shape), [2, 3, 3], k=k, S=s)
        yield equals("conv_output_size", conv_output_size((7, 7), k, stride=s), [3, 3], k=k, S=s)


def _valid(x: Tensor, kernel: Tensor) -> Tensor:
    return correlate(x.long(), kernel.long(), mode="valid")  # integers are exact


conv2d_layer.foil("a layer does not flip its kernels", slides="flipped")
conv2d_layer.foil("each filter sums over all input channels", channels="the first")


@claim(
    by="exhaustion", sources=("D-229",), budget=0.5,
    short=r"\textstyle\sum_u w_{r \pi(u)} \star x_{\pi(u)} = \sum_u w_{r u} \star x_u",
)  # fmt: skip
def channel_permutation(permutes: Literal["both", "the input"] = "both"):
    r"""The order of channels is irrelevant.

    A filter reads all input channels and sums over them, so applying one permutation $\pi$ to the
    channels of the input and to the input-channel axis of every filter leaves the output
    unchanged; permuting the filters permutes the output channels. The same holds if the weights are
    not shared. All permutations of 3 channels, on sums of whole numbers, which are exact.

    Knobs:
        permutes: What the permutation is applied to.
    """
    x, w = whole(2, 3, 5, 4).double(), whole(3, 3, 2, 3).double()
    w += 20 * torch.arange(3.0).view(1, 3, 1, 1)  # channels that differ, also in the input
    x += 20 * torch.arange(1.0, 4.0).view(1, 3, 1, 1)
    local = LocallyConnected2d(3, 3, (5, 4), (2, 3), bias=False)
    local.weight.data = whole(*local.weight.shape).double() + w
    y, z = F.conv2d(x, w), local(x).detach()
    kept = local.weight.data.clone()
    for order in permutations(range(3)):
        at: dict[str, Any] = {"order": str(order)}
        order = list(order)
        weights = w[:, order] if permutes == "both" else w
        yield equals("output", F.conv2d(x[:, order], weights), y, tol=0.0, **at)
        local.weight.data = kept[:, :, :, order] if permutes == "both" else kept
        yield equals("output of unshared weights", local(x[:, order]), z, tol=0.0, **at)
        yield equals("output of permuted filters", F.conv2d(x, w[order]), y[:, order], tol=0.0,
                     **at)  # fmt: skip


channel_permutation.foil("the filters have to follow", permutes="the input")


@claim(
    by="identity", sources=("B-277",), budget=0.5,
    short=r"(x * k_1) * k_2 = x * (k_1 * k_2),\quad |k_1 * k_2| = |k_1| + |k_2| - 1",
)  # fmt: skip
def topology_preserved(between: Literal["nothing", "ReLU"] = "nothing"):
    r"""Convolved signals live on the same kind of grid.

    The output of a convolution over a $d$-dimensional grid is again a (multi-channel) signal on a
    $d$-dimensional grid, so convolution layers can be nested, and the composition of two stride-1
    valid layers with kernels of sizes $k_1, k_2$ is a valid layer with a kernel of size $k_1 + k_2
    - 1$ when no nonlinearity intervenes. Exact in whole numbers, for $d = 1, 2, 3$; with several
    channels the kernels multiply as matrices.

    Knobs:
        between: What stands between the two layers.
    """
    for n, one, two in (((12,), (3,), (4,)), ((7, 8), (2, 3), (3, 2)),
                        ((5, 4, 6), (2, 1, 3), (3, 2, 2))):  # fmt: skip
        x, k1, k2 = whole(*n), crooked(*one), crooked(*two)
        k1.view(-1)[0], at = -25, {"d": len(n)}  # both signs occur after the first layer
        first = convolve(x, k1, mode="valid")
        hidden = first.relu() if between == "ReLU" else first
        found = convolve(hidden, k2, mode="valid")
        kernel = signal.convolve(k1.numpy(), k2.numpy(), method="direct")
        stated = signal.convolve(x.numpy(), kernel, "valid", method="direct")
        yield equals("spatial axes", found.ndim, len(n), **at)
        sizes = [a + b - 1 for a, b in zip(one, two, strict=True)]
        yield equals("size of the kernel", list(kernel.shape), sizes, **at)
        yield equals("two layers as one", found, stated, **at)
        yield at_least("largest sum of the first layer", int(first.max()), 1, **at)
        yield at_least("largest sum of it, with the sign changed", int((-first).max()), 1, **at)
    x, a, b = whole(1, 2, 9).double(), whole(3, 2, 3).double(), whole(4, 3, 2).double()
    both = torch.zeros(4, 2, 4)
    for r, q, u in np.ndindex(4, 3, 2):
        both[r, u] += convolve(b[r, q].long(), a[q, u].long())
    hidden = F.conv1d(x, a)
    hidden = hidden.relu() if between == "ReLU" else hidden
    yield equals("layers with channels", F.conv1d(hidden, b), F.conv1d(x, both), tol=0.0)


topology_preserved.foil("a nonlinearity in between", refuted_by="two layers as one", between="ReLU")
