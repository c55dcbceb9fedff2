"""Sylvester's criterion: what minors tell, and what they leave open."""

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.foundations import definiteness, leading_minors, principal_minors
from vademecum.foundations.claims.definiteness import all_symmetric, sign_of_eigenvalues

Test = Callable[[Tensor], Tensor]
BY_HAND = {
    "0": torch.zeros(2, 2).long(),
    "diag(1, 0)": torch.diag(torch.tensor([1, 0])),
    "diag(0, -1)": torch.diag(torch.tensor([0, -1])),
    "-I": -torch.eye(2).long(),
    "diag(1, 1, 0)": torch.diag(torch.tensor([1, 1, 0])),
}


def positive_leading_minors(A: Tensor) -> Tensor:
    """All leading minors are positive."""
    return (leading_minors(A) > 0).all(-1)


def alternating_leading_minors(A: Tensor) -> Tensor:
    """The leading minors have the signs -, +, -, ..."""
    return ((-1) ** torch.arange(1, A.shape[-1] + 1) * leading_minors(A) > 0).all(-1)


def determinants(A: Tensor, *, leading: bool) -> Tensor:
    """Determinants of the blocks for sets of indices, by torch: sorted, since orders differ."""
    d = A.shape[-1]
    sets = [range(k) for k in range(1, d + 1)]
    if not leading:
        sets = [S for k in range(1, d + 1) for S in combinations(range(d), k)]
    blocks = [A[:, list(S)][:, :, list(S)].double() for S in sets]
    return torch.stack([torch.linalg.det(block) for block in blocks], -1).sort(-1).values


@claim(
    by="sampling",
    sources=("D-077", "E-057"),
    budget=0.5,
    short=r"A = A^\top: A \succ 0 \iff \det A_{1:k, 1:k} > 0\ \forall k;"
    r" \; A \succeq 0 \iff \det A_{S, S} \ge 0\ \forall S",
)
def sylvester_criterion(
    semidefinite: Test = lambda A: (principal_minors(A) >= 0).all(-1),
    definite: Test = positive_leading_minors,
    size: int = 2,
):
    r"""Sylvester's criterion: minors tell definite matrices, and all of them semidefinite ones.

    A symmetric $d \times d$ matrix is positive definite iff its $d$ leading principal minors
    $\det A_{1:k, 1:k}$ are positive. It is positive semidefinite iff all $2^d - 1$ principal
    minors, not only the leading ones, are $\ge 0$.

    Checked against eigenvalues for all symmetric matrices of dimension 1, 2 and 3 with small
    integer entries, quoted beyond.

    Knobs:
        semidefinite: The test for positive semidefinite matrices.
        definite: The test for positive definite matrices.
        size: The largest modulus of the entries.
    """
    for name, semi in (("0", 1), ("diag(1, 0)", 1), ("diag(0, -1)", 0), ("-I", 0)):
        A = BY_HAND[name]
        yield equals(f"test calls {name} positive semidefinite", int(semidefinite(A)), semi)
        yield equals(f"test calls {name} positive definite", int(definite(A)), 0)
    for d in (1, 2, 3):
        A = all_symmetric(d, size)
        least = sign_of_eigenvalues(A)[:, 0]
        yield equals("verdicts on positive semidefinite", semidefinite(A), least >= 0, d=d)
        yield equals("verdicts on positive definite", definite(A), least > 0, d=d)
        found = leading_minors(A).sort(-1).values
        yield equals("leading minors", found, determinants(A, leading=True), d=d)
        found = principal_minors(A).sort(-1).values
        yield equals("principal minors", found, determinants(A, leading=False), d=d)
        for name, minors in (("leading", leading_minors), ("principal", principal_minors)):
            yield equals(f"{name} minors in floating point", minors(A.double()), minors(A), d=d)


sylvester_criterion.foil(
    "leading minors of at least zero accept diag(0, -1)",
    refuted_by="test calls diag(0, -1) positive semidefinite",
    semidefinite=lambda A: (leading_minors(A) >= 0).all(-1),
)
sylvester_criterion.foil(
    "the determinant alone accepts $-I$ in the plane",
    definite=lambda A: leading_minors(A)[..., -1] > 0,
)
sylvester_criterion.erratum(
    "D-077",
    printed=r"positive semi-definite $\iff$ all upper left $k \times k$ minors positive",
    right=r"positive definite $\iff$ all upper left minors positive; positive semidefinite $\iff$"
    r" all principal minors $\ge 0$",
    why=r"Positive leading minors characterise positive definite symmetric matrices. $A = 0$ is "
    r"positive semidefinite with all minors 0; relaxing to $\ge 0$ does not help, since "
    r"$\mathrm{diag}(0, -1)$ has leading minors 0, 0.",
    weight="hard",
    refuted_by="test calls 0 positive semidefinite",
    semidefinite=positive_leading_minors,
)
sylvester_criterion.erratum(
    "E-057",
    printed=r"$A \in \mathbb R^{d \times d}$ PSD $\iff \det A_{1:k,1:k} > 0$ for $k = 1, \dots, d$",
    right=r"symmetric $A$: $A \succ 0 \iff \det A_{1:k, 1:k} > 0$ for $k = 1, \dots, d$",
    why=r"Same confusion of definite and semidefinite: $\mathrm{diag}(1, 0)$ is PSD although its "
    "second minor is 0. Symmetry is not required either.",
    weight="hard",
    refuted_by="test calls diag(1, 0) positive semidefinite",
    semidefinite=positive_leading_minors,
)


@claim(
    by="sampling",
    sources=("D-078", "E-058"),
    budget=0.5,
    short=r"A = A^\top: A \prec 0 \iff (-1)^k \det A_{1:k, 1:k} > 0,\ k = 1, \dots, d",
)
def sylvester_negative_definite(accepts: Test = alternating_leading_minors, size: int = 2):
    r"""Leading minors of alternating sign tell negative definite matrices.

    A symmetric matrix is negative definite iff $(-1)^k \det A_{1:k, 1:k} > 0$ for
    $k = 1, \dots, d$: its leading principal minors alternate in sign, beginning with a negative
    one. It is Sylvester's criterion for $-A$. Checked against eigenvalues for all symmetric
    matrices of dimension 1, 2 and 3 with small integer entries.

    Knobs:
        accepts: The test for negative definite matrices.
        size: The largest modulus of the entries.
    """
    yield equals("test calls $-I$ negative definite", int(accepts(BY_HAND["-I"])), 1)
    for d in (1, 2, 3):
        A = all_symmetric(d, size)
        negative = sign_of_eigenvalues(A)[:, -1] < 0
        yield equals("verdicts on negative definite", accepts(A), negative, d=d)


sylvester_negative_definite.foil(
    "leading minors that are all negative accept diag(-1, 1) and reject $-I$",
    accepts=lambda A: (leading_minors(A) < 0).all(-1),
)
sylvester_negative_definite.foil(
    "signs that alternate from a positive one on reject $-I$",
    accepts=lambda A: (leading_minors(A) * (-1) ** torch.arange(A.shape[-1]) > 0).all(-1),
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


@claim(
    by="sampling",
    sources=("D-079", "E-059"),
    budget=0.5,
    short=r"A = A^\top,\ A \not\succ 0,\ A \not\prec 0,\ \det"
    r" A \ne 0 \implies A \text{ indefinite}",
)
def definiteness_trichotomy(
    judge: Callable[[Tensor], list[str]] = lambda A: definiteness(A).verdict,
):
    r"""What fails both minor tests is singular and semidefinite, or indefinite.

    A symmetric matrix that is neither positive nor negative definite by its leading minors is
    either singular and semidefinite (zero included), or indefinite, with eigenvalues of both signs.
    If it is nonsingular it is indefinite.

    Of all 729 symmetric $3 \times 3$ matrices with entries in $\{-1, 0, 1\}$ all but two fail both
    tests: 682 are indefinite, 45 singular and semidefinite. Checked for these, and for all of
    dimension 2 with entries up to 2.

    Knobs:
        judge: The word for each of many matrices.
    """
    for name in ("diag(1, 0)", "diag(1, 1, 0)"):
        word = judge(BY_HAND[name][None])[0]
        yield equals(f"{name} is called indefinite", int(word == "indefinite"), 0)
    for A in (all_symmetric(2, 2), all_symmetric(3, 1)):
        words = judge(A)
        right = [by_eigenvalues(signs) for signs in sign_of_eigenvalues(A).tolist()]
        for word in sorted(set(right)):
            same = sum(w == r == word for w, r in zip(words, right, strict=True))
            name = f"matrices rightly called {word}"
            yield equals(name, same, right.count(word), d=A.shape[-1])
    fails = ~(positive_leading_minors(A) | alternating_leading_minors(A))
    indefinite = torch.tensor([word == "indefinite" for word in words])
    singular = leading_minors(A)[:, -1] == 0
    yield equals("matrices that fail both tests", int(fails.sum()), 727, d=3)
    yield equals(
        "indefinite matrices among those that fail both tests",
        int((fails & indefinite).sum()),
        682,
        d=3,
    )
    rest = fails & ~indefinite
    yield equals(
        "singular matrices among those neither definite nor indefinite",
        int((rest & singular).sum()),
        45,
        d=3,
    )
    yield equals(
        "nonsingular matrices among those neither definite nor indefinite",
        int((rest & ~singular).sum()),
        0,
        d=3,
    )


for _where, _matrix, _why in (
    (
        "D-079",
        "diag(1, 0)",
        r"$\mathrm{diag}(1, 0)$ has leading minors 1, 0, so it fails both strict tests; it is "
        "positive semidefinite and not indefinite. So is the zero matrix.",
    ),
    (
        "E-059",
        "diag(1, 1, 0)",
        r"Same claim on the sibling sheet; $\mathrm{diag}(1, 1, 0)$ is a three-dimensional "
        "counterexample.",
    ),
):
    definiteness_trichotomy.erratum(
        _where,
        printed="Otherwise: indefinite.",
        right="Otherwise: indefinite, or singular and semidefinite.",
        why=_why,
        weight="hard",
        refuted_by=f"{_matrix} is called indefinite",
        judge=by_minors,
    )
