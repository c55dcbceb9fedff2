"""Norms of matrices: Frobenius and spectral."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, integers

E12, E21 = torch.tensor([[[0, 1], [0, 0]], [[0, 0], [1, 0]]]).double()
SHAPES = ((1, 1), (1, 4), (3, 3), (5, 2), (4, 6))


def frobenius(A: Tensor) -> Tensor:
    """The Frobenius norm as torch has it."""
    return torch.linalg.matrix_norm(A)


def spectral(A: Tensor) -> Tensor:
    """The spectral norm as torch has it."""
    return torch.linalg.matrix_norm(A, 2)


def spectral_radius(A: Tensor) -> Tensor:
    """The largest modulus of an eigenvalue, which is no norm."""
    return torch.linalg.eigvals(A).abs().amax(-1)


@claim(
    by="identity",
    sources=("D-085", "D-086", "E-065", "E-066"),
    budget=0.5,
    short=r"\|A\|_F = \sqrt{\textstyle\sum_{ij} |A_{ij}|^2} = \sqrt{\mathrm{Tr}(A^* A)}",
)
def frobenius_norm(adjoint: Callable[[Tensor], Tensor] = lambda A: A.mH):
    r"""The Frobenius norm is the Euclidean norm of the entries.

    $\|A\|_F = \sqrt{\sum_{ij} |A_{ij}|^2} = \sqrt{\mathrm{Tr}(A^* A)}$ with the conjugate
    transpose $A^*$, which is $A^\top$ for real $A$. It is induced by the inner product
    $\langle A, B \rangle = \mathrm{Tr}(A^* B) = \sum_{ij} \overline{A_{ij}} B_{ij}$.

    In integers and Gaussian integers, where doubles are exact.

    Knobs:
        adjoint: What stands for the conjugate transpose.
    """
    cases = [(E12, E21), (torch.tensor([[1, 1j]]), torch.tensor([[1j, 2]]))]
    cases += [tuple(integers(2, *shape)) for shape in SHAPES]
    cases += [tuple(torch.complex(*integers(2, 2, *shape))) for shape in SHAPES]
    for A, B in cases:
        m, n = A.shape
        flat = zip(A.flatten().tolist(), B.flatten().tolist(), strict=True)
        entries = [(complex(a), complex(b)) for a, b in flat]
        total = int(sum((a * a.conjugate()).real for a, _ in entries))
        trace = (adjoint(A) @ A).diagonal().sum()
        yield equals(r"trace of $A^* A$", int(trace.real), total, m=m, n=n)
        yield equals("imaginary part of the trace of $A^* A$", complex(trace).imag, 0.0, m=m, n=n)
        yield equals("Frobenius norm", frobenius(A), math.sqrt(total), m=m, n=n)
        inner = complex((adjoint(A) @ B).diagonal().sum())
        right = sum(a.conjugate() * b for a, b in entries)
        yield equals("inner product", inner, right, m=m, n=n)


frobenius_norm.foil(r"$\mathrm{Tr}(A^2)$ is 0 for $E_{12}$, and not 1", adjoint=lambda A: A)
frobenius_norm.foil(
    r"the plain transpose gives $(1, i)$ the norm 0, not $\sqrt 2$", adjoint=lambda A: A.mT
)


@claim(
    by="identity",
    sources=("D-088", "E-068"),
    budget=0.5,
    short=r"\|A\|_F^2 = \textstyle\sum_i \sigma_i^2, \quad "
    r"\|A\|_2 \le \|A\|_F \le \sqrt{\mathrm{rank} A}\, \|A\|_2",
)
def frobenius_singular_values(
    values: Callable[[Tensor], Tensor] = torch.linalg.svdvals, power: float = 2.0
):
    r"""The Frobenius norm is the Euclidean norm of the singular values.

    $\|A\|_F = \sqrt{\sum_i \sigma_i(A)^2}$, hence
    $\|A\|_2 \le \|A\|_F \le \sqrt{\mathrm{rank} A} \, \|A\|_2$, with equality on the left for rank
    one and on the right for equal singular values.

    *Proof.* $\mathrm{Tr}(A^\top A)$ is the sum of the eigenvalues $\sigma_i^2$ of $A^\top A$.

    Knobs:
        values: The singular values of a matrix.
        power: The power of the singular values that is summed; its root is taken of the sum.
    """
    cases = [(E12, 1), (torch.diag(torch.tensor([3.0, 4.0])), 2)]
    for m, n in SHAPES:
        for rank in range(1, min(m, n) + 1):
            cases.append((torch.randn(m, rank) @ torch.randn(rank, n), rank))
    for A, rank in cases:
        at = {"rank": rank, "shape": f"{len(A)} x {len(A.T)}"}
        size = math.sqrt(sum(a * a for a in A.flatten().tolist()))
        sigma = values(A)
        share = (sigma**power).sum() ** (1 / power) / size
        yield equals("norm of the singular values, over that of the entries", share, 1.0, **at)
        top = sigma.max() / size
        yield at_most("spectral over Frobenius norm", top, 1.0, **at)
        yield at_most("Frobenius over spectral norm", 1 / top, math.sqrt(rank), **at)
        if rank == 1:
            yield equals("spectral over Frobenius norm, for rank one", top, 1.0, **at)
    for d in (2, 5):
        Q = torch.linalg.qr(torch.randn(d, d)).Q
        size = math.sqrt(d) * values(Q).max()
        yield equals("Frobenius norm of an orthogonal matrix", frobenius(Q), size, d=d)


frobenius_singular_values.foil("the nuclear norm of diag(3, 4) is 7, not 5", power=1.0)
frobenius_singular_values.foil(
    r"eigenvalues in place of singular values: 0 for $E_{12}$",
    values=lambda A: torch.linalg.eigvals(A).abs(),
)


@claim(
    by="identity",
    sources=("D-087", "E-067"),
    budget=0.5,
    short=r"\|QA\|_F = \|AR\|_F = \|A\|_F \text{ for orthogonal } Q, R",
)
def frobenius_orthogonal_invariance(p: int = 2, orthogonal: bool = True):
    r"""Orthogonal factors leave the Frobenius norm alone.

    $\|QA\|_F = \|AR\|_F = \|A\|_F$ for orthogonal $Q, R$ of fitting size, because
    $\mathrm{Tr}((QA)^\top QA) = \mathrm{Tr}(A^\top A)$.

    In integers for reflections $Q = I - 2 v v^\top / N$ with integer $v$ and $N = v^\top v$: then
    $\sum_{ij} (NQA)_{ij}^2 = N^2 \sum_{ij} A_{ij}^2$. In floating point for factors of a QR
    factorisation.

    Knobs:
        p: The power of the entries that is summed.
        orthogonal: Whether the factors are orthogonal, or only have columns of unit length.
    """
    vectors = [torch.tensor([1, 2])] + [torch.randint(-4, 5, (d,)) for d in (2, 3, 5)]
    for v in vectors:
        d, v[0] = len(v), max(1, int(v[0]))
        N, A = int(v @ v), torch.randint(-9, 10, (d, d))
        A[0, 0] = 5
        for matrix in (torch.eye(d, 1, dtype=torch.long), A):
            NQ = N * torch.eye(d, dtype=torch.long) - 2 * torch.outer(v, v)
            whole = int((NQ @ matrix).abs().pow(p).sum())
            before = N**p * int(matrix.abs().pow(p).sum())
            yield equals(
                "sum of powers of the entries of $N Q A$", whole, before, d=d, columns=len(matrix.T)
            )
    for d, n in ((2, 1), (3, 4), (6, 2)):
        A, (Q, R) = torch.randn(d, n), (torch.randn(s, s) for s in (d, n))
        if orthogonal:
            Q, R = torch.linalg.qr(Q).Q, torch.linalg.qr(R).Q
        else:
            Q, R = torch.full((d, d), d**-0.5), R / R.norm(dim=0)
            A = A.abs()  # then QA has d equal rows, each with column sums over the root of d
        size = torch.linalg.vector_norm(A, p)
        after = [torch.linalg.vector_norm(B, p) / size for B in (Q @ A, A @ R)]
        yield equals(r"norm of $QA$ over that of $A$", after[0], 1.0, d=d, columns=n)
        yield equals(r"norm of $AR$ over that of $A$", after[1], 1.0, d=d, columns=n)


frobenius_orthogonal_invariance.foil("the sum of the moduli is not invariant", p=1)
frobenius_orthogonal_invariance.foil(
    "columns of unit length that are not orthogonal", orthogonal=False
)


@claim(
    by="identity",
    sources=("A-226", "C-129", "C-130"),
    budget=0.5,
    full={"directions": 10**5},
    short=r"\|A\|_2 = \max_{\|x\|_2 = 1} \|Ax\|_2 = \sigma_1(A) = \sqrt{\lambda_{\max}(A^\top A)}",
)
def spectral_norm(norm: Callable[[Tensor], Tensor] = spectral, directions: int = 1000):
    r"""The spectral norm is the largest stretch, and the largest singular value.

    $\|A\|_2 = \max_{\|x\|_2 = 1} \|Ax\|_2 = \sigma_1(A) = \sqrt{\lambda_{\max}(A^\top A)}$: the
    operator norm that the Euclidean norm induces, attained at the first right singular vector, and
    the Lipschitz constant of $x \mapsto Ax$.

    Knobs:
        norm: The norm of a matrix.
        directions: How many pairs of points are drawn for each shape.
    """
    for name, matrix, size in (
        ("E_12", [[0.0, 1.0], [0.0, 0.0]], 1.0),
        ("1 1, 0 0", [[1.0, 1.0], [0.0, 0.0]], math.sqrt(2)),
        ("3 0, 4 5", [[3.0, 0.0], [4.0, 5.0]], math.sqrt(45)),
    ):
        yield equals("norm known by hand", norm(torch.tensor(matrix)), size, matrix=name)
    for m, n in SHAPES:
        A = torch.randn(m, n)
        top = norm(A)
        largest = torch.linalg.eigvalsh(A.mT @ A)[-1]
        yield equals("square of the norm", top**2, largest, m=m, n=n)
        yield equals(r"norm of $A v_1$", (A @ torch.linalg.svd(A).Vh[0]).norm(), top, m=m, n=n)
        x, y = torch.randn(2, directions, n)
        stretch = ((x - y) @ A.mT).norm(dim=1) / (x - y).norm(dim=1)
        yield at_most("stretch of a difference", stretch, top, m=m, n=n)


spectral_norm.foil(r"the spectral radius is 0 for $E_{12}$", norm=spectral_radius)
spectral_norm.foil(
    "the longest column: 1 instead of 1.41 for two ones in a row",
    norm=lambda A: A.norm(dim=0).max(),
)


@claim(
    by="sampling",
    sources=("A-227", "B-366"),
    budget=0.5,
    full={"pairs": 10**4},
    short=r"\|AB\|_2 \le \|A\|_2 \|B\|_2",
)
def spectral_norm_submultiplicative(norm: Callable[[Tensor], Tensor] = spectral, pairs: int = 200):
    r"""The spectral norm of a product is at most the product of the spectral norms.

    $\|AB\|_2 \le \|A\|_2 \|B\|_2$, with equality when the top left singular vector of $B$ is the
    top right singular vector of $A$. So a network's Lipschitz constant is at most the product of
    its layers' spectral norms, times the Lipschitz constants of its activations.

    *Proof.* $\|ABx\| \le \|A\| \|Bx\| \le \|A\| \|B\| \|x\|$. For
    networks checked with one hidden layer of rectified units.

    Knobs:
        norm: The norm of a matrix.
        pairs: How many pairs of matrices of each rank are drawn.
    """
    ones = torch.ones(2, 2)
    for name, A, B in (("ones", ones, ones), ("E_12 E_21", E12, E21)):
        yield at_most("norm of a product", norm(A @ B), norm(A) * norm(B), factors=name)
    for m, n, k in ((3, 3, 3), (2, 5, 4), (6, 1, 3)):
        for rank in range(1, min(m, n, k) + 1):
            A = integers(pairs, m, rank) @ integers(pairs, rank, n)
            B = integers(pairs, n, rank) @ integers(pairs, rank, k)
            bound = norm(A) * norm(B)
            share = norm(A @ B) / bound.clamp(min=1)  # of integers: it is 0 or at least 1
            yield at_most("norm of a product, over the bound", share, 1.0, rank=rank, n=n)
        U, V, W = (torch.linalg.qr(torch.randn(s, s)).Q for s in (m, n, k))
        left, right = torch.rand(m, n) * torch.eye(m, n), torch.rand(n, k) * torch.eye(n, k)
        left[0, 0], right[0, 0] = 3.0, 2.0
        A, B = U @ left @ V.mT, V @ right @ W.mT
        yield equals("norm of aligned factors' product", norm(A @ B), norm(A) * norm(B), n=n)
        x, y = torch.randn(2, pairs, k)
        far = ((x @ B.mT).relu() @ A.mT - (y @ B.mT).relu() @ A.mT).norm(dim=1)
        stretch = far / (x - y).norm(dim=1)
        yield at_most("stretch of a difference by a network", stretch, norm(A) * norm(B), n=n)


spectral_norm_submultiplicative.foil(
    "the largest entry: two matrices of ones have $2 > 1$", norm=lambda A: A.abs().amax((-2, -1))
)
spectral_norm_submultiplicative.foil(
    r"the spectral radius: $\rho(E_{12} E_{21}) = 1 > 0$", norm=spectral_radius
)
