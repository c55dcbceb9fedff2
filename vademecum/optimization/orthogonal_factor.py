r"""The orthogonal factor of a matrix: all its singular values replaced by one.

For $M = U \Sigma V^T$ (thin singular value decomposition) the factor is $P = U V^T$: of all
matrices with orthonormal rows or columns the nearest to $M$, and the one with the largest inner
product $\langle M, P \rangle = \sum_i \sigma_i$. An odd polynomial acts on singular values alone,

$$p(X) = a X + b\, (X X^T) X + c\, (X X^T)^2 X = U\, p(\Sigma)\, V^T ,$$

so that repeating $X \leftarrow p(X)$ from $X = M / \|M\|_F$ drives them to one with products of
matrices, where these are fast and decompositions are not.

`"newton_schulz"` applies the same polynomial in every step, $(3.4445, -4.7750, 2.0315)$ unless
given: after 5 steps singular values $\sigma_i \ge 0.0065\, \|M\|_F$ lie between 0.68 and 1.14, and
further steps bring them no closer. `"polar_express"` applies in every step the best polynomial for
what the steps before have left of $[10^{-3}, 1]$: singular values $\sigma_i \ge 10^{-3}\, \|M\|_F$
are within 0.12 of one after 5 steps, within $10^{-3}$ after 6, within rounding after 8. `"svd"` is
the decomposition.

Newton's and Schulz' own iteration $\frac32 X - \frac12 X X^T X$ is `coefficients=(1.5, -0.5, 0)`;
it converges from every start with $\|X\|_2 < \sqrt 3$, slowly at first. Where $M$ has no full
rank, singular values that are zero stay zero, also by decomposition; in an iteration their rounding
errors grow as all small values do. The claim is
`optimization.orthogonalize`.
"""

import torch
from jaxtyping import Inexact
from torch import Tensor

from vademecum.arguments import choice, floats, number, whole
from vademecum.optimization._polar_polynomials import Quintic, express

__all__ = ["orthogonalize"]

METHODS = ("newton_schulz", "polar_express", "svd")
_JORDAN: Quintic = (3.4445, -4.7750, 2.0315)
_LOWEST = 1e-3  # the least singular value, over the Frobenius norm, that five steps are made for
_STEPS = 5


def orthogonalize(
    M: Inexact[Tensor, " *stack m n"],
    *,
    method: str = "newton_schulz",
    steps: int | None = None,
    coefficients: tuple[float, float, float] | None = None,
    dtype: torch.dtype | None = None,
) -> Inexact[Tensor, " *stack m n"]:
    r"""The orthogonal factor $U V^T$ of a matrix $U \Sigma V^T$, or of each of a stack.

    It does not depend on the scale of the matrix. Gradients flow.

    Args:
        M: A matrix, real or complex, or a stack of them.
        method: "newton_schulz" and "polar_express" are iterations and approximate, "svd" is exact.
        steps: How many times a polynomial is applied, all of them; 5 by default.
        coefficients: The $a, b, c$ of "newton_schulz".
        dtype: Of the products; by default that of the matrix, or float32 for half precision on a
            CPU, which multiplies that faster.

    Returns:
        The factors, in the shape and dtype of the matrix.

    References:
        Jordan and others, Muon: an optimizer for hidden layers in neural networks, 2024. Amsel,
        Persson, Musco and Gower, The Polar Express, 2025.

    Example:
        >>> M = torch.tensor([[3.0, 0.0], [0.0, -4.0]])
        >>> orthogonalize(M, method="svd")
        tensor([[ 1., 0.], [ 0., -1.]])
        >>> orthogonalize(M, coefficients=(1.5, -0.5, 0.0), steps=1)  # of 0.6 and -0.8
        tensor([[ 0.7920,  0.0000],
                [ 0.0000, -0.9440]])
    """
    M = floats("M", M)
    if M.ndim < 2:
        raise ValueError(f"M must have at least 2 axes, got shape {tuple(M.shape)}")
    rule = polynomials(method, steps, coefficients)
    return factors(M, rule, product_dtype(M, dtype))


def polynomials(
    method: str, steps: int | None, coefficients: tuple[float, float, float] | None
) -> tuple[Quintic, ...]:
    """The polynomials that a method applies in turn; none stand for the decomposition."""
    choice("method", method, METHODS)
    if method == "svd" and steps is not None:
        raise ValueError(f"steps must be None for method 'svd', got {steps!r}")
    if method != "newton_schulz" and coefficients is not None:
        raise ValueError(f"coefficients must be None for method {method!r}, got {coefficients!r}")
    count = whole("steps", _STEPS if steps is None else steps, low=1)
    if method == "svd":
        return ()
    if method == "polar_express":
        return express(count, _LOWEST)[0]
    given = _JORDAN if coefficients is None else tuple(coefficients)
    if len(given) != 3:
        raise ValueError(f"coefficients must be three numbers, got {coefficients!r}")
    a, b, c = (number(f"coefficients[{i}]", value) for i, value in enumerate(given))
    return ((a, b, c),) * count


def factors(M: Tensor, rule: tuple[Quintic, ...], dtype: torch.dtype) -> Tensor:
    """The orthogonal factors of a stack by these polynomials, multiplied in this dtype."""
    if not rule:
        return _decomposed(M)
    X = M.mH if M.shape[-2] > M.shape[-1] else M
    X = X.reshape(-1, *X.shape[-2:])
    X = (X / _largest(X)).to(dtype)  # no square over- or underflows
    # Rounding may leave the norm above one, where polynomials are steep: 1 % more in bfloat16.
    length = torch.linalg.matrix_norm(X.float() if X.itemsize < 4 else X, keepdim=True)
    X = X / (length.clamp(min=1) * (1 + 1.3 * torch.finfo(dtype).eps)).to(dtype)
    for a, b, c in rule:
        G = X @ X.mH
        H = torch.baddbmm(G, G, G, beta=b, alpha=c) if c else b * G
        X = torch.baddbmm(X, H, X, beta=a)
    X = X.reshape(*M.shape[:-2], *X.shape[-2:])
    return (X.mH if M.shape[-2] > M.shape[-1] else X).to(M.dtype)


def _largest(X: Tensor) -> Tensor:
    """The largest modulus of each matrix, one for those that are zero; a constant for autograd."""
    largest = X.detach().abs().amax((-2, -1), keepdim=True)
    return torch.where(largest > 0, largest, 1)


def _decomposed(M: Tensor) -> Tensor:
    wide = M.float() if M.itemsize < 4 else M
    U, S, Vh = torch.linalg.svd(wide / _largest(wide), full_matrices=False)
    rounding = max(M.shape[-2:]) * torch.finfo(wide.dtype).eps
    kept = rounding * S[..., :1] < S
    return ((U * kept[..., None, :]) @ Vh).to(M.dtype)


def product_dtype(M: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        half = M.itemsize < 4 and M.device.type == "cpu"
        return torch.float32 if half else M.dtype
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"dtype must be a floating-point dtype, got {dtype!r}")
    if dtype.is_complex != M.is_complex():
        raise ValueError(f"dtype must be {'complex' if M.is_complex() else 'real'}, got {dtype}")
    return dtype
