"""Matrices of a kernel that is a `Kernel` or any function, checked, whole or in portions of rows.

Memory is counted in bytes beyond inputs and result. What a function gives is checked: a matrix of
the right shape, dtype and device, finite, and symmetric where both inputs are the same.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.arrays import portions
from vademecum.estimators import as_rows, like_input
from vademecum.kernels._kernel import Kernel
from vademecum.kernels.matrices import evaluated

__all__ = [
    "answer", "as_kernel", "between", "covariance", "inputs", "refuse_conflicts", "row_portions",
    "variances",
]  # fmt: skip

_ROWS = 512  # inputs whose variances are taken from one square of a function's matrix


def as_kernel(kernel: Any, default: Kernel) -> Any:
    """The kernel, or the default where there is none.

    Raises:
        ValueError: If it is neither a kernel nor a function.
    """
    if kernel is None:
        return default
    if not callable(kernel):
        raise ValueError(f"kernel must be a Kernel or a function of x1 and x2, got {kernel!r}")
    return kernel


def covariance(kernel: Any, x: Tensor) -> Float[Tensor, " n n"]:
    """The matrix of all pairs of the same inputs, symmetric."""
    if isinstance(kernel, Kernel):
        return kernel(x).detach()
    return _checked(evaluated(kernel, x, None), x, x)


def between(kernel: Any, x1: Tensor, x2: Tensor) -> Float[Tensor, " n1 n2"]:
    """The matrix of all pairs of two sets of inputs."""
    K = kernel(x1, x2)
    return K.detach() if isinstance(kernel, Kernel) else _checked(K, x1, x2)


def _checked(K: Any, x1: Tensor, x2: Tensor) -> Tensor:
    if not isinstance(K, Tensor) or K.shape != (len(x1), len(x2)):
        given = f"shape {tuple(K.shape)}" if isinstance(K, Tensor) else type(K).__name__
        raise ValueError(f"kernel must give a tensor of shape ({len(x1)}, {len(x2)}), got {given}")
    if K.dtype != x1.dtype or K.device != x1.device:
        raise ValueError(
            f"kernel must give {x1.dtype} on {x1.device} for such inputs,"
            f" got {K.dtype} on {K.device}"
        )
    if not K.isfinite().all():
        raise ValueError("kernel must give finite numbers, got others")
    return K.detach()


def variances(kernel: Any, x: Tensor) -> Float[Tensor, " n"]:
    """The values of each input with itself."""
    if isinstance(kernel, Kernel):
        return kernel.diagonal(x).detach()
    parts = [between(kernel, part, part).diagonal() for part in x.split(_ROWS)]
    return torch.cat(parts)


def row_portions(
    n: int, columns: int, x: Tensor, memory: int | None, *, held: int = 3
) -> Iterator[slice]:
    """Portions of `n` rows, whose matrices with that many columns keep to the memory.

    Without a limit they are of 64 MiB. A kernel holds three such matrices while it computes.
    """
    each = held * columns * x.element_size()
    yield from portions(n, each=each, memory=3 * 2**26 if memory is None else memory)


def inputs(estimator: Any, X: Any, *, reset: bool = False) -> Tensor:
    """The inputs of an estimator, in single precision at least.

    A tensor may have more than two axes, as images have, for kernels that take such.
    """
    if isinstance(X, Tensor) and X.ndim > 2 and X.layout == torch.strided:
        x, size = floats("X", X), X[0].numel()
        if reset:
            estimator.n_features_in_ = size
        elif size != estimator.n_features_in_:
            raise ValueError(
                f"X must hold inputs of {estimator.n_features_in_} numbers, got {size}"
            )
    else:
        x = as_rows(estimator, X, reset=reset)
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def answer(result: Tensor, X: Any) -> Any:
    """A result in the kind of the inputs, on their device and in their dtype."""
    return like_input(result.to(X) if isinstance(X, Tensor) else result, X)


def refuse_conflicts(x: Tensor, y: Float[Tensor, " n t"], name: str) -> None:
    """See to it that equal inputs have equal targets, which nothing can interpolate otherwise.

    Raises:
        ValueError: If they have not.
    """
    _, place = torch.unique(x.flatten(1), dim=0, return_inverse=True)
    first = torch.full((len(x),), len(x), device=x.device)
    index = torch.arange(len(x), device=x.device)
    first = first.scatter_reduce(0, place, index, "amin")[place]
    off = (y != y[first]).any(1).nonzero()[:, 0]
    if len(off):
        raise ValueError(
            f"{name} must be > 0 where equal inputs have different targets, got {name} = 0 and"
            f" such inputs {int(first[off[0]])} and {int(off[0])}"
        )
