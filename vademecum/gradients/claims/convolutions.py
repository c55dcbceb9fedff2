"""Shared weights: their gradients add up, as in convolutions."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from scipy import signal
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, complex_step, equals, integers
from vademecum.gradients import (
    conv_input_grad,
    conv_weight_grad,
    gradient_norms,
    per_example_gradients,
)


def kernel_uses(conv: nn.Conv1d, x: Tensor, c: Tensor) -> Tensor:
    """The gradients of sum(c tanh(conv(x))) in a kernel for each position: places by examples."""
    (taps,), places = conv.kernel_size, c.shape[2]
    copies = conv.weight.detach().flatten(1).repeat(places, 1, 1)
    patches = x.unfold(2, taps, 1).transpose(1, 2).flatten(2)

    def risk(kernels: np.ndarray, patch: np.ndarray, c: np.ndarray) -> Any:
        return (c.T * np.tanh((kernels * patch[:, None]).sum(2))).sum()

    pairs = zip(patches.numpy(), c.numpy(), strict=True)
    uses = [complex_step(partial(risk, patch=p, c=d), copies.numpy()) for p, d in pairs]
    return torch.stack(uses, 1).flatten(2)


def matrix_uses(V: Tensor, x: Tensor, c: Tensor) -> Tensor:
    """The gradients of c^T V tanh(V x) in each of the two matrices: places by examples."""

    def risk(matrices: np.ndarray, x: np.ndarray, c: np.ndarray) -> Any:
        return c @ (matrices[1] @ np.tanh(matrices[0] @ x))

    pairs, copies = zip(x.numpy(), c.numpy(), strict=True), V.detach().repeat(2, 1, 1).numpy()
    uses = [complex_step(partial(risk, x=u, c=d), copies) for u, d in pairs]
    return torch.stack(uses, 1).flatten(2)


@claim(
    by="identity", sources=("D-213",), budget=0.5, full={"length": 60},
    short=r"\partial R / \partial h_j = \sum_i (\partial R / \partial x_i)"
    r" (\partial x_i / \partial h_j)",
)  # fmt: skip
def shared_weights(pool: Literal["sum", "mean", "first"] = "sum", length: int = 8, taps: int = 3):
    r"""The gradient of a shared weight is the sum over its uses.

    If a weight $h_j$ is used in several places, its gradient is the sum over the uses of the
    gradients of independent copies. For a convolution with output positions $i$,
    $$\frac{\partial \mathcal{R}}{\partial h_j} = \sum_i \frac{\partial \mathcal{R}}{\partial x_i}
    \frac{\partial x_i}{\partial h_j};$$
    the same for a matrix $V$ that two layers share.

    *Proof.* The chain rule for $h \mapsto (h, \dots, h) \mapsto \mathcal{R}$. Checked with copies
    that are moved one by one, by complex steps: a layer with a kernel of its own at each position,
    and two layers with a matrix each; for several examples, whose gradients are also known by their
    norms.

    Knobs:
        pool: What is made of the gradients of the copies.
        length: The length of the sequence, `taps` or more; the kernel has `length - taps + 1`
            positions.
        taps: How many entries of the sequence the kernel covers.
    """
    pooled = {"sum": torch.sum, "mean": torch.mean, "first": lambda g, dim: g[0]}[pool]
    length, conv = max(length, taps), nn.Conv1d(2, 3, taps, bias=False)
    x, c = torch.randn(4, 2, length), torch.randn(4, 3, length - taps + 1)
    stated, at = pooled(kernel_uses(conv, x, c), dim=0), {"length": length}
    risk = {"x": x, "y": c, "loss": lambda z, c: (c * z.tanh()).sum()}
    found = per_example_gradients(conv, **risk)
    yield equals("gradients of a kernel", found, stated, tol=1e-13 * length, **at)
    found = gradient_norms(conv, **risk)
    yield equals("norms of the gradients of a kernel", found, stated.norm(dim=1), **at)

    layer, x, c = nn.Linear(3, 3, bias=False), torch.randn(2, 3), torch.randn(2, 3)
    net, stated = nn.Sequential(layer, nn.Tanh(), layer), pooled(matrix_uses(layer.weight, x, c), 0)
    risk = {"x": x, "y": c, "loss": lambda z, c: (c * z).sum()}
    found = per_example_gradients(net, **risk)
    yield equals("gradients of a matrix that two layers share", found, stated, tol=1e-12)
    found, name = gradient_norms(net, **risk), "norms of the gradients of a matrix"
    yield equals(name, found, stated.norm(dim=1))


shared_weights.foil("the mean over the positions is smaller by their number", pool="mean")
shared_weights.foil("one use alone", pool="first")


def whole(*shape: int) -> np.ndarray:
    """Random integers from -9 to 9, as NumPy's."""
    return integers(*shape).long().numpy()


def layer(x: np.ndarray) -> Tensor:
    """One example with one channel."""
    return torch.from_numpy(x.copy()).double()[None, None]


@claim(
    by="identity", sources=("D-215",), budget=0.5,
    short=r"\partial R / \partial w_i = \sum_k (\partial R / \partial y_k^{(l)})\, y_{k-i}^{(l-1)}",
)  # fmt: skip
def convolution_weight_gradient(
    array: Literal["rotated", "as it is"] = "rotated",
    index: Literal["of the input", "of the rotated array"] = "of the input",
):
    r"""The weight gradient of a convolution.

    For $y^{(l)} = y^{(l-1)} * w$, that is $y_k^{(l)} = \sum_o y_{k-o}^{(l-1)} w_o$:
    $\frac{\partial R}{\partial w_i} = \sum_k \frac{\partial R}{\partial y_k^{(l)}}\,
    y_{k-i}^{(l-1)}$, the correlation of upstream gradient and input, which is the convolution
    $\big(\frac{\partial R}{\partial y^{(l)}} * \operatorname{rot180}(y^{(l-1)})\big)_i$.
    Exact in whole numbers.

    Knobs:
        array: Which form of the input enters the convolution.
        index: Whose entry $k - i$ enters the sum.
    """
    for n, m in ((7, 3), (6, 4), (5, 2)):
        x, delta, at = whole(n), whole(n + m - 1), {"n": n, "m": m}
        wanted = [int(delta @ np.convolve(x, e)) for e in np.eye(m, dtype=int)]
        source = x[::-1] if index == "of the rotated array" else x
        total = [
            int(sum(delta[k] * source[k - i] for k in range(len(delta)) if 0 <= k - i < n))
            for i in range(m)
        ]
        yield equals("weight gradient as a sum over positions", wanted, total, **at)
        found = np.correlate(delta, x, "valid")
        yield equals("weight gradient as a correlation", wanted, found, **at)
        found = np.convolve(delta, x[::-1] if array == "rotated" else x)[n - 1 : n - 1 + m]
        yield equals("weight gradient as a convolution", wanted, found, **at)
        ours = conv_weight_grad(layer(x), layer(delta), m, padding=m - 1)  # of the rotated kernel
        yield equals("weight gradient of the library", ours[0, 0].flip(0), wanted, tol=0.0, **at)


convolution_weight_gradient.foil("the input is rotated", array="as it is")
convolution_weight_gradient.foil(
    "the index $k - i$ belongs to the input as it is", index="of the rotated array"
)


@claim(
    by="identity", sources=("D-216",), budget=0.5,
    short=r"\partial R / \partial y^{(l-1)} = (\partial R / \partial y^{(l)}) *"
    r" \operatorname{rot180}(w)",
)  # fmt: skip
def convolution_input_gradient(
    array: Literal["rotated", "as it is"] = "rotated", of: Literal["input", "output"] = "input"
):
    r"""The input gradient of a convolution.

    For $y^{(l)} = y^{(l-1)} * w$: $\frac{\partial R}{\partial y^{(l-1)}} = \frac{\partial
    R}{\partial y^{(l)}} * \operatorname{rot180}(w)$ restricted to the input positions, the upstream
    gradient correlated with the kernel. Exact in whole numbers.

    Knobs:
        array: Which form of the kernel enters the convolution.
        of: Whether it is the derivative in the layer's input $y^{(l-1)}$, or in its output
            $y^{(l)}$.
    """
    for n, m in ((7, 3), (6, 4), (5, 2)):
        w, delta, at = whole(m), whole(n + m - 1), {"n": n, "m": m}
        w[0] += 20  # or one kernel in 19 would be its own rotation
        in_input = [int(delta @ np.convolve(e, w)) for e in np.eye(n, dtype=int)]
        in_output = [int(delta @ e) for e in np.eye(n + m - 1, dtype=int)]
        wanted = in_input if of == "input" else in_output
        found = np.convolve(delta, w[::-1] if array == "rotated" else w)
        start = (len(found) - len(wanted)) // 2
        name = f"derivative in the layer's {of} as a convolution"
        yield equals(name, wanted, found[start : start + len(wanted)], **at)
        found = np.correlate(delta, w, "valid")
        yield equals("input gradient as a correlation", in_input, found, **at)
        ours = conv_input_grad(layer(w[::-1]), layer(delta), n, padding=m - 1)[0, 0]
        yield equals("input gradient of the library", ours, in_input, tol=0.0, **at)


convolution_input_gradient.foil("the kernel is rotated", array="as it is")
convolution_input_gradient.erratum(
    "D-216",
    printed=r"The derivative $\partial \mathcal R / \partial y^{(l)}$ is analogous",
    right=r"The derivative $\partial \mathcal R / \partial y^{(l-1)}$ is analogous",
    why="Layer index slip, as scanned: in the derivation above it"
    r" $\partial \mathcal R / \partial y^{(l)}$ is the given upstream gradient; what follows"
    " analogously is the derivative in the layer input $y^{(l-1)}$.",
    weight="scan",
    refuted_by="derivative in the layer's output as a convolution",
    of="output",
)


def full(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The full convolution in any number of dimensions, tap by tap."""
    y = np.zeros([a + b - 1 for a, b in zip(x.shape, w.shape, strict=True)], complex)
    for place in np.ndindex(*w.shape):
        window = tuple(slice(i, i + a) for i, a in zip(place, x.shape, strict=True))
        y[window] += w[place] * x
    return y


def turned(w: np.ndarray, rotation: str) -> np.ndarray:
    """The kernel rotated by 180 degrees, or something like it of the same shape."""
    if rotation == "transpose" and w.T.shape == w.shape:
        return w.T
    return np.flip(w, 0 if rotation == "one axis" else None)


def inner(delta: np.ndarray, w: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The convolution of two arrays, cut to a shape in its middle."""
    y = signal.convolve(delta, w, method="direct")
    middle = [(a - n) // 2 for a, n in zip(y.shape, shape, strict=True)]
    return y[tuple(slice(i, i + n) for i, n in zip(middle, shape, strict=True))]


def torch_layer() -> Iterator[Evidence]:
    """The library's gradients of a layer with channels, groups, strides, dilation and padding."""
    knobs: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    x, w = integers(2, 4, 5, 6), integers(6, 2, 2, 3)
    g = integers(*torch.conv2d(x, w, **knobs).shape)
    steps = torch.eye(w.numel()).view(-1, *w.shape)
    wanted = torch.stack([(g * torch.conv2d(x, e, **knobs)).sum() for e in steps]).view_as(w)
    found = conv_weight_grad(x, g, (2, 3), **knobs)
    yield equals("weight gradient of torch's layer", found, wanted, tol=0.0)
    steps = torch.eye(x.numel()).view(-1, *x.shape)
    wanted = torch.stack([(g * torch.conv2d(e, w, **knobs)).sum() for e in steps]).view_as(x)
    found = conv_input_grad(w, g, (5, 6), **knobs)
    yield equals("input gradient of torch's layer", found, wanted, tol=0.0)


@claim(
    by="identity", sources=("D-217", "D-218"), budget=0.5,
    short=r"\delta = \phi'(y * w + b) \odot \partial R / \partial \phi, \quad"
    r" \partial R / \partial b = \sum_k \delta_k",
)  # fmt: skip
def convolution_layer(
    rotation: Literal["rot180", "transpose", "one axis"] = "rot180",
    bias: Literal["sum", "mean"] = "sum",
):
    r"""Bias, activation and higher dimensions in convolutional backpropagation.

    The convolution gradient formulas hold verbatim with multi-indices, in two and three dimensions.
    For a layer $\phi(y * w + b)$ the upstream gradient is first multiplied elementwise by $\phi'$,
    and the gradient of the shared bias is the sum of the result over all positions. A layer with
    several channels, groups, strides, dilation and padding is checked by unit steps in whole
    numbers.

    Knobs:
        rotation: What is done to the kernel; a transpose only where it keeps the shape.
        bias: What the gradient of the bias makes of the result over all positions.
    """
    for shape, size in (((6, 5), (3, 3)), ((4, 5), (3, 2)), ((3, 4, 2), (2, 2, 2))):
        x, w, b = (torch.randn(s).numpy() for s in (shape, size, ()))
        up = torch.randn([a + k - 1 for a, k in zip(shape, size, strict=True)]).numpy()
        delta = up * (1 - np.tanh(np.real(full(x, w)) + b) ** 2)

        def risk(x: np.ndarray, w: np.ndarray, b: Any, up: np.ndarray = up) -> complex:
            return (up * np.tanh(full(x, w) + b)).sum()

        at, pad = {"axes": len(shape), "kernel": " by ".join(map(str, size))}, [k - 1 for k in size]
        in_x = complex_step(partial(risk, w=w, b=b), x)
        in_w = complex_step(partial(risk, x, b=b), w)
        in_b = complex_step(partial(risk, x, w), b)
        stated = inner(delta, turned(w, rotation), shape)
        yield equals("derivative in the layer's input", in_x, stated, **at)
        yield equals("derivative in the weights", in_w, inner(delta, np.flip(x), size), **at)
        stated = delta.sum() if bias == "sum" else delta.mean()
        yield equals("derivative in the bias", in_b, stated, **at)
        ours = conv_input_grad(layer(np.flip(w)), layer(delta), shape, padding=pad)[0, 0]
        yield equals("input gradient of the library", ours, in_x, **at)
        ours = conv_weight_grad(layer(x), layer(delta), size, padding=pad)[0, 0]
        ours = ours.flip(tuple(range(ours.ndim)))
        yield equals("weight gradient of the library", ours, in_w, **at)
    yield from torch_layer()


convolution_layer.foil("a transposed kernel", rotation="transpose")
convolution_layer.foil("a kernel flipped along one axis only", rotation="one axis")
convolution_layer.foil("the bias gradient is no mean", bias="mean")
