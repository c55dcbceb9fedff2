"""What bounds by norms need of the examples, gathered batch by batch: margins, sizes of inputs."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.arguments import floats, whole
from vademecum.arrays import portions
from vademecum.gradients.network_function import Functional
from vademecum.models import batches, bytes_each

__all__ = ["Examples", "examples_seen", "quantiles"]

T = TypeVar("T")


class Examples(NamedTuple):
    """The training examples of a classifier, as far as they count."""

    first: Tensor  # one input
    margins: Float[Tensor, " n"]  # in double precision
    classes: int
    squares: Float[Tensor, " d"]  # squared lengths of the columns of the inputs


def examples_seen(
    f: Functional, x: Any, y: Any, begin: Callable[[Tensor], T], *, memory: int | None,
    progress: bool,
) -> tuple[Examples, T]:  # fmt: skip
    """One pass over the examples, in portions that keep to a memory limit.

    Args:
        f: The network.
        x: The inputs, or a loader.
        y: The classes.
        begin: What to do with the first input, before the pass.
        memory: Bytes to use at most.
        progress: Whether to show a progress bar on standard error.
    """
    first, made, margins, squares, k = None, None, [], None, 0
    with closing(batches(x, y, device=f.device, progress=progress)) as each:
        for inputs, targets in each:
            part = floats("x", inputs)
            if first is None:
                if not isinstance(x, DataLoader) and len(part) < 2:
                    raise _too_few(len(part))
                first, made = part[:1], begin(part[:1])
            for rows in _portions(f, part, memory):
                with torch.no_grad():
                    found, k = _margins(f(f.theta, part[rows]), _some(targets, rows, len(part)))
                margins.append(found)
                sums = part[rows].flatten(1).double().square().sum(0)
                squares = sums if squares is None else squares + sums
    if first is None or squares is None or made is None:
        raise ValueError("x must hold batches, got an empty DataLoader")
    if (n := sum(map(len, margins))) < 2:
        raise _too_few(n)
    return Examples(first, torch.cat(margins), k, squares), made


def _too_few(n: int) -> ValueError:
    return ValueError(f"x must have at least 2 examples, got {n}")


def quantiles(values: Float[Tensor, " n"], q: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """Quantiles by linear interpolation, of any number of values.

    Example:
        >>> quantiles(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 0.25, 1.0]))
        tensor([1.0000, 1.5000, 3.0000])
    """
    ordered = values.sort().values
    place = q * (len(values) - 1)
    low = place.floor().long()
    high = (low + 1).clamp(max=len(values) - 1)
    return torch.lerp(ordered[low], ordered[high], (place - low).to(values))


def _some(y: Any, rows: slice, n: int) -> Any:
    return y[rows] if isinstance(y, Tensor) and y.shape == (n,) else y


def _portions(f: Functional, x: Tensor, memory: int | None) -> list[slice]:
    if memory is None:
        return [slice(0, len(x))]
    wide = 4 * 8 * x[0].numel()  # of inputs in double precision
    with torch.no_grad():
        fixed, each = bytes_each(lambda some: f(f.theta, some), x)
    if whole("memory", memory, low=1) < fixed + each + wide:
        raise ValueError(
            f"memory must be >= {fixed + each + wide} bytes for one example, got {memory}"
        )
    return portions(len(x), each=each + wide, memory=memory - fixed)


def _margins(z: Any, y: Any) -> tuple[Tensor, int]:
    """The margins of the examples in double precision, and the number of classes."""
    if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[1] < 2:
        given = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"model must give scores of at least two classes, got {given}")
    if not bool(z.isfinite().all()):
        raise ValueError("model must give finite scores, got nan or infinity")
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a tensor, got {type(y).__name__}")
    good = y.shape == z.shape[:1] and not y.is_floating_point() and y.dtype != torch.bool
    if not good or not bool(((y >= 0) & (y < z.shape[1])).all()):
        raise ValueError(
            f"y must be {len(z)} classes from 0 to {z.shape[1] - 1}, got {y.dtype} of shape"
            f" {tuple(y.shape)}"
        )
    own = z.gather(1, y[:, None].long()).double()
    others = z.double().scatter(1, y[:, None].long(), -torch.inf).amax(1)
    return own[:, 0] - others, z.shape[1]
