r"""From counts to probabilities: what each n-gram gets, and what is left to shorter contexts.

Every estimate here has the form $P_k(w | h) = s(h w) + r(h)\, P'(w)$ with a share $s$ for the
n-grams seen and a rest $r$ for each context:

| smoothing | share | rest | $P'$ |
|---|---|---|---|
| none | $C(hw) / C(h)$ | 0 | |
| add one | $C(hw) / (C(h) + V)$ | $V / (C(h) + V)$ | $1 / V$ |
| Kneser-Ney | $(c(hw) - D(c)) / c(h)$ | $\sum_w D(c(hw)) / c(h)$ | $P_{k - 1}(w \mid h')$ |

where $h'$ is $h$ without its first token, $P_0 = 1 / V$, and $c$ counts occurrences in the highest
order, and in lower ones the different tokens before an n-gram. The discounts are those of Chen and
Goodman for counts of 1, 2 and more,

$$D_j = j - (j + 1)\, Y\, \frac{n_{j + 1}}{n_j}, \qquad Y = \frac{n_1}{n_1 + 2 n_2},$$

with $n_j$ the number of n-grams of count $j$; where too few n-grams are that rare, $D = Y$ for all,
and $\frac12$ where $Y$ is not known either.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.language.ngrams._tables import Table

__all__ = ["discounts", "shares"]


def shares(
    table: Table, counts: Int[Tensor, " grams"], smoothing: str, discount: float | None, V: int
) -> tuple[Float[Tensor, " grams"], Float[Tensor, " contexts"]]:
    """The share of each n-gram and the rest of each context, in double precision."""
    total = _per_context(counts, table)
    c = counts.double()
    size = total.double() + (V if smoothing == "add_one" else 0)
    if smoothing == "none":
        rest = torch.zeros_like(size)
    elif smoothing == "add_one":
        rest = V / size
    else:
        D = discounts(counts, discount).to(c)
        c = c - D[counts.clamp(max=3) - 1]
        kinds = (_per_context(kind, table) for kind in (counts == 1, counts == 2, counts > 2))
        taken = sum(d * kind for d, kind in zip(D, kinds, strict=True))
        rest = torch.where(total > 0, taken / size.clamp(min=1), 1.0)
    return c / size.repeat_interleave(table.starts.diff()), rest


def discounts(counts: Int[Tensor, " grams"], given: float | None) -> Float[Tensor, " 3"]:
    """What is taken from counts of 1, 2 and more: estimated, or the same from all if given."""
    if given is not None:
        return torch.full((3,), given, dtype=torch.float64)
    n1, n2, n3, n4 = (int((counts == j).sum()) for j in range(1, 5))
    Y = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    if not (n1 and n2 and n3 and n4):
        return torch.full((3,), Y, dtype=torch.float64)
    found = 1 - 2 * Y * n2 / n1, 2 - 3 * Y * n3 / n2, 3 - 4 * Y * n4 / n3
    return torch.tensor([max(D, 0.0) for D in found], dtype=torch.float64)


def _per_context(values: Tensor, table: Table) -> Int[Tensor, " contexts"]:
    sums = torch.nn.functional.pad(values.long().cumsum(0), (1, 0))
    return sums[table.starts].diff()
