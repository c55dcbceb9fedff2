r"""Sizes of the outputs of convolutions, transposed convolutions and pooling.

A window of $K$ taps that are $d$ apart spans $d (K - 1) + 1$ places. Along one axis, with $I$
inputs, $P$ places added at either end and steps of $S$, it starts at $0, S, 2 S, \dots$ and fits

$$O = \left\lfloor \frac{I + 2 P - d (K - 1) - 1}{S} \right\rfloor + 1$$

times. With `ceil_mode`, as in pooling, the last window may run out of the padded input, as long as
it starts before the padding at the end; so may the first one, by less than a step. The transposed
layer has the sizes the other way round, $I = (O - 1) S - 2 P + d (K - 1) + 1$ plus the rest that
the division dropped, `output_padding`.

Exact. The claim is `output_size`.
"""

from collections.abc import Sequence
from typing import overload

from vademecum.arguments import whole

__all__ = ["conv_output_size"]

Size = int | Sequence[int]


@overload
def conv_output_size(
    size: int, kernel_size: int, *, stride: int = ..., padding: int = ..., dilation: int = ...,
    ceil_mode: bool = ..., transposed: bool = ..., output_padding: int = ...,
) -> int: ...  # fmt: skip


@overload
def conv_output_size(
    size: Sequence[int], kernel_size: Size, *, stride: Size = ..., padding: Size = ...,
    dilation: Size = ..., ceil_mode: bool = ..., transposed: bool = ..., output_padding: Size = ...,
) -> tuple[int, ...]: ...  # fmt: skip


def conv_output_size(
    size: Size,
    kernel_size: Size,
    *,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    transposed: bool = False,
    output_padding: Size = 0,
) -> int | tuple[int, ...]:
    r"""How long the output of a convolution is, along one axis or several.

    Args:
        size: The size $I$ of the input: a number, or one for each axis.
        kernel_size: The number $K$ of taps; like all that follow one number, or one for each axis.
        stride: The step $S$ from window to window.
        padding: The places $P$ added at either end.
        dilation: The distance $d$ of neighbouring taps.
        ceil_mode: Whether a last window may run out of the input, as pooling layers allow.
        transposed: Whether the layer is the transpose of a convolution.
        output_padding: The places that a transposed layer adds at the end.

    Returns:
        A number if `size` is one, else a tuple.

    Raises:
        ValueError: If the kernel does not fit into the padded input, or a number is out of range.

    Example:
        >>> conv_output_size(7, 3, stride=2), conv_output_size((32, 28), 5, padding=(0, 2))
        (3, (28, 28))
        >>> conv_output_size(3, 3, stride=2, transposed=True)
        7
    """
    axes = len(size) if isinstance(size, Sequence) else 1
    words = (size, kernel_size, stride, padding, dilation, output_padding)
    names = ("size", "kernel_size", "stride", "padding", "dilation", "output_padding")
    low = (1, 1, 1, 0, 1, 0)
    each = [_each(*given, axes) for given in zip(names, words, low, strict=True)]
    if any(each[5]) and not transposed:
        raise ValueError(f"output_padding must be 0 unless transposed, got {output_padding}")
    if ceil_mode and transposed:
        raise ValueError("ceil_mode must be False if transposed, got True")
    one = _transposed if transposed else _rounded_up if ceil_mode else _rounded_down
    found = tuple(one(*numbers) for numbers in zip(*each, strict=True))
    return found if isinstance(size, Sequence) else found[0]


def _each(name: str, value: Size, low: int, axes: int) -> list[int]:
    given = list(value) if isinstance(value, Sequence) else [value] * axes
    if len(given) != axes:
        raise ValueError(f"{name} must have {axes} entries, got {value}")
    return [whole(name, number, low=low) for number in given]


def _rounded_down(I: int, K: int, S: int, P: int, d: int, _: int = 0) -> int:
    if d * (K - 1) + 1 > I + 2 * P:
        raise ValueError(
            f"kernel_size must span at most the padded input, got {d * (K - 1) + 1} places for"
            f" {I} + 2 * {P}"
        )
    return (I + 2 * P - d * (K - 1) - 1) // S + 1


def _rounded_up(I: int, K: int, S: int, P: int, d: int, _: int = 0) -> int:
    count = -((d * (K - 1) + 1 - I - 2 * P) // S) + 1
    if count < 1:
        return _rounded_down(I, K, S, P, d)  # which refuses
    return count - 1 if (count - 1) * S >= I + P else count


def _transposed(I: int, K: int, S: int, P: int, d: int, extra: int) -> int:
    if extra >= max(S, d):
        raise ValueError(
            f"output_padding must be below stride or dilation, {max(S, d)}, got {extra}"
        )
    found = (I - 1) * S - 2 * P + d * (K - 1) + 1 + extra
    if found < 1:
        raise ValueError(f"padding must leave an output, got {P} and the size {found}")
    return found
