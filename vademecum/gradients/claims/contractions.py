"""Contractions: tensors, and the chain rule as a sum over an index."""

from collections.abc import Callable
from functools import reduce
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, equals, integers
from vademecum.foundations.claims.matrix_calculus import dot
from vademecum.gradients import denominator_layout, numerator_layout, tensor_chain
from vademecum.gradients.claims.layouts import agree, partials, tanh_layer


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
    by="identity", sources=("D-385", "D-386", "D-387", "D-388", "E-279", "E-280", "E-281"),
    budget=0.5, short=r"(P \times_b Q)_{i k} = \sum_{j_1 \dots j_b} P_{i\, j_1 \dots j_b}"
    r" Q_{j_1 \dots j_b\, k}",
)  # fmt: skip
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

    Knobs:
        shared: Which shared axes are contracted, and in which order those of $Q$ are taken.
    """
    for r, s, t in (((2, 3), (3, 3), (2,)), ((3,), (2, 2, 2), (2, 4)), ((2,), (3, 2), (4,))):
        p, q, b = integers(*r, *s), integers(*s, *t), len(s)
        ours, theirs = list(range(len(r), p.ndim)), list(range(b))
        if shared == "reversed" and s == s[::-1]:
            theirs.reverse()
        if shared == "last only":
            ours, theirs = ours[-1:], theirs[-1:]
        stated, at = by_loops(p, q, b), {"b": b, "tol": 0.0}
        axes: Any = ours, theirs
        found = torch.tensordot(p, q, dims=axes)
        yield agree("product of torch", found, stated, **at)
        found = np.tensordot(p.numpy(), q.numpy(), axes=axes)
        yield agree("product of NumPy", torch.from_numpy(found), stated, **at)
        found = torch.tensordot(p, q, dims=b)
        yield equals("order of the product", found.ndim, len(r) + len(t), b=b)
        yield agree("product of torch over b axes", found, stated, **at)


tensor_contraction.foil("the order of the shared axes matters", shared="reversed")
tensor_contraction.foil("all shared axes are contracted, not one", shared="last only")


@claim(
    by="identity", sources=("D-389", "E-282"), budget=0.5, full={"cases": 100},
    short=r"\operatorname{mat}(P \times_b Q) = \operatorname{mat}(P)\, \operatorname{mat}(Q)",
)  # fmt: skip
def contraction_as_matmul(
    order: Literal["row-major", "column-major"] = "row-major", cases: int = 5
):
    r"""A contraction of tensors is a matrix product in disguise.

    Flatten the index groups, all in the same order: $P$ to a $(\prod r) \times (\prod s)$ matrix
    and $Q$ to a $(\prod s) \times (\prod t)$ matrix. Their product, given the shape $r \times t$,
    is the contraction $P \times_b Q$ over all shared axes. So the derivative of a composition of
    linear maps, which `tensor_chain` finds by matrix products, is this contraction.

    Knobs:
        order: In which order the shared axes of $Q$ are flattened; those of $P$ are in row-major
            order.
        cases: How many pairs of random shapes are drawn.
    """
    for _ in range(cases):
        r, s, t = (torch.randint(2, 4, (int(k),)).tolist() for k in torch.randint(2, 4, (3,)))
        p, q, b = integers(*r, *s), integers(*s, *t), len(s)
        rows, common, columns = "abc"[: len(r)], "ijk"[:b], "uvw"[: len(t)]
        wanted = torch.from_numpy(
            np.einsum(f"{rows}{common},{common}{columns}->{rows}{columns}", p.numpy(), q.numpy())
        )
        if order == "row-major":
            flat = q.reshape(prod(s), prod(t))
        else:
            flat = q.permute(*reversed(range(b)), *range(b, q.ndim)).reshape(prod(s), prod(t))
        stated, at = (p.reshape(-1, prod(s)) @ flat).reshape(*r, *t), {"b": b, "tol": 0.0}
        yield agree("contraction, against a product of matrices", wanted, stated, **at)
        stages = [lambda x, tensor=tensor: torch.tensordot(tensor, x, x.ndim) for tensor in (q, p)]
        found = tensor_chain(stages, integers(*t)).derivative
        yield agree("derivative of two linear maps", found, wanted, **at)


contraction_as_matmul.foil("both tensors must be flattened in one order", order="column-major")


@claim(
    by="identity", sources=("D-120", "E-110"), budget=0.5,
    short=r"\partial (X a)_i / \partial X_{jk} = \delta_{ij}\, a_k",
)  # fmt: skip
def matrix_vector_tensor(
    stated: Callable[[Tensor, Tensor], Tensor] = lambda x, a: torch.einsum(
        "ij,k->ijk", torch.eye(len(x)), a
    ),
):
    r"""The derivative of $X a$ with respect to $X$ is a tensor of order three.

    $\frac{\partial (X a)_i}{\partial X_{jk}} = \delta_{ij}\, a_k$, which is $I \otimes a^T$ after
    vectorisation (row by row), does not depend on $X$. Contracted with an upstream gradient $g$ it
    gives the outer product $g a^T$. Only the derivative in $a$ is a matrix: $X$ in numerator and
    $X^T$ in denominator layout. Checked for numbers, $X = 2$ and $a = 3$, and at two matrices of
    each kind, whole numbers included.

    Knobs:
        stated: The derivative as a function of $X$ and $a$.
    """
    two, three = torch.tensor([[2.0]]), torch.tensor([3.0])
    found = tensor_chain([lambda x: x @ three], two).derivative
    name = "derivative of $X a$ in $X$ for the numbers $X = 2$, $a = 3$"
    yield agree(name, found, stated(two, three).reshape(1, 1, 1), tol=0.0)
    for draw, (m, n) in product((torch.randn, integers), ((2, 2), (3, 4))):
        a, g, at = draw(n), draw(m), {"m": m, "n": n}
        for x in (draw(m, n), draw(m, n)):
            found = tensor_chain([lambda x, a=a: x @ a], x).derivative
            name = "derivative of $X a$ in $X$"
            yield agree(name, found, stated(x, a), **at)
            yield agree(name, found, partials(lambda x, a=a: dot(x, a), x), **at)
            flat = torch.kron(torch.eye(m), a[None])
            yield agree(f"{name}, as a matrix", found.reshape(m, -1), flat, **at)
            pulled = torch.tensordot(g, found, 1)
            yield agree(f"{name}, contracted with $g$", pulled, torch.outer(g, a), **at)
            product_in_a = lambda a, x=x: x @ a  # noqa: E731
            yield agree("derivative of $X a$ in $a$", numerator_layout(product_in_a, a), x, **at)
            found = denominator_layout(product_in_a, a)
            yield agree("derivative of $X a$ in $a$ in denominator layout", found, x.T, **at)


matrix_vector_tensor.foil(
    "the axes of X exchanged", stated=lambda x, a: torch.einsum("ij,k->ikj", torch.eye(len(x)), a)
)
matrix_vector_tensor.erratum(
    "D-120",
    printed=r"$\frac{\partial}{\partial \mathbf{X}}[\mathbf{X} \mathbf{a}] = \mathbf{X}^\top$ (the"
    r" scan shows a lower-case $\mathbf{x}$ in both places)",
    right=r"$\frac{\partial (X a)_i}{\partial X_{jk}} = \delta_{ij}\, a_k$",
    why=r"As scanned: a function linear in $X$ has a derivative that cannot depend on $X$: for"
    r" $1 \times 1$ matrices $\frac{d}{dX}(X a) = a$. The matrix is the denominator-layout"
    " derivative with respect to $a$. The letters of this line are not safely read.",
    weight="scan",
    refuted_by="derivative of $X a$ in $X$ for the numbers $X = 2$, $a = 3$",
    stated=lambda x, a: x.T,
)


@claim(
    by="identity", sources=("D-390", "E-283"), budget=0.5,
    short=r"\partial L / \partial W_{kl} = \sum_{ij} (\partial L / \partial y_{ij})\,"
    r" (\partial y_{ij} / \partial W_{kl})",
)  # fmt: skip
def tensor_chain_rule(
    contraction: Literal["ij,ijkl->kl", "ij,ijkl->jkl", "ji,ijkl->kl"] = "ij,ijkl->kl",
):
    r"""The chain rule for tensors contracts all axes of the value in between.

    For differentiable $y: \mathbb{R}^{d_1 \times d_2} \to \mathbb{R}^{d_3 \times d_4}$ and $L:
    \mathbb{R}^{d_3 \times d_4} \to \mathbb{R}$,
    $$\frac{\partial L}{\partial W} = \frac{\partial L}{\partial y} \times_{d_3, d_4}
    \frac{\partial y}{\partial W}, \qquad \frac{\partial L}{\partial W_{kl}} = \sum_{ij}
    \frac{\partial L}{\partial y_{ij}}\, \frac{\partial y_{ij}}{\partial W_{kl}},$$
    and so on for any number of stages between tensors of any order. Checked by the complex step
    for $y = \tanh(W X)$, $L = \sum_{ij} \sin(c_{ij} y_{ij})$, and for four stages.

    Knobs:
        contraction: Which axes of the two derivatives are summed over; those of $y$ exchanged only
            where they are of one length.
    """
    for rows in (4, 2):
        w, x, c = torch.randn(rows, 3), torch.randn(3, 4), torch.randn(rows, 4)
        stages = [lambda w, x=x: torch.tanh(dot(w, x)), lambda y, c=c: (c * y).sin().sum()]
        chain = tensor_chain(stages, w)
        inner, outer = chain.factors
        gradient = partials(lambda w, s=stages: s[1](s[0](w)), w)
        yield agree("derivative of $y$", inner, partials(stages[0], w), rows=rows)
        pattern = contraction if rows == 4 or contraction[:2] == "ij" else "ij,ijkl->kl"
        yield agree("gradient of $L$", gradient, torch.einsum(pattern, outer, inner), rows=rows)
        yield agree("gradient of $L$ by the library", chain.derivative, gradient, rows=rows)
    x, lift, layer, last = torch.randn(2), torch.randn(2, 3, 4), tanh_layer(3, 5), torch.randn(5, 4)
    stages = [
        lambda x: torch.tensordot(x.sin(), lift.to(x.dtype), 1),
        lambda y: y.exp().mean(-1),
        layer,
        lambda z: dot(z, last).reshape(2, 2),
    ]
    composed = lambda x: reduce(lambda value, stage: stage(value), stages, x)  # noqa: E731
    chain = tensor_chain(stages, x)
    yield agree("derivative of four stages", chain.derivative, partials(composed, x))
    yield agree("value of four stages", chain.values[-1], composed(x))


tensor_chain_rule.foil("one axis of y is left over", contraction="ij,ijkl->jkl")
tensor_chain_rule.foil("the axes of y are exchanged", contraction="ji,ijkl->kl")
