r"""How lazily a network trains: the curvature of its outputs against their slope.

While the parameters move by $\Delta$, an output $f$ moves by $\|\nabla f\| \|\Delta\|$ at most and
its gradient by $\|\nabla^2 f\|_2 \|\Delta\|$. To move $f$ by one takes $\|\Delta\| \approx 1 /
\|\nabla f\|$, in which the gradient changes by the share

$$\frac{\|\nabla_\theta^2 f(x)\|_2}{\|\nabla_\theta f(x)\|_2^2}$$

of itself. Where that is small training is that of the linearised network. In NTK coordinates it
falls like $1 / \sqrt m$ with the width $m$, up to a logarithm. The norm of the Hessian is its
largest eigenvalue in magnitude, by Lanczos' method at both ends of the spectrum, where eigenvalues
of networks are often nearly opposite. That took 30 products for each output of a network of 6 tanh
units, and 240 of one of 400; each is a backward pass through a backward pass, with autograd's
convention at kinks: the second derivative of a ReLU is zero. The claim is `lazy_training_ratio`.
"""

from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.arrays import lengths
from vademecum.foundations import LinearOperator, eigsh
from vademecum.gradients.network_function import Functional, functional
from vademecum.models import (
    FAILURES,
    Entangled,
    Output,
    count_examples,
    differentiable_output,
    map_tensors,
    out_of_memory,
    refuse_batch_statistics,
    twice_differentiable,
)
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["LazyRatio", "lazy_ratio"]

_BASIS, _LEAST = 26, 3  # vectors that `eigsh` holds by default for one eigenvalue, and needs


class LazyRatio(NamedTuple):
    """Curvature against slope, for each output of each example.

    Example:
        >>> class Product(nn.Module):  # u v x, with the gradient (v, u) x and the curvature x
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u, self.v = (nn.Parameter(torch.tensor(t)) for t in (3.0, 4.0))
        ...     def forward(self, x):
        ...         return self.u * self.v * x
        >>> found = lazy_ratio(Product(), torch.tensor([[2.0]]))
        >>> found.ratio, found.hessian_norm, found.gradient_norm  # 2 / 10^2
        (tensor([[0.0200]]), tensor([[2.]]), tensor([[10.]]))
    """

    ratio: Float[Tensor, " n *k"]
    r"""The ratio $\|\nabla^2 f\|_2 / \|\nabla f\|_2^2$; 0 without curvature, infinite without
    slope alone."""
    hessian_norm: Float[Tensor, " n *k"]
    """The largest eigenvalue of the Hessian in magnitude."""
    gradient_norm: Float[Tensor, " n *k"]
    """The length of the gradient."""
    applications: int
    """The number of products with Hessians."""
    converged: Bool[Tensor, " n *k"]
    """Whether the residual of the eigenvalue is below the tolerance."""

    __repr__ = one_line


def lazy_ratio(
    model: nn.Module,
    x: Any,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> LazyRatio:
    r"""Measure how far a network is from its linearisation: the Hessian against the gradient.

    The model is taken in evaluation mode and never changed, and each example goes through alone.
    `output=lambda z: z[:, 3]` asks for one of many outputs.

    Args:
        model: Any module in single or double precision.
        x: The inputs; a tensor, or any structure of tensors, with examples along the first axis.
        tol: Stop when the residual is at most `tol` times the eigenvalue, whose error goes with the
            square of it.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a product.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. It is
            for vectors like the parameters, of which 28 are held by default; the graph of one
            example comes on top.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, or an output does not depend on them, or batch
            normalisation has no running statistics, or the model fails for an example alone, or
            second derivatives are not symmetric: up to rounding, and in double precision within
            `tol` at least.
        RuntimeError: If the model recomputes activations (`torch.utils.checkpoint`).

    References:
        Chizat, Oyallon and Bach, On lazy training in differentiable programming, NeurIPS 2019. Liu,
        Zhu and Belkin, On the linearity of large non-linear models, NeurIPS 2020.

    Example:
        >>> found = lazy_ratio(nn.Linear(3, 2), torch.randn(4, 3))
        >>> found.ratio.shape, found.ratio.max()  # it is linear in its parameters
        (torch.Size([4, 2]), tensor(0.))
    """
    number("tol", tol, above=0)
    f = functional(model, frozen=frozen, output=output)
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    if torch.finfo(f.dtype).bits < 32:
        raise ValueError(f"model must be in single or double precision, got {f.dtype}")
    held = _BASIS
    if memory is not None:
        width = f.size * f.dtype.itemsize
        held = min(held, whole("memory", memory, low=(_LEAST + 2) * width) // width - 2)
    refuse_batch_statistics(f.model)
    n, rows, applications, shape = count_examples(x), [], 0, torch.Size()
    options: dict[str, Any] = {
        "subspace": held, "tol": tol, "max_iter": max_iter, "generator": generator,
    }  # fmt: skip
    if f.dtype == torch.float64:  # of which some models compute a part in single precision
        options["symmetry_tol"] = max(tol, torch.finfo(f.dtype).eps ** 0.5)
    with given_back(generator), ticking("examples", n, progress=progress) as tick:
        for i in range(n):
            theta = f.theta.clone().requires_grad_()
            z = differentiable_output(_alone(f, theta, x, i), 1)
            shape = z.shape[1:]
            for entry in z.flatten():
                rows.append(_norms(theta, entry, options))
                applications += int(rows[-1][2])
            tick(1)
    hessian, gradient, _, converged = zip(*rows, strict=True)
    h, g = (torch.stack(t).view(n, *shape) for t in (hessian, gradient))
    ratio = torch.where(h > 0, h / g / g, torch.zeros_like(h))  # the square may overflow
    done = torch.tensor(converged, device=h.device).view(n, *shape)
    return LazyRatio(ratio, h, g, applications, done)


def _alone(f: Functional, theta: Tensor, x: Any, i: int) -> Any:
    """What the network gives for one example by itself."""
    one = map_tensors(x, itemgetter(slice(i, i + 1)))
    try:
        with twice_differentiable():
            return f(theta, one)
    except FAILURES as error:
        if out_of_memory(error):
            raise
        with torch.no_grad():
            f(f.theta, x)  # which may fail as well, and for a better reason
            if _takes(f, one):  # only not for derivatives
                raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise Entangled(f"model must take one example at a time: {reason}") from error


def _takes(f: Functional, x: Any) -> bool:
    try:
        f(f.theta, x)
    except FAILURES as error:
        if out_of_memory(error):
            raise
        return False
    return True


def _norms(
    theta: Tensor, entry: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor, int, bool]:
    """The norms of the Hessian and of the gradient of one output, products made, convergence."""
    with twice_differentiable():
        (slope,) = torch.autograd.grad(entry, theta, create_graph=True)
    length = lengths(slope.detach())
    if not slope.requires_grad:  # it is linear in the parameters
        return torch.zeros_like(length), length, 0, True

    def product(V: Tensor) -> Tensor:
        found = [
            torch.autograd.grad(slope, theta, v, retain_graph=True, materialize_grads=True)[0]
            for v in V.T
        ]
        return torch.stack(found, 1)

    P = len(theta)
    H = LinearOperator((P, P), product, product, dtype=theta.dtype, device=theta.device)
    ends = ("magnitude",) if options["subspace"] >= P else ("largest", "smallest")  # dense, or not
    pairs = [eigsh(H, 1, which=end, degenerate=False, **options) for end in ends]
    norm = torch.stack([found.values[0].abs() for found in pairs]).max()
    applied = sum(found.applications for found in pairs)
    return norm, length, applied, all(found.converged for found in pairs)
