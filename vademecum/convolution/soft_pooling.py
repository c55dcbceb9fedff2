r"""Softmax pooling: the mean of a window with weights that favour large entries, or small ones.

$$y = \frac{\sum_i x_i e^{\beta x_i}}{\sum_i e^{\beta x_i}}$$

over the entries $x_i$ of a window: the minimum for $\beta \to -\infty$, the average for $\beta = 0$
and the maximum for $\beta \to \infty$. Its derivative in $\beta$ is the variance of $x$ under the
same weights, so it increases with $\beta$ unless the window is constant. Exact, with exponentials
that cannot overflow; half precision is computed in float32. The claim is `pooling_family`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import number, whole
from vademecum.convolution.output_sizes import conv_output_size

__all__ = ["SoftmaxPool"]

Size = int | Sequence[int]


class SoftmaxPool(nn.Module):
    r"""Pooling between minimum, average and maximum, over one to three spatial axes.

    Args:
        kernel_size: The size of the window; one number for all axes of the input, or one for each.
        stride: The steps from window to window, by default the size of the window.
        padding: The places added at either end, at most half a window; they have no weight.
        beta: The inverse temperature $\beta$.
        learn_beta: Whether $\beta$ is a parameter.

    Raises:
        ValueError: If a number is out of range.

    References:
        Boureau, Ponce and LeCun, A theoretical analysis of feature pooling in visual recognition,
        ICML, 2010.

    Example:
        >>> x = torch.tensor([[[0.0, 1.0, 4.0, 2.0]]])
        >>> [SoftmaxPool(2, beta=b)(x).round(decimals=4).tolist() for b in (-99, 0, 99)]
        [[[[0.0, 2.0]]], [[[0.5, 3.0]]], [[[1.0, 4.0]]]]
    """

    def __init__(
        self,
        kernel_size: Size,
        *,
        stride: Size | None = None,
        padding: Size = 0,
        beta: float = 1.0,
        learn_beta: bool = False,
    ):
        super().__init__()
        self.kernel_size = _checked("kernel_size", kernel_size, 1)
        self.stride = _checked("stride", kernel_size if stride is None else stride, 1)
        self.padding = _checked("padding", padding, 0)
        value = torch.tensor(float(number("beta", beta)))
        self.beta = nn.Parameter(value) if learn_beta else number("beta", beta)

    def forward(self, x: Float[Tensor, " n c *sizes"]) -> Float[Tensor, " n c *smaller"]:
        """The weighted mean of every window."""
        axes = x.ndim - 2
        if not 1 <= axes <= 3:
            raise ValueError(
                f"x must have the shape (n, c, ...), 1 to 3 more, got {tuple(x.shape)}"
            )
        k, s, p = (_each(size, axes) for size in (self.kernel_size, self.stride, self.padding))
        if any(2 * pad > taps for pad, taps in zip(p, k, strict=True)):
            raise ValueError(f"padding must be at most half of kernel_size {k}, got {p}")
        conv_output_size(tuple(x.shape[2:]), k, stride=s, padding=p)  # or it refuses
        dtype = x.dtype
        x = x.float() if dtype in (torch.float16, torch.bfloat16) else x  # or beta x overflows
        logits = self.beta * x
        if any(p):
            sides = [width for pad in reversed(p) for width in (pad, pad)]
            x, logits = F.pad(x, sides), F.pad(logits, sides, value=-torch.inf)
        return (_windows(logits, k, s).softmax(-1) * _windows(x, k, s)).sum(-1).to(dtype)

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        beta = self.beta.item() if isinstance(self.beta, Tensor) else self.beta
        sizes = f"{self.kernel_size}, stride={self.stride}, padding={self.padding}, beta={beta:g}"
        return sizes + (", learn_beta=True" if isinstance(self.beta, Tensor) else "")


def _checked(name: str, value: Size, low: int) -> int | tuple[int, ...]:
    if isinstance(value, Sequence):
        return tuple(whole(name, each, low=low) for each in value)
    return whole(name, value, low=low)


def _each(value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    each = value if isinstance(value, tuple) else (value,) * axes
    if len(each) != axes:
        raise ValueError(f"x must have {len(each)} spatial axes, got {axes}")
    return each


def _windows(x: Tensor, k: tuple[int, ...], s: tuple[int, ...]) -> Tensor:
    """The entries of each window along one more axis, the last."""
    for axis, (taps, step) in enumerate(zip(k, s, strict=True), 2):
        x = x.unfold(axis, taps, step)
    return x.flatten(2 + len(k))
