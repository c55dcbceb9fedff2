r"""What a posterior predicts: the law of an answer, averaged over the weights.

$$p(y \mid x, S) = \int p(y \mid x, \theta)\, p(\theta \mid S)\, d\theta \approx \sum_j w_j\, p(y
\mid x, \theta_j)$$

for draws $\theta_j$ with the shares $w_j$ (`vademecum.bayes._mixtures`). Its mean is the model
average, a point and not the law. What is reported of the mixture is exact up to rounding; how well
a mixture of draws stands for the integral is the draws' business. Of Laplace's approximation with
Gaussian noise the law is normal and known without draws. The claim is `posterior_predictive`.

References:
    Gneiting and Raftery, Strictly proper scoring rules, prediction, and estimation, Journal of the
    American Statistical Association, 2007.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, floats, number, whole
from vademecum.arrays import portions
from vademecum.bayes._batch_statistics import keeps_statistics, renewed
from vademecum.bayes._members import Members, members_of_modules, members_of_vectors
from vademecum.bayes._mixtures import Numbers, bernoulli, categorical, gaussian, single_gaussian
from vademecum.bayes._output_curvature import LIKELIHOODS, OutputCurvature
from vademecum.bayes.importance import ImportanceEnsemble
from vademecum.bayes.laplace_approximation import Laplace
from vademecum.bayes.trained_ensembles import DeepEnsemble
from vademecum.bayes.weight_trajectories import SWAG
from vademecum.models import Output, batches, count_examples, map_tensors
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["PosteriorPredictive", "posterior_predictive"]

_PORTION = 2**27  # bytes of outputs and what is made of them, at a time, without a limit
_COPIES = 8  # arrays as large as the outputs of all draws that scores need at their peak


class PosteriorPredictive(NamedTuple):
    """The law of answers, for each example.

    Example:
        >>> draws, model = torch.tensor([[-1.0], [1.0]]), nn.Linear(1, 1, bias=False)
        >>> found = posterior_predictive(draws, model, torch.ones(1, 1), likelihood="gaussian")
        >>> found.mean, found.std, found.spread  # variances 1 of the noise, 1 of the draws
        (tensor([[0.]]), tensor([[1.4142]]), tensor([[1.]]))
    """

    mean: Float[Tensor, " n *rest"]
    """The mean of the law, the model average; for classes their probabilities."""
    std: Float[Tensor, " n *rest"]
    """The standard deviation of an answer; for classes that of the probabilities over the draws."""
    spread: Float[Tensor, " n *rest"]
    """The standard deviation over the draws alone, without noise."""
    interval: Float[Tensor, " 2 n *rest"]
    """The ends of the central interval of an answer; for classes of the probabilities."""
    log_score: Float[Tensor, " n"] | None
    """Minus the logarithm of the density, or probability, of the targets; None without."""
    brier: Float[Tensor, " n"] | None
    """The squared distance of probabilities and targets, for classes."""
    crps: Float[Tensor, " n *rest"] | None
    """The continuous ranked probability score of each target, for numbers."""
    effective: float
    """How many equal draws the draws are worth, by their shares."""

    __repr__ = one_line


def posterior_predictive(
    samples: Any,
    model: nn.Module | None,
    x: Any,
    y: Tensor | None = None,
    *,
    likelihood: str,
    noise: float | None = None,
    level: float = 0.9,
    draws: int = 100,
    statistics: Any = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> PosteriorPredictive:
    r"""The posterior predictive law of each example's answer, and how well it does.

    The model is taken in evaluation mode and never changed. Scores are the less the better.

    Args:
        samples: Where weights come from: `Chains`, a tensor of draws (chains, draws, P) or (n, P),
            an `ImportanceEnsemble`, a `DeepEnsemble`, `SWAG` or `Laplace`.
        model: The network that the weights are of; None for a `DeepEnsemble` or `Laplace`, which
            have theirs.
        x: The inputs; a tensor, or any structure of tensors with the examples along their first
            axis; or a `DataLoader` of batches `(x, y)`.
        y: The targets, for scores.
        likelihood: How targets follow from outputs: "gaussian" around them, "categorical" with
            logits, "bernoulli" with a logit each.
        noise: The standard deviation of Gaussian targets; by default that of a `Laplace`, else 1.
        level: The probability of the interval.
        draws: How many draws to take of `SWAG`, and of `Laplace` for classes.
        statistics: Training inputs, from which the statistics of batch normalisation are renewed
            for each draw of `SWAG`.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error. It counts examples.
        frozen: Whether parameters that require no gradient are a part of the draws, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If samples are none of these or do not fit the model, targets do not fit, or
            a `Laplace` has another likelihood.

    Example:
        >>> draws, model = torch.tensor([[-1.0], [1.0]]), nn.Linear(1, 1, bias=False)
        >>> x, y = torch.ones(2, 1), torch.tensor([[0.0], [1.0]])
        >>> found = posterior_predictive(draws, model, x, y, likelihood="bernoulli")
        >>> found.mean, found.brier  # the mean of 0.2689 and 0.7311
        (tensor([[0.5000], [0.5000]]), tensor([0.2500, 0.2500]))
    """
    law = _Law(likelihood, _noise(samples, likelihood, noise), level)
    whole("draws", draws, low=1)
    if memory is not None:
        whole("memory", memory, low=1)
    knobs: Any = {"memory": memory, "frozen": frozen, "output": output}
    found: list[Numbers] = []
    effective = 1.0
    device = next((p.device for p in model.parameters()), None) if model is not None else None
    with given_back(generator):
        for bx, by in batches(x, y, device=device, progress=progress):
            n = count_examples(bx, by)
            if isinstance(samples, Laplace):
                ask, each = _of_laplace(samples, law, draws, generator, memory, bx)
                effective = float("inf") if likelihood == "gaussian" else float(draws)
            else:
                members = _members(samples, model, bx, draws, statistics, generator, knobs)
                ask, each = law.of(members), members.bytes_each
                effective = 1 / float(members.weights.square().sum())
            shown = progress and bx is x
            with ticking("examples", n, progress=shown) as tick:
                for here in portions(n, each=_COPIES * each, memory=memory or _PORTION):
                    some = map_tensors(bx, itemgetter(here))
                    found.append(ask(some, None if by is None else by[here]))
                    tick(here.stop - here.start)
    return _joined(found, effective)


def _noise(samples: Any, likelihood: str, noise: float | None) -> float:
    """The standard deviation of targets; a Laplace approximation brings its own."""
    if isinstance(samples, Laplace):
        if likelihood != samples.likelihood:
            raise ValueError(
                f"likelihood must be that of samples, {samples.likelihood!r}, got {likelihood!r}"
            )
        return samples.noise if noise is None else noise
    return 1.0 if noise is None else noise


class _Law:
    """A likelihood, and the ends of an interval."""

    def __init__(self, likelihood: str, noise: float, level: float):
        self.name = choice("likelihood", likelihood, LIKELIHOODS)
        self.noise = number("noise", noise, above=0)
        level = number("level", level, above=0, below=1)
        self.ends = ((1 - level) / 2, (1 + level) / 2)
        self._checks = OutputCurvature(likelihood, noise)

    def of(self, members: Members) -> Callable[[Any, Tensor | None], Numbers]:
        """The mixture over members."""
        return lambda x, y: self.mixture(members.outputs(x), members.weights, y)

    def mixture(self, z: Tensor, w: Tensor, y: Tensor | None) -> Numbers:
        """The mixture over outputs (S, n, ...) with the shares w."""
        floats("outputs of model", z)
        y = None if y is None else self.targets(y, z[0])
        tails = torch.tensor(self.ends, dtype=z.dtype, device=z.device)
        if self.name == "gaussian":
            return gaussian(z, w, z.new_tensor(self.noise), y, tails)
        if self.name == "categorical":
            if z.ndim != 3:
                raise ValueError(f"model must give logits (n, k), got shape {tuple(z.shape[1:])}")
            return categorical(z, w, y, tails)
        return bernoulli(z, w, y, tails)

    def single(self, mean: Tensor, covariance: Tensor, y: Tensor | None) -> Numbers:
        """A normal law for each example."""
        y = None if y is None else self.targets(y, mean)
        tails = torch.tensor(self.ends, dtype=mean.dtype, device=mean.device)
        return single_gaussian(mean, covariance, mean.new_tensor(self.noise), y, tails)

    def targets(self, y: Tensor, z: Tensor) -> Tensor:
        """Targets that fit outputs."""
        return self._checks.targets(y, z)


def _members(
    samples: Any, model: nn.Module | None, x: Any, draws: int, statistics: Any,
    generator: torch.Generator | None, knobs: dict[str, Any],
) -> Members:  # fmt: skip
    if isinstance(samples, DeepEnsemble):
        return members_of_modules(list(samples.models), None, x, output=knobs["output"])
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be the network of the samples, got {type(model).__name__}")
    if isinstance(samples, SWAG):
        theta = samples.sample(draws, generator=generator)
        if keeps_statistics(model):
            if statistics is None:
                raise ValueError(
                    "statistics must be training inputs for draws of SWAG, since model has layers"
                    " with running statistics, got None"
                )
            made = renewed(model, theta, statistics, knobs["output"])
            return members_of_modules(made, None, x, output=knobs["output"])
        return members_of_vectors(model, theta, None, x, **knobs)
    if isinstance(samples, ImportanceEnsemble):
        weights = samples.log_weights.exp()
        return members_of_vectors(model, samples.draws, weights, x, **knobs)
    theta = samples if isinstance(samples, Tensor) else getattr(samples, "draws", None)
    if not isinstance(theta, Tensor) or theta.ndim not in (2, 3):
        raise ValueError(
            "samples must be Chains, draws (n, P), an importance or a deep ensemble, SWAG or"
            f" Laplace, got {type(samples).__name__}"
        )
    return members_of_vectors(model, theta.reshape(-1, theta.shape[-1]), None, x, **knobs)


def _of_laplace(
    samples: Laplace, law: _Law, draws: int, generator: torch.Generator | None,
    memory: int | None, x: Any,
) -> tuple[Callable[[Any, Tensor | None], Numbers], int]:  # fmt: skip
    first = samples.outputs(map_tensors(x, itemgetter(slice(1))), memory=memory)
    k = first.mean.shape[1]
    if law.name == "gaussian":

        def closed(x: Any, y: Tensor | None) -> Numbers:
            found = samples.outputs(x, memory=memory)
            return law.single(found.mean, found.covariance(), y)

        return closed, k * first.mean.nbytes

    def drawn(x: Any, y: Tensor | None) -> Numbers:
        z = samples.outputs(x, memory=memory).sample(draws, generator=generator)
        return law.mixture(z, z.new_full((draws,), 1 / draws), y)

    return drawn, draws * first.mean.nbytes


def _joined(found: list[Numbers], effective: float) -> PosteriorPredictive:
    made: dict[str, Any] = {}
    for name in Numbers._fields:
        parts = [getattr(one, name) for one in found]
        known = parts[0] is not None
        made[name] = torch.cat(parts, int(name == "interval")) if known else None
    return PosteriorPredictive(**made, effective=effective)
