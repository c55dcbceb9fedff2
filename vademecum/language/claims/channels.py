"""The noisy channel: a model of what is meant, and one of how it is said."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language import noisy_channel as decode


def posterior_by_counting(joint: list[list[int]]) -> list[list[Fraction]]:
    """For each source, the shares of the targets among the weights of a joint law (t, s)."""
    totals = [sum(column) for column in zip(*joint, strict=True)]
    return [[Fraction(row[s], totals[s]) for row in joint] for s in range(len(totals))]


@claim(
    by="identity",
    sources=("A-264", "D-300"),
    budget=0.3,
    short=r"P(t \mid s) \propto P(s \mid t)\, P(t)",
)
def noisy_channel(power: float = 1.0):
    r"""Decoding a noisy channel: $P(t \mid s) \propto P(s \mid t)\, P(t)$.

    Statistical recognisers and translators combine a model of the channel, $P(s \mid t)$, with a
    language model, $P(t)$; the target with the largest product is the one with the largest
    posterior. A factor common to all targets, however small, changes nothing. Prior $(0.9, 0.1)$
    and channel $(0.4, 0.6)$ give $0.36 : 0.06$, though the second target fits the source better.

    Checked with `noisy_channel` on joint laws with distinct integer weights, by counting in
    fractions; weights below the range of floats are one factor.

    *Note.* One sheet (D-300) says that large language models make use of this rule. The formula is
    right, but belongs to statistical recognition and translation: models such as GPT and BERT give
    the next or the masked token directly, and never compute $P(s \mid t)$.

    Knobs:
        power: The power of the prior in the product; 0 leaves the channel alone.
    """
    for targets, sources in ((6, 5), (3, 8)):
        weights = 1 + torch.randperm(997)[: targets * sources].view(targets, sources)
        weights[0] += 1000 * torch.randperm(sources)  # a common target, so that the prior counts
        exact = posterior_by_counting(weights.tolist())
        prior = weights.sum(1) / weights.sum()
        channel = weights / weights.sum(1, keepdim=True)
        found = decode(channel.log().T - 5000, prior.log(), weight=power)
        at = {"targets": targets, "sources": sources}
        wanted = torch.tensor([[float(p) for p in row] for row in exact])
        yield equals("posterior", found.log_posterior.exp(), wanted, tol=1e-11, **at)
        best = [row.index(max(row)) for row in exact]
        yield equals("decoded targets", found.best, best, **at)
    found = decode(torch.tensor([0.4, 0.6]).log(), torch.tensor([0.9, 0.1]).log(),
                          weight=power)  # fmt: skip
    yield equals("odds with the prior (0.9, 0.1)", float(found.log_posterior.exp()[0]), 6 / 7,
                 tol=1e-14)  # fmt: skip
    yield equals("target that is decoded with it", int(found.best), 0)


noisy_channel.foil("the channel alone, by maximum likelihood", power=0.0,
                            refuted_by="target that is decoded with it")  # fmt: skip
noisy_channel.foil("the prior counted twice", power=2.0, refuted_by="posterior")


def estimated(counts: Tensor) -> Tensor:
    """Logarithms of probabilities from counts, one added to each."""
    return ((counts + 1) / (counts + 1).sum(-1, keepdim=True)).log()


def symmetric(noise: Tensor, V: int) -> Tensor:
    """Logarithms of a channel (n, source, target) that errs with these probabilities."""
    noise = noise[:, None, None]
    own = torch.eye(V, dtype=torch.bool)
    return torch.where(own, 1 - noise, noise / (V - 1)).log()


@claim(by="sampling", sources=("D-301",), budget=0.5)
def monolingual_prior(texts: int = 100_000, repeats: int = 40):
    r"""Text in one language improves a noisy channel when parallel text is scarce.

    With few parallel sentences and much text of the target language alone, a prior from that text,
    and only the channel with its few parameters from the parallel sentences, gives a better
    posterior than all from the parallel ones. Checked for words: 20 (and 12), a prior from the
    Dirichlet law of parameter 1/2, a symmetric channel with noise 0.3 (0.5) whose one parameter
    comes from the 30 (40) pairs, all counts with one added. The expected log-posterior of the right
    target is an exact sum over the true law; over 40 draws the gain is positive by more than five
    standard errors (a prototype found 26). The true prior and channel are better than either.

    Knobs:
        texts: How many words there are in the target language alone; with 0 its prior is uniform.
        repeats: How many laws are drawn.
    """
    for V, pairs, noise in ((20, 30, 0.3), (12, 40, 0.5)):
        law = torch.distributions.Dirichlet(torch.full((V,), 0.5)).sample((repeats,))
        law = (law + 1e-9) / (law + 1e-9).sum(1, keepdim=True)
        parallel = torch.multinomial(law, pairs, replacement=True)
        counts = torch.nn.functional.one_hot(parallel, V).sum(1)
        errors = (torch.rand(repeats, pairs) < noise).sum(1)
        guessed = (errors + 1) / (pairs + 2)
        alone = torch.stack([torch.bincount(torch.multinomial(p, texts, replacement=True),
                                            minlength=V) if texts else torch.zeros(V)
                             for p in law])  # fmt: skip
        true = symmetric(torch.full((repeats,), noise), V)
        joint = true.exp() * law[:, None]  # (repeats, source, target)

        def expected(channel: Tensor, prior: Tensor, joint: Tensor = joint) -> Tensor:
            logs = decode(channel, prior[:, None]).log_posterior
            return (joint * logs).sum((1, 2))

        channel = symmetric(guessed, V)
        with_text = expected(channel, estimated(alone))
        gain = with_text - expected(channel, estimated(counts))
        at = {"words": V, "pairs": pairs, "noise": noise}
        errors_of_mean = float(gain.mean() / (gain.std() / math.sqrt(repeats)))
        yield at_least("gain of the log-posterior, in standard errors", errors_of_mean, 5.0, **at)
        yield at_most("log-posterior, against that of the true law", with_text,
                      expected(true, law.log()), tol=1e-12, **at)  # fmt: skip


monolingual_prior.foil("no text: a uniform prior", texts=0,
                       refuted_by="gain of the log-posterior, in standard errors")  # fmt: skip
