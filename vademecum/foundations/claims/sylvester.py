"""What the course claims of minors: Sylvester's criterion, and what it leaves open."""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.foundations.claims.definiteness import all_symmetric, sign_of_eigenvalues
from vademecum.foundations.minors import leading_minors, principal_minors
from vademecum.foundations.quadratic_forms import definiteness

Test = Callable[[Tensor], Tensor]


def positive_leading_minors(A: Tensor) -> Tensor:
    """All leading minors are positive."""
    return (leading_minors(A) > 0).all(-1)


def alternating_leading_minors(A: Tensor) -> Tensor:
    """The leading minors have the signs -, +, -, ..."""
    return ((-1) ** torch.arange(1, A.shape[-1] + 1) * leading_minors(A) > 0).all(-1)


@claim(by="exhaustion", sources=("D-077", "E-057"), budget=0.5)
def sylvester_criterion(
    semidefinite: Test = lambda A: (principal_minors(A) >= 0).all(-1),
    definite: Test = positive_leading_minors,
    size: int = 2,
):
    r"""Sylvester's criterion: minors tell definite matrices, and all of them semidefinite ones.

    A symmetric $d \times d$ matrix is positive definite iff its $d$ leading principal minors
    $\det A_{1:k, 1:k}$ are positive. It is positive semidefinite iff all $2^d - 1$ principal
    minors, not only the leading ones, are $\ge 0$.

    All symmetric matrices of dimension 1, 2 and 3 with integer entries up to `size` in modulus.
    """
    for d in (1, 2, 3):
        A = all_symmetric(d, size)
        least = sign_of_eigenvalues(A)[:, 0]
        yield equals(semidefinite(A), least >= 0, d=d)
        yield equals(definite(A), least > 0, d=d)
        for minors in (leading_minors, principal_minors):
            yield equals(minors(A.double()), minors(A), d=d)  # by other algorithms


sylvester_criterion.foil(
    "leading minors of at least zero accept diag(0, -1)",
    semidefinite=lambda A: (leading_minors(A) >= 0).all(-1),
)
sylvester_criterion.erratum(
    "D-077",
    printed=r"positive semi-definite $\iff$ all upper left $k \times k$ minors positive",
    right=r"positive definite $\iff$ all upper left minors positive; positive semidefinite $\iff$"
    r" all principal minors $\ge 0$",
    why=r"$A = 0$ is positive semidefinite, and all its minors are 0",
    weight="hard",
    semidefinite=positive_leading_minors,
)
sylvester_criterion.erratum(
    "E-057",
    printed=r"$A \in \mathbb R^{d \times d}$ PSD $\iff \det A_{1:k,1:k} > 0$ for $k = 1, \dots, d$",
    right=r"symmetric $A$: $A \succ 0 \iff \det A_{1:k, 1:k} > 0$ for $k = 1, \dots, d$",
    why="diag(1, 0) is positive semidefinite although its second minor is 0",
    weight="hard",
    semidefinite=positive_leading_minors,
)


@claim(by="exhaustion", sources=("D-078", "E-058"), budget=0.5)
def sylvester_negative_definite(accepts: Test = alternating_leading_minors, size: int = 2):
    r"""Leading minors of alternating sign tell negative definite matrices.

    A symmetric matrix is negative definite iff $(-1)^k \det A_{1:k, 1:k} > 0$ for
    $k = 1, \dots, d$: its leading principal minors alternate in sign, beginning with a negative
    one. It is Sylvester's criterion for $-A$.
    """
    for d in (1, 2, 3):
        A = all_symmetric(d, size)
        yield equals(accepts(A), sign_of_eigenvalues(A)[:, -1] < 0, d=d)


sylvester_negative_definite.foil(
    "leading minors that are all negative accept diag(-1, 1) and reject $-I$",
    accepts=lambda A: (leading_minors(A) < 0).all(-1),
)


def by_minors(A: Tensor) -> list[str]:
    """The sheets' rule: definite by the leading minors, otherwise indefinite."""
    rule = zip(positive_leading_minors(A), alternating_leading_minors(A), strict=True)
    words = ("indefinite", "negative definite", "positive definite")
    return [words[2 * int(p) + int(n)] for p, n in rule]


def by_eigenvalues(signs: list[int]) -> str:
    """The word for a matrix whose eigenvalues have these signs."""
    if -1 in signs and 1 in signs:
        return "indefinite"
    if not any(signs):
        return "zero"
    side = "positive" if 1 in signs else "negative"
    return side + (" semidefinite" if 0 in signs else " definite")


@claim(by="exhaustion", sources=("D-079", "E-059"), budget=0.5)
def definiteness_trichotomy(
    judge: Callable[[Tensor], list[str]] = lambda A: definiteness(A).verdict,
):
    r"""What fails both minor tests is singular and semidefinite, or indefinite.

    A symmetric matrix that is neither positive nor negative definite by its leading minors is
    either singular and semidefinite (zero included), or indefinite, with eigenvalues of both signs.
    If it is nonsingular it is indefinite.

    Of all 729 symmetric $3 \times 3$ matrices with entries in $\{-1, 0, 1\}$ all but two fail both
    tests: 682 are indefinite, 45 singular and semidefinite.
    """
    A = all_symmetric(3, 1)
    words = judge(A)
    right = [by_eigenvalues(signs) for signs in sign_of_eigenvalues(A).tolist()]
    for word in sorted(set(right)):
        same = sum(w == r == word for w, r in zip(words, right, strict=True))
        yield equals(same, right.count(word))
    fails = ~(positive_leading_minors(A) | alternating_leading_minors(A))
    indefinite = torch.tensor([word == "indefinite" for word in words])
    yield equals(int(fails.sum()), 727)
    yield equals(int((fails & indefinite).sum()), 682)
    singular = leading_minors(A)[:, -1] == 0
    yield equals(int((fails & ~indefinite & singular).sum()), 45)
    yield equals(int((fails & ~indefinite & ~singular).sum()), 0)


definiteness_trichotomy.erratum(
    "D-079",
    printed="Otherwise: indefinite.",
    right="Otherwise: indefinite, or singular and semidefinite.",
    why="diag(1, 0) has leading minors 1 and 0, and is positive semidefinite",
    weight="hard",
    judge=by_minors,
)
definiteness_trichotomy.erratum(
    "E-059",
    printed="Otherwise: indefinite.",
    right="Otherwise: indefinite, or singular and semidefinite.",
    why="diag(1, 1, 0) has leading minors 1, 1 and 0, and is positive semidefinite",
    weight="hard",
    judge=by_minors,
)
