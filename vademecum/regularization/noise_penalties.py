r"""What noise in training adds to the loss on average: a penalty on curvature.

With noise $\xi$ of mean 0 and covariance $\Sigma$ in the inputs of each example, or with $\epsilon$
of covariance $I$ in the weights,

$$\mathbb E\, \ell(x + \xi) = \ell(x) + \tfrac12 \operatorname{tr}(\Sigma\, \nabla_x^2 \ell) +
\dots, \qquad \mathbb E\, \ell(\theta + s\, \epsilon) = \ell(\theta) + \tfrac{s^2}2
\operatorname{tr} \nabla_\theta^2 \ell + \dots$$

The dots are zero where the loss is quadratic in what is disturbed; else they are of the third order
in its size, and of the fourth for Gaussian noise. So for a linear model with the squared error
$\|X w - y\|^2$ noise in n inputs adds exactly $n\, w^\top \Sigma w$, and is ridge regression.

Traces are exact where the rules of layers serve, or where there are few enough entries; else they
are estimated with a standard error. In the inputs one product with the Hessian serves an entry of
all examples at once: with random signs $\sigma_i$ for the examples, $\sum_{i, i'} \sigma_i
\sigma_{i'} H_{i i'}$ is the sum of the blocks $H_{i i}$ on average, and always where examples do
not influence each other, which one more product tells. The claims are `input_noise`,
`weight_noise` and `noise_shape`.
"""

import math
from contextlib import closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import floats, number, whole
from vademecum.foundations import LinearOperator, trace
from vademecum.foundations.stochastic_trace import mean_and_error
from vademecum.gradients import functional
from vademecum.gradients.loss_gradient import loss_of
from vademecum.models import (
    Loss,
    Output,
    batches,
    differentiable_output,
    refuse_nan,
    replaced,
    twice_differentiable,
    variable,
    weighted,
)
from vademecum.optimization import curvature_trace
from vademecum.randomness import given_back, source
from vademecum.regularization._noise_factor import noise_factor
from vademecum.results import one_line

__all__ = ["NoisePenalty", "input_noise_penalty", "weight_noise_penalty"]


class NoisePenalty(NamedTuple):
    """What noise adds to the loss on average, to second order in its size.

    Example:
        >>> x, y = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)
        >>> weight_noise_penalty(nn.Linear(2, 1), x, y, std=2.0)  # 4 (9 + 16 + 1)
        NoisePenalty(value=104.0, standard_error=0.0, exact=True, applications=0)
    """

    value: float
    """The loss added."""
    standard_error: float
    """Its standard error over random probes; 0 where there are none."""
    exact: bool
    """Whether the trace was computed, and not estimated."""
    applications: int
    """The number of products with the Hessian; 0 where the layers' rules served."""

    __repr__ = one_line


def weight_noise_penalty(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    std: float,
    applications: int = 64,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> NoisePenalty:
    r"""What noise in all weights adds to the loss on average, $\frac{s^2}2 \operatorname{tr} H$.

    The model is taken in evaluation mode and never changed. See `curvature_trace` for when the
    trace is exact.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of batches `(x, y)`, or of mappings with the targets in "labels".
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        std: The standard deviation $s$ of the noise, as `weight_noise` takes it.
        applications: The most backward passes, or else the most products with the Hessian.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Example:
        >>> x, y = torch.eye(3), torch.tensor([0, 1, 2])
        >>> model = nn.Linear(3, 3, bias=False)
        >>> _ = nn.init.zeros_(model.weight)  # the Hessian's trace is 2/3
        >>> round(weight_noise_penalty(model, x, y, std=0.3).value, 4)
        0.03
    """
    half = number("std", std, low=0) ** 2 / 2
    found = curvature_trace(
        model, x, y, loss=loss, applications=applications, memory=memory, generator=generator,
        progress=progress, frozen=frozen, output=output,
    )  # fmt: skip
    error = half * found.standard_error
    return NoisePenalty(half * found.value, error, found.exact, found.applications)


def input_noise_penalty(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    std: float | None = None,
    covariance: Float[Tensor, " d d"] | None = None,
    wrt: str = "x",
    applications: int = 64,
    generator: torch.Generator | None = None,
    progress: bool = False,
    output: Output = None,
) -> NoisePenalty:
    r"""What noise in the inputs adds to the loss on average, $\frac12 \operatorname{tr}(\Sigma H)$.

    The noise is independent for each example, along the first axis. It is exact for linear models
    and the squared error. The model is taken in evaluation mode and never changed.

    Args:
        model: Any module.
        x: The inputs; a tensor of floating-point numbers, or a mapping of keyword arguments; or a
            `DataLoader` of batches of these with targets, whose penalties count as their losses do.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        std: The standard deviation $s$ of the noise in each entry, as `input_noise` takes it.
        covariance: In its place, the covariance $\Sigma$ along the last axis.
        wrt: What is disturbed where `x` is a mapping: the name of one of its tensors.
        applications: The most products with the Hessian. The trace is exact if there are no more
            entries than that, or less than half as many in each example and examples do not
            influence each other. A loader has as many for each batch.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If not one of `std` and `covariance` is given, or the input cannot be disturbed.

    Example:
        >>> x, y = torch.ones(5, 2), torch.zeros(5, 1)
        >>> model = nn.Linear(2, 1)
        >>> with torch.no_grad():
        ...     _ = model.weight.copy_(torch.tensor([[3.0, 4.0]]))
        >>> input_noise_penalty(model, x, y, std=0.1).value.__round__(4)  # 0.01 (9 + 16)
        0.25
    """
    whole("applications", applications, low=4)
    factor = noise_factor(std, covariance)
    if isinstance(x, DataLoader):
        return _over_batches(
            model, x, y, loss=loss, std=std, covariance=covariance, wrt=wrt,
            applications=applications, generator=generator, output=output, progress=progress,
        )  # fmt: skip
    at = floats(f"x[{wrt!r}]" if wrt != "x" else "x", variable(x, wrt))
    if at.ndim == 0 or (isinstance(factor, Tensor) and at.shape[-1] != len(factor)):
        raise ValueError(f"x must be as wide as covariance, got shape {tuple(at.shape)}")
    op = _disturbed(model, x, y, at, factor, loss, wrt, output)
    with given_back(generator):
        value, error, exact, used = _trace(op, len(at), applications, generator)
    return NoisePenalty(value / 2, error / 2, exact, used)


def _over_batches(
    model: nn.Module, x: Any, y: Any, *, generator: torch.Generator | None, progress: bool,
    **knobs: Any,
) -> NoisePenalty:  # fmt: skip
    """The penalties of batches, weighed as their losses are."""
    with given_back(generator):
        seed = int(torch.randint(2**63 - 1, (), **source(generator, "cpu")))
    own, found, weights = torch.Generator().manual_seed(seed), [], []

    def penalty(x: Any, y: Any) -> Tensor:
        found.append(input_noise_penalty(model, x, y, generator=own, **knobs))
        return torch.tensor(found[-1].value, dtype=torch.float64)

    device = functional(model).device
    with closing(batches(x, y, device=device, progress=progress)) as each:
        for pair in each:
            weights.append(weighted(penalty, *pair)[1])
    if not found:
        raise ValueError("x must hold batches, got an empty DataLoader")
    shares = [1.0 if w is None else float(w) for w in weights]
    total = 1.0 if None in weights else sum(shares)
    if not total:
        raise ValueError("x must hold batches with terms in their loss, got none")
    value = sum(w * one.value for w, one in zip(shares, found, strict=True) if w) / total
    errors = (w * one.standard_error for w, one in zip(shares, found, strict=True) if w)
    return NoisePenalty(
        value, math.hypot(*errors) / total, all(one.exact for one in found),
        sum(one.applications for one in found),
    )  # fmt: skip


def _disturbed(
    model: nn.Module, x: Any, y: Any, at: Tensor, factor: float | Tensor, loss: Loss | None,
    wrt: str, output: Output,
) -> LinearOperator:  # fmt: skip
    """The Hessian in the inputs, times a factor of the noise's covariance on both sides."""
    f = functional(model, output=output)
    refuse_nan(x)
    with twice_differentiable():
        at = at.detach().clone().requires_grad_()
        z = f(f.theta, replaced(x, wrt, at))
        if loss is None or isinstance(z, Tensor):
            differentiable_output(z)
    with twice_differentiable(losses=True):
        (slope,) = torch.autograd.grad(loss_of(z, y, loss), at, create_graph=True)

    def product(V: Tensor) -> Tensor:
        if not slope.requires_grad:  # the loss is linear in the input
            return torch.zeros_like(V)
        found = torch.empty_like(V)
        for v, into in zip(V.T, found.T, strict=True):
            moved = _times(v.view(at.shape), factor)
            (h,) = torch.autograd.grad(slope, at, moved, retain_graph=True, materialize_grads=True)
            into.copy_(_times(h, factor.T if isinstance(factor, Tensor) else factor).flatten())
        return found

    N = at.numel()
    return LinearOperator((N, N), product, product, dtype=at.dtype, device=at.device)


def _times(v: Tensor, factor: float | Tensor) -> Tensor:
    return v @ factor.to(v).T if isinstance(factor, Tensor) else v * factor


def _trace(
    op: LinearOperator, n: int, applications: int, generator: torch.Generator | None
) -> tuple[float, float, bool, int]:
    """The trace of a matrix of n x n blocks, its error, whether it is exact, products used."""
    N = op.shape[0]
    d = N // n
    if applications >= N or applications <= 2 * d:
        value, error, used = trace(op, applications=applications, generator=generator)
        return float(value), float(error), applications >= N, used
    eye = torch.eye(d, dtype=op.dtype, device=op.device)
    samples: list[float] = []
    used = 0
    while used + d <= applications:
        signs = 2.0 * torch.randint(2, (n, 1, 1), **source(generator, op.device)).to(eye) - 1
        block = (signs * eye).reshape(N, d)
        products = op @ block
        samples.append(float((block * products).sum(dtype=torch.float64)))
        used += d
        if len(samples) == 1:
            used += 1
            if _apart(op, signs * products.view(n, d, d), generator):
                return samples[0], 0.0, True, used
    mean, error = mean_and_error(torch.tensor(samples, dtype=torch.float64))
    return float(mean), float(error), False, used


def _apart(op: LinearOperator, blocks: Tensor, generator: torch.Generator | None) -> bool:
    """Whether a matrix has these blocks and no others, by its product with a random vector.

    Each block has a random size of its own, so that others would cancel with probability zero.
    """
    n, d, _ = blocks.shape
    drawn = torch.randn(n + 1, d, dtype=op.dtype, **source(generator, op.device)).to(blocks)
    v = drawn[:1] * (1 + drawn[1:, :1].abs())
    wanted = (blocks @ v[..., None])[..., 0]
    gap = (op @ v.reshape(-1, 1)).view(n, d) - wanted
    rounding = torch.finfo(op.dtype).eps * n * d
    return bool(gap.norm() <= rounding * wanted.norm())
