r"""Singular values of convolution and pooling layers.

The layer without its bias is a matrix $A$, and $\sigma_1 = \|A\|_2$ is its Lipschitz constant. It
is not the largest singular value of the kernel reshaped to a matrix, which is what torch's
`spectral_norm` takes.

- With padding that repeats the input and a stride that divides its size, and where windows do not
  overlap, a Fourier transform splits $A$ into small blocks: all singular values, exactly.
- Else the $k$ largest come from a Krylov space of $A^T A$, or of $A A^T$ if that is smaller (then
  read $A^T$ for $A$). For a unit vector $v$, $\sigma = \|A v\|$ and $u = A v / \sigma$ there is a
  singular value within $r = \|A^T u - \sigma v\|$ of $\sigma$, and one whose square is within
  $\sigma r$ of $\sigma^2$; so the residual is $\min(r, \sqrt{\sigma r})$, small also for zeros.

Both are differentiable in the weights, $d \sigma_i = u_i^T\, dA\, v_i$ for a simple one; the second
once. The claims on the norm of a layer belong to a later room; here tests compare with dense
matrices.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from vademecum.arguments import whole
from vademecum.convolution._fourier_blocks import all_singular_values, has_blocks
from vademecum.convolution._layer_geometry import Geometry, Layer, Shape, read_layer
from vademecum.convolution.layer_matrices import ConvMatrix
from vademecum.foundations import LinearOperator, eigsh
from vademecum.results import one_line

__all__ = ["ConvSingularValues", "conv_singular_values"]

_FEW = 6


class ConvSingularValues(NamedTuple):
    """Singular values of a layer, and what they are worth.

    Example:
        >>> conv_singular_values(nn.AvgPool1d(2), (1, 4)).values
        tensor([0.7071, 0.7071])
    """

    values: Float[Tensor, " k"]
    """The singular values, the largest first."""
    residuals: Float[Tensor, " k"]
    """How far the next true singular value is from each at most; zeros where they are exact."""
    exact: bool
    """Whether they are all there are, up to rounding, or the largest ones by iteration."""
    converged: bool
    """Whether all residuals are below the tolerance."""

    __repr__ = one_line


def conv_singular_values(
    layer: Layer,
    x: Shape,
    *,
    k: int | None = None,
    memory: int | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    generator: torch.Generator | None = None,
) -> ConvSingularValues:
    r"""The singular values of a layer's matrix, for inputs of one size.

    Args:
        layer: What `conv_matrix` takes.
        x: An input or its shape without batch, as for `conv_matrix`.
        k: How many, of the largest. By default all where they are exact, else 6.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            Frequencies come in portions, and the Krylov space gets smaller.
        tol: Stop when residuals of $A^T A$ are at most `tol` times $\sigma_1^2$; by default the
            square root of the machine precision. Exact values do not need it.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. As for `eigsh`;
            exact values do not need it.
        generator: Where random numbers come from; torch's global generator by default.
            Exact values do not need any.

    Returns:
        A `ConvSingularValues`, whose `values` are differentiable in the weights; twice where they
        are exact and differ.

    Raises:
        ValueError: If the layer is of another kind or in half precision, the input does not fit it,
            there are fewer than `k`, or `memory` is too small for a single block or Krylov space.

    References:
        Sedghi, Gupta and Long, The singular values of convolutional layers, ICLR, 2019.

    Example:
        >>> layer = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        >>> layer.weight.data = torch.tensor([[[1.0, 2.0, 1.0]]])  # 2 + 2 cos(2 pi f / 4)
        >>> conv_singular_values(layer, (1, 4)).values.detach().round(decimals=4).abs()
        tensor([4., 2., 2., 0.])
    """
    g = _with_weights(read_layer(layer, x))
    if g.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"layer must be in single or double precision, got {g.dtype}")
    A = ConvMatrix(g)
    if k is not None:
        whole("k", k, low=1, high=min(A.shape))
    if memory is not None:
        whole("memory", memory, low=1)
    if has_blocks(g):
        values = all_singular_values(g, memory)[:k]
        return ConvSingularValues(values, torch.zeros_like(values.detach()), True, True)
    k = min(_FEW, *A.shape) if k is None else k
    return _by_iteration(A, k, memory, {"tol": tol, "max_iter": max_iter, "generator": generator})


def _with_weights(g: Geometry) -> Geometry:
    """Pooling of windows that lie within the input as the convolution that it is."""
    if g.kind != "pool" or g.ceil_mode or any(map(any, g.pads)):
        return g
    taps = math.prod(g.kernel)
    mean = torch.full((g.groups, 1, *g.kernel), 1 / (g.divisor or taps), dtype=g.dtype)
    return g._replace(kind="conv", weight=mean.to(g.device))


def _by_iteration(
    A: ConvMatrix, k: int, memory: int | None, knobs: dict[str, Any]
) -> ConvSingularValues:
    wide = A.shape[1] > A.shape[0]
    with torch.no_grad():
        square = A @ A.H if wide else A.H @ A
        found = eigsh(square, k, subspace=_subspace(square, k, memory), **knobs)
        there, back = (A.H, A) if wide else (A, A.H)
        image = there @ found.vectors
        sigma = torch.linalg.vector_norm(image, dim=0)
        image = image / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)
        gaps = torch.linalg.vector_norm(back @ image - found.vectors * sigma, dim=0)
        residuals = torch.minimum(gaps, (sigma * gaps).sqrt())
        order = sigma.argsort(descending=True)
        U, V = (found.vectors, image) if wide else (image, found.vectors)
        sigma, U, V = sigma[order], U[:, order], V[:, order]
    weight = A._geometry.weight
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        sigma = _Differentiable.apply(weight, A, U, V, sigma)
    return ConvSingularValues(sigma, residuals[order], False, found.converged)


def _subspace(square: LinearOperator, k: int, memory: int | None) -> int | None:
    """As many vectors of the Krylov space as there is room for; None for the usual number."""
    if memory is None:
        return None
    vector = square.shape[0] * square.dtype.itemsize
    room = memory // vector - 2
    if room < k + 2:
        needed = (k + 4) * vector
        raise ValueError(f"memory must be at least {needed} bytes for k = {k}, got {memory}")
    return min(room, 2 * k + 24)


class _Differentiable(torch.autograd.Function):
    """Singular values that were found by iteration, as a function of the weights."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, A: ConvMatrix, U: Tensor, V: Tensor, s: Tensor) -> Tensor:
        ctx.operator, ctx.sides = A, (U, V)
        return s.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (U, V), A = ctx.sides, ctx.operator
        with torch.enable_grad():
            weight = A._geometry.weight.detach().requires_grad_()
            again = ConvMatrix(A._geometry._replace(weight=weight))
            sums = (U.conj() * (again @ V)).sum(0).real @ grad
        return torch.autograd.grad(sums, weight)[0], None, None, None, None
