"""Frequencies of graphs: modes of the Laplacian, and filters by them."""

import math
from itertools import product
from typing import Literal

import scipy.linalg
import torch
from torch import Tensor

from vademecum import geometry
from vademecum.claims import at_least, claim, equals
from vademecum.geometry.claims._small_graphs import (
    complete_bipartite,
    cycle,
    edges_of,
    path,
    random_graph,
)


def modes_of(A: Tensor) -> geometry.GraphFourier:
    """The modes of a graph, from its edges in random order."""
    edges, weight = edges_of(A)
    return geometry.graph_fourier(edges, len(A), weight=weight)


def laplacian(A: Tensor) -> Tensor:
    """D - A, by definition."""
    return A.sum(1).diag() - A


@claim(
    by="identity", sources=("A-210", "C-191", "C-192", "D-348"), budget=0.5,
    short=r"L = U \Lambda U^\top:\quad \hat x = U^\top x,\quad x = U \hat x,\quad"
    r" \|\hat x\| = \|x\|",
)  # fmt: skip
def graph_fourier(transform: Literal["U^T x", "U x"] = "U^T x", turns: int = 2):
    r"""The graph Fourier transform writes signals in the modes of the Laplacian.

    With $L = U \Lambda U^\top$, $U$ orthogonal, the transform of a signal is $\hat x = U^\top x$
    and its inverse $x = U \hat x$; Parseval's identity $\|\hat x\| = \|x\|$ holds. Small
    eigenvalues are smooth modes, as $\lambda_i$ is the energy of $u_i$: a connected graph has
    exactly one eigenvalue 0, with a constant mode. On the $n$-cycle the eigenvalues are
    $2 - 2 \cos \frac{2 \pi k}{n}$ and the eigenspaces those of the discrete Fourier transform.

    Checked on random connected graphs with and without weights and on two components, and on cycles
    of 3 to 12 nodes, where projections onto eigenspaces are compared, since modes are not unique.

    Knobs:
        transform: The matrix of the transform.
        turns: How many half turns the modes of a cycle are apart.
    """
    parts = torch.block_diag(path(3), cycle(4))
    for A in (random_graph(6, 0.4, linked=True), random_graph(9, 0.3, most=5, linked=True), parts):
        n, at = len(A), {"n": len(A)}
        F, L = modes_of(A), laplacian(A)
        U, size = F.modes, 1e-14 * n * float(A.sum(1).max())

        def hat(x: Tensor, F: geometry.GraphFourier = F) -> Tensor:
            return F.transform(x) if transform == "U^T x" else F.modes @ x

        yield equals("transform of the modes", hat(U), torch.eye(n), tol=1e-13, **at)
        yield equals("L times the modes", L @ U, U * F.eigenvalues, tol=size, **at)
        x = torch.randn(n, 3)
        yield equals("signal from its transform", F.inverse(F.transform(x)), x, tol=1e-13, **at)
        one = F.inverse(F.transform(x[:, 0]))
        yield equals("the same for one signal", one, x[:, 0], tol=1e-13, **at)
        yield equals("norms of transforms", hat(x).norm(dim=0), x.norm(dim=0), tol=1e-13, **at)
        energy = torch.stack([(A * (u[:, None] - u).square()).sum() / 2 for u in U.T])
        yield equals("energies of modes", F.eigenvalues, energy, tol=size, **at)
        yield at_least("steps between eigenvalues", F.eigenvalues.diff(), 0.0, tol=0.0, **at)
        zeros = int((F.eigenvalues < 1e-9).sum())
        yield equals("eigenvalues that are 0", zeros, 2 if A is parts else 1, **at)
        if A is not parts:
            turned = 2 * size / float(F.eigenvalues[1])  # rounding over the gap
            yield equals("entries of the lowest mode", U[:, 0].abs(), n**-0.5, tol=turned, **at)
        few = geometry.graph_fourier(edges_of(A)[0], n, k=2)  # without weights
        plain = laplacian((A > 0).double())
        lowest = torch.linalg.eigvalsh(plain)[:2]
        yield equals("the two lowest eigenvalues", few.eigenvalues, lowest, tol=size, **at)
        yield equals("their modes", plain @ few.modes, few.modes * few.eigenvalues, tol=size, **at)
    for n in range(3, 13):
        F, apart = modes_of(cycle(n)), torch.arange(n)[:, None] - torch.arange(n)
        stated = sorted(2 - 2 * math.cos(turns * math.pi * k / n) for k in range(n))
        yield equals("eigenvalues of a cycle", F.eigenvalues, torch.tensor(stated), tol=1e-13, n=n)
        for k in range(n // 2 + 1):
            near = (F.eigenvalues - (2 - 2 * math.cos(2 * math.pi * k / n))).abs() < 1e-6
            space = F.modes[:, near] @ F.modes[:, near].T
            waves = (2 * math.pi * k * apart / n).cos() * (1 if k in (0, n / 2) else 2) / n
            yield equals("projection onto an eigenspace", space, waves, tol=1e-12, n=n, k=k)


graph_fourier.foil("the transpose forgotten", transform="U x",
                   refuted_by="transform of the modes")  # fmt: skip
graph_fourier.foil("half the angle, as on a path", turns=1, refuted_by="eigenvalues of a cycle")


def with_gaps(n: int) -> Tensor:
    """A random graph whose Laplacian has eigenvalues apart by a twentieth of the largest."""
    while True:
        A = random_graph(n, 0.5, most=6, linked=True)
        values = torch.linalg.eigvalsh(laplacian(A))
        if values.diff().min() > values[-1] / 20:
            return A


@claim(
    by="identity", sources=("C-193", "D-349"), budget=0.4,
    short=r"x * y = U \big((U^\top x) \odot (U^\top y)\big)",
)  # fmt: skip
def graph_convolution_theorem(
    domain: Literal["frequencies", "nodes"] = "frequencies", choices: int = 8
):
    r"""Convolution on a graph is defined through its Fourier transform.

    By analogy with the convolution theorem, $x * y = U \big((U^\top x) \odot (U^\top y)\big)$. It
    is bilinear, commutative and associative, commutes with $L$, and filters $x$ with the response
    $\hat y_i$ at frequency $i$; if the eigenvalues are distinct it is $g(L) x$ with the polynomial
    $g$ that has $g(\lambda_i) = \hat y_i$. It depends on the chosen eigenvectors: flipping the sign
    of a column of $U$ changes it.

    *Proof of the last.* The component $\hat x_i \hat y_i u_i$ has three factors with the sign.
    Checked on random graphs whose eigenvalues are apart by a twentieth of the largest, where
    Lagrange's polynomial costs at most $20^4$ in rounding, and for all 8 signs on a path of three
    nodes, where no coefficient is 0.

    Knobs:
        domain: Where signals are multiplied pointwise.
        choices: How many different results the 8 choices of signs give.
    """

    def convolved(F: geometry.GraphFourier, x: Tensor, y: Tensor) -> Tensor:
        if domain == "nodes":
            return x * y
        return F.inverse(F.transform(x) * F.transform(y))

    for n in (4, 5):
        A = with_gaps(n)
        F, L, at = modes_of(A), laplacian(A), {"n": n}
        x, y, z = torch.randn(3, n)
        both = convolved(F, x, y)
        g = torch.zeros(n, n)  # Lagrange's polynomial, of the matrix
        for i in range(n):
            term = (F.modes[:, i] @ y) * torch.eye(n)
            for j in set(range(n)) - {i}:
                gap = F.eigenvalues[i] - F.eigenvalues[j]
                term = term @ (L - F.eigenvalues[j] * torch.eye(n)) / gap
            g += term
        yield equals("x * y, and g(L) x", both, g @ x, tol=1e-8, **at)
        yield equals("x * y, and y * x", both, convolved(F, y, x), tol=1e-13, **at)
        left = convolved(F, both, z)
        yield equals("(x * y) * z", left, convolved(F, x, convolved(F, y, z)), tol=1e-12, **at)
        mixed = convolved(F, 2 * x - 3 * z, y)
        yield equals("of a combination", mixed, 2 * both - 3 * convolved(F, z, y), tol=1e-12, **at)
        yield equals("L (x * y), and (L x) * y", L @ both, convolved(F, L @ x, y), tol=1e-11, **at)
    F = modes_of(path(3))
    x, y = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, 1.0, 7.0])
    results = list[Tensor]()
    for signs in product((-1.0, 1.0), repeat=3):
        found = convolved(F._replace(modes=F.modes * torch.tensor(signs)), x, y)
        if all((found - other).abs().max() > 1e-6 for other in results):
            results.append(found)
    yield equals("different results of 8 choices of signs", len(results), choices)


graph_convolution_theorem.foil("the product at the nodes", domain="nodes",
                               refuted_by="x * y, and g(L) x")  # fmt: skip
graph_convolution_theorem.foil("independent of the eigenvectors chosen", choices=1,
                               refuted_by="different results of 8 choices of signs")  # fmt: skip


@claim(
    by="identity", sources=("A-211", "C-194"), budget=0.4,
    short=r"h(L)\, x = U\, h(\Lambda)\, U^\top x,\quad L\, h(L) = h(L)\, L",
)  # fmt: skip
def spectral_filter(of: Literal["spectrum", "entries"] = "spectrum", order: str = "U h U^T"):
    r"""A spectral filter multiplies each frequency by a response.

    $h(L) x = U\, h(\Lambda)\, U^\top x$ costs $O(n^2)$ once the $O(n^3)$ eigendecomposition is
    known, which is quoted. As a function of $L$ it does not depend on the choice of eigenvectors,
    not even within eigenspaces, and commutes with $L$.

    Checked for the heat kernel $h = e^{-t \lambda}$ against SciPy's exponential of matrices, for a
    polynomial and for the root, whose square is $L$; on random graphs, and on a cycle and
    $K_{2,4}$, whose eigenspaces have two and three dimensions and are rotated.

    Knobs:
        of: What h is applied to: eigenvalues, or the entries of L.
        order: Which factor is transposed.
    """

    def filtered(F: geometry.GraphFourier, x: Tensor, h) -> Tensor:
        U = F.modes
        if of == "entries":
            return h(U @ F.eigenvalues.diag() @ U.T) @ x
        if order != "U h U^T":
            return U.T @ (h(F.eigenvalues)[:, None] * (U @ x))
        return F.filter(x, h)

    graphs = (random_graph(6, 0.5, linked=True), random_graph(8, 0.3, most=3, linked=True))
    for A in (*graphs, cycle(6), complete_bipartite(2, 4)):
        F, L, n = modes_of(A), laplacian(A), len(A)
        x, at = torch.randn(n, 2), {"n": n}
        for t in (0.3, 1.0):
            heat = torch.from_numpy(scipy.linalg.expm(-t * L.numpy())) @ x
            found = filtered(F, x, lambda z, t=t: (-t * z).exp())
            yield equals("heat kernel", found, heat, tol=1e-11, t=t, **at)
        cubic = filtered(F, x, lambda z: 2 - z + 0.5 * z**3)
        size = float(L.abs().sum(1).max()) ** 3
        stated = 2 * x - L @ x + 0.5 * L @ (L @ (L @ x))
        yield equals("polynomial", cubic, stated, tol=1e-13 * size, **at)
        root = filtered(F, filtered(F, x, torch.sqrt), torch.sqrt)
        yield equals("root, twice", root, L @ x, tol=1e-6, **at)
        late = filtered(F, L @ x, torch.cos)
        yield equals("h(L) L x", late, L @ filtered(F, x, torch.cos), tol=1e-11, **at)
        modes = F.modes.clone()
        for value in F.eigenvalues:
            near = (F.eigenvalues - value).abs() < 1e-6
            turn = torch.linalg.qr(torch.randn(int(near.sum()), int(near.sum()))).Q
            modes[:, near] = modes[:, near] @ turn
        other = filtered(F._replace(modes=modes), x, torch.cos)
        yield equals("with other modes", other, filtered(F, x, torch.cos), tol=1e-11, **at)


spectral_filter.foil("h of the entries of L", of="entries", refuted_by="heat kernel")
spectral_filter.foil("the other factor transposed", order="U^T h U", refuted_by="heat kernel")
