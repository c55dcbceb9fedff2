"""Refusing bad arguments: each error names the argument, the constraint and what was given.

Every check returns its argument, so that a function can open with
`patterns = signs("patterns", patterns, width=self.n)`.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "bits", "broadcasting", "choice", "floats", "number", "probabilities", "row_lengths", "signs",
    "square", "symmetric", "whole",
]  # fmt: skip

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def floats(
    name: str, x: Any, *, ndim: int | None = None, width: int | None = None, empty: bool = False
) -> Tensor:
    """A tensor of finite floating-point numbers, with `ndim` axes, the last one `width` long."""
    x = _tensor(name, x, ndim=ndim, width=width, empty=empty)
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"{name} must be floating point, got {x.dtype}")
    if x.device.type == "meta":
        raise ValueError(f"{name} must hold numbers, got a tensor on the device meta")
    if not _is_finite(x):
        place = tuple(int(i) for i in (~torch.isfinite(x)).nonzero()[0])
        raise ValueError(f"{name} must be finite, got {x[place].item()} at {place}")
    return x


def signs(name: str, x: Any, *, ndim: int | None = None, width: int | None = None) -> Tensor:
    """A tensor whose entries are all -1 or +1, of any dtype."""
    x = _tensor(name, x, ndim=ndim, width=width)
    return _entries(name, x, (x == 1) | (x == -1), "-1 or +1")


def bits(name: str, x: Any, *, ndim: int | None = None, width: int | None = None) -> Tensor:
    """A tensor whose entries are all 0 or 1, of any dtype."""
    x = _tensor(name, x, ndim=ndim, width=width)
    if x.dtype == torch.bool:  # nothing else it could be
        return x
    return _entries(name, x, (x == 0) | (x == 1), "0 or 1")


def probabilities(name: str, p: Any, *, dim: int = -1) -> Tensor:
    """A tensor of probabilities: entries at least 0 that sum to one along `dim`, up to rounding.

    Rounding means `(n + 4) * eps` of the dtype for n outcomes, what adding n numbers may cost, but
    no more than `sqrt(eps)`.
    """
    p = _tensor(name, p, ndim=None, width=None)
    if not p.is_floating_point():
        kind = "real" if p.is_complex() else "floating point"
        raise ValueError(f"{name} must be {kind}, got {p.dtype}")
    if not -p.ndim <= dim < p.ndim:
        raise ValueError(f"{name} must have an axis {dim}, got shape {tuple(p.shape)}")
    total = p.sum(dim)
    off = (total - 1).abs()
    eps = torch.finfo(p.dtype).eps
    allowed = min((p.shape[dim] + 4) * eps, eps**0.5)
    if not ((off <= allowed).all() and p.amin() >= 0):  # also for NaN; now find out why
        _entries(name, floats(name, p), p >= 0, ">= 0")
        raise ValueError(
            f"{name} must sum to one along axis {dim}, got a sum of"
            f" {total.flatten()[off.argmax()].item():.9g}"
        )
    return p


def square(name: str, matrix: Any) -> Tensor:
    """A finite square matrix, or a batch of them along the leading axes."""
    matrix = floats(name, matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name} must be square, got shape {tuple(matrix.shape)}")
    return matrix


def symmetric(name: str, matrix: Any) -> Tensor:
    """A symmetric (complex: Hermitian) matrix or batch, up to rounding `n * eps * max |entry|`."""
    matrix = square(name, matrix)
    gap = (matrix - matrix.mH).abs().amax((-2, -1))
    scale = matrix.abs().amax((-2, -1))
    if (gap > matrix.shape[-1] * torch.finfo(matrix.dtype).eps * scale).any():
        raise ValueError(
            f"{name} must be symmetric, got entries that differ from their mirror images by up to"
            f" {gap.max().item():.3g}"
        )
    return matrix


def number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    infinite: bool = False,
) -> float:
    """A real number with `low <= value <= high` and `above < value < below`, and finite."""
    if isinstance(value, bool) or not isinstance(value, Real):  # NumPy's are, too
        raise ValueError(f"{name} must be a number, got {value!r}")
    value = value if isinstance(value, int) else float(value)
    limits = [
        (low, low <= value, f">= {low:g}"),
        (high, value <= high, f"<= {high:g}"),
        (above, value > above, f"> {above:g}"),
        (below, value < below, f"< {below:g}"),
    ]
    for limit, kept, words in limits:
        if not kept and math.isfinite(limit):  # NaN keeps none
            raise ValueError(f"{name} must be {words}, got {value}")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number, got nan")
    if math.isinf(value) and not infinite:
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def whole(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """An integer with `low <= value <= high`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    value = value.__index__()
    if low is not None and value < low:
        raise ValueError(f"{name} must be >= {low}, got {value}")
    if high is not None and value > high:
        raise ValueError(f"{name} must be <= {high}, got {value}")
    return value


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def row_lengths(
    name: str, lengths: Any, n: int, T: int, device: torch.device | None = None
) -> Tensor:
    """How long each of n rows is, at most T, as integers; on a device, or where they are.

    What they are is looked at on the CPU alone; elsewhere they are cut to 0, ..., T, since to look
    is to wait for the device.
    """
    known = isinstance(lengths, Tensor)
    if not known or lengths.dtype not in _INTEGERS or lengths.shape != (n,):
        given = f"{lengths.dtype} of shape {tuple(lengths.shape)}" if known else repr(lengths)
        raise ValueError(f"{name} must be {n} integers, one for each row, got {given}")
    lengths = lengths.long()  # small integers wrap around where they meet a larger T
    seen = lengths.device.type == "cpu" and not torch.compiler.is_compiling()
    if seen and bool(((lengths < 0) | (lengths > T)).any()):
        raise ValueError(f"{name} must be between 0 and {T}, got {lengths.tolist()}")
    lengths = lengths if device is None else lengths.to(device)
    return lengths if seen else lengths.clamp(0, T)


def broadcasting(what: str, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """The shape to which shapes broadcast: from the right, all sizes of an axis are equal or 1.

    Raises:
        ValueError: If they do not; it calls the shapes by their names.

    Example:
        >>> broadcasting("shapes", {"x": (2, 1), "y": (4,)})
        (2, 4)
        >>> broadcasting("shapes", {"x": (2, 3), "y": (4,)})
        Traceback (most recent call last):
        ValueError: shapes must broadcast, got x: (2, 3), y: (4,)
    """
    common: list[int] = []
    for axis in range(1, 1 + max(map(len, shapes.values()), default=0)):
        sizes = {shape[-axis] for shape in shapes.values() if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            given = ", ".join(f"{name}: {tuple(shape)}" for name, shape in shapes.items())
            raise ValueError(f"{what} must broadcast, got {given}")
        common.append(sizes.pop() if sizes else 1)
    return tuple(reversed(common))


def _tensor(
    name: str, x: Any, *, ndim: int | None, width: int | None, empty: bool = False
) -> Tensor:
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(x.shape)}")
    if width is not None and (x.ndim == 0 or x.shape[-1] != width):
        raise ValueError(f"{name} must be {width} wide, got shape {tuple(x.shape)}")
    if not empty and x.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(x.shape)}")
    return x


def _is_finite(x: Tensor) -> bool:
    """Whether all entries are finite: the extremes tell, much faster than `isfinite`."""
    if x.numel() == 0:
        return True
    x = torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach()
    return all(map(math.isfinite, torch.stack(torch.aminmax(x)).tolist()))  # one wait for a GPU


def _entries(name: str, x: Tensor, good: Tensor, allowed: str) -> Tensor:
    if not good.all():
        place = tuple(int(i) for i in (~good).nonzero()[0])
        raise ValueError(f"entries of {name} must be {allowed}, got {x[place].item()} at {place}")
    return x
