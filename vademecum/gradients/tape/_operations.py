r"""The operations of the tape: values, derivatives along each edge, and what they cost.

An operation $y = \omega(x_1, \dots, x_r)$ has one edge for each argument. Along edge $i$ a tangent
is pushed and an adjoint is pulled by the same linear map $\partial_i \omega$:

$$\dot y = \sum_i \partial_i \omega \, \dot x_i, \qquad
\bar x_i = (\partial_i \omega)^T\, \bar y.$$

Arguments of pointwise operations have equal shapes: broadcasting is an operation of its own, whose
transpose is a sum. The *work* of an operation is its number of scalar multiplications, additions or
elementary functions, where a multiplication and the addition of its result count once; moving data
is free. Along an edge the derivative does as much work as the operation, which for pointwise and
bilinear operations is exact. `keeps` says what the pull along an edge needs of the forward pass:
`s` the argument itself, `o` the other arguments, `y` the result; a comma sets the edges apart.

At kinks autograd's choice is made: slope 0 for `abs` and `relu` at 0, and equal shares for equal
maxima.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.gradients.convolution_gradients import conv_input_grad, conv_weight_grad

__all__ = ["OPERATIONS", "Operation", "Vertex"]

Edge = Callable[..., Tensor]
Slope = Callable[..., Tensor | float]


class Operation(NamedTuple):
    """An operation: its value, its derivatives along an edge, what it keeps and its work.

    `push(i, t, x, y, **knobs)` and `pull(i, u, x, y, **knobs)` are the derivatives along edge i at
    the arguments x with result y; `work(x, y, **knobs)` counts.

    Example:
        >>> x = [torch.tensor([2.0]), torch.tensor([5.0])]
        >>> OPERATIONS["mul"].pull(0, torch.tensor([1.0]), x, torch.tensor([10.0]))
        tensor([5.])
    """

    name: str
    value: Callable[..., Tensor]
    push: Edge
    pull: Edge
    keeps: str
    work: Callable[..., int]

    def kept(self, i: int, parents: Sequence[int], here: int) -> set[int]:
        """Which of the nodes `parents` and `here` the pull along edge i needs the values of."""
        letters = self.keeps.split(",")
        letters = letters[min(i, len(letters) - 1)]
        nodes = {here} if "y" in letters else set()
        nodes |= {parents[i]} if "s" in letters else set()
        return nodes | ({p for j, p in enumerate(parents) if j != i} if "o" in letters else set())


class Vertex(NamedTuple):
    """A vertex of the graph: an operation on earlier vertices, or a leaf with its value."""

    label: str
    parents: tuple[int, ...]
    shape: torch.Size
    active: bool  # whether it depends on inputs or parameters
    operation: Any = None  # an `Operation`, unless this is a leaf
    knobs: dict[str, Any] = {}
    value: Tensor | None = None

    def push(self, k: int, t: Tensor, x: Any, y: Any) -> Tensor:
        """A tangent along the edge of argument k."""
        return self.operation.push(k, t, x, y, **self.knobs)

    def pull(self, k: int, u: Tensor, x: Any, y: Any) -> Tensor:
        """An adjoint along the edge of argument k."""
        return self.operation.pull(k, u, x, y, **self.knobs)

    def needs(self, k: int, here: int) -> set[int]:
        """Whose values the pull along that edge needs."""
        return self.operation.kept(k, self.parents, here)


def _size(x: Any, y: Any, **_: Any) -> int:
    return y.numel()


def _input_size(x: Any, y: Any, **_: Any) -> int:
    return x[0].numel()


def _nothing(x: Any, y: Any, **_: Any) -> int:
    return 0


def pointwise(name: str, value: Callable[..., Tensor], *slopes: Slope, keeps: str) -> Operation:
    """An operation entry by entry, with one slope `(x, y, **knobs)` for each argument."""

    def edge(i: int, t: Tensor, x: Any, y: Any, **knobs: Any) -> Tensor:
        return slopes[i](x, y, **knobs) * t

    return Operation(name, value, edge, edge, keeps, _size)


def linear(
    name: str, value: Callable[..., Tensor], transpose: Callable[..., Tensor], work: Any = _nothing
) -> Operation:
    """A linear operation of one argument with its transpose."""

    def push(i: int, t: Tensor, x: Any, y: Any, **knobs: Any) -> Tensor:
        return value(t, **knobs)

    def pull(i: int, u: Tensor, x: Any, y: Any, **knobs: Any) -> Tensor:
        return transpose(u, **knobs)

    return Operation(name, value, push, pull, "", work)


def bilinear(name: str, value: Callable[..., Tensor], pull: Edge, work: Any) -> Operation:
    """A product: its derivative in one argument is the same product with the tangent there."""

    def push(i: int, t: Tensor, x: Any, y: Any, **knobs: Any) -> Tensor:
        return value(t, x[1], **knobs) if i == 0 else value(x[0], t, **knobs)

    return Operation(name, value, push, pull, "o", work)


def _matmul_pull(i: int, u: Tensor, x: Any, y: Any, *, shapes: Any) -> Tensor:
    product = u @ x[1].mT if i == 0 else x[0].mT @ u
    return product.sum_to_size(shapes[i])


def _conv(x: Tensor, w: Tensor, *, shapes: Any, **knobs: Any) -> Tensor:
    return (torch.conv1d, torch.conv2d, torch.conv3d)[x.ndim - 3](x, w, **knobs)


def _conv_pull(i: int, u: Tensor, x: Any, y: Any, *, shapes: Any, **knobs: Any) -> Tensor:
    size = tuple(shapes[i][2:])
    if i == 0:
        return conv_input_grad(x[1], u, size, **knobs)
    return conv_weight_grad(x[0], u, size, **knobs)


def _sum_transpose(u: Tensor, *, dim: Any, keepdim: bool, shape: Any) -> Tensor:
    return _kept(u, dim, keepdim).expand(shape)


def _kept(u: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    """Put the axes back that a reduction has removed."""
    for axis in () if keepdim else sorted(dim):
        u = u.unsqueeze(axis)
    return u


def _reduction(name: str, value: Callable[..., Tensor], shares: Callable[..., Tensor]) -> Operation:
    """A maximum, soft or hard: `shares` says how much each entry has in its result."""

    def push(i: int, t: Tensor, x: Any, y: Any, *, dim: Any, keepdim: bool) -> Tensor:
        return (shares(x[0], _kept(y, dim, keepdim), dim) * t).sum(dim, keepdim=keepdim)

    def pull(i: int, u: Tensor, x: Any, y: Any, *, dim: Any, keepdim: bool) -> Tensor:
        return shares(x[0], _kept(y, dim, keepdim), dim) * _kept(u, dim, keepdim)

    return Operation(name, value, push, pull, "sy", _input_size)


def _shares_of_ties(x: Tensor, y: Tensor, dim: Any) -> Tensor:
    ties = (x == y).to(x.dtype)
    return ties / ties.sum(dim, keepdim=True)


def _softmax_edge(i: int, t: Tensor, x: Any, y: Any, *, dim: int) -> Tensor:
    return y * (t - (y * t).sum(dim, keepdim=True))  # the matrix is symmetric: push is pull


def _select_transpose(u: Tensor, *, index: Any, shape: torch.Size) -> Tensor:
    places = torch.arange(math.prod(shape), device=u.device).reshape(shape)[index]
    flat = u.new_zeros(math.prod(shape))
    return flat.index_add(0, places.flatten(), u.flatten()).reshape(shape)


def _cat_push(i: int, t: Tensor, x: Any, y: Any, *, dim: int, ends: Any) -> Tensor:
    placed = torch.zeros_like(y)
    placed.narrow(dim, ends[i], ends[i + 1] - ends[i]).copy_(t)
    return placed


def _cat_pull(i: int, u: Tensor, x: Any, y: Any, *, dim: int, ends: Any) -> Tensor:
    return u.narrow(dim, ends[i], ends[i + 1] - ends[i])


def _one(x: Any, y: Any) -> float:
    return 1.0


def _minus_one(x: Any, y: Any) -> float:
    return -1.0


def _power_slope(x: Any, y: Any, *, exponent: float) -> Tensor:
    return torch.zeros_like(x[0]) if exponent == 0 else exponent * x[0] ** (exponent - 1)


_TABLE = [
    pointwise("add", torch.add, _one, _one, keeps=""),
    pointwise("sub", torch.sub, _one, _minus_one, keeps=""),
    pointwise("neg", torch.neg, _minus_one, keeps=""),
    pointwise("mul", torch.mul, lambda x, y: x[1], lambda x, y: x[0], keeps="o"),
    pointwise("div", torch.div, lambda x, y: 1 / x[1], lambda x, y: -y / x[1], keeps="o,sy"),
    pointwise("pow", lambda x, *, exponent: x**exponent, _power_slope, keeps="s"),
    pointwise("exp", torch.exp, lambda x, y: y, keeps="y"),
    pointwise("log", torch.log, lambda x, y: 1 / x[0], keeps="s"),
    pointwise("sin", torch.sin, lambda x, y: x[0].cos(), keeps="s"),
    pointwise("cos", torch.cos, lambda x, y: -x[0].sin(), keeps="s"),
    pointwise("tanh", torch.tanh, lambda x, y: 1 - y**2, keeps="y"),
    pointwise("sigmoid", torch.sigmoid, lambda x, y: y * (1 - y), keeps="y"),
    pointwise("relu", torch.relu, lambda x, y: (y > 0).to(y.dtype), keeps="y"),
    pointwise("erf", torch.erf, lambda x, y: 2 / math.pi**0.5 * (-x[0].square()).exp(), keeps="s"),
    pointwise("abs", torch.abs, lambda x, y: x[0].sign(), keeps="s"),
    linear("expand", lambda x, *, size, shape: x.expand(size),
           lambda u, *, size, shape: u.sum_to_size(shape)),
    linear("reshape", lambda x, *, size, shape: x.reshape(size),
           lambda u, *, size, shape: u.reshape(shape)),
    linear("permute", lambda x, *, dims: x.permute(dims),
           lambda u, *, dims: u.permute(tuple(sorted(range(len(dims)), key=dims.__getitem__)))),
    linear("select", lambda x, *, index, shape: x[index], _select_transpose),
    linear("sum", lambda x, *, dim, keepdim, shape: x.sum(dim, keepdim=keepdim), _sum_transpose,
           _input_size),
    _reduction("amax", torch.amax, _shares_of_ties),
    _reduction("logsumexp", torch.logsumexp, lambda x, y, dim: (x - y).exp()),
    Operation("softmax", torch.softmax, _softmax_edge, _softmax_edge, "y", _size),
    Operation("cat", lambda *x, dim, ends: torch.cat(x, dim), _cat_push, _cat_pull, "", _nothing),
    bilinear("matmul", lambda a, b, *, shapes: a @ b, _matmul_pull,
             lambda x, y, **_: y.numel() * x[0].shape[-1]),
    bilinear("conv", _conv, _conv_pull, lambda x, y, **_: y.numel() * x[1][0].numel()),
]  # fmt: skip

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}
"""The elementary operations by name."""
