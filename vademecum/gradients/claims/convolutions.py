"""What the course claims of the gradients of convolutions."""

from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import signal
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients.convolution_gradients import conv_input_grad, conv_weight_grad


def integers(*shape: int) -> np.ndarray:
    """Random integers from -9 to 9."""
    return torch.randint(-9, 10, shape).numpy()


def layer(x: np.ndarray) -> Tensor:
    """One example with one channel."""
    return torch.from_numpy(x).double()[None, None]


def unit(shape: tuple[int, ...], place: tuple[int, ...]) -> np.ndarray:
    """Zeros with a single one."""
    e = np.zeros(shape, int)
    e[place] = 1
    return e


@claim(by="identity", sources=("D-215",), budget=0.5)
def convolution_weight_gradient(array: str = "rotated", index: str = "of the convolution"):
    r"""The weight gradient of a convolution.

    For $y^{(l)} = y^{(l-1)} * w$, that is $y_k^{(l)} = \sum_o y_{k-o}^{(l-1)} w_o$:
    $\frac{\partial R}{\partial w_i} = \sum_k \frac{\partial R}{\partial y_k^{(l)}}\,
    y_{k-i}^{(l-1)}$, the correlation of upstream gradient and input, which is the convolution
    $\big(\frac{\partial R}{\partial y^{(l)}} * \operatorname{rot180}(y^{(l-1)})\big)_i$.
    """
    n, m = 7, 3
    for trial in range(3):
        x, delta = integers(n), integers(n + m - 1)
        wanted = [int(delta @ np.convolve(x, unit((m,), (i,)))) for i in range(m)]
        source = x[::-1] if index == "of the rotated array" else x
        total = [
            int(sum(delta[k] * source[k - i] for k in range(len(delta)) if 0 <= k - i < n))
            for i in range(m)
        ]
        yield equals(total, wanted, trial=trial)
        yield equals(np.correlate(delta, x, "valid"), wanted, trial=trial)
        kernel = x[::-1] if array == "rotated" else x
        yield equals(np.convolve(delta, kernel)[n - 1 : n - 1 + m], wanted, trial=trial)
        ours = conv_weight_grad(layer(x), layer(delta), m, padding=m - 1)  # of the rotated kernel
        yield equals(ours[0, 0].flip(0), wanted, trial=trial)


convolution_weight_gradient.foil("the input is rotated", array="as it is")
convolution_weight_gradient.foil(
    "the index $k - i$ belongs to the input as it is", index="of the rotated array"
)


@claim(by="identity", sources=("D-216",), budget=0.5)
def convolution_input_gradient(array: str = "rotated"):
    r"""The input gradient of a convolution.

    For $y^{(l)} = y^{(l-1)} * w$: $\frac{\partial R}{\partial y^{(l-1)}} = \frac{\partial
    R}{\partial y^{(l)}} * \operatorname{rot180}(w)$ restricted to the input positions, the upstream
    gradient correlated with the kernel.

    *Note.* D-216 announces this as the derivative in $y^{(l)}$, which is the upstream gradient, and
    given; meant is the layer's input $y^{(l-1)}$.
    """
    n, m = 7, 3
    for trial in range(3):
        w, delta = integers(m), integers(n + m - 1)
        w[0] += 20  # or one kernel in 19 would be its own rotation
        wanted = [int(delta @ np.convolve(unit((n,), (j,)), w)) for j in range(n)]
        kernel = w[::-1] if array == "rotated" else w
        yield equals(np.convolve(delta, kernel)[m - 1 : m - 1 + n], wanted, trial=trial)
        yield equals(np.correlate(delta, w, "valid"), wanted, trial=trial)
        ours = conv_input_grad(layer(w[::-1].copy()), layer(delta), n, padding=m - 1)
        yield equals(ours[0, 0], wanted, trial=trial)


convolution_input_gradient.foil("the kernel is rotated", array="as it is")


def full(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The full convolution in any number of dimensions, tap by tap."""
    y = np.zeros([a + b - 1 for a, b in zip(x.shape, w.shape, strict=True)], complex)
    for place in np.ndindex(*w.shape):
        window = tuple(slice(i, i + a) for i, a in zip(place, x.shape, strict=True))
        y[window] += w[place] * x
    return y


def turned(w: np.ndarray, rotation: str) -> np.ndarray:
    """The kernel rotated by 180 degrees, or something like it."""
    return {"rot180": np.flip(w), "transpose": w.T, "one axis": np.flip(w, 0)}[rotation]


@claim(by="identity", sources=("D-217", "D-218"), budget=0.5)
def convolution_layer(rotation: str = "rot180", bias: str = "sum"):
    r"""Bias, activation and higher dimensions in convolutional backpropagation.

    The convolution gradient formulas hold verbatim with multi-indices, in two and three dimensions.
    For a layer $\phi(y * w + b)$ the upstream gradient is first multiplied elementwise by $\phi'$,
    and the gradient of the shared bias is the sum of the result over all positions.
    """
    for shape, size in (((6, 5), (3, 3)), ((3, 4, 2), (2, 2, 2))):
        x, w, b = (torch.randn(s).numpy() for s in (shape, size, ()))
        up = torch.randn([a + k - 1 for a, k in zip(shape, size, strict=True)]).numpy()
        delta = up * (1 - np.tanh(np.real(full(x, w)) + b) ** 2)

        def risk(x: np.ndarray, w: np.ndarray, b: Any, up: np.ndarray = up) -> complex:
            return (up * np.tanh(full(x, w) + b)).sum()

        axes = {"axes": len(shape)}
        in_x = complex_step(partial(risk, w=w, b=b), x)
        in_w = complex_step(partial(risk, x, b=b), w)
        in_b = complex_step(partial(risk, x, w), b)
        pad = [k - 1 for k in size]
        inner = tuple(slice(k - 1, k - 1 + a) for a, k in zip(shape, size, strict=True))
        found = signal.convolve(delta, turned(w, rotation), method="direct")[inner]
        yield equals(found, in_x, **axes)
        inner = tuple(slice(a - 1, a - 1 + k) for a, k in zip(shape, size, strict=True))
        found = signal.convolve(delta, np.flip(x), method="direct")[inner]
        yield equals(found, in_w, **axes)
        kernel = np.flip(w).copy()
        ours = conv_input_grad(layer(kernel), layer(delta), shape, padding=pad)
        yield equals(ours[0, 0], in_x, **axes)
        ours = conv_weight_grad(layer(x), layer(delta), size, padding=pad)[0, 0]
        yield equals(ours.flip(tuple(range(ours.ndim))), in_w, **axes)
        shared = delta.sum() if bias == "sum" else delta.mean()
        yield equals(shared, in_b, **axes)


convolution_layer.foil("a transposed kernel", rotation="transpose")
convolution_layer.foil("a kernel flipped along one axis only", rotation="one axis")
convolution_layer.foil("the bias gradient is no mean", bias="mean")
