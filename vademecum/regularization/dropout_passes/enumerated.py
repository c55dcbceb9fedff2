r"""The ensemble inside dropout, exactly: all masks, each weighted by its probability.

With $R$ units that can be dropped, unit $i$ kept with probability $\pi_i$, there are $2^R$ thinned
networks that share their weights. The mask $b$ has the probability
$p(b) = \prod_i \pi_i^{b_i} (1 - \pi_i)^{1 - b_i}$, and predictions are averaged arithmetically or
geometrically,

$$p_A(y) = \sum_b p(b)\, p(y; b), \qquad p_G(y) \propto \prod_b p(y; b)^{p(b)}.$$

Exact up to rounding, in double precision where sums are concerned. The claims are
`dropout_ensemble` and `dropout_geometric_mean`.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.models import Output, count_examples
from vademecum.regularization.dropout_passes._calls import Dropping
from vademecum.regularization.dropout_passes._links import link_for, log_probabilities
from vademecum.regularization.dropout_passes._runs import dropping_runs, mapped
from vademecum.regularization.dropout_passes._switching import AbstractMasks
from vademecum.results import one_line

__all__ = ["DropoutEnsemble", "dropout_ensemble"]

_MOST = 20  # units: a million masks


class DropoutEnsemble(NamedTuple):
    """What all thinned networks give together.

    Example:
        >>> dropout_ensemble(nn.Dropout(0.25), torch.tensor([[8.0]])).arithmetic
        tensor([[8.]])
    """

    arithmetic: Float[Tensor, " n *rest"]
    """The mean of all predictions: of probabilities, or of outputs for the identity as a link."""
    geometric: Float[Tensor, " n *rest"] | None
    """The geometric mean of all probabilities, normalised; None for the identity."""
    rescaled: Float[Tensor, " n *rest"]
    """The prediction of the network in evaluation mode, with all units."""
    variance: Float[Tensor, " n *rest"]
    """The variance of the predictions over the masks."""
    units: int
    """How many units can be dropped, for each example."""

    __repr__ = one_line


def dropout_ensemble(
    model: nn.Module,
    x: Any,
    *,
    link: str | None = None,
    output: Output = None,
    memory: int | None = None,
) -> DropoutEnsemble:
    """Average the predictions of all networks that dropout can make of one, for each example.

    Args:
        model: Any module, taken in evaluation mode but for its dropout, with at most 20 units that
            it drops of an example. Examples lie along the first axis of what it drops from.
        x: Its input: a tensor, a tuple or a dict.
        link: What makes probabilities of outputs: "softmax" over the last axis, "sigmoid" for each
            number, or "identity", for which there are none. By default softmax if the last axis is
            two or more wide, else the identity.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. So far
            as an estimate goes, for networks that are computed at a time.

    Raises:
        ValueError: If no dropout is met, or more than 20 units; if masks are drawn where they
            cannot be chosen, within layers of torch or by code of the model itself.

    Warns:
        SlowPathWarning: If torch cannot map over masks, which are then taken one by one.

    Example:
        >>> model = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1, bias=False))
        >>> model[1].weight.data.fill_(1.0)
        tensor([[1., 1.]])
        >>> found = dropout_ensemble(model, torch.ones(1, 2))  # 0, 2, 2 or 4
        >>> found.arithmetic.item(), found.variance.item(), found.units
        (2.0, 2.0, 2)
    """
    n = count_examples(x)
    with dropping_runs(model, x, output) as runs:
        link = link_for(link, runs.plain)
        counted = _Counted(n)
        runs.once(counted)
        R = len(counted.rates)
        masks, weights = _law(counted.rates, runs.plain.device)
        own = _predicted(link, runs.plain.double())[0]
        sums = [torch.zeros((), dtype=torch.float64, device=masks.device) for _ in range(3)]
        done = 0
        chosen = _Chosen()

        def pass_of(bits: Tensor, *, many: bool) -> Tensor:
            chosen.bits, chosen.place, chosen.many = bits, 0, many
            return runs.once(chosen)

        many, one = partial(pass_of, many=True), partial(pass_of, many=False)
        for z in mapped(many, one, masks, runs.portions(len(masks), memory)):
            here = weights[done : done + len(z)]
            done += len(z)
            for i, term in enumerate(_terms(link, z.double(), own)):
                sums[i] = sums[i] + torch.tensordot(here, term, 1)
        return _averages(sums, link, own, runs.plain.dtype, R)


def _law(rates: list[float], device: torch.device) -> tuple[Tensor, Tensor]:
    """All masks, the first unit changing fastest, and their probabilities."""
    numbers = torch.arange(2 ** len(rates), device=device)
    masks = (numbers[:, None] >> torch.arange(len(rates), device=device)) & 1 == 1
    weights = torch.ones(1, dtype=torch.float64, device=device)
    for p in rates:
        weights = torch.cat([p * weights, (1 - p) * weights])
    return masks, weights


def _predicted(link: str, z: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Predictions, and their logarithms where they are probabilities."""
    if link == "identity":
        return z, []
    logs = log_probabilities(link, z)
    return logs.exp(), [logs]


def _terms(link: str, z: Tensor, own: Tensor) -> list[Tensor]:
    """What is averaged: distances from one prediction, their squares, and logarithms."""
    p, logs = _predicted(link, z)
    return [p - own, (p - own).square(), *logs]


def _averages(
    sums: list[Tensor], link: str, own: Tensor, dtype: torch.dtype, R: int
) -> DropoutEnsemble:
    off, square, logs = sums
    geometric = None if link == "identity" else logs.softmax(-1)
    found = [own + off, geometric, own, (square - off * off).clamp(min=0)]
    if link == "sigmoid":
        found = [t if t is None else t[..., 1] for t in found]
    a, g, r, v = (t if t is None else t.to(dtype) for t in found)
    return DropoutEnsemble(a, g, r, v, R)  # pyright: ignore[reportArgumentType]


class _AbstractChoice(AbstractMasks):
    """Masks that are chosen, and none where they cannot be."""

    def allow(self, where: str) -> None:
        raise ValueError(
            "model must drop by functions of torch alone, so that masks can be chosen, got a layer"
            f" that draws by itself: {where}"
        )


class _Counted(_AbstractChoice):
    """Masks that keep all, and count units."""

    def __init__(self, n: int):
        self.n, self.rates, self.many = n, list[float](), False

    def mask(self, call: Dropping, where: str) -> Tensor:
        if call.shape[:1] != (self.n,):
            raise ValueError(
                f"model must drop from tensors with {self.n} examples along their first axis, got"
                f" a mask of shape {call.shape} in {where}"
            )
        each = torch.ones(call.shape, dtype=torch.bool, device=call.x.device)
        self.rates += [call.p] * (each.numel() // self.n)
        if len(self.rates) > _MOST:
            raise ValueError(
                f"model must drop at most {_MOST} units of an example, got {len(self.rates)} up to"
                f" {where}: mc_dropout samples them"
            )
        return each


class _Chosen(_AbstractChoice):
    """The masks that a row of bits spells, unit after unit."""

    bits: Tensor
    place = 0

    def mask(self, call: Dropping, where: str) -> Tensor:
        rest = call.shape[1:]
        count = torch.Size(rest).numel()
        here = self.bits[self.place : self.place + count]
        self.place += count
        return here.view(1, *rest)
