r"""The Jacobian of any network: see `_one_jacobian` for how, `_streamed_jacobian` for loaders."""

from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from vademecum.gradients._one_jacobian import Jacobian
from vademecum.gradients._streamed_jacobian import StreamedJacobian
from vademecum.models import Output

__all__ = ["Jacobian", "jacobian"]


def jacobian(
    model: nn.Module,
    x: Any,
    *,
    wrt: str = "theta",
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Jacobian | StreamedJacobian:
    r"""The Jacobian of a network in its parameters or inputs, in numerator layout, as an operator.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module that gives one tensor of floating-point numbers.
        x: Its inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches, whose examples follow each other in the rows. Each product is then a pass
            over it, in the parameters alone.
        wrt: In what to differentiate: "theta", all parameters as one vector in the order of
            `functional(model).theta`; "x", the input, if it is one tensor; or the name of one input
            where `x` is a mapping, such as "inputs_embeds".
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Kept by `dense`, `blocks` and `chunks`, as far as an estimate goes.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        A `Jacobian`: the operator $J \in \mathbb{R}^{m \times d}$, $m$ outputs by $d$ variables.
        `J @ v` and `J.T @ u` keep one graph for any number of products, `J.output` is what the
        network gives. `J.dense()` is the matrix, `J.blocks()` are the Jacobians $(n, k, d)$ of the
        examples by themselves, and `J.chunks()` runs through these.

    Raises:
        ValueError: If there are no parameters to differentiate in, or the inputs are not floating
            point, or the outputs are not differentiable.

    Example:
        >>> x = torch.tensor([[1.0, 2.0]])
        >>> jacobian(nn.Linear(2, 2), x).dense()
        tensor([[1., 2., 0., 0., 1., 0.],
                [0., 0., 1., 2., 0., 1.]])
        >>> jacobian(nn.Tanh(), 0 * x, wrt="x") @ torch.tensor([3.0, 4.0])
        tensor([3., 4.])
    """
    kind = StreamedJacobian if isinstance(x, DataLoader) else Jacobian
    return kind(model, x, wrt=wrt, memory=memory, progress=progress, frozen=frozen, output=output)
