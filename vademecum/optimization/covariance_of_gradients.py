r"""The covariance of the gradients of single examples: the noise of stochastic gradients.

With $g_i = \nabla_\theta\, \ell(f(\theta, x_i), y_i)$ and their mean $\bar g$,

$$C = \frac1n \sum_{i=1}^n (g_i - \bar g)(g_i - \bar g)^T
= \frac1n \sum_{i=1}^n g_i g_i^T - \bar g\, \bar g^T,$$

so that the gradient of a batch of $b$ examples, drawn with replacement, has the covariance $C / b$.
Neither $C$ nor the $g_i$ are ever formed: with the gradients $r_i$ in the outputs and the Jacobian
$J_i$ of these it is $g_i = J_i^T r_i$ and

$$\frac1n \sum_i g_i \langle g_i, v \rangle
= \frac1n \sum_i J_i^T\, r_i\, \langle r_i, J_i v \rangle.$$

Exact up to rounding, which is that of $\frac1n \sum_i g_i g_i^T$.
"""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.foundations import LinearOperator
from vademecum.gradients import functional
from vademecum.gradients.loss_gradient import outputs_at
from vademecum.models import (
    Block,
    Loss,
    MeanProducts,
    Output,
    cotangents,
    count_examples,
    differentiable_output,
    example_loss,
    refuse_batch_statistics,
    targets_of,
    twice_differentiable,
)
from vademecum.optimization._likelihoods import outer
from vademecum.optimization._linearised import PASSING, sandwich, symmetric

__all__ = ["gradient_covariance"]


def gradient_covariance(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LinearOperator:
    r"""The covariance $\frac1n \sum_i (g_i - \bar g)(g_i - \bar g)^T$ of the examples' gradients.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs, a tensor or any structure of tensors (see `functional`), with the examples
            along the first axis; or a `DataLoader` of batches `(x, y)`, or of mappings with the
            targets in "labels". A loader is run through at each product, and once before; processes
            of `torchrun` share it.
        y: The targets, likewise.
        loss: A function of outputs and targets with one number for a batch of one example, whose
            reduction does not matter; by default the cross-entropy for integer targets and the mean
            squared error for others.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Where
            there is no room for the graph of all examples they go through in portions.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The symmetric positive semidefinite operator $C \in \mathbb{R}^{P \times P}$, for `eigsh`,
        `trace` and `spectral_density`.

    Raises:
        ValueError: If there are no examples or no parameters, or nothing differentiable; at a
            product, if a loader brings other examples than before.

    References:
        Kunstner, Balles and Hennig, Limitations of the empirical Fisher approximation for natural
        gradient descent, NeurIPS, 2019.

    Example:
        >>> x, y = torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1)
        >>> C = gradient_covariance(nn.Linear(1, 1), x, y, loss=lambda z, y: z - y)
        >>> C.dense()  # of the gradients (1, 1) and (3, 1)
        tensor([[1., 0.], [0., 0.]])
    """
    f = functional(model, frozen=frozen, output=output)
    refuse_batch_statistics(f.model)
    theta = f.theta.detach().requires_grad_()

    def rows(x: Any, y: Any) -> tuple[Tensor, Tensor]:
        """The outputs with their graph, and the gradients of the examples' losses in them."""
        n = count_examples(x, targets_of(y))
        with twice_differentiable():
            z = differentiable_output(outputs_at(f, theta, x), n)
        return z, cotangents(example_loss(y, loss), z, y)

    def block(x: Any, y: Any) -> Block:
        z, r = rows(x, y)
        return sandwich(theta, z, outer(r, tuple(range(1, r.ndim)), 1 / len(z)))

    def slope(x: Any, y: Any) -> Tensor:
        z, r = rows(x, y)
        return torch.autograd.grad(z, theta, r / len(z))[0]

    def size(x: Any, y: Any) -> Tensor:
        return outputs_at(f, theta.detach(), x).square().mean()

    moments = MeanProducts(
        theta,
        x,
        y,
        block,
        value=size,
        passing=PASSING,
        memory=memory,
        progress=progress,
        by_examples=True,
    )
    mean = cache(partial(moments.mean, slope, theta.detach()))

    def product(V: Tensor) -> Tensor:
        g = mean()
        return moments(V).sub_(torch.outer(g, g @ V))

    return symmetric(f, product)
