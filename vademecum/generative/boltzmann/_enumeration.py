r"""All states of the smaller layer, one by one: the exact constant of a machine.

With $k \le 20$ units $v$ in the smaller layer, $Z = \sum_v e^{a^\top v} \prod_j (1 + e^{b_j + (W
v)_j})$. A state is a pair of two halves, and so is its exponential, $e^{b_j + (W v)_j} = e^{l_j}
e^{h_j}$, so that $2^k m$ factors take a multiplication each, and a logarithm is taken of as many
factors at a time as cannot overflow. Where single factors could, the logarithms are taken one by
one. Exact up to rounding, in double precision.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import portions
from vademecum.generative.boltzmann._units import Units, log_one_plus

__all__ = ["MOST", "log_weights", "states"]

MOST = 20
"""How many units are enumerated: a million states."""
LOW = 8  # units in the lower half of a state: tables of 256 rows
REACH = 600.0  # of the 709 at which double precision overflows
BLOCK = {"cpu": 2**20, "cuda": 2**27}  # bytes of a block: a core's own cache, or a busy GPU


def states(numbers: Tensor, k: int) -> Float[Tensor, " s k"]:
    """Integers as rows of binary digits, the lowest first."""
    places = torch.arange(k, device=numbers.device)
    return (numbers[:, None] >> places & 1).double()


def log_weights(units: Units) -> Float[Tensor, " states"]:
    """The logarithms of all visible states' probabilities, up to the constant.

    Example:
        >>> one = torch.ones(1, 1)
        >>> log_weights(Units(one, 0 * one[0], 0 * one[0])).exp()  # 1 + 1 and 1 + e
        tensor([2.0000, 3.7183], dtype=torch.float64)
    """
    units = units.double()
    W, a, b = units
    k, device = len(a), W.device
    low = min(k, LOW)
    lows = states(torch.arange(2**low, device=device), low)
    highs = states(torch.arange(2 ** (k - low), device=device), k - low)
    below, above = lows @ W[:, :low].T + b, highs @ W[:, low:].T
    reach = float((b.abs() + W.abs().sum(1)).max())
    sums = _by_factors if reach <= REACH / 2 else _one_by_one
    hidden = sums(below, above, max(1, int(REACH / max(reach, 1e-3))))
    return (hidden + (highs @ a[low:])[:, None] + lows @ a[:low]).flatten()


def _by_factors(below: Tensor, above: Tensor, most: int) -> Float[Tensor, " high low"]:
    """Sums of softplus: logarithms of products of `most` factors at most."""
    m = below.shape[1]
    groups = -(-m // min(most, m))
    size = -(-m // groups)
    padded = [
        torch.nn.functional.pad(part.exp(), (0, groups * size - m)) for part in (below, above)
    ]
    below, above = (part.view(len(part), size, groups).movedim(1, 0) for part in padded)
    made = []
    each = 3 * below[0].numel() * 8
    for rows in portions(above.shape[1], each=each, memory=BLOCK.get(below.device.type, 2**20)):
        product = torch.ones_like(above[0, rows, None] * below[0])
        factor = torch.empty_like(product)
        for one, other in zip(above, below, strict=True):
            torch.mul(one[rows, None], other, out=factor)
            product.addcmul_(product, factor)
        made.append(product.log_().sum(-1))
    return torch.cat(made)


def _one_by_one(below: Tensor, above: Tensor, most: int) -> Float[Tensor, " high low"]:
    """Sums of softplus as they stand."""
    each = 3 * below.numel() * 8
    parts = portions(len(above), each=each, memory=BLOCK.get(below.device.type, 2**20))
    return torch.cat([log_one_plus(above[rows, None] + below).sum(-1) for rows in parts])
