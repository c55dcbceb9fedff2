"""Cross-entropy and perplexity: how surprised a model is by a text."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language import bits_per_byte
from vademecum.language import perplexity as perplexity_of


class Chain(nn.Module):
    """A model of the next token by the last one, from a table of probabilities."""

    def __init__(self, table: Tensor):
        super().__init__()
        self.logs = table.log()

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits after each token."""
        return self.logs[tokens]


def same_for_all(q: Tensor) -> Chain:
    """A model that ignores what came before."""
    return Chain(q.expand(len(q), -1))


def shares(*shape: int) -> list[list[Fraction]]:
    """Random rows of probabilities with small denominators, none zero."""
    weights = torch.randint(1, 9, shape).tolist()
    return [[Fraction(w, sum(row)) for w in row] for row in weights]


def floats(rows: list[list[Fraction]]) -> Tensor:
    """The same as numbers."""
    return torch.tensor([[float(p) for p in row] for row in rows])


def stationary(P: Tensor) -> Tensor:
    """The law that a chain keeps."""
    A = torch.cat([P.T - torch.eye(len(P)), torch.ones(1, len(P))])
    b = torch.zeros(len(P) + 1)
    b[-1] = 1
    return torch.linalg.lstsq(A, b[:, None]).solution[:, 0]


def conditional(Q: Tensor) -> Tensor:
    """The probabilities of the next token, given the last."""
    return Q


def marginal(Q: Tensor) -> Tensor:
    """Those of a token when nothing is known of the last."""
    return stationary(Q).expand_as(Q)


@claim(
    by="sampling",
    sources=("D-304", "D-305"),
    budget=0.8,
    short=r"-\tfrac1N \textstyle\sum_i \log q(x_i \mid x_{<i}) \to H(p, q)",
)
def cross_entropy_estimate(
    errors: float = 5.1, given: Callable[[Tensor], Tensor] = conditional, N: int = 100_000
):
    r"""Cross-entropy is estimated by the mean of negative log-probabilities.

    $H(p, q) = -\mathbb E_{x \sim p}[\log q(x)]$ is estimated by $-\frac1N \sum_i \log q(x_i \mid
    x_{<i})$ on a sample from $p$: without bias (per token, from a stationary start), and
    consistently for stationary ergodic sources. The sum of conditional log-probabilities is the
    log-probability of the whole sequence. It equals the cross-entropy only if $p$ is the empirical
    law of the sample.

    Sources and models are chains of 2 and of 3 tokens: over all $2^6$ and $3^4$ sequences, each
    given its first token, the expectation of the estimate is the cross-entropy rate. The whole
    sequence has the probability of a product of fractions. Of independent tokens an average over
    $N$, and over a sample of two, lies within 5.1 standard errors, whose exact size is known (a
    false alarm below $10^{-6}$). Estimates are those of `perplexity`; consistency beyond
    independent tokens is quoted.

    Knobs:
        errors: How many standard errors an average may be off.
        given: What the model's probabilities are conditioned on.
        N: How many tokens the sample has.
    """
    for k, T in ((2, 6), (3, 4)):
        P, exact = floats(shares(k, k)), shares(k, k)
        Q = floats(exact)
        pi, model = stationary(P), Chain(given(Q))
        mean = 0.0
        for x in product(range(k), repeat=T):
            weight = float(pi[x[0]]) * math.prod(float(P[a, b]) for a, b in pairwise(x))
            mean += weight * perplexity_of(model, list(x)).nats
        rate = -float((pi[:, None] * P * Q.log()).sum())
        yield equals("expected estimate, all sequences", mean, rate, tol=1e-12, k=k, T=T)
        x = torch.randint(k, (40,)).tolist()
        whole = math.prod(exact[a][b] for a, b in pairwise(x))
        found = perplexity_of(model, x)
        yield equals("log-probability of a whole sequence", -found.nats * found.tokens,
                     math.log(whole.numerator) - math.log(whole.denominator), tol=1e-10,
                     k=k)  # fmt: skip
    for p, q, x in (
        ((0.9, 0.1), (0.9, 0.1), [0, 0, 0]),
        ((0.2, 0.5, 0.3), (0.4, 0.25, 0.35), None),
    ):
        p, q = torch.tensor(p), torch.tensor(q)
        x = torch.multinomial(p, N + 1, replacement=True) if x is None else torch.tensor(x)
        found, losses = perplexity_of(same_for_all(q), x, context=1000), -q.log()
        H = float((p * losses).sum())
        deviation = math.sqrt(float((p * (losses - H).square()).sum()) / found.tokens)
        yield at_most("distance of the average from the cross-entropy", abs(found.nats - H),
                      errors * deviation, N=found.tokens)  # fmt: skip


cross_entropy_estimate.foil("probabilities of tokens that forget what came before", given=marginal,
                            refuted_by="expected estimate, all sequences")  # fmt: skip
cross_entropy_estimate.erratum(
    "D-305",
    printed=r"$H(p, q) = -\mathbb E_{x \sim p}[\log q(x)] = -\frac1N \sum_{i=1}^N \log q(x_i)$",
    right=r"$H(p, q) = -\mathbb E_{x \sim p}[\log q(x)] \approx"
    r" -\frac1N \sum_{i=1}^N \log q(x_i \mid x_{<i})$",
    why=r"An expectation is equated with the average over a sample, and the prefix is dropped; true"
    r" only if $p$ is the empirical law of the sample. With $p = q = (0.9, 0.1)$ and two heads the"
    r" average is 0.105, the cross-entropy 0.325 nats.",
    weight="soft",
    refuted_by="distance of the average from the cross-entropy",
    errors=0.0,
)


def geometric_mean(probabilities: list[Fraction]) -> float:
    """The geometric mean of inverse probabilities, with 50 digits."""
    with localcontext() as context:
        context.prec = 50
        logs = [(Decimal(p.denominator) / Decimal(p.numerator)).ln() for p in probabilities]
        return float((sum(logs, Decimal(0)) / len(logs)).exp())


@claim(
    by="identity",
    sources=("D-302", "D-304"),
    budget=0.6,
    short=r"\mathrm{PPL} = \exp\bigl(-\tfrac1N \textstyle\sum_i \ln p(x_i \mid x_{<i})\bigr)",
)
def perplexity(base: float = math.e, mean: Literal["tokens", "rows"] = "tokens"):
    r"""Perplexity is the geometric mean of the inverse probabilities of the tokens.

    $\mathrm{PPL} = \exp\big(-\frac1N \sum_i \ln p(x_i \mid x_{<i})\big) = 2^{H_2} = e^{H_e}$: the
    exponential of the cross-entropy in the base of its logarithm, over the tokens that are
    predicted. The uniform model on $V$ tokens has perplexity $V$, and takes 8 bits a byte where
    tokens are bytes. Rows of unequal length count by their tokens, and a text in windows counts
    every token once.

    Checked with `perplexity` for $V$ = 2, 10 and 1000, and for models of the next token by the
    last, with fractions for probabilities and 50 digits: whatever window such a model reads in, it
    sees enough.

    Knobs:
        base: What is raised to the power of the cross-entropy in nats.
        mean: Over what the logarithms are averaged when rows are of unequal length.
    """
    for V in (1000, 10, 2):
        uniform = same_for_all(torch.full((V,), 1 / V))
        found = perplexity_of(uniform, torch.randint(V, (2, 5)))
        yield equals("perplexity of the uniform model, over V", found.perplexity / V, 1.0,
                     tol=1e-9, V=V)  # fmt: skip
        yield equals("the base to the power of its cross-entropy", base**found.nats, float(V),
                     tol=1e-9 * V, V=V)  # fmt: skip
        yield equals("2 to the power of its bits", 2**found.bits, float(V), tol=1e-9 * V, V=V)
    uniform = same_for_all(torch.full((256,), 1 / 256))
    text = torch.randint(256, (50,))
    yield equals("bits a byte of a uniform model of bytes", bits_per_byte(uniform, text, 50), 8.0,
                 tol=1e-12)  # fmt: skip
    table = shares(4, 4)
    model = Chain(floats(table))
    rows = [torch.randint(4, (T,)).tolist() for T in (2, 9, 5)]
    steps = [[table[a][b] for a, b in pairwise(x)] for x in rows]
    found = perplexity_of(model, rows)
    logs = [math.log(geometric_mean(one)) for one in steps]
    weights = [len(one) if mean == "tokens" else 1 for one in steps]
    weighted = sum(a * b for a, b in zip(weights, logs, strict=True)) / sum(weights)
    yield equals("rows of unequal length", found.nats, weighted, tol=1e-12)
    yield equals("perplexity, with 50 digits", found.perplexity,
                 geometric_mean([p for one in steps for p in one]), tol=1e-12)  # fmt: skip
    x = torch.randint(4, (23,)).tolist()
    exact = geometric_mean([table[a][b] for a, b in pairwise(x)])
    for context, stride in ((5, 5), (5, 2), (7, 1), (22, 22)):
        found = perplexity_of(model, x, context=context, stride=stride)
        at = {"context": context, "stride": stride}
        yield equals("perplexity in windows", found.perplexity, exact, tol=1e-12, **at)
        yield equals("tokens in windows", found.tokens, 22, **at)


perplexity.foil("means of rows, averaged again", mean="rows", refuted_by="rows of unequal length")
perplexity.erratum(
    "D-302",
    printed=r"$\mathrm{PPL}(X) = 2^{H(p, q)}$ with $H(p, q) = -\frac1N \sum_i \log q(x_i)$, the"
    r" base of the logarithm not stated",
    right=r"$\mathrm{PPL} = e^{H_e} = 2^{H_2}$",
    why=r"Base 2 fits $\log_2$ only, while the sheet uses $\log$ for natural logarithms elsewhere;"
    r" with nats the uniform model on 1000 tokens would get $2^{\ln 1000} = 120$ and not 1000.",
    weight="soft",
    refuted_by="the base to the power of its cross-entropy",
    base=2.0,
)


@claim(
    by="identity",
    sources=("D-303",),
    budget=0.6,
    short=r"\ln \mathrm{PPL}(q) = H(p) + \mathrm{KL}(p \| q) \ge H(p)",
)
def perplexity_minimum(
    divergence: Literal["from the source", "from the model"] = "from the source",
    least: Literal["entropy", "one"] = "entropy",
    models: int = 40,
):
    r"""The lowest possible perplexity is that of the source itself.

    In expectation $\ln \mathrm{PPL}(q) = H(p) + \mathrm{KL}(p \| q)$: lower perplexity means that
    the model gives the text a higher probability, and the minimum over models is $e^{H(p)}$,
    attained by $q = p$ alone. Models are ranked by perplexity as they are by their divergence.

    Checked with `perplexity` on texts whose tokens have the shares $p$ exactly, so that the mean
    over the text is the expectation; for 6 and for 3 tokens, against models drawn from Dirichlet
    laws.

    Knobs:
        divergence: Which of the two divergences is added.
        least: What the lowest perplexity is said to be: $e^{H(p)}$, or 1.
        models: How many models are drawn.
    """
    for V in (6, 3):
        counts = 1 + torch.randperm(9)[:V]
        text = torch.arange(V).repeat_interleave(counts)
        p = counts / counts.sum()
        H = -math.fsum(float(a) * math.log(float(a)) for a in p)
        law = torch.distributions.Dirichlet(torch.full((V,), 3.0))
        drawn = [*law.sample((models,)), p]
        found = torch.tensor([perplexity_of(same_for_all(q), text, start=0).nats for q in drawn])
        KL = torch.tensor([_divergence(p, q, divergence) for q in drawn])
        yield equals("log-perplexity beyond the entropy", found - H, KL, tol=1e-12, V=V)
        yield at_least("log-perplexity of the models", found[:-1], H + 1e-9, V=V)
        floor = H if least == "entropy" else 0.0
        yield equals("the lowest log-perplexity", float(found.min()), floor, tol=1e-13, V=V)
        yield equals("models by perplexity", found.argsort(), KL.argsort(), V=V)


def _divergence(p: Tensor, q: Tensor, which: str) -> float:
    a, b = (p, q) if which == "from the source" else (q, p)
    return math.fsum(x * math.log(x / y) for x, y in zip(a.tolist(), b.tolist(), strict=True))


perplexity_minimum.foil("the other divergence", divergence="from the model",
                        refuted_by="log-perplexity beyond the entropy")  # fmt: skip
perplexity_minimum.foil("a perfect model is never surprised", least="one",
                        refuted_by="the lowest log-perplexity")  # fmt: skip
