r"""The variational bound of a diffusion model, term by term.

$$-\log p_\theta(x_0) \le L_T + \sum_{t=2}^T L_{t-1} + L_0, \qquad
L_T = \mathrm{KL}\big(q(x_T \mid x_0) \,\|\, \mathcal N(0, I)\big), \quad
L_0 = -\mathbb E \log p_\theta(x_0 \mid x_1),$$
$$L_{t-1} = \mathbb E\, \mathrm{KL}\big(q(x_{t-1} \mid x_t, x_0) \,\|\, p_\theta(x_{t-1} \mid
x_t)\big).$$

The prior term is exact; each other term is its integrand at one draw of $x_t$, which is unbiased.
For continuous data $L_0$ is minus a log-density, and a bound in bits may be negative; for data on a
grid of levels it is minus a log-probability, and the bound is a code length. Checked by
`generative.diffusion_bound` and `generative.diffusion_bound_decomposition`.
"""

import math
from collections.abc import Generator
from contextlib import closing
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.arguments import floats, whole
from vademecum.generative._marginals import Predicts, clean_from, kind_of
from vademecum.generative._scores_of_models import home
from vademecum.generative.diffusion._predictors import Model, Predictor
from vademecum.generative.diffusion._reverse_laws import (
    fixed_variances,
    learned_log_variance,
    step_cost,
)
from vademecum.generative.diffusion._step_lists import clean_weights, insist_on_schedule
from vademecum.generative.diffusion._walks import Variance, normal_like
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule
from vademecum.models import batches, resting
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["DiffusionBound", "diffusion_bound"]


class DiffusionBound(NamedTuple):
    """The terms of the bound on minus the log-likelihood of examples, in nats.

    Example:
        >>> one = NoiseSchedule([0.5])
        >>> found = diffusion_bound(lambda x, t: 0 * x, torch.ones(1, 1), schedule=one)
        >>> found.prior, found.steps.shape  # (1/2 - 1/2 - ln 1/2) / 2; no step but the first
        (tensor([0.3466], dtype=torch.float64), torch.Size([1, 0]))
    """

    prior: Tensor
    """L_T, how far the end of the diffusion is from the standard normal law, for each example."""
    steps: Tensor
    """L_{t-1} for t = 2, ..., T in columns, at one draw of x_t each."""
    reconstruction: Tensor
    """L_0, minus the log-density or log-probability of the data at one draw of x_1."""
    total: Tensor
    """The sum of all terms, for each example."""
    bits_per_dim: float
    """The mean of the totals in bits, for each entry of an example."""
    standard_error: float
    """Its standard error over examples and draws; NaN for one example."""

    __repr__ = one_line


def diffusion_bound(
    model: Model,
    x: Float[Tensor, " n *shape"] | DataLoader,
    context: Tensor | Literal["targets"] | None = None,
    *,
    schedule: NoiseSchedule,
    predicts: Predicts | None = None,
    variance: Variance | Tensor = "small",
    levels: int | None = None,
    batch: int = 256,
    progress: bool = False,
    generator: torch.Generator | None = None,
) -> DiffusionBound:
    r"""The bound on minus the log-likelihood of examples under a diffusion model, term by term.

    Args:
        model: What is called `model(x, t)` or `model(x, t, context)`, with a step for each example;
            T times for all examples.
        x: Examples, clean, or a `DataLoader` that brings them.
        context: What the model is told of each; "targets" takes what the loader brings beside the
            examples, which is left out otherwise.
        schedule: The noise that the model was trained with.
        predicts: What the model predicts; by default what its attribute `predicts` says, or noise.
        variance: That of the steps back, as in `ddpm_sample`: "small" ($\tilde\beta_t$, and for t =
            1, where that is 0, that of t = 2), "large", "learned", or a table for t from 0 to T.
        levels: How many levels the data have in [-1, 1], 256 for images; None for continuous data.
        batch: How many examples the model sees at once; a loader has its own batches.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> schedule, x = NoiseSchedule.linear(50), torch.randn(4000, 1)
        >>> def exact(x, t):  # of standard normal data
        ...     return x * schedule.marginal(t).std.to(x)[:, None]
        >>> bound = diffusion_bound(exact, x, schedule=schedule, variance="large")
        >>> abs(bound.bits_per_dim - 2.047) < 0.1  # the entropy, log2(2 pi e) / 2
        True
    """
    kind, table = kind_of(model, predicts), fixed_variances(insist_on_schedule(schedule), variance)
    clean_weights(schedule, [schedule.T], kind)  # refuses noise where all is noise
    whole("batch", batch, low=1)
    if levels is not None:
        whole("levels", levels, low=2)
    priors, columns, d = [], [], 0
    learned = not isinstance(variance, Tensor) and variance == "learned"
    source = _told(model, x, context, batch, levels)
    bar = ticking("steps", _count(x, batch, schedule.T), progress=progress)
    quiet, own = torch.no_grad(), given_back(generator)
    with quiet, own, resting(model), closing(source) as chunks, bar as tick:
        for some, told in chunks:
            predict = Predictor(model, len(some), told, None, doubled=learned)
            chunk = _Chunk(schedule, kind, table.to(some.device), some, learned, levels)
            columns.append(chunk.costs(predict, generator, tick))
            priors.append(_prior(schedule, some))
            d = some[0].numel()
    if not columns:
        raise ValueError("x must bring examples, got a loader without any")
    return _summed(torch.cat(priors), torch.cat(columns), d)


def _told(
    model: Any, x: Any, context: Any, batch: int, levels: int | None
) -> Generator[tuple[Tensor, Any], None, None]:
    """Portions of the examples and of what the model is told of them."""
    if isinstance(x, DataLoader):
        if context is not None and not (isinstance(context, str) and context == "targets"):
            raise ValueError('context must be None or "targets" where x is a DataLoader')
        with closing(batches(x, device=home(model, None, None)[1])) as each:
            for some, y in each:
                yield _examples(some, levels), None if context is None else y
        return
    _examples(x, levels)
    if context is not None and (isinstance(context, str) or len(context) != len(x)):
        given = repr(context) if isinstance(context, str) else len(context)
        raise ValueError(f"context must have {len(x)} rows, one for each example, got {given}")
    for i in range(0, len(x), batch):
        here = slice(i, i + batch)
        yield x[here], None if context is None else context[here]


def _count(x: Any, batch: int, T: int) -> int | None:
    if not isinstance(x, DataLoader):
        return T * -(-len(x) // batch)
    return T * len(x) if hasattr(x.dataset, "__len__") else None


def _examples(x: Any, levels: int | None) -> Tensor:
    floats("x", x)
    if x.ndim < 2:
        raise ValueError(f"x must be (n, *shape), got shape {tuple(x.shape)}")
    if levels is not None:
        _insist_on_grid(x, levels)
    return x


class _Chunk(NamedTuple):
    """Examples with all that says what a step costs."""

    schedule: NoiseSchedule
    kind: Predicts
    table: Tensor
    x: Tensor
    learned: bool
    levels: int | None

    def costs(self, predict: Predictor, generator: torch.Generator | None, tick) -> Tensor:
        """The cost of each step from 1 to T for each example."""
        found = []
        for step in range(1, self.schedule.T + 1):
            found.append(self._cost(predict, step, normal_like(self.x, self.x.shape, generator)))
            tick(1)
        return torch.stack(found, 1)

    def _cost(self, predict: Predictor, step: int, noise: Tensor) -> Tensor:
        t = torch.full((len(self.x),), step, device=self.x.device)
        noisy = self.schedule.noised(self.x, t, noise)
        out, raw = predict(noisy, t), None
        if self.learned:
            out, raw = out.chunk(2, 1)
        x, xt = self.x.double(), noisy.double()
        guess = clean_from(self.kind, out.double(), xt, self.schedule.marginal(t))
        if raw is None:
            log_variance = self.table[step].log().to(x)
        else:
            log_variance = learned_log_variance(self.schedule, self.table, raw.double(), t)
        cost = step_cost(self.schedule, x, xt, guess, t, log_variance, levels=self.levels)
        return cost.flatten(1).sum(1)


def _prior(schedule: NoiseSchedule, x: Tensor) -> Tensor:
    """The divergence of the last step from the standard normal law."""
    left, noise = float(schedule.alpha_bar[-1]), float(schedule.beta_bar[-1])
    squares = x.double().flatten(1).square().sum(1)
    return (left * squares - x[0].numel() * (left + math.log(noise))) / 2


def _summed(prior: Tensor, costs: Tensor, d: int) -> DiffusionBound:
    total = prior + costs.sum(1)
    bits = total / (d * math.log(2))
    error = float(bits.std() / math.sqrt(len(bits))) if len(bits) > 1 else math.nan
    return DiffusionBound(prior, costs[:, 1:], costs[:, 0], total, float(bits.mean()), error)


def _insist_on_grid(x: Tensor, levels: int) -> None:
    place = (x.double() + 1) / 2 * (levels - 1)
    off = (place - place.round()).abs().max()
    if float(x.min()) < -1 - 1e-6 or float(x.max()) > 1 + 1e-6 or float(off) > 1e-3:
        raise ValueError(
            f"x must lie on {levels} levels from -1 to 1, got values from {float(x.min()):g} to"
            f" {float(x.max()):g}, up to {float(off):.2g} of a level away from one"
        )
