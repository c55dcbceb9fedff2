"""Texts with gaps: hidden tokens, and why what fills them is no language model."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import torch
from scipy.stats import chi2
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import Evidence, claim, consistent, equals, in_mean
from vademecum.language import BERT, BERTPretraining, mask_tokens, pseudo_likelihood
from vademecum.language.claims._networks import drawn

LAW = (0.85, 0.12, 0.015, 0.015)
"""Not selected; masked; replaced at random; kept."""


def p_value(counts: Tensor, law: Tensor) -> float:
    """Pearson's chi-square test of counts against a law."""
    wanted = counts.sum() * law
    return float(chi2.sf(float(((counts - wanted) ** 2 / wanted).sum()), len(law) - 1))


@claim(
    by="sampling",
    sources=("A-267", "B-412", "D-309", "D-310"),
    budget=1.0,
    short=r"\ell = -\sum_{t \in S} \log p(x_t \mid \tilde x),\ P(t \in S) = 0.15,\ 80/10/10",
)
def masked_language_model(
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1), everywhere: bool = False, n: int = 10**6
):
    r"""Of all tokens that are not special 15 % are selected, hidden, and predicted from both sides.

    Each is selected for itself; a selected one is replaced by [MASK] with probability 0.8, by a
    random token with 0.1 and kept with 0.1. The loss is the cross-entropy at selected places only,
    so what stands elsewhere as a target does not matter, and logits there have no slope. It is a
    cloze task: self-supervised, and not autoregressive.

    The four frequencies of $10^6$ tokens, half of them special, pass a chi-square test, and so do
    the tokens that replace others, which are drawn evenly from all; neighbours are selected
    together as often as independent ones are.

    Knobs:
        shares: How selected tokens are treated: masked, replaced, kept.
        everywhere: Whether the loss counts all places.
        n: How many tokens that may be selected are drawn.
    """
    V, mask, special = 30, 3, (0, 1, 2)
    tokens = torch.randint(4, V, (n,))
    found = mask_tokens(tokens, mask=mask, V=V, special=special, shares=shares)
    counts = torch.bincount(found.decisions.int(), minlength=4).double()
    yield consistent("p-value of 85, 12, 1.5 and 1.5 %", p_value(counts, torch.tensor(LAW)), n=n)
    pairs = ((found.decisions[::2] > 0) & (found.decisions[1::2] > 0)).double()
    yield in_mean("neighbours selected together", pairs, 0.0225)
    yield equals("masks that are seen", int((found.tokens == mask)[found.decisions == 1].sum()),
                 int((found.decisions == 1).sum()))  # fmt: skip
    new = found.tokens[found.decisions == 2]
    if len(new):
        even = p_value(torch.bincount(new, minlength=V).double(), torch.full((V,), 1 / V))
        yield consistent("p-value of even replacements", even, n=len(new))
    same = (found.decisions == 0) | (found.decisions == 3)
    yield equals("tokens that stay", int((found.tokens != tokens)[same].sum()), 0)
    others = torch.tensor([*special, mask]).repeat(n // 10)
    untouched = mask_tokens(others, mask=mask, V=V, special=special, shares=shares)
    yield equals("special tokens that are selected", int(untouched.decisions.sum()), 0)
    yield from losses(V, mask, everywhere)


def losses(V: int, mask: int, everywhere: bool) -> Iterator[Evidence]:
    """The loss of hidden tokens, place by place, and where its slopes are."""
    net = drawn(BERT(V=V, d=6, layers=2, heads=2, context=9, pretraining=True))
    tokens = torch.randint(4, V, (4, 9))
    hidden = mask_tokens(tokens, mask=mask, V=V, rate=0.4)
    hidden.labels[0, 0], hidden.labels[0, 1] = tokens[0, 0], -100  # one of each kind at least
    out = net(hidden.tokens)
    assert isinstance(out, BERTPretraining)
    logits = out.logits.requires_grad_()
    loss = F.cross_entropy(logits.flatten(0, 1), hidden.labels.flatten())
    selected = torch.ones_like(tokens).bool() if everywhere else hidden.labels != -100
    log_p = logits.detach().log_softmax(-1)
    terms = [-float(log_p[i, t, tokens[i, t]]) for i, t in selected.nonzero().tolist()]
    yield equals("loss place by place", loss.detach(), sum(terms) / len(terms), tol=1e-12)
    wanted = net(hidden.tokens, where=selected)
    assert isinstance(wanted, BERTPretraining)
    short = F.cross_entropy(wanted.logits, tokens[selected])
    yield equals("loss of the logits that count", loss.detach(), short, tol=1e-12)
    (slope,) = torch.autograd.grad(loss, logits)
    yield equals("slope where nothing is selected", slope[~selected], torch.zeros(()), tol=0.0)


masked_language_model.foil("every selected token is masked", shares=(1.0, 0.0, 0.0))
masked_language_model.foil("a loss over all places", everywhere=True)


class TwoTokens(nn.Module):
    """Conditionals of two tokens: a hidden one by the other, and one that is seen by itself."""

    def __init__(self, first: Tensor, second: Tensor):
        super().__init__()
        self.first, self.second = first, second  # p(x | y) by rows y, p(y | x) by rows x

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (n, 2, V); a mask, the token V, counts as 0 at the other place."""
        V = len(self.second)
        x, y = tokens.clamp(max=V - 1).T
        law = torch.stack([self.first[y], self.second[x]], 1)
        known = F.one_hot(tokens, V + 1)[..., :V].to(law)
        return torch.where(tokens[..., None] == V, law, known).log()


def conditionals(joint: list[list[Fraction]]) -> tuple[Tensor, Tensor]:
    """p(x | y) by rows y, and p(y | x) by rows x, of a joint law p(x, y)."""
    columns = list(zip(*joint, strict=True))
    first = [[float(p / sum(column)) for p in column] for column in columns]
    second = [[float(p / sum(row)) for p in row] for row in joint]
    return torch.tensor(first), torch.tensor(second)


def products(joint: list[list[Fraction]]) -> Fraction:
    """The sum of p(x | y) p(y | x) over all pairs, exactly."""
    columns = list(zip(*joint, strict=True))
    return sum(
        (p * p / (sum(row) * sum(columns[j])) for row in joint for j, p in enumerate(row) if p),
        Fraction(0),
    )


def drawn_joint(k: int) -> list[list[Fraction]]:
    """A random joint law of two tokens of k kinds."""
    weights = torch.randint(1, 10, (k, k)).tolist()
    total = sum(map(sum, weights))
    return [[Fraction(w, total) for w in row] for row in weights]


def independent_joint(k: int) -> list[list[Fraction]]:
    """A random law of two independent tokens."""
    a, b = torch.randint(1, 10, (2, k)).tolist()
    return [[Fraction(u * v, sum(a) * sum(b)) for v in b] for u in a]


def log_odds_ratio(p: Tensor) -> Tensor:
    """Of two laws of a bit, a row each."""
    return (p[1, 1] * p[0, 0] / (p[1, 0] * p[0, 1])).log()


@claim(
    by="identity",
    sources=("B-411",),
    budget=0.4,
    short=r"\sum_x \prod_i p(x_i \mid x_{-i}) \ne 1 \text{ in general};"
    r"\ \text{conditionals need no joint}",
)
def masked_conditionals(sum_to_one: bool = False, compatible: bool = False):
    r"""A masked model gives conditionals $p(x_i \mid x_{-i})$, and these are no language model.

    Their product is a pseudo-likelihood, which need not sum to one over sequences: two equal bits
    have the products 1, 0, 0, 1. For independent tokens it does. And arbitrary conditionals need
    not belong to any joint law: those of two bits do if and only if their odds ratios agree. For a
    joint law $p(y) \propto p(y \mid x_0) / p(x_0 \mid y)$ with every $x_0$, which gives it back;
    for bits the odds of $y$ with $x_0 = 0$ and with $x_0 = 1$ differ by the factor by which the
    odds ratios of the conditionals do. That good vectors need no proper language model is quoted.

    Products come from `pseudo_likelihood`, exact sums from fractions, over all pairs of 2, 3 and 5
    kinds of tokens.

    Knobs:
        sum_to_one: Whether products of conditionals sum to one.
        compatible: Whether any conditionals belong to a joint law.
    """
    equal = [[Fraction(1, 2), Fraction(0)], [Fraction(0), Fraction(1, 2)]]
    laws = {"equal bits": equal, "drawn bits": drawn_joint(2), "drawn": drawn_joint(5)}
    laws |= {"independent bits": independent_joint(2), "independent": independent_joint(3)}
    for name, joint in laws.items():
        pairs = torch.tensor(list(product(range(len(joint)), repeat=2)))
        model = TwoTokens(*conditionals(joint))
        found = pseudo_likelihood(model, pairs, mask=len(joint)).log_likelihood.exp()
        exact = float(products(joint))
        if name == "equal bits":
            yield equals("products of two equal bits", found, torch.tensor([1.0, 0.0, 0.0, 1.0]))
            yield equals("their sum", found.sum(), 1.0 if sum_to_one else 2.0, tol=1e-12)
        if name.startswith("independent"):
            exact = 1.0
        yield equals("sum of the products", found.sum(), 1.0 if sum_to_one else exact, tol=1e-12,
                     kinds=len(joint))  # fmt: skip
    p = torch.tensor([[float(u) for u in row] for row in laws["drawn bits"]])
    first, second = conditionals(laws["drawn bits"])
    for start in (0, 1):
        again = joint_from(first, second, start)
        yield equals("the joint law that was there", again, p, tol=1e-12, start=start)
    first, second = (0.05 + 0.9 * torch.rand(2, 2) for _ in range(2))
    first, second = (x / x.sum(1, keepdim=True) for x in (first, second))
    laws_of = [joint_from(first, second, start) for start in (0, 1)]
    gap = log_odds_ratio(first) - log_odds_ratio(second)
    if compatible:
        gap = torch.zeros(())
    odds = [(law.sum(0)[1] / law.sum(0)[0]).log() for law in laws_of]
    yield equals("gap of the log-odds of two joint laws", odds[0] - odds[1], gap, tol=1e-10)


def joint_from(first: Tensor, second: Tensor, start: int) -> Tensor:
    """The law p(x, y) with the conditionals p(x | y), and p(y | start) as they are given."""
    marginal = second[start] / first[:, start]
    return (first * (marginal / marginal.sum())[:, None]).T


masked_conditionals.foil("products of conditionals sum to one", sum_to_one=True)
masked_conditionals.foil("any conditionals belong to a joint law", compatible=True,
                         refuted_by="gap of the log-odds of two joint laws")  # fmt: skip
