"""What the course claims of the linear autoencoder, of low rank and of principal components."""

from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals, rational_rank
from vademecum.linear.autoencoder import LinearAutoencoder
from vademecum.linear.pca import PCA


def rank(matrix: Tensor) -> int:
    """The rank of a matrix of whole numbers, by elimination in fractions."""
    return rational_rank(matrix.tolist())


def orthogonal(n: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(n, n)).Q


def autoencoder_of(c: Tensor, d: Tensor) -> LinearAutoencoder:
    """The linear autoencoder with given weights."""
    made = LinearAutoencoder(c.shape[1], c.shape[0])
    with torch.no_grad():
        made.C.copy_(c)
        made.D.copy_(d)
    return made


@claim(by="identity", sources=("A-334", "B-082", "B-087", "C-290"), budget=0.5)
def autoencoder(wiring: str = "one code", n: int = 5, m: int = 2, s: int = 9):
    r"""The linear autoencoder, and the rank that fits through its bottleneck.

    A linear autoencoder maps $x \mapsto z = C x \mapsto \hat x = D z$ with an encoder
    $C \in \mathbb R^{m \times n}$, a decoder $D \in \mathbb R^{n \times m}$ and a bottleneck
    $m < n$. Hence
    $\operatorname{rank}(D C) \le \min\{\operatorname{rank} C, \operatorname{rank} D\} \le m$,
    and the reconstruction $D C X$ of any data matrix has rank at most $m$.

    *Proof.* The image of $D C$ lies in that of $D$, which $m$ columns span; its kernel contains
    that of $C$. Ranks are computed here in exact fractions.
    """
    c, d = torch.randint(-9, 10, (m, n)), torch.randint(-9, 10, (n, m))
    c[:, :m] += 40 * torch.eye(m, dtype=torch.long)  # dominant diagonals: of full rank
    d[-m:] += 40 * torch.eye(m, dtype=torch.long)
    x = torch.randint(-9, 10, (n, s))
    found = autoencoder_of(c, d)
    reconstructed = found(x.mT.double()).mT.round().long()
    product = found(torch.eye(n)).mT.round().long()
    if wiring == "skip connection":
        product, reconstructed = product + torch.eye(n, dtype=torch.long), reconstructed + x
    elif wiring == "two codes":
        product = product + torch.roll(d, -m, 0) @ torch.roll(c, m, 1)  # of rank 2 m
        reconstructed = product @ x
    yield equals(reconstructed, product @ x)
    yield at_most(rank(product), min(rank(c), rank(d)))
    yield at_most(rank(reconstructed), m)
    yield equals(found.encode(x.mT.double()), (c @ x).mT)


autoencoder.foil("a skip connection passes what the code cannot hold", wiring="skip connection")
autoencoder.foil("the sum of two autoencoders has twice the rank", wiring="two codes")


@claim(
    by="identity",
    sources=("A-335", "A-336", "B-083", "B-084", "B-085", "B-086", "C-291"),
    budget=0.5,
    full={"n": 12, "m": 5, "s": 20},
)
def autoencoder_gradients(
    encoder: str = "D'(y - x) x'",
    decoder: str = "(y - x) (C x)'",
    power: int = 2,
    n: int = 5,
    m: int = 2,
    s: int = 6,
):
    r"""The loss of the linear autoencoder and its gradients.

    With $\ell(x) = \frac12 \|x - D C x\|^2$ and $y = D C x$,
    $$\frac{\partial \ell}{\partial C} = D^\top (y - x)\, x^\top, \qquad
    \frac{\partial \ell}{\partial D} = (y - x) (C x)^\top ,$$
    and over a data matrix $X \in \mathbb R^{n \times s}$ the objective is the mean
    $\frac{1}{2 s} \|X - D C X\|_F^2$.

    *Proof.* The chain rule for $\frac12 \|r\|^2$ with $r = y - x$,
    $\mathrm d r = \mathrm d D\, C x + D\, \mathrm d C\, x$.
    """
    model, x = LinearAutoencoder(n, m), torch.randn(s, n)
    c, d = model.C.detach(), model.D.detach()
    rows = x.numpy()

    def loss(c: np.ndarray, d: np.ndarray) -> complex:
        return sum(((v - d @ (c @ v)) ** 2).sum() / 2 for v in rows) / s

    residual = x.mT - d @ c @ x.mT
    whole = torch.linalg.matrix_norm(residual) ** power / (2 * s)
    yield equals(whole, loss(c.numpy(), d.numpy()), tol=1e-13)
    yield equals(model.loss(x), loss(c.numpy(), d.numpy()), tol=1e-13)
    in_c = complex_step(lambda c: loss(c, d.numpy()), c.numpy())
    in_d = complex_step(lambda d: loss(c.numpy(), d), d.numpy())
    found = torch.autograd.grad(model.loss(x), [model.C, model.D])
    yield equals(found[0], in_c, tol=1e-12)
    yield equals(found[1], in_d, tol=1e-12)
    r = -residual if encoder == "D'(y - x) x'" else residual
    yield equals(d.mT @ r @ x / s, in_c, tol=1e-12)
    code = c @ x.mT if decoder == "(y - x) (C x)'" else x.mT[:m]
    yield equals(-residual @ code.mT / s, in_d, tol=1e-12)


autoencoder_gradients.foil("the sign of the residual", encoder="D'(x - y) x'")
autoencoder_gradients.foil(
    "the code forgotten, with as much of x in its place as has the shape", decoder="(y - x) x'"
)
autoencoder_gradients.foil("the norm without its square", power=1)


@claim(by="identity", sources=("A-338", "C-291", "C-293"), budget=0.5)
def autoencoder_symmetry(pairing: str = "inverse", n: int = 6, m: int = 3, s: int = 8):
    r"""Encoder and decoder are determined only up to an invertible map of the code.

    For every invertible $A \in \mathbb R^{m \times m}$ the pair $(A C, D A^{-1})$ computes the same
    map as $(C, D)$, so encoder and decoder are determined by the data only up to $GL_m$; an optimal
    code need not consist of orthogonal principal components.

    *Proof.* $D A^{-1} A C = D C$. The loss is constant along $A(t) = I + t N$, so its derivative
    there vanishes: $\langle \nabla_C \ell, N C \rangle = \langle \nabla_D \ell, D N \rangle$.
    """
    x = torch.randn(s, n)
    best = LinearAutoencoder(n, m).set_optimum(x)
    noise = torch.randn(m, m)
    near = torch.eye(m) + noise / (2.5 * torch.linalg.matrix_norm(noise, 2))
    for k, a in enumerate((2 * torch.eye(m), near)):
        partner = torch.linalg.inv(a) if pairing == "inverse" else a.mT
        for start in (LinearAutoencoder(n, m), best):
            moved = autoencoder_of(a @ start.C, start.D @ partner)
            yield equals(moved(x), start(x), tol=1e-12, a=k)
            yield equals(moved.loss(x), start.loss(x), tol=1e-12, a=k)
            yield at_least((moved.encode(x) - start.encode(x)).abs().max(), 1e-6, a=k)
    tilted = autoencoder_of(near @ best.C, best.D @ torch.linalg.inv(near))
    gram = tilted.C @ tilted.C.mT
    yield at_least((gram - gram.diagonal().diag()).abs().max(), 1e-6)
    model = LinearAutoencoder(n, m)
    in_c, in_d = torch.autograd.grad(model.loss(x), [model.C, model.D])
    back = model.D @ noise if pairing == "inverse" else -model.D @ noise.mT
    yield equals((in_c * (noise @ model.C)).sum(), (in_d * back).sum(), tol=1e-11)


autoencoder_symmetry.foil("the transposed pair, right for orthogonal A alone", pairing="transpose")


@claim(by="sampling", sources=("B-088", "C-292", "E-106"), budget=0.5, full={"starts": 200})
def eckart_young(truncation: str = "largest", rows: int = 8, columns: int = 6, starts: int = 6):
    r"""The truncated singular value decomposition is the best approximation of low rank.

    With $X = U \Sigma V^\top$,
    $$\min_{\operatorname{rank} Y \le r} \|X - Y\|_F = \|X - X_r\|_F =
    \Big( \sum_{i > r} \sigma_i^2 \Big)^{1/2}, \qquad X_r = U_r \Sigma_r V_r^\top ,$$
    and the minimiser is unique exactly if $\sigma_r > \sigma_{r+1}$ or $X$ itself has rank at most
    $r$.

    *Proof.* Eckart and Young (1936), whose first name the sheets spell Eckhart. Uniqueness: with
    $P, Q$ the projections off the leading singular vectors and $W$ the polar factor of $P Y Q$, the
    theorem applied to $X_r + \sigma_r W$ gives $2 \sigma_r \|P Y Q\|_* \le \|Y - X_r\|_F^2$, hence
    $\|X - Y\|_F^2 \ge \sum_{i > r} \sigma_i^2 + (1 - \sigma_{r+1} / \sigma_r) \|Y - X_r\|_F^2$,
    which is checked too.
    """
    x = torch.randn(rows, columns)
    u, sigma, vh = torch.linalg.svd(x, full_matrices=False)
    for r in range(1, columns):
        tail = sigma[r:].square().sum()
        if truncation == "largest":
            best = LinearAutoencoder(columns, r).set_optimum(x)(x).detach()
        elif truncation == "smallest":
            best = (u[:, -r:] * sigma[-r:]) @ vh[-r:]
        else:
            best = u[:, :r] @ vh[:r]
        yield equals((x - best).square().sum(), tail, rank=r)
        for chosen in map(list, combinations(range(columns), r)):
            other = (u[:, chosen] * sigma[chosen]) @ vh[chosen]
            yield at_least((x - other).square().sum(), (x - best).square().sum(), rank=r)
        d = torch.randn(starts, rows, r)
        for _ in range(5):  # alternating least squares: on the way to the minimum, at any rank
            d = torch.linalg.qr(d).Q
            c = d.mT @ x
            y = d @ c
            d = x @ torch.linalg.pinv(c)
            distance = (y - (u[:, :r] * sigma[:r]) @ vh[:r]).square().sum((1, 2))
            bound = tail + (1 - sigma[r] / sigma[r - 1]) * distance
            yield at_least((x - y).square().sum((1, 2)), bound, rank=r)
    equal = torch.diag(torch.tensor([2.0, 1.0, 1.0]))
    for kept in (1, 2):  # not unique where singular values coincide
        y = torch.diag(torch.tensor([2.0, kept == 1, kept == 2]))
        yield equals((equal - y).square().sum(), 1.0, rank=2)


eckart_young.foil("the smallest singular values kept", truncation="smallest")
eckart_young.foil("the singular values forgotten, U_r V_r'", truncation="orthogonal")


def angle(a: Tensor, b: Tensor) -> Tensor:
    """The sine of the largest principal angle between the spans of columns."""
    a, b = torch.linalg.qr(a).Q, torch.linalg.qr(b).Q
    return torch.linalg.matrix_norm(a - b @ (b.mT @ a), 2)


def descend(model: LinearAutoencoder, x: Tensor, rate: float, steps: int) -> None:
    """Plain gradient descent on the loss."""
    weights = list(model.parameters())
    for _ in range(steps):
        slopes = torch.autograd.grad(model.loss(x), weights)
        with torch.no_grad():
            for w, slope in zip(weights, slopes, strict=True):
                w.sub_(slope, alpha=rate)


@claim(by="training", sources=("A-338", "B-089", "C-292", "C-293"), budget=0.5, full={"starts": 20})
def autoencoder_pca(
    data: str = "centred", keep: str = "top", s: int = 12, starts: int = 2, steps: int = 400
):
    r"""The optimal linear autoencoder is principal component analysis, and descent finds it.

    With $X = U \Sigma V^\top \in \mathbb R^{n \times s}$ the choice $C = U_m^\top$, $D = U_m$
    reconstructs $D C X = U_m U_m^\top X = X_m$, hence is optimal by Eckart and Young with the
    squared error $\sum_{i > m} \sigma_i^2$. For centred data and $\sigma_m > \sigma_{m+1}$ every
    optimal decoder spans the space of the first $m$ principal directions. All other critical points
    are saddles with a direction of descent (Baldi and Hornik, 1989), so that gradient descent from
    a random start ends at an optimum.

    Here $\sigma = (5, 4, 2, 2)$ and $m = 2$. At the optimum $C = D^\top$ the Hessian couples
    directions $h \le m < i$ by the blocks
    $\frac1s \begin{pmatrix} \sigma_h^2 & -\sigma_i^2 \\ -\sigma_i^2 & \sigma_i^2 \end{pmatrix}$,
    whose eigenvalues are at least $2.79 / s$, and at a saddle $-7.1 / s$ is among them. At the rate
    $s / 50$ errors shrink by $e^{-0.056}$ a step, to $10^{-5}$ in 205 of the 400; the others leave
    any saddle that the start is not closer to than $10^{-11}$. It has a quarter of the usual size,
    so that the rate is small enough there too.
    """
    n, m, sigma = 4, 2, torch.tensor([5.0, 4.0, 2.0, 2.0])
    v = torch.linalg.qr(torch.cat([torch.ones(s, 1), torch.randn(s, n)], 1)).Q[:, 1:]
    directions = orthogonal(n)
    centred = (v * sigma) @ directions.mT  # rows are examples, as columns of X are
    spread = (sigma.square().sum() / s).sqrt()
    x = centred + (0.0 if data == "centred" else 10.0) * spread * directions[:, -1]
    u = torch.linalg.svd(x.mT, full_matrices=False)[0]
    best = LinearAutoencoder(n, m).set_optimum(x)
    if keep == "bottom":
        best = autoencoder_of(u[:, -m:].mT, u[:, -m:])
    yield equals(best(x), (u[:, :m] @ u[:, :m].mT @ x.mT).mT)
    yield equals(2 * s * best.loss(x), torch.linalg.svdvals(x)[m:].square().sum())
    principal = torch.as_tensor(PCA(m).fit(x).components_).mT
    yield at_most(angle(principal, directions[:, :m]), 0.0)
    yield at_most(angle(best.D.detach(), principal), 0.0)
    for _ in range(starts):
        model = autoencoder_of(torch.randn(m, n) / 8, torch.randn(n, m) / 8)
        descend(model, x, s / (2 * 25.0), steps)
        yield equals(model.loss(x), best.loss(x), tol=1e-8)
        yield at_most(angle(model.D.detach(), principal), 1e-4)


autoencoder_pca.foil("data that are not centred: the mean is the first direction", data="far away")
autoencoder_pca.foil("the last singular vectors", keep="bottom")
