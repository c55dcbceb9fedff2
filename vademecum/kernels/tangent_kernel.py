r"""The tangent kernel of a network: inner products of the gradients of its outputs.

$$K_{ij, cd} = \langle \nabla_\theta f_c(x_i), \nabla_\theta f_d(x'_j) \rangle.$$

Exact up to rounding. The claims are `neural_tangent_kernel` and `tangent_features`.
"""

from concurrent.futures import Executor
from os import PathLike
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.gradients import jacobian
from vademecum.models import Output

__all__ = ["empirical_ntk"]

Outputs = Literal["full", "diagonal", "trace", "sum"]
_OUTPUTS = ("full", "diagonal", "trace", "sum")


def empirical_ntk(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    outputs: Outputs = "full",
    memory: int | None = None,
    executor: Executor | None = None,
    out: Tensor | str | PathLike[str] | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " n1 n2 ..."]:
    r"""The tangent kernel of a network with the parameters that it has now.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x1: Inputs; a tensor, or any structure of tensors, with examples along the first axis.
        x2: Other inputs, or None for those of `x1`.
        outputs: What of the $k \times k$ numbers for a pair to give.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        executor: What computes the tiles of the matrix.
        out: Where to write: a tensor, or the path of a file.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives.

    Example:
        >>> empirical_ntk(nn.Linear(2, 1), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), outputs="trace")
        tensor([[ 6., 12.],
                [12., 26.]])
    """
    choice("outputs", outputs, _OUTPUTS)
    knobs: Any = {"memory": memory, "frozen": frozen, "output": output}
    j1 = jacobian(model, x1, **knobs).blocks()
    j2 = j1 if x2 is None else jacobian(model, x2, **knobs).blocks()
    if outputs == "sum":
        return j1.sum(1) @ j2.sum(1).T
    pairs = {"full": "icp,jdp->ijcd", "diagonal": "icp,jcp->ijc", "trace": "icp,jcp->ij"}
    return torch.einsum(pairs[outputs], j1, j2)
