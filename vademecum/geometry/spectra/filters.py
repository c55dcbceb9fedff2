r"""Polynomial filters: functions of the Laplacian that need sparse products only.

$$p(L)\, x = \sum_{k=0}^K \alpha_k L^k x \quad\text{by}\quad
y \leftarrow \alpha_K x, \qquad y \leftarrow L y + \alpha_k x \quad (k = K - 1, \dots, 0),$$

or in Chebyshev polynomials of $\hat L = \frac{2}{\lambda_{\max}} L - I$, whose spectrum is in
$[-1, 1]$ if that of $L$ is in $[0, \lambda_{\max}]$: $T_0 = I$, $T_1 = \hat L$, $T_k = 2 \hat L
T_{k-1} - T_{k-2}$, where $\|T_k(\hat L)\| \le 1$.

Either takes $K$ products with $L$, and entries of $p(L)$ between nodes more than $K$ hops apart
are 0. Exact up to rounding, in which high powers lose much, and Chebyshev polynomials little. The
claims are `polynomial_filter`, `filter_isotropy` and `chebnet`.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats, number
from vademecum.foundations import LinearOperator, aslinearoperator, eigsh
from vademecum.geometry.spectra.laplacians import GraphLaplacian

__all__ = ["polynomial_filter"]


def polynomial_filter(
    L: Any,
    x: Float[Tensor, " n *d"],
    coefficients: Float[Tensor, " K_plus_1"],
    *,
    basis: str = "powers",
    lambda_max: float | None = None,
) -> Float[Tensor, " n *d"]:
    r"""The filtered signal $\sum_k \alpha_k L^k x$ or $\sum_k \alpha_k T_k(\hat L) x$.

    Differentiable in signal and coefficients.

    Args:
        L: A `GraphLaplacian`, or any square operator that `foundations.aslinearoperator` takes.
        x: A signal, or one in each column.
        coefficients: The coefficients, from that of degree 0 on.
        basis: What they belong to: "powers" or "chebyshev" polynomials.
        lambda_max: The largest eigenvalue of L (or a number above it), for Chebyshev polynomials;
            by default found with `foundations.eigsh`.

    Raises:
        ValueError: If the sizes do not fit.

    References:
        Hammond, Vandergheynst and Gribonval, Wavelets on graphs via spectral graph theory, Applied
        and Computational Harmonic Analysis 30, 2011.

    Example:
        >>> from vademecum.geometry import graph_laplacian
        >>> L = graph_laplacian(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))  # a path
        >>> x = torch.tensor([1.0, 0.0, 0.0])
        >>> polynomial_filter(L, x, torch.tensor([5.0, 0.0, 1.0]))  # 5 x + L L x
        tensor([ 7., -3.,  1.])
        >>> c = torch.tensor([0.0, 3.0])  # 3 (L - I) x
        >>> polynomial_filter(L, x, c, basis="chebyshev", lambda_max=2.0)
        tensor([ 0., -3.,  0.])
    """
    op = aslinearoperator(L.operator if isinstance(L, GraphLaplacian) else L)
    n = op.shape[0]
    if op.shape != (n, n):
        raise ValueError(f"L must be square, got shape {op.shape}")
    choice("basis", basis, ("powers", "chebyshev"))
    x = floats("x", x, empty=True)
    if x.ndim == 0 or len(x) != n:
        raise ValueError(f"x must have {n} rows, got shape {tuple(x.shape)}")
    c = floats("coefficients", coefficients, ndim=1).unbind()
    block = x.flatten(1) if x.ndim > 1 else x[:, None]
    if basis == "powers":
        y = _horner(op, block, c)
    else:
        top = _largest(op) if lambda_max is None else number("lambda_max", lambda_max, above=0)
        y = _chebyshev(op, block, c, top)
    return y.reshape(x.shape)


def _horner(op: LinearOperator, x: Tensor, c: tuple[Tensor, ...]) -> Tensor:
    y = c[-1] * x
    for each in c[-2::-1]:
        y = op @ y + each * x
    return y


def _chebyshev(op: LinearOperator, x: Tensor, c: tuple[Tensor, ...], top: float) -> Tensor:
    before, now, y = x, x, c[0] * x
    for k, each in enumerate(c[1:], 1):
        image = 2 / top * (op @ now) - now
        before, now = now, image if k == 1 else 2 * image - before
        y = y + each * now
    return y


def _largest(op: LinearOperator) -> float:
    """The largest eigenvalue, or 1 where all are 0: then it scales nothing."""
    found = float(eigsh(op, 1, degenerate=False).values)
    return found if found > 0 else 1.0
