r"""Deep Sets: an encoder for each element, a sum, and a read-out.

$$f(X) = \rho\Bigl(\sum_{x \in X} \varphi(x)\Bigr), \qquad
y_i = \rho\Bigl(x_i, \sum_j \varphi(x_j)\Bigr) ,$$

of which the first does not depend on the order of the elements, and the outputs of the second move
with them. In place of the sum there may be the mean or the maximum: a mean does not know how many
elements there are, a maximum not how often each is there. An empty set has the sum 0; it has
neither a mean nor a maximum, and is refused there. Checked by the claims `deep_sets`,
`deep_sets_equivariant` and `deep_sets_universality`.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.geometry.sets._ragged import ragged

__all__ = ["DeepSets"]


class DeepSets(nn.Module):
    """A function of sets of any size, from networks of one's own.

    Args:
        encoder: What is applied to each element: from (N, d) to (N, m).
        readout: What is applied to the pooled encodings: from (n, m) to (n, k); of an equivariant
            network to each element with the pooled ones behind it, from (N, d + m) to (N, k).
        aggregate: How encodings are pooled.
        equivariant: Whether each element has an output, and not each set.

    References:
        Zaheer et al., Deep sets, NeurIPS, 2017.

    Example:
        >>> class Powers(nn.Module):
        ...     def forward(self, x):
        ...         return torch.cat([x**0, x, x**2], 1)
        >>> class Variance(nn.Module):
        ...     def forward(self, s):
        ...         return s[:, 2] / s[:, 0] - (s[:, 1] / s[:, 0]) ** 2
        >>> net = DeepSets(Powers(), Variance())
        >>> net(torch.tensor([[[1.0], [3.0]], [[2.0], [2.0]]]))
        tensor([1., 0.])
    """

    def __init__(
        self,
        encoder: nn.Module,
        readout: nn.Module,
        *,
        aggregate: Literal["sum", "mean", "max"] = "sum",
        equivariant: bool = False,
    ):
        super().__init__()
        self.aggregate = choice("aggregate", aggregate, ("sum", "mean", "max"))
        self.equivariant = equivariant
        self.encoder, self.readout = encoder, readout

    def forward(
        self,
        x: Float[Tensor, " *rows d"],
        *,
        mask: Bool[Tensor, " n M"] | None = None,
        segments: Int[Tensor, " N"] | None = None,
        num_sets: int | None = None,
    ) -> Float[Tensor, " ..."]:
        """The outputs of sets, (n, k), or of their elements, where these are; padding gets zeros.

        Args:
            x: Sets, padded to a common size, (n, M, d), or packed, (N, d).
            mask: True where there is an element; everywhere by default.
            segments: The number of the set that each packed element belongs to, in any order.
            num_sets: How many packed sets there are, where the last ones may be empty.
        """
        sets = ragged(x, mask, segments, num_sets, d=None, empty=self.aggregate == "sum")
        pooled = sets.pooled(self.encoder(sets.rows), self.aggregate)
        if not self.equivariant:
            return self.readout(pooled)
        return sets.unpacked(self.readout(torch.cat([sets.rows, sets.spread(pooled)], 1)))

    def extra_repr(self) -> str:
        """The options, as the constructor takes them."""
        return f"aggregate={self.aggregate!r}, equivariant={self.equivariant}"
