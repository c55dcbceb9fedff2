"""What the course claims of Jacobians: layout, products along networks, sums over uses."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, complex_step, equals
from vademecum.gradients.jacobian_operator import jacobian as jacobian_of
from vademecum.gradients.per_example import per_example_gradients

Shapes = tuple[tuple[int, ...], ...]


def same_array(found: Tensor, wanted: Tensor, tol: float = 0.0, **at) -> Iterator[Evidence]:
    """First the shapes are equal, then the entries."""
    sizes = torch.tensor(found.shape), torch.tensor(wanted.shape)
    yield equals(*sizes, **at) if found.ndim == wanted.ndim else equals(found.ndim, wanted.ndim)
    if found.shape == wanted.shape:
        yield equals(found, wanted, tol=tol, **at)


class SquaredLength(nn.Module):
    """The scalar function x^T x."""

    def forward(self, x: Tensor) -> Tensor:
        """One number."""
        return (x * x).sum()


@claim(
    by="identity", sources=("A-023", "B-142", "D-089", "D-090", "D-152"), budget=0.5,
    full={"shapes": ((3, 4), (5, 5), (40, 30), (30, 40))},
)  # fmt: skip
def jacobian(transposed: bool = False, shapes: Shapes = ((3, 4), (5, 2), (4, 4))):
    r"""The Jacobian matrix, in numerator layout.

    For $F: \mathbb{R}^n \to \mathbb{R}^m$ the Jacobian is $J_F = (\partial F_i / \partial
    x_j)_{ij} \in \mathbb{R}^{m \times n}$: row $i$ belongs to output $i$, column $j$ to input $j$.
    That of $x \mapsto W x$ is $W$ itself. For a scalar function, $m = 1$, it is the row
    $(\nabla F)^T$.

    Checked against derivatives by complex steps, $\partial_j F = \operatorname{Im} F(x + i h e_j) /
    h + O(h^2)$.
    """

    def library(model: nn.Module, x: Tensor) -> Tensor:
        J = jacobian_of(model, x, wrt="x").dense()
        return J.T if transposed else J

    for m, n in shapes:
        x, linear = torch.randn(n), nn.Linear(n, m)
        W, c = (p.detach().numpy() for p in linear.parameters())
        smooth = nn.Sequential(linear, nn.Tanh())
        wanted = complex_step(lambda x, W=W, c=c: np.tanh(W @ x + c), x.numpy())
        rounding = 1e-14 * n  # of n products, and of as many derivatives of tanh
        yield from same_array(library(linear, x), linear.weight.detach(), m=m, n=n)
        yield from same_array(library(smooth, x), wanted, rounding, m=m, n=n)
        yield from same_array(library(SquaredLength(), x), 2 * x[None], m=1, n=n)


jacobian.foil(
    "denominator layout has the right shape for square maps, and the wrong entries",
    transposed=True,
    shapes=((4, 4),),
)
jacobian.erratum(
    "D-089",
    printed=r"$(\partial f / \partial x)_{ij} := \partial f_i / \partial x_j$ with"
    r" $\partial f / \partial x \in \mathbb{R}^{n \times m}$ for"
    r" $f: \mathbb{R}^n \to \mathbb{R}^m$",
    right=r"$\partial f / \partial x \in \mathbb{R}^{m \times n}$",
    why=r"With $i \le m$ and $j \le n$ the array is $m \times n$: for $f(x) = W x$ it is $W$.",
    transposed=True,
)


class Weighted(nn.Module):
    """The matrix-valued map W X of a parameter W."""

    def __init__(self, W: Tensor):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, X: Tensor) -> Tensor:
        """A matrix."""
        return self.W @ X


@claim(by="identity", sources=("D-391", "E-284"), budget=0.5)
def jacobian_tensor(formula: str = "ik,lj->ijkl", sizes: Shapes = ((2, 3, 4), (3, 3, 3))):
    r"""The Jacobian of a matrix-valued map is a tensor with four axes.

    For $y: \mathbb{R}^{d_1 \times d_2} \to \mathbb{R}^{d_3 \times d_4}$ the derivative is
    $T_{ijkl} = \partial y_{ij} / \partial W_{kl}$ of shape $d_3 \times d_4 \times d_1 \times d_2$.
    For $y = W X$ it is $T_{ijkl} = \delta_{ik} X_{lj}$.

    *Check.* On integers, where a unit step of one entry of $W$ moves a linear map by exactly its
    derivative, entry by entry.
    """
    for a, b, c in sizes:
        W, X = torch.randint(-9, 10, (a, b)).double(), torch.randint(-9, 10, (b, c)).double()
        steps = torch.eye(a * b).view(a, b, a, b)
        moved = ((W + steps) @ X - W @ X).permute(2, 3, 0, 1)
        library = jacobian_of(Weighted(W), X).dense().view(a, c, a, b)
        yield from same_array(library, moved, rows=a, columns=c)
        yield from same_array(torch.einsum(formula, torch.eye(a), X), moved, rows=a, columns=c)


jacobian_tensor.foil(r"$\delta_{ik} X_{jl}$ transposes the data", formula="ik,jl->ijkl")
jacobian_tensor.foil("the axes of the input come last, not first", formula="ik,lj->klij")


@claim(by="identity", sources=("D-213",), budget=0.5, full={"length": 60})
def shared_weights(pool: str = "sum", length: int = 8, taps: int = 3):
    r"""The gradient of a shared weight is the sum over its uses.

    If a weight $h_j$ is used in several places, its gradient is the sum over the uses of the
    gradients of independent copies. For a convolution with output positions $i$,
    $$\frac{\partial \mathcal{R}}{\partial h_j} = \sum_i \frac{\partial \mathcal{R}}{\partial x_i}
    \frac{\partial x_i}{\partial h_j};$$
    the same for a matrix $V$ that two layers share.

    *Proof.* The chain rule for $h \mapsto (h, \dots, h) \mapsto \mathcal{R}$. Checked with copies
    that are moved one by one, by complex steps: a layer with a kernel of its own at each position,
    and two layers with a matrix each.
    """
    reduce_uses = {"sum": torch.sum, "mean": torch.mean, "first": lambda g, dim: g[0]}[pool]
    conv = nn.Conv1d(1, 1, taps, bias=False)
    x, c = torch.randn(1, 1, length), torch.randn(1, length - taps + 1)
    found = per_example_gradients(conv, x, c, loss=lambda z, c: (c * z[:, 0].tanh()).sum())[0]
    patches = x[0, 0].unfold(0, taps, 1).numpy()

    def risk(kernels: np.ndarray) -> Any:
        return (c[0].numpy() * np.tanh((kernels * patches).sum(1))).sum()

    copies = conv.weight.detach().view(1, taps).repeat(len(patches), 1)
    uses = complex_step(risk, copies.numpy())
    yield equals(found, reduce_uses(uses, dim=0), tol=1e-13 * length, length=length)

    layer = nn.Linear(3, 3, bias=False)
    net, u, v = nn.Sequential(layer, nn.Tanh(), layer), torch.randn(1, 3), torch.randn(1, 3)
    found = per_example_gradients(net, u, v, loss=lambda z, v: (v * z).sum())[0]

    def two_layers(weights: np.ndarray) -> Any:
        first, second = weights
        return v[0].numpy() @ (second @ np.tanh(first @ u[0].numpy()))

    copies = layer.weight.detach().repeat(2, 1, 1)
    uses = complex_step(two_layers, copies.numpy()).flatten(1)
    yield equals(found, reduce_uses(uses, dim=0), tol=1e-12, length=2)


shared_weights.foil("the mean over the positions is smaller by their number", pool="mean")
shared_weights.foil("one use alone", pool="first")


def tanh_network(layers: Sequence[nn.Module], x: np.ndarray) -> np.ndarray:
    """The network as NumPy computes it, for complex inputs."""
    for layer in layers:
        W, c = (p.detach().numpy() for p in layer.parameters())
        x = np.tanh(W @ x + c)
    return x


@claim(
    by="identity", sources=("A-090", "B-139", "B-140", "B-141", "B-144", "D-113"), budget=0.5,
    full={"widths": ((4, 3, 5, 5, 2, 3), (20,) * 12)},
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
    activations of the pass are those of each prefix evaluated afresh.
    """

    def product(layers: Sequence[nn.Module], activations: list[Tensor]) -> Tensor:
        pairs = zip(layers, activations[: len(layers)], strict=True)
        factors = [jacobian_of(layer, z, wrt="x").dense() for layer, z in pairs]
        factors = (factors if backwards else factors[::-1])[: len(factors) - dropped]
        return torch.linalg.multi_dot(factors)

    for sizes in widths:
        layers = [nn.Sequential(nn.Linear(n, m), nn.Tanh()) for n, m in pairwise(sizes)]
        activations = [torch.randn(sizes[0])]
        for depth, layer in enumerate(layers, 1):
            activations.append(layer(activations[-1]).detach())
            afresh = nn.Sequential(*layers[:depth])(activations[0])
            yield equals(activations[-1], afresh, tol=0.0, depth=depth)
        whole = complex_step(partial(tanh_network, layers), activations[0].numpy())
        # Jacobians of tanh layers with torch's weights, uniform on +-n^-1/2, do not magnify.
        yield from same_array(product(layers, activations), whole, 1e-11, depth=len(layers))
    double = nn.Linear(1, 1, bias=False)
    double.weight.data[:] = 2.0
    once = product([double, nn.Identity(), nn.Identity()], 3 * [torch.ones(1)])
    yield from same_array(once, torch.tensor([[2.0]]), depth=3)


deep_jacobian.foil(
    "the factors from input to output", backwards=True, widths=((3, 3, 3, 3), (4, 4, 4))
)
deep_jacobian.erratum(
    "A-090",
    printed=r"$\partial (G \circ F_\theta \circ H) = (\partial G \circ F_\theta \circ H) \cdot"
    r" (\partial F_\theta \circ H)$",
    right=r"$(\partial G \circ F_\theta \circ H) \cdot (\partial F_\theta \circ H) \cdot"
    r" \partial H$",
    why=r"Read as a Jacobian in the input the factor $\partial H$ is missing: $G = F = \mathrm{id}$"
    r" and $H(x) = 2 x$ give 1 for 2. The line is right as a derivative in $\theta$, which the"
    " sheet does not say.",
    weight="soft",
    dropped=1,
)
