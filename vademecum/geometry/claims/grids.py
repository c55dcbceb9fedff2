"""Laplacians on grids: minus the Laplace operator, in the limit."""

import torch
from torch import Tensor

from vademecum import geometry
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import LinearOperator
from vademecum.geometry.claims._small_graphs import cycle, edges_of


def grid(side: int, N: int) -> Tensor:
    """The points of an N-dimensional grid, one in a row."""
    return torch.cartesian_prod(*[torch.arange(side)] * N).reshape(-1, N)


def grid_laplacian(points: Tensor) -> tuple[LinearOperator, Tensor]:
    """The Laplacian of the grid whose neighbours are at distance 1, and its inner nodes."""
    near = torch.cdist(points.double(), points.double(), p=1) == 1
    edges = near.nonzero().T
    made = geometry.graph_laplacian(edges, len(points))
    return made.operator, made.degrees == 2 * points.shape[1]


@claim(
    by="identity", sources=("C-187", "D-345"), budget=0.5,
    short=r"\tfrac{1}{h^2} L f \to -\Delta f,\quad \Delta f = \sum_n \partial^2 f / \partial x_n^2",
)  # fmt: skip
def discrete_laplace_operator(sign: int = -1, over: int = 12):
    r"""The graph Laplacian is minus the Laplace operator, on a grid.

    $\Delta f = \sum_n \partial^2 f / \partial x_n^2$ is the trace of the Hessian. On a grid of
    spacing $h$ the graph Laplacian satisfies $\frac{1}{h^2} L f \to -\Delta f$ at inner nodes, for
    smooth $f$ with an error of $\frac{h^2}{12} \sum_n \partial_n^4 f + O(h^4)$. On a path $L$
    applied to $x_m = m^2$ gives $-2$ at every inner node, and $-2 N$ for $\|x\|^2$ in $N$
    dimensions; on a cycle $L$ is the circulant second difference.

    *Proof.* $2 f(x) - f(x + h) - f(x - h) = -h^2 f''(x) - \frac{h^4}{12} f''''(x) - \dots$ by
    Taylor's formula. Checked in 1, 2 and 3 dimensions in whole numbers, and for $\sin x$ and
    $\sin x \cos y$ down to $h = 2^{-6}$, where the error over its leading term lies between
    $1 - h^2 / 30$ and 1.

    Knobs:
        sign: The sign before $\Delta f$.
        over: What $h^2$ is divided by in the error.
    """
    for N, side in ((1, 9), (2, 6), (3, 4)):
        points = grid(side, N)
        L, inner = grid_laplacian(points)
        image = L @ points.double().square().sum(1)
        yield equals("L of the squared norm", image[inner], sign * 2.0 * N, tol=0.0, N=N)
        at = torch.randn(N)
        hessian = torch.func.hessian(lambda x: x.square().sum())(at)
        yield equals("trace of its Hessian", torch.trace(hessian), 2.0 * N, tol=1e-13, N=N)
    for n in (3, 4, 7):
        row = torch.zeros(n)
        row[0], row[1], row[-1] = 2.0, row[1] - 1, row[-1] - 1
        circulant = torch.stack([row.roll(i) for i in range(n)])
        ring = geometry.graph_laplacian(edges_of(cycle(n))[0], n).matrix.to_dense()
        yield equals("L of a cycle", ring, circulant, tol=0.0, n=n)
    for h in (2.0**-3, 2.0**-4, 2.0**-5, 2.0**-6):
        for N in (1, 2):
            points = grid(24 if N == 1 else 10, N)
            L, inner = grid_laplacian(points)
            x = 0.3 + h * points
            f = x[:, 0].sin() * (x[:, 1].cos() if N == 2 else 1)
            error = (L @ f / h**2 + sign * N * f)[inner] / f[inner]  # as Delta f = -N f
            leading, at = -N * h**2 / over, {"h": h, "N": N}
            rounding = 4 * N * 1e-15 / h**2 / abs(leading) / float(f[inner].abs().min())
            yield at_most("error over its leading term", error / leading, 1.0, tol=rounding, **at)
            yield at_least(
                "error over it, from below", error / leading, 1 - h**2 / 30, tol=rounding, **at
            )


discrete_laplace_operator.foil("plus the Laplace operator", sign=1,
                               refuted_by="L of the squared norm")  # fmt: skip
discrete_laplace_operator.foil(
    "an error of a sixth of its order", over=6, refuted_by="error over it, from below"
)
