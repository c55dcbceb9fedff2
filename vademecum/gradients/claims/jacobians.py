"""Jacobians: matrices, tensors, and products along networks."""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import claim, complex_step, equals, integers
from vademecum.gradients import functional
from vademecum.gradients import jacobian as jacobian_of
from vademecum.gradients.claims.layouts import agree

Shapes = tuple[tuple[int, ...], ...]


class SquaredLength(nn.Module):
    """The scalar function x^T x."""

    def forward(self, x: Tensor) -> Tensor:
        """One number."""
        return (x * x).sum()


def layer_of(theta: np.ndarray, X: np.ndarray, m: int) -> np.ndarray:
    """The values of tanh(W x + c) for each row of X; W row by row and then c are `theta`."""
    n = X.shape[1]
    return np.tanh(X @ theta[: m * n].reshape(m, n).T + theta[m * n :])


@claim(
    by="identity", sources=("A-023", "B-142", "D-089", "D-090", "D-152"), budget=1.0,
    full={"shapes": ((3, 4), (5, 5), (40, 30), (30, 40))},
    short=r"J_F = (\partial F_i / \partial x_j)_{ij} \in \mathbb{R}^{m \times n}, \quad"
    r" F: \mathbb{R}^n \to \mathbb{R}^m",
)  # fmt: skip
def jacobian(
    transposed: bool = False,
    shape: Literal["m n", "n m"] = "m n",
    shapes: Shapes = ((3, 4), (5, 2), (4, 4)),
):
    r"""The Jacobian matrix, in numerator layout.

    For $F: \mathbb{R}^n \to \mathbb{R}^m$ the Jacobian is $J_F = (\partial F_i / \partial
    x_j)_{ij} \in \mathbb{R}^{m \times n}$: row $i$ belongs to output $i$, column $j$ to input $j$.
    That of $x \mapsto W x$ is $W$ itself. For a scalar function, $m = 1$, it is the row
    $(\nabla F)^T$.

    Checked against derivatives by complex steps, $\partial_j F = \operatorname{Im} F(x + i h e_j) /
    h + O(h^2)$: in the inputs of a network and in its parameters, for one example and for several,
    as a matrix and by its products with vectors.

    Knobs:
        transposed: Whether the denominator layout is taken for the Jacobian.
        shape: The number of rows and of columns of the Jacobian.
        shapes: The numbers $m$ of outputs and $n$ of inputs of the maps.
    """

    def library(model: nn.Module, x: Tensor) -> Tensor:
        J = jacobian_of(model, x, wrt="x").dense()
        return J.T if transposed else J

    for m, n in shapes:
        x, linear, at = torch.randn(n), nn.Linear(n, m), {"m": m, "n": n}
        found, wanted = library(linear, x), linear.weight.detach()
        rows, columns = (m, n) if shape == "m n" else (n, m)
        yield equals("rows of the Jacobian of $W x$", found.shape[0], rows, **at)
        yield equals("columns of the Jacobian of $W x$", found.shape[1], columns, **at)
        yield agree("Jacobian of $W x$", found, wanted, tol=0.0, **at)
        found = library(SquaredLength(), x)
        yield agree("Jacobian of $x^T x$", found, 2 * x[None], tol=0.0, m=1, n=n)

        smooth, X = nn.Sequential(linear, nn.Tanh()), torch.randn(3, n)
        f = functional(smooth)
        theta = f.theta.numpy()
        each = [complex_step(lambda x: layer_of(theta, x[None], m)[0], x.numpy()) for x in X]  # noqa: B023
        rounding = 1e-14 * n  # of n products, and of as many derivatives of tanh
        found = library(smooth, X[0])
        yield agree(r"Jacobian of $\tanh(W x + c)$", found, each[0], tol=rounding, **at)
        J = jacobian_of(smooth, X, wrt="x")
        name = "Jacobians of three examples"
        yield agree(name, J.blocks(), torch.stack(each), tol=rounding, **at)
        name = "Jacobian of three examples as one matrix"
        yield agree(name, J.dense(), torch.block_diag(*each), tol=rounding, **at)

        other = torch.randn(f.theta.shape)
        wanted = layer_of(other.numpy(), X.numpy(), m)
        yield equals("outputs with other parameters", f(other, X), wanted, **at)
        wanted = complex_step(lambda t: layer_of(t, X.numpy(), m).ravel(), theta)  # noqa: B023
        J = jacobian_of(smooth, X)
        yield agree("Jacobian in the parameters", J.dense(), wanted, tol=rounding, **at)
        v, u = torch.randn(J.shape[1]), torch.randn(J.shape[0])
        yield equals("Jacobian in the parameters times a vector", J @ v, wanted @ v, **at)
        yield equals("a vector times the Jacobian in the parameters", J.T @ u, wanted.T @ u, **at)


jacobian.foil(
    "denominator layout has the right shape for square maps, and the wrong entries",
    refuted_by="Jacobian of $W x$",
    transposed=True,
)
jacobian.erratum(
    "D-089",
    printed=r"$(\partial f / \partial x)_{ij} := \partial f_i / \partial x_j$,"
    r" $\partial f / \partial x \in \mathbb{R}^{n \times m}$ for"
    r" $f: \mathbb{R}^n \to \mathbb{R}^m$",
    right=r"$\partial f / \partial x \in \mathbb{R}^{m \times n}$",
    why=r"With $i \le m$ and $j \le n$ the array is $m \times n$; for $f(x) = W x$ with"
    r" $W \in \mathbb{R}^{3 \times 4}$ the rule gives $W$, shape $3 \times 4$ and not $4 \times 3$."
    " The same sheet has the right shape elsewhere.",
    weight="hard",
    refuted_by="rows of the Jacobian of $W x$",
    shape="n m",
)


class Weighted(nn.Module):
    """The matrix-valued map W X of a parameter W."""

    def __init__(self, W: Tensor):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, X: Tensor) -> Tensor:
        """A matrix."""
        return self.W @ X


@claim(
    by="identity", sources=("D-391", "E-284"), budget=0.5,
    short=r"y = W X: \quad \partial y_{ij} / \partial W_{kl} = \delta_{ik} X_{lj}",
)  # fmt: skip
def jacobian_tensor(
    formula: Literal["ik,lj->ijkl", "ik,jl->ijkl", "ik,lj->klij"] = "ik,lj->ijkl",
    sizes: Shapes = ((2, 3, 4), (3, 3, 3)),
):
    r"""The Jacobian of a matrix-valued map is a tensor with four axes.

    For $y: \mathbb{R}^{d_1 \times d_2} \to \mathbb{R}^{d_3 \times d_4}$ the derivative is
    $T_{ijkl} = \partial y_{ij} / \partial W_{kl}$ of shape $d_3 \times d_4 \times d_1 \times d_2$.
    For $y = W X$ it is $T_{ijkl} = \delta_{ik} X_{lj}$.

    *Check.* On integers, where a unit step of one entry of $W$ moves a linear map by exactly its
    derivative, entry by entry.

    Knobs:
        formula: Which entries of $\delta$ and $X$ make up the tensor.
        sizes: The numbers of rows of $W$, of rows of $X$ and of columns of $X$.
    """
    for a, b, c in sizes:
        W, X, at = integers(a, b), integers(b, c), {"rows": a, "columns": c}
        steps = torch.eye(a * b).view(a, b, a, b)
        moved = ((W + steps) @ X - W @ X).permute(2, 3, 0, 1)
        found = jacobian_of(Weighted(W), X).dense().view(a, c, a, b)
        yield agree("Jacobian tensor", found, moved, tol=0.0, **at)
        stated = torch.einsum(formula, torch.eye(a), X)
        yield agree("derivative of $W X$ by unit steps", moved, stated, tol=0.0, **at)


jacobian_tensor.foil(
    r"$\delta_{ik} X_{jl}$ transposes the data",
    refuted_by="derivative of $W X$ by unit steps",
    formula="ik,jl->ijkl",
)
jacobian_tensor.foil("the axes of the input come last, not first", formula="ik,lj->klij")


def tanh_network(layers: Sequence[nn.Module], x: np.ndarray) -> np.ndarray:
    """The network as NumPy computes it, for complex inputs."""
    for layer in layers:
        W, c = (p.detach().numpy() for p in layer.parameters())
        x = np.tanh(W @ x + c)
    return x


@claim(
    by="identity", sources=("A-090", "B-139", "B-140", "B-141", "B-144", "D-113"), budget=0.5,
    full={"widths": ((4, 3, 5, 5, 2, 3), (20,) * 12)},
    short=r"\partial (F_k \circ \dots \circ F_1)(x) = \partial F_k(z_{k-1}) \cdots"
    r" \partial F_1(z_0)",
)  # fmt: skip
def deep_jacobian(
    dropped: int = 0, backwards: bool = False, widths: Shapes = ((4, 3, 5, 5, 2, 3), (3, 3, 3, 3))
):
    r"""The Jacobian of a layered network is the product of the layers' Jacobians.

    For $F = F_k \circ \dots \circ F_1$ with activations $z_0 = x$ and $z_l = F_l(z_{l-1})$,
    $$\partial F(x) = \partial F_k(z_{k-1}) \cdots \partial F_1(z_0),$$
    the factors from output to input. In particular $\partial (G \circ F \circ H) = (\partial G
    \circ F \circ H) \cdot (\partial F \circ H) \cdot \partial H$: for $G = F = \mathrm{id}$ and
    $H(x) = 2 x$ it is 2.

    *Proof.* The chain rule, $k - 1$ times. Checked against complex steps through the whole map; the
    activations of the pass are those of each prefix, evaluated afresh by NumPy.

    Knobs:
        dropped: How many factors are missing at the end of the product, all but one at most.
        backwards: Whether the factors stand in the order of the layers, where all are square.
        widths: The widths of the layers of each network, that of the input first.
    """

    def product(layers: Sequence[nn.Module], activations: list[Tensor]) -> Tensor:
        pairs = zip(layers, activations[: len(layers)], strict=True)
        factors = [jacobian_of(layer, z, wrt="x").dense() for layer, z in pairs]
        square = all(len(factor) == len(factor.T) == len(factors[0]) for factor in factors)
        factors = factors if backwards and square else factors[::-1]
        return reduce(torch.matmul, factors[: max(len(factors) - dropped, 1)])

    for sizes in widths:
        layers = [nn.Sequential(nn.Linear(n, m), nn.Tanh()) for n, m in pairwise(sizes)]
        activations, depth = [torch.randn(sizes[0])], len(layers)
        for k, layer in enumerate(layers, 1):
            activations.append(layer(activations[-1]).detach())
            afresh = tanh_network(layers[:k], activations[0].numpy())
            at = {"layer": k, "depth": depth}
            yield equals("activations of a layer", activations[-1], afresh, **at)
        whole = complex_step(partial(tanh_network, layers), activations[0].numpy())
        stated = product(layers, activations)
        # Jacobians of tanh layers with torch's weights, uniform on +-n^-1/2, do not magnify.
        at = {"depth": depth, "tol": 1e-11}
        yield agree("Jacobian of a network", whole, stated, **at, via="complex step")
        found = jacobian_of(nn.Sequential(*layers), activations[0], wrt="x").dense()
        yield agree("Jacobian of a network", found, stated, **at, via="autodiff")
    double, x = nn.Linear(1, 1, bias=False), torch.ones(1)
    double.weight.data[:] = 2.0
    layers = [double, nn.Identity(), nn.Identity()]
    found = jacobian_of(nn.Sequential(*layers), x, wrt="x").dense()
    name = r"derivative of $G \circ F \circ H$ with $G = F = \mathrm{id}$ and $H(x) = 2 x$"
    yield agree(name, found, product(layers, [x, 2 * x, 2 * x]), tol=0.0)


deep_jacobian.foil("the factors from input to output", backwards=True)
deep_jacobian.erratum(
    "A-090",
    printed=r"$\partial (G \circ F_\theta \circ H) = (\partial G \circ F_\theta \circ H) \cdot"
    r" (\partial F_\theta \circ H)$",
    right=r"$(\partial G \circ F_\theta \circ H) \cdot (\partial F_\theta \circ H) \cdot"
    r" \partial H$",
    why=r"Read as an input Jacobian the factor $\partial H$ is missing: $G = F = \mathrm{id}$,"
    r" $H(x) = 2 x$ gives 1 instead of 2. The line is right only if $\partial$ means the derivative"
    r" in $\theta$, which the sheet does not say.",
    weight="soft",
    refuted_by=r"derivative of $G \circ F \circ H$ with $G = F = \mathrm{id}$ and $H(x) = 2 x$",
    dropped=1,
)
