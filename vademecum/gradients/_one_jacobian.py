r"""Jacobians of networks, by what they do to vectors, and as matrices in portions.

For $F: \mathbb{R}^d \to \mathbb{R}^m$ the Jacobian in numerator layout is $J = (\partial F_i /
\partial x_j)_{ij} \in \mathbb{R}^{m \times d}$: row $i$ belongs to output $i$, column $j$ to input
$j$. Here $F$ is a network as a function of its parameters $\theta$, or of its inputs $x$; outputs
(and inputs) of all examples, flattened, are one vector. Products

$$J^T u = \nabla_\theta \langle u, f \rangle, \qquad
J v = \nabla_u \langle v, J^T u \rangle,$$

come from one graph that is kept: a backward pass for $J^T u$, a backward pass through that backward
pass for $J v$ (it is linear in $u$, so its value does not matter). There are two passes forwards,
one for the outputs (of three examples, where the network is known already and nobody asks for the
outputs or their number) and, before the first product, one for the graph; `jvp` and `vjp` take one.
All are passes with the parameters as they were at the beginning.

Where examples do not influence each other, the Jacobian consists of one *block* for each, $k \times
P$ for $k$ outputs: $k$ backward passes bring all examples' rows, in $\theta$ by a rule for each
kind of layer. Where the rules do not hold for all examples at once as they did for few, a product
tells whether the blocks are those of the Jacobian. All of this is exact up to rounding; that
`memory` suffices is an estimate, from the bytes that autograd keeps for one example; that product
does not keep to it. The claims are `jacobian`, `jacobian_tensor` and
`deep_jacobian`.
"""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import floats, whole
from vademecum.arrays import empty, lengths
from vademecum.foundations.operators import LinearOperator
from vademecum.gradients._independent_rows import recall
from vademecum.gradients._jacobian_blocks import Blocks, Outputs
from vademecum.gradients.network_function import functional
from vademecum.models import (
    Entangled,
    Output,
    bilinear_convolutions,
    differentiable_output,
    refuse_nan,
    replaced,
    variable,
)
from vademecum.progress import ticking

__all__ = ["Jacobian", "pull"]


class Jacobian(LinearOperator):
    """The Jacobian of a network as an operator: see `jacobian`.

    With `graph` the outputs come with the graph that products need, in one pass for both.

    Attributes:
        variable: The parameters or inputs, whose entries in their order are the columns.

    Example:
        >>> J = Jacobian(nn.ReLU(), torch.tensor([[1.0, 2.0], [3.0, -4.0]]), wrt="x")
        >>> J @ torch.ones(4)
        tensor([1., 1., 1., 0.])
        >>> J.blocks()
        tensor([[[1., 0.], [0., 1.]],
                [[1., 0.], [0., 0.]]])
    """

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        *,
        wrt: str = "theta",
        memory: int | None = None,
        progress: bool = False,
        frozen: bool = True,
        output: Output = None,
        graph: bool = False,
    ):
        if isinstance(x, DataLoader):
            raise ValueError("x must be data at hand, got a DataLoader: go from batch to batch")
        self._memory = None if memory is None else whole("memory", memory, low=1)
        self._f, self._x = functional(model, frozen=frozen, output=output), x
        self._progress, self._wrt = progress, wrt
        if wrt == "theta" and not self._f.size:
            raise ValueError("model must have parameters to differentiate, got none")
        refuse_nan(x)
        self.variable = at = self._f.theta if wrt == "theta" else variable(x, wrt)
        if wrt != "theta":
            floats("x" if at is x else f"x[{wrt!r}]", at)
        # Of a network that is known a pass with three tells whether it fails.
        self._plan = recall(self._f, x) if wrt == "theta" and not graph else None
        self._outputs = Outputs(partial(self._output, graph=graph))
        known = self._plan is not None and self._plan.plain
        shape = (1 if known else self.output.numel(), at.numel())
        super().__init__(shape, self._push, self._pull, dtype=at.dtype, device=at.device)

    @property
    def shape(self) -> tuple[int, int]:
        """As many rows as the network gives numbers, which a pass over all examples tells."""
        return self.output.numel(), self.variable.numel()

    @property
    def output(self) -> Tensor:
        """What the network gives, whose entries in their order are the rows."""
        return self._outputs()

    @torch.no_grad()
    def _output(self, *, graph: bool) -> Tensor:  # products need a graph, blocks do not
        found = self._graph[1].detach() if graph else self._f(self._f.theta, self._x)
        return differentiable_output(found, graph=False)

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        """The variable, and the output as a function of it."""
        theta, x = self._f.theta, self._x
        with torch.enable_grad(), bilinear_convolutions():
            v = self.variable.detach().clone().requires_grad_()
            theta, x = (v, x) if self._wrt == "theta" else (theta, replaced(x, self._wrt, v))
            output = self._f(theta, x)
        return v, differentiable_output(output)

    @cached_property
    def _transposed_graph(self) -> tuple[Tensor, Tensor]:
        """A cotangent, and the product of the transpose with it as a function of it."""
        v, output = self._graph
        with torch.enable_grad():
            u = torch.zeros_like(output, requires_grad=True)
            return u, torch.autograd.grad(output, v, u, create_graph=True)[0]

    def _push(self, x: Tensor) -> Tensor:
        return pull(*self._transposed_graph, x).to(self.dtype)

    def _pull(self, y: Tensor) -> Tensor:
        return pull(*self._graph, y).to(self.dtype)

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks(self._f, self._x, self._wrt, self._memory, self._outputs, self._plan)

    def dense(self) -> Float[Tensor, " m d"]:
        """The matrix, with all zeros that it has.

        Where there are no examples, or such as influence each other, by a backward pass a row.
        """
        matrix = self._by_blocks()
        return self._row_by_row() if matrix is None else matrix

    def _by_blocks(self) -> Tensor | None:
        """The matrix, or None where examples influence each other, be it in layers alone."""
        try:
            if self._wrt != "theta":
                return self._diagonal()
            matrix = self.blocks().view(self.shape)
        except Entangled:
            return None
        return None if self._blocks.moved and not self._is(matrix) else matrix

    def _is(self, matrix: Tensor) -> bool:
        """Whether a product tells this matrix from the Jacobian, beyond rounding."""
        coarse = matrix.is_cuda and matrix.dtype == torch.float32  # where TF32 may take its place
        eps = max(torch.finfo(matrix.dtype).eps, 2.0**-10 if coarse else 0.0)
        u = torch.arange(len(matrix), device=matrix.device).sin().to(matrix.dtype)
        gap, size = (lengths(t.flatten()) for t in (u @ matrix - self.T @ u, matrix))
        return not bool(gap > eps**0.5 * size)

    def _diagonal(self) -> Tensor:
        n, k, d = self._blocks.shape
        matrix = torch.zeros(n, k, n, d, dtype=self.dtype, device=self.device)
        with ticking("examples", n, progress=self._progress) as tick:
            for here, blocks in self.chunks():
                for i, block in enumerate(blocks, here.start):
                    matrix[i, :, i] = block
                tick(len(blocks))
        return matrix.view(self.shape)

    def blocks(self) -> Float[Tensor, " n k d"]:
        """The Jacobian of each example's outputs, in the parameters or in that example's inputs.

        Raises:
            ValueError: If examples influence each other, or one is too large for `memory`.
        """
        return self._blocks.all(progress=self._progress)

    def chunks(self) -> Iterator[tuple[slice, Float[Tensor, " portion k d"]]]:
        """The blocks of a few examples at a time, as many as `memory` allows for, and whose.

        So nobody has to hold them all: a Gram matrix, say, is a sum over them.

        Example:
            >>> from vademecum.gradients import jacobian
            >>> J = jacobian(nn.Linear(3, 1, bias=False), torch.eye(3))
            >>> sum(block.sum(0) for _, block in J.chunks())
            tensor([[1., 1., 1.]])
        """
        return ((here, self._blocks.some(here)) for here in self._blocks.portions())

    def _row_by_row(self) -> Tensor:
        if self._memory is not None:
            raise ValueError("memory can be kept to only where examples are independent of others")
        matrix = empty(*self.shape, dtype=self.dtype, device=self.device)
        v, output = self._graph
        with ticking("rows", len(matrix), progress=self._progress) as tick:
            for row, entry in zip(matrix, output.flatten(), strict=True):
                row.copy_(torch.autograd.grad(entry, v, retain_graph=True)[0].flatten())
                tick(1)
        return matrix


def pull(v: Tensor, output: Tensor, u: Float[Tensor, " m columns"]) -> Float[Tensor, " d columns"]:
    """The products of the transposed Jacobian of `output` in `v` with columns; keeps the graph."""
    if not output.requires_grad:  # it does not depend on `v`
        return v.new_zeros(v.numel(), u.shape[1])
    found = [
        torch.autograd.grad(
            output, v, column.view_as(output), retain_graph=True, materialize_grads=True
        )[0].flatten()
        for column in u.to(output.dtype).T.contiguous()
    ]
    if len(found) == 1 and found[0].data_ptr() != u.data_ptr():  # a copy would cost as much again
        return found[0][:, None]
    return torch.stack(found, 1)
