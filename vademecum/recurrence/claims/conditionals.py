"""Laws of sequences: products of conditional laws, in order, without the future, step by step."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.recurrence import FeedbackRNN, beam_search, sequence_log_prob
from vademecum.recurrence.claims._strings import all_strings, scattered


@claim(
    by="identity",
    sources=("D-294",),
    short=r"P(x_1, \dots, x_T) = \textstyle\prod_{t=1}^T P(x_t \mid x_1, \dots, x_{t-1})",
)
def autoregressive_factorisation(memory: int | None = None, start: bool = True):
    r"""The law of a sequence is a product of conditional laws, and any such product is a law.

    $P(x_1, \dots, x_T) = \prod_t P(x_t \mid x_1, \dots, x_{t-1})$ by the product rule, for every
    law and in any fixed order of the variables (where the conditions have positive probability).
    Conversely every choice of normalised conditionals defines a normalised law; a recurrent network
    with softmax outputs that are fed back is one such choice.

    *Proof.* $P(x_1 \dots x_t) = P(x_1 \dots x_{t-1}) P(x_t \mid x_1 \dots x_{t-1})$, from $t = 1$
    on; for the converse sum over $x_T$ first, then over $x_{T-1}$, and so on.

    Checked in exact fractions for random laws on four bits and on three symbols out of three, in
    all orders; for random networks all strings are enumerated: their probabilities sum to one, and
    what the network says after a prefix is the conditional law of the enumerated table.

    Knobs:
        memory: How many of the symbols before are conditioned on; None for all.
        start: Whether the first symbol is among the factors.
    """
    for k, T in ((2, 4), (3, 3)):
        strings = list(itertools.product(range(k), repeat=T))
        weights = torch.randint(1, 99, (len(strings),)).tolist()
        law = {s: Fraction(w, sum(weights)) for s, w in zip(strings, weights, strict=True)}
        off = Fraction(0)
        for order in itertools.permutations(range(T)):
            factors = range(0 if start else 1, T)
            for s in strings:
                product = math.prod(conditional(law, s, order, t, memory) for t in factors)
                off = max(off, abs(law[s] - product))
        yield equals("largest error of the product over all orders", float(off), 0.0, tol=0.0,
                     k=k, T=T)  # fmt: skip
    yield from of_a_network(3, 4)


def conditional(
    law: dict, string: tuple, order: tuple[int, ...], t: int, memory: int | None
) -> Fraction:
    """The law of a variable given those before it in some order, by adding up strings."""
    first = 0 if memory is None else max(0, t - memory)
    given = order[first:t]
    known = [(s, p) for s, p in law.items() if all(s[i] == string[i] for i in given)]
    both = sum(p for s, p in known if s[order[t]] == string[order[t]])
    return Fraction(both) / Fraction(sum(p for _, p in known))


def of_a_network(k: int, T: int) -> Iterator[Evidence]:
    """The converse, for a random network."""
    model = scattered(FeedbackRNN(0, 5, k))
    y = all_strings(k, T)
    with torch.no_grad():
        p = sequence_log_prob(model, torch.zeros(len(y), T, 0), y).exp()
        yield equals("sum of the probabilities of all strings", p.sum(), 1.0, tol=1e-12, k=k, T=T)
        step, tokens, state = model.decoding(torch.zeros(k**2, T, 0))
        prefixes = all_strings(k, 2)
        for t in range(2):
            _, state = step(tokens, state)
            tokens = prefixes[:, t]
        said = step(tokens, state)[0].exp()
        table = p.view(k**2, k, -1).sum(2)
        wanted = table / table.sum(1, keepdim=True)
        yield equals("law of the third symbol", said, wanted, tol=1e-10, k=k)
        step, first, state = model.decoding(torch.zeros(1, T, 0))
        best = beam_search(step, first, state=state, beam=k**T, max_length=T)
    yield equals("largest probability, by a search", best.scores[0, 0].exp(), p.max(), tol=1e-12)


autoregressive_factorisation.foil("conditions on the symbol before only", memory=1)
autoregressive_factorisation.foil("without the law of the first symbol", start=False)


@claim(
    by="identity",
    sources=("A-244", "B-378"),
    short=r"p(y^{1:T} | x^{1:T}) = \prod_t p(y^t | x^{1:t}, y^{<t}) \iff y^t \perp x^{t+1:T} \mid "
    r"x^{1:t}, y^{<t}\ \forall t",
)
def causal_seq2seq(ahead: int = 0):
    r"""The causal factorisation is exact if and only if outputs do not depend on future inputs.

    $p(y^{1:T} \mid x^{1:T}) \approx \prod_t p(y^t \mid x^{1:t}, y^{1:t-1})$ stands for the exact
    chain rule, whose factors condition on all of $x^{1:T}$. Given all $x$ with positive
    probability, the two agree if and only if each $y^t$ is independent of the future inputs given
    $x^{1:t}$ and $y^{1:t-1}$. The right side is always a normalised law of output sequences.

    *Proof.* If the factors agree, so do the products. If the products agree for all $y$, sum over
    $y^T$, then over $y^{T-1}$, ...: the factors agree one by one. The sum over all $y$ is 1, from
    the last factor to the first.

    Checked by enumeration for bits and $T = 3$ with a law of the inputs that is not independent:
    for a network that reads the inputs up to now; and for uniform inputs and $y^1 = x^2$ with
    probability 0.9, of which the causal factors know nothing: they are 0.4 off in total variation.

    Knobs:
        ahead: How many steps ahead the network sees that generates the outputs.
    """
    T = 3
    x, y = all_strings(2, T), all_strings(2, T)
    p_x = torch.rand(len(x)) + 0.1
    p_x = p_x / p_x.sum()
    model = scattered(FeedbackRNN(1, 4, 2))
    read = (2.0 * x - 1).roll(-ahead, 1)[:, :, None]
    with torch.no_grad():
        pairs = read.repeat_interleave(len(y), 0), y.repeat(len(x), 1)
        given = sequence_log_prob(model, *pairs).exp().view(len(x), len(y))
    product = causal_product(p_x[:, None] * given, T)
    yield equals("product of the causal factors", product, given, tol=1e-10, ahead=ahead)
    yield equals("its sum over all outputs", product.sum(1), 1.0, tol=1e-12, ahead=ahead)
    foreseen = torch.where(y[None, :, 0] == x[:, None, 1], 0.9, 0.1) / 4  # the others are uniform
    product = causal_product(foreseen / len(x), T)
    yield equals("its sum where $y^1$ foresees $x^2$", product.sum(1), 1.0, tol=1e-12)
    yield equals(
        "causal law of $y^1$ where it foresees $x^2$",
        product.view(len(x), 2, -1).sum(2),
        0.5,
        tol=1e-12,
    )
    gap = (product - foreseen).abs().sum(1) / 2
    yield equals("total variation where $y^1$ foresees $x^2$", gap, 0.4, tol=1e-12)


def causal_product(joint: Tensor, T: int) -> Tensor:
    """The product of the laws of y^t given x up to t and y before t, from a table over bits."""
    table = joint.view((2,) * (2 * T))
    result = torch.ones_like(table)
    for t in range(T):
        both = table.sum(tuple(range(t + 1, T)), keepdim=True) if t + 1 < T else table
        later = tuple(range(T + t + 1, 2 * T))
        above = both.sum(later, keepdim=True) if later else both
        result = result * above / above.sum(T + t, keepdim=True)
    return result.reshape(joint.shape)


causal_seq2seq.foil("a generator that sees the next input", ahead=1)
causal_seq2seq.foil("a generator that sees two inputs ahead", ahead=2)


@claim(
    by="identity",
    sources=("A-245", "B-362"),
    short=r"x^{1:t} \mapsto z^t \mapsto \mu^t,\quad -\log p(y \mid x) ="
    r" \textstyle\sum_t -\log p_{\mu^t}(y^t)",
)
def rnn_conditionals(
    average: Literal["logarithms", "probabilities"] = "logarithms",
    shift: int = 0,
    share: float = 1.0,
    T: int = 200,
):
    r"""The state gives the parameters of a law, and losses of steps add up.

    $x^{1:t} \mapsto z^t \mapsto \mu^t \mapsto p_{\mu^t}(y^t)$: the state at $t$ gives the
    parameters of the law of the output of its own step, and the negative log-likelihood of a
    sequence is the sum of the cross-entropies $-\log p_{\mu^t}(y^t)$ of all steps.

    The product of the probabilities of 200 steps is computed in exact fractions, from a network
    that is asked step by step; in single precision it is 0, while the sum of logarithms is right.
    With and without inputs, with and without feedback.

    Knobs:
        average: What is added up: logarithms, or probabilities before the logarithm.
        shift: By how many steps the law and the output that it is asked for lie apart.
        share: The part of the sum that is taken for the loss, such as 1 / T for the mean.
        T: How many steps there are.
    """
    for d, feedback in ((0, True), (2, True), (3, False)):
        model = scattered(FeedbackRNN(d, 6, 4, feedback=feedback), 0.7)
        x, y = torch.randn(1, T, d), torch.randint(4, (1, T))
        with torch.no_grad():
            asked = asked_step_by_step(model, x, y)
            found = sequence_log_prob(model, x, y.roll(shift, 1))[0] * share
        if average == "probabilities":
            found = T * asked.mean().log()
        exact = math.prod(Fraction(p) for p in asked.tolist())
        wanted = math.log(exact.numerator) - math.log(exact.denominator)
        yield equals("log-probability of the sequence", found, wanted, tol=1e-10, d=d,
                     feedback=feedback)  # fmt: skip
        single = asked.float().prod()
        yield equals("product of probabilities in single precision", single, 0.0, tol=0.0, d=d)
        yield at_least("minus the log-probability", -wanted, 104.0, d=d)  # below all floats


def asked_step_by_step(model: FeedbackRNN, x: Tensor, y: Tensor) -> Tensor:
    """The probability of each output of one sequence."""
    step, tokens, state = model.decoding(x)
    found = []
    for t in range(y.shape[1]):
        log_probs, state = step(tokens, state)
        tokens = y[:, t]
        found.append(log_probs[0].exp()[tokens[0]])
    return torch.stack(found)


rnn_conditionals.foil("the logarithm of the mean probability", average="probabilities")
rnn_conditionals.foil("the output of the next step", shift=-1)
rnn_conditionals.foil("the mean over the steps", share=1 / 200)
