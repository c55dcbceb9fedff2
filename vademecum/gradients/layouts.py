r"""Derivatives of tensors by tensors: two layouts, and the chain rule as a contraction.

All conventions arrange the same numbers, the partial derivatives $\partial f_i / \partial x_j$,
where $i = (i_1, \dots, i_a)$ runs over the entries of $f(x)$ and $j = (j_1, \dots, j_b)$ over
those of $x$:

$$N_{i_1 \dots i_a\, j_b \dots j_1} = D_{j_1 \dots j_b\, i_a \dots i_1}
= \frac{\partial f_i}{\partial x_j}.$$

The **numerator layout** $N$ keeps the shape of $f$ and transposes $x$; the **denominator layout**
$D$ keeps the shape of $x$ and transposes $f$. So each is the complete transpose of the other:

| $f$ by $x$ | numerator | denominator |
|---|---|---|
| vector $m$ by vector $n$ | $m \times n$, the Jacobian | $n \times m$ |
| scalar by matrix $p \times q$ | $q \times p$ | $p \times q$, the gradient |
| matrix $p \times q$ by scalar | $p \times q$ | $q \times p$ |

Beyond matrices one keeps the indices in order, $J_{i_1 \dots i_a\, j_1 \dots j_b} = \partial f_i /
\partial x_j$, and for $y = f(x)$, $z = g(y)$ the **chain rule** contracts all axes of $y$,

$$\frac{\partial z_k}{\partial x_j} = \sum_{i_1 \dots i_a} \frac{\partial z_k}{\partial y_i}
\frac{\partial y_i}{\partial x_j}.$$

Exact up to rounding: the partial derivatives come from automatic differentiation, with autograd's
convention at kinks (claims `gradients.layouts`, `gradients.tensor_chain_rule`). The arrays are
dense; for a network use `jacobian`, `jvp` and `vjp`.

References:
    Magnus and Neudecker, Matrix differential calculus with applications in statistics and
    econometrics, Wiley, 2019.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats
from vademecum.results import one_line

__all__ = ["TensorChain", "denominator_layout", "numerator_layout", "tensor_chain"]


class TensorChain(NamedTuple):
    """The derivative of a composition, with the derivatives and the values of its stages.

    Example:
        >>> tensor_chain([torch.square, torch.sum], torch.tensor([1.0, 3.0])).values
        (tensor([1., 9.]), tensor(10.))
    """

    derivative: Tensor
    """The derivative of the composition."""
    factors: tuple[Tensor, ...]
    """The derivatives of the stages."""
    values: tuple[Tensor, ...]
    """What each stage gives."""

    __repr__ = one_line


def numerator_layout(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, " *shape"]
) -> Float[Tensor, " ..."]:
    r"""The derivative of `f` at `x` in numerator layout, the Jacobian where both are vectors.

    Args:
        f: Any differentiable function of a tensor with a tensor as its value; a module will do.
        x: The point.

    Returns:
        The array $N$ above: the axes of `f(x)`, then those of `x` in reverse.

    Raises:
        ValueError: If `x` or `f(x)` is no finite real tensor, or `f` has no derivative at `x`.

    Example:
        >>> x = torch.tensor([2.0, 3.0])
        >>> numerator_layout(lambda x: torch.stack([x[0], x[0] * x[1], x[1] ** 2]), x)
        tensor([[1., 0.],
                [3., 2.],
                [0., 6.]])
    """
    partials = _stage("f", f, floats("x", x))[1]
    values = partials.ndim - x.ndim
    return partials.permute([*range(values), *reversed(range(values, partials.ndim))])


def denominator_layout(
    f: Callable[[Tensor], Tensor], x: Float[Tensor, " *shape"]
) -> Float[Tensor, " ..."]:
    r"""The derivative of `f` at `x` in denominator layout: a gradient has the shape of `x`.

    Args:
        f: Any differentiable function of a tensor with a tensor as its value; a module will do.
        x: The point.

    Returns:
        The array $D$ above: the axes of `x`, then those of `f(x)` in reverse.

    Raises:
        ValueError: If `x` or `f(x)` is no finite real tensor, or `f` has no derivative at `x`.

    Example:
        >>> x = torch.tensor([2.0, 3.0])
        >>> denominator_layout(lambda x: torch.stack([x[0], x[0] * x[1], x[1] ** 2]), x)
        tensor([[1., 3., 0.],
                [0., 2., 6.]])
    """
    numerator = numerator_layout(f, x)
    return numerator.permute([*reversed(range(numerator.ndim))])


def tensor_chain(
    functions: Sequence[Callable[[Tensor], Tensor]], x: Float[Tensor, " *shape"]
) -> TensorChain:
    r"""The derivative of a composition, contracted from the derivatives of its stages.

    With all index groups flattened the contractions are matrix products, which are bracketed so
    that the fewest multiplications are needed: from the last stage for a scalar value.

    Args:
        functions: The stages in the order in which they are applied; `list(model)` for an
            `nn.Sequential`.
        x: The point.

    Returns:
        The derivative of the composition, the derivatives of the stages and their values; in each
        derivative the axes of the value come first, then those of the variable, both in order.

    Raises:
        ValueError: If there is no stage, or a stage breaks the rules of `numerator_layout`.

    Example:
        >>> x, a = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])
        >>> chain = tensor_chain([lambda x: x @ a, torch.square, torch.sum], x)
        >>> chain.derivative  # of the square of 11
        tensor([[66., 88.]])
        >>> [tuple(factor.shape) for factor in chain.factors]
        [(1, 1, 1, 2), (1, 1, 1, 1), (1, 1)]
    """
    if not len(functions):
        raise ValueError("functions must not be empty")
    factors, values = [], []
    value = floats("x", x)
    for i, function in enumerate(functions):
        value, partials = _stage(f"functions[{i}]", function, value)
        values.append(value)
        factors.append(partials)
    before = [x, *values[:-1]]
    flat = [p.reshape(-1, y.numel()) for p, y in zip(factors, before, strict=True)]
    product = torch.linalg.multi_dot(flat[::-1]) if len(flat) > 1 else flat[0]
    derivative = product.reshape(value.shape + x.shape)
    return TensorChain(derivative, tuple(factors), tuple(values))


def _stage(name: str, f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The value of a function and its partial derivatives, the axes of the value first."""
    if x.is_complex():
        raise ValueError(f"x must be real, got {x.dtype}")

    def twice(x: Tensor) -> tuple[Any, Any]:
        y = f(x)
        if not isinstance(y, Tensor) or not y.is_floating_point():
            kind = y.dtype if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"{name} must return a tensor of real floats, got {kind}")
        return y, y

    partials, value = torch.func.jacrev(twice, has_aux=True)(x)
    floats(f"the value of {name}", value)
    return value, floats(f"the derivative of {name}", partials)
