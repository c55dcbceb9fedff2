"""Convolutions as matrices: constant along their diagonals."""

from typing import Any, Literal

import numpy as np
import torch
from scipy.linalg import toeplitz as scipy_toeplitz
from torch import nn

from vademecum.claims import claim, equals
from vademecum.convolution import conv_matrix, convolve
from vademecum.convolution.claims._signals import crooked, flipped, whole


@claim(
    by="identity", sources=("A-127", "A-128", "B-271", "B-272", "C-109", "D-202"), budget=0.5,
    short=r"f * h = T f,\quad T_{i j} = h[i - j],\quad T \in \mathbb{R}^{(n + k - 1) \times n}",
)  # fmt: skip
def toeplitz(matrix: Literal["Toeplitz", "Hankel", "circulant"] = "Toeplitz"):
    r"""Convolution as a banded Toeplitz matrix.

    A Toeplitz matrix is constant along its diagonals, $A_{i j} = a_{i - j}$. Convolving a signal of
    length $n$ with a fixed $k$-tap kernel is the product with the $(n + k - 1) \times n$ banded
    Toeplitz matrix $T_{i j} = h[i - j]$, whose columns are the kernel shifted down one place each;
    keeping a contiguous block of its rows gives the same and valid modes. A 1-D convolution layer
    is thus a dense layer with tied and mostly zero weights: $n k$ of them are not zero, and $k$
    differ. Exact in whole numbers.

    Knobs:
        matrix: Whose entry $(i, j)$ it is: $h[i - j]$, $h[i + j]$, or $h[(i - j) \bmod n]$ in a
            matrix that has no more rows than columns.
    """
    for n, k in ((3, 3), (5, 2), (12, 5), (7, 4)):
        f, h = crooked(n), crooked(k)
        h[h == 0] = 1
        rows = n if matrix == "circulant" else n + k - 1
        index = {"Toeplitz": lambda i, j: i - j, "Hankel": lambda i, j: i + j,
                 "circulant": lambda i, j, n=n: (i - j) % n}[matrix]  # fmt: skip
        T = torch.zeros(n + k - 1, n).long()
        for i, j in np.ndindex(rows, n):
            T[i, j] = h[index(i, j)] if 0 <= index(i, j) < k else 0
        at = {"n": n, "k": k}
        middle = (k - 1) // 2
        ends: list[Any] = [("full", 0, n + k - 1), ("same", middle, middle + n)]
        ends.append(("valid", k - 1, n))
        for mode, start, stop in ends:
            block = T[start:stop]
            stated = np.convolve(f.numpy(), h.numpy(), mode)
            yield equals("product with a block of rows", block @ f, stated, mode=mode, **at)
            found = convolve(f, h, mode=mode)
            yield equals("convolve", found, stated, mode=mode, **at)
        column, row = T[:, 0].numpy(), T[0].numpy()
        yield equals("matrix with constant diagonals", T, scipy_toeplitz(column, row), **at)
        yield equals("entries that are not zero", int((T != 0).sum()), n * k, **at)
        layer = nn.Conv1d(1, 1, k, padding=k - 1, bias=False)
        layer.weight.data = flipped(h).double().view(1, 1, k)
        A = conv_matrix(layer, (1, n))
        yield equals("matrix of the layer", A.dense(), T.double(), tol=0.0, **at)
        y = whole(n + k - 1)
        found = A.T @ y.double()
        yield equals("product with its transpose", found, (T.T @ y).double(), tol=0.0, **at)


toeplitz.foil("entries that are constant along the other diagonals", matrix="Hankel")
toeplitz.foil("what leaves at the bottom does not come back at the top", matrix="circulant")
