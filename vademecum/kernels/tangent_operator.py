r"""The tangent kernel as an operator: two passes a product, and no matrix.

With the Jacobians $J_1, J_2$ of all outputs of two sets of examples in the parameters, the kernel
is the matrix $K = J_1 J_2^T$, whose rows and columns are outputs of examples in their order, $(i,
c)$. A product

$$K v = J_1 (J_2^T v)$$

is a backward pass for $J_2^T v \in \mathbb{R}^P$ and a pass that is linear in it for $J_1$; graphs
are kept from product to product if there is room for them. Exact up to rounding.
"""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.foundations import LinearOperator
from vademecum.gradients import functional, jacobian
from vademecum.gradients._independent_rows import portions_of, study
from vademecum.kernels._tangent_inputs import insist_on_data
from vademecum.models import Output, count_examples, map_tensors

__all__ = ["ntk_operator"]

_GRAPHS = 6  # times what autograd keeps for a backward pass, at the peak of a product


def ntk_operator(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    memory: int | None = None,
    frozen: bool = True,
    output: Output = None,
) -> LinearOperator:
    r"""The tangent kernel of a network as an operator, for any number of products.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.
    Examples may influence each other.

    Args:
        model: Any module that gives one tensor of floating-point numbers.
        x1: Inputs; a tensor, or any structure of tensors (see `functional`).
        x2: Other inputs of the same kind; None for those of `x1` once more.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Where
            there is no room for the graphs of all examples they go through in portions at each
            product, if they do not influence each other.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The operator $K$, with a row for each output of each example of `x1`, in their order, and a
        column for each of `x2`; symmetric where `x2` is None. Its entries are those of
        `empirical_ntk(model, x1, x2).transpose(1, 2).reshape(n1 * k, n2 * k)`.

    Raises:
        ValueError: If there are no parameters, the outputs are not differentiable, or one example
            is too large for `memory`.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> K = ntk_operator(nn.Linear(2, 1), x)
        >>> K @ torch.tensor([1.0, 0.0])
        tensor([ 6., 12.])
        >>> K
        LinearOperator(2 x 2, torch.float32, cpu)
    """
    insist_on_data(x1, x2)
    if memory is not None:
        whole("memory", memory, low=1)
    knobs: Any = {"frozen": frozen, "output": output}
    one = _Portions(model, x1, memory, knobs)
    other = one if x2 is None else _Portions(model, x2, memory, knobs)

    def product(v: Float[Tensor, " columns b"]) -> Float[Tensor, " rows b"]:
        return one.push(other.pull(v))

    def adjoint(v: Float[Tensor, " rows b"]) -> Float[Tensor, " columns b"]:
        return other.push(one.pull(v))

    backwards: Callable[[Tensor], Tensor] = product if x2 is None else adjoint
    shape = one.rows, other.rows
    return LinearOperator(shape, product, backwards, dtype=one.dtype, device=one.device)


class _Portions:
    """The Jacobian of a network, of all examples at once or in portions that are made anew."""

    def __init__(self, model: nn.Module, x: Any, memory: int | None, knobs: dict[str, Any]):
        self._model, self._x, self._knobs = model, x, knobs
        whole_ = jacobian(model, x, **knobs)
        self.rows, self.dtype, self.device = whole_.shape[0], whole_.dtype, whole_.device
        self._all, self._here = whole_, list[slice]()
        if memory is None:
            return
        plan = study(functional(model, **knobs), x)
        n, each = count_examples(x), _GRAPHS * plan.saved
        if memory < each:
            raise ValueError(f"memory must be >= {each} bytes for one example, got {memory}")
        if memory // each < n:
            self._all, self._here = None, list(portions_of(slice(0, n), memory // each))

    def _each(self) -> Iterator[Any]:
        if self._all is not None:
            yield self._all
        for here in self._here:
            yield jacobian(self._model, map_tensors(self._x, itemgetter(here)), **self._knobs)

    def pull(self, v: Tensor) -> Tensor:
        """The product of the transpose."""
        start, total = 0, None
        for J in self._each():
            found = J.T @ v[start : start + J.shape[0]]
            total = found if total is None else total.add_(found)
            start += J.shape[0]
        assert total is not None
        return total

    def push(self, w: Tensor) -> Tensor:
        """The product."""
        found = [J @ w for J in self._each()]
        return found[0] if len(found) == 1 else torch.cat(found)
