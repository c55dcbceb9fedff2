r"""How well a kernel fits targets: the cosine between its matrix and that of the targets.

For the Gram matrix $K$ of $n$ examples and targets $Y \in \mathbb{R}^{n \times m}$ the alignment is

$$A = \frac{\langle K, Y Y^T \rangle_F}{\|K\|_F\, \|Y Y^T\|_F} \in [0, 1]$$

for kernels (which are positive semidefinite). It is 1 for $K \propto Y Y^T$. *Centred*, both
matrices are multiplied by $I - \mathbf{1} \mathbf{1}^T / n$ from both sides first, so that constant
functions do not count. Exact up to rounding, and differentiable in $K$.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.arguments import floats, symmetric

__all__ = ["kernel_alignment"]


def kernel_alignment(
    K: Float[Tensor, " ..."], y: Shaped[Tensor, " ..."], *, centered: bool = False
) -> Float[Tensor, ""]:
    r"""The alignment of a kernel's matrix with targets, from 0 (none) to 1.

    Args:
        K: The Gram matrix, symmetric; or the tangent kernel (n, n, k, k) of a network with k
            outputs, for targets (n, k).
        y: The targets, numbers (n,) or (n, m); or classes, integers (n,), which stand for rows of
            the identity matrix.
        centered: Whether to leave out what is constant over the examples, which is advisable for
            classes.

    Raises:
        ValueError: If `K` is not symmetric, the shapes do not match, or `K` or `y` is zero
            (centred: constant).

    References:
        Cristianini, Shawe-Taylor, Elisseeff and Kandola, On kernel-target alignment, NeurIPS, 2001.
        Cortes, Mohri and Rostamizadeh, Algorithms for learning kernels based on centered alignment,
        JMLR 13, 2012.

    Example:
        >>> y = torch.tensor([1.0, -1.0, 1.0])
        >>> kernel_alignment(torch.outer(y, y), y)
        tensor(1.)
        >>> round(float(kernel_alignment(torch.eye(3), y)), 4)  # 3 / (sqrt(3) 3)
        0.5774
    """
    K = floats("K", K)
    if K.ndim not in (2, 4) or K.shape[0] != K.shape[1] or K.shape[2:3] != K.shape[3:4]:
        raise ValueError(f"K must have shape (n, n) or (n, n, k, k), got {tuple(K.shape)}")
    n, k = len(K), (*K.shape[2:], 1)[0]
    Y = _targets(y, n, k if K.ndim == 4 else None).to(K.device, K.dtype)
    before = Y
    flat = whole = symmetric("K", (K.transpose(1, 2) if K.ndim == 4 else K).reshape(n * k, n * k))
    if centered:
        Y = Y - Y.mean(0)
        blocks = flat.view(n, k, n, k)
        blocks = blocks - blocks.mean(0, keepdim=True)
        flat = (blocks - blocks.mean(2, keepdim=True)).reshape(n * k, n * k)
    if K.ndim == 4:
        Y = Y.reshape(n * k, 1)
    eps = n * torch.finfo(K.dtype).eps
    for name, now, then in (("K", flat, whole), ("y", Y, before)):
        if float(now.detach().abs().max()) <= eps * float(then.detach().abs().max()):
            raise ValueError(f"{name} must not be {'constant' if centered else 'zero'}")
    sizes = torch.linalg.matrix_norm(flat), torch.linalg.matrix_norm(Y.T @ Y)
    return (Y * (flat @ Y)).sum() / (sizes[0] * sizes[1])


def _targets(y: Tensor, n: int, k: int | None) -> Tensor:
    """Targets as columns, classes as rows of the identity matrix."""
    if isinstance(y, Tensor) and not y.is_floating_point() and not y.is_complex():
        if y.ndim != 1 or y.dtype == torch.bool or (len(y) and int(y.min()) < 0):
            raise ValueError(
                f"y must be numbers or classes 0, 1, ..., got {y.dtype} of shape {tuple(y.shape)}"
            )
        y = torch.nn.functional.one_hot(y.long(), k or -1).float()
    y = floats("y", y)
    y = y.reshape(len(y), -1) if y.ndim else y[None, None]
    if len(y) != n or (k is not None and y.shape[1] != k):
        wanted = f"{n} rows" if k is None else f"shape ({n}, {k})"
        raise ValueError(f"y must have {wanted}, got shape {tuple(y.shape)}")
    return y
