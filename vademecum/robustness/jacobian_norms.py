r"""The spectral norm of a network's Jacobian at each input, and a penalty on it.

To first order $f(x + \Delta) = f(x) + J \Delta$ with $J = \partial f / \partial x$ at $x$ (exactly
so within a linear region), so that the outputs move at most by

$$\sigma(J) = \max_{\|v\|_2 \le 1} \|J v\|_2 = \max_{\|u\|_2 = \|v\|_2 = 1} u^\top J v$$

times the length of $\Delta$, and by as much along the top right singular vector $v$. With few
outputs, up to 64 for each example, $J$ is made, by one backward pass for each, and $\sigma^2$ is
the largest eigenvalue of $J J^\top$: nothing is approximated. With more, Lanczos' method finds it
from products with $J$ and $J^\top$ for all examples at once, to a residual of `tol` times
$\sigma^2$; the value comes from below then.

The penalty $\frac1n \sum_i \frac12 \sigma(J_i)^2$ has, where the top singular value is simple, the
gradient $\sigma u v^\top$ in $J$: that of $\frac12 (u^\top J v)^2$ with $u$ and $v$ held fixed. The
claims are `jacobian_sensitivity` and `spectral_regulariser`.
"""

import warnings
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.arrays import lengths
from vademecum.gradients import functional, jacobian
from vademecum.models import (
    Output,
    bytes_each,
    count_examples,
    differentiable_output,
    insist_on_same_outputs,
    map_tensors,
    refuse_batch_statistics,
    replaced,
    twice_differentiable,
    unwrapped,
    variable,
)
from vademecum.progress import ticking
from vademecum.randomness import given_back, source
from vademecum.results import one_line
from vademecum.robustness._example_lanczos import largest_eigenvectors

__all__ = ["JacobianNorms", "jacobian_spectral_norm", "spectral_regularizer"]

_FEW = 64  # outputs of an example: as many backward passes as some 25 steps of Lanczos' method cost

Make = Callable[..., Any]
Tick = Callable[[int], None]


class JacobianNorms(NamedTuple):
    """The largest singular value of each example's Jacobian, with its vectors.

    Example:
        >>> found = jacobian_spectral_norm(nn.ReLU(), torch.tensor([[-1.0, 2.0]]))
        >>> found.value, found.v.abs(), found.converged
        (tensor([1.]), tensor([[0., 1.]]), tensor([True]))
    """

    value: Float[Tensor, " n"]
    r"""The norms $\sigma$."""
    u: Float[Tensor, " n *k"]
    """The left singular vectors, shaped like the outputs; zero where the norm is."""
    v: Float[Tensor, " n *shape"]
    """The right singular vectors, shaped like the inputs: where an input is most sensitive."""
    converged: Bool[Tensor, " n"]
    """Whether the residual is below the tolerance; always so with few outputs."""

    __repr__ = one_line


def jacobian_spectral_norm(
    model: nn.Module,
    x: Any,
    *,
    wrt: str = "x",
    tol: float | None = None,
    max_iter: int = 100,
    memory: int | None = None,
    progress: bool = False,
    generator: torch.Generator | None = None,
    output: Output = None,
) -> JacobianNorms:
    r"""How sensitive a network is at each input: the spectral norm of its Jacobian there.

    The model is taken in evaluation mode and never changed; examples must not influence each other.

    Args:
        model: Any module.
        x: The inputs; a tensor, or a mapping of which one entry varies.
        wrt: "x", or the name of the entry in which to differentiate, such as "pixel_values".
        tol: The residual relative to $\sigma^2$ at which to stop where there are more than 64
            outputs; by default the square root of the machine precision.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. There are none with
            up to 64 outputs.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If examples influence each other, or nothing is differentiable.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight = nn.Parameter(torch.tensor([[0.0, 3.0], [0.0, 4.0]]))
        >>> found = jacobian_spectral_norm(model, torch.randn(2, 2))
        >>> found.value, found.v[0].abs()
        (tensor([5., 5.]), tensor([0., 1.]))
    """
    if wrt == "theta":
        raise ValueError("wrt must be an input, got 'theta'")
    n, at = count_examples(x), floats("x", variable(x, wrt))
    tol = number("tol", torch.finfo(at.dtype).eps ** 0.5 if tol is None else tol, above=0)
    whole("max_iter", max_iter, low=1)
    refuse_batch_statistics(unwrapped(model))
    make = partial(jacobian, model, wrt=wrt, output=output)
    J = make(x, memory=memory)
    shape = differentiable_output(J.output, n, graph=False).shape[1:]
    with given_back(generator), ticking("examples", n, progress=progress) as tick:
        if shape.numel() <= _FEW:
            found = [_by_blocks(part, tick) for _, part in J.chunks()]
        else:
            draw = partial(_drawn, generator)
            rows = _portions(make, x, memory, max_iter)
            parts = [map_tensors(x, itemgetter(slice(i, i + rows))) for i in range(0, n, rows)]
            found = [_by_products(make, part, draw, tol, max_iter, tick) for part in parts]
    value, u, v, converged = (torch.cat(t) for t in zip(*found, strict=True))
    if not bool(converged.all()):
        message = f"max_iter={max_iter} iterations were not enough for {int((~converged).sum())}"
        warnings.warn(f"{message} of {n} examples", ConvergenceWarning, stacklevel=2)
    value, u, v = (t.to(at.dtype) for t in (value, u, v))
    return JacobianNorms(value, u.view(n, *shape), v.view_as(at), converged)


def spectral_regularizer(
    model: nn.Module,
    x: Any,
    *,
    wrt: str = "x",
    generator: torch.Generator | None = None,
    output: Output = None,
) -> Float[Tensor, ""]:
    r"""The mean of $\frac12 \sigma(J_f(x))^2$ over the inputs, to be added to a loss.

    Its gradient in the parameters is that of the penalty wherever the top singular values are
    simple. The model is taken in evaluation mode, in which it has a Jacobian for each input.

    Args:
        model: Any module that can be differentiated twice.
        x: The inputs; a tensor, or a mapping of which one entry varies.
        wrt: "x", or the name of the entry in which to differentiate.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    References:
        Roth, Kilcher and Hofmann, Adversarial training is a form of data-dependent operator norm
        regularization, NeurIPS 2020.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight = nn.Parameter(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
        >>> penalty = spectral_regularizer(model, torch.randn(4, 2))
        >>> penalty.backward()
        >>> penalty.detach(), model.weight.grad  # 3^2 / 2, and 3 u v^T
        (tensor(4.5000), tensor([[3., 0.], [0., 0.]]))
    """
    top = jacobian_spectral_norm(model, x, wrt=wrt, generator=generator, output=output)
    f = functional(model, output=output)
    with twice_differentiable():
        at = variable(x, wrt).detach().clone().requires_grad_()
        z = differentiable_output(f.call(f.parameters, replaced(x, wrt, at)), len(at))
        (slope,) = torch.autograd.grad(z, at, top.u.to(z.dtype), create_graph=True)
        return 0.5 * (slope * top.v).flatten(1).sum(1).square().mean()


def _by_blocks(block: Tensor, tick: Tick) -> tuple[Tensor, ...]:
    """From the matrices, exactly."""
    block = block.to(_wide(block.dtype))
    scale = block.abs().amax((1, 2), keepdim=True)
    J = block / torch.where(scale > 0, scale, 1)  # so that no square leaves the range
    u = torch.linalg.eigh(J @ J.mT).eigenvectors[:, :, -1:]
    tick(len(block))
    everywhere = torch.ones(len(block), dtype=torch.bool, device=block.device)
    return _triplets(u[..., 0], (J.mT @ u * scale)[..., 0], everywhere)


def _by_products(
    make: Make, x: Any, draw: Callable[[Tensor], Tensor], tol: float, max_iter: int, tick: Tick
) -> tuple[Tensor, ...]:
    """From products with the matrices of all of these examples."""
    J = make(x)
    n = len(J.output)
    for end in (slice(1), slice(n - 1, n)):  # all may depend on one of them
        alone = make(map_tensors(x, itemgetter(end))).output
        insist_on_same_outputs(alone, J.output[end], [J.dtype])
    wide = _wide(J.dtype)

    def pulled(u: Tensor) -> Tensor:
        return (J.T @ u.flatten().to(J.dtype)).view(n, -1).to(wide)

    start = draw(J.output.flatten(1).to(wide))
    scale = pulled(start).abs().amax(1, keepdim=True)
    scale = torch.where(scale > 0, scale, 1)  # so that no square leaves the range

    def product(u: Tensor) -> Tensor:
        return (J @ (pulled(u) / scale).flatten().to(J.dtype)).view_as(u).to(wide) / scale

    u, converged = largest_eigenvectors(product, start, tol, max_iter)
    tick(n)
    return _triplets(u, pulled(u), converged)


def _triplets(u: Tensor, image: Tensor, converged: Tensor) -> tuple[Tensor, ...]:
    """Value, vectors and convergence, from u and J^T u."""
    value = lengths(image, 1)
    v = image / torch.where(value > 0, value, 1)[:, None]
    return value, u * (value > 0)[:, None], v, converged


def _wide(dtype: torch.dtype) -> torch.dtype:
    """A dtype that knows eigenvalues."""
    return torch.promote_types(dtype, torch.float32)


def _drawn(generator: torch.Generator | None, like: Tensor) -> Tensor:
    place = source(generator, like.device)
    return torch.randn(like.shape, dtype=like.dtype, **place).to(like.device)


def _portions(make: Make, x: Any, memory: int | None, max_iter: int) -> int:
    """How many examples to take at a time."""
    n = count_examples(x)
    if memory is None:
        return n

    def work(x: Any) -> Tensor:
        J = make(x)
        return J @ (J.T @ J.output.flatten().to(J.dtype))

    fixed, each = bytes_each(work, x)
    one = make(map_tensors(x, itemgetter(slice(1)))).output
    each += (min(max_iter, one.numel()) + 3) * one.numel() * one.element_size()
    if whole("memory", memory, low=1) < fixed + each:
        raise ValueError(f"memory must be >= {fixed + each} bytes for one example, got {memory}")
    return min(n, (memory - fixed) // each)
