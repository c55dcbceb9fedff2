r"""The noise of gradients: how many examples a batch needs until more of them hardly help.

With the gradients $g_i$ of examples, their mean $G$ over the population and their covariance
$\Sigma$, a batch of $B$ has a gradient with the mean square $\|G\|^2 + \operatorname{tr} \Sigma /
B$: signal and noise are equal at the *simple noise scale*

$$\mathcal{B} = \frac{\operatorname{tr} \Sigma}{\|G\|^2} .$$

From $n$ examples, with $s = \sum_i \|g_i\|^2$ and $q = \|\sum_i g_i\|^2$,

$$\widehat{\operatorname{tr} \Sigma} = \frac{s - q / n}{n - 1}, \qquad
\widehat{\|G\|^2} = \frac{q - s}{n (n - 1)}$$

are unbiased; the mean of squared norms of batches, which is often taken for the latter, is too
large by the noise. Leaving out one example at a time (the jackknife) gives their covariance, for
which $\|g_i\|^2$ and $\langle g_i, \sum_j g_j \rangle$ suffice, and Fieller's theorem an interval
of the ratio: all $\rho$ for which $\widehat{\operatorname{tr} \Sigma} - \rho \widehat{\|G\|^2}$ is
within so many standard errors of zero. Where the signal cannot be told from zero it has no upper
end.

The estimates are exact functions of the examples; the interval holds for many examples, and is
asymptotic.

References:
    McCandlish, Kaplan, Amodei et al., An empirical model of large-batch training, arXiv:1812.06162,
    2018. Fieller, Some problems in interval estimation, Journal of the Royal Statistical Society B
    16, 1954. Efron and Stein, The jackknife estimate of variance, Annals of Statistics 9, 1981.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from scipy.stats import norm
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.arrays import portions
from vademecum.gradients import functional, per_example_gradients
from vademecum.models import Loss, Output, batches, count_examples, map_tensors
from vademecum.results import one_line

__all__ = ["GradientNoise", "gradient_noise"]

_ROWS = 2**28  # bytes of gradients at a time


class GradientNoise(NamedTuple):
    """Signal and noise in the gradients of examples.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])  # the gradients of w x in w
        >>> found = gradient_noise(nn.Linear(1, 1, bias=False), x, x, loss=lambda z, _: z.sum())
        >>> round(found.trace, 4), round(found.squared_norm, 4)  # 1, and (2 + 3 + 6) / 3
        (1.0, 3.6667)
    """

    scale: float
    r"""The noise scale $\mathcal{B}$ in examples; infinity where no signal is seen."""
    low: float
    """The lower end of its interval."""
    high: float
    """The upper end, infinity where the signal cannot be told from zero."""
    trace: float
    r"""The noise, $\operatorname{tr} \Sigma$ without bias."""
    squared_norm: float
    r"""The signal, $\|G\|^2$ without bias; it may come out negative."""
    examples: int
    """The number $n$ of examples."""

    __repr__ = one_line


def gradient_noise(
    model: nn.Module,
    x: Any,
    y: Shaped[Tensor, " n ..."] | None = None,
    *,
    loss: Loss | None = None,
    level: float = 0.95,
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> GradientNoise:
    r"""The simple noise scale of a model's gradients, with an interval.

    Below it, twice the batch is nearly as good as twice the steps; above it, a larger batch is
    mostly wasted. The model is taken in evaluation mode and never changed. The examples are gone
    through twice, where their gradients do not fit into memory.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x: The inputs, a tensor or any structure of tensors (see `functional`), with the examples
            along the first axis; or a `DataLoader` of batches `(x, y)`, or of mappings with the
            targets in "labels". Three examples at least.
        y: The targets, likewise.
        loss: A function of outputs and targets with one number for a batch of one example, whose
            reduction does not matter; by default the cross-entropy for integer targets and the mean
            squared error for others.
        level: The probability with which the interval is to hold.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error. It counts batches.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are fewer than three examples or no parameters, or nothing is
            differentiable, or the examples influence each other, or gradients are not finite.

    Example:
        >>> x = torch.linspace(-1, 3, 200)[:, None]  # a mean of 1 and a variance of 4/3
        >>> found = gradient_noise(nn.Linear(1, 1, bias=False), x, x, loss=lambda z, _: z.sum())
        >>> round(found.scale, 2), found.low < 4 / 3 < found.high
        (1.36, True)
    """
    number("level", level, above=0, below=1)
    f = functional(model, frozen=frozen, output=output)
    width = f.size * f.dtype.itemsize
    each = partial(
        per_example_gradients, model, loss=loss, memory=memory, frozen=frozen, output=output
    )
    rows = partial(_rows, each, x, y, width, memory, f.device)
    total, squares, kept = torch.zeros(f.size, dtype=torch.float64, device=f.device), [], None
    for i, block in enumerate(rows(progress)):
        total += block.sum(0, dtype=torch.float64)
        squares.append(block.double().square().sum(1))
        kept = block if i == 0 else None
    if (n := sum(map(len, squares))) < 3:
        raise ValueError(f"x must hold at least 3 examples, got {n}")
    if not total.isfinite().all():
        raise ValueError("the gradients of model must be finite, got NaN or infinity")
    again, wide = rows(progress) if kept is None else [kept], total.to(_wide(f.dtype))
    c = torch.cat([block.to(wide) @ wide for block in again]).double()
    return _noise(torch.cat(squares), c, float(norm.ppf((1 + level) / 2)))


def _rows(
    each: Any, x: Any, y: Any, width: int, memory: int | None, device: Any, progress: bool
) -> Iterator[Float[Tensor, " rows P"]]:
    """The gradients of examples in order, as many at a time as there is room for."""
    room = _ROWS if memory is None else max(memory // 2, 1)
    with closing(batches(x, y, device=device, progress=progress)) as all_:
        for inputs, targets in all_:
            n = count_examples(inputs, targets)
            for here in portions(n, each=width, memory=room):
                yield each(*map_tensors((inputs, targets), itemgetter(here)))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _noise(a: Tensor, c: Tensor, z: float) -> GradientNoise:
    """The noise from squared norms and products with the sum, and z standard errors around it."""
    n, s, q = len(a), a.sum(), c.sum()
    noise, signal = _estimates(n, s, q)
    left = torch.stack(_estimates(n - 1, s - a, q - 2 * c + a))  # without each of them
    off = left - left.mean(1, keepdim=True)
    covariance = (n - 1) / n * (off @ off.T)
    scale = float(noise / signal) if signal > 0 else math.inf
    low, high = _fieller(float(noise), max(float(signal), 0.0), covariance.tolist(), z)
    return GradientNoise(scale, low, high, float(noise), float(signal), n)


def _estimates(n: int, s: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    return (s - q / n) / (n - 1), (q - s) / (n * (n - 1))


def _fieller(
    top: float, bottom: float, covariance: list[list[float]], z: float
) -> tuple[float, float]:
    """The positive ratios that are within z standard errors of the one that was measured.

    They are where (top - r bottom)^2 <= z^2 (v - 2 r w + r^2 u), between the roots of a quadratic
    where the bottom is beyond z standard errors from zero.
    """
    (v, w), (_, u) = covariance
    A, B, C = bottom**2 - z**2 * u, top * bottom - z**2 * w, top**2 - z**2 * v
    inside = math.sqrt(max(B**2 - A * C, 0.0))
    if A > 0:
        return max((B - inside) / A, 0.0), max((B + inside) / A, 0.0)
    low = C / (B + inside) if B + inside > 0 and C > 0 else 0.0
    return max(low, 0.0), math.inf
