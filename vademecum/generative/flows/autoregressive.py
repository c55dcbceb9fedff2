r"""Masked and inverse autoregressive flows: triangular maps, one layer after the other.

A layer takes its input $v$ to $v_i e^{s_i} + t_i$, where a masked network gives $s_i$ and $t_i$
from the coordinates before $i$ (in the layer's order), and the context. In that direction all
coordinates are computed at once, and the Jacobian is triangular with determinant $e^{\sum_i s_i}$;
backwards they follow one by one, each unit of the network being computed once. A masked
autoregressive flow (MAF) has its fast direction from data to noise: densities in one pass a layer.
An inverse autoregressive flow (IAF) has it from noise to data. Orders alternate between ascending
and descending.

Scales are squashed, $s \mapsto s / (1 + |s| / \ell)$. Exact up to rounding; checked by the claim
`generative.autoregressive_flow`.

References:
    Papamakarios, Pavlakou and Murray, Masked autoregressive flow for density estimation, NeurIPS
    2017.
    Kingma, Salimans, Jozefowicz, Chen, Sutskever and Welling, Improved variational inference with
    inverse autoregressive flow, NeurIPS 2016.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from vademecum.arguments import number, whole
from vademecum.generative.flows._density import Flow, Transformed
from vademecum.generative.flows._masked_network import MaskedNetwork, Unrolled
from vademecum.generative.flows._replayed import replayed
from vademecum.generative.flows.affine_couplings import squashed

__all__ = ["IAF", "MAF"]


class _Autoregressive(Flow):
    """Layers that are fast one way, and unrolled the other way."""

    def __init__(
        self,
        d: int,
        *,
        transforms: int = 6,
        hidden: Sequence[int] = (128, 128),
        context: int = 0,
        activation: Callable[[], nn.Module] | None = None,
        max_log_scale: float = math.log(1000),
    ):
        super().__init__(d, context)
        self.max_log_scale = number("max_log_scale", max_log_scale, above=0, infinite=True)
        orders = [range(d), range(d - 1, -1, -1)]
        self.networks = nn.ModuleList(
            MaskedNetwork(
                *(d, 2), hidden=hidden, context=context, order=orders[i % 2], activation=activation
            )
            for i in range(whole("transforms", transforms, low=1))
        )

    def _at_once(self, v: Tensor, context: Tensor | None, networks: Sequence) -> Transformed:
        total = v.new_zeros(len(v))
        for network in networks:
            numbers = network(v, context)
            s = squashed(numbers[:, 0], self.max_log_scale)
            v, total = torch.addcmul(numbers[:, 1], v, s.exp()), total + s.sum(1)
        return Transformed(v, total)

    def _one_by_one(self, v: Tensor, context: Tensor | None, networks: Sequence) -> Transformed:
        """Undo layers; where derivatives are wanted, forwards or backwards, without graphs."""
        given = tuple(networks), self.max_log_scale
        tensors = [t for t in (v, context, *self.parameters()) if t is not None]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return unrolled(v, context, *given, buffers=False)
        if v.is_cuda and not any(unpack_dual(t).tangent is not None for t in tensors):
            return replayed(self, partial(unrolled, buffers=True), v, context, given)
        return unrolled(v, context, *given, buffers=True)


def unrolled(
    v: Tensor,
    context: Tensor | None,
    networks: tuple[MaskedNetwork, ...],
    limit: float,
    *,
    buffers: bool,
) -> Transformed:
    """Undo layers one after the other, coordinate by coordinate.

    Args:
        v: What the layers made.
        context: What to condition on.
        networks: The layers' networks, that of the latest layer first.
        limit: The largest logarithm of a scale.
        buffers: Whether to write into buffers, through which no gradients flow back.
    """
    rows, total = v.T.contiguous(), v.new_zeros(len(v))
    for network in networks:
        net = Unrolled(network, len(v), context, buffers=buffers)
        found: list[Tensor] = [v] * v.shape[1]
        scales = []
        for k, i in enumerate(network.order):
            numbers = net.numbers_at(k)
            s = squashed(numbers[0], limit)
            found[i] = (rows[i] - numbers[1]) * torch.exp(-s)
            net.learn(found[i][None])
            scales.append(s)
        rows, total = torch.stack(found), total - torch.stack(scales).sum(0)
    return Transformed(rows.T, total)


class MAF(_Autoregressive):
    """A masked autoregressive flow: densities in one pass a layer.

    Samples are drawn coordinate by coordinate, with about the work of one pass.

    Args:
        d: How many coordinates there are.
        transforms: How many layers there are.
        hidden: The widths of each network's hidden layers.
        context: How wide the context is, 0 for none.
        activation: What makes an activation that acts entry by entry; rectifiers by default.
        max_log_scale: The largest logarithm of a scale; infinite leaves scales as the networks give
            them.

    Example:
        >>> flow = MAF(3, transforms=2, hidden=(8,))
        >>> x = torch.tensor([[0.3, -2.0, 1.0]])
        >>> torch.allclose(flow.inverse(flow(x).value).value, x, atol=1e-5)
        True
    """

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Take data to noise, all coordinates at once."""
        return self._at_once(x, self._given(x, context), list(self.networks))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Take noise to data, coordinate by coordinate."""
        context = self._given(z, context, "z")
        return self._one_by_one(z, context, list(reversed(self.networks)))


class IAF(_Autoregressive):
    """An inverse autoregressive flow: samples in one pass a layer, with their densities.

    Densities of given data are computed coordinate by coordinate.

    Args:
        d: How many coordinates there are.
        transforms: How many layers there are.
        hidden: The widths of each network's hidden layers.
        context: How wide the context is, 0 for none.
        activation: What makes an activation that acts entry by entry; rectifiers by default.
        max_log_scale: The largest logarithm of a scale; infinite leaves scales as the networks give
            them.

    Example:
        >>> flow = IAF(3, transforms=2, hidden=(8,))
        >>> x, log_prob = flow.rsample_with_log_prob(5)
        >>> torch.allclose(flow.log_prob(x), log_prob, atol=1e-4)
        True
    """

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Take data to noise, coordinate by coordinate."""
        return self._one_by_one(x, self._given(x, context), list(self.networks))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Take noise to data, all coordinates at once."""
        context = self._given(z, context, "z")
        return self._at_once(z, context, list(reversed(self.networks)))
