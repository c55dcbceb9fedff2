"""Spline flows: coupling layers whose function is a rational-quadratic spline.

Within the outermost knots a layer can take any increasing form, outside it is the identity. Exact
up to rounding; densities integrate to one whatever the parameters are.

References:
    Durkan, Bekasov, Murray and Papamakarios, Neural spline flows, NeurIPS 2019.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.generative.flows._couplings import Bent, Coupling, Network, perceptrons
from vademecum.generative.flows._rational_quadratic import bent_by_spline, unbent_by_spline

__all__ = ["SplineFlow"]


class SplineFlow(Coupling):
    """A flow of spline couplings: more flexible than affine ones, fast both ways.

    Standardise data first: what lies outside of the knots is left as it is.

    Args:
        d: How many coordinates there are, at least 2.
        transforms: How many layers there are; they bend the two halves in turn, so that fewer than
            2 leave half of the coordinates alone.
        bins: How many pieces a spline has, at least 2.
        bound: The outermost knots are at minus and plus this.
        hidden: The widths of each network's hidden layers.
        context: How wide the context is, 0 for none.
        network: What makes a layer's network from its numbers of inputs (half of the coordinates
            and the context) and outputs (widths, heights and slopes, each for all coordinates), in
            place of perceptrons. Rows must not depend on each other, as they do in BatchNorm while
            it trains.

    Example:
        >>> flow = SplineFlow(2, transforms=2, hidden=(8,))
        >>> x = torch.tensor([[0.3, -2.0], [1e6, 7.0]])
        >>> flow(x).value[1], torch.allclose(flow.inverse(flow(x).value).value, x, atol=1e-5)
        (tensor([1.0000e+06, 7.0000e+00], ...), True)
    """

    def __init__(
        self,
        d: int,
        *,
        transforms: int = 6,
        bins: int = 8,
        bound: float = 5.0,
        hidden: Sequence[int] = (128, 128),
        context: int = 0,
        network: Network | None = None,
    ):
        whole("bins", bins, low=2)
        super().__init__(d, context, transforms, 3 * bins - 1, network or perceptrons(hidden))
        self.bins, self.bound = bins, number("bound", bound, above=0)

    def _bend(self, x: Tensor, numbers: Tensor) -> Bent:
        return Bent(*(t.to(x.dtype) for t in bent_by_spline(*_fine(x, numbers), self.bound)))

    def _unbend(self, z: Tensor, numbers: Tensor) -> Bent:
        return Bent(*(t.to(z.dtype) for t in unbent_by_spline(*_fine(z, numbers), self.bound)))


def _fine(x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """At least single precision: with half of it, narrow bins are lost."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.to(dtype), numbers.to(dtype)
