"""Between the two modes: coins that mix them, and a judge that must not tell them apart."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Literal

import torch
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

from vademecum.claims import Evidence, at_least, claim, consistent, equals, in_mean
from vademecum.recurrence import (
    FeedbackRNN,
    ProfessorForcing,
    SequenceRun,
    sequence_log_prob,
)
from vademecum.recurrence import scheduled_sampling as sampled
from vademecum.recurrence.claims._strings import all_strings, scattered

Mixing = Callable[[FeedbackRNN, Tensor, Tensor, float], SequenceRun]


def one_coin_per_sequence(model: FeedbackRNN, x: Tensor, y: Tensor, p: float) -> SequenceRun:
    """Each sequence is fed with the truth throughout, or never."""
    return joined(model, x, y, torch.rand(len(x)) < p)


def both_modes(model: FeedbackRNN, x: Tensor, y: Tensor, p: float) -> SequenceRun:
    """What professor forcing runs: teacher forcing on one half, free running on the other."""
    return joined(model, x, y, torch.arange(len(x)) % 2 == 0)


def joined(model: FeedbackRNN, x: Tensor, y: Tensor, truth: Tensor) -> SequenceRun:
    """Teacher forcing for some sequences, and free running for the others."""
    forced, free = model.run(x, y), model.run(x)
    parts = [
        torch.where(truth.view(-1, *(1,) * (a.ndim - 1)), a, b)
        for a, b in zip(forced, free, strict=True)
    ]
    return SequenceRun(*parts)


def one_coin_per_step(model: FeedbackRNN, x: Tensor, y: Tensor, p: float) -> SequenceRun:
    """The truth is fed to all sequences at a step, or to none."""
    step, tokens, state = model.decoding(x)
    coins, outputs = torch.rand(y.shape[1]) < p, []
    for t, truth in enumerate(coins):
        log_probs, state = step(tokens, state)
        tokens = y[:, t] if truth else log_probs.exp().multinomial(1)[:, 0]
        outputs.append(tokens)
    run = model.run(x, torch.stack(outputs, 1))
    return run._replace(given=coins.expand_as(run.given))


@claim(
    by="sampling",
    sources=("A-249",),
    short=r"\tilde y^t = y^t\ \text{with probability}\ p,\ \text{else a draw from}\ p_{\mu^t}",
)
def scheduled_sampling(mixing: Mixing = sampled, n: int = 1000, T: int = 24):
    r"""Scheduled sampling tosses a coin at each step: the truth is fed back, or the model's own.

    With probability $p$ the true output is fed back, otherwise the model's own (Bengio et al.
    2015), for each step of each sequence anew. $p = 1$ is teacher forcing and $p = 0$ free running;
    $p$ is lowered during training (quoted).

    With $p = 1$ states and logits are those of teacher forcing, with $p = 0$ those of free running
    with the same random numbers, bit by bit. In between the truths that were fed back pass exact
    binomial tests: their number, and agreement of neighbours in time and in the batch; the states
    are those of what was fed back, and what was not given follows the model's law. Alarms: below
    $10^{-6}$ for each test.

    Knobs:
        mixing: What mixes the modes.
        n: How many sequences there are.
        T: How many steps they have, an even number.
    """
    k = 3
    model = scattered(FeedbackRNN(2, 4, k), 0.7)
    x, y = torch.randn(n, T, 2), torch.randint(k, (n, T))
    with torch.no_grad():
        forced, free = model.run(x, y), model.run(x, generator=torch.Generator().manual_seed(3))
        for p, wanted in ((1.0, forced), (0.0, free)):
            same = torch.Generator().manual_seed(3)
            run = sampled(model, x, y, p, generator=same)
            for name in ("states", "logits", "outputs"):
                off = getattr(run, name) - getattr(wanted, name)
                yield equals(f"change of the {name} at the end of the range", off, 0, tol=0.0, p=p)
        for p in (0.3, 0.8):
            run = mixing(model, x, y, p)
            yield from coins(run.given, p)
            yield from fed(model, x, y, run)


def coins(given: Tensor, p: float) -> Iterator[Evidence]:
    """Whether truths are fed back as by a coin for each step and example."""
    value = float(binomtest(int(given.sum()), given.numel(), p).pvalue)
    yield consistent("p-value of the number of truths fed back", value, p=p)
    agree = p**2 + (1 - p) ** 2
    for axis, where in ((1, "in time"), (0, "in the batch")):
        one, other = given.unflatten(axis, (-1, 2)).unbind(axis + 1)
        equal = int((one == other).sum())
        value = float(binomtest(equal, one.numel(), agree).pvalue)
        yield consistent(f"p-value of the agreement of neighbours {where}", value, p=p)


def fed(model: FeedbackRNN, x: Tensor, y: Tensor, run: SequenceRun) -> Iterator[Evidence]:
    """Whether what was fed back is what it is said to be."""
    wrong = int((run.outputs != y)[run.given].sum())
    yield equals("outputs that were given and are not the true ones", wrong, 0)
    again = model.run(x, run.outputs)
    yield equals("states, by what was fed back", run.states, again.states, tol=1e-12)
    own = ~run.given
    surprise = one_hot(run.outputs, model.k) - run.logits.softmax(2)
    for j in range(model.k - 1):
        yield in_mean("excess of a symbol among the model's own", surprise[own][:, j], 0.0, j=j)


scheduled_sampling.foil(
    "one coin for each sequence", mixing=one_coin_per_sequence,
    refuted_by="p-value of the agreement of neighbours in time",
)  # fmt: skip
scheduled_sampling.foil(
    "one coin for each step of all sequences", mixing=one_coin_per_step,
    refuted_by="p-value of the agreement of neighbours in the batch",
)  # fmt: skip
scheduled_sampling.erratum(
    "A-249",
    printed=r"gives the name professor forcing to the variant that randomises whether"
    r" $y_{\mathrm{pred}}$ or $y_{\mathrm{true}}$ is fed back",
    right="scheduled sampling randomises it; professor forcing does not",
    why="That variant is scheduled sampling. Professor forcing (Lamb et al. 2016) tosses no such"
    " coin: it runs the model with teacher forcing and freely, each throughout, and a discriminator"
    " looks at the states.",
    weight="soft",
    refuted_by="p-value of the agreement of neighbours in time",
    mixing=both_modes,
)


class Table(nn.Module):
    """A discriminator that knows all sequences of states that can occur."""

    def __init__(self, states: Tensor, logits: Tensor):
        super().__init__()
        self.states, self.logits = states.flatten(1), logits

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The logit of the sequence of states that was seen."""
        return self.logits[torch.cdist(states.flatten(1), self.states).argmin(1)]


@claim(
    by="sampling",
    sources=("A-249",),
    short=r"\min_D \mathbb E_P[-\ln D] + \mathbb E_Q[-\ln(1 - D)] ="
    r" 2 \ln 2 - 2\, \mathrm{JSD}(P, Q)",
)
def professor_forcing(
    factor: float = 2.0, other: Literal["free running", "coins"] = "free running", n: int = 4000
):
    r"""The best judge of the two modes has the loss $2 \ln 2 - 2\, \mathrm{JSD}$.

    Professor forcing trains a model so that a discriminator cannot tell the states of teacher
    forcing from those of free running. For fixed laws $P$ and $Q$ of these sequences of states the
    best discriminator, $D = P / (P + Q)$, has the cross-entropy $2 \ln 2 - 2\, \mathrm{JSD}(P, Q)$
    (both terms added, natural logarithms), which is largest exactly if the two modes coincide.

    *Proof.* $-a \ln D - b \ln(1 - D)$ is least at $D = a / (a + b)$; there its sum is
    $2 \ln 2$ less the two relative entropies to $(P + Q) / 2$, whose sum is
    $2\, \mathrm{JSD} \ge 0$, and 0 only for $P = Q$.

    All sequences of states of a small network are enumerated, with data from another one. The best
    discriminator is put into `ProfessorForcing`; the exact mean of its loss is compared, that over
    strings that were drawn, and the untrained default discriminator does not do better.

    Knobs:
        factor: How many times the divergence is subtracted.
        other: What the states of free running are compared with when the data come from the model
            itself: free running, or states that were fed by coins with data from elsewhere.
        n: How many strings are drawn.
    """
    T = 3
    model = scattered(FeedbackRNN(0, 3, 2))
    data = deepcopy(model)
    with torch.no_grad():
        data.decoder.logits.bias[1] += 1.5
        y, nothing = all_strings(2, T), torch.zeros(8, T, 0)
        P, Q = (sequence_log_prob(m, nothing, y).exp().view(4, 2).sum(1) for m in (data, model))
        states = model.run(nothing, y).states[::2]  # the last output is not fed back
        best = ProfessorForcing(model, discriminator=Table(states, (P / Q).log()))
        logits = best(nothing, y).on_forced[::2]
        losses = best(torch.zeros(n, T, 0), data.run(torch.zeros(n, T, 0)).outputs)
        plain = ProfessorForcing(model, width=4)(nothing, y).on_forced[::2]
    wanted = 2 * math.log(2) - factor * divergence(P, Q)
    yield equals("loss of the best discriminator", loss(logits, P, Q), wanted, tol=1e-12)
    yield in_mean("its loss on strings that were drawn", losses.discriminator, float(wanted))
    yield in_mean("loss of the model", losses.generator, float((Q * softplus(-logits)).sum()))
    yield at_least("loss of another discriminator", loss(plain, P, Q), loss(logits, P, Q))
    R = Q if other == "free running" else by_coins(P, Q)
    found = loss((R / Q).log(), R, Q)
    yield equals("loss of the best discriminator if the modes coincide", found, 2 * math.log(2),
                 tol=1e-12)  # fmt: skip
    yield from gradients(ProfessorForcing(model, width=4), nothing, y)


def loss(logits: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    """The exact mean of the cross-entropy of a discriminator."""
    return (P * softplus(-logits)).sum() + (Q * softplus(logits)).sum()


def divergence(P: Tensor, Q: Tensor) -> Tensor:
    """The Jensen-Shannon divergence, by its definition."""
    M = (P + Q) / 2
    return ((P * (P / M).log()).sum() + (Q * (Q / M).log()).sum()) / 2


def by_coins(P: Tensor, Q: Tensor) -> Tensor:
    """The law of two outputs fed back by fair coins: true ones with the law P, own ones with Q."""
    first = Q.view(2, 2).sum(1)
    laws = first, Q.view(2, 2) / first[:, None]
    result = torch.zeros(2, 2)
    for fed in all_strings(2, 2).tolist():
        for true, p in zip(all_strings(2, 2).tolist(), P, strict=True):
            one = (laws[0][fed[0]] + (fed[0] == true[0])) / 2
            two = (laws[1][fed[0], fed[1]] + (fed[1] == true[1])) / 2
            result[fed[0], fed[1]] += p * one * two
    return result.flatten()


def gradients(professor: ProfessorForcing, x: Tensor, y: Tensor) -> Iterator[Evidence]:
    """Which parameters each loss reaches."""
    found = professor(x, y)
    sides = {"model": professor.model, "discriminator": professor.discriminator}
    reached = {"likelihood": "model", "generator": "model", "discriminator": "discriminator"}
    for name, side in reached.items():
        for other, module in sides.items():
            each = torch.autograd.grad(getattr(found, name).sum(), list(module.parameters()),
                                       retain_graph=True, allow_unused=True)  # fmt: skip
            number = sum(g is not None and bool(g.any()) for g in each)
            if other != side:
                yield equals(f"parameters of the {other} that the loss {name} reaches", number, 0)
            else:
                yield at_least(f"parameters of the {side} that the loss {name} reaches", number, 5)


professor_forcing.foil("the divergence once", factor=1.0)
professor_forcing.foil(
    "coins taken for professor forcing", other="coins",
    refuted_by="loss of the best discriminator if the modes coincide",
)  # fmt: skip
