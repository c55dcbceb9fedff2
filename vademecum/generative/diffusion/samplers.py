r"""Drawing examples from a diffusion: the ancestral sampler (DDPM), and DDIM, which may skip steps.

Both begin with $x_T \sim \mathcal N(0, I)$ and step down a list of steps, each from $t$ to the next
entry $s$ of the list, whatever that is, and from the last to 0:

$$x_s = \sqrt{\bar\alpha_s}\, \hat x_0 + \sqrt{\bar\beta_s - \eta^2 \tilde\sigma^2}\, \hat\epsilon +
\sigma z, \qquad \tilde\sigma^2 = \frac{\bar\beta_s}{\bar\beta_t} \Big(1 -
\frac{\bar\alpha_t}{\bar\alpha_s}\Big).$$

DDIM has $\sigma = \eta \tilde\sigma$; the ancestral sampler has $\eta = 1$ and a variance
$\sigma^2$ that may differ. Each step is exact for its prediction; the law of the result is that of
the data only in the limit of many steps: the error falls as one over their number, and for DDIM of
the second order, which extrapolates $\hat x_0$ from the last two predictions, as its square down to
the last step. That one is of the first order, so that its start should have little noise
(`spacing`). The claim `generative.ddim` checks both orders, `generative.ddpm_sampling` the first.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.generative._marginals import Predicts, kind_of
from vademecum.generative.diffusion._predictors import Model, Predictor
from vademecum.generative.diffusion._step_lists import (
    Spacing,
    insist_on_schedule,
    spaced,
    step_list,
)
from vademecum.generative.diffusion._walks import Variance, Walk, planned, start_of, walked
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule
from vademecum.models import resting

__all__ = ["ddim_sample", "ddpm_sample"]


def ddim_sample(
    model: Model,
    shape: Sequence[int],
    *,
    schedule: NoiseSchedule,
    steps: int | Sequence[int],
    spacing: Spacing = "even",
    order: int = 1,
    eta: float = 0.0,
    guidance: float | None = None,
    context: Tensor | None = None,
    predicts: Predicts | None = None,
    clip: float | None = None,
    start: Tensor | None = None,
    cuda_graph: bool = False,
    progress: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw examples with few steps, by default without new noise on the way.

    Args:
        model: What is called `model(x, t)` or `model(x, t, context)`, with a step for each example.
        shape: The shape of the result, the number of examples first.
        schedule: The noise that the model was trained with.
        steps: How many steps, from 1 to T; or the steps themselves, which begin with T and fall.
        spacing: Where they lie: "even" in t; at "quadratic" distances, the last of k at T / k^2; or
            even in the logarithm of the signal-to-noise ratio, "snr", from T to 1. The noise that
            is left at the last step is taken away at once, which blurs what is smaller.
        order: 1 for DDIM; 2 for DPM-Solver++(2M), which also looks at the prediction of the step
            before and calls the model no more often. With noise of eta 1 it is its SDE variant.
        eta: How much new noise each step adds: 0 for none, 1 for as much as the ancestral sampler.
        guidance: The weight w of $(1 + w)\, \mathrm{out}(c) - w\, \mathrm{out}$, which goes beyond
            the prediction with the context; None for the plain one.
        context: What the model is told of each example.
        predicts: What the model predicts; by default what its attribute `predicts` says, or noise.
        clip: What entries of the predicted clean examples are cut to, for data within [-clip,
            clip].
        start: The noise to begin with, drawn by default.
        cuda_graph: Whether to capture a step on a CUDA device as a graph and replay it, which is
            fast for small networks; the model must not wait for the device.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Song, Meng, Ermon, Denoising diffusion implicit models, ICLR, 2021. Ho, Salimans,
        Classifier-free diffusion guidance, NeurIPS workshop, 2021. Lu, Zhou, Bao, Chen, Li, Zhu,
        DPM-Solver++: fast solver for guided sampling of diffusion probabilistic models, 2022.

    Example:
        >>> schedule = NoiseSchedule([0.5, 0.5])
        >>> def exact(x, t):  # of data that are all 3
        ...     scale, std = schedule.marginal(t)
        ...     return (x - 3 * scale.to(x)[:, None]) / std.to(x)[:, None]
        >>> ddim_sample(exact, (1, 1), schedule=schedule, steps=2)
        tensor([[3.0000]])
    """
    eta = number("eta", eta, low=0, high=1)
    listed = spaced(steps, insist_on_schedule(schedule), spacing)
    if whole("order", order, low=1) > 2:
        raise ValueError(f"order must be 1 or 2, got {order}")
    walk = planned(
        schedule,
        listed,
        kind_of(model, predicts),
        eta=eta,
        variance="small",
        clip=clip,
        order=order,
    )
    return _sampled(model, shape, walk, guidance, context, start, cuda_graph, progress, generator)


def ddpm_sample(
    model: Model,
    shape: Sequence[int],
    *,
    schedule: NoiseSchedule,
    steps: int | Sequence[int] | None = None,
    variance: Variance | Tensor = "small",
    guidance: float | None = None,
    context: Tensor | None = None,
    predicts: Predicts | None = None,
    clip: float | None = None,
    start: Tensor | None = None,
    cuda_graph: bool = False,
    progress: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw examples by the chain that runs the diffusion backwards.

    Args:
        model: What is called `model(x, t)` or `model(x, t, context)`, with a step for each example.
        shape: The shape of the result, the number of examples first.
        schedule: The noise that the model was trained with.
        steps: How many steps, from 1 to T, or the steps themselves; all of them by default.
        variance: The variance of each step: "small" is $\tilde\beta_t$, right for data without
            spread; "large" is $\beta_t$, right for standard normal data; "learned" takes the second
            half of what the model gives along axis 1, between the two on a logarithmic scale. The
            last step adds no noise. Or a table for t from 0 to T, which also says how much the last
            one adds.
        guidance: The weight w of $(1 + w)\, \mathrm{out}(c) - w\, \mathrm{out}$, which goes beyond
            the prediction with the context; None for the plain one.
        context: What the model is told of each example.
        predicts: What the model predicts; by default what its attribute `predicts` says, or noise.
        clip: What entries of the predicted clean examples are cut to, for data within [-clip,
            clip].
        start: The noise to begin with, drawn by default.
        cuda_graph: Whether to capture a step on a CUDA device as a graph and replay it, which is
            fast for small networks; the model must not wait for the device.
        progress: Whether to show a progress bar on standard error.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Ho, Jain, Abbeel, Denoising diffusion probabilistic models, NeurIPS, 2020.

    Example:
        >>> schedule = NoiseSchedule.linear(100)
        >>> def exact(x, t):  # of standard normal data, for which the large variance is right
        ...     return x * schedule.marginal(t).std.to(x)[:, None]
        >>> draws = ddpm_sample(exact, (10_000, 1), schedule=schedule, variance="large")
        >>> bool((draws.var() - 1).abs() < 0.1)
        True
    """
    T = insist_on_schedule(schedule).T
    kind, listed = kind_of(model, predicts), step_list(T if steps is None else steps, T)
    walk = planned(schedule, listed, kind, eta=1.0, variance=variance, clip=clip)
    return _sampled(model, shape, walk, guidance, context, start, cuda_graph, progress, generator)


def _sampled(
    model: Model,
    shape: Sequence[int],
    walk: Walk,
    guidance: float | None,
    context: Tensor | None,
    start: Tensor | None,
    cuda_graph: bool,
    progress: bool,
    generator: torch.Generator | None,
) -> Tensor:
    with torch.no_grad(), resting(model):
        x = start_of(model, shape, start, generator)
        predict = Predictor(model, len(x), context, guidance, doubled=walk.learned)
        return walked(
            predict, x, walk, generator=generator, cuda_graph=cuda_graph, progress=progress
        )
