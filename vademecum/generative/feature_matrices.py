r"""The Indian buffet process: the law of binary features whose weights are a Beta process.

Customer $i$ takes each dish that $m_k$ of those before took with probability $m_k / i$, and
$\mathrm{Poisson}(\alpha / i)$ new ones. With the measure of weights $\alpha\, \pi^{-1} d\pi$ on
$[0, 1]$ not integrated out, dishes are independent, so all can be drawn at once:

* there are $\mathrm{Poisson}(\alpha H_n)$ of them, $H_n = \sum_{i \le n} 1/i$;
* the first to take a dish is customer $i$ with probability $1 / (i H_n)$;
* its weight is then $\pi \sim \mathrm{Beta}(1, i)$, from $\pi^{-1} \cdot \pi (1 - \pi)^{i-1}$, and
  everybody after takes it with probability $\pi$.

Exact. Checked by the claim `generative.indian_buffet_process`.

References:
    Griffiths and Ghahramani, Infinite latent feature models and the Indian buffet process, NIPS,
    2005.
    Thibaux and Jordan, Hierarchical Beta processes and the Indian buffet process, AISTATS, 2007.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.arrays import portions
from vademecum.randomness import source

__all__ = ["sample_ibp"]

BLOCK = 2**26  # bytes of random numbers at a time


def sample_ibp(
    n: int, alpha: float, *, draws: int | None = None, generator: torch.Generator | None = None
) -> Bool[Tensor, " *draws n k"]:
    """Draw binary feature matrices: who takes which dish, dishes in the order they are first taken.

    Args:
        n: How many customers, the rows.
        alpha: How many dishes a customer takes on average, above 0.
        draws: How many matrices, along a first axis, as wide as the widest: in others the last
            columns are empty. Without it one, and no such axis.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> dishes = sample_ibp(50, 2.0, draws=100)
        >>> bool(dishes.any(1).sum(1).float().mean() < 12), dishes.dtype  # 9 on average
        (True, torch.bool)
    """
    n, count = whole("n", n, low=1), whole("draws", 1 if draws is None else draws, low=1)
    alpha = number("alpha", alpha, above=0)
    where = source(generator, None)
    customers = torch.arange(1, n + 1, device=where["device"], dtype=torch.float64)
    harmonic = customers.reciprocal().cumsum(0)
    rates = (alpha * harmonic[-1]).expand(count)
    sizes = torch.poisson(rates, generator=generator).long()
    width = int(sizes.max())
    u = torch.rand(count, width, dtype=torch.float64, **where) * harmonic[-1]
    first = torch.searchsorted(harmonic, u, right=True).clamp_(max=n - 1)
    absent = torch.arange(width, device=u.device) >= sizes[:, None]
    first = first.masked_fill_(absent, n).sort(1).values
    beta = 1 - torch.rand(count, width, dtype=torch.float64, **where) ** (1 / (first + 1.0))
    taken = torch.empty(count, n, width, dtype=torch.bool, device=u.device)
    for rows in portions(n, each=8 * max(1, count * width), memory=BLOCK):
        here = torch.arange(rows.start, rows.stop, device=u.device)[:, None]
        u = torch.rand(count, len(here), width, dtype=torch.float64, **where)
        late = (u < beta[:, None]) & (here > first[:, None])
        taken[:, rows] = late | (here == first[:, None])
    return taken[0] if draws is None else taken
