r"""Linear flows $x = A z + b$ whose determinant and inverse are cheap by the form of $A$.

$$A = D, \qquad A = L D, \qquad A = Q\, U D$$

with $D = \operatorname{diag}(e^s)$, unit triangular $L$ (lower) and $U$ (upper), and an orthogonal
$Q = H_1 \cdots H_d$ of reflections $H_i = I - 2 v_i v_i^\top / \|v_i\|^2$. Always
$\log|\det A| = \sum_i s_i$; the inverse is a division, a substitution, or a product and a
substitution, $O(d)$ and $O(d^2)$ a point. All reflections are applied at once,

$$Q = I - V S^{-1} V^\top, \qquad S = \operatorname{triu}(V^\top V, 1) + \tfrac12
\operatorname{diag}(\|v_i\|^2),$$

for which $V^\top V$ is formed once a call, $O(d^3)$. A context moves $b$ and $s$ linearly. Exact;
checked by the claims `generative.linear_flow`, `generative.diagonal_flow` and
`generative.triangular_flow`.

References:
    Joffrain, Low, Quintana-Orti, van de Geijn and Van Zee, Accumulating Householder
    transformations, revisited, ACM Transactions on Mathematical Software, 2006.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.generative.flows._density import Flow, Transformed

__all__ = ["LinearFlow"]


class LinearFlow(Flow):
    """Data as an invertible linear map of noise, x = A z + b, with a positive diagonal.

    Args:
        d: How many coordinates there are.
        kind: The form of A: "qr", an orthogonal matrix times an upper triangular one, which is any
            invertible matrix up to the sign of one column; "triangular", a lower triangular one; or
            "diagonal", with which coordinates stay independent.
        context: How wide the context is, 0 for none; it moves b and the logarithms of A's scales.

    Example:
        >>> flow = LinearFlow(2, kind="diagonal")
        >>> flow.log_scale.data = torch.tensor([2.0, 0.5]).log()
        >>> flow.shift.data = torch.ones(2)
        >>> with torch.no_grad():
        ...     flow(torch.tensor([[3.0, 2.0]]))
        Transformed(value=tensor([[1., 2.]]), log_det=tensor([...]))
    """

    def __init__(
        self,
        d: int,
        *,
        kind: Literal["qr", "triangular", "diagonal"] = "qr",
        context: int = 0,
    ):
        super().__init__(d, context)
        self.kind = choice("kind", kind, ("qr", "triangular", "diagonal"))
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))
        self.mixing = nn.Parameter(torch.randn(d, d) / d) if kind != "diagonal" else None
        self.reflections = nn.Parameter(torch.randn(d, d)) if kind == "qr" else None
        self.moved = nn.Linear(context, 2 * d, bias=False) if context else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Solve A z = x - b."""
        log_scale, shift = self._moved(self._given(x, context))
        z = x - shift
        if self.reflections is not None:
            z = self._turned(z, back=True)
        if self.mixing is not None:  # rows are points: z U^T = y
            upper = self.kind == "qr"
            z = _solved(self.mixing.T, z, upper=not upper, unitriangular=True)
        return Transformed(z * torch.exp(-log_scale), -log_scale.sum(-1).expand(len(x)))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Multiply, A z + b."""
        log_scale, shift = self._moved(self._given(z, context, "z"))
        x = z * torch.exp(log_scale)
        if self.mixing is not None:
            strict = self.mixing.triu(1) if self.kind == "qr" else self.mixing.tril(-1)
            x = x + x @ strict.T
        if self.reflections is not None:
            x = self._turned(x, back=False)
        return Transformed(x + shift, log_scale.sum(-1).expand(len(z)))

    def extra_repr(self) -> str:
        """The sizes and the kind."""
        return f"{super().extra_repr()}, kind={self.kind!r}"

    def _moved(self, context: Tensor | None) -> tuple[Tensor, Tensor]:
        if context is None or self.moved is None:
            return self.log_scale, self.shift
        scale, shift = self.moved(context).chunk(2, -1)
        return self.log_scale + scale, self.shift + shift

    def _turned(self, x: Tensor, *, back: bool) -> Tensor:
        """Rows times the transpose of Q, or times Q."""
        V = self.reflections
        assert V is not None
        gram = V.T @ V
        S = gram.triu(1) + 0.5 * gram.diagonal().diag()
        factor = S if back else S.T
        return x - _solved(factor, x @ V, upper=back) @ V.T


def _solved(A: Tensor, rows: Tensor, *, upper: bool, unitriangular: bool = False) -> Tensor:
    """Rows y of y A = rows; in single precision at least, since torch has no half one."""
    wide = torch.promote_types(A.dtype, torch.float32)
    found = torch.linalg.solve_triangular(
        A.to(wide), rows.to(wide), upper=upper, left=False, unitriangular=unitriangular
    )
    return found.to(rows.dtype)
