"""Layers: linear maps, dense layers, and what their composition can do."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.approximation import local_affine_map
from vademecum.approximation.claims._networks import dense
from vademecum.arrays import rational_rank
from vademecum.claims import at_most, claim, equals, integers

Map = Callable[[Tensor], Tensor]


def black_box(n: int, m: int) -> Map:
    """A linear map that adds up permuted and scaled entries; between planes, the identity."""
    if n == m == 2:
        return lambda x: x
    order, c = [torch.randperm(n) for _ in range(m)], integers(m, 2, most=5)

    def f(x: Tensor) -> Tensor:
        rows = [x[..., p[0]] * a + x[..., p[1:]].sum(-1) * b
                for p, (a, b) in zip(order, c.tolist(), strict=True)]  # fmt: skip
        return torch.stack(rows, -1)

    return f


@claim(
    by="identity",
    sources=("E-094", "E-095", "E-096"),
    budget=0.5,
    full={"points": 10**5},
    short=r"f : \mathbb R^n \to \mathbb R^m \text{ linear} \iff f(x) = W x,\ W = (f(e_1), \dots,"
    r" f(e_n))",
)
def linear_map(
    form: Literal["matrix", "inner product"] = "matrix", offset: float = 0.0, points: int = 200
):
    r"""Linear maps are matrix products.

    A map $f : \mathbb R^n \to \mathbb R^m$ is additive, $f(x + x') = f(x) + f(x')$, and
    homogeneous, $f(\lambda x) = \lambda f(x)$ for every real $\lambda$, if and only if
    $f(x) = W x$ for some $W \in \mathbb R^{m \times n}$; the columns of $W$ are the images
    $f(e_i)$. Only for $m = 1$ is this an inner product $w^\top x$. A map with an offset is affine
    and fails both laws, and $|x|$ is homogeneous for $\lambda \ge 0$ alone.

    *Proof.* $f(x) = f(\sum_i x_i e_i) = \sum_i x_i f(e_i)$. Checked with integers, for the identity
    of the plane and for maps from three to two, two to four and four to one dimensions.

    Knobs:
        form: What the map is said to be: a matrix product, or an inner product with the vector that
            fits all its components best.
        offset: What is added to every component.
        points: At how many points the laws are tried.
    """
    for n, m in ((2, 2), (3, 2), (2, 4), (4, 1)):
        box = black_box(n, m)
        x, other = integers(points, n, most=5), integers(points, n, most=5)
        scale = integers(points, 1, most=5)

        def f(x: Tensor, box: Map = box) -> Tensor:
            return box(x) + offset

        product = x @ f(torch.eye(n))
        if form == "inner product":
            w = torch.linalg.lstsq(x.repeat(m, 1), f(x).T.reshape(-1, 1)).solution
            product = x @ w.round(decimals=9)  # (1/2, 1/2) for the identity of the plane
        at = {"n": n, "m": m}
        yield equals("$f(x + x')$", f(x + other), f(x) + f(other), **at)
        yield equals(r"$f(\lambda x)$", f(scale * x), scale * f(x), **at)
        yield equals("$f(x)$ as a product", f(x), product, **at)
        moved = lambda x, f=f: f(x) + 1  # noqa: E731
        excess = moved(x) + moved(other) - moved(x + other)
        yield equals("amount by which an offset of 1 breaks additivity", excess, 1 + offset, **at)
        excess = moved(scale * x) - scale * moved(x)
        yield equals("amount by which an offset of 1 breaks homogeneity", excess, (1 + offset) *
                     (1 - scale), **at)  # fmt: skip
    for factor, excess in ((-2.0, 4.0), (3.0, 0.0)):
        one = torch.ones(())
        gap = (factor * one).abs() - factor * one.abs()
        yield equals(r"$|\lambda x| - \lambda |x|$ at $x = 1$", gap, excess, factor=factor)


linear_map.foil("an affine map is not linear", offset=1.0)
linear_map.erratum(
    "E-096",
    printed=r"$f : \mathbb R^n \to \mathbb R^m$ is linear $\iff f(\mathbf x) = \mathbf w^\top"
    r" \mathbf x$ for some $\mathbf w \in \mathbb R^n$",
    right=r"$f(x) = W x$ for some $W \in \mathbb R^{m \times n}$",
    why=r"As scanned: $\mathbf w^\top \mathbf x$ is a scalar, so the equivalence is false for every"
    r" $m > 1$: the identity of $\mathbb R^2$ is linear and has no such $\mathbf w$. With"
    r" $\mathbf w \in \mathbb R^n$ the line reads as one on $f : \mathbb R^n \to \mathbb R$; the"
    " exponent $m$ may be the scan's, on a badly scanned page.",
    weight="scan",
    refuted_by="$f(x)$ as a product",
    form="inner product",
)


@claim(
    by="identity",
    sources=("C-046", "C-047", "C-048"),
    budget=0.5,
    short=r"F[\theta](x) = \phi(W x + b), \quad \theta = \mathrm{vec}(W, b) \in"
    r" \mathbb R^{m (n + 1)}",
)
def dense_layer(
    count: Callable[[int, int], int] = lambda n, m: m * (n + 1),
    sizes: tuple[tuple[int, int], ...] = ((3, 5), (1, 4), (6, 1), (4, 4)),
):
    r"""A dense layer and its parameter count.

    A dense layer is the parametrised map $F[\theta](x) = \phi(W x + b)$ from $\mathbb R^n$ to
    $\mathbb R^m$: an affine map followed by an elementwise activation. Its parameters stacked in
    one vector, $\theta = \mathrm{vec}(W, b)$, number $m (n + 1) = m n + m$.

    Torch's layer is compared with loops over units and inputs.

    Knobs:
        count: The number of parameters as a function of $n$ and $m$.
        sizes: The pairs of $n$ and $m$.
    """
    for n, m in sizes:
        layer, x = nn.Linear(n, m), torch.randn(3, n)
        W, b = layer.weight.tolist(), layer.bias.tolist()
        loops = [
            [math.tanh(sum(W[i][j] * row[j] for j in range(n)) + b[i]) for i in range(m)]
            for row in x.tolist()
        ]
        yield equals("value of the layer", layer(x).tanh(), loops, tol=1e-12, n=n, m=m)
        theta = nn.utils.parameters_to_vector(layer.parameters()).detach()
        yield equals("number of parameters", theta.numel(), count(n, m), n=n, m=m)
        changes = []
        for k in range(len(theta)):
            moved = theta.clone()
            moved[k] += 1
            nn.utils.vector_to_parameters(moved, layer.parameters())
            now = torch.cat([layer.weight.flatten(), layer.bias])
            changes.append(int((now != theta).sum()))
        yield equals("weights that change with one entry of the vector", changes, 1, n=n, m=m)
        nn.utils.vector_to_parameters(theta, layer.parameters())
        kept = torch.cat([layer.weight.flatten(), layer.bias])
        first = torch.tensor([*(v for row in W for v in row), *b])
        yield equals("weights after the way there and back", kept, first, tol=0.0, n=n, m=m)


dense_layer.foil("the bias forgotten", count=lambda n, m: m * n)
dense_layer.foil("fan-in and fan-out swapped", count=lambda n, m: n * (m + 1))


@claim(
    by="identity",
    sources=("C-049", "C-050", "C-051", "C-052"),
    budget=0.5,
    short=r"G = F^L[\theta^L] \circ \dots \circ F^1[\theta^1], \quad x^l = F^l(x^{l - 1})",
)
def mlp_composition(
    order: Literal["first layer first", "last layer first"] = "first layer first",
    widths: tuple[int, ...] = (3, 5, 2, 4),
    points: int = 5,
):
    r"""A feedforward network is a composition of layers.

    It is $G = F^L[\theta^L] \circ \dots \circ F^1[\theta^1]$ with
    $F^l[W^l, b^l](x) = \phi^l(W^l x + b^l)$, where the widths of consecutive layers match. Its
    activations obey $x^0 = x$, $x^l = F^l(x^{l - 1}) = (F^l \circ \dots \circ F^1)(x)$ and
    $x^L = G(x)$.

    Checked for layers of different widths, and of equal ones, which can also be composed in the
    wrong order.

    Knobs:
        order: The order in which layers of equal widths are applied.
        widths: The widths of the layers of the first network, the input's first.
        points: At how many inputs networks are compared.
    """
    kinds = (nn.Tanh(), nn.Softplus(), nn.Sigmoid())
    for sizes in (widths, (4, 4, 4, 4)):
        layers = [
            nn.Sequential(nn.Linear(n, m), kinds[i % 3]) for i, (n, m) in enumerate(pairwise(sizes))
        ]
        network, x = nn.Sequential(*layers), torch.randn(points, sizes[0])
        kept = [x]

        def keep(module: nn.Module, given: Any, result: Tensor, kept: list[Tensor] = kept) -> None:
            kept.append(result)

        for layer in network:
            layer.register_forward_hook(keep)
        output, mine, shape = network(x), x, "-".join(map(str, sizes))
        exchanged = order == "last layer first" and len(set(sizes)) == 1
        for number, (linear, phi) in enumerate(layers[::-1] if exchanged else layers, 1):
            mine = phi(torch.stack([linear.weight @ row + linear.bias for row in mine]))
            at = {"layer": number, "widths": shape}
            yield equals("activations of a layer", kept[number], mine, tol=1e-12, **at)
        yield equals("output", output, mine, tol=1e-12, widths=shape)
        name = "number of activation vectors, the input's included"
        yield equals(name, len(kept), len(sizes), widths=shape)


mlp_composition.foil(
    r"composed the other way, $F^1 \circ \dots \circ F^L$", order="last layer first"
)


@claim(
    by="identity",
    sources=("D-140",),
    budget=0.5,
    full={"depth": 8, "pairs": 10**4},
    short=r"W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) x + (W_2 b_1 + b_2)",
)
def affine_collapse(
    bias: Literal["pushed through", "added"] = "pushed through",
    phi: type[nn.Module] = nn.Identity,
    depth: int = 5,
    pairs: int = 100,
):
    r"""Without a nonlinearity depth collapses.

    Affine layers compose to one affine layer,
    $W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) x + (W_2 b_1 + b_2)$, and the collapsed weight has rank at
    most the smallest width. A continuous $f$ is affine if and only if the midpoint defect
    $f(x) + f(x') - 2 f(\frac{x + x'}{2})$ vanishes for all $x, x'$ ("if" is quoted). So an
    activation must be nonlinear: $\tanh$ has the defect $\tanh 2 - 2 \tanh 1$ at 0 and 2.

    Checked with integers, exactly, for layers of widths 4 and 3 around one of width 2.

    Knobs:
        bias: How the bias below is carried on: pushed through the weights, or merely added.
        phi: The activation after every layer.
        depth: How many layers are stacked.
        pairs: At how many pairs of points the stack is compared.
    """
    widths = [4, *[3] * (depth // 2 - 1), 2, *[4] * (depth - depth // 2)]
    stack = [dense(integers(m, n, most=5), integers(m, most=5)) for n, m in pairwise(widths)]
    W, b = torch.eye(4), torch.zeros(4)
    for layer in stack:
        pushed = layer.weight @ b
        if bias == "added":
            pushed = torch.eye(len(pushed), len(b)) @ b
        W, b = layer.weight @ W, pushed + layer.bias
    x, other = 2 * integers(pairs, 4, most=5), 2 * integers(pairs, 4, most=5)
    f = nn.Sequential(*(m for layer in stack for m in (layer, phi())))
    yield equals("value of the stack", f(x), x @ W.T + b, tol=0.0, depth=depth)
    defect = f(x) + f(other) - 2 * f((x + other) / 2)
    yield equals("midpoint defect of the stack", defect, 0.0, depth=depth)
    rank = rational_rank(W.tolist())
    yield at_most("rank of the collapsed weight", rank, min(widths), depth=depth)
    found = local_affine_map(nn.Sequential(*stack), x[:1])
    yield equals("collapsed weight", found.A[0], W, tol=0.0, depth=depth)
    yield equals("collapsed bias", found.b[0], b, tol=0.0, depth=depth)
    bent = torch.tensor([0.0, 1, 2]).tanh()
    yield at_most("midpoint defect of tanh at 0 and 2", bent[0] + bent[2] - 2 * bent[1], -0.5)


affine_collapse.foil(r"the first bias not pushed through $W_2$", bias="added")
affine_collapse.foil(
    "with an activation the stack is not affine",
    refuted_by="midpoint defect of the stack",
    phi=nn.Tanh,
)
