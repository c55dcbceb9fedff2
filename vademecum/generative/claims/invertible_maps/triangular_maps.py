"""One coordinate after the other: products of conditionals, triangular Jacobians."""

import itertools
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.claims import at_least, claim, consistent, equals
from vademecum.generative import IAF, MADE, MAF, Compose, LinearFlow
from vademecum.generative.claims._flow_oracles import Sinh, jacobians


def chained(table: np.ndarray, order: tuple[int, ...], memory: int | None) -> np.ndarray:
    """The product of conditionals of a table in an order, each given so many variables before."""
    product = np.ones_like(table)
    for k, i in enumerate(order):
        seen = order[:k] if memory is None else order[max(0, k - memory) : k]
        others = tuple(j for j in range(table.ndim) if j not in (*seen, i))
        joint = table.sum(others, keepdims=True)
        product = product * joint / joint.sum(i, keepdims=True)
    return product


def cells(density: MADE) -> tuple[Tensor, np.ndarray]:
    """All values of a discrete vector, and their probabilities as a table."""
    K, d = density.classes, density.d
    rows = torch.tensor(list(itertools.product(range(K), repeat=d)))
    return rows, density.log_prob(rows).detach().exp().numpy().reshape((K,) * d)


@claim(
    by="identity",
    sources=("A-332", "A-333"),
    budget=0.5,
    short=r"p(x_1, \dots, x_m) = \textstyle\prod_{t=1}^m p(x_t \mid x_{1:t-1})",
)
def autoregressive_factorisation(memory: int | None = None, n: int = 20_000):
    r"""Autoregressive factorisation.

    Every joint law is a product of conditionals in any chosen order, $p(x_1, \dots, x_m) =
    \prod_{t=1}^m p(x_t \mid x_{1:t-1})$ (where the conditionals are defined), so modelling the
    conditionals gives an exact, normalised likelihood and a sampler that draws one variable at a
    time. Language models, PixelCNN and WaveNet are built this way.

    *Checked* for random positive tables of four binary variables in all 24 orders, and for random
    `MADE`s over four binary and three ternary variables: their probabilities sum to one, the
    conditionals that their network gives are those of the joint table by enumeration, and draws
    follow the table by a chi-square test.

    Knobs:
        memory: How many variables before count, all of them by default; with 1 the law is that of
            a Markov chain.
        n: How many samples are drawn.
    """
    table = np.asarray(torch.rand(2, 2, 2, 2)) + 0.05
    table = table / table.sum()
    for order in itertools.permutations(range(4)):
        at = {"order": " ".join(map(str, order))}
        yield equals(
            "product of conditionals", chained(table, order, memory), table, tol=1e-13, **at
        )
    for kind, m in (("binary", 4), ("categorical", 3)):
        order = tuple(torch.randperm(m).tolist())
        classes = 3 if kind == "categorical" else None
        density = MADE(m, kind=kind, classes=classes, hidden=(24,), order=order)  # pyright: ignore
        for p in density.parameters():
            p.data.mul_(4)
        rows, table = cells(density)
        at = {"variables": kind, "m": m}
        yield equals("sum of all probabilities", table.sum(), 1.0, tol=1e-12, **at)
        yield equals(
            "product of conditionals", chained(table, order, memory), table, tol=1e-12, **at
        )
        numbers = density(rows).detach()
        given = (
            numbers.softmax(1) if classes else torch.cat((-numbers, numbers), 1).mul(0.5).softmax(1)
        )
        for k, i in enumerate(order):
            others = tuple(j for j in range(m) if j not in order[: k + 1])
            joint = table.sum(others, keepdims=True)
            law = np.broadcast_to(joint / joint.sum(i, keepdims=True), table.shape).flatten()
            found = given[:, :, i].gather(1, rows[:, i : i + 1])[:, 0]
            yield equals("conditional of the network", found, law, tol=1e-12, place=k, **at)
        K = density.classes
        drawn = density.sample(n).long() @ K ** torch.arange(m - 1, -1, -1)
        counts = torch.bincount(drawn, minlength=K**m).numpy()
        p_value = chi_square(counts, n * table.ravel())
        yield consistent("p-value of the draws", p_value, alpha=1e-7, **at)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of counts, where cells of fewer than 20 expected draws are taken together."""
    rare = expected < 20
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue)


autoregressive_factorisation.foil("a chain that remembers one variable", memory=1)
autoregressive_factorisation.foil("a chain that remembers two variables", memory=2)


class Squares(Sinh):
    """The map x -> x^2 of noise, which does not increase, with the root for its inverse."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take data to noise."""
        return x.abs().sqrt(), -0.5 * (4 * x.abs()).log().sum(1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take noise to data."""
        return z.square(), (2 * z.abs()).log().sum(1)


@claim(
    by="identity",
    sources=("A-357", "A-358"),
    budget=0.4,
    short=r"x_i = \tau(z_i; c_i(z_{<i})):\ \partial x/\partial z\ \text{lower triangular},\ \det ="
    r" \prod_i \partial_z\tau",
)
def autoregressive_flow(
    triangle: Literal["lower", "upper"] = "lower",
    transformer: Literal["increasing", "square"] = "increasing",
):
    r"""Autoregressive flow.

    $x_i = \tau\big(z_i; c_i(z_1, \dots, z_{i-1})\big)$ with $\tau(\cdot; h)$ strictly monotone and
    arbitrary conditioners $c_i$ is invertible coordinate by coordinate. Its Jacobian $(\partial x_i
    / \partial z_j)_{ij}$ is lower triangular, so $\det = \prod_i \partial_z \tau(z_i; c_i)$.

    *Checked* for $x = (z_1, z_1 + z_2)$, and with random perceptrons as conditioners in three and
    four dimensions for affine transformers and for affine ones followed by arsinh: `IAF` takes
    noise to data in this way, `MAF` data to noise. Jacobians are those of autograd, which are 0
    exactly where nothing depends; both flows recover what they were given coordinate by coordinate.

    Knobs:
        triangle: Which triangle of the Jacobian is said to hold all that is not 0.
        transformer: What follows the affine transformer: arsinh, or the square, which does not
            increase.
    """

    def forbidden(J: Tensor) -> Tensor:
        return J.triu(1) if triangle == "lower" else J.tril(-1)

    plain: Any = LinearFlow(2, kind="triangular").requires_grad_(False)
    plain.mixing.data = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    J = jacobians(lambda z: plain.inverse(z).value, torch.randn(4, 2))
    yield equals("entries off the triangle for (z1, z1 + z2)", forbidden(J), 0.0, tol=0.0)
    for d in (3, 4):
        small: Any = {"transforms": 1, "hidden": (11, 9), "activation": nn.Tanh}
        last: Any = Sinh(d) if transformer == "increasing" else Squares(d)
        maf, iaf = MAF(d, **small), IAF(d, **small)
        cases: list[tuple[str, Any, Any]] = [
            ("IAF", iaf.inverse, iaf.forward),
            ("IAF, then a transformer", Compose([last, iaf]).inverse, Compose([last, iaf]).forward),
            ("MAF", maf.forward, maf.inverse),
        ]
        for p in (*maf.parameters(), *iaf.parameters()):
            p.requires_grad_(False).mul_(2)
        for name, there, back in cases:
            at = {"flow": name, "d": d}
            z = torch.randn(5, d)
            x, log_det = there(z)
            J = jacobians(lambda v, f=there: f(v).value, z)
            yield equals("entries off the triangle", forbidden(J), 0.0, tol=0.0, **at)
            yield at_least("largest entry below the diagonal", J.tril(-1).abs().max(), 1e-6, **at)
            diagonal = J.diagonal(0, 1, 2).abs().log().sum(1)
            yield equals("log_det", log_det, diagonal, **at)
            yield equals("log-determinant of the Jacobian", torch.linalg.slogdet(J)[1], diagonal,
                         **at)  # fmt: skip
            again, home = back(x)
            yield equals("point that comes back", again, z, tol=1e-8, **at)
            yield equals("log_det of the way back", home, -diagonal, **at)


autoregressive_flow.foil("a transformer that does not increase", transformer="square",
                         refuted_by="point that comes back")  # fmt: skip
autoregressive_flow.erratum(
    "A-358",
    printed=r"upper diagonal Jacobian $\partial\tau$",
    right=r"lower triangular Jacobian $(\partial x_i / \partial z_j)_{ij}$",
    why=r"$x_i$ is a function of $z_1, \dots, z_i$, so that nonzero entries of $(\partial x_i /"
    r" \partial z_j)_{ij}$ have $j \le i$: for $x = (z_1, z_1 + z_2)$ the Jacobian is"
    r" $\begin{pmatrix} 1 & 0 \\ 1 & 1 \end{pmatrix}$, lower triangular.",
    refuted_by="entries off the triangle for (z1, z1 + z2)",
    triangle="upper",
)
