"""The linear autoencoder: what fits through a bottleneck."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import rational_rank
from vademecum.claims import at_least, at_most, claim, complex_step, equals, lowest
from vademecum.linear import LinearAutoencoder


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


@claim(
    by="identity",
    sources=("A-334", "B-082", "B-087", "C-290"),
    budget=0.5,
    short=r"\hat x = D C x,\quad \operatorname{rk}(D C X) \le m",
)
def autoencoder(
    wiring: Literal["one code", "skip connection", "two codes"] = "one code",
    n: int = 5,
    m: int = 2,
    s: int = 9,
):
    r"""The linear autoencoder, and the rank that fits through its bottleneck.

    A linear autoencoder maps $x \mapsto z = C x \mapsto \hat x = D z$ with an encoder
    $C \in \mathbb R^{m \times n}$, a decoder $D \in \mathbb R^{n \times m}$ and a bottleneck
    $m < n$. Hence
    $\operatorname{rank}(D C) \le \min\{\operatorname{rank} C, \operatorname{rank} D\} \le m$,
    and the reconstruction $D C X$ of any data matrix has rank at most $m$.

    *Proof.* The image of $D C$ lies in that of $D$, which $m$ columns span; its kernel contains
    that of $C$. Ranks are computed here in exact fractions.

    Knobs:
        wiring: What is between input and output.
        n: How many inputs there are.
        m: The width of the bottleneck.
        s: How many examples are drawn.
    """
    lowest("n", n, 2)
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
    yield equals("reconstruction, against the product of weights", reconstructed, product @ x)
    ranks = rank(c), rank(d)
    yield equals("ranks of encoder and decoder", torch.tensor(ranks), m)
    yield at_most("rank of the map", rank(product), min(ranks))
    yield at_most("rank of the reconstruction", rank(reconstructed), m)
    code = found.encode(x.mT.double())
    yield equals("code", code, (c @ x).mT.double(), tol=0.0)


autoencoder.foil("a skip connection passes what the code cannot hold", wiring="skip connection")
autoencoder.foil("the sum of two autoencoders has twice the rank", wiring="two codes")


@claim(
    by="identity",
    sources=("A-335", "A-336", "B-083", "B-084", "B-085", "B-086", "C-291"),
    budget=0.5,
    full={"n": 12, "m": 5, "s": 20},
    short=r"\partial \ell / \partial C = D^\top (y - x) x^\top,"
    r"\quad \partial \ell / \partial D = (y - x) (C x)^\top",
)
def autoencoder_gradients(
    encoder: Literal["D'(y - x) x'", "D'(x - y) x'"] = "D'(y - x) x'",
    decoder: Literal["(y - x) (C x)'", "(y - x) x'"] = "(y - x) (C x)'",
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

    Knobs:
        encoder: The gradient in $C$.
        decoder: The gradient in $D$.
        power: The power of the norm in the objective.
        n: How many inputs there are.
        m: The width of the bottleneck.
        s: How many examples are drawn.
    """
    lowest("n", n, 2)
    model, x = LinearAutoencoder(n, m), torch.randn(s, n)
    c, d = model.C.detach(), model.D.detach()
    rows = x.numpy()

    def loss(c: np.ndarray, d: np.ndarray) -> complex:
        return sum(((v - d @ (c @ v)) ** 2).sum() / 2 for v in rows) / s

    residual = x.mT - d @ c @ x.mT
    whole = torch.linalg.matrix_norm(residual) ** power / (2 * s)
    each = loss(c.numpy(), d.numpy())
    yield equals("loss in matrices", whole, each, tol=1e-13)
    yield equals("loss of the autoencoder", model.loss(x), each, tol=1e-13)
    in_c = complex_step(lambda c: loss(c, d.numpy()), c.numpy())
    in_d = complex_step(lambda d: loss(c.numpy(), d), d.numpy())
    found = torch.autograd.grad(model.loss(x), [model.C, model.D])
    yield equals("gradient in the encoder, by autograd", found[0], in_c, tol=1e-12)
    yield equals("gradient in the decoder, by autograd", found[1], in_d, tol=1e-12)
    r = -residual if encoder == "D'(y - x) x'" else residual
    yield equals("gradient in the encoder, by the formula", d.mT @ r @ x / s, in_c, tol=1e-12)
    code = c @ x.mT if decoder == "(y - x) (C x)'" else x.mT[:m]
    slope = -residual @ code.mT / s
    yield equals("gradient in the decoder, by the formula", slope, in_d, tol=1e-12)


autoencoder_gradients.foil("the sign of the residual", encoder="D'(x - y) x'")
autoencoder_gradients.foil(
    "the code forgotten, with as much of x in its place as has the shape", decoder="(y - x) x'"
)
autoencoder_gradients.foil("the norm without its square", power=1)


@claim(
    by="identity",
    sources=("A-338", "C-291", "C-293"),
    budget=0.5,
    short=r"(D A^{-1})(A C) = D C \quad (A \in GL_m)",
)
def autoencoder_symmetry(
    pairing: Literal["inverse", "transpose"] = "inverse", n: int = 6, m: int = 3, s: int = 8
):
    r"""Encoder and decoder are determined only up to an invertible map of the code.

    For every invertible $A \in \mathbb R^{m \times m}$ the pair $(A C, D A^{-1})$ computes the same
    map as $(C, D)$, so encoder and decoder are determined by the data only up to $GL_m$; an optimal
    code need not consist of orthogonal principal components.

    *Proof.* $D A^{-1} A C = D C$. The loss is constant along $A(t) = I + t N$, so its derivative
    there vanishes: $\langle \nabla_C \ell, N C \rangle = \langle \nabla_D \ell, D N \rangle$.

    Knobs:
        pairing: What of $A$ stands behind the decoder.
        n: How many inputs there are.
        m: The width of the bottleneck.
        s: How many examples are drawn.
    """
    lowest("m", m, 2)
    lowest("n", n, m)
    x = torch.randn(s, n)
    best = LinearAutoencoder(n, m).set_optimum(x)
    noise = torch.randn(m, m)
    near = torch.eye(m) + noise / (2.5 * torch.linalg.matrix_norm(noise, 2))
    for name, a in (("2 I", 2 * torch.eye(m)), ("near I", near)):
        partner = torch.linalg.inv(a) if pairing == "inverse" else a.mT
        for start in (LinearAutoencoder(n, m), best):
            moved = autoencoder_of(a @ start.C, start.D @ partner)
            at = {"A": name, "start": "optimal" if start is best else "random"}
            yield equals(
                "reconstruction after a change of code", moved(x), start(x), tol=1e-12, **at
            )
            yield equals(
                "loss after a change of code", moved.loss(x), start.loss(x), tol=1e-12, **at
            )
            shift = (moved.encode(x) - start.encode(x)).abs().max()
            yield at_least("largest change of the code", shift, 1e-6, tol=0.0, **at)
    tilted = autoencoder_of(near @ best.C, best.D @ torch.linalg.inv(near))
    gram = tilted.C @ tilted.C.mT
    overlap = (gram - gram.diagonal().diag()).abs().max()
    yield at_least("overlap of optimal code directions", overlap, 1e-6)
    model = LinearAutoencoder(n, m)
    in_c, in_d = torch.autograd.grad(model.loss(x), [model.C, model.D])
    back = model.D @ noise if pairing == "inverse" else -model.D @ noise.mT
    one, other = (in_c * (noise @ model.C)).sum(), (in_d * back).sum()
    yield equals("slope along the orbit, encoder against decoder", one, other, tol=1e-11)


autoencoder_symmetry.foil("the transposed pair, right for orthogonal A alone", pairing="transpose")
