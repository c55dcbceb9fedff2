"""Independence: what it gives, and what zero covariance does not."""

import math
from collections.abc import Callable
from itertools import product
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from vademecum.claims import at_least, claim, equals
from vademecum.foundations import conditional, is_independent, marginal, mutual_information

COPIES = torch.tensor([[1, 0], [0, 1]])
SQUARE = torch.tensor([[0, 1], [1, 0], [0, 1]])  # Y = X^2 for X uniform on -1, 0, 1
COPIED_TWICE = torch.tensor([[[1, 0], [0, 0]], [[0, 0], [0, 1]]])  # X = Y = Z
EXCLUSIVE_OR = torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])  # Z = X + Y mod 2


def rank_one(*sizes: int) -> Tensor:
    """A random integer table of rank one: two variables that are independent."""
    a, b = (torch.randint(1, 6, (size,)) for size in sizes)
    return a[:, None] * b


def shifted(table: Tensor) -> Tensor:
    """The same table with one unit moved around in a 2x2 block, which keeps the marginals."""
    i, j = (torch.randperm(k)[:2] for k in table.shape)
    table = table.clone()
    table[i, j] += 1
    table[i, j.flip(0)] -= 1
    return table


def singular(table: Tensor) -> bool:
    """Whether all 2x2 minors of an integer table vanish: its rank is at most one."""
    r, c = (torch.combinations(torch.arange(k)).T for k in table.shape)
    top, low = table[r[0]], table[r[1]]
    return not (top[:, c[0]] * low[:, c[1]] - top[:, c[1]] * low[:, c[0]]).any()


def scaled_covariance(table: Tensor) -> Tensor:
    r"""$n^2\,\mathrm{Cov}(X, Y)$ for n outcomes, counted, with the values -1, 0, 1 and so on."""
    x, y = (torch.arange(k) - 1 for k in table.shape[-2:])
    n, both = table.sum((-2, -1)), (table * torch.outer(x, y)).sum((-2, -1))
    return n * both - (table.sum(-1) * x).sum(-1) * (table.sum(-2) * y).sum(-1)


def uncorrelated(joint: Tensor) -> Tensor:
    """Whether the covariance of a joint law vanishes."""
    return scaled_covariance(joint).abs() < 1e-12


def alike(joint: Tensor) -> bool:
    """Whether the variables have the same law."""
    p_x, p_y = marginal(joint, 0), marginal(joint, 1)
    return len(p_x) == len(p_y) and torch.allclose(p_x, p_y)


def dependence(table: Tensor) -> Tensor:
    """The squared weight times the gap of a joint law and the product of its marginals."""
    return table.sum() * table - table.sum(1, keepdim=True) * table.sum(0)


def information(table: Tensor) -> float:
    """The mutual information of a table of counts, by its definition."""
    n, gone = int(table.sum()), table.sum(1, keepdim=True) * table.sum(0)
    pairs = zip(table.flatten().tolist(), gone.flatten().tolist(), strict=True)
    return math.fsum(c / n * math.log(n * c / g) for c, g in pairs if c)


@claim(
    by="identity",
    sources=("D-003", "E-003"),
    budget=0.5,
    full={"draws": 200},
    short=r"X \perp Y \iff P(X \in A, Y \in B) = P(X \in A) P(Y \in B) \;\; \forall A, B",
)
def independence(
    test: Callable[[Tensor], Tensor | bool] = lambda joint: is_independent(joint, 0, 1),
    draws: int = 6,
):
    r"""Independence of two random variables.

    $X$ and $Y$ are independent if and only if $P(X \in A, Y \in B) = P(X \in A) P(Y \in B)$ for all
    events $A$, $B$; for discrete variables if and only if the joint table is the outer product of
    its marginals, which is to say that it has rank one; and if and only if the mutual information
    $I(X; Y) = \sum_{x, y} p(x, y) \log \frac{p(x, y)}{p(x) p(y)}$ is zero. Otherwise it is at least
    $2\,\mathrm{TV}^2$ with the total variation of the joint law and the product (Pinsker).

    Checked on integer tables of rank one, and on the same with a unit of mass moved inside a 2x2
    block: against all 2x2 minors and against all pairs of events, in integers.

    Knobs:
        test: What is called independent.
        draws: How many tables are drawn.
    """
    tables = [COPIES, SQUARE]
    for k in range(draws):
        table = rank_one(*((2, 2), (3, 2), (3, 4))[k % 3])
        tables += [table, shifted(table)]
    for i, table in enumerate(tables):
        joint, gap = table / table.sum(), dependence(table)
        called = int(test(joint))
        yield equals("whether the test says independent", called, int(singular(table)), table=i)
        events = [torch.cartesian_prod(*[torch.arange(2)] * size) for size in table.shape]
        worst = (events[0] @ gap @ events[1].T).abs().max()
        yield equals("whether all events are independent", int(worst == 0), called, table=i)
        found = mutual_information(joint)
        exact = 0.0 if singular(table) else information(table)
        yield equals("mutual information", found, exact, table=i)
        half = float(gap.abs().sum() / table.sum() ** 2) / 2
        yield at_least("mutual information, from below", found, 2 * half**2, table=i)


independence.foil("zero covariance: also $X$ uniform on $-1, 0, 1$ and $X^2$", test=uncorrelated)
independence.foil("equal marginals: also a fair coin and itself", test=alike)


@claim(
    by="identity",
    sources=("D-004", "D-006", "E-005", "E-006"),
    budget=0.5,
    full={"draws": 100},
    short=r"X \perp Y \mid Z \iff P(X, Y \mid z) = P(X \mid z) P(Y \mid z) \;\; \forall z",
)
def conditional_independence(
    given: tuple[int, ...] = (2,),
    implies: Literal["nothing", "marginal", "conditional"] = "nothing",
    draws: int = 4,
):
    r"""Conditional independence.

    $X \perp Y \mid Z$ if and only if $P(X, Y \mid z) = P(X \mid z) P(Y \mid z)$ for every $z$ with
    $P(z) > 0$; equivalently $P(X \mid Y, Z) = P(X \mid Z)$ wherever $P(Y, Z) > 0$. It neither
    implies nor is implied by the marginal independence $X \perp Y$: given $Z$, the copies
    $X = Y = Z$ of a coin are independent and not without; two fair coins are independent and not
    given whether they differ.

    Checked on tables of integers whose slices at fixed $z$ have rank one, and on perturbed ones:
    against the minors of the slices, and against the second form.

    Knobs:
        given: The variables that are given.
        implies: Which kind of independence is said to follow from the other.
        draws: How many tables are drawn.
    """
    tables = [COPIED_TWICE, EXCLUSIVE_OR]
    for k in range(draws):
        slices = [rank_one(3, 2) for _ in range(3)]
        tables.append(torch.stack(slices, -1))
        slices[k % 3] = shifted(slices[k % 3])
        tables.append(torch.stack(slices, -1))
    for i, table in enumerate(tables):
        joint = table / table.sum()
        within = all(singular(z) for z in table.unbind(-1))
        without = singular(table.sum(-1))
        if implies == "marginal":
            without = without or within
        if implies == "conditional":
            within = within or without
        measured = int(is_independent(joint, 0, 1, given))
        yield equals("whether independent given Z", measured, int(within), table=i)
        never = torch.cat([joint, torch.zeros_like(joint[..., :1])], -1)
        found = int(is_independent(never, 0, 1, given))
        yield equals("the same if Z has a value of probability 0", found, measured, table=i)
        if table.sum(0).all():  # then P(y, z) > 0 everywhere
            gap = conditional(joint, 0, given=(1, 2)) - conditional(joint, 0, given=2)[:, None]
            free = int(gap.abs().max() < 1e-12)
            yield equals("whether Y tells nothing of X beyond Z", free, measured, table=i)
        measured = int(is_independent(joint, 0, 1))
        yield equals("whether independent without Z", measured, int(without), table=i)


conditional_independence.foil(
    "not independent without Z: three copies of a coin", implies="marginal"
)
conditional_independence.foil(
    "not independent given Z: two coins, and whether they differ", implies="conditional"
)
conditional_independence.foil("independence after summing $Z$ out", given=())


@claim(
    by="identity",
    sources=("D-010", "E-010"),
    budget=0.5,
    full={"unit": 24},
    short=r"X \perp Y \implies \mathrm{Cov}(X, Y) = 0",
)
def independence_uncorrelated(
    converse: Literal["binary", "always"] = "binary", sign: int = 1, unit: int = 12
):
    r"""Independence implies zero covariance, and not conversely.

    If $X$ and $Y$ are independent with finite second moments, $\mathrm{Cov}(X, Y) = 0$. The
    converse fails for $X$ uniform on $\{-1, 0, 1\}$ and $Y = X^2$, but it holds for jointly
    Gaussian variables and for two binary ones.

    *Proof* for binary ones: the covariance is the determinant of the 2x2 table.

    Checked on tables of integers, and on all 2x2 tables of probabilities that are multiples of
    $\frac1{12}$, exactly; a Gaussian density with a diagonal covariance is the product of its
    marginals.

    Knobs:
        converse: For which variables zero covariance is said to imply independence.
        sign: The sign of the second product in the determinant.
        unit: How many equal parts the probabilities of the 2x2 tables have.
    """
    for i, table in enumerate([SQUARE, *(rank_one(3, 4) for _ in range(4))]):
        found = int(is_independent(table / table.sum(), 0, 1))
        covariance = int(scaled_covariance(table))
        if found:
            yield equals("covariance of independent variables, times $n^2$", covariance, 0, table=i)
        independent = singular(table) or (converse == "always" and covariance == 0)
        yield equals("whether independent", found, int(independent), table=i)
    cells = [c for c in product(range(unit + 1), repeat=3) if sum(c) <= unit]
    tables = torch.tensor([(*c, unit - sum(c)) for c in cells]).view(-1, 2, 2)
    determinants = tables[:, 0, 0] * tables[:, 1, 1] - sign * tables[:, 0, 1] * tables[:, 1, 0]
    covariances = scaled_covariance(tables)
    yield equals("covariance of two binary variables", covariances, determinants, unit=unit)
    independent = is_independent(tables / unit, 0, 1, batch_dims=1)
    yield equals("whether two binary variables are independent", independent, covariances == 0)
    mean, var = torch.randn(3), torch.rand(3) + 0.1
    x = mean + torch.randn(20, 3)
    factors = Normal(mean, var.sqrt()).log_prob(x).sum(-1)
    joint = MultivariateNormal(mean, var.diag()).log_prob(x)
    yield equals("log-density of uncorrelated Gaussian variables", joint, factors)


independence_uncorrelated.foil(
    "uncorrelated as independent: not $X$ and $X^2$ on $-1, 0, 1$", converse="always"
)
independence_uncorrelated.foil("the permanent of the table instead", sign=-1)
