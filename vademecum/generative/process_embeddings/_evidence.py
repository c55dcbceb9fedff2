r"""The likelihood of latent points, its gradient, and its maximum for the linear kernel.

The $D$ columns of the centred data $X \in \mathbb R^{N \times D}$ are independent draws of
$\mathcal N(0, A)$ with $A = K(Z) + \sigma^2 I$. With $S = \frac1D X X^\top$,

$$L = -\tfrac D2 \big(N \log 2 \pi + \log \det A + \operatorname{tr} A^{-1} S\big), \qquad
\frac{\partial L}{\partial A} = G = \tfrac D2 \big(A^{-1} S A^{-1} - A^{-1}\big),$$

and every other derivative is $\sum_{ij} G_{ij}\, \partial A_{ij}$: to $\log \sigma$ it is
$2 \sigma^2 \operatorname{tr} G$, and through the kernel automatic differentiation gives it. $X$
enters by $X X^\top$ alone, so that $N$ columns are enough.

For $K = Z Z^\top$ the maximum is $Z = U_q (\Lambda_q - \sigma^2)_+^{1/2}$ with the leading
eigenpairs of $S$, and the best $\sigma^2$ is the mean of the other $N - q$ eigenvalues. Exact.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.kernels import Kernel

__all__ = ["Likelihood", "closed_form", "columns", "likelihood"]


class Likelihood(NamedTuple):
    """The log-likelihood and its derivatives."""

    value: float
    points: Float[Tensor, " n q"]
    """To the latent points."""
    logs: dict[str, Tensor]
    """To the logarithms of the kernel's hyperparameters."""
    log_noise: float
    """To the logarithm of the noise's standard deviation."""


def columns(x: Float[Tensor, " n d"]) -> Float[Tensor, " n r"]:
    """A matrix with the same products of rows, and at most n columns."""
    return torch.linalg.qr(x.T, mode="r").R.T if x.shape[1] > len(x) else x


def likelihood(
    kernel: Any, noise: float, Z: Float[Tensor, " n q"], Y: Float[Tensor, " n r"], D: int
) -> Likelihood | None:
    """The log-likelihood of latent points and its gradient; None where A is singular.

    Args:
        kernel: A `Kernel`, or a function of two sets of points that can be differentiated.
        noise: The standard deviation of the noise.
        Z: The latent points.
        Y: The data, or `columns` of them.
        D: How many columns the data have.
    """
    known = kernel.hyperparameters() if isinstance(kernel, Kernel) else {}
    with torch.enable_grad():
        points = Z.detach().clone().requires_grad_()
        logs = {
            name: torch.as_tensor(h, dtype=Z.dtype, device=Z.device).detach().log().requires_grad_()
            for name, h in known.items()
        }
        at = kernel.replaced({k: v.exp() for k, v in logs.items()}) if logs else kernel
        K = at(points, points)
    n = len(Z)
    lower, info = torch.linalg.cholesky_ex(K.detach() + noise**2 * torch.eye(n).to(Z))
    if info:
        return None
    inverse = torch.cholesky_inverse(lower)
    alpha = inverse @ Y
    fit, log_det = float((alpha * Y).sum()), 2 * float(lower.diagonal().log().sum())
    value = -(D * (n * math.log(2 * math.pi) + log_det) + fit) / 2
    G = (alpha @ alpha.T - D * inverse) / 2
    slopes = torch.autograd.grad(K, [points, *logs.values()], (G + G.T) / 2)
    return Likelihood(
        value, slopes[0], dict(zip(logs, slopes[1:], strict=True)), 2 * noise**2 * float(G.trace())
    )


def closed_form(
    x: Float[Tensor, " n d"], q: int, noise: float | None
) -> tuple[Float[Tensor, " n q"], float]:
    """The likeliest latent points for the linear kernel, and the noise.

    Raises:
        ValueError: If the noise is to be learnt and nothing is left for it.
    """
    n, d = x.shape
    U, s, _ = torch.linalg.svd(x, full_matrices=False)
    values = s.square() / d
    if noise is None:
        rest = float(values[q:].sum()) / (n - q) if n > q else 0.0
        if not rest > torch.finfo(x.dtype).eps * float(values.sum()):
            raise ValueError(
                f"noise must be given: {q} components leave nothing of the data, whose likelihood"
                " then has no maximum"
            )
        noise = math.sqrt(rest)
    Z = U[:, :q] * (values[:q] - noise**2).clamp(min=0).sqrt()
    top = Z.gather(0, Z.abs().argmax(0, keepdim=True)).sign()
    return Z * torch.where(top == 0, 1.0, top), noise
