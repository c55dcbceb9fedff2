r"""Kernels $k(x, x')$ as objects that add up, multiply and know their hyperparameters.

A kernel is called with inputs $x_1$ ($n_1$ of them) and $x_2$ and gives the matrix
$K_{ij} = k(x_{1,i}, x_{2,j})$. Sums, products and positive multiples of positive semidefinite
kernels are such again:

$$(k + k')(x, x') = k(x, x') + k'(x, x'), \quad (k k')(x, x') = k(x, x')\, k'(x, x'), \quad
(c k)(x, x') = c\, k(x, x').$$

Fitting hyperparameters $h > 0$ needs, for a symmetric matrix of weights $W$, the numbers
$\sum_{ij} W_{ij}\, \partial K_{ij} / \partial \log h$; by default automatic differentiation gives
them. Checked by the claim `kernels.positive_semidefinite_kernel`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import reduce
from numbers import Real
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number

__all__ = ["Kernel", "pair", "positive", "shown"]


class Kernel(ABC):
    """What all kernels have in common.

    A kernel of one's own has `_matrix` and `_diagonal`, and `hyperparameters` and `_at` if it has
    any hyperparameters; if it depends on more, `identity` says so. It is never changed: `replaced`
    gives another one.

    Example:
        >>> class Brownian(Kernel):
        ...     def _matrix(self, x1, x2):
        ...         return torch.minimum(x1, (x1 if x2 is None else x2).T)
        ...     def _diagonal(self, x):
        ...         return x[:, 0]
        >>> kernel = 2.0 * Brownian()
        >>> kernel(torch.tensor([[1.0], [3.0]])), kernel.hyperparameters()
        (tensor([[2., 2.],
                [2., 6.]]), {'scale': 2.0})
    """

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Float[Tensor, " n1 n2"]:
        """The matrix of all pairs; exactly symmetric if there is no `x2`.

        Args:
            x1: The inputs of the rows.
            x2: The inputs of the columns, with the dtype and device of `x1`; `x1` by default.
        """
        x1, x2 = pair(x1, x2)
        return self._matrix(x1, x2)

    def diagonal(self, x: Tensor) -> Float[Tensor, " n"]:
        """The values of each input with itself, in time and memory for n numbers.

        Args:
            x: The inputs.
        """
        return self._diagonal(pair(x, None, name="x")[0])

    def hyperparameters(self) -> dict[str, float | Tensor]:
        """The positive numbers, or vectors of such, that a fit may change, by name."""
        return {}

    @final
    def replaced(self, values: Mapping[str, float | Tensor]) -> "Kernel":
        """The same kernel at other values of hyperparameters.

        Args:
            values: New values by name; what is not named stays. Tensors may require gradients.
        """
        known = self.hyperparameters()
        for name in values:
            if name not in known:
                has = ", ".join(known) or "none"
                raise ValueError(f"values must name hyperparameters ({has}), got {name!r}")
        return self._at({**known, **values}) if values else self

    def weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        r"""The numbers $\sum_{ij} W_{ij}\, \partial K_{ij} / \partial \log h$ by name of $h$.

        Args:
            x: The inputs, n of them.
            weights: The matrix W, n x n.
        """
        x, weights = pair(x, None, name="x")[0], floats("weights", weights)
        if weights.shape != (len(x), len(x)):
            raise ValueError(
                f"weights must be {len(x)} x {len(x)}, a number for each pair,"
                f" got shape {tuple(weights.shape)}"
            )
        if weights.dtype != x.dtype:
            raise ValueError(f"weights must be {x.dtype} as x is, got {weights.dtype}")
        return self._weighted_gradients(x.detach(), weights.detach())

    def identity(self) -> str:
        """What tells it from other kernels when a build into a file goes on: what it prints."""
        return repr(self)

    def __repr__(self) -> str:
        known = (f"{name}={shown(h)}" for name, h in self.hyperparameters().items())
        return f"{type(self).__qualname__}({', '.join(known)})"

    @abstractmethod
    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        """The matrix, for inputs that were checked."""

    @abstractmethod
    def _diagonal(self, x: Tensor) -> Tensor:
        """The diagonal, for inputs that were checked."""

    def _at(self, values: dict[str, float | Tensor]) -> "Kernel":
        """The kernel at these values of all its hyperparameters."""
        return self

    def _weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        known = self.hyperparameters()
        if not known:
            return {}
        with torch.enable_grad():
            logs = {}
            for name, h in known.items():
                h = torch.as_tensor(h, dtype=x.dtype, device=x.device)
                logs[name] = h.detach().log().requires_grad_()
            K = self._at({name: log.exp() for name, log in logs.items()})._matrix(x, None)
            found = torch.autograd.grad((K * weights).sum(), list(logs.values()))
        return dict(zip(logs, found, strict=True))

    def __add__(self, other: Any) -> "Kernel":
        if not isinstance(other, Kernel):
            return NotImplemented
        return _Sum((*_parts(self, _Sum), *_parts(other, _Sum)))

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return _Product((*_parts(self, _Product), *_parts(other, _Product)))
        if isinstance(other, Real | Tensor) and not isinstance(other, bool):
            return _Multiple(positive("scale", other), self)
        return NotImplemented

    def __rmul__(self, other: Any) -> "Kernel":
        return self * other


class _Several(Kernel):
    """A kernel made of others, whose hyperparameters bear their numbers: `0.lengthscale`."""

    _joined: Callable[[Tensor, Tensor], Tensor]

    def __init__(self, parts: tuple[Kernel, ...]):
        self.parts = parts

    def hyperparameters(self) -> dict[str, float | Tensor]:
        return {
            f"{i}.{name}": value
            for i, part in enumerate(self.parts)
            for name, value in part.hyperparameters().items()
        }

    def identity(self) -> str:
        return f"{type(self).__name__}{[part.identity() for part in self.parts]}"

    def _at(self, values: dict[str, float | Tensor]) -> Kernel:
        own = [
            part._at({name: values[f"{i}.{name}"] for name in part.hyperparameters()})
            for i, part in enumerate(self.parts)
        ]
        return type(self)(tuple(own))

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        return reduce(self._joined, (part._matrix(x1, x2) for part in self.parts))

    def _diagonal(self, x: Tensor) -> Tensor:
        return reduce(self._joined, (part._diagonal(x) for part in self.parts))


@final
class _Sum(_Several):
    _joined = staticmethod(torch.add)

    def _weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return {
            f"{i}.{name}": value
            for i, part in enumerate(self.parts)
            for name, value in part._weighted_gradients(x, weights).items()
        }

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@final
class _Product(_Several):
    _joined = staticmethod(torch.mul)

    def _weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        found = {}
        for i, part in enumerate(self.parts):
            if not part.hyperparameters():
                continue
            others = (p._matrix(x, None) for j, p in enumerate(self.parts) if j != i)
            rest = reduce(torch.mul, others, weights)
            for name, value in part._weighted_gradients(x, rest).items():
                found[f"{i}.{name}"] = value
        return found

    def __repr__(self) -> str:
        return " * ".join(f"({p!r})" if isinstance(p, _Sum) else repr(p) for p in self.parts)


@final
class _Multiple(Kernel):
    """A kernel times a positive number, its hyperparameter `scale`."""

    def __init__(self, scale: float | Tensor, kernel: Kernel):
        if isinstance(kernel, _Multiple):
            scale, kernel = scale * kernel.scale, kernel.kernel
        self.scale, self.kernel = scale, kernel
        self._prefix = "kernel." if "scale" in kernel.hyperparameters() else ""

    def hyperparameters(self) -> dict[str, float | Tensor]:
        inner = self.kernel.hyperparameters().items()
        return {"scale": self.scale} | {self._prefix + name: value for name, value in inner}

    def _at(self, values: dict[str, float | Tensor]) -> Kernel:
        own = {name: values[self._prefix + name] for name in self.kernel.hyperparameters()}
        return _Multiple(positive("scale", values["scale"]), self.kernel._at(own))

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        return self.kernel._matrix(x1, x2) * self.scale

    def _diagonal(self, x: Tensor) -> Tensor:
        return self.kernel._diagonal(x) * self.scale

    def _weighted_gradients(self, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
        K = self.kernel._matrix(x, None)
        found = {"scale": self.scale * torch.dot(weights.flatten(), K.flatten())}
        for name, value in self.kernel._weighted_gradients(x, weights).items():
            found[self._prefix + name] = value * self.scale
        return found

    def identity(self) -> str:
        return f"{shown(self.scale)} * {self.kernel.identity()}"

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, _Sum) else repr(self.kernel)
        return f"{shown(self.scale)} * {inner}"


def _parts(kernel: Kernel, kind: type[_Several]) -> tuple[Kernel, ...]:
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


def shown(value: float | Tensor) -> Any:
    """A hyperparameter as it is printed."""
    return value.tolist() if isinstance(value, Tensor) else value


def pair(x1: Any, x2: Any, *, name: str = "x1", other: str = "x2") -> tuple[Tensor, Tensor | None]:
    """Inputs of rows and columns that fit together, one input along the first axis each."""
    x1 = floats(name, x1)
    if x1.is_complex():
        raise ValueError(f"{name} must be real, got {x1.dtype}")
    if x1.ndim == 0:
        raise ValueError(f"{name} must have inputs along its first axis, got a number")
    if x2 is None:
        return x1, None
    x2 = floats(other, x2)
    if x1.shape[1:] != x2.shape[1:] or x2.ndim == 0:
        raise ValueError(
            f"{other} must hold inputs of shape {tuple(x1.shape[1:])} as {name} does,"
            f" got {tuple(x2.shape[1:])}"
        )
    if x1.dtype != x2.dtype:
        raise ValueError(f"{other} must be {x1.dtype} as {name} is, got {x2.dtype}")
    if x1.device != x2.device:
        raise ValueError(f"{other} must be on {x1.device} as {name} is, got {x2.device}")
    return x1, x2


def positive(name: str, value: Any, *, vector: bool = False, zero: bool = False) -> float | Tensor:
    """A positive number or tensor of one, or a vector of such where that makes sense."""
    limit = "a finite number >= 0" if zero else "a finite number > 0"
    if not isinstance(value, Tensor):
        return number(name, value, low=0) if zero else number(name, value, above=0)
    if value.ndim > int(vector) or value.numel() == 0 or not value.is_floating_point():
        shapes = "a number or one for each feature" if vector else "one number"
        raise ValueError(f"{name} must be {shapes}, got {value.dtype} of {tuple(value.shape)}")
    least, most = (m.item() for m in torch.aminmax(value.detach()))
    if not (least > 0 or (zero and least == 0)) or not math.isfinite(most):
        raise ValueError(f"{name} must be {limit}, got {least if not least > 0 else most}")
    return value
