r"""Denoising diffusion: a network that predicts the noise in noised examples, and its losses.

$$L_{\mathrm{simple}} = \mathbb E_{t \sim U\{1..T\},\, \epsilon} \big\|\epsilon -
\epsilon_\theta(\sqrt{\bar\alpha_t}\, x_0 + \sqrt{\bar\beta_t}\, \epsilon,\ t)\big\|^2 / d;$$

the same for a network that predicts $x_0$ or $v = \sqrt{\bar\alpha_t}\, \epsilon -
\sqrt{\bar\beta_t}\, x_0$. With the weights of the variational bound it is an unbiased estimate of
what depends on the network in the bound, in nats per entry. A learned variance is trained by the
bound, with the mean held fixed. Losses are exact in expectation over t and noise. Checked by
`generative.simple_diffusion_loss` and `generative.diffusion_step_loss`.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import choice, number, whole
from vademecum.generative._loss_terms import insist_on_numbers
from vademecum.generative._marginals import Predicts, beside, clean_from, kind_of
from vademecum.generative.diffusion._predictors import insist_on_shape, without_context
from vademecum.generative.diffusion._reverse_laws import (
    error_weights,
    fixed_variances,
    learned_log_variance,
    step_cost,
)
from vademecum.generative.diffusion._step_lists import Spacing, clean_weights, insist_on_schedule
from vademecum.generative.diffusion._walks import Variance, normal_like
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule, StepPosterior
from vademecum.generative.diffusion.samplers import ddim_sample, ddpm_sample
from vademecum.generative.diffusion.variational import DiffusionBound, diffusion_bound
from vademecum.randomness import source

__all__ = ["DDPM"]

_SHARE = 1e-3  # of the bound in the loss with a learned variance (Nichol and Dhariwal, 2021)


class DDPM(nn.Module):
    """A network that is trained to undo noise, and draws new examples by doing so step by step.

    Args:
        network: What is called `network(x, t)` or `network(x, t, context)` and answers in the shape
            of x; twice as wide along axis 1 where the variance is learned.
        shape: The shape of one example, such as (1, 28, 28).
        schedule: The noise; by default 1,000 steps with linear betas.
        predicts: What the network predicts: "noise", "x0" or "v".
        variance: That of the steps back: "small", "large" or "learned", as in `ddpm_sample`.
        weighting: "simple" counts the errors at all steps alike, "bound" as the variational bound.
        drop: How often the context is left out in training, so that samples can be guided.
        null: The context that stands for none; by default the network's attribute `null`.

    References:
        Ho, Jain, Abbeel, Denoising diffusion probabilistic models, NeurIPS, 2020. Nichol, Dhariwal,
        Improved denoising diffusion probabilistic models, ICML, 2021.

    Example:
        >>> from vademecum.generative import ConditionalMLP
        >>> model = DDPM(ConditionalMLP(2, hidden=(8,)), (2,), schedule=NoiseSchedule.linear(50))
        >>> model.sample(3, steps=10).shape
        torch.Size([3, 2])
        >>> for p in model.parameters():
        ...     _ = p.data.zero_()
        >>> loss = model.loss(torch.randn(20_000, 2)).detach()  # of the prediction 0
        >>> bool((loss - 1).abs() < 0.05)
        True
    """

    def __init__(
        self,
        network: nn.Module,
        shape: Sequence[int],
        *,
        schedule: NoiseSchedule | None = None,
        predicts: Literal["noise", "x0", "v"] = "noise",
        variance: Variance = "small",
        weighting: Literal["simple", "bound"] = "simple",
        drop: float = 0.0,
        null: Any = None,
    ):
        super().__init__()
        self.network = network
        self.shape = tuple(whole("shape", size, low=1) for size in shape)
        self.schedule = insist_on_schedule(NoiseSchedule.linear() if schedule is None else schedule)
        choice("predicts", predicts, ("noise", "x0", "v"))
        choice("weighting", weighting, ("simple", "bound"))
        clean_weights(self.schedule, [self.schedule.T], predicts)  # refuses noise where all is
        self.predicts: Predicts = kind_of(network, predicts)
        self.variance: Variance = variance
        self.weighting = weighting
        self.drop = number("drop", drop, low=0, below=1)
        self.null = getattr(network, "null", None) if null is None else null
        if self.drop and self.null is None:
            raise ValueError(f"null must be given where drop > 0, got None and drop = {drop}")
        self._least = fixed_variances(self.schedule, variance)
        self._weights = error_weights(self.schedule, self._least, predicts)
        self._elsewhere: dict[tuple[str, torch.device], Tensor] = {}

    def forward(
        self, x: Float[Tensor, " n *shape"], t: Tensor, context: Tensor | None = None
    ) -> Float[Tensor, " n *shape"]:
        """What the network predicts for examples x at steps t."""
        return self._outputs(x, t, context)[0]

    def reverse(
        self, x: Float[Tensor, " n *shape"], t: Tensor, context: Tensor | None = None
    ) -> StepPosterior:
        """The normal law of the examples one step earlier.

        Args:
            x: Examples at step t.
            t: A step from 1 to T for each.
            context: What the network is told of each.
        """
        out, raw = self._outputs(x, t, context)
        guess = clean_from(self.predicts, out, x, self.schedule.marginal(t))
        mean = self.schedule.posterior(guess, x, t).mean
        if raw is None:
            return StepPosterior(mean, beside(self._table("_least", t.device)[t], x))
        least = self._table("_least", t.device)
        return StepPosterior(mean, learned_log_variance(self.schedule, least, raw, t).exp())

    def loss(
        self,
        x: Float[Tensor, " n *shape"],
        context: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, ""]:
        """The mean loss of a batch at random steps, to be minimised.

        Args:
            x: Examples, floating point.
            context: What the network is told of each.
            generator: Where random numbers come from; torch's global generator by default.
        """
        self._insist_on_examples(x)
        n, dice = len(x), source(generator, x.device)
        if context is not None and len(context) != n:
            raise ValueError(
                f"context must have {n} rows, one for each example, got {len(context)}"
            )
        t = torch.randint(1, self.schedule.T + 1, (n,), **dice).to(x.device)
        noise = normal_like(x, x.shape, generator)
        if context is not None and self.drop:
            gone = torch.rand(n, **dice).to(x.device) < self.drop
            gone = gone.view(-1, *[1] * (context.ndim - 1))
            context = torch.where(gone, without_context(self.null, context), context)
        noisy = self.schedule.noised(x, t, noise)
        out, raw = self._outputs(noisy, t, context)
        error = (out - self._target(x, noise, t)).square()
        if self.weighting == "bound":
            error = error * (self.schedule.T * beside(self._table("_weights", x.device)[t], x))
        terms = {f"prediction of {self.predicts}": error.mean()}
        if raw is not None:
            terms["learned variance"] = self._variance_loss(x, noisy, out.detach(), raw, t)
        insist_on_numbers(terms, x)
        return functools.reduce(torch.add, terms.values())

    def sample(
        self,
        n: int,
        context: Tensor | None = None,
        *,
        steps: int | Sequence[int] | None = None,
        spacing: Spacing = "even",
        order: int = 1,
        eta: float = 0.0,
        guidance: float | None = None,
        clip: float | None = None,
        cuda_graph: bool = False,
        progress: bool = False,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " n *shape"]:
        """Draw examples: by all steps of the chain, or by fewer steps of DDIM.

        Args:
            n: How many.
            context: What the network is told of each.
            steps: The steps of `ddim_sample`; by default all steps of `ddpm_sample`.
            spacing: Where few steps lie, as in `ddim_sample`.
            order: 1 for DDIM, 2 for its extrapolation from the last two predictions.
            eta: How much new noise a step of DDIM adds.
            guidance: How far to go beyond the prediction with the context.
            clip: What entries of the predicted clean examples are cut to.
            cuda_graph: Whether to capture a step on a CUDA device as a graph and replay it.
            progress: Whether to show a progress bar on standard error.
            generator: Where random numbers come from; torch's global generator by default.
        """
        common: dict[str, Any] = {
            "schedule": self.schedule, "context": context, "guidance": guidance, "clip": clip,
            "cuda_graph": cuda_graph, "progress": progress, "generator": generator,
        }  # fmt: skip
        shape = (whole("n", n, low=1), *self.shape)
        if steps is not None:
            few = {"steps": steps, "spacing": spacing, "order": order, "eta": eta}
            return ddim_sample(self, shape, **few, **common)
        if (spacing, order, eta) != ("even", 1, 0):
            given = f"{spacing!r}, {order} and {eta}"
            raise ValueError(f"steps must be given for spacing, order and eta, got {given}")
        model = _BothHalves(self) if self.variance == "learned" else self
        return ddpm_sample(model, shape, variance=self.variance, predicts=self.predicts, **common)

    def bound(
        self,
        x: Float[Tensor, " n *shape"] | DataLoader,
        context: Tensor | Literal["targets"] | None = None,
        *,
        levels: int | None = None,
        generator: torch.Generator | None = None,
    ) -> DiffusionBound:
        """The variational bound for examples, term by term.

        Args:
            x: Examples, or a `DataLoader` that brings them.
            context: What the network is told of each; "targets" of a loader.
            levels: How many levels the data have in [-1, 1]; None for continuous data.
            generator: Where random numbers come from; torch's global generator by default.
        """
        if isinstance(x, Tensor):
            self._insist_on_examples(x)
        model = _BothHalves(self) if self.variance == "learned" else self
        return diffusion_bound(
            model, x, context, schedule=self.schedule, predicts=self.predicts, levels=levels,
            variance=self.variance, generator=generator,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The knobs."""
        return f"shape={self.shape}, predicts={self.predicts!r}, variance={self.variance!r}"

    def _outputs(
        self, x: Tensor, t: Tensor, context: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        out = self.network(x, t) if context is None else self.network(x, t, context)
        learned = self.variance == "learned"
        wanted = (len(x), 2 * x.shape[1], *x.shape[2:]) if learned else tuple(x.shape)
        out = insist_on_shape("network", out, wanted)
        if not learned:
            return out, None
        out, raw = out.chunk(2, 1)
        return out, raw

    def _target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        if self.predicts == "noise":
            return noise
        if self.predicts == "x0":
            return x
        scale, std = (beside(value, x) for value in self.schedule.marginal(t))
        return scale * noise - std * x

    def _variance_loss(
        self, x: Tensor, noisy: Tensor, out: Tensor, raw: Tensor, t: Tensor
    ) -> Tensor:
        guess = clean_from(self.predicts, out, noisy, self.schedule.marginal(t))
        least = self._table("_least", t.device)
        log_variance = learned_log_variance(self.schedule, least, raw, t)
        cost = step_cost(self.schedule, x, noisy, guess, t, log_variance)
        return _SHARE * self.schedule.T * cost.mean()

    def _table(self, name: str, device: torch.device) -> Tensor:
        """A table on a device, copied there once."""
        if (name, device) not in self._elsewhere:
            self._elsewhere[name, device] = getattr(self, name).to(device)
        return self._elsewhere[name, device]

    def _insist_on_examples(self, x: Tensor) -> None:
        if not x.is_floating_point():
            raise ValueError(f"x must be floating point, got {x.dtype}")
        if tuple(x.shape[1:]) != self.shape or not len(x):
            raise ValueError(f"x must have the shape (n, *{self.shape}), got {tuple(x.shape)}")


class _BothHalves(nn.Module):
    """The network of a model with all that it gives, and the context that stands for none."""

    def __init__(self, model: DDPM):
        super().__init__()
        self.network, self.null = model.network, model.null

    def forward(self, x: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return self.network(x, t) if context is None else self.network(x, t, context)
