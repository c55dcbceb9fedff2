r"""What chains leave behind: draws, in memory or in a file, energies, and moments on the way.

Sums and squares of each half of a chain are kept while draws come, so that the classic split
$\hat R = \sqrt{\hat V / W}$ is known at the end without a second pass over draws that may lie in a
file of many gigabytes: $W$ is the mean variance within half chains of length $l$, $\hat V =
\frac{l - 1}l W + B / l$ with $B / l$ the variance of their means. (`rhat` ranks first.)
"""

from collections.abc import Callable
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.bayes.sampling._doubling import DIVERGENT
from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.steps.metropolis import Step

__all__ = ["Record"]

_FEWEST = 10  # draws of half a chain from which its mean tells anything


class Record:
    """The draws of chains, while they come."""

    def __init__(
        self, draws: int, member: Member, keep: Callable[[Tensor], Tensor] | None,
        out: str | PathLike[str] | None,
    ):  # fmt: skip
        self._draws, self._member, self._keep, self._out = draws, member, keep, out
        self._chains = member.rows.stop - member.rows.start
        self._written = 0
        self.values: Tensor | None = None

    def add(self, theta: Tensor, energy: Tensor) -> None:
        """Store a draw of every chain."""
        with torch.no_grad():
            row = theta if self._keep is None else self._keep(theta)
        if self.values is None:
            self._begin(row, energy)
        assert self.values is not None
        self.values[self._written] = row
        self.energies[self._written] = energy
        self._moments(row)
        self._written += 1

    def tally(self, step: Step) -> None:
        """Count the acceptance, divergence or failure of a step that leads to the next draw."""
        if self._written == 0 and self.values is None and not hasattr(self, "chance"):
            self.chance = torch.zeros_like(step.probability)
            self.failures = torch.zeros_like(step.failed, dtype=torch.int64)
            shape = (self._draws, self._chains)
            self.divergent = torch.zeros(shape, dtype=torch.bool, device=step.theta.device)
        self.chance += step.probability
        self.failures += step.failed
        self.divergent[self._written] |= step.change > DIVERGENT

    def rhat(self) -> float:
        """The largest split R of all stored numbers; NaN for fewer than 20 draws."""
        half = self._draws // 2
        if half < _FEWEST:
            return float("nan")
        means, variances = self._sums / half, (self._squares - self._sums**2 / half) / (half - 1)
        means, variances = means.flatten(0, 1), variances.flatten(0, 1).clamp(min=0)
        total, count = self._member.total, 2 * self._member.chains
        within, centre = total(variances.sum(0)) / count, total(means.sum(0)) / count
        between = total((means - centre).square().sum(0)) / (count - 1)
        ratio = ((half - 1) / half + between / within).sqrt()
        ratio = torch.where((within == 0) & (between == 0), torch.nan, ratio)
        return float(ratio.nan_to_num(nan=-1.0, posinf=torch.inf).max()) if ratio.numel() else 1.0

    def gathered(self) -> Tensor:
        """The draws of all chains, (chains, draws, ...)."""
        assert self.values is not None
        if self._out is None:
            return self._member.gathered(self.values.transpose(0, 1))
        self._member.wait()
        return self._whole

    def _begin(self, row: Tensor, energy: Tensor) -> None:
        if not isinstance(row, Tensor) or row.shape[:1] != (self._chains,):
            given = tuple(row.shape) if isinstance(row, Tensor) else type(row).__name__
            raise ValueError(
                f"keep must give a tensor with a row for each of {self._chains} chains, got {given}"
            )
        if self._out is not None:
            shape = (self._member.chains, self._draws, *row.shape[1:])
            if self._member.rank == 0:
                _file(self._out, "w+", shape, row.dtype)
            self._member.wait()
            self._whole = _file(self._out, "r+", shape, row.dtype)
            self.values = self._whole[self._member.rows].transpose(0, 1)
        else:
            store = (self._draws, self._chains, *row.shape[1:])
            self.values = torch.empty(store, dtype=row.dtype, device=row.device)
        self.energies = torch.empty(
            self._draws, self._chains, dtype=energy.dtype, device=row.device
        )
        wide = row.dtype if row.is_floating_point() else torch.float64
        size = (2, self._chains, row[0].numel())
        self._shift = self._member.mean(row.reshape(self._chains, -1).to(wide))
        self._sums = torch.zeros(size, dtype=wide, device=row.device)
        self._squares = torch.zeros_like(self._sums)

    def _moments(self, row: Tensor) -> None:
        half = self._draws // 2
        part = 0 if self._written < half else 1 if self._written >= self._draws - half else None
        if part is not None:
            own = row.reshape(self._chains, -1) - self._shift
            self._sums[part] += own
            self._squares[part].addcmul_(own, own)


def _file(
    out: str | PathLike[str], mode: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """A .npy file as a tensor."""
    kind: Any = torch.empty(0, dtype=dtype).numpy().dtype
    return torch.from_numpy(np.lib.format.open_memmap(fspath(out), mode, kind, shape))
