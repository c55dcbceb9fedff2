r"""When two answers are the same.

Both come from the same forward code in the same dtype, in another order of operations. They are
compared part by part (the rows of a Jacobian; in a row, the parameters), so that a part that is
small cannot be wrong behind a large one:

$$\|a_p - b_p\| \le \sqrt{\varepsilon}\, \|b_p\| + 10 \sqrt{P}\, \varepsilon\, \|b\|,$$

half of the digits of the part, or what rounding of the whole may leave there (Higham and Mary,
2019). Here $\varepsilon$ is the precision of the coarsest dtype on the way.
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
    if not torch.isfinite(found).all() and torch.isfinite(wanted).all():
        return f"{what} is not finite"
    a, b = found.detach().double(), wanted.detach().double()
    eps = max(torch.finfo(dtype).eps for dtype in (coarse, found.dtype, wanted.dtype))
    rows = (-1, a.shape[-1]) if sizes else (1, -1)
    a, b = a.reshape(rows), b.reshape(rows)
    whole = 10 * a.shape[1] ** 0.5 * eps * b.norm(dim=1)
    worst, where = 0.0, 0
    for i, (p, q) in enumerate(zip(_split(a, sizes), _split(b, sizes), strict=True)):
        off = (p - q).norm(dim=1) - eps**0.5 * q.norm(dim=1) - whole
        share = float(((p - q).norm(dim=1) / q.norm(dim=1).clamp(min=1e-300))[off > 0].max().nan_to_num()) if (off > 0).any() else 0.0
        if share > worst:
            worst, where = share, i
    if worst:
        part = f" in part {where} of {len(sizes)}" if sizes else ""
        return f"{what} is off by {worst:.2g} of its norm{part}"
    return ""


def _split(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return x.split(list(sizes), 1) if sizes else [x]
