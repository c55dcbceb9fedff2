r"""Per-example gradients: the gradient of every example's loss, not only of their sum.

For examples $(x_i, y_i)$ and a loss $\ell$ the rows

$$g_i = \nabla_\theta\, \ell(f(\theta, x_i), y_i) \in \mathbb{R}^P, \qquad i = 1, \dots, n,$$

come from one forward and one backward pass over all examples, which bring to each layer what the
layer's own rule needs, if there is one for all of them; else from `torch.func`, as the gradient for
one example, mapped over all. The two agree up to rounding. That `memory` suffices is an estimate.
"""

from functools import partial
from operator import itemgetter
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arrays import empty
from vademecum.gradients._example_passes import (
    fill,
    over_batches,
    passes,
    places,
)
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    Loss,
    Output,
    count_examples,
    example_loss,
    map_tensors,
    mapped_derivatives,
    summed,
    targets_of,
)

__all__ = ["per_example_gradients"]


def per_example_gradients(
    model: nn.Module,
    x: Any,
    y: Shaped[Tensor, " n ..."] | None = None,
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " n P"]:
    r"""The gradient $\nabla_\theta \ell(f(\theta, x_i), y_i)$ of each example's loss.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs, a tensor or any structure of tensors (see `functional`), with the examples
            along the first axis; or a `DataLoader` of batches `(x, y)`, or of mappings with the
            targets in "labels", for rows in its order.
        y: The targets, likewise.
        loss: A function of outputs and targets with one number for a batch of one example, whose
            reduction does not matter; by default the cross-entropy for integer targets and the mean
            squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The gradients in the order of `functional(model).theta`; its `unravel` splits them by
        parameter.

    Raises:
        ValueError: If there are no examples or no parameters, or nothing differentiable, or the
            examples influence each other.

    References:
        Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
        Dangel, Kunstner and Hennig, BackPACK: packing more into backprop, ICLR, 2020.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 1)
        >>> per_example_gradients(model, x, y, loss=lambda z, y: z - y)
        tensor([[1., 2.], [3., 4.]])
    """
    if isinstance(x, DataLoader):
        each = partial(per_example_gradients, model, loss=loss, memory=memory, frozen=frozen,
                       output=output)  # fmt: skip
        return over_batches(each, model, x, y, progress=progress)
    f, y = Functional(model, frozen=frozen, output=output), targets_of(y)
    loss, n = example_loss(y, loss), count_examples(x, y)
    gradients = empty(n, f.size, dtype=f.dtype, device=f.device)
    for here, done, b in passes(f, loss, x, y, memory, progress=progress):
        if done is not None:
            fill(done, b, places(f, gradients[here, None]))
            continue
        found = mapped_derivatives(f, summed(loss), map_tensors(x, itemgetter(here)), y[here])
        for name, view in places(f, gradients[here]).items():
            view.copy_(found[name])
    return gradients
