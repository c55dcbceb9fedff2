r"""Flows one after the other: $f = f_L \circ \dots \circ f_1$ from data to noise.

The inverse is $f_1^{-1} \circ \dots \circ f_L^{-1}$, and log-determinants add, each taken at its
own intermediate point. Exact; checked by the claim `generative.flow_composition`.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from vademecum.generative.flows._density import Flow, Transformed

__all__ = ["Compose"]


class Compose(Flow):
    """Several flows as one; data pass through them in the order in which they are given.

    Args:
        flows: Invertible maps, one or more: flows of this room, or any modules with the same
            `forward(x, context)` and `inverse(z, context)`, each giving a value and a
            log-determinant, and with integers `d` and `context`. Those whose `context` is 0 are
            called without.

    Example:
        >>> from vademecum.generative import LinearFlow, PlanarFlow
        >>> flow = Compose([LinearFlow(2, kind="diagonal"), PlanarFlow(2)])
        >>> flow.log_prob(torch.zeros(5, 2)).shape
        torch.Size([5])
    """

    def __init__(self, flows: Iterable[nn.Module]):
        given: list[Any] = list(flows)
        if not given:
            raise ValueError("flows must be one or more, got none")
        for flow in given:
            if not all(hasattr(flow, name) for name in ("d", "context", "inverse")):
                raise ValueError(
                    f"flows must have d, context and inverse, got a {type(flow).__name__}"
                )
        if len({flow.d for flow in given}) > 1:
            raise ValueError(f"flows must agree in d, got {[flow.d for flow in given]}")
        widths = {flow.context for flow in given if flow.context}
        if len(widths) > 1:
            raise ValueError(f"flows must agree in context, got {sorted(widths)}")
        super().__init__(given[0].d, widths.pop() if widths else 0)
        self.flows = nn.ModuleList(given)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Take data through all flows, the first one first."""
        context = self._given(x, context)
        total = x.new_zeros(len(x))
        for flow in self.flows:
            x, log_det = flow(x, context if flow.context else None)
            total = total + log_det
        return Transformed(x, total)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Take noise back through all flows, the last one first."""
        context = self._given(z, context, "z")
        total = z.new_zeros(len(z))
        for flow in reversed(self.flows):
            flow: Any = flow
            z, log_det = flow.inverse(z, context if flow.context else None)
            total = total + log_det
        return Transformed(z, total)
