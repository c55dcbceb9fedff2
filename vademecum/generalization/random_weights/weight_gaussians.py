r"""A network with Gaussian weights: fresh ones in each pass, near a prior that was there before.

$$Q = N\big(\theta, \operatorname{diag}(\sigma^2)\big), \qquad P = N(\theta_0, \lambda I), \qquad
\mathrm{KL}(Q \| P) = \frac12 \sum_i \Big[\frac{\sigma_i^2 + (\theta_i - \theta_{0 i})^2}\lambda -
1 + \ln \frac\lambda{\sigma_i^2}\Big].$$

With $u_i = \ln(\sigma_i^2 / \lambda)$ the terms are $e^{u_i} - 1 - u_i \ge 0$ and squares: nothing
cancels. For given $\theta$ and $\sigma$ it is least at $\lambda = \frac1P \sum_i [\sigma_i^2 +
(\theta_i - \theta_{0 i})^2]$.

The law of the output of an example is exact. Examples that meet a layer in one row have their own
draws of its weights, which is cheaper and less noisy (Kingma, Salimans and Welling, Variational
dropout and the local reparameterization trick, NeurIPS 2015); other weights are drawn once for all
examples of a pass. The claim is `pac_bayes_networks`.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number
from vademecum.generalization.random_weights._own_draws import Draws, Gaussian, OwnDraws, normal
from vademecum.models import (
    Entangled,
    aliases,
    call_with,
    count_examples,
    evaluation,
    map_tensors,
    tensor_places,
    unwrapped,
)
from vademecum.randomness import whence

__all__ = ["StochasticNetwork"]


class StochasticNetwork(nn.Module):
    r"""A network whose weights are drawn from a Gaussian in each pass, in training and evaluation.

    It works on a copy of the model, whose parameters are the means $\theta$: `network.model(x)` is
    the network at the mean. Parameters that require no gradient, and buffers, are constants of $P$
    and $Q$ alike. A parameter that is used in several places is one, and has one draw.

    Args:
        model: Any module, which is copied and never changed.
        prior: The means $\theta_0$ of the prior: a module with the same parameters, which is not
            kept, or "init" for those that `model` has now.
        prior_std: The standard deviation $\sqrt\lambda$ of the prior.
        std: The standard deviation $\sigma$ to begin with; that of the prior by default.
        draws: Who shares a draw of the weights. "auto": examples have their own where their outputs
            can be drawn in the place of weights, and else share one. "batch": all examples of a
            pass share one. "example": each has its own, of all weights, which costs their number
            for each example in convolutions and in layers over sequences.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If the prior has other parameters, or differs in what is frozen.

    References:
        Dziugaite and Roy, Computing nonvacuous generalization bounds for deep (stochastic) neural
        networks with many more parameters than training data, UAI, 2017.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> network = StochasticNetwork(model, prior="init", prior_std=2.0, std=1.0)
        >>> network.kl()  # (1/4 - 1 + ln 4) / 2, twice
        tensor(0.6363, grad_fn=...)
        >>> x = torch.tensor([[3.0, 4.0]]).expand(10_000, 2)
        >>> abs(network(x).std().item() - 5) < 5 * 5 / 20_000**0.5  # 3^2 + 4^2 = 5^2
        True
    """

    prior_std: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        prior: nn.Module | Literal["init"],
        prior_std: float = 0.1,
        std: float | None = None,
        draws: Draws = "auto",
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.model = deepcopy(unwrapped(model))
        self._places = _stochastic(self.model)
        scale = number("prior_std", prior_std, above=0)
        start = 2 * math.log(scale if std is None else number("std", std, above=0))
        self.log_variance = nn.ParameterList(torch.full_like(p, start) for p in self._means())
        base = self.model if isinstance(prior, str) else unwrapped(prior)
        if isinstance(prior, str):
            choice("prior", prior, ("init",))
        for i, p in enumerate(_prior_means(base, self.model, self._places)):
            self.register_buffer(f"prior_mean_{i}", p.clone())
        self.register_buffer("prior_std", torch.tensor(scale, dtype=torch.float64))
        choice("draws", draws, ("auto", "example", "batch"))
        self.draws: Draws = draws
        whence(generator, None)
        self.generator = generator
        self._shared: set[int] | None = None
        self._numbers = 0  # of weights that are drawn for each example

    def extra_repr(self) -> str:
        """The size of the prior and who shares a draw."""
        return f"prior_std={self.prior_std.item():.4g}, draws={self.draws!r}"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, with weights drawn anew."""
        laws = [
            Gaussian(i, *law)
            for i, law in enumerate(zip(self._means(), self.log_variance, strict=True))
        ]
        n = None if self.draws == "batch" else _examples(args, kwargs)
        if n is None:
            if self.draws == "example":
                raise ValueError("draws must not be 'example' where inputs have no examples")
            return self._pass(laws, (), args, kwargs)
        if self._shared is None:
            self._look(laws, args, kwargs)
        while True:
            assert self._shared is not None
            own = [law for law in laws if law.place not in self._shared]
            if not own:
                return self._pass(laws, (), args, kwargs)
            with OwnDraws(own, n, self.draws, self.generator) as mode:
                result = self._pass(laws, own, args, kwargs)
            again = {law.place for law in own if mode.seen.get(law.place) != 1}
            if not again:
                return result
            self._share(again)  # this input takes another way through the model

    def kl(
        self, *, prior_std: float | None = None, dtype: torch.dtype | None = None
    ) -> Float[Tensor, ""]:
        r"""The divergence $\mathrm{KL}(Q \| P)$ in nats, differentiable.

        Args:
            prior_std: The standard deviation of the prior, in the place of the present one.
            dtype: The dtype to compute in; that of the parameters by default.
        """
        prior = float(self.prior_std) if prior_std is None else prior_std
        scale = number("prior_std", prior, above=0)
        triples = zip(self._means(), self._prior_means(), self.log_variance, strict=True)
        parts = [_Divergence.apply(*(t.to(dtype) for t in each), scale)[0] for each in triples]
        return torch.stack(parts).sum()

    @torch.no_grad()
    def best_prior_std(self) -> float:
        """The standard deviation of the prior for which the divergence is least."""
        moved, P = 0.0, 0
        for mean, start, log_variance in zip(
            self._means(), self._prior_means(), self.log_variance, strict=True
        ):
            square = log_variance.exp().sum(dtype=torch.float64)
            moved += float(square + (mean - start).square().sum(dtype=torch.float64))
            P += mean.numel()
        return math.sqrt(moved / P)

    def _means(self) -> list[Tensor]:
        """The means as they stand in the model now: other tensors may stand there for a while."""
        return [
            getattr(self.model.get_submodule(path), name)
            for path, name in (_split(places[0]) for places in self._places)
        ]

    def _prior_means(self) -> list[Tensor]:
        return [getattr(self, f"prior_mean_{i}") for i in range(len(self._places))]

    def _pass(
        self, laws: list[Gaussian], own: Sequence[Gaussian], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A pass of the model; what is not drawn on the way is drawn before."""
        later, tensors = {law.place for law in own}, {}
        for law in laws:
            if law.place not in later:
                eps = normal(law.mean.shape, law.mean, self.generator)
                drawn = torch.addcmul(law.mean, (law.log_variance / 2).exp(), eps)
                tensors |= dict.fromkeys(self._places[law.place], drawn)
        return call_with(self.model, tensors, args, kwargs, also=aliases(self.model))

    def _look(self, laws: list[Gaussian], args: Any, kwargs: dict[str, Any]) -> None:
        """Find what examples can have draws of, by one example: it must be one row of its own."""
        one = map_tensors((args, kwargs), lambda t: t[:1])
        state = None if self.generator is None else self.generator.get_state()
        mode = OwnDraws(laws, 1, self.draws, self.generator)
        with torch.no_grad(), evaluation(self.model, fused=True), mode:
            call_with(self.model, {}, *one, also=[])
        if self.generator is not None and state is not None:
            self.generator.set_state(state)
        self._shared, self._numbers = set(), mode.numbers
        self._share({law.place for law in laws if mode.seen.get(law.place) != 1})

    def _share(self, indices: set[int]) -> None:
        self._shared = (self._shared or set()) | indices
        if self.draws == "example" and indices:
            name = self._places[min(indices)][0]
            raise ValueError(
                f"draws must not be 'example' for this model, got {name}, which is used otherwise"
                " than once by a linear or convolutional layer with a row for each example"
            )


class _Divergence(torch.autograd.Function):
    """The divergence of one tensor: half as many passes over it as by autograd."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        mean: Tensor, start: Tensor, log_variance: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        u = log_variance - 2 * math.log(scale)
        excess = u.expm1()
        moved = (mean - start).flatten()
        total = ((excess - u).sum() + moved.dot(moved) / scale**2) / 2
        return total, excess

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:3], output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.scale = inputs[3]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, start, log_variance, excess = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate again
            excess = (log_variance - 2 * math.log(ctx.scale)).expm1()
        by_mean = (mean - start) * (grads[0] / ctx.scale**2)
        by_start = -by_mean if ctx.needs_input_grad[1] else None
        return by_mean, by_start, excess * (grads[0] / 2), None


def _stochastic(model: nn.Module) -> list[list[str]]:
    """The places of parameters that are drawn; those of tied ones together."""
    found: dict[int, list[str]] = {}
    for place, p in tensor_places(model, "parameters"):
        if p.requires_grad:
            if not p.is_floating_point():
                raise ValueError(f"parameters of model must be real, got {p.dtype} for {place}")
            found.setdefault(id(p), []).append(place)
    if not found:
        raise ValueError("model must have parameters that require gradients, got none")
    return list(found.values())


def _prior_means(prior: nn.Module, model: nn.Module, places: list[list[str]]) -> Iterator[Tensor]:
    """The parameters of the prior at the places of the model's; what is constant must be equal."""
    drawn = {place for group in places for place in group}
    own, theirs = (
        {p: t.detach() for kind in ("parameters", "buffers") for p, t in tensor_places(m, kind)}
        for m in (model, prior)
    )
    shapes = [{place: tuple(t.shape) for place, t in each.items()} for each in (own, theirs)]
    if shapes[0] != shapes[1]:
        odd = min(shapes[0].items() ^ shapes[1].items(), key=str)[0]
        got = shapes[1].get(odd, "nothing")
        raise ValueError(
            f"prior must have the tensors of model, {odd} of shape {shapes[0].get(odd)}, got {got}"
        )
    for place, t in own.items():
        if place not in drawn and not t.equal(theirs[place].to(t)):
            raise ValueError(
                f"prior must equal model where that is not drawn, got another {place}:"
                " the divergence would be infinite"
            )
    for group in places:
        first = theirs[group[0]].to(own[group[0]])
        if any(not theirs[place].to(first).equal(first) for place in group[1:]):
            raise ValueError(f"prior must tie what model ties, got different {', '.join(group)}")
        yield first


def _examples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The number of examples, if there is a telling."""
    try:
        return count_examples((args, kwargs))
    except Entangled:
        return None


def _split(place: str) -> tuple[str, str]:
    path, _, name = place.rpartition(".")
    return path, name
