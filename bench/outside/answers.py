r"""When two answers are the same.

Both come from the same forward code in the same dtype, in another order of operations. They are
compared part by part (the rows of a Jacobian; in a row, the parameters), so that a part that is
small cannot be wrong behind a large one:

$$\|a_p - b_p\| \le \sqrt{\varepsilon}\, \|b_p\|
+ \min(10 \sqrt{P}\, \varepsilon, \sqrt{\varepsilon})\, \|b\|,$$

half of the digits of the part, or what rounding of the whole may leave there (Higham and Mary,
2019), of which half of the digits are right, too. Here $\varepsilon$ is the precision of the
coarsest dtype on the way.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["complaint"]


def complaint(
    what: str, found: Tensor, wanted: Tensor, coarse: torch.dtype, sizes: Sequence[int] = ()
) -> str:
    """What is wrong with an answer, or nothing.

    Args:
        what: Its name.
        found: The answer.
        wanted: What it should be.
        coarse: The coarsest dtype that it was computed in.
        sizes: The sizes of the parts that the last axis consists of.
    """
    if found.shape != wanted.shape:
        return f"{what} has shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    a, b = found.detach().double(), wanted.detach().double()
    if not torch.equal(a.isfinite(), b.isfinite()):
        return f"{what} has {int((~a.isfinite()).sum())} entries that are not finite"
    a, b = (t.nan_to_num(0.0, 0.0, 0.0) for t in (a, b))
    eps = max(torch.finfo(dtype).eps for dtype in (coarse, found.dtype, wanted.dtype))
    rows = (-1, a.shape[-1]) if sizes else (1, -1)
    a, b = a.reshape(rows), b.reshape(rows)
    whole = min(10 * (a.shape[1] * eps) ** 0.5, 1) * eps**0.5 * b.norm(dim=1)
    worst, where = 0.0, 0
    for i, (p, q) in enumerate(zip(_split(a, sizes), _split(b, sizes), strict=True)):
        gap, size = (p - q).norm(dim=1), q.norm(dim=1)
        off = gap > eps**0.5 * size + whole
        share = float((gap / size)[off].max()) if off.any() else 0.0
        if share > worst:
            worst, where = share, i
    if worst == 0:
        return ""
    part = f" in part {where} of {len(sizes)}" if sizes else ""
    return f"{what} is off by {worst:.2g} of its norm{part}"


def _split(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return x.split(list(sizes), 1) if sizes else [x]
