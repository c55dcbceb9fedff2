r"""RealNVP: coupling layers that scale and shift, $\tau(x; s, t) = x e^s + t$.

The networks' scales are squashed, $s \mapsto s / (1 + |s| / \ell)$ with a limit $\ell$, so that no
layer stretches by more than $e^\ell$. Exact; checked by the claim `generative.realnvp_coupling`.

References:
    Dinh, Sohl-Dickstein and Bengio, Density estimation using Real NVP, ICLR 2017.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vademecum.arguments import number
from vademecum.generative.flows._couplings import Bent, Coupling, Network, perceptrons

__all__ = ["RealNVP", "squashed"]


def squashed(s: Tensor, limit: float) -> Tensor:
    """Numbers drawn into (-limit, limit), small ones hardly.

    Example:
        >>> squashed(torch.tensor([0.0, 2.0, -1e9]), 2.0)
        tensor([ 0.,  1., -2.])
    """
    return s if math.isinf(limit) else s / (1 + s.abs() / limit)


class RealNVP(Coupling):
    """A flow of affine couplings: fast both ways.

    Args:
        d: How many coordinates there are, at least 2.
        transforms: How many layers there are; they bend the two halves in turn, so that fewer than
            2 leave half of the coordinates alone.
        hidden: The widths of each network's hidden layers.
        context: How wide the context is, 0 for none.
        network: What makes a layer's network from its numbers of inputs (half of the coordinates
            and the context) and outputs (scales, then shifts), in place of perceptrons. Rows must
            not depend on each other, as they do in BatchNorm while it trains.
        max_log_scale: The largest logarithm of a scale; infinite leaves scales as the networks give
            them.

    Example:
        >>> flow = RealNVP(3, transforms=2, hidden=(8,))
        >>> x = torch.tensor([[0.3, -2.0, 1.0]])
        >>> torch.allclose(flow.inverse(flow(x).value).value, x, atol=1e-5)
        True
    """

    def __init__(
        self,
        d: int,
        *,
        transforms: int = 6,
        hidden: Sequence[int] = (128, 128),
        context: int = 0,
        network: Network | None = None,
        max_log_scale: float = math.log(1000),
    ):
        super().__init__(d, context, transforms, 2, network or perceptrons(hidden))
        self.max_log_scale = number("max_log_scale", max_log_scale, above=0, infinite=True)

    def _bend(self, x: Tensor, numbers: Tensor) -> Bent:
        s, t = numbers.unbind(1)
        s = squashed(s, self.max_log_scale)
        return Bent(torch.addcmul(t, x, s.exp()), s)

    def _unbend(self, z: Tensor, numbers: Tensor) -> Bent:
        s, t = numbers.unbind(1)
        s = -squashed(s, self.max_log_scale)
        return Bent((z - t) * s.exp(), s)
