"""Orthogonal factors: and Muon, which steps along them."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.optimization import Muon
from vademecum.optimization import orthogonalize as factor_of

CUBIC = (1.5, -0.5, 0.0)


def polar(M: Tensor) -> Tensor:
    r"""The factor $(M M^\top)^{-1/2} M$ or $M (M^\top M)^{-1/2}$, by eigenvectors."""
    if M.shape[0] > M.shape[1]:
        return polar(M.T).T
    values, vectors = torch.linalg.eigh(M @ M.T)
    return (vectors / values.sqrt()) @ vectors.T @ M


def with_singular_values(s: Tensor, m: int, n: int) -> Tensor:
    """A matrix with these singular values and random singular vectors."""
    U = torch.linalg.qr(torch.randn(m, len(s))).Q
    V = torch.linalg.qr(torch.randn(n, len(s))).Q
    return (U * s) @ V.T


def frames(count: int, m: int, n: int) -> Tensor:
    """Random matrices with orthonormal rows, or columns where they are tall."""
    Q = torch.linalg.qr(torch.randn(count, max(m, n), min(m, n))).Q
    return Q if m > n else Q.mT


@claim(
    by="identity",
    sources=("D-179",),
    budget=0.5,
    full={"n": 50_000},
    short=r"P = U V^\top = \arg\max_O \langle M, O \rangle,\quad"
    r" X \leftarrow \tfrac32 X - \tfrac12 X X^\top X \to P",
)
def orthogonalize(
    scaling: Literal["polar", "spectral", "Frobenius"] = "polar", start: float = 1.0, n: int = 500
):
    r"""Orthogonalisation by decomposition or by Newton and Schulz.

    For $M = U \Sigma V^\top$ (thin singular value decomposition, full rank) $P = U V^\top$ replaces
    all singular values by 1; it is the matrix with orthonormal rows (or columns) nearest to $M$ in
    Frobenius norm, equivalently the maximiser of $\langle M, O \rangle$, whose value is the nuclear
    norm. The iteration $X \leftarrow \frac32 X - \frac12 X X^\top X$ from $M / \|M\|_F$ converges
    to $P$ without a decomposition.

    *Proof.* $\langle M, O \rangle = \sum_i \sigma_i \langle u_i, O v_i \rangle \le \sum_i
    \sigma_i$, and $\|M - O\|_F^2 = \|M\|_F^2 + r - 2 \langle M, O \rangle$; the iteration acts on
    each singular value by $\frac32 x - \frac12 x^3$, which tends to 1 from $(0, \sqrt 3)$. Checked
    for `orthogonalize` against $(M M^\top)^{-1/2} M$ by eigenvectors, for wide and tall matrices
    with singular values in $[0.1, 1]$.

    Knobs:
        scaling: What makes $P$ of $M$: the factor, or division by a norm.
        start: What $M / \|M\|_F$ is multiplied by before the iteration.
        n: How many other matrices are drawn.
    """
    for m, k in ((4, 7), (7, 3)):
        r, at = min(m, k), {"rows": m, "columns": k}
        s = torch.cat([torch.tensor([0.1, 1.0]), 0.1 + 0.9 * torch.rand(r - 2)])
        M = with_singular_values(s, m, k)
        norms = {"spectral": s.max(), "Frobenius": s.norm()}
        P = factor_of(M, method="svd") if scaling == "polar" else M / norms[scaling]
        gram = P @ P.T if m < k else P.T @ P
        yield equals("Gram matrix of the factor", gram, torch.eye(r), tol=1e-12, **at)
        yield equals("factor", P, polar(M), tol=1e-10, **at)
        yield equals("inner product with the factor", (M * P).sum(), s.sum(), tol=1e-12, **at)
        others = frames(n, m, k)
        yield at_most("inner product with another", (others * M).sum((1, 2)), s.sum(), **at)
        gaps = (others - M).flatten(1).norm(dim=1)
        yield at_least("distance of another", gaps, (P - M).norm(), **at)
        X = start * M / M.norm()
        for _ in range(40):
            X = 1.5 * X - 0.5 * X @ X.T @ X
        gap = (X - polar(M)).abs().amax().nan_to_num(nan=math.inf)
        yield equals("distance of the iteration from the factor", gap, 0.0, tol=1e-10, **at)
        own = factor_of(M, coefficients=CUBIC, steps=40)
        yield equals("factor by Newton-Schulz", own, polar(M), tol=1e-10, **at)
        own = factor_of(torch.stack([M, -3 * M]), method="polar_express", steps=8)
        yield equals("factor by Polar Express", own, torch.stack([polar(M), -polar(M)]), tol=1e-10,
                     **at)  # fmt: skip
        found = torch.linalg.svdvals(factor_of(M))  # 0.1 / |M| is above 0.0065
        yield at_least("singular values by the tuned quintic", found, 0.68, **at)
        yield at_most("singular values by the tuned quintic", found, 1.14, **at)


orthogonalize.foil("division by the spectral norm", scaling="spectral")
orthogonalize.foil("division by the Frobenius norm", scaling="Frobenius")
orthogonalize.foil(
    "the iteration from a norm above the root of three, which diverges",
    refuted_by="distance of the iteration from the factor",
    start=5.0,
)


def steps_of(grads: list[Tensor], **knobs) -> list[Tensor]:
    """The displacements of Muon under these gradients, of a matrix that starts at zero."""
    W = nn.Parameter(torch.zeros_like(grads[0]))
    optimizer, found = Muon([W], **knobs), []
    for G in grads:
        before, W.grad = W.detach().clone(), G.clone()
        optimizer.step()
        found.append(W.detach() - before)
    return found


@claim(
    by="identity",
    sources=("D-177", "D-178"),
    budget=0.5,
    short=r"M_t = \mu M_{t-1} + G_t,\quad W_{t+1} = W_t"
    r" - \eta \sqrt{d_{out} / d_{in}}\; \mathrm{orthogonalize}(M_t)",
)
def muon(power: float = 0.5, momentum: Literal["before", "after"] = "before"):
    r"""Muon.

    For a weight matrix $W \in \mathbb R^{d_{out} \times d_{in}}$: $M_t = \mu M_{t-1} + \nabla_W
    \mathcal L$, $P_t = \mathrm{orthogonalize}(M_t)$, $W_{t+1} = W_t - \eta \sqrt{d_{out} / d_{in}}
    \, P_t$. The update has all singular values equal, so rare directions of the gradient are moved
    as strongly as dominant ones, and its RMS-to-RMS operator norm
    $\sqrt{d_{in} / d_{out}}\, \|\Delta W\|_2$ is exactly $\eta$.

    Checked for `Muon` with decompositions, over three steps, against factors by eigenvectors, for
    wide and tall matrices; for the gradient $u_1 v_1^\top + 10^{-3} u_2 v_2^\top$ against SGD. With
    iterations for decompositions the singular values are equal as nearly as these make them.

    Knobs:
        power: The exponent of $d_{out} / d_{in}$ in the factor.
        momentum: Whether momentum is taken before or after orthogonalisation.
    """
    eta, mu = 0.3, 0.8
    for m, n in ((4, 7), (7, 4)):
        at = {"out": m, "in": n}
        grads = [torch.randn(m, n) for _ in range(3)]
        moved = steps_of(grads, lr=eta, momentum=mu, method="svd")
        M = torch.zeros(m, n)
        for t, (G, step) in enumerate(zip(grads, moved, strict=True), 1):
            M = mu * M + (G if momentum == "before" else polar(G))
            P = polar(M) if momentum == "before" else M
            stated = -eta * (m / n) ** power * P
            yield equals("step of Muon", step, stated, tol=1e-10, t=t, **at)
            values = torch.linalg.svdvals(step)
            yield equals("singular values of a step", values, eta * (m / n) ** power, tol=1e-12,
                         t=t, **at)  # fmt: skip
            norm = math.sqrt(n / m) * values.max()
            yield equals("norm of a step from RMS to RMS", norm, eta, tol=1e-12, t=t, **at)
        nearly = torch.linalg.svdvals(steps_of(grads, lr=1.0, method="polar_express", steps=8)[0])
        yield equals("singular values of a step by Polar Express", nearly, (m / n) ** power,
                     tol=1e-9, **at)  # fmt: skip
        u, v = torch.linalg.qr(torch.randn(m, 2)).Q, torch.linalg.qr(torch.randn(n, 2)).Q
        G = u[:, :1] @ v[:, :1].T + 1e-3 * u[:, 1:] @ v[:, 1:].T
        strong, rare = (u.T @ steps_of([G], lr=eta, method="svd")[0] @ v).diagonal().tolist()
        yield equals("rare direction's share of a step, over the strong one's", rare / strong, 1.0,
                     tol=1e-10, **at)  # fmt: skip
        W = nn.Parameter(torch.zeros(m, n))
        W.grad = G
        torch.optim.SGD([W], lr=eta).step()
        strong, rare = (u.T @ W.detach() @ v).diagonal().tolist()
        yield equals("the same of SGD", rare / strong, 1e-3, tol=1e-10, **at)


muon.foil(r"the inverse factor $\sqrt{d_{in} / d_{out}}$", power=-0.5)
muon.foil("no factor", power=0.0)
muon.foil("momentum of orthogonalised gradients", momentum="after")
