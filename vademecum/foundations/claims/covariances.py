"""Covariances: of sums and of linear images."""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.foundations.claims.moments import counted_law, exact_cov


@claim(
    by="identity",
    sources=("B-005",),
    budget=0.5,
    full={"draws": 500},
    short=r"\mathrm{Cov}(aX + bY, cW) = ac\,\mathrm{Cov}(X, W) + bc\,\mathrm{Cov}(Y, W)",
)
def covariance_bilinearity(cross: int = 1, shift: int = 0, draws: int = 10):
    r"""The covariance is bilinear.

    $\mathrm{Cov}(a X + b Y,\, c W + d V) = a c\,\mathrm{Cov}(X, W) + a d\,\mathrm{Cov}(X, V) +
    b c\,\mathrm{Cov}(Y, W) + b d\,\mathrm{Cov}(Y, V)$ for scalars $a, b, c, d$; constants added to
    either argument drop out.

    *Check.* Joint laws on 8 integer points with rational weights, exactly.

    Knobs:
        cross: The weight of the terms with $a d$ and $b c$.
        shift: The weight of the product of the constants.
        draws: How many laws are drawn.
    """
    sign = torch.tensor([[-1], [1]])  # X = Y = W = V
    laws = [(sign.expand(2, 4), torch.tensor([1, 1])), *(counted_law(4) for _ in range(draws))]
    for k, (points, w) in enumerate(laws):
        a, b, c, d, left, right = torch.randint(-5, 6, (6,)) if k else torch.ones(6).long()
        x, y, u, v = points.split(1, 1)
        measured = exact_cov(a * x + b * y + left, c * u + d * v + right, w)
        straight = a * c * exact_cov(x, u, w) + b * d * exact_cov(y, v, w)
        crossed = a * d * exact_cov(x, v, w) + b * c * exact_cov(y, u, w)
        constants = shift * w.sum() ** 2 * left * right
        stated, n2 = straight + cross * crossed + constants, w.sum() ** 2
        # Exact integers, divided at the end.
        yield equals("covariance of the sums", measured / n2, stated / n2, tol=1e-14, law=k)


covariance_bilinearity.foil("half of the terms: 2 instead of 4 for equal signs", cross=0)
covariance_bilinearity.foil("constants do not count: 5 instead of 4 for equal signs", shift=1)


@claim(
    by="identity",
    sources=("D-013", "D-014", "E-013", "E-014"),
    budget=0.5,
    full={"draws": 500},
    short=r"\mathrm{Var}[A X + b] = A\,\mathrm{Var}[X]\,A^\top",
)
def covariance_linear_map(
    formula: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda A, C, b: A @ C @ A.T,
    draws: int = 5,
):
    r"""The covariance of an affine map.

    $\mathrm{Var}[A X + b] = A\,\mathrm{Var}[X]\,A^\top$ for a constant matrix $A$ and vector $b$;
    in one dimension $\mathrm{Var}[a X + b] = a^2\,\mathrm{Var}[X]$: shifts drop out and scales
    enter squared.

    *Check.* The covariance of the mapped points, exactly, for integer $A$ and $b$.

    Knobs:
        formula: The covariance of the image from $A$, the covariance of $X$, and $b$.
        draws: How many laws are drawn for each shape of $A$.
    """
    square = (
        torch.cartesian_prod(torch.tensor([-1, 1]), torch.tensor([-2, 2])),
        torch.ones(4).long(),
    )
    corner = torch.tensor([[0, 1], [0, 0]]), torch.tensor([1, 0])
    cases = [(square, *corner)]
    for rows, d in ((2, 3), (1, 1), (3, 3)) * draws:
        A, b = torch.randint(-5, 6, (rows, d)), torch.randint(1, 6, (rows,))
        A[0, 0] = -2
        cases.append((counted_law(d), A, b))
    for (x, w), A, b in cases:
        n = w.sum()
        mapped = x @ A.T + b
        C = exact_cov(x, x, w)
        measured, at = exact_cov(mapped, mapped, w), {"d": len(A.T), "rows": len(A)}
        stated = formula(A, C, b * n**2)
        yield equals("shape of the covariance", measured.shape, stated.shape, **at)
        if measured.shape == stated.shape:
            measured, stated = measured / n**2, stated / n**2  # exact before
            yield equals("covariance of the image", measured, stated, tol=1e-14, **at)


covariance_linear_map.foil(
    r"$A^\top C A$: for $A = E_{12}$ the first variance is 0, not 4",
    formula=lambda A, C, b: A.T @ C @ A,
)
covariance_linear_map.foil(
    r"$A C$, one factor only: for $E_{12}$ the first variance is 0, not 4",
    formula=lambda A, C, b: A @ C,
)
covariance_linear_map.foil(
    "a shift that stays: 5 instead of 4 for the shift 1",
    formula=lambda A, C, b: A @ C @ A.T + b.diag(),
)


@claim(
    by="identity",
    sources=("B-020", "D-015", "E-015", "E-016"),
    budget=0.5,
    full={"draws": 500},
    short=r"\mathrm{Var}\big[\sum_i a_i X_i\big] = \sum_i a_i^2\,\mathrm{Var}[X_i]"
    r" + 2 \sum_{i < j} a_i a_j\,\mathrm{Cov}(X_i, X_j)",
)
def weighted_sum_variance(factor: int = 2, draws: int = 5):
    r"""The variance of a weighted sum.

    $\mathrm{Var}\big[\sum_i a_i X_i\big] = \sum_i a_i^2\,\mathrm{Var}[X_i] +
    2 \sum_{i < j} a_i a_j\,\mathrm{Cov}(X_i, X_j) = a^\top C a$; over ordered pairs $i \ne j$ the
    factor 2 disappears. It is the square of a sum,
    $(\sum_i a_i)^2 = \sum_i a_i^2 + 2 \sum_{i < j} a_i a_j$, applied to centred variables; for
    uncorrelated $X_i$ the variances add.

    *Check.* Joint laws of two and four integer variables, exactly.

    Knobs:
        factor: The factor before the sum over pairs $i < j$.
        draws: How many laws are drawn.
    """
    signs = torch.tensor([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    together = signs, torch.tensor([3, 3, 1, 1])  # unit variances and the covariance 1/2
    for k, (x, w) in enumerate([together, *(counted_law(4) for _ in range(draws))]):
        a = torch.randint(-5, 6, (x.shape[1],)) if k else torch.ones(2).long()
        total, C = x @ a[:, None], exact_cov(x, x, w)
        variance, terms = exact_cov(total, total, w), torch.outer(a, a) * C
        alone, pairs = terms.diagonal().sum(), terms.triu(1).sum()
        n2 = w.sum() ** 2
        stated = (alone + factor * pairs) / n2
        yield equals("variance of the sum", variance / n2, stated, tol=1e-14, law=k)
        ordered = alone + pairs + terms.tril(-1).sum()
        yield equals("variance, over ordered pairs, times $n^2$", variance, ordered, law=k)
        yield equals("variance, as a form, times $n^2$", variance, a @ C @ a, law=k)
    apart = torch.cartesian_prod(*[torch.tensor([-1, 3])] * 3)
    everywhere = torch.ones(8).long()
    total = apart @ torch.tensor([[1], [2], [-3]])
    alone = exact_cov(apart, apart, everywhere).diagonal() @ torch.tensor([1, 4, 9])
    measured = exact_cov(total, total, everywhere)
    yield equals("variance of an uncorrelated sum, times $n^2$", measured, alone)
    for n in range(1, 11):
        a = torch.randint(-9, 10, (n,))
        pairs = torch.outer(a, a).triu(1).sum()
        yield equals("square of a sum", a.sum() ** 2, (a**2).sum() + factor * pairs, n=n)


weighted_sum_variance.foil(
    r"$\sum_{i < j}$ without the 2: 2.5 instead of 3 for unit variances and covariance 0.5",
    factor=1,
)
weighted_sum_variance.foil(
    "variances do not add where there is correlation: 2 instead of 3", factor=0
)
