"""What the course claims of linear maps, layers, their composition and ridge functions."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.pwl import linear_with
from vademecum.claims import at_least, at_most, claim, complex_step, equals


def integers(*shape: int, most: int = 5) -> Tensor:
    """Random integers as floating-point numbers, whose sums and products are exact."""
    return torch.randint(-most, most + 1, shape).to(torch.get_default_dtype())


def black_box() -> Callable[[Tensor], Tensor]:
    """A linear map from three to two dimensions, of rank 2, by sums of permuted, scaled entries."""
    order, c = torch.randperm(3), integers(4)
    i, j, k = order.tolist()

    def f(x: Tensor) -> Tensor:
        first = x[..., i] + c[0] * x[..., k]
        return torch.stack([first + c[1] * x[..., j], 3 * x[..., j] - 7 * x[..., k]], -1)

    return f


@claim(by="identity", sources=("E-094", "E-095", "E-096"), budget=0.5, full={"points": 10**5})
def linear_map(form: str = "matrix", offset: float = 0.0, points: int = 200):
    r"""Linear maps are matrix products.

    A map $f : \mathbb R^n \to \mathbb R^m$ is additive, $f(x + x') = f(x) + f(x')$, and
    homogeneous, $f(\lambda x) = \lambda f(x)$ for every real $\lambda$, if and only if
    $f(x) = W x$ for some $W \in \mathbb R^{m \times n}$; the columns of $W$ are the images
    $f(e_i)$. Only for $m = 1$ is this an inner product $w^\top x$. A map with an offset is affine
    and fails both laws, and $|x|$ is homogeneous for $\lambda \ge 0$ alone.

    *Proof.* $f(x) = f(\sum_i x_i e_i) = \sum_i x_i f(e_i)$.
    """
    box = black_box()
    x, other, scale = integers(points, 3), integers(points, 3), integers(points, 1)

    def f(x: Tensor) -> Tensor:
        return box(x) + offset

    W = f(torch.eye(3)).T
    product = x @ W.T
    if form == "inner product":
        w = torch.linalg.lstsq(x.repeat(2, 1), f(x).T.reshape(-1, 1)).solution
        product = x @ w
    yield equals(f(x + other), f(x) + f(other), points=points)
    yield equals(f(scale * x), scale * f(x), points=points)
    yield equals(product, f(x), points=points)
    yield equals(torch.linalg.matrix_rank(W), 2)
    e = torch.eye(3)[0]
    yield equals((2 * e).abs(), 2 * e.abs())
    yield at_least((-e).abs().sum(), 2 - e.abs().sum())


linear_map.foil("an affine map is not linear", offset=1.0)
linear_map.erratum(
    "E-096",
    printed=r"$f : \mathbb R^n \to \mathbb R^m$ is linear $\iff f(x) = w^\top x$ for some"
    r" $w \in \mathbb R^n$ (as scanned)",
    right=r"$f(x) = W x$ for some $W \in \mathbb R^{m \times n}$",
    why="an inner product is one number: the best one misses a map of rank 2",
    form="inner product",
)


@claim(by="identity", sources=("C-046", "C-047", "C-048"), budget=0.5)
def dense_layer(
    count: Callable[[int, int], int] = lambda n, m: m * (n + 1),
    sizes: tuple[tuple[int, int], ...] = ((3, 5), (1, 4), (6, 1), (4, 4)),
):
    r"""A dense layer and its parameter count.

    A dense layer is the parametrised map $F[\theta](x) = \phi(W x + b)$ from $\mathbb R^n$ to
    $\mathbb R^m$: an affine map followed by an elementwise activation. Its parameters stacked in
    one vector, $\theta = \mathrm{vec}(W, b)$, number $m (n + 1) = m n + m$.
    """
    for n, m in sizes:
        layer, x = nn.Linear(n, m), torch.randn(3, n)
        W, b = layer.weight.tolist(), layer.bias.tolist()
        loops = [
            [math.tanh(sum(W[i][j] * row[j] for j in range(n)) + b[i]) for i in range(m)]
            for row in x.tolist()
        ]
        yield equals(layer(x).tanh(), loops, tol=1e-12, n=n, m=m)
        theta = nn.utils.parameters_to_vector(layer.parameters()).detach()
        yield equals(theta.numel(), count(n, m), n=n, m=m)
        for k in range(len(theta)):
            moved = theta.clone()
            moved[k] += 1
            nn.utils.vector_to_parameters(moved, layer.parameters())
            now = torch.cat([layer.weight.flatten(), layer.bias])
            yield equals(int((now != theta).sum()), 1, n=n, m=m)
        nn.utils.vector_to_parameters(theta, layer.parameters())
        yield equals(int(layer.weight.tolist() == W and layer.bias.tolist() == b), 1, n=n, m=m)


dense_layer.foil("the bias forgotten", count=lambda n, m: m * n)
dense_layer.foil("fan-in and fan-out swapped", count=lambda n, m: n * (m + 1))


@claim(by="identity", sources=("C-049", "C-050", "C-051", "C-052"), budget=0.5)
def mlp_composition(
    order: str = "first layer first", widths: tuple[int, ...] = (4, 4, 4, 4), points: int = 5
):
    r"""A feedforward network is a composition of layers.

    It is $G = F^L[\theta^L] \circ \dots \circ F^1[\theta^1]$ with
    $F^l[W^l, b^l](x) = \phi^l(W^l x + b^l)$, where the widths of consecutive layers match. Its
    activations obey $x^0 = x$, $x^l = F^l(x^{l - 1}) = (F^l \circ \dots \circ F^1)(x)$ and
    $x^L = G(x)$.
    """
    kinds = (nn.Tanh(), nn.Softplus(), nn.Sigmoid())
    layers = [
        nn.Sequential(nn.Linear(n, m), kinds[i % 3]) for i, (n, m) in enumerate(pairwise(widths))
    ]
    network, x = nn.Sequential(*layers), torch.randn(points, widths[0])
    kept = [x]

    def keep(module: nn.Module, given: Any, result: Tensor) -> None:
        kept.append(result)

    for layer in network:
        layer.register_forward_hook(keep)
    output = network(x)
    yours = x
    sequence = layers if order == "first layer first" else layers[::-1]
    for number, (linear, phi) in enumerate(sequence, 1):
        yours = phi(torch.stack([linear.weight @ row + linear.bias for row in yours]))
        yield equals(kept[number], yours, tol=1e-12, layer=number)
    yield equals(output, yours, tol=1e-12)
    yield equals(len(kept), len(widths))


mlp_composition.foil(
    r"composed the other way, $F^1 \circ \dots \circ F^L$", order="last layer first"
)


@claim(by="identity", sources=("D-140",), budget=0.5, full={"depth": 8, "pairs": 10**4})
def affine_collapse(
    bias: str = "pushed through",
    phi: type[nn.Module] = nn.Identity,
    depth: int = 5,
    pairs: int = 100,
):
    r"""Without a nonlinearity depth collapses.

    Affine layers compose to one affine layer,
    $W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) x + (W_2 b_1 + b_2)$, and the collapsed weight has rank at
    most the smallest width. A continuous $f$ is affine if and only if the midpoint defect
    $f(x) + f(x') - 2 f(\frac{x + x'}{2})$ vanishes for all $x, x'$. So an activation must be
    nonlinear: with $\tanh$ between the layers the defect does not vanish.
    """
    widths = [4] * (depth // 2) + [2] + [4] * (depth - depth // 2)
    stack = [linear_with(integers(m, n), integers(m)) for n, m in pairwise(widths)]
    W, b = torch.eye(4), torch.zeros(4)
    for layer in stack:
        pushed = layer.weight @ b
        if bias == "added":
            pushed = nn.functional.pad(b, (0, len(pushed) - len(b)))
        W, b = layer.weight @ W, pushed + layer.bias
    x, other = 2 * integers(pairs, 4), 2 * integers(pairs, 4)
    f = nn.Sequential(*(m for layer in stack for m in (layer, phi())))
    yield equals(f(x), x @ W.T + b, depth=depth)
    yield equals(f(x) + f(other) - 2 * f((x + other) / 2), 0.0, depth=depth)
    yield at_most(torch.linalg.matrix_rank(W), min(widths), depth=depth)
    found = local_affine_map(nn.Sequential(*stack), x[:1])
    yield equals(found.A[0], W, depth=depth)
    yield equals(found.b[0], b, depth=depth)
    bent, (u, v) = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, pairs, 4)
    yield at_least((bent(u) + bent(v) - 2 * bent((u + v) / 2)).abs().max(), 1e-3, depth=depth)


affine_collapse.foil(r"the first bias not pushed through $W_2$", bias="added")
affine_collapse.foil("with an activation the stack is not affine", phi=nn.Tanh)


def level_set(phi: Callable[[Tensor], Tensor], z: float, w: Tensor, b: float) -> Tensor:
    """Points with phi(w x + b) = z, found by scanning lines along w from where w x + b = 0."""
    start = torch.randn(8, len(w))
    start -= ((start @ w + b) / (w @ w))[:, None] * w
    tau = torch.linspace(-4, 4, 82)
    line = start[:, None] + tau[:, None] * w / (w @ w)  # the pre-activation moves by tau
    gap = phi(line @ w + b) - z
    flat = line[gap == 0]
    low, high = (part[gap[:, :-1] * gap[:, 1:] < 0] for part in (line[:, :-1], line[:, 1:]))
    rising = phi(low @ w + b) < z
    for _ in range(60):
        middle = (low + high) / 2
        left = (phi(middle @ w + b) < z) == rising
        low, high = (
            torch.where(left[:, None], middle, low),
            torch.where(left[:, None], high, middle),
        )
    return torch.cat([flat, low])


def softplus(t: Tensor) -> Tensor:
    """The softplus of complex numbers too, which torch's own refuses."""
    return (1 + t.exp()).log()


RIDGES = {
    "tanh": (torch.tanh, lambda t: 1 - t.tanh() ** 2, 0.5),
    "softplus": (softplus, torch.sigmoid, 1.0),
    "sin": (torch.sin, torch.cos, None),
    "relu": (torch.relu, None, 0.0),
    "abs": (torch.abs, None, 1.0),
}


@claim(by="identity", sources=("A-022", "B-096", "B-097", "B-098"), budget=0.5)
def ridge_function(profiles: tuple[str, ...] = ("tanh", "softplus", "sin"), length: float = 1.0):
    r"""Ridge functions: their level sets and sensitivity.

    A ridge function $f(x) = \phi(w^\top x + b)$, $w \ne 0$, is constant along directions
    orthogonal to $w$. Where $\phi$ is differentiable its gradient $\phi'(w^\top x + b)\, w$ is
    parallel to $w$ and has the norm $|\phi'(w^\top x + b)|\, \|w\|$, which does depend on the
    point. The level set of $z$ is the union of the parallel hyperplanes $w^\top x + b = c$,
    $c \in \phi^{-1}(z)$: one hyperplane orthogonal to $w$ if exactly one $c$ has $\phi(c) = z$
    (checked for injective $\phi$), otherwise several, or a slab or half-space where $\phi$ is flat.
    """
    d = 5
    for name in profiles:
        phi, derivative, z = RIDGES[name]
        w, b = torch.randn(d), float(torch.randn(()))
        f = lambda x, phi=phi, w=w, b=b: phi(x @ w.to(x) + b)  # noqa: E731
        x, along = torch.randn(20, d), torch.randn(20, d)
        along -= (along @ w)[:, None] * w / (w @ w)
        yield equals(f(x + along), f(x), profile=name)
        if derivative is not None:
            gradient = torch.stack([complex_step(f, x, e) for e in torch.eye(d)], 1)
            across = gradient - (gradient @ w)[:, None] * w / (w @ w)
            yield equals(across, 0.0, tol=1e-12 * (1 + float(w.norm())), profile=name)
            size = derivative(x @ w + b).abs() * w.norm() ** length
            yield equals(gradient.norm(dim=1), size, profile=name)
        if z is not None:
            members = level_set(phi, z, w, b)
            yield equals(f(members), z, profile=name)
            yield equals((members - members[0]) @ w, 0.0, profile=name)


ridge_function.foil("the gradient's norm without that of $w$", length=0.0)
ridge_function.foil("the level set of $|\\cdot|$ at 1 is two hyperplanes", profiles=("abs",))
ridge_function.erratum(
    "A-022",
    printed=r"$L_f(z) = \{x : \phi(w^\top x + b) = z\} \perp w$",
    right=r"$L_f(z) \perp w$ where exactly one $c$ has $\phi(c) = z$",
    why="for ReLU and $z = 0$ the level set is a half-space, which contains the direction $-w$",
    weight="soft",
    profiles=("relu",),
)
