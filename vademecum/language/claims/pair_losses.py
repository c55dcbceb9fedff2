"""The likelihood of pairs: its loss, its gradient, its optimum, and what a softmax costs."""

import math
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language.claims._blocks import ascent, best, block_of, loss, pairs_of, softmax_table


def log_partition(X: Tensor, Z: Tensor, w: int, v: int, over: str) -> float:
    """The logarithm of the sum over the predicted words, or over the evidence."""
    scores = Z @ X[w] if over == "predicted" else X @ Z[v]
    return math.log(math.fsum(math.exp(u) for u in scores.tolist()))


def counted(texts: list[list[int]], c: int, V: int) -> Tensor:
    """How often each word (row) has each word (column) in its window."""
    C = torch.zeros(V, V)
    for w, v in pairs_of(texts, c):
        C[w, v] += 1
    return C


@claim(
    by="identity",
    sources=("C-117", "C-118", "E-221", "E-223"),
    budget=0.5,
    short=r"\ell_{\omega\nu} = -x_\omega^\top y_\nu + \ln \sum_\mu \exp(x_\omega^\top y_\mu)",
)
def skip_gram_loss(over: Literal["predicted", "evidence"] = "predicted", expected: float = 1.0):
    r"""The loss of skip-gram, and its gradient: observed less expected counts.

    Over the observed pairs $\sum_{(\omega, \nu)} \ell_{\omega\nu}$ is summed, with
    $\ell_{\omega\nu} = -\ln P(\nu \mid \omega) = -x_\omega^\top y_\nu
    + \ln \sum_\mu \exp(x_\omega^\top y_\mu)$. Its gradient in $y_\nu$ is
    $-\sum_\omega (C_{\omega\nu} - C_{\omega\cdot} P(\nu \mid \omega))\, x_\omega$. Sums of
    logarithms suit stochastic gradients (the mean over all minibatches is the gradient of the mean)
    and do not underflow, as products of probabilities do.

    Losses and gradients are those of `SkipGram` with the objective "softmax", the latter also
    against central differences of the formula; of the minibatches of 2 pairs among 6, all 15.

    Knobs:
        over: Which word the partition function of a pair runs over.
        expected: What the expected counts are multiplied by.
    """
    for V, d, c in ((6, 3, 2), (5, 4, 3)):
        X, Y, at = torch.randn(V, d), torch.randn(V, d), {"V": V, "c": c}
        texts = [torch.randint(V, (n,)).tolist() for n in (7, 5)]
        one = block_of([[0, 1]], 1, reach=(1, 0))
        summand = -float(X[0] @ Y[1]) + log_partition(X, Y, 0, 1, over)
        yield equals("loss of a pair", loss("softmax", X, Y, one), summand, tol=1e-13, **at)
        block, pairs = block_of(texts, c), pairs_of(texts, c)
        sums = [-float(X[w] @ Y[v]) + log_partition(X, Y, w, v, over) for w, v in pairs]
        found = loss("softmax", X, Y, block)
        yield equals("loss of texts", found, math.fsum(sums), tol=1e-12, **at)
        C = counted(texts, c, V)
        P = torch.tensor(softmax_table((X @ Y.T).tolist()))
        dx, dy = ascent("softmax", X, Y, block)
        more = C - expected * C.sum(1, keepdim=True) * P
        yield equals("gradient in y, observed less expected", dy, more.T @ X, tol=1e-9, **at)
        yield equals("gradient in x", dx, more @ Y, tol=1e-9, **at)
        along, h = torch.randn(V, d), 1e-5  # errors h^2 and 1e-14 / h
        ends = [loss("softmax", X, Y + step * along, block) for step in (h, -h)]
        slope = (ends[1] - ends[0]) / (2 * h)
        yield equals("difference quotient", float((dy * along).sum()), slope, tol=1e-6, **at)
        six = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 3), (1, 2)]
        each = torch.stack([pair_gradient(X, Y, *pair) for pair in six])
        small = [each[list(some)].mean(0) for some in combinations(range(6), 2)]
        whole = ascent("softmax", X, Y, block_of([list(p) for p in six], 1, reach=6 * [1, 0]))[1]
        yield equals("mean gradient of minibatches", torch.stack(small).mean(0), whole / 6,
                     tol=1e-9, **at)  # fmt: skip
    factors = [0.01] * 10_000
    yield equals("a product of many probabilities", math.prod(factors), 0.0, tol=0.0)
    total = math.fsum(map(math.log, factors))
    yield equals("the sum of their logarithms", total, -46051.70185988, tol=1e-12)


def pair_gradient(X: Tensor, Y: Tensor, w: int, v: int) -> Tensor:
    """The gradient of the logarithm of one pair's probability in y, by the formula."""
    (row,) = softmax_table([(Y @ X[w]).tolist()])
    return (torch.eye(len(Y))[v] - torch.tensor(row))[:, None] * X[w]


skip_gram_loss.foil("observed counts alone", expected=0.0,
                    refuted_by="gradient in y, observed less expected")  # fmt: skip
skip_gram_loss.foil("the partition function over the evidence", over="evidence",
                    refuted_by="loss of texts")  # fmt: skip
skip_gram_loss.erratum(
    "E-223",
    printed=r"$\sum_{(i,j) \in C_R} x_{w_i}^\top z_{w_j}"
    r" - \log(\sum_{u \in \mathcal V} \exp(x_{w_i}^\top z_u))$",
    right=r"$\log \sum_u \exp(x_u^\top z_{w_j})$, over the predicted word",
    why="The sum runs over the conditioning word, so that the summand is the logarithm of"
    " $P(w_j | w_i)$ and not of $P(w_i | w_j)$. As the set of pairs is symmetric, the total is the"
    " same objective with the names $x$ and $z$ exchanged, against the roles that the sheet gives"
    " them.",
    weight="soft",
    refuted_by="loss of a pair",
    over="evidence",
)

Table = Literal["conditional", "joint", "transposed"]


@claim(
    by="sampling",
    sources=("E-220",),
    budget=0.8,
    short=r"\max_P \prod P(w_i \mid w_j)\ \text{at}\ P(v \mid w) = C_{vw} / C_{\cdot w}",
)
def skip_gram_optimum(table: Table = "conditional", tables: int = 1000):
    r"""Among all tables the likelihood of skip-gram is largest at the relative frequencies.

    The likelihood $\prod_{(i, j) \in C_R} P(w_i \mid w_j)$ over all tables of conditionals is
    largest at $P(v \mid w) = C_{vw} / C_{\cdot w}$, and any other table loses
    $\sum_w C_{\cdot w} \mathrm{KL}(C_{\cdot \mid w} \,\|\, P(\cdot \mid w))$ in its logarithm.

    *Proof.* For each $w$, the difference of both cross-entropies is the divergence, which is not
    negative.

    Random tables of 4 and 5 words; and the minimum of `SkipGram`'s softmax loss with free scores
    (unit vectors for the predicted words), by L-BFGS on its steps.

    Knobs:
        table: Which frequencies are said to be best.
        tables: How many random tables there are.
    """
    for V, length in ((4, 14), (5, 23)):
        text = [*range(V), *torch.randint(V, (length - 2 * V,)).tolist(), *range(V)]
        C, at = counted([text], 2, V), {"V": V}  # evidence in rows
        C[0, 1] += 3  # a table that is not symmetric
        wanted = frequencies(C, table)
        P = torch.rand(tables, V, V) + 0.01
        P /= P.sum(2, keepdim=True)
        lost = (C * frequencies(C, "conditional").clamp(min=1e-300).log()).sum() - (
            C * P.log()
        ).sum((1, 2))
        shares = C / C.sum(1, keepdim=True)
        divergence = torch.where(shares > 0, shares * (shares / P).log(), 0.0).sum(2)
        said = (C.sum(1) * divergence).sum(1)
        yield equals("what a random table loses", lost, said, tol=1e-9, **at)
        yield at_least("losses", lost, 0.0, tol=1e-9, **at)
        yield equals("sums of the best table's rows", wanted.sum(1), 1.0, tol=1e-12, **at)
        texts = [[w, v] for w in range(V) for v in range(V) for _ in range(int(C[w, v]))]
        block = block_of(texts, 1, reach=[1, 0] * len(texts))
        X, Z = best("softmax", torch.zeros(V, V), torch.eye(V), block, fixed=True)
        reached = (X @ Z.T).softmax(1)
        yield equals("the best table", reached, wanted, tol=1e-4, **at)


def frequencies(C: Tensor, table: Table) -> Tensor:
    """Counts over their sum for each evidence, over all, or over the predicted words."""
    if table == "joint":
        return C / C.sum()
    return C / C.sum(1, keepdim=True) if table == "conditional" else C / C.sum(0)


skip_gram_optimum.foil("frequencies of pairs", table="joint", refuted_by="the best table")
skip_gram_optimum.foil("frequencies of the evidence", table="transposed",
                       refuted_by="the best table",
                       close="the table is reached to 1e-4, and differs by some 0.1")  # fmt: skip


def multiplications(x: Tensor, Z: Tensor, rows: Tensor | None, how: str) -> int:
    """How many multiplications it takes to score one word against some or all others."""
    wanted = slice(None) if rows is None else rows
    with FlopCounterMode(display=False) as counter:
        torch.mm(Z if how == "all" else Z[wanted], x[:, None])
    return counter.get_total_flops() // 2  # an addition for each


@claim(
    by="identity",
    sources=("E-227",),
    budget=0.5,
    short=r"\text{softmax: } d\,|\mathcal V| \text{ multiplications a pair; }"
    r" k \text{ negatives: } d\,(k + 1)",
)
def partition_cost(how: Literal["needed", "all"] = "needed"):
    r"""An exact softmax costs as much as there are words, negative sampling as many as are drawn.

    The exact gradient of one pair needs all $|\mathcal V|$ scores, $d |\mathcal V|$
    multiplications, while negative sampling with $k$ words of noise needs $d (k + 1)$. At
    $|\mathcal V| = 10^6$ and $k = 5$ the ratio is about $1.7 \cdot 10^5$.

    Multiplications are counted as torch makes them, to $|\mathcal V| = 10^4$; the rows of output
    vectors that one update moves, in steps of `SkipGram`: all, against at most $k + 1$.

    Knobs:
        how: Whether only the scores of the drawn words are computed, or all, and then some chosen.
    """
    for V, d, k in ((100, 4, 5), (1000, 3, 2), (10_000, 8, 5)):
        X, Z, at = torch.randn(V, d) / 4, torch.randn(V, d) / 4, {"V": V, "d": d, "k": k}
        drawn = torch.randperm(V)[: k + 1]
        whole, part = (multiplications(X[0], Z, rows, how) for rows in (None, drawn))
        yield equals("multiplications for all scores", whole, d * V, **at)
        yield equals("multiplications with negatives", part, d * (k + 1), **at)
        if (V, k) == (10_000, 5):
            yield equals("ratio for a hundred times as many words", 100 * whole / part, 1.7e5,
                         tol=0.02, **at)  # fmt: skip
        w, v, *noise = torch.randperm(V)[: k + 2].tolist()
        block = block_of([[w, v]], 1, reach=(1, 0), noise=noise, k=k)
        for objective, rows in (("softmax", V), ("sgns", k + 1)):
            moved = int((ascent(objective, X, Z, block)[1] != 0).any(1).sum())
            yield equals(f"rows that a step of {objective} moves", moved, rows, **at)
        twice = block_of([[w, v]], 1, reach=(1, 0), noise=[noise[0]] * k, k=k)
        moved = int((ascent("sgns", X, Z, twice)[1] != 0).any(1).sum())
        yield at_most("rows moved with repeated noise", moved, k + 1, **at)


partition_cost.foil("all scores, of which some are chosen", how="all",
                    refuted_by="multiplications with negatives")  # fmt: skip
