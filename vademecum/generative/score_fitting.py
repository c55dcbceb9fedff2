r"""Fitting a score without knowing the density: denoising, sliced and implicit score matching.

The Fisher divergence $\mathbb E_p \|\nabla \log p - s\|^2$ cannot be computed from examples, but up
to $C = \mathbb E_p \|\nabla \log p\|^2$, which does not depend on $s$, it equals

$$\mathbb E_p\big[\|s\|^2 + 2 \operatorname{tr} \nabla s\big]
= \mathbb E_p \mathbb E_u\big[(u^\top s)^2 + 2\, u^\top \nabla s\, u\big],$$

the implicit and the sliced loss; directions need $\mathbb E[u u^\top] = I$, so that those on the
unit sphere of $\mathbb R^d$ come with the factor $d$. For the law of noised examples $\tilde x = c
x + \sigma \epsilon$ it equals, up to another constant, the denoising loss

$$\mathbb E \Big\|s(\tilde x) + \frac{\epsilon}{\sigma}\Big\|^2 .$$

All of them are exact in the mean over their random numbers, per example, and differentiable in the
parameters. The claims are `implicit_score_matching`, `sliced_score_matching` and
`denoising_score_matching`.

References:
    Hyvarinen, Estimation of non-normalized statistical models by score matching, JMLR 6, 2005.
    Vincent, A connection between score matching and denoising autoencoders, Neural Computation 23,
    2011.
    Song, Garg, Shi and Ermon, Sliced score matching, UAI, 2019.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, floats, whole
from vademecum.foundations.stochastic_trace import mean_and_error
from vademecum.generative._divergences import Products, directions, exact_divergence, projected
from vademecum.generative._loss_terms import insist_on_numbers
from vademecum.generative._marginals import (
    Marginal,
    Predicts,
    Process,
    beside,
    kind_of,
    noise_from,
)
from vademecum.generative._scores_of_models import called, examples
from vademecum.generative.continuous.equations import insist_on_times
from vademecum.models import resting, twice_differentiable
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["FisherDivergence", "fisher_divergence", "score_matching_loss"]

_EARLIEST = 1e-3  # the time at which drawn times begin: closer to 0 targets have no finite variance
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def score_matching_loss(
    model: Any,
    x: Float[Tensor, " n *shape"],
    t: Tensor | None = None,
    *,
    method: Literal["denoising", "sliced", "implicit"] = "denoising",
    process: Process | None = None,
    std: float | Float[Tensor, " n"] | None = None,
    predicts: Predicts | None = None,
    weighting: Literal["variance", "none"] = "variance",
    projections: int = 1,
    law: Literal["rademacher", "gaussian", "sphere"] = "rademacher",
    context: Any = None,
    reduction: Literal["mean", "none"] = "mean",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""A loss whose minimiser is the score of the law of the examples, clean or noised.

    Args:
        model: What predicts: called as `model(x)`, or `model(x, t)` where there are times, or
            `model(x, t, context)`; in the mode in which it is.
        x: Examples.
        t: Their times, (n,). Denoising in continuous time draws them evenly from 1e-3 to 1 by
            default.
        method: "denoising" noises the examples and asks for the noise; "sliced" and "implicit"
            take them as they are, and derivatives of the model in them.
        process: How denoising noises examples: anything with `marginal(t)`; or `std`.
        std: The standard deviation of noise that denoising adds to examples, one or (n,).
        predicts: What the model gives, "score", or for denoising also "noise", "x0" or "v"; by
            default what its attribute `predicts` says, or the score.
        weighting: Whether denoising multiplies by the variance of the noise, so that all levels
            weigh alike, or not.
        projections: How many random directions the sliced loss takes for each example.
        law: Their law; those on the sphere are of unit length, with the factor d.
        context: What else the model is given.
        reduction: "mean" over the examples, or "none" for (n,) losses.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If batch normalisation ties examples to each other, where derivatives are
            needed of each alone; if arguments do not belong to the method; or if, on the CPU, a
            term of the loss is NaN or infinite, with its name.

    Example:
        >>> x = torch.tensor([[1.0, 2.0]])
        >>> score_matching_loss(lambda x: -x, x, method="implicit").item()  # |x|^2 - 2 d
        1.0
        >>> sliced = {"method": "sliced", "projections": 4000}
        >>> abs(score_matching_loss(lambda x: -x, x, **sliced).item() - 1) < 0.5
        True
    """
    if not examples("x", x).numel():
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    choice("method", method, ("denoising", "sliced", "implicit"))
    choice("reduction", reduction, ("mean", "none"))
    if context is not None and t is None and process is None:
        raise ValueError("t must be given with a context: the model is called (x, t, context)")
    kind = kind_of(model, predicts, "score")
    if method == "denoising":
        choice("weighting", weighting, ("variance", "none"))
        at, marginal, time = _noised(x, t, process, std, generator)
        wrong = _denoising(model, x, at, marginal, time, kind, weighting, context)
        terms = {f"prediction of {kind}": wrong}
    else:
        _refuse_others(model, method, process, std, kind)
        u = None
        if method == "sliced":
            choice("law", law, ("rademacher", "gaussian", "sphere"))
            u = directions(law, x, whole("projections", projections, low=1), generator)
        terms = _by_derivatives(model, x, t, u, context)
    insist_on_numbers(terms, x)
    losses = functools.reduce(torch.add, terms.values())
    losses = losses * x[0].numel() if method == "sliced" and law == "sphere" else losses
    return losses.mean() if reduction == "mean" else losses


def _noised(
    x: Tensor, t: Tensor | None, process: Process | None, std: Any,
    generator: torch.Generator | None,
) -> tuple[Tensor, Marginal, Tensor | None]:  # fmt: skip
    """The noise, its level, and the times that the model is told."""
    if (process is None) == (std is None):
        raise ValueError("denoising needs either process or std, got both or none of them")
    dice = source(generator, x.device)
    if process is not None:
        if not callable(getattr(process, "marginal", None)):
            raise ValueError(f"process must have marginal(t), got {type(process).__name__}")
        if t is None and not callable(getattr(process, "drift", None)):
            raise ValueError(f"t must be given for {type(process).__name__}, which has steps")
        if t is None:
            draw = torch.rand(len(x), dtype=x.dtype, **dice).to(x.device)
            t = _EARLIEST + (1 - _EARLIEST) * draw
        else:
            insist_on_times("t", t, process)
        marginal = process.marginal(t)
    else:
        sigma = torch.as_tensor(std, dtype=torch.float64, device=x.device)
        marginal = Marginal(torch.ones_like(sigma), sigma)
    found = marginal.std.to(x.dtype)
    if found.numel() not in (1, len(x)) or not bool(((found > 0) & found.isfinite()).all()):
        raise ValueError(
            f"the standard deviation of noise must be positive, one or {len(x)} of them, and"
            f" finite in {x.dtype}, got {marginal.std.tolist()}"
        )
    return torch.randn(x.shape, dtype=x.dtype, **dice).to(x.device), marginal, t


def _denoising(
    model: Any, x: Tensor, noise: Tensor, marginal: Marginal, t: Tensor | None, kind: Predicts,
    weighting: str, context: Any,
) -> Tensor:  # fmt: skip
    scale, std = (beside(value, x) for value in marginal)
    seen = scale * x + std * noise
    found = noise_from(kind, called(model, seen, t, context), seen, marginal)
    wrong = (found - noise) if weighting == "variance" else (found - noise) / std
    return wrong.square().flatten(1).sum(1)


def _by_derivatives(
    model: Any, x: Tensor, t: Tensor | None, u: Tensor | None, context: Any
) -> dict[str, Tensor]:
    """The terms of the implicit loss of each example; with directions of the sliced one."""
    products = Products(graph=torch.is_grad_enabled())
    with twice_differentiable() if _convolves(model) else torch.enable_grad():
        at = x.detach().requires_grad_()
        s = called(model, at, t, context)
        if u is None:
            square, trace = s.square().flatten(1).sum(1), exact_divergence(s, at, products)
        else:
            square = (u * s).flatten(2).sum(2).square().mean(0)
            trace = projected(s, at, u, products).mean(0)
    return {"squared score": square, "divergence": 2 * trace}


def _convolves(model: Any) -> bool:
    """Whether there are convolutions, whose second derivatives torch computes in a dear way."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return isinstance(model, nn.Module) and any(isinstance(m, kinds) for m in model.modules())


def _refuse_others(model: Any, method: str, process: Any, std: Any, predicts: str) -> None:
    if process is not None or std is not None:
        raise ValueError(f"process and std belong to denoising, got method={method!r}")
    if predicts != "score":
        raise ValueError(f"predicts must be 'score' for method={method!r}, got {predicts!r}")
    for name, module in model.named_modules() if isinstance(model, nn.Module) else ():
        if isinstance(module, _BATCH_NORMS) and (module.training or module.running_mean is None):
            raise ValueError(
                f"model must treat examples independently for method={method!r}, but"
                f" {type(module).__name__} {name!r} normalises by the batch"
            )


class FisherDivergence(NamedTuple):
    """How far a score is from the true one, in the mean square.

    Example:
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> fisher_divergence(lambda x: 0 * x, x, -x)
        FisherDivergence(value=tensor(5.), standard_error=tensor(4.0000))
    """

    value: Float[Tensor, ""]
    """The mean of the squared distances."""
    standard_error: Float[Tensor, ""]
    """Its standard error over the examples; 0 with weights."""

    __repr__ = one_line


@torch.no_grad()
def fisher_divergence(
    model: Any,
    x: Float[Tensor, " n *shape"],
    score: Float[Tensor, " n *shape"] | Callable[..., Tensor],
    *,
    t: Tensor | None = None,
    weights: Float[Tensor, " n"] | None = None,
    context: Any = None,
) -> FisherDivergence:
    r"""The Fisher divergence $\mathbb E_p \|\nabla \log p(x) - s(x)\|^2$ of a model's score.

    Args:
        model: The score: called as `model(x)`, or `model(x, t)` with times, or
            `model(x, t, context)`; a module is taken in evaluation mode.
        x: Examples drawn from p, or with `weights` the nodes of a quadrature.
        score: The true score at the examples, or a function that gives it as the model does.
        t: The times of the examples, (n,).
        weights: The weights of a quadrature over p; by default examples weigh alike.
        context: What else the model is given.

    Example:
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> fisher_divergence(lambda x: -x / 2, x, lambda x: -x).value  # the mean of x^2 / 4
        tensor(1.2500)
    """
    x = examples("x", x)
    for name, field in (("model", model), ("score", score)):
        own = getattr(field, "predicts", None)
        if own not in (None, "score"):
            raise ValueError(f"{name} must give scores, got one that predicts {own!r}")
    if len(x) < (2 if weights is None else 1):
        raise ValueError(f"x must hold at least two examples, got {len(x)}")
    with resting(model):
        found = called(model, x, t, context)
    true = called(score, x, t, context) if callable(score) else floats("score", score)
    if true.shape != x.shape:
        raise ValueError(f"score must have shape {tuple(x.shape)}, got {tuple(true.shape)}")
    squares = (found - true).flatten(1).square().sum(1)
    if weights is None:
        return FisherDivergence(*mean_and_error(squares))
    w = floats("weights", weights, ndim=1, width=len(x)).to(squares)
    return FisherDivergence((w * squares).sum(), squares.new_zeros(()))
