r"""The largest singular values of products that grow by one factor at a time.

For an orthonormal $Q \in \mathbb{R}^{m \times k}$ write $A = P Q$, $G = A^\top A$ and
$R = P^\top A - Q G$. In a basis that begins with $Q$,

$$P^\top P = \begin{pmatrix} G & R^\top \\ R & C \end{pmatrix}, \qquad
\|C\|_2 \le c = \|P\|_F^2 - \operatorname{tr} G ,$$

and if $c < \lambda = \lambda_{\max}(G)$, then $\lambda \le \sigma_{\max}(P)^2 \le \lambda +
\|R\|_F^2 / (\lambda - c)$. Along a product the left singular vectors hardly move once a few
directions prevail, so that $Q$ comes from those of the product before by two steps of subspace
iteration. Where the bounds do not agree to $10^{-10}$, and for small matrices, all singular values
are computed. So all norms are exact up to that.
"""

import torch
from torch import Tensor

__all__ = ["GrowingProduct"]

_SMALL = 96  # coordinates: up to here all singular values cost less than the bounds
_WIDTH = 16  # columns of Q
_CLOSE = 1e-10


class GrowingProduct:
    r"""Products $J_T J_{T-1} \cdots$ of several sequences, and the logarithms of their norms.

    Args:
        n: The number of sequences.
        m: The side of the matrices.
        device: Where they are.
    """

    def __init__(self, n: int, m: int, device: torch.device):
        self._P = torch.eye(m, dtype=torch.float64, device=device).repeat(n, 1, 1)
        self._scale = torch.zeros(n, dtype=torch.float64, device=device)
        self._U = self._P[:, :, :_WIDTH].clone()

    def times(self, J: Tensor) -> Tensor:
        """Multiply by further factors from the right, (n, m, m): the logarithms of the norms."""
        P = self._P @ J
        largest = P.abs().amax((1, 2))
        exponent = torch.frexp(largest).exponent
        power = torch.ldexp(torch.ones_like(largest), exponent)  # exact, and 1 for zeros
        self._P, self._scale = P / power[:, None, None], self._scale + power.log()
        return self._scale + self._norms().log()

    def _norms(self) -> Tensor:
        if self._P.shape[-1] <= _SMALL:
            return torch.linalg.matrix_norm(self._P, 2)
        squares, sure = self._by_subspace()
        if not bool(sure.all()):
            P = self._P[~sure]
            squares[~sure] = torch.linalg.eigvalsh(P @ P.mT)[:, -1]
        return squares.clamp_min(0).sqrt()

    def _by_subspace(self) -> tuple[Tensor, Tensor]:
        """The squares of the norms as far as a subspace knows them, and whether it does."""
        P = self._P
        Q = torch.linalg.qr(P.mT @ (P @ (P.mT @ self._U))).Q
        A = P @ Q
        self._U = torch.linalg.qr(A).Q
        G = A.mT @ A
        R = P.mT @ A - Q @ G
        value = torch.linalg.eigvalsh(G)[:, -1]
        rest = P.square().sum((1, 2)) - G.diagonal(dim1=1, dim2=2).sum(1)
        gap = value - rest.clamp_min(0)
        return value, (gap > 0) & (R.square().sum((1, 2)) <= _CLOSE * value * gap)
