r"""Deep linear networks.

$$f(x) = A x, \qquad A = W^L W^{L-1} \cdots W^1, \qquad W^l \in \mathbb R^{d_l \times d_{l-1}}.$$

The map is linear and the loss is not convex in the weights: all that is peculiar to depth shows. If
a loss depends on the weights through $A$ alone and has gradient $G = \nabla_A \ell$ there, then by
the chain rule, with empty products read as identities,

$$\nabla_{W^l} \ell = (W^L \cdots W^{l+1})^\top\, G\, (W^{l-1} \cdots W^1)^\top .$$

Weights are *balanced* if $W^{l+1 \top} W^{l+1} = W^l W^{l \top}$ for all $l$, which gradient flow
preserves. With $A = U S V^\top$ the weights $W^1 = S^{1/L} V^\top$, $W^l = S^{1/L}$,
$W^L = U S^{1/L}$, padded by zeros to the wanted widths, are balanced and have the product $A$.

All formulas are exact. The claims are `deep_linear_gradient`, `two_layer_gradients` and
`two_layer_risk`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole

__all__ = ["DeepLinearNetwork"]


class DeepLinearNetwork(nn.Module):
    r"""The map $x \mapsto W^L \cdots W^1 x$.

    Weights start as independent normal numbers of variance $\text{scale}^2 / d_{l-1}$;
    `balanced` and `aligned` make networks that start elsewhere.

    Args:
        widths: The numbers $d_0, \dots, d_L$, from the input to the output.
        scale: The size of the weights at the start.

    Attributes:
        weights: The matrices $W^1, \dots, W^L$.

    References:
        Saxe, McClelland, Ganguli, Exact solutions to the nonlinear dynamics of learning in deep
        linear neural networks, ICLR, 2014.
        Arora, Cohen, Hazan, On the optimization of deep networks: implicit acceleration by
        overparameterization, ICML, 2018.

    Example:
        >>> network = DeepLinearNetwork.balanced(torch.tensor([[8.0, 0.0], [0.0, 1.0]]), depth=3)
        >>> [w.diagonal().tolist() for w in network.weights]
        [[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]
        >>> network(torch.tensor([1.0, 1.0])).tolist()
        [8.0, 1.0]
    """

    def __init__(self, widths: Sequence[int], *, scale: float = 1.0):
        super().__init__()
        if len(widths) < 2:
            raise ValueError(f"widths must have at least 2 entries, got {list(widths)}")
        self.widths = tuple(whole("widths", d, low=1) for d in widths)
        number("scale", scale, low=0)
        pairs = zip(self.widths[1:], self.widths[:-1], strict=True)
        self.weights = nn.ParameterList(
            nn.Parameter(scale * torch.randn(a, b) / b**0.5 if scale else torch.zeros(a, b))
            for a, b in pairs
        )

    @classmethod
    def balanced(
        cls, matrix: Float[Tensor, " p q"], *, depth: int = 2, width: int | None = None
    ) -> "DeepLinearNetwork":
        r"""A network whose product is `matrix`, with balanced weights.

        Args:
            matrix: The product $A$.
            depth: The number $L$ of layers.
            width: The width of the hidden layers, by default the smaller one of `matrix`. Where its
                rank is larger the product is the best approximation of that rank.
        """
        u, s, vh = torch.linalg.svd(floats("matrix", matrix.detach(), ndim=2), full_matrices=False)
        rounding = max(matrix.shape) * torch.finfo(s.dtype).eps * s[0]
        s = torch.where(s > rounding, s, 0.0)  # whose roots would be no rounding any more
        return cls._of_modes(u, s, vh, depth, width)

    @classmethod
    def aligned(
        cls,
        gamma: Float[Tensor, " p q"],
        strength: float,
        *,
        depth: int = 2,
        width: int | None = None,
    ) -> "DeepLinearNetwork":
        r"""A balanced network with all modes of a target $\Gamma = U \Sigma V^\top$ equally strong.

        Its product is $a_0 U V^\top$ in as many modes as fit, strongest first.

        Args:
            gamma: The target $\Gamma$.
            strength: The strength $a_0 > 0$ of every mode.
            depth: The number $L$ of layers.
            width: The width of the hidden layers, by default the smaller one of `gamma`.

        Example:
            >>> network = DeepLinearNetwork.aligned(torch.diag(torch.tensor([3.0, 2.0])), 0.25)
            >>> network.weights[0].abs().tolist(), network.product().tolist()
            ([[0.5, 0.0], [0.0, 0.5]], [[0.25, 0.0], [0.0, 0.25]])
        """
        number("strength", strength, above=0)
        u, s, vh = torch.linalg.svd(floats("gamma", gamma.detach(), ndim=2), full_matrices=False)
        return cls._of_modes(u, torch.full_like(s, strength), vh, depth, width)

    @classmethod
    def _of_modes(
        cls, u: Tensor, s: Tensor, vh: Tensor, depth: int, width: int | None
    ) -> "DeepLinearNetwork":
        if u.is_complex():
            raise ValueError(f"the matrix must be real, got {u.dtype}")
        whole("depth", depth, low=1)
        width = len(s) if width is None else whole("width", width, low=1)
        widths = [vh.shape[1], *[width] * (depth - 1), u.shape[0]]
        made = cls(widths, scale=0.0).to(s)
        k = min(len(s), *widths)
        root = s[:k] ** (1 / depth)
        with torch.no_grad():
            if depth == 1:
                made.weights[0].copy_(u @ (s[:, None] * vh))
                return made
            made.weights[0][:k] = root[:, None] * vh[:k]
            made.weights[-1][:, :k] = u[:, :k] * root
            for w in list(made.weights)[1:-1]:
                w.diagonal()[:k] = root
        return made

    def forward(self, x: Float[Tensor, " *batch q"]) -> Float[Tensor, " *batch p"]:
        """The outputs, layer by layer."""
        if x.shape[-1:] != self.widths[:1]:
            raise ValueError(f"x must be {self.widths[0]} wide, got shape {tuple(x.shape)}")
        for w in self.weights:
            x = x @ w.mT
        return x

    def product(self) -> Float[Tensor, " p q"]:
        """The end-to-end matrix $A$, differentiable."""
        first, *others = self.weights
        product: Tensor = first
        for w in others:
            product = w @ product
        return product

    @torch.no_grad()
    def gradients(self, outer: Float[Tensor, " p q"]) -> list[Tensor]:
        r"""The gradients in $W^1, \dots, W^L$ of a loss with gradient `outer` in the product $A$.

        Example:
            >>> network = DeepLinearNetwork.balanced(torch.tensor([[4.0]]))
            >>> gamma = torch.tensor([[1.0]])  # of (w2 w1 - 1)^2 / 2 at w1 = w2 = 2: (4 - 1) * 2
            >>> [g.abs().tolist() for g in network.gradients(network.product() - gamma)]
            [[[6.0]], [[6.0]]]
        """
        shape = (self.widths[-1], self.widths[0])
        if tuple(outer.shape) != shape:
            raise ValueError(f"outer must have shape {shape}, got {tuple(outer.shape)}")
        weights, outer = list(self.weights), outer.detach()
        below: list[Tensor | None] = [None]  # the products W^{l-1} ... W^1
        for w in weights[:-1]:
            below.append(w if below[-1] is None else w @ below[-1])
        gradients = []
        for w, inner in zip(reversed(weights), reversed(below), strict=True):
            gradients.append(outer if inner is None else outer @ inner.mT)
            outer = w.mT @ outer
        return gradients[::-1]

    def extra_repr(self) -> str:
        """The widths."""
        return f"widths={self.widths}"
