"""What the course claims of tensors, of contractions, and of the chain rule as one."""

from collections.abc import Callable
from functools import reduce
from itertools import product
from math import prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, equals, integers
from vademecum.foundations.claims.matrix_calculus import dot
from vademecum.gradients.claims.layouts import agree, partials, tanh_layer
from vademecum.gradients.layouts import denominator_layout, numerator_layout, tensor_chain


def by_loops(p: Tensor, q: Tensor, shared: int) -> Tensor:
    """The contraction written out, one entry and one term after the other."""
    a = p.ndim - shared
    r, s, t = p.shape[:a], p.shape[a:], q.shape[shared:]
    found = torch.zeros(r + t)
    for i in product(*map(range, r)):
        for k in product(*map(range, t)):
            found[i + k] = sum(float(p[i + j] * q[j + k]) for j in product(*map(range, s)))
    return found


@claim(
    by="identity",
    sources=("D-385", "D-386", "D-387", "D-388", "E-279", "E-280", "E-281"),
    budget=0.5,
)
def tensor_contraction(shared: Literal["in order", "reversed", "last only"] = "in order"):
    r"""The product of two tensors contracts the axes that they share.

    A tensor of order $k$ is an array $T \in \mathbb{R}^{d_1 \times \dots \times d_k}$. For $P \in
    \mathbb{R}^{r_1 \times \dots \times r_a \times s_1 \times \dots \times s_b}$ and $Q \in
    \mathbb{R}^{s_1 \times \dots \times s_b \times t_1 \times \dots \times t_c}$ the product
    $P \times_b Q$ has order $a + c$ and the entries
    $$T_{i_1 \dots i_a\, k_1 \dots k_c} = \sum_{j_1 \dots j_b} P_{i_1 \dots i_a\, j_1 \dots j_b}\,
    Q_{j_1 \dots j_b\, k_1 \dots k_c},$$
    each the inner product of two slices. This is `torch.tensordot` and `numpy.tensordot` with
    `b` axes. Checked against loops, in whole numbers.
    """
    for r, s, t in (((2, 3), (3, 3), (2,)), ((3,), (2, 2, 2), (2, 2))):
        p, q, b = integers(*r, *s), integers(*s, *t), len(s)
        ours, theirs = list(range(len(r), p.ndim)), list(range(b))
        if shared == "reversed":
            theirs.reverse()
        if shared == "last only":
            ours, theirs = ours[-1:], theirs[-1:]
        stated = by_loops(p, q, b)
        yield equals(stated.ndim, len(r) + len(t), b=b)
        yield agree(torch.tensordot(p, q, dims=(ours, theirs)), stated, b=b)
        library = np.tensordot(p.numpy(), q.numpy(), axes=(ours, theirs))
        yield agree(torch.from_numpy(library), stated, b=b)


tensor_contraction.foil("the order of the shared axes matters", shared="reversed")
tensor_contraction.foil("all shared axes are contracted, not one", shared="last only")


@claim(by="identity", sources=("D-389", "E-282"), budget=0.5, full={"cases": 100})
def contraction_as_matmul(
    order: Literal["row-major", "column-major"] = "row-major", cases: int = 5
):
    r"""A contraction of tensors is a matrix product in disguise.

    Flatten the index groups, all in the same order: $P$ to a $(\prod r) \times (\prod s)$ matrix
    and $Q$ to a $(\prod s) \times (\prod t)$ matrix. Their product, given the shape $r \times t$,
    is the contraction $P \times_b Q$ over all shared axes. So the derivative of a composition of
    linear maps, which `tensor_chain` finds by matrix products, is this contraction.
    """
    for _ in range(cases):
        r, s, t = (torch.randint(2, 4, (int(k),)).tolist() for k in torch.randint(2, 4, (3,)))
        p, q, b = integers(*r, *s), integers(*s, *t), len(s)
        rows, common, columns = "abc"[: len(r)], "ijk"[:b], "uvw"[: len(t)]
        stated = torch.from_numpy(
            np.einsum(f"{rows}{common},{common}{columns}->{rows}{columns}", p.numpy(), q.numpy())
        )
        if order == "row-major":
            flat = q.reshape(prod(s), prod(t))
        else:
            flat = q.permute(*reversed(range(b)), *range(b, q.ndim)).reshape(prod(s), prod(t))
        yield agree((p.reshape(-1, prod(s)) @ flat).reshape(*r, *t), stated, b=b)
        stages = [lambda x, tensor=tensor: torch.tensordot(tensor, x, x.ndim) for tensor in (q, p)]
        yield agree(tensor_chain(stages, integers(*t)).derivative, stated, b=b)


contraction_as_matmul.foil("both tensors must be flattened in one order", order="column-major")


@claim(by="identity", sources=("D-120", "E-110"), budget=0.5)
def matrix_vector_tensor(
    stated: Callable[[Tensor, Tensor], Tensor] = lambda x, a: torch.einsum(
        "ij,k->ijk", torch.eye(len(x)), a
    ),
):
    r"""The derivative of $X a$ with respect to $X$ is a tensor of order three.

    $\frac{\partial (X a)_i}{\partial X_{jk}} = \delta_{ij}\, a_k$, which is $I \otimes a^T$ after
    vectorisation (row by row), does not depend on $X$. Contracted with an upstream gradient $g$ it
    gives the outer product $g a^T$. Only the derivative in $a$ is a matrix: $X$ in numerator and
    $X^T$ in denominator layout. Checked at two matrices $X$, whole numbers included.
    """
    for draw, (m, n) in product((torch.randn, integers), ((1, 1), (3, 4))):
        a, g = draw(n), draw(m)
        for x in (draw(m, n), draw(m, n)):
            found = tensor_chain([lambda x, a=a: x @ a], x).derivative
            claimed = stated(x, a)
            yield agree(found, claimed.reshape(1, 1, 1) if m == n == 1 else claimed, m=m)
            yield agree(found, partials(lambda x, a=a: dot(x, a), x), m=m)
            yield agree(found.reshape(m, -1), torch.kron(torch.eye(m), a[None]), m=m)
            yield agree(torch.tensordot(g, found, 1), torch.outer(g, a), m=m)
            yield agree(numerator_layout(lambda a, x=x: x @ a, a), x, m=m)
            yield agree(denominator_layout(lambda a, x=x: x @ a, a), x.T, m=m)


matrix_vector_tensor.foil(
    "the axes of X exchanged", stated=lambda x, a: torch.einsum("ij,k->ikj", torch.eye(len(x)), a)
)
matrix_vector_tensor.erratum(
    "D-120",
    printed=r"$\frac{\partial}{\partial X}[X a] = X^T$",
    right=r"$\frac{\partial (X a)_i}{\partial X_{jk}} = \delta_{ij}\, a_k$",
    why=r"a function that is linear in $X$ has a derivative without $X$: $a$ for $1 \times 1$"
    r" matrices; the printed one is that in $a$, in denominator layout",
    stated=lambda x, a: x.T,
)


@claim(by="identity", sources=("D-390", "E-283"), budget=0.5)
def tensor_chain_rule(contraction: str = "ij,ijkl->kl"):
    r"""The chain rule for tensors contracts all axes of the value in between.

    For differentiable $y: \mathbb{R}^{d_1 \times d_2} \to \mathbb{R}^{d_3 \times d_4}$ and $L:
    \mathbb{R}^{d_3 \times d_4} \to \mathbb{R}$,
    $$\frac{\partial L}{\partial W} = \frac{\partial L}{\partial y} \times_{d_3, d_4}
    \frac{\partial y}{\partial W}, \qquad \frac{\partial L}{\partial W_{kl}} = \sum_{ij}
    \frac{\partial L}{\partial y_{ij}}\, \frac{\partial y_{ij}}{\partial W_{kl}},$$
    and so on for any number of stages between tensors of any order. Checked by the complex step
    for $y = \tanh(W X)$, $L = \sum_{ij} \sin(c_{ij} y_{ij})$, and for four stages.
    """
    for rows in (4, 2):
        w, x, c = torch.randn(rows, 3), torch.randn(3, 4), torch.randn(rows, 4)
        stages = [lambda w, x=x: torch.tanh(dot(w, x)), lambda y, c=c: (c * y).sin().sum()]
        chain = tensor_chain(stages, w)
        inner, outer = chain.factors
        gradient = partials(lambda w, s=stages: s[1](s[0](w)), w)
        yield agree(inner, partials(stages[0], w), rows=rows)
        yield agree(torch.einsum(contraction, outer, inner), gradient, rows=rows)
        yield agree(chain.derivative, gradient, rows=rows)
    x, lift, layer, last = torch.randn(2), torch.randn(2, 3, 4), tanh_layer(3, 5), torch.randn(5, 4)
    stages = [
        lambda x: torch.tensordot(x.sin(), lift.to(x.dtype), 1),
        lambda y: y.exp().mean(-1),
        layer,
        lambda z: dot(z, last).reshape(2, 2),
    ]
    composed = lambda x: reduce(lambda value, stage: stage(value), stages, x)  # noqa: E731
    yield agree(tensor_chain(stages, x).derivative, partials(composed, x), stages=len(stages))


tensor_chain_rule.foil("one axis of y is left over", contraction="ij,ijkl->jkl")
tensor_chain_rule.foil("the axes of y are exchanged", contraction="ji,ijkl->kl")
