"""Gradients of kernels: and the transposed convolution."""

from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import claim, complex_step, equals, integers
from vademecum.convolution import (
    LocallyConnected2d,
    conv_matrix,
    conv_output_size,
    convolve,
    rot180,
)
from vademecum.gradients import conv_weight_grad


def layer_of(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """A layer without padding, entry by entry: the correlation of an array with a kernel."""
    shape = [n - k + 1 for n, k in zip(x.shape, h.shape, strict=True)]
    y = np.zeros(shape, np.result_type(x, h))
    for at in np.ndindex(*h.shape):
        y = y + h[at] * x[tuple(slice(i, i + n) for i, n in zip(at, shape, strict=True))]
    return y


def untied(x: np.ndarray, h: np.ndarray, g: np.ndarray) -> np.ndarray:
    r"""The terms $\partial R / \partial x_i \cdot \partial x_i / \partial h_j$, positions first."""
    rate = g * (1 - np.tanh(layer_of(x, h)) ** 2)
    terms = np.zeros((*g.shape, *h.shape))
    for i, j in product(np.ndindex(*g.shape), np.ndindex(*h.shape)):
        terms[i + j] = rate[i] * x[tuple(a + b for a, b in zip(i, j, strict=True))]
    return terms


@claim(
    by="identity",
    sources=("A-133", "B-283"),
    budget=1.0,
    short=r"\frac{\partial R}{\partial h_j} ="
    r" \sum_i \frac{\partial R}{\partial x_i} \frac{\partial x_i}{\partial h_j}",
)
def shared_weight_gradient(over_positions: Literal["sum", "mean"] = "sum"):
    r"""The gradient of a shared weight is the sum over the positions that share it.

    Every output position uses the kernel weight $h_j^l$, so that $\frac{\partial R}{\partial h_j^l}
    = \sum_i \frac{\partial R}{\partial x_i^l} \frac{\partial x_i^l}{\partial h_j^l}$; equivalently
    it is the sum of the gradients of the untied copies in a locally connected layer.

    *Proof.* The chain rule for $h \mapsto (h, \dots, h)$, one copy for each position.

    Checked for layers with tanh along one and two axes and a random upstream gradient, by the
    complex step; the untied copies are those of `LocallyConnected2d`.

    Knobs:
        over_positions: What is made of the terms of all positions.
    """
    for shape, size in (((9,), (3,)), ((6, 5), (3, 2)), ((4, 7), (2, 4))):
        x, h = torch.randn(shape).numpy(), torch.randn(size).numpy()
        g = torch.randn([n - k + 1 for n, k in zip(shape, size, strict=True)]).numpy()
        at = {"axes": len(shape), "kernel": " by ".join(map(str, size))}
        truth = complex_step(lambda h, x=x, g=g: np.array((g * np.tanh(layer_of(x, h))).sum()), h)
        terms = torch.from_numpy(untied(x, h, g)).flatten(0, len(shape) - 1)
        stated = terms.sum(0) if over_positions == "sum" else terms.mean(0)
        yield equals("derivative in the shared kernel", truth, stated, **at)
        rate = torch.from_numpy(g * (1 - np.tanh(layer_of(x, h)) ** 2))
        ours = conv_weight_grad(torch.from_numpy(x)[None, None], rate[None, None], size)[0, 0]
        yield equals("input correlated with the upstream gradient", ours, stated, **at)
        if len(shape) == 2:
            layer = LocallyConnected2d(1, 1, shape, size, bias=False)
            layer.weight.data.copy_(torch.from_numpy(h).expand_as(layer.weight))
            y = torch.tanh(layer(torch.from_numpy(x)[None, None]))[0, 0]
            (copies,) = torch.autograd.grad((torch.from_numpy(g) * y).sum(), layer.weight)
            copies = copies.flatten(0, 1)[:, 0, 0]
            whole = copies.sum(0) if over_positions == "sum" else copies.mean(0)
            yield equals("gradients of the untied copies together", whole, truth, **at)


shared_weight_gradient.foil("the mean over positions", over_positions="mean")


def valid(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The valid convolution, entry by entry."""
    return layer_of(x, np.flip(w))


def full(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The full convolution along one axis, entry by entry."""
    y = np.zeros(len(x) + len(w) - 1, np.result_type(x, w))
    for i, j in product(range(len(x)), range(len(w))):
        y[i + j] += x[i] * w[j]
    return y


def paired(g: np.ndarray, source: np.ndarray, taps: int) -> list[float]:
    r"""The sums $\sum_k g_k\, s_{k-i}$ for $i$ below the number of taps."""
    places = range(len(g))
    return [
        sum(g[k] * source[k - i] for k in places if 0 <= k - i < len(source)) for i in range(taps)
    ]


@claim(
    by="identity",
    sources=("B-284", "B-285", "D-214"),
    budget=1.0,
    short=r"\partial_w v^\top \mathrm{vec}\, \sigma(x * w) = \mathrm{rot}_\pi(x)"
    r" * (\mathrm{mat}(v) \odot \sigma'(x * w))",
)
def kernel_gradient(
    rotated: bool = True,
    slope: bool = True,
    pairing: Literal["input", "output"] = "input",
):
    r"""The gradient in a kernel is a convolution with the rotated input.

    For a valid convolution $x * w$ of a $d \times d$ input with a $q \times q$ kernel,
    $r = d - q + 1$, and $f(x) = v^\top \mathrm{vec}(\sigma(x * w))$,

    $$\frac{\partial f}{\partial w_{ab}} = \sum_{k,l=1}^r \mathrm{mat}(v)_{kl}\,
    \sigma'((x * w)_{kl})\, x_{k+q-a,\,l+q-b} = \big(\mathrm{rot}_\pi(x) * (\mathrm{mat}(v) \odot
    \sigma'(x * w))\big)_{ab} .$$

    Along one axis, with $y^{(l)} = y^{(l-1)} * w$ and the upstream gradient
    $g = \partial R / \partial y^{(l)}$: $\partial R / \partial w_i = \sum_k g_k\, y^{(l-1)}_{k-i}$,
    with the input of the layer.

    *Proof.* $(x * w)_{kl} = \sum_{ab} w_{ab}\, x_{k+q-a,\,l+q-b}$ is linear in $w$; a valid
    convolution of $\mathrm{rot}_\pi(x)$ with an $r \times r$ array is the correlation with $x$,
    rotated.

    Checked for $\sigma = \tanh$, $d = 6$, $q = 3$, and other sizes, by the complex step.

    Knobs:
        rotated: Whether the input is rotated.
        slope: Whether the factor $\sigma'$ is there.
        pairing: Whether the upstream gradient meets the layer's input or its own output.
    """
    for d, q in ((6, 3), (5, 2), (7, 5)):
        r, at = d - q + 1, {"d": d, "q": q}
        x, w, v = (torch.randn(n, n).numpy() for n in (d, q, r))
        truth = complex_step(lambda w, x=x, v=v: np.array((v * np.tanh(valid(x, w))).sum()), w)
        rate = v * (1 - np.tanh(valid(x, w)) ** 2) if slope else v
        # in indices from 1, as stated
        sums = [
            [
                sum(rate[k - 1, l - 1] * x[k + q - a - 1, l + q - b - 1]
                    for k, l in product(range(1, r + 1), repeat=2))
                for b in range(1, q + 1)
            ]
            for a in range(1, q + 1)
        ]  # fmt: skip
        yield equals("derivative in the kernel, as a sum", truth, sums, **at)
        array = torch.from_numpy(x)
        array = rot180(array) if rotated else array
        found = convolve(array, torch.from_numpy(rate), mode="valid")
        yield equals("derivative in the kernel, as a convolution", truth, found, **at)
    for n, taps in ((7, 3), (5, 4)):
        x, w, g = (torch.randn(m).numpy() for m in (n, taps, n + taps - 1))
        truth = complex_step(lambda w, x=x, g=g: np.array((g * full(x, w)).sum()), w)
        source = x if pairing == "input" else full(x, w)
        at = {"n": n, "taps": taps}
        yield equals("derivative along one axis", truth, paired(g, source, taps), **at)
    y = full(np.array([1.0]), np.array([2.0, 3.0]))
    source = np.array([1.0]) if pairing == "input" else y
    found = paired(np.array([1.0, 0.0]), source, 2)[0]
    yield equals("derivative in the first of the taps 2, 3 at the input 1", 1.0, found)


kernel_gradient.foil("without the rotation of the input", rotated=False)
kernel_gradient.foil(r"without $\sigma'$", slope=False)
kernel_gradient.foil("paired with the layer's own output", pairing="output")
kernel_gradient.erratum(
    "D-214",
    printed=r"$\frac{\partial \mathcal R}{\partial \mathbf y^{(l)}}$ known,"
    r" $\mathbf y^{(l+1)} = \mathbf y^{(l)} * \mathbf w$, then"
    r" $\frac{\partial y_k^{(l)}}{\partial w_i}$ through $[\mathbf y^{(l)} * \mathbf w]_k$",
    right=r"$\mathbf y^{(l)} = \mathbf y^{(l-1)} * \mathbf w$, and"
    r" $\frac{\partial \mathcal R}{\partial w_i} = \sum_k g_k\, y^{(l-1)}_{k-i}$",
    why=r"Off by one layer against the block's own definitions ($\mathbf y^{(l-1)}$ is the input of"
    r" layer $l$) and its next line: the gradient at $y^{(l)}$ paired with $y^{(l)}$ as the input"
    r" is wrong. Input $y^{(0)} = (1)$, taps $(2, 3)$, $\mathcal R = y^{(1)}_0$:"
    r" $\partial \mathcal R / \partial w_0 = 1$, the printed pairing gives 2.",
    weight="hard",
    refuted_by="derivative in the first of the taps 2, 3 at the input 1",
    pairing="output",
)


def matrix_of(w: Tensor, size: int, outputs: int, S: int, P: int, d: int) -> Tensor:
    """The matrix of a convolution along one axis, entry by entry."""
    A = torch.zeros(outputs, size)
    for o, t in product(range(outputs), range(len(w))):
        if 0 <= (i := S * o + d * t - P) < size:
            A[o, i] += w[t]
    return A


@claim(
    by="identity",
    sources=("D-249",),
    budget=1.0,
    short=r"\langle A x, y \rangle = \langle x, A^\top y \rangle, \quad"
    r" I \mapsto (I - 1) S - 2 P + d (K - 1) + 1",
)
def transposed_convolution(
    is_its: Literal["adjoint", "inverse"] = "adjoint",
    doubling: Literal["transposed", "nearest"] = "transposed",
):
    r"""The transposed convolution is the adjoint of a convolution.

    The up-convolution of a decoder with kernel $K$, stride $S$, padding $P$ and dilation $d$ is the
    product with the transpose of the matrix $A$ of the convolution with these,
    $\langle A x, y \rangle = \langle x, A^\top y \rangle$. It turns length $I$ into
    $(I - 1) S - 2 P + d (K - 1) + 1$, the shortest input that the convolution maps to $I$ outputs
    (up to $S - 1$ longer ones need output padding); so $K = S = 2$ doubles the resolution. It is
    the backward pass of the convolution and its adjoint, not its inverse.

    *Proof.* Both are $\sum w_t\, x_{S o + d t - P}\, y_o$; the gradient of $y^\top A x$ in $x$ is
    $A^\top y$.

    Checked in whole numbers for all $K \le 4$, $S \le 3$, $P \le 1$, $d \le 2$ that fit, along one
    axis, and along two axes with the library's matrices.

    Knobs:
        is_its: What the transposed layer is to the convolution.
        doubling: What doubles the resolution for $K = S = 2$: the layer, or repeated entries.
    """
    for K, S, P, d in product((2, 3, 4), (1, 2, 3), (0, 1), (1, 2)):
        outputs, at = 4, {"K": K, "S": S, "P": P, "d": d}
        size = (outputs - 1) * S - 2 * P + d * (K - 1) + 1
        w, y = integers(K), integers(outputs)
        knobs: dict[str, Any] = {"stride": S, "padding": P, "dilation": d}
        A = matrix_of(w, size, outputs, S, P, d)
        found = F.conv_transpose1d(y[None, None], w[None, None], **knobs)[0, 0]
        yield equals("length of the result", len(found), size, **at)
        yield equals("product with the transposed matrix", found, A.T @ y, tol=0.0, **at)
        x = integers(size)
        moved = F.conv1d(x[None, None], w[None, None], **knobs)[0, 0]
        inner = (moved @ y, x @ found)
        yield equals(r"$\langle A x, y \rangle$ and $\langle x, A^\top y \rangle$", *inner, tol=0.0)
        lengths = [conv_output_size(size + i, K, **knobs) for i in range(-1, S + 1)]
        yield equals("outputs of longer inputs", lengths, [3, *[4] * S, 5], **at)
        layer = nn.ConvTranspose1d(1, 1, K, bias=False, **knobs)
        layer.weight.data = w[None, None]
        yield equals("matrix of the library", conv_matrix(layer, (1, outputs)).dense(), A.T, **at)
        back = F.conv_transpose1d(moved[None, None], w[None, None], **knobs)[0, 0]
        stated = x if is_its == "inverse" else A.T @ (A @ x)
        yield equals("the layer after the convolution", back, stated, tol=0.0, **at)
    w, y = integers(1, 1, 2, 2), integers(1, 1, 3, 4)
    w[0, 0, 0, 0] += 20  # no kernel of ones
    y += 20
    up = F.conv_transpose2d(y, w, stride=2)
    down = nn.Conv2d(1, 1, 2, 2, bias=False)
    down.weight.data = w
    if doubling == "nearest":
        up = F.interpolate(y, scale_factor=2, mode="nearest")
    stated = conv_matrix(down, (1, 6, 8)).dense().T @ y.flatten()
    yield equals("resolution, doubled along two axes", up.shape[2:], (6, 8))
    yield equals("image, doubled along two axes", up.flatten(), stated, tol=0.0)


transposed_convolution.foil(r"its inverse: $A^\top A x = x$", is_its="inverse")
transposed_convolution.foil("repeated entries, without a kernel", doubling="nearest")
