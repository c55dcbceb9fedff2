r"""Monte Carlo dropout: many passes of a network with dropout on, and what they disagree about.

With masks $b_1, \dots, b_S$ and outputs $z_s = f(x; b_s)$ the mean $\bar z$ has the standard error
$\sqrt{v / S}$ for the variance $v$ of the outputs. Where outputs are logits, $p_s$ are the
probabilities of a pass and $\bar p$ is their mean; its entropy splits into what passes are unsure
of on average and what they disagree about,

$$H(\bar p) = \frac1S \sum_s H(p_s) + \frac1S \sum_s \mathrm{KL}(p_s \,\|\, \bar p),$$

of which the second part is the mutual information of the answer and the mask. Both sides are means
over passes, of $-\sum_k p_{sk} \log \bar p_k$ and of the divergences, and the variances of these
give their standard errors to first order. Estimated from $S$ passes, entropy and mutual information
are too small by about $\frac1{2 S} \sum_k \mathrm{Var}(p_k) / \bar p_k$.

The passes are exact: each is the network with one mask. The claim is `dropout_ensemble`.
"""

import math
from contextlib import closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import whole
from vademecum.models import Output, batches
from vademecum.randomness import given_back, own_randomness, reseed, source
from vademecum.regularization.dropout_passes._calls import Dropping
from vademecum.regularization.dropout_passes._links import link_for, log_probabilities
from vademecum.regularization.dropout_passes._runs import dropping_runs, mapped
from vademecum.regularization.dropout_passes._switching import AbstractMasks
from vademecum.results import one_line

__all__ = ["MCDropout", "mc_dropout"]


class MCDropout(NamedTuple):
    """What passes with dropout on gave.

    Example:
        >>> mc_dropout(nn.Dropout(1.0), torch.ones(2, 1), samples=3).mean  # all dropped
        tensor([[0.],
                [0.]])
    """

    mean: Float[Tensor, " n *rest"]
    """The mean of the outputs over the passes."""
    variance: Float[Tensor, " n *rest"]
    """Their variance over the passes, without bias."""
    standard_error: Float[Tensor, " n *rest"]
    """The standard error of the mean."""
    probabilities: Float[Tensor, " n *rest"] | None
    """The mean of the probabilities; None for the identity as a link, and so below."""
    entropy: Float[Tensor, " n *places"] | None
    """The entropy of the mean probabilities, in nats."""
    entropy_error: Float[Tensor, " n *places"] | None
    """The standard error of the entropy."""
    mutual_information: Float[Tensor, " n *places"] | None
    """What the answer tells of the mask, in nats: how much passes disagree."""
    mutual_information_error: Float[Tensor, " n *places"] | None
    """The standard error of the mutual information."""
    draws: Float[Tensor, " samples n *rest"]
    """The outputs of all passes."""

    __repr__ = one_line


def mc_dropout(
    model: nn.Module,
    x: Any,
    *,
    samples: int = 100,
    link: str | None = None,
    output: Output = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> MCDropout:
    """Mean, variance, entropy and mutual information over passes with dropout on.

    On are dropout of modules (of every kind, and between recurrent layers), of functions, and in
    attention, and dropped paths as timm and transformers have them; batch normalisation, layers
    that are skipped as a whole and all else stay in evaluation mode. All modules are in evaluation
    mode and calls of dropout are switched on as they are made, at the rates they bear; only a
    module that hides its rate then (fused attention gets the rate 0) is told that it trains, by
    itself and without its children. What precedes the first dropout is computed once.

    Args:
        model: Any module, taken in evaluation mode but for its dropout.
        x: Its input: a tensor, a tuple or a dict; or a `DataLoader` of such, whose batches come one
            by one, with masks of their own, and whose examples follow each other in the result.
        samples: How many passes.
        link: What makes probabilities of outputs: "softmax" over the last axis, "sigmoid" for each
            number, or "identity", for which there are none. By default softmax if the last axis is
            two or more wide, else the identity.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. So far
            as an estimate goes, for what passes made at a time take from the first dropout on.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If no dropout is met, or there is no memory for one pass.

    Warns:
        SlowPathWarning: If torch cannot map over passes, which are then made one by one.

    References:
        Gal and Ghahramani, Dropout as a Bayesian approximation, ICML, 2016.

    Example:
        >>> model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1, bias=False))
        >>> model[1].weight.data.fill_(1.0)
        tensor([[1., 1., 1., 1.]])
        >>> found = mc_dropout(model, torch.ones(1, 4), samples=10_000)
        >>> bool((found.mean - 4).abs() < 5 * found.standard_error)  # each 0 or 2, on average 1
        True
        >>> bool((found.variance - 4).abs() < 0.5)  # four times 1
        True
    """
    samples = whole("samples", samples, low=2)
    with given_back(generator):
        seed = int(torch.randint(2**63 - 1, (), **source(generator, "cpu")))
    if isinstance(x, DataLoader):
        knobs: Any = {"samples": samples, "link": link, "output": output, "memory": memory}
        return _over_batches(model, x, torch.Generator().manual_seed(seed), progress, knobs)
    with dropping_runs(model, x, output) as runs, own_randomness(seed):
        masks = _Drawn()
        link = link_for(link, runs.plain)

        def many(z: Tensor) -> Tensor:
            return runs.once(masks.for_passes(z))

        def one(_: Tensor) -> Tensor:
            return runs.once(masks.for_passes(None))

        slices = runs.portions(samples, memory)
        reseed(seed)
        nothing = torch.zeros(samples, device=runs.plain.device)
        draws = torch.cat(list(mapped(many, one, nothing, slices)))
        return _summary(draws, link)


def _over_batches(
    model: nn.Module, x: Any, generator: torch.Generator, progress: bool, knobs: dict[str, Any]
) -> MCDropout:
    """The results of batches one after the other, with masks of their own."""
    device = next((p.device for p in model.parameters()), None)
    with closing(batches(x, device=device, progress=progress)) as each:
        parts = [mc_dropout(model, part, generator=generator, **knobs) for part, _ in each]
    if not parts:
        raise ValueError("x must hold batches, got an empty DataLoader")
    first, axes = parts[0], {"draws": 1}
    joined = {
        name: torch.cat([getattr(part, name) for part in parts], axes.get(name, 0))
        for name in MCDropout._fields
        if getattr(first, name) is not None
    }
    return first._replace(**joined)


_NOTHING = (None, None, None, None, None)


class _Drawn(AbstractMasks):
    """Masks at random; mapped over zeros, one for each pass.

    A number is kept if 32 random bits are at least $2^{32} p$. Two such numbers are drawn as one
    integer, which on a CPU takes a fifth of the time of torch's `bernoulli_`.
    """

    z: Tensor | None = None

    def for_passes(self, z: Tensor | None) -> "_Drawn":
        """For passes that are mapped over z, or for one pass."""
        self.z, self.many = z, z is not None
        return self

    def mask(self, call: Dropping, where: str) -> Tensor:
        count = math.prod(call.shape)
        pairs = self._empty((-(-count // 2),), torch.int64, call.x.device)
        pairs.random_(-(2**63), None)
        halves = torch.cat([pairs.to(torch.int32), (pairs >> 32).to(torch.int32)])
        return halves[:count].view(call.shape) >= min(round(call.p * 2**32) - 2**31, 2**31 - 1)

    def allow(self, where: str) -> None:
        pass

    def empty(self, x: Tensor) -> Tensor:
        return self._empty(tuple(x.shape), x.dtype, x.device)

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        if self.z is None:
            return torch.empty(shape, dtype=dtype, device=device)
        each = self.z.expand(shape)
        return torch.empty_like(each, dtype=dtype, memory_format=torch.contiguous_format)

    def spread(self, x: Tensor) -> Tensor:
        return x if self.z is None else x + self.z.to(x.dtype)


def _summary(draws: Tensor, link: str) -> MCDropout:
    wide = draws.to(torch.promote_types(draws.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, 0)
    root = len(draws) ** 0.5
    plain = MCDropout(mean, variance, variance.sqrt() / root, *_NOTHING, draws)
    if link == "identity":
        return plain
    logs = log_probabilities(link, wide)
    p = logs.exp()
    average = p.mean(0)
    surprise = -(p * average.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(-1)
    own = -(p * logs.masked_fill(p == 0, 0)).sum(-1)
    (a, entropy), (b, shared) = (torch.std_mean(t, 0) for t in (surprise, surprise - own))
    return plain._replace(
        probabilities=average[..., 1] if link == "sigmoid" else average,
        entropy=entropy,
        entropy_error=a / root,
        mutual_information=shared.clamp(min=0),
        mutual_information_error=b / root,
    )
