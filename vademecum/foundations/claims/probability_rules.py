"""Rules of probability: on tables of equally likely outcomes."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.foundations import bayes_posterior, conditional, marginal

Sizes = tuple[tuple[int, ...], ...]
WITNESS = torch.tensor([[5, 2], [1, 2]])


def outcomes(sizes: Sequence[int], n: int = 40) -> list[tuple[int, ...]]:
    """Equally likely outcomes: n random values of some variables, after one of each combination."""
    every = torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))
    drawn = torch.stack([torch.randint(k, (n,)) for k in sizes], 1)
    return list(map(tuple, torch.cat([every, drawn]).tolist()))


def counts(draws: list[tuple[int, ...]], sizes: Sequence[int]) -> Tensor:
    """How often each combination of values occurs."""
    table = torch.zeros(*sizes, dtype=torch.long)
    for draw in draws:
        table[draw] += 1
    return table


def law(table: Tensor) -> Tensor:
    """The joint probabilities of a table of counts."""
    return table / table.sum()


def refusals(*calls: Callable[[], Any]) -> int:
    """How many of these calls are refused as bad input."""
    refused = 0
    for call in calls:
        try:
            call()
        except ValueError:
            refused += 1
    return refused


def averaged(joint: Tensor, keep: Sequence[int]) -> Tensor:
    """The mean over the other variables instead of the sum."""
    return marginal(joint, keep) * marginal(joint, keep).numel() / joint.numel()


def unweighted(joint: Tensor, keep: Sequence[int]) -> Tensor:
    r"""$\sum_j P(x \mid y_j)$, each conditional law counted once."""
    rest = [v for v in range(joint.ndim) if v not in keep]
    table = conditional(joint, keep, rest) if rest else marginal(joint, keep)
    return table.flatten(len(keep)).sum(-1) if rest else table


@claim(
    by="identity",
    sources=("D-001", "E-001"),
    budget=0.5,
    full={"draws": 50},
    short=r"P(X = x) = \textstyle\sum_{j = 1}^J P(X = x, Y = y_j)",
)
def sum_rule(formula: Callable[[Tensor, Sequence[int]], Tensor] = marginal, draws: int = 1):
    r"""The sum rule, or marginalisation.

    If $y_1, \dots, y_J$ exhaust the values of $Y$, then
    $P(X = x) = \sum_{j = 1}^J P(X = x, Y = y_j)$: the events $\{X = x, Y = y_j\}$ exclude each
    other and make up $\{X = x\}$. For densities the sum becomes an integral,
    $f_X(x) = \int f(x, y) \,\mathrm dy$.

    *Check.* Against relative frequencies counted on a list of outcomes, for every choice and order
    of the variables kept; the density $x + y$ on the unit square has the marginal $x + \frac12$, by
    a Gauss rule that is exact for it.

    Knobs:
        formula: The law of the variables kept, from the joint one.
        draws: How many joint laws of each shape are drawn.
    """
    for sizes in ((3, 4), (2, 3, 4)) * draws:
        drawn = outcomes(sizes)
        joint, n = law(counts(drawn, sizes)), len(drawn)
        for k in range(1, len(sizes) + 1):
            for keep in permutations(range(len(sizes)), k):
                short = [tuple(draw[v] for v in keep) for draw in drawn]
                frequencies = counts(short, [sizes[v] for v in keep]) / n
                found, at = formula(joint, keep), {"kept": k, "variables": len(sizes)}
                yield equals("marginal probabilities", found, frequencies, **at)
    x = 0.5 + torch.tensor([-1.0, 1.0]) / 12**0.5  # each node has the weight 1/2
    cells = (x[:, None] + x) / 4
    yield equals("marginal density", formula(cells, (0,)) * 2, x + 0.5)


sum_rule.foil("the mean over the other variable: it adds up to 1/J", formula=averaged)
sum_rule.foil(r"conditionals $P(x \mid y_j)$, unweighted: they add up to J", formula=unweighted)


def product_of(joint: Tensor, weight: str) -> Tensor:
    r"""$P(y \mid x)$ times the marginal of one variable, or of both alone, with x first."""
    given, p_x, p_y = conditional(joint, 1, given=0).T, marginal(joint, 0), marginal(joint, 1)
    return {"x": given * p_x[:, None], "y": given * p_y, "neither": p_x[:, None] * p_y}[weight]


@claim(
    by="identity",
    sources=("D-002", "E-002"),
    budget=0.5,
    full={"sizes": ((3, 2, 4, 3),) * 20},
    short=r"P(X, Y) = P(Y \mid X)\,P(X), \quad "
    r"P(X_1, \dots, X_n) = \textstyle\prod_i P(X_i \mid X_{< i})",
)
def product_rule(
    weight: Literal["x", "y", "neither"] = "x", sizes: Sizes = ((2, 3), (3, 2, 4), (2, 4, 3, 5))
):
    r"""The product rule of probability, and the chain rule.

    $P(X, Y) = P(Y \mid X)\,P(X)$ wherever $P(X) > 0$, and by iteration
    $P(X_1, \dots, X_n) = \prod_i P(X_i \mid X_{< i})$, the factorisation that autoregressive models
    use. Given a value of probability 0 nothing is defined, and `conditional` refuses.

    *Check.* Joint and conditional frequencies counted on a list of outcomes.

    Knobs:
        weight: The variable whose marginal multiplies $P(Y \mid X)$; for "neither" the product of
            both marginals is taken.
        sizes: The shapes of the joint laws for the chain rule.
    """
    drawn = outcomes((3, 4))
    table = counts(drawn, (3, 4))
    for name, joint in (("by hand", law(WITNESS)), ("random", law(table))):
        yield equals("joint probabilities", product_of(joint, weight), joint, law=name)
    given = conditional(law(table), 1, given=0)
    for x in range(3):
        row = [y for value, y in drawn if value == x]
        frequencies = [row.count(y) / len(row) for y in range(4)]
        yield equals("conditional probabilities", given[:, x], frequencies, x=x)
    empty = law(torch.cat([table, torch.zeros(1, 4, dtype=torch.long)]))
    refused = refusals(lambda: conditional(empty, 1, given=0))
    yield equals("refusals to condition on an impossible value", refused, 1)
    kept = empty[marginal(empty, 0) > 0]
    yield equals("joint probabilities", product_of(kept, weight), kept, law="random, once more")
    for size in sizes:
        joint = law(counts(outcomes(size), size))
        chain = torch.ones(())
        for i in range(len(size)):
            chain = chain[..., None] * conditional(joint, i, given=range(i)).movedim(0, -1)
        yield equals("product of the conditionals", chain, joint, n=len(size))


product_rule.foil(
    r"the wrong marginal: $P(Y \mid X) P(Y)$ is 1/5 where the probability is 1/10", weight="y"
)
product_rule.foil(r"$P(X) P(Y)$ is 9/50 where the probability is 1/10", weight="neither")


@claim(
    by="identity",
    sources=("D-005", "E-004"),
    budget=0.5,
    full={"draws": 200},
    short=r"P(Y_j \mid X) = P(X \mid Y_j) P(Y_j) / \textstyle\sum_i P(X \mid Y_i) P(Y_i)",
)
def bayes_rule(formula: Callable[[Tensor, Tensor], Tensor] = bayes_posterior, draws: int = 10):
    r"""Bayes' rule with the total probability in the denominator.

    For a partition $Y_1, \dots, Y_k$ of the sample space and $P(X) > 0$,
    $P(Y_j \mid X) = \frac{P(X \mid Y_j) P(Y_j)}{P(X)}
    = \frac{P(X \mid Y_j) P(Y_j)}{\sum_{i = 1}^k P(X \mid Y_i) P(Y_i)}$.

    *Check.* Against the normalised column of the joint table, in fractions. With the prior
    $\frac1{100}$, the sensitivity $\frac9{10}$ and a false-positive rate of $\frac9{100}$ the
    posterior is $\frac{10}{109}$. Of an observation of probability 0 there is no posterior, and
    `bayes_posterior` refuses.

    Knobs:
        formula: The posterior from the prior and the likelihood of what was observed.
        draws: How many priors of each length are drawn.
    """
    textbook = formula(torch.tensor([0.01, 0.99]), torch.tensor([0.9, 0.09]))
    yield equals("chance to be ill after a positive test", textbook[0], 10 / 109)
    for k in (2, 3, 5) * draws:
        weights, hits = torch.randint(1, 20, (k,)), torch.randint(0, 13, (k,))
        hits[0] = 1  # of 12
        column = [
            Fraction(int(w * h), 12 * int(weights.sum()))
            for w, h in zip(weights, hits, strict=True)
        ]
        posterior = formula(law(weights), hits / 12)
        exact = [float(cell / sum(column)) for cell in column]
        yield equals("posterior", posterior, exact, k=k)
        joint = law(weights)[:, None] * torch.stack([hits, 12 - hits], 1) / 12
        given = conditional(joint, 0, given=1)[:, 0]
        yield equals("posterior, against the joint law", posterior, given, k=k)
        yield equals("sum of the posterior", posterior.sum(), 1.0, k=k)
    impossible = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    refused = refusals(lambda: bayes_posterior(*impossible))
    yield equals("refusals of an impossible observation", refused, 1)


bayes_rule.foil(
    "the confusion of the inverse: 9/10, not 10/109", formula=lambda prior, given: given
)
bayes_rule.foil(
    r"a denominator $\sum_i P(X \mid Y_i)$ without the prior: 1/110",
    formula=lambda prior, given: given * prior / given.sum(),
)


@claim(
    by="sampling",
    sources=("B-011",),
    budget=0.5,
    full={"families": 50_000},
    short=r"P(\textstyle\bigcup_i A_i) \le \sum_i P(A_i)",
)
def union_bound(
    bound: Literal["sum", "max"] = "sum",
    disjoint: bool = True,
    families: int = 200,
    points: int = 12,
):
    r"""The union bound, or Boole's inequality.

    $P(\bigcup_i A_i) \le \sum_i P(A_i)$ for any countable family of events, without independence;
    equality holds if and only if the overlaps $A_i \cap A_j$, $i \ne j$, have probability zero.

    *Proof.* $1_{\bigcup A_i} \le \sum_i 1_{A_i}$ pointwise, with equality outside the overlaps.

    *Check.* Families of up to six subsets of a small space with integer weights, some of them 0,
    exactly: what the sum counts too much is zero without overlaps, and at least 1 with them.

    Knobs:
        bound: What is said to bound the probability of the union.
        disjoint: Whether equality is said to hold for null overlaps only, or always.
        families: How many families of each size are drawn.
        points: The number of points of the space.
    """
    lowest("families", families, 20)
    weights = torch.randint(0, 4, (families, points))
    weights[:, 0] = 1
    for size in (2, 3, 6):
        density = torch.rand(families, 1, 1) / 2
        events = torch.rand(families, size, points) < density
        owner = torch.randint(size + 1, ((families + 1) // 2, 1, points))
        events[::2] = torch.arange(size)[:, None] == owner  # half of them without overlaps
        events[0, :, 0] = True  # a point of weight 1 in all of them
        chance = (events * weights[:, None]).sum(-1)
        union = (events.any(1) * weights).sum(-1)
        total = chance.sum(-1)
        stated = total if bound == "sum" else chance.amax(-1)
        yield at_most("weight of the union", union, stated, size=size)
        overlap = sum(
            ((events[:, i] & events[:, j]) * weights).sum(-1) for i in range(size) for j in range(i)
        )
        null = torch.as_tensor(overlap == 0)
        surplus, equal = total - union, null if disjoint else torch.ones_like(null)
        yield equals("surplus of the sum where equality is claimed", surplus[equal], 0, size=size)
        yield at_least("surplus of the sum with overlaps", surplus[~null], 1, size=size)


union_bound.foil("the largest of them: disjoint events add up", bound="max")
union_bound.foil(
    "always equality: not where events overlap",
    refuted_by="surplus of the sum where equality is claimed",
    disjoint=False,
)
