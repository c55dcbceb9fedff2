"""What the course claims of the Frobenius norm and the spectral norm."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals

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


def integers(*shape: int) -> Tensor:
    """Random integers from -9 to 9, as floating-point numbers, with which sums are exact."""
    return torch.randint(-9, 10, shape).double()


@claim(by="identity", sources=("D-085", "D-086", "E-065", "E-066"), budget=0.5)
def frobenius_norm(adjoint: Callable[[Tensor], Tensor] = lambda A: A.mH):
    r"""The Frobenius norm is the Euclidean norm of the entries.

    $\|A\|_F = \sqrt{\sum_{ij} |A_{ij}|^2} = \sqrt{\mathrm{Tr}(A^* A)}$ with the conjugate
    transpose $A^*$, which is $A^\top$ for real $A$. It is induced by the inner product
    $\langle A, B \rangle = \mathrm{Tr}(A^* B) = \sum_{ij} \overline{A_{ij}} B_{ij}$.

    In integers and Gaussian integers, where doubles are exact.
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
        yield equals(int(trace.real), total, m=m, n=n)
        yield equals(float(trace.imag) if A.is_complex() else 0.0, 0.0, m=m, n=n)
        yield equals(frobenius(A), math.sqrt(total), m=m, n=n)
        inner = complex((adjoint(A) @ B).diagonal().sum())
        yield equals(inner, sum(a.conjugate() * b for a, b in entries), m=m, n=n)


frobenius_norm.foil(r"$\mathrm{Tr}(A^2)$ is 0 for $E_{12}$", adjoint=lambda A: A)
frobenius_norm.foil(r"the plain transpose gives $(1, i)$ the norm 0", adjoint=lambda A: A.mT)


@claim(by="identity", sources=("D-088", "E-068"), budget=0.5)
def frobenius_singular_values(
    values: Callable[[Tensor], Tensor] = torch.linalg.svdvals, power: float = 2.0
):
    r"""The Frobenius norm is the Euclidean norm of the singular values.

    $\|A\|_F = \sqrt{\sum_i \sigma_i(A)^2}$, hence
    $\|A\|_2 \le \|A\|_F \le \sqrt{\mathrm{rank} A} \, \|A\|_2$, with equality on the left for rank
    one and on the right for equal singular values.

    *Proof.* $\mathrm{Tr}(A^\top A)$ is the sum of the eigenvalues $\sigma_i^2$ of $A^\top A$.
    """
    cases = [(E12, 1), (torch.diag(torch.tensor([3.0, 4.0])), 2)]
    for m, n in SHAPES:
        for rank in range(1, min(m, n) + 1):
            cases.append((torch.randn(m, rank) @ torch.randn(rank, n), rank))
    for A, rank in cases:
        size = math.sqrt(sum(a * a for a in A.flatten().tolist()))
        sigma = values(A)
        yield equals((sigma**power).sum() ** (1 / power) / size, 1.0, rank=rank)
        yield at_most(sigma.max() / size, 1.0, rank=rank)
        yield at_most(size / sigma.max(), math.sqrt(rank), rank=rank)
        if rank == 1:
            yield equals(sigma.max() / size, 1.0, rank=rank)
    for d in (2, 5):
        Q = torch.linalg.qr(torch.randn(d, d)).Q
        yield equals(frobenius(Q), math.sqrt(d) * values(Q).max(), rank=d)


frobenius_singular_values.foil("the nuclear norm of diag(3, 4) is 7, not 5", power=1.0)
frobenius_singular_values.foil(
    r"eigenvalues in place of singular values: 0 for $E_{12}$",
    values=lambda A: torch.linalg.eigvals(A).abs(),
)


@claim(by="identity", sources=("D-087", "E-067"), budget=0.5)
def frobenius_orthogonal_invariance(p: int = 2, orthogonal: bool = True):
    r"""Orthogonal factors leave the Frobenius norm alone.

    $\|QA\|_F = \|AR\|_F = \|A\|_F$ for orthogonal $Q, R$ of fitting size, because
    $\mathrm{Tr}((QA)^\top QA) = \mathrm{Tr}(A^\top A)$.

    In integers for reflections $Q = I - 2 v v^\top / N$ with integer $v$ and $N = v^\top v$: then
    $\sum_{ij} (NQA)_{ij}^2 = N^2 \sum_{ij} A_{ij}^2$. In floating point for factors of a QR
    factorisation.
    """
    vectors = [torch.tensor([1, 2])] + [torch.randint(-4, 5, (d,)) for d in (2, 3, 5)]
    for v in vectors:
        d, v[0] = len(v), max(1, int(v[0]))
        N, A = int(v @ v), torch.randint(-9, 10, (d, d))
        A[0, 0] = 5
        for matrix in (torch.eye(d, 1, dtype=torch.long), A):
            NQ = N * torch.eye(d, dtype=torch.long) - 2 * torch.outer(v, v)
            whole = int((NQ @ matrix).abs().pow(p).sum())
            yield equals(whole, N**p * int(matrix.abs().pow(p).sum()), d=d)
    for d, n in ((2, 1), (3, 4), (6, 2)):
        A, (Q, R) = torch.randn(d, n), (torch.randn(s, s) for s in (d, n))
        if orthogonal:
            Q, R = torch.linalg.qr(Q).Q, torch.linalg.qr(R).Q
        else:
            Q, R = torch.full((d, d), d**-0.5), R / R.norm(dim=0)
            A = A.abs()  # then QA has d equal rows, each with column sums over the root of d
        size = torch.linalg.vector_norm(A, p)
        yield equals(torch.linalg.vector_norm(Q @ A, p) / size, 1.0, d=d)
        yield equals(torch.linalg.vector_norm(A @ R, p) / size, 1.0, d=d)


frobenius_orthogonal_invariance.foil("the sum of the moduli is not invariant", p=1)
frobenius_orthogonal_invariance.foil(
    "columns of unit length that are not orthogonal", orthogonal=False
)


@claim(by="identity", sources=("A-226", "C-129", "C-130"), budget=0.5, full={"directions": 10**5})
def spectral_norm(norm: Callable[[Tensor], Tensor] = spectral, directions: int = 1000):
    r"""The spectral norm is the largest stretch, and the largest singular value.

    $\|A\|_2 = \max_{\|x\|_2 = 1} \|Ax\|_2 = \sigma_1(A) = \sqrt{\lambda_{\max}(A^\top A)}$: the
    operator norm that the Euclidean norm induces, attained at the first right singular vector, and
    the Lipschitz constant of $x \mapsto Ax$.
    """
    for matrix, size in (
        ([[0.0, 1.0], [0.0, 0.0]], 1.0),
        ([[1.0, 1.0], [0.0, 0.0]], math.sqrt(2)),
        ([[3.0, 0.0], [4.0, 5.0]], math.sqrt(45)),
    ):
        yield equals(norm(torch.tensor(matrix)), size)
    for m, n in SHAPES:
        A = torch.randn(m, n)
        top = norm(A)
        yield equals(torch.linalg.eigvalsh(A.mT @ A)[-1], top**2, m=m, n=n)
        v = torch.linalg.svd(A).Vh[0]
        yield equals((A @ v).norm(), top, m=m, n=n)
        x, y = torch.randn(2, directions, n)
        yield at_most(((x - y) @ A.mT).norm(dim=1) / (x - y).norm(dim=1), top, m=m, n=n)


spectral_norm.foil(r"the spectral radius is 0 for $E_{12}$", norm=spectral_radius)
spectral_norm.foil("the longest column", norm=lambda A: A.norm(dim=0).max())


@claim(by="sampling", sources=("A-227", "B-366"), budget=0.5, full={"pairs": 10**4})
def spectral_norm_submultiplicative(norm: Callable[[Tensor], Tensor] = spectral, pairs: int = 200):
    r"""The spectral norm of a product is at most the product of the spectral norms.

    $\|AB\|_2 \le \|A\|_2 \|B\|_2$, with equality when the top left singular vector of $B$ is the
    top right singular vector of $A$. So a network's Lipschitz constant is at most the product of
    its layers' spectral norms, times the Lipschitz constants of its activations.

    *Proof.* $\|ABx\| \le \|A\| \|Bx\| \le \|A\| \|B\| \|x\|$.
    """
    ones = torch.ones(2, 2)
    yield at_most(norm(ones @ ones), norm(ones) ** 2)
    yield at_most(norm(E12 @ E21), norm(E12) * norm(E21))
    for m, n, k in ((3, 3, 3), (2, 5, 4), (6, 1, 3)):
        for rank in range(1, min(m, n, k) + 1):
            A = integers(pairs, m, rank) @ integers(pairs, rank, n)
            B = integers(pairs, n, rank) @ integers(pairs, rank, k)
            bound = norm(A) * norm(B)
            yield at_most(norm(A @ B) / bound.clamp(min=1), 1.0, rank=rank)
        U, V, W = (torch.linalg.qr(torch.randn(s, s)).Q for s in (m, n, k))
        left, right = torch.rand(m, n) * torch.eye(m, n), torch.rand(n, k) * torch.eye(n, k)
        left[0, 0], right[0, 0] = 3.0, 2.0
        A, B = U @ left @ V.mT, V @ right @ W.mT
        yield equals(norm(A @ B), norm(A) * norm(B), n=n)
        x, y = torch.randn(2, pairs, k)
        far = ((x @ B.mT).relu() @ A.mT - (y @ B.mT).relu() @ A.mT).norm(dim=1)
        yield at_most(far / (x - y).norm(dim=1), norm(A) * norm(B), n=n)


spectral_norm_submultiplicative.foil(
    "the largest entry: two matrices of ones have $2 > 1$", norm=lambda A: A.abs().amax((-2, -1))
)
spectral_norm_submultiplicative.foil(
    r"the spectral radius: $\rho(E_{12} E_{21}) = 1 > 0$", norm=spectral_radius
)
