"""Words that meet more often than by chance: information, pair by pair and on average."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from vademecum import foundations, language
from vademecum.claims import Evidence, at_least, at_most, claim, equals

Ratio = Callable[[Fraction, Fraction, Fraction], float]


def entropy(p: Tensor) -> float:
    """In nats, by a sum without rounding of its own."""
    return -math.fsum(q * math.log(q) for q in p.flatten().tolist() if q > 0)


def plug_in(joint: Tensor) -> float:
    """The information, term by term."""
    rows, columns = joint.sum(1).tolist(), joint.sum(0).tolist()
    return math.fsum(
        p * math.log(p / (rows[i] * columns[j]))
        for i, row in enumerate(joint.tolist())
        for j, p in enumerate(row)
        if p > 0
    )


def covariance(joint: Tensor) -> Tensor:
    """The size of the covariance, if values are whole numbers around 0."""
    x, y = (torch.arange(float(size)) - (size - 1) // 2 for size in joint.shape)
    return ((x @ joint @ y) - (joint.sum(1) @ x) * (joint.sum(0) @ y)).abs()


def random_counts(rows: int, columns: int, zeros: bool) -> Tensor:
    """Whole numbers, some of them 0, but none in the first row and column."""
    counts = torch.randint(1, 30, (rows, columns))
    if zeros:
        counts[1:, 1:] *= torch.rand(rows - 1, columns - 1) < 0.5
    return counts


@claim(
    by="identity",
    sources=("E-196", "E-197"),
    budget=0.3,
    short=r"I(X; Y) = \mathbb E[\mathrm{pmi}] = H(X) + H(Y) - H(X, Y) \ge 0,"
    r"\ = 0 \iff \text{independent}",
)
def mutual_information(
    criterion: Literal["information", "covariance"] = "information", pinsker: float = 8.0
):
    r"""Mutual information is the mean of pointwise mutual information.

    $I(X; Y) = \sum_{x, y} P(x, y) \log \frac{P(x, y)}{P(x) P(y)} = H(X) + H(Y) - H(X, Y) \ge 0$,
    with equality if and only if $X$ and $Y$ are independent: how much one variable tells about the
    other.

    *The last part.* $I$ is the divergence of the joint law from the product of its marginals, and
    by Pinsker's inequality at least $2 \delta^2$ if they are $\delta$ apart in total variation.
    Adding $\pm \epsilon$ to a $2 \times 2$ minor of a product leaves the marginals and gives
    $\delta = 2 \epsilon$, so $I \ge 8 \epsilon^2$. Checked on tables up to 6 x 6, with and without
    empty cells; the constant on the uniform 2 x 2 table, where it is attained as $\epsilon \to 0$.

    Knobs:
        criterion: What is to tell how dependent two variables are.
        pinsker: The constant before $\epsilon^2$.
    """
    measure = foundations.mutual_information if criterion == "information" else covariance
    square = torch.tensor([[0.0, 1 / 3], [1 / 3, 0.0], [0.0, 1 / 3]])  # of -1, 0, 1
    told = math.log(3) - 2 / 3 * math.log(2)
    yield equals("what X on -1, 0, 1 tells about its square", measure(square), told, tol=1e-14)
    for rows, columns, zeros in ((2, 3, False), (6, 6, True), (5, 4, True), (1, 4, False)):
        counts = random_counts(rows, columns, zeros)
        joint, at = counts / counts.sum(), {"rows": rows, "columns": columns}
        found, pointwise = measure(joint), language.pmi(counts)
        yield equals("information, term by term", found, plug_in(joint), tol=1e-13, **at)
        by_entropies = entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint)
        yield equals("information, from entropies", found, by_entropies, tol=1e-13, **at)
        mean = (joint * pointwise)[joint > 0].sum()
        yield equals("information, as the mean of pmi", mean, found, tol=1e-13, **at)
        yield at_least("information", found, 0.0, tol=1e-15, **at)
        p, q = (torch.rand(size) + 0.5 for size in (rows, columns))
        product = torch.outer(p / p.sum(), q / q.sum())
        yield equals("information of independent variables", measure(product), 0.0,
                     tol=1e-14, **at)  # fmt: skip
    for product, epsilon in ((torch.outer(torch.tensor([0.3, 0.7]), torch.tensor([0.2, 0.3, 0.5])),
                              0.03), (torch.full((2, 2), 0.25), 0.01)):  # fmt: skip
        shifted = product.clone()
        shifted[:2, :2] += epsilon * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        yield at_least("information of nearly independent variables", measure(shifted),
                       pinsker * epsilon**2, epsilon=epsilon)  # fmt: skip


mutual_information.foil(
    "variables without covariance can tell all about each other", criterion="covariance",
    refuted_by="what X on -1, 0, 1 tells about its square",
)  # fmt: skip
mutual_information.foil("no constant above 8 will do", pinsker=9.0)


def log_ratio(joint: Fraction, v: Fraction, w: Fraction) -> float:
    """The definition."""
    return math.log(joint / (v * w))


def over_the_sum(joint: Fraction, v: Fraction, w: Fraction) -> float:
    """With a sum in place of the product."""
    return math.log(joint / (v + w))


def quotient_of_logarithms(joint: Fraction, v: Fraction, w: Fraction) -> float:
    """With a quotient of logarithms in place of the logarithm of a quotient."""
    return math.log(joint / w) / math.log(v)


@claim(
    by="identity",
    sources=("E-199",),
    budget=0.2,
    short=r"\mathrm{pmi}(v, w) = \log \frac{P(v, w)}{P(v) P(w)} = \log \frac{P(v | w)}{P(v)}",
)
def pmi(formula: Ratio = log_ratio) -> Iterator[Evidence]:
    r"""Pointwise mutual information compares a pair with chance.

    $\mathrm{pmi}(v, w) = \log \frac{P(v, w)}{P(v) P(w)} = \log \frac{P(v | w)}{P(v)}
    = \log \frac{P(w | v)}{P(w)}$: symmetric in the two variables, 0 for independent words, positive
    for pairs that are more frequent than chance and negative for rarer ones.

    Probabilities are fractions here, from random tables of whole numbers; the library's are floats.

    Knobs:
        formula: What is to be the pmi, of $P(v, w)$, $P(v)$ and $P(w)$.
    """
    for rows, columns in ((3, 5), (4, 4), (2, 6)):
        at = {"rows": rows, "columns": columns}
        p, q = torch.randint(1, 9, (rows,)), torch.randint(1, 9, (columns,))
        for name, counts in (("pmi of independent words", torch.outer(p, q)),
                             ("pmi", torch.randint(1, 40, (rows, columns)))):  # fmt: skip
            total = int(counts.sum())
            joint = [[Fraction(c, total) for c in row] for row in counts.tolist()]
            v = [sum(row, Fraction(0)) for row in joint]
            w = [sum(column, Fraction(0)) for column in zip(*joint, strict=True)]
            cells = [(joint[i][j], v[i], w[j]) for i in range(rows) for j in range(columns)]
            found = language.pmi(counts).flatten()
            wanted = torch.tensor([formula(*cell) for cell in cells])
            yield equals(name, found, wanted, tol=1e-14, **at)
            for text, k in (("pmi from P(v | w) over P(v)", 1), ("pmi from P(w | v) over P(w)", 2)):
                given = [math.log(cell[0] / cell[3 - k] / cell[k]) for cell in cells]
                yield equals(text, found, torch.tensor(given), tol=1e-14, **at)
            law = language.pmi(counts / total).flatten()
            yield equals("pmi of probabilities", law, found, tol=1e-14, **at)
            turned = language.pmi(counts.T).T.flatten()
            yield equals("pmi of the table turned", turned, found, tol=1e-14, **at)
            chance = [float(p_vw - p_v * p_w) for p_vw, p_v, p_w in cells]
            signs = torch.where(found.abs() < 1e-14, 0, found).sign()
            yield equals("signs of pmi", signs, torch.tensor(chance).sign(), tol=0.0, **at)


pmi.foil("a sum of probabilities", formula=over_the_sum, refuted_by="pmi of independent words")
pmi.foil("a quotient of logarithms", formula=quotient_of_logarithms,
         refuted_by="pmi of independent words")  # fmt: skip


@claim(
    by="identity",
    sources=("E-201",),
    budget=0.2,
    short=r"-\infty \le \mathrm{pmi}(v, w) \le -\log \max(P(v), P(w))",
)
def pmi_range(
    least: float = -math.inf,
    larger: Callable[[float, float], float] = max,
    itself: Literal["-log P(v)", "zero"] = "-log P(v)",
    degree: int = 0,
):
    r"""PMI is neither a metric nor bilinear.

    $-\infty \le \mathrm{pmi}(v, w) \le -\log \max(P(v), P(w))$, with $-\infty$ for pairs that were
    never seen and the upper bound where the rarer word occurs only with the other one. It is a
    logarithm of a ratio: no metric, for it is negative for some pair of every table whose variables
    are not independent, and $\mathrm{pmi}(v, v) = -\log P(v) \ne 0$ for a word that occurs with
    itself only; and not bilinear, for counts times 2 have the same pmi. Bilinear is the score
    $x_v^\top x_w$ that is fitted to it.

    *Proof.* $P(v, w) \le \min(P(v), P(w))$. And $\sum P(v) P(w) e^{\mathrm{pmi}} = 1$, so if no
    ratio is below 1, all are 1.

    Knobs:
        least: A lower bound of all pmi.
        larger: Which of the two probabilities the upper bound takes.
        itself: The pmi of a word with itself.
        degree: Doubled counts have the pmi times 2 to this power.
    """
    yield at_least("pmi of a pair rarer than chance",
                   language.pmi(torch.tensor([[2, 1], [1, 2]]))[0, 1], least)  # fmt: skip
    for size, other in ((5, 4), (6, 6)):
        at, counts = {"rows": size, "columns": other}, random_counts(size, other, True)
        counts[2, 1:] = 0  # the word 2 occurs with the context 0 only
        counts[1, 1], counts[1, 2] = 0, 7
        found, law = language.pmi(counts), counts / counts.sum()
        p, q = law.sum(1).tolist(), law.sum(0).tolist()
        bounds = torch.tensor([[-math.log(max(a, b)) for b in q] for a in p])
        yield at_most("pmi", found, bounds, tol=1e-12, **at)
        attained = -math.log(larger(p[2], q[0]))
        yield equals("pmi of a word that occurs with another one only", found[2, 0], attained,
                     tol=1e-13, **at)  # fmt: skip
        unseen = found[counts == 0]
        yield equals("pmi of pairs never seen", unseen, -math.inf, tol=0.0, **at)
        yield at_least("pmi, as a lower bound says", found[counts > 0], least, tol=0.0, **at)
        yield at_most("least pmi of dependent variables", found[counts > 0].min(), -1e-6,
                      tol=0.0, **at)  # fmt: skip
        doubled = language.pmi(2 * counts)[counts > 0]
        yield equals("pmi of doubled counts", doubled, 2.0**degree * found[counts > 0],
                     tol=0.0, **at)  # fmt: skip
        own = torch.block_diag(torch.tensor([[9]]), random_counts(size, size, False))
        value = -math.log(9 / int(own.sum())) if itself == "-log P(v)" else 0.0
        yield equals("pmi of a word that occurs with itself only", language.pmi(own)[0, 0], value,
                     tol=1e-13, **at)  # fmt: skip


pmi_range.erratum(
    "E-201",
    printed="PMI is a bilinear metric",
    right=r"$\mathrm{pmi}(v, w)$ can be negative; only $x_v^\top x_w$ is bilinear",
    why=r"a metric is at least 0, but pairs rarer than chance have negative PMI: $\log \frac23$ for"
    r" counts $(2, 1; 1, 2)$",
    weight="soft",
    least=0.0,
)
pmi_range.foil("the smaller probability in the bound", larger=min)
pmi_range.foil("a metric is 0 from a word to itself", itself="zero")
pmi_range.foil("bilinear in the counts", degree=2)
