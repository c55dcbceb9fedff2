r"""Planar flows $f(x) = x + \hat u\, \sigma(w^\top x + b)$, which bend space along one direction.

By the matrix determinant lemma $\det \partial f(x) = 1 + \sigma'(w^\top x + b)\, \hat u^\top w$.
Along $w$ the map is the scalar function $g(t) = t + (\hat u^\top w)\, \sigma(t + b)$ of
$t = w^\top x$, and $f$ is invertible iff $g$ increases. The free parameter $u$ is moved along $w$,

$$\hat u = u + \big(m(u^\top w) - u^\top w\big)\, w / \|w\|^2, \qquad
m(a) = -\frac{1 - \delta}{\sup \sigma'} + \log(1 + e^a),$$

so that $g' \ge \delta = 10^{-3}$ whatever the parameters are. The inverse bisects $g(t) = w^\top y$
between $w^\top y - |\hat u^\top w|$ and $w^\top y + |\hat u^\top w|$, where a root must lie since
$|\sigma| \le 1$, down to rounding; two Newton steps carry the gradients, exact to second order.
Checked by the claims `generative.planar_flow_determinant` and
`generative.planar_flow_invertibility`.

References:
    Rezende and Mohamed, Variational inference with normalizing flows, ICML 2015.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from vademecum.arguments import choice
from vademecum.generative.flows._density import Flow, Transformed

__all__ = ["PlanarFlow"]

_SLOPE = 1e-3  # the least derivative along w


class PlanarFlow(Flow):
    """One bend of space along a direction; invertible for every value of the parameters.

    Args:
        d: How many coordinates there are.
        activation: The function that bends, "tanh" or "logistic".
        context: How wide the context is, 0 for none; it moves u, w and b linearly.

    Example:
        >>> flow = PlanarFlow(2)
        >>> x = torch.tensor([[0.3, -2.0]])
        >>> torch.allclose(flow.inverse(flow(x).value).value, x, atol=1e-5)
        True
    """

    def __init__(
        self, d: int, *, activation: Literal["tanh", "logistic"] = "tanh", context: int = 0
    ):
        super().__init__(d, context)
        self.activation = choice("activation", activation, ("tanh", "logistic"))
        self.u, self.w = (nn.Parameter(torch.randn(d) / d**0.5) for _ in range(2))
        self.b = nn.Parameter(torch.randn(1))
        self.moved = nn.Linear(context, 2 * d + 1, bias=False) if context else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Bend."""
        u, w, b, c = self._directions(self._given(x, context))
        bent, slope = self._bend((x * w).sum(-1) + b)
        return Transformed(x + u * bent[:, None], torch.log1p(slope * c))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Find where along w each point came from, and bend back."""
        u, w, b, c = self._directions(self._given(z, context, "z"))
        goal = (z * w).sum(-1)
        t = self._root(goal.detach(), b.detach(), c.detach())
        for _ in range(2):
            bent, slope = self._bend(t + b)
            t = t - (t + c * bent - goal) / (1 + slope * c)
        bent, slope = self._bend(t + b)
        return Transformed(z - u * bent[:, None], -torch.log1p(slope * c))

    def extra_repr(self) -> str:
        """The sizes and the activation."""
        return f"{super().extra_repr()}, activation={self.activation!r}"

    def _directions(self, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The direction in which points move, w, b, and the product of both directions."""
        u, w, b = self.u, self.w, self.b
        if context is not None and self.moved is not None:
            du, dw, db = self.moved(context).split([self.d, self.d, 1], -1)
            u, w, b = u + du, w + dw, (b + db)[:, 0]
        length, product = w.square().sum(-1), (u * w).sum(-1)
        steepest = 1.0 if self.activation == "tanh" else 0.25
        limit = -(1 - _SLOPE) / steepest
        wanted = softplus(product) + limit
        square = torch.where(product < limit, length, length.clamp_min(1e-12))  # w may be 0
        u = u + ((wanted - product) / square)[..., None] * w
        return u, w, b, torch.lerp(product, wanted, length / square)  # no rounding of large u

    def _bend(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """The activation and its derivative."""
        if self.activation == "tanh":
            value = torch.tanh(a)
            return value, 1 - value.square()
        value = torch.sigmoid(a)
        return value, value * (1 - value)

    @torch.no_grad()
    def _root(self, goal: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """The t with t + c sigma(t + b) = goal, by bisection until its ends are neighbours."""
        low, high = goal - c.abs(), goal + c.abs()
        for _ in range(64 if goal.dtype == torch.float64 else 32):
            middle = low + 0.5 * (high - low)
            above = middle + c * self._bend(middle + b)[0] > goal
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return low + 0.5 * (high - low)
