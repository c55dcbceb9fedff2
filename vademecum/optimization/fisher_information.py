r"""The Fisher information of a network: the second moment of gradients of its log-likelihood.

A loss that is a mean over terms $\ell_i = -\log p(y_i \mid x_i, \theta)$ has gradients $g_i(y_i) =
\nabla_\theta \ell_i$. Three matrices bear the name:

$$F = \frac1m \sum_{i=1}^m \mathbb{E}_{y \sim p(\cdot \mid x_i, \theta)}\, g_i(y)\, g_i(y)^T, \qquad
\hat F = \frac1m \sum_{i=1}^m g_i(\hat y_i)\, g_i(\hat y_i)^T, \qquad
\tilde F = \frac1m \sum_{i=1}^m g_i(y_i)\, g_i(y_i)^T.$$

The first, *exact*, is the expectation over the model's own labels; it is the curvature of the
Kullback-Leibler divergence between the predictions of neighbouring parameters, and where the
outputs are natural parameters (softmax, logistic and least squares) it equals the Gauss-Newton
matrix. The second draws labels $\hat y_i$ from the model and has $F$ as its mean. The third, the
*empirical* one, takes those of the data: it is neither, and vanishes where the data are fitted.

With the Jacobian $J$ of what goes into the likelihood all three are $J^T B J$, where $B$ is known
in closed form (`vademecum.optimization._likelihoods`). Exact up to rounding.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.foundations import LinearOperator
from vademecum.gradients import functional
from vademecum.gradients.loss_gradient import loss_at, loss_of, outputs_at
from vademecum.models import (
    Block,
    Loss,
    LossCalls,
    MeanProducts,
    Output,
    cotangents,
    count_examples,
    differentiable_output,
    fingerprint,
    loss_for,
    targets_of,
    twice_differentiable,
)
from vademecum.optimization._likelihoods import KNOWN, Likelihood, likelihood_of, outer
from vademecum.optimization._linearised import PASSING, sandwich, symmetric
from vademecum.randomness import source

__all__ = ["fisher"]


def fisher(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    kind: str = "exact",
    samples: int = 1,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LinearOperator:
    r"""The Fisher information of the loss as a log-likelihood, as an operator.

    The model is taken in evaluation mode, with the parameters that it has now, and never changed.
    Terms are the targets of a cross-entropy (a token, say), the entries of a binary one, and the
    examples of a squared error, which is that of a normal distribution; they count as in the loss.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels", which count by their
            numbers of terms. A loader is run through at each product; processes of `torchrun`
            share it.
        y: The targets, which "exact" and "sampled" use for their kind and for which are ignored.
        loss: A function of outputs and targets with one number for all that calls one of torch's
            `cross_entropy`, `nll_loss`, `mse_loss` and `binary_cross_entropy_with_logits`, as a
            mean or a sum; for "empirical" any that is a mean over examples, which are then its
            terms. By default the cross-entropy for integer targets and the mean squared error for
            others.
        kind: "exact" for the expectation over the model's own labels, "sampled" for labels that are
            drawn from it, "empirical" for those of the data.
        samples: How many labels to draw for each term.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Labels are
            drawn once, and anew, as the same ones, where a loader is run through again.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The symmetric positive semidefinite operator in $\mathbb{R}^{P \times P}$, for `eigsh`,
        `trace` and `spectral_density`.

    Raises:
        ValueError: If the loss is no log-likelihood that is known, or not one number, or there is
            nothing to differentiate; at a product, if a loader brings other examples than before.

    References:
        Amari, Natural gradient works efficiently in learning, Neural Computation, 1998.
        Kunstner, Balles and Hennig, Limitations of the empirical Fisher approximation for natural
        gradient descent, NeurIPS, 2019.

    Example:
        >>> model, x = nn.Linear(1, 2, bias=False), torch.tensor([[2.0]])
        >>> _ = nn.init.zeros_(model.weight)  # so that both classes have the probability 1/2
        >>> fisher(model, x, torch.tensor([0])).dense()
        tensor([[ 1., -1.], [-1.,  1.]])
    """
    choice("kind", kind, ("exact", "sampled", "empirical"))
    whole("samples", samples, low=1)
    f = functional(model, frozen=frozen, output=output)
    theta, seed = f.theta.detach().requires_grad_(), _seed(generator) if kind == "sampled" else 0

    def block(x: Any, y: Any) -> Block:
        with twice_differentiable(), LossCalls() as noted:
            z = outputs_at(f, theta, x)
            if loss is None:
                differentiable_output(z)
            value = loss_of(z, y, loss)
        known = likelihood_of(noted, value)
        if known is None and kind == "empirical":
            z = differentiable_output(z, count_examples(x, targets_of(y)))
            r = cotangents(loss_for(y, loss), z, y)
            weight = 1.0 if noted.summed else 1 / len(z)
            return sandwich(theta, z, outer(r, tuple(range(1, r.ndim)), weight))
        if known is None:
            raise ValueError(
                f"loss must call one of {', '.join(KNOWN)}, as a mean or a sum, for its likelihood"
                " to be known"
            )
        if kind == "exact":
            middle = known.exact()
        elif kind == "empirical":
            middle = known.of_labels(known.y)
        else:
            own = (seed + int(fingerprint(x, y))) % 2**63  # the same at each pass
            middle = _sampled(known, samples, own)
        return sandwich(theta, differentiable_output(known.a), middle)

    value = partial(loss_at, f, theta, loss=loss)
    knobs: Any = {"value": value, "passing": PASSING, "memory": memory, "progress": progress}
    return symmetric(f, MeanProducts(theta, x, y, block, **knobs))


def _seed(generator: torch.Generator | None) -> int:
    return int(torch.randint(2**62, (1,), **source(generator, "cpu")))


def _sampled(known: Likelihood, samples: int, seed: int) -> Callable[[Tensor], Tensor]:
    """What multiplies with the mean over labels that are drawn."""
    generator = torch.Generator(known.a.device).manual_seed(seed)
    each = [known.of_labels(known.draw(generator)) for _ in range(samples)]
    return lambda u: torch.stack([product(u) for product in each]).mean(0)
