"""Two-layer tanh networks, stacked, with their kernels and training by formulas."""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.kernels import ntk_parametrize

__all__ = ["Scaling", "Wide", "X", "Y", "drawn"]

Scaling = Literal["ntk", "mean field"]
"""What stands before the sum over units: 1 over the root of the width, or over the width."""
X = ((1.0, 0.2), (-0.5, 1.0), (-0.6, -1.0))
"""Three inputs that are well apart."""
Y = (1.0, -1.0, 0.5)
"""Their targets."""


class Wide(NamedTuple):
    r"""Networks $f(x) = s \sum_i v_i \tanh(w_i^\top x / \sqrt 2)$, stacked."""

    w: Tensor  # 2, nets, m
    v: Tensor  # nets, m
    s: float

    def units(self, x: Tensor) -> Tensor:
        """The hidden units, (n, nets, m)."""
        return torch.einsum("dsm,nd->nsm", self.w, x / math.sqrt(2)).tanh()

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs, (n, nets)."""
        return self.s * (self.units(x) * self.v).sum(2)

    def kernel(self, x: Tensor) -> Tensor:
        """The tangent kernel in the coordinates w and v, (nets, n, n), by its formula."""
        a = self.units(x)
        d = (1 - a * a) * self.v
        gram = torch.einsum("ism,jsm->sij", a, a), torch.einsum("ism,jsm->sij", d, d)
        return self.s**2 * (gram[0] + gram[1] * (x @ x.T) / 2)

    def trained(self, x: Tensor, y: Tensor, steps: int) -> "Wide":
        """After steps of gradient descent on half the sum of squares, 1 / lambda_max long."""
        w, v, s = self
        eta = 1 / torch.linalg.eigvalsh(self.kernel(x))[:, -1:]
        for _ in range(steps):
            a = Wide(w, v, s).units(x)
            r = (s * (a * v).sum(2) - y[:, None])[..., None]
            g = torch.einsum("nsm,nd->dsm", r * (1 - a * a), x / math.sqrt(2)) * (s * v)
            v, w = v - eta * s * (a * r).sum(0), w - eta * g
        return Wide(w, v, s)

    def module(self, i: int) -> nn.Module:
        """One of them as a module, whose coordinates are w and v."""
        m = self.v.shape[1]
        net: Any = nn.Sequential(
            nn.Linear(2, m, bias=False), nn.Tanh(), nn.Linear(m, 1, bias=False)
        )
        ntk_parametrize(net, weight_variance=1.0, fan_in={"2.weight": round(self.s**-2)})
        with torch.no_grad():
            net[0].parametrizations.weight.original.copy_(self.w[:, i].T)
            net[2].parametrizations.weight.original.copy_(self.v[i][None])
        return net


def drawn(nets: int, m: int, scaling: Scaling = "ntk") -> Wide:
    """Networks with standard normal coordinates."""
    s = 1 / math.sqrt(m) if scaling == "ntk" else 1 / m
    return Wide(torch.randn(2, nets, m), torch.randn(nets, m), s)
