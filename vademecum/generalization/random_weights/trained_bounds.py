r"""A certificate for the risk of a network: prior on one half, posterior and bound on the other.

With probability at least $1 - \delta - \delta_{\mathrm{mc}}$ over examples and draws, for losses in
$[0, 1]$,

$$\mathrm{kl}(\hat r \| \bar r) \le \frac{\ln(1 / \delta_{\mathrm{mc}})}m, \qquad
\mathrm{kl}(\bar r \| r) \le \frac1n \Big[\mathrm{KL}(Q \| P_\lambda) +
\ln \frac{2 K \sqrt n}\delta\Big],$$

where $\hat r$ is what $m$ draws measured, $\bar r$ the mean over all of $Q$ on the $n$ examples of
the bound, $r$ the risk, and $\lambda$ one of the $K$ scales of a grid that was there before. Both
are inverted, outwards. Draws need to be independent, not alike, so that every example with weights
of its own counts as one. Everything in this is exact but for rounding; that training found a good
$Q$ is not promised. The claim is `pac_bayes_networks`.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.generalization.kl_inversion import kl_inverse
from vademecum.generalization.pac_bayes_forms import pac_bayes_bound
from vademecum.generalization.random_weights import _fitting
from vademecum.generalization.random_weights._estimating import Estimate, estimated, prepared
from vademecum.generalization.random_weights._refusals import (
    examples_of,
    halves,
    refuse_entangled_examples,
    refuse_training_modes,
)
from vademecum.generalization.random_weights.certificate_results import (
    PacBayesCertificate,
    RiskBounds,
)
from vademecum.generalization.random_weights.weight_gaussians import StochasticNetwork
from vademecum.models import Output, evaluation, unwrapped
from vademecum.progress import ticking
from vademecum.randomness import given_back

__all__ = ["pac_bayes_certificate"]

Objective = Literal["kl", "quadratic", "mcallester", "catoni"]
_SCALES = tuple(10 ** (-4 + j / 8) for j in range(33))


class _Settings(NamedTuple):
    """How to train and to measure."""

    delta: float
    delta_mc: float
    scales: tuple[float, ...]
    objective: Objective
    prior_epochs: int
    posterior_epochs: int
    batch_size: int
    prior_lr: float
    posterior_lr: float
    p_min: float
    passes: int
    output: Output
    generator: torch.Generator | None


def pac_bayes_certificate(
    model: nn.Module,
    x: Any,
    y: Int[Tensor, " n"],
    *,
    prior: Literal["half", "init"] | nn.Module = "half",
    prior_index: Int[Tensor, " n_prior"] | None = None,
    bound_index: Int[Tensor, " n_bound"] | None = None,
    delta: float = 0.025,
    delta_mc: float = 0.01,
    prior_scales: Sequence[float] | None = None,
    objective: Objective = "quadratic",
    prior_epochs: int = 20,
    posterior_epochs: int = 10,
    batch_size: int = 250,
    prior_lr: float = 1e-3,
    posterior_lr: float | None = None,
    p_min: float = 1e-5,
    passes: int = 10,
    output: Output = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> PacBayesCertificate:
    r"""Train a stochastic network, and bound its risk on new examples of the same law.

    All training is of copies: the model is never changed. It is taken in evaluation mode. What
    comes out certifies the network that draws its weights for each answer (`network` in the
    result), not the one at the mean of them.

    Args:
        model: Any classifier. A `StochasticNetwork` is certified as it is, without training: with
            its own prior, which must not have seen the examples of the bound.
        x: The examples, along the first axis of its tensors, as they were drawn.
        y: Their classes, from 0 on.
        prior: The means of the prior: "half" for a copy of the model that is trained on half of the
            examples, "init" for the model as it is, or a module with the same parameters. The last
            two must not have seen the examples.
        prior_index: The examples that the prior may see; by default a random half for "half", and
            else none. They never enter the bound.
        bound_index: The examples of the bound; by default all others.
        delta: The probability over examples with which a bound may fail.
        delta_mc: The probability over draws of weights with which it may fail besides.
        prior_scales: Standard deviations of the prior from which the data may choose, fixed before
            seeing these; by default 33 from 0.0001 to 1, and for a `StochasticNetwork` its own.
        objective: The bound, of the cross-entropy, that the posterior minimises.
        prior_epochs: Passes over the examples of the prior to train its means.
        posterior_epochs: Passes over the examples of the bound to train the posterior.
        batch_size: Examples in each step, and in each batch that shares a draw of weights.
        prior_lr: The first step size of Adam for the prior.
        posterior_lr: That for the posterior; by default `prior_lr` for "init", and else a tenth.
        p_min: Where probabilities are cut off, so that the cross-entropy is bounded.
        passes: Passes over the examples of the bound to measure the risk.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If index sets overlap, classes are not those of the model, or losses would not
            be independent: batch normalisation or dropout in training mode, augmentation.

    References:
        Perez-Ortiz, Rivasplata, Shawe-Taylor and Szepesvari, Tighter risk certificates for neural
        networks, JMLR, 2021.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 2, generator=g)
        >>> y = (x[:, 0] > 0).long()
        >>> found = pac_bayes_certificate(nn.Linear(2, 2), x, y, prior_lr=0.1, generator=g)
        >>> 0.03 < found.zero_one.kl < 0.15, len(found.bound_index), found.draws
        (True, 500, 5000.0)
    """
    n = examples_of(x, y)
    model = unwrapped(model)
    given = isinstance(model, StochasticNetwork)
    scales = _scales(prior_scales, model)
    rate = number("prior_lr", prior_lr, above=0)
    slower = rate if isinstance(prior, str) and prior == "init" else rate / 10
    settings = _Settings(
        number("delta", delta, above=0, below=1), number("delta_mc", delta_mc, above=0, below=1),
        scales, objective, whole("prior_epochs", prior_epochs, low=0),
        whole("posterior_epochs", posterior_epochs, low=0),
        whole("batch_size", batch_size, low=1), rate,
        slower if posterior_lr is None else number("posterior_lr", posterior_lr, above=0),
        number("p_min", p_min, above=0, below=1), whole("passes", passes, low=1), output, generator,
    )  # fmt: skip
    choice("objective", objective, ("kl", "quadratic", "mcallester", "catoni"))
    if isinstance(prior, str):
        choice("prior", prior, ("half", "init"))
    refuse_training_modes(model)
    plain = model.model if given else model
    refuse_entangled_examples(plain, x, y, output, settings.batch_size)
    learns = prior == "half" if isinstance(prior, str) and not given else False
    with given_back(generator):
        index = halves(n, prior_index, bound_index, split=learns, generator=generator)
        return _trained(model, x, y, prior, index, settings, learns, progress)


def _scales(given: Sequence[float] | None, model: nn.Module) -> tuple[float, ...]:
    if given is None:
        own = isinstance(model, StochasticNetwork)
        return (float(model.prior_std),) if own else _SCALES
    if not len(given):
        raise ValueError("prior_scales must not be empty, got none")
    return tuple(sorted({float(number("prior_scales", s, above=0)) for s in given}))


def _trained(
    model: nn.Module, x: Any, y: Tensor, prior: str | nn.Module, index: tuple[Tensor, Tensor],
    s: _Settings, learns: bool, progress: bool,
) -> PacBayesCertificate:  # fmt: skip
    """Train copies, measure, and state what was found and why it holds."""
    steps = [math.ceil(len(i) / s.batch_size) for i in index]
    total = (
        0
        if isinstance(model, StochasticNetwork)
        else learns * s.prior_epochs * steps[0] + s.posterior_epochs * steps[1]
    )
    copy = deepcopy(model).eval()
    with (
        evaluation(copy, fused=True),
        torch.enable_grad(),
        ticking("batches", total + s.passes * steps[1], progress=progress) as tick,
    ):
        if isinstance(copy, StochasticNetwork):
            network = copy
            network.generator = s.generator
        else:
            if learns:
                _fitting.fit_means(
                    copy, x, y, index[0], epochs=s.prior_epochs, batch_size=s.batch_size,
                    lr=s.prior_lr, output=s.output, generator=s.generator, tick=tick,
                )  # fmt: skip
            start = "init" if isinstance(prior, str) else prior
            network = StochasticNetwork(copy, prior=start, generator=s.generator)
            _posterior(network, x, y, index[1], s, tick)
        _choose_scale(network, s.scales)
        size = prepared(network, x, s.batch_size, s.output)
        found = estimated(network, x, y, index[1], passes=s.passes, batch_size=size,
                          p_min=s.p_min, output=s.output, tick=tick)  # fmt: skip
    return _stated(network.eval(), found, index, s, prior)


def _posterior(
    network: StochasticNetwork, x: Any, y: Tensor, index: Tensor, s: _Settings, tick: _fitting.Tick
) -> None:
    """Train the posterior, and keep it where it is better than what it started from."""
    common = {"batch_size": s.batch_size, "p_min": s.p_min, "output": s.output}
    share = s.delta / len(s.scales)
    _fitting.begin_at_scale(network, x, y, index, scales=s.scales, objective=s.objective,
                            delta=share, **common)  # fmt: skip
    if not s.posterior_epochs:
        return

    def reached() -> float:
        risk = estimated(network, x, y, index, passes=1, tick=lambda _: None, **common).zero_one
        return pac_bayes_bound(risk, _kl(network), len(index), delta=share)

    before = {name: t.clone() for name, t in network.state_dict().items()}
    start = reached()
    _fitting.fit_posterior(
        network, x, y, index, scales=s.scales, objective=s.objective, delta=share,
        epochs=s.posterior_epochs, lr=s.posterior_lr, generator=s.generator, tick=tick, **common,
    )  # fmt: skip
    if not reached() <= start:
        network.load_state_dict(before)


def _kl(network: StochasticNetwork, scale: float | None = None) -> float:
    """The divergence in double precision; what rounding made negative is 0."""
    with torch.no_grad():
        return max(0.0, network.kl(prior_std=scale, dtype=torch.float64).item())


def _choose_scale(network: StochasticNetwork, scales: tuple[float, ...]) -> None:
    """The scale with the least divergence: one of the two next to the best of all numbers."""
    best = network.best_prior_std()
    near = [*[t for t in scales if t <= best][-1:], *[t for t in scales if t > best][:1]]
    network.prior_std.fill_(min(near, key=lambda scale: _kl(network, scale)))


def _stated(
    network: StochasticNetwork, found: Estimate, index: tuple[Tensor, Tensor], s: _Settings,
    prior: str | nn.Module,
) -> PacBayesCertificate:  # fmt: skip
    kl, n = _kl(network) * (1 + 1e-12), len(index[1])  # the error of a sum in double precision
    share = s.delta / len(s.scales)
    c = math.log(1 / s.delta_mc) / found.draws

    def bounds(risk: float) -> RiskBounds:
        upper = kl_inverse(risk, c, side="upper")
        kinds = ("kl", "quadratic", "mcallester", "catoni")
        made = [pac_bayes_bound(upper, kl, n, delta=share, kind=kind) for kind in kinds]
        return RiskBounds(risk, upper, *made)

    return PacBayesCertificate(
        bounds(found.zero_one), bounds(found.cross_entropy), kl, s.delta, s.delta_mc,
        float(network.prior_std), s.scales, found.draws, *index, network,
        _assumptions(network, index, s, prior),
    )  # fmt: skip


def _assumptions(
    network: StochasticNetwork, index: tuple[Tensor, Tensor], s: _Settings, prior: str | nn.Module
) -> tuple[str, ...]:
    n, failing = len(index[1]), s.delta + s.delta_mc
    seen = f"The prior saw {len(index[0])} other examples, and none of the {n} of the bound."
    fixed = f"The means of the prior were fixed without looking at the {n} examples of the bound."
    shared = "an example" if network.draws == "example" else "a batch"
    return (
        f"The {n} examples of the bound are independent draws from the law of new examples, as they"
        " were drawn: not augmented, not selected, without near copies among the prior's.",
        seen if prior == "half" and len(index[0]) else fixed,
        "Frozen parameters, buffers and the architecture were fixed without these examples.",
        f"The {len(s.scales)} scales of the prior, p_min = {s.p_min:g}, delta and the number of"
        " passes were fixed before; the data chose among scales, and each has its share of delta.",
        f"Weights are drawn anew for {shared} by torch's generator, as if truly at random.",
        "The bounds are for the network that draws its weights for each answer, not for its mean.",
        f"Each bound fails with probability at most {failing:g} over examples and draws; k of them"
        f" read together with at most k times that.",
    )
