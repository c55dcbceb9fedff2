r"""Rademacher complexity: how well a class of functions fits pure noise.

On points $x_1, \dots, x_n$, with independent uniform signs $\sigma_i$,

$$\hat{\mathfrak R}(\mathcal F) = \mathbb E_\sigma \sup_{f \in \mathcal F} \frac1n \sum_i \sigma_i
f(x_i), \qquad \mathfrak R_n(\mathcal F) = \mathbb E_x \hat{\mathfrak R}(\mathcal F).$$

The supremum is a maximum for a finite class, the dual norm $\frac Bn \|\sum_i \sigma_i x_i\|_q$ for
linear functions with $\|w\|_p \le B$, $\frac1p + \frac1q = 1$. Then it is

- *exact*, over all signs for up to 20 points, or in closed form $\frac Bn \sqrt{\sum_i \|x_i\|^2}$
  for orthogonal points and $p = 2$;
- else a mean over drawn signs, with an interval that holds with probability $1 - \delta$: one sign
  of $N$ draws moves the mean by $\frac{2 b_i}{n N}$ at most, with $b_i = \sup_f |f(x_i)|$, so by
  McDiarmid's inequality it is off by $\frac1n \sqrt{2 \sum_i b_i^2 \ln(2/\delta) / N}$ at most.

For a network the supremum over its weights is approached by gradient ascent from where they are:
what comes out is a **lower bound** of the supremum for the signs drawn, and of no more than that.
The claims are `rademacher_complexity` and `rademacher_bound`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.generalization._noise_ascent import fitted_noise
from vademecum.generalization.shattering import labellings
from vademecum.models import Output
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["RademacherComplexity", "rademacher_complexity"]

_ALL = 20  # points up to which all signs are taken, a million
_PORTION = 2**14  # draws at a time


class RademacherComplexity(NamedTuple):
    """How well a class fits noise on given points.

    Example:
        >>> rademacher_complexity(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # |s1 + s2| / 2
        RademacherComplexity(value=0.5, low=0.5, high=0.5, kind='exact', draws=4)
    """

    value: float
    """The complexity, or its estimate."""
    low: float
    """The lower end of its interval."""
    high: float
    """The upper end; infinite where there is only a lower bound."""
    kind: Literal["exact", "interval", "lower bound"]
    """Whether the value is exact up to rounding, estimated with a confidence interval, or a lower
    bound that ascent found, without confidence."""
    draws: int
    """How many vectors of signs were taken; 0 where a formula served."""

    __repr__ = one_line


def rademacher_complexity(
    family: Float[Tensor, " functions n"] | Literal["linear"] | nn.Module,
    x: Any = None,
    *,
    radius: float = 1.0,
    p: float = 2.0,
    draws: int | None = None,
    delta: float = 0.01,
    steps: int = 200,
    lr: float = 0.01,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    output: Output = None,
) -> RademacherComplexity:
    r"""The empirical Rademacher complexity of a finite or a linear class, or of a network's.

    The class of a network is what $\tanh f_\theta$ can be for all weights: values between -1 and
    1. It is taken in evaluation mode, must give one number for each example or the scores of two
    classes, and is never changed.

    Args:
        family: The values of a finite class, a row for each function and a column for each point;
            or "linear", for $x \mapsto w^\top x$ with $\|w\|_p \le B$; or any module.
        x: The points of a linear class, one a row, or the inputs of a network.
        radius: The bound $B$ of the weights.
        p: Which norm bounds them, from 1 to infinity.
        draws: How many vectors of signs to draw. By default all are taken for up to 20 points, and
            10,000 drawn for more; 8 for a network.
        delta: The probability with which the interval may fail, in (0, 1).
        steps: The steps of ascent for a network, all of which are made.
        lr: Their size, Adam's.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. For a
            network the weights of all draws are held at once.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If points are missing or have no meaning, or an argument is outside its range.

    References:
        Bartlett and Mendelson, Rademacher and Gaussian complexities, JMLR, 2002.

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        >>> rademacher_complexity("linear", x).value  # sqrt(9 + 16) / 2
        2.5
    """
    number("delta", delta, above=0, below=1)
    if draws is not None:
        whole("draws", draws, low=1)
    if isinstance(family, nn.Module):
        draws = 8 if draws is None else draws
        steps = whole("steps", steps, low=0)
        found = fitted_noise(
            family, x, draws=draws, steps=steps, lr=number("lr", lr, above=0), output=output,
            generator=generator, progress=progress,
        )  # fmt: skip
        value = float(found.mean())
        return RademacherComplexity(value, value, math.inf, "lower bound", draws)
    like, sup, largest = (
        _values(family, x) if isinstance(family, Tensor) else _linear(family, x, radius, p)
    )
    if draws is None and family == "linear" and p == 2 and _orthogonal(like):
        value = float(largest.square().sum().sqrt()) / len(like)
        return RademacherComplexity(value, value, value, "exact", 0)
    n = len(largest)
    each = (n + 2 * max(like.shape)) * like.element_size()
    size = _PORTION if memory is None else max(whole("memory", memory, low=1) // each, 1)
    if draws is None and n <= _ALL:
        return _over(_all_signs(n, like, size), sup, n, 2**n)
    draws = 10_000 if draws is None else draws
    found = _over(_drawn_signs(n, draws, like, size, generator), sup, n, draws)
    error = math.sqrt(2 * float(largest.square().sum()) * math.log(2 / delta) / draws) / n
    most = float(largest.sum()) / n
    low, high = max(found.value - error, -most), min(found.value + error, most)
    return found._replace(low=low, high=high, kind="interval")


def _values(family: Tensor, x: Any) -> tuple[Tensor, Callable[[Tensor], Tensor], Tensor]:
    if x is not None:
        raise ValueError(f"x must be None for a table of values, got {type(x).__name__}")
    values = floats("family", family, ndim=2)
    return values, lambda s: (s @ values.T).amax(1), values.abs().amax(0)


def _orthogonal(x: Tensor) -> bool:
    gram = x @ x.T
    return not (gram - gram.diagonal().diag()).any()


def _linear(
    family: str, x: Tensor | None, radius: float, p: float
) -> tuple[Tensor, Callable[[Tensor], Tensor], Tensor]:
    if family != "linear":
        raise ValueError(f"family must be 'linear' or a table of values, got {family!r}")
    points = floats("x", x, ndim=2)
    B, p = number("radius", radius, low=0), number("p", p, low=1, infinite=True)
    q = math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)
    norms = torch.linalg.vector_norm(points, q, 1)
    return points, lambda s: B * torch.linalg.vector_norm(s @ points, q, 1), B * norms


def _over(
    signs: Iterator[Tensor], sup: Callable[[Tensor], Tensor], n: int, draws: int
) -> RademacherComplexity:
    total = sum(float(sup(s).sum(dtype=torch.float64)) for s in signs)
    value = total / draws / n
    return RademacherComplexity(value, value, value, "exact", draws)


def _all_signs(n: int, like: Tensor, size: int) -> Iterator[Tensor]:
    for part in labellings(n, like.device).split(size):
        yield (2 * part - 1).to(like)


def _drawn_signs(
    n: int, draws: int, like: Tensor, size: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    for first in range(0, draws, size):
        rows = min(size, draws - first)
        drawn = torch.randint(2, (rows, n), **source(generator, like.device))
        yield (2 * drawn - 1).to(like)
