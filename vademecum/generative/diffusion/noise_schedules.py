r"""How a diffusion adds noise: $x_t = \sqrt{\alpha_t}\, x_{t-1} + \sqrt{\beta_t}\, \epsilon$.

Time $t = 0$ is clean data and $t = 1, \dots, T$ are the steps. With $\alpha_t = 1 - \beta_t$,
$\bar\alpha_t = \prod_{i \le t} \alpha_i$ and $\bar\beta_t = 1 - \bar\alpha_t$

$$q(x_t \mid x_0) = \mathcal N(\sqrt{\bar\alpha_t}\, x_0, \bar\beta_t I), \qquad q(x_{t-1} \mid x_t,
x_0) = \mathcal N\Big(\frac{\sqrt{\bar\alpha_{t-1}}\, \beta_t}{\bar\beta_t} x_0 +
\frac{\sqrt{\alpha_t}\, \bar\beta_{t-1}}{\bar\beta_t} x_t,\ \tilde\beta_t I\Big), \quad
\tilde\beta_t = \frac{\bar\beta_{t-1}}{\bar\beta_t} \beta_t.$$

Products are sums of logarithms in float64, so that $\bar\beta_t$ has no cancellation for small
$\beta_t$. Exact. Checked by `generative.forward_marginal` and `generative.forward_posterior`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.generative._marginals import INTEGERS, Marginal, beside
from vademecum.results import one_line

__all__ = ["NoiseSchedule", "StepPosterior"]


class StepPosterior(NamedTuple):
    """A normal law of the example one step earlier.

    Example:
        >>> schedule = NoiseSchedule([0.1, 0.2, 0.3])
        >>> x0, xt = torch.tensor([[0.7]]), torch.tensor([[-0.4]])
        >>> schedule.posterior(x0, xt, torch.tensor([3]))
        StepPosterior(mean=tensor([[0.1703]]), variance=tensor([[0.1694]]))
    """

    mean: Tensor
    """The mean, shaped like the examples."""
    variance: Tensor
    """The variance of every entry, in a shape that broadcasts with the mean."""

    __repr__ = one_line


class NoiseSchedule:
    r"""How much noise each of T steps adds, with tables in float64 that are indexed by t.

    Attributes `betas`, `alphas`, `alpha_bar`, `beta_bar` ($1 - \bar\alpha_t$) and `beta_tilde` (the
    variance of the step back, given the clean example) have T + 1 entries; at t = 0, where nothing
    has happened, alpha_bar is 1.

    Args:
        betas: The variance of the noise of each step, $\beta_1, \dots, \beta_T$, within (0, 1).
        zero_terminal_snr: Whether to stretch $\sqrt{\bar\alpha_t}$ linearly such that it keeps its
            value at t = 1 and vanishes at T: then $\beta_T = 1$, nothing of the data is left at the
            end, and a network must predict x0 or v, since noise alone tells nothing there.

    References:
        Ho, Jain, Abbeel, Denoising diffusion probabilistic models, NeurIPS, 2020. Lin, Liu, Li,
        Yang, Common diffusion noise schedules and sample steps are flawed, WACV, 2024.

    Example:
        >>> schedule = NoiseSchedule([0.5, 0.5])
        >>> schedule.alpha_bar
        tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
        >>> x = torch.tensor([[4.0], [4.0]])
        >>> schedule.noised(x, torch.tensor([0, 2]), torch.zeros(2, 1))
        tensor([[4.],
                [2.]])
    """

    def __init__(self, betas: Sequence[float] | Tensor, *, zero_terminal_snr: bool = False):
        given = betas if isinstance(betas, Tensor) else torch.tensor([*betas], dtype=torch.float64)
        beta = floats("betas", given.detach(), ndim=1).to("cpu", torch.float64)
        outside = ~((beta > 0) & (beta < 1))
        if outside.any():
            i = int(outside.nonzero()[0])
            raise ValueError(
                f"entries of betas must be > 0 and < 1, got {float(beta[i])} at {(i,)}"
            )
        log_bar = torch.cat([beta.new_zeros(1), torch.log1p(-beta).cumsum(0)])
        self.betas = torch.cat([beta.new_zeros(1), beta])
        self.alpha_bar, self.beta_bar = log_bar.exp(), -torch.expm1(log_bar)
        if zero_terminal_snr:
            self._stretch()
        self.alphas = 1 - self.betas
        ratio = self.beta_bar[:-1] / self.beta_bar[1:]
        self.beta_tilde = torch.cat([beta.new_zeros(1), ratio * self.betas[1:]])
        self._elsewhere: dict[tuple[str, torch.device], Tensor] = {}

    def _stretch(self) -> None:
        root = self.alpha_bar.sqrt()
        if len(root) < 3:
            raise ValueError(
                f"betas must be two or more for zero_terminal_snr, got {len(root) - 1}"
            )
        kept = (root[1:] - root[-1]) * (root[1] / (root[1] - root[-1]))
        root = torch.cat([root[:1], kept])
        self.alpha_bar, self.beta_bar = root.square(), (1 - root) * (1 + root)
        self.betas[1:] = 1 - self.alpha_bar[1:] / self.alpha_bar[:-1]

    @classmethod
    def linear(
        cls,
        T: int = 1000,
        *,
        first: float | None = None,
        last: float | None = None,
        zero_terminal_snr: bool = False,
    ) -> "NoiseSchedule":
        r"""Betas on a line.

        Args:
            T: How many steps.
            first: The first beta; by default 0.1 / T, which is 1e-4 for 1,000 steps.
            last: The last beta; by default 20 / T, which is 0.02 for 1,000 steps, so that the noise
                at the end is that of 1,000 steps whatever T is.
            zero_terminal_snr: Whether to stretch the schedule such that no data are left at T.

        Example:
            >>> NoiseSchedule.linear(1000).alpha_bar[-1]
            tensor(4.0358e-05, dtype=torch.float64)
        """
        T = whole("T", T, low=1)
        if T <= 20 and last is None:
            raise ValueError(f"last must be given where T <= 20: it would be 20 / T, got T = {T}")
        first = number("first", 0.1 / T if first is None else first, above=0, below=1)
        last = number("last", 20 / T if last is None else last, above=0, below=1)
        betas = torch.linspace(first, last, T, dtype=torch.float64)
        return cls(betas, zero_terminal_snr=zero_terminal_snr)

    @classmethod
    def cosine(
        cls,
        T: int = 1000,
        *,
        offset: float = 0.008,
        largest: float = 0.999,
        zero_terminal_snr: bool = False,
    ) -> "NoiseSchedule":
        r"""By a cosine: $\bar\alpha_t \propto \cos^2(\frac\pi2 \frac{t/T + o}{1 + o})$.

        Args:
            T: How many steps.
            offset: The offset $o$, which keeps the first steps from being tiny.
            largest: What betas are cut to; the last would be 1.
            zero_terminal_snr: Whether to stretch the schedule such that no data are left at T.

        References:
            Nichol, Dhariwal, Improved denoising diffusion probabilistic models, ICML, 2021.

        Example:
            >>> NoiseSchedule.cosine(1000).alpha_bar[500]
            tensor(0.4938, dtype=torch.float64)
        """
        T, offset = whole("T", T, low=1), number("offset", offset, low=0)
        largest = number("largest", largest, above=0, below=1)
        t = torch.arange(T + 1, dtype=torch.float64)
        signal = torch.cos((t / T + offset) / (1 + offset) * math.pi / 2).square()
        betas = (1 - signal[1:] / signal[:-1]).clamp(max=largest)
        return cls(betas, zero_terminal_snr=zero_terminal_snr)

    @property
    def T(self) -> int:
        """How many steps there are."""
        return len(self.betas) - 1

    def marginal(self, t: int | Tensor) -> Marginal:
        """The factor of the clean example at step t, and the standard deviation of the noise.

        Args:
            t: Steps from 0 to T: an integer, or a tensor of integers of any shape.
        """
        return Marginal(self.at("alpha_bar", t).sqrt(), self.at("beta_bar", t).sqrt())

    def transition(self, t: int | Tensor) -> Marginal:
        """The factor of the example at step t - 1, and the noise that step t adds to it.

        Args:
            t: Steps from 1 to T; at 0 nothing changes.
        """
        return Marginal(self.at("alphas", t).sqrt(), self.at("betas", t).sqrt())

    def noised(
        self, x0: Float[Tensor, " n *shape"], t: Tensor, noise: Float[Tensor, " n *shape"]
    ) -> Float[Tensor, " n *shape"]:
        """Examples at step t of the diffusion, in one go.

        Args:
            x0: Clean examples.
            t: A step for each.
            noise: Standard normal numbers, shaped like the examples.
        """
        _alike("noise", noise, x0)
        scale, std = self.marginal(_one_each(t, x0))
        return beside(scale, x0) * x0 + beside(std, x0) * noise

    def posterior(
        self, x0: Float[Tensor, " n *shape"], xt: Float[Tensor, " n *shape"], t: Tensor
    ) -> StepPosterior:
        """The law of the example at step t - 1, given that at t and the clean one.

        Args:
            x0: Clean examples.
            xt: The same at step t.
            t: A step from 1 to T for each.
        """
        _alike("xt", xt, x0)
        before, bar = _one_each(t, x0, low=1).long() - 1, self.at("beta_bar", t)
        clean = self.at("alpha_bar", before).sqrt() * self.at("betas", t) / bar
        noisy = self.at("alphas", t).sqrt() * self.at("beta_bar", before) / bar
        mean = beside(clean, x0) * x0 + beside(noisy, x0) * xt
        return StepPosterior(mean, beside(self.at("beta_tilde", t), x0))

    def at(self, table: str, t: int | Tensor) -> Tensor:
        """Entries of a table, such as "betas", where t is.

        Args:
            table: The name of the attribute.
            t: Steps. Those outside the table are named on the CPU; elsewhere, where to look is to
                wait for the device, its own check of bounds stops the program.
        """
        t = torch.as_tensor(t)
        if t.dtype not in INTEGERS:
            raise ValueError(f"t must be integers from 0 to {self.T}, got {t.dtype}")
        index = t.long()
        if t.device.type != "cpu":
            index = torch.where(index < 0, self.T + 1, index)  # -1 would be the last entry
        elif t.numel():
            low, high = (int(v) for v in torch.aminmax(t))
            if low < 0 or high > self.T:
                bad = low if low < 0 else high
                raise ValueError(f"t must be from 0 to {self.T}, got {bad}")
        return self._on(table, t.device)[index]

    def _on(self, table: str, device: torch.device) -> Tensor:
        """A table on a device, copied there once."""
        if device.type == "cpu":
            return getattr(self, table)
        if (table, device) not in self._elsewhere:
            self._elsewhere[table, device] = getattr(self, table).to(device)
        return self._elsewhere[table, device]

    def __repr__(self) -> str:
        return f"NoiseSchedule(T={self.T}, alpha_bar from 1 to {float(self.alpha_bar[-1]):.3g})"


def _alike(name: str, x: Tensor, x0: Tensor) -> None:
    if x.shape != x0.shape:
        raise ValueError(f"{name} must have the shape {tuple(x0.shape)}, got {tuple(x.shape)}")


def _one_each(t: Tensor, x: Tensor, *, low: int = 0) -> Tensor:
    if not isinstance(t, Tensor) or t.shape != x.shape[:1]:
        given = f"shape {tuple(t.shape)}" if isinstance(t, Tensor) else repr(t)
        raise ValueError(f"t must be {len(x)} integers, one for each example, got {given}")
    if t.device.type == "cpu" and t.numel() and int(t.min()) < low:
        raise ValueError(f"t must be >= {low}, got {int(t.min())}")
    return t
