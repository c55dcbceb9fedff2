r"""The spectrum of a training kernel, and what gradient flow makes of it at all times at once.

A kernel of several outputs comes as one matrix $(n, n')$ for all, one for each, $(n, n', k)$, or
with all pairs, $(n, n', k, k)$. Here each is a batch of matrices: one of size $n$ whose targets are
$k$ columns, $k$ of size $n$, one of size $n k$.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats

__all__ = ["FlowSpectrum", "as_matrices", "as_outputs", "as_targets"]


def as_matrices(K: Float[Tensor, " n1 n2 ..."]) -> Float[Tensor, " batch m1 m2"]:
    """A kernel of several outputs as a batch of matrices."""
    if K.ndim == 2:
        return K[None]
    if K.ndim == 3:
        return K.permute(2, 0, 1)
    return K.permute(0, 2, 1, 3).reshape(1, K.shape[0] * K.shape[2], -1)


def as_targets(y: Float[Tensor, " n k"], ndim: int) -> Float[Tensor, " batch m columns"]:
    """Targets as the columns that belong to a kernel with so many axes."""
    return y[None] if ndim == 2 else y.T[..., None] if ndim == 3 else y.reshape(1, -1, 1)


def as_outputs(
    values: Float[Tensor, " T batch m columns"], ndim: int, k: int
) -> Float[Tensor, " T n k"]:
    """Columns as outputs again."""
    if ndim == 3:
        return values[..., 0].mT
    return values.reshape(len(values), -1, k)


class FlowSpectrum:
    r"""The eigenvalues $\lambda$ and vectors $Q$ of a kernel on the training set.

    Those up to $N \epsilon \max \lambda$, for $N$ of them in precision $\epsilon$, are zero up to
    rounding.

    Raises:
        ValueError: If the kernel is not symmetric and positive semidefinite up to rounding.
    """

    def __init__(self, K: Float[Tensor, " batch m m"]):
        eps = torch.finfo(K.dtype).eps
        floats("kernel(x_train, x_train)", K)
        gap, scale = float((K - K.mT).abs().max()), float(K.abs().max())
        if gap > eps**0.5 * scale:
            raise ValueError(
                "kernel must be symmetric, got entries on x_train that differ from their mirror"
                f" images by up to {gap:.3g}"
            )
        self.values, self.vectors = torch.linalg.eigh((K + K.mT) / 2)
        least, most = float(self.values.min()), float(self.values.max())
        if least < -(eps**0.5) * max(most, 0.0):
            raise ValueError(
                f"kernel must be positive semidefinite, got the eigenvalue {least:.6g} on x_train"
            )
        self.values = self.values.clamp(min=0)
        self.threshold = self.values.shape[-1] * eps * most
        self.rank = int((self.values > self.threshold).sum())

    def filters(self, t: Float[Tensor, " T"]) -> Float[Tensor, " T batch m"]:
        r"""The numbers $(1 - e^{-\lambda t}) / \lambda$, which are $t$ where $\lambda = 0$.

        An eigenvalue that may be rounding counts as long as that could not matter, while $t$ is
        below the inverse of the threshold, and is left out from then on.
        """
        times = t.to(self.values)[:, None, None]
        rates = self.values.expand(len(t), *self.values.shape)
        tiny = torch.finfo(rates.dtype).tiny
        found = torch.where(
            rates > tiny, -torch.expm1(-rates * times) / rates.clamp(min=tiny), times
        )
        out = (rates <= self.threshold) & (times * self.threshold > 1)
        return found.masked_fill(out | (rates <= 0) & times.isinf(), 0.0)
