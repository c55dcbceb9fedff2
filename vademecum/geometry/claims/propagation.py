"""The spectrum of a GCN: what its propagation does to frequencies."""

from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum import geometry
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.geometry.claims._small_graphs import (
    bipartite_components,
    complete_bipartite,
    cycle,
    edges_of,
    from_pairs,
    laplacian_of,
    path,
    random_graph,
    torus,
)


def propagation(A: Tensor) -> Tensor:
    """The matrix that a GCN multiplies by, from edges in random order."""
    edges, weight = edges_of(A)
    return geometry.gcn_norm(edges, len(A), weight=weight).dense()


@claim(
    by="identity", sources=("B-434",), budget=0.3,
    short=r"\bar A x = (\tfrac13, \tfrac13, \tfrac13) * x \quad\text{on a cycle}",
)  # fmt: skip
def gcn_cycle(own: float = 1.0, graph: Literal["cycle", "path"] = "cycle"):
    r"""On a cycle, a GCN is a convolution.

    On the $n$-cycle, $n \ge 3$, $\bar A$ is circulant with entries $\frac13$ on three diagonals, so
    that graph convolution is circular convolution with the window $(\frac13, \frac13, \frac13)$.
    Likewise on other regular lattices with periodic boundary: on a square torus with at least 3
    nodes a side the window has $\frac15$ at the node and its four neighbours.

    *Proof.* All degrees with the self-loop are equal. Checked for $n$ from 3 to 12 against
    convolution by fast Fourier transforms, and for tori of 3, 4 and 5 nodes a side.

    Knobs:
        own: How much a node itself counts in the window, beside neighbours that count 1.
        graph: Which graph; a path has ends.
    """
    for n in range(3, 13):
        A = propagation(cycle(n) if graph == "cycle" else path(n))
        row = torch.zeros(n)
        row[0], row[1], row[-1] = own, 1.0, 1.0
        row /= 2 + own
        circulant = torch.stack([row.roll(i) for i in range(n)])
        yield equals("entries", A, circulant, tol=1e-15, n=n)
        x = torch.randn(n)
        wave = np.fft.ifft(np.fft.fft(row.numpy()) * np.fft.fft(x.numpy())).real
        layer = geometry.GCNConv(1, 1, bias=False).requires_grad_(False)
        torch.nn.init.ones_(layer.lin.weight)
        edges = edges_of(cycle(n) if graph == "cycle" else path(n))[0]
        yield equals("image of a signal", layer(x[:, None], edges)[:, 0], wave, tol=1e-14, n=n)
    for side in (3, 4, 5):
        x = torch.randn(side, side)
        image = (propagation(torus(side)) @ x.flatten()).reshape(side, side)
        near = sum(x.roll(step, axis) for step, axis in product((1, -1), (0, 1)))
        yield equals("image on a torus", image, (own * x + near) / (4 + own), tol=1e-14, side=side)


gcn_cycle.foil("no self-loop: the window (1/2, 0, 1/2)", own=0.0)
gcn_cycle.foil("a path, whose ends break it", graph="path", refuted_by="entries")


@claim(
    by="identity", sources=("A-216", "B-438", "C-182", "D-341"), budget=0.6,
    short=r"-1 < \lambda(\tilde D^{-1/2} \tilde A \tilde D^{-1/2}) \le 1",
)  # fmt: skip
def gcn_spectrum(least: Literal["-1 + 2 / d", "0"] = "-1 + 2 / d", cases: int = 40):
    r"""The renormalised matrix of a GCN has its spectrum in $(-1, 1]$.

    The renormalisation trick replaces $I + D^{-1/2} A D^{-1/2}$ by
    $\bar A = \tilde D^{-1/2} \tilde A \tilde D^{-1/2}$, whose eigenvalues lie in $(-1, 1]$ with 1
    attained at $\tilde D^{1/2} \mathbf 1$, for non-negative weights: deep stacks do not blow up.
    $\bar A$ need not be positive semidefinite; its eigenvalues are at least
    $-1 + 2 / \tilde d_{\max}$, which $K_{n,n}$ attains with $-\frac{n - 1}{n + 1}$.

    *Proof.* With $y = \tilde D^{-1/2} x$ the form of $I - \bar A$ is
    $\sum_{i<j} a_{ij} (y_i - y_j)^2 \ge 0$, that of $I + \bar A$ is $y^\top (D + A + 2 I) y
    \ge 2 \|y\|^2$. Checked on random graphs with and without weights, isolated nodes among them;
    the path of three nodes has the eigenvalues $1, \frac12, -\frac16$.

    Knobs:
        least: The bound from below.
        cases: How many random graphs are drawn.
    """
    three = torch.linalg.eigvalsh(propagation(path(3)))
    floor = -1 + 2 / 3 if least != "0" else 0.0
    yield at_least("eigenvalues of the path of three nodes", three, floor, tol=1e-14)
    yield equals("the same", three, torch.tensor([-1 / 6, 1 / 2, 1.0]), tol=1e-14)
    for n in (1, 2, 5, 8):
        values = torch.linalg.eigvalsh(propagation(complete_bipartite(n, n)))
        yield equals("least eigenvalue of K_n,n", values[0], -(n - 1) / (n + 1), tol=1e-13, n=n)
    for case in range(cases):
        n = 3 + case % 9
        A = random_graph(n, 0.1 + 0.1 * (case % 7), most=1 + 3 * (case % 2))
        P, d = propagation(A), 1 + A.sum(1)
        values = torch.linalg.eigvalsh(P)
        bound = -1 + 2 / float(d.max()) if least != "0" else 0.0
        yield at_least("eigenvalues", values, bound, tol=1e-13, n=n)
        yield equals("largest eigenvalue", values[-1], 1.0, tol=1e-13, n=n)
        yield equals("image of the roots of degrees", P @ d.sqrt(), d.sqrt(), tol=1e-13, n=n)
        x = torch.randn(n)
        deep = (torch.linalg.matrix_power(P, 100) @ x).norm()
        yield at_most("norm after 100 layers", deep, x.norm(), tol=1e-11, n=n)


gcn_spectrum.erratum(
    "A-216",
    printed=r"$\lambda_{max}(\tilde D^{-1/2}\tilde A\tilde D^{-1/2})=1,\ \lambda_{min}\ge0$",
    right=r"$\lambda_{\max} = 1$, $\lambda_{\min} > -1$",
    why=r"The path on three nodes has the eigenvalues $1, \frac12, -\frac16$, and $K_{50,50}$"
    r" reaches $-0.961$. Stability needs only $|\lambda| \le 1$.",
    weight="hard",
    refuted_by="eigenvalues of the path of three nodes",
    least="0",
)


@claim(
    by="identity", sources=("B-437",), budget=0.5,
    short=r"0 \le \lambda\big(\theta (I + D^{-1/2} A D^{-1/2})\big) \le 2 \theta",
)  # fmt: skip
def two_term_filter(loops: bool = False, largest: Literal["2 theta", "2"] = "2 theta"):
    r"""Before renormalisation, the filter of two terms doubles a signal.

    For a graph without isolated nodes and with non-negative weights $D^{-1/2} A D^{-1/2}$ has its
    spectrum in $[-1, 1]$ with 1 attained, so $\theta (I + D^{-1/2} A D^{-1/2})$, $\theta > 0$, has
    eigenvalues in $[0, 2 \theta]$ with $2 \theta$ attained, and 0 if and only if a component is
    bipartite. For $\theta = 1$ repeated application may blow up, $2^K$ times after $K$ layers,
    which motivates renormalisation.

    The filter is $2 \theta x - \theta \mathcal L x$ by `polynomial_filter` and the normalised
    Laplacian, on the graph with edges 01, 12, 23, 34, 13 and on random ones.

    Knobs:
        loops: Whether $A + I$ stands for $A$ beside the old degrees.
        largest: The largest eigenvalue.
    """
    given = from_pairs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (1, 3)])
    drawn = [
        random_graph(4 + k % 6, 0.15 * (k % 4), most=1 + k % 3, linked=True) for k in range(20)
    ]
    for k, A in enumerate((given, path(6), complete_bipartite(2, 3), *drawn)):
        n, theta, d = len(A), (1.0, 0.4, 3.0)[k % 3], A.sum(1)
        c, L = theta * torch.tensor([2.0, -1.0]), laplacian_of(A, normalization="sym")

        def layer(x: Tensor, L=L, c=c, theta=theta, d=d) -> Tensor:
            extra = theta * x / d[:, None] if loops else 0
            return geometry.polynomial_filter(L, x, c) + extra

        H, at = layer(torch.eye(n)), {"n": n, "theta": theta}
        values, tol = torch.linalg.eigvalsh(H), 1e-13 * theta
        stated = 2 * theta if largest == "2 theta" else 2.0
        yield equals("largest eigenvalue", values[-1], stated, tol=tol, **at)
        root = d.rsqrt()
        entries = theta * (torch.eye(n) + root[:, None] * A * root)
        yield equals("matrix", H, entries, tol=1e-13, **at)
        yield at_least("eigenvalues", values, 0.0, tol=tol, **at)
        zeros = int((values < 1e-9).sum())
        yield equals("eigenvalues that are 0", zeros, bipartite_components(A), **at)
        x = d.sqrt()[:, None]
        for _ in range(10):
            x = layer(x)
        grown = float(x.norm() / d.sqrt().norm())
        yield equals("growth over 10 layers", grown, (2 * theta) ** 10, tol=1e-11, **at)


two_term_filter.erratum(
    "B-437",
    printed=r"$H(\theta_0, \theta_1) = \theta_0 I + \theta_1 (D^{-\frac{1}{2}} \tilde{\mathbf{A}}"
    r" D^{-\frac{1}{2}})$ and $\theta_0 = \theta_1$ then largest eigenvalue is 2",
    right=r"$\theta (I + D^{-1/2} A D^{-1/2})$ has the largest eigenvalue $2 \theta$",
    why=r"The value 2 belongs to the loop-free $A$ with its own degrees and to $\theta = 1$. With"
    r" $\tilde A = A + I$ and the old degrees it is larger, 2.567 for the edges 01, 12, 23, 34, 13;"
    r" and for $\theta_0 = \theta_1 = \theta$ it is $2 \theta$.",
    weight="hard",
    refuted_by="largest eigenvalue",
    loops=True,
)
two_term_filter.foil(r"2 whatever $\theta$ is", largest="2", refuted_by="largest eigenvalue")
