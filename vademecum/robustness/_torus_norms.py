r"""Upper bounds on the operator norms of the layers of a network, by the norm of the layer.

For $\|\cdot\|_\infty$ and $\|\cdot\|_1$ the norm of a matrix is its largest sum of moduli along a
row or a column. For $\|\cdot\|_2$ it is the largest singular value: of a dense layer by a
decomposition in double precision, of whose result LAPACK promises a few $n \varepsilon$.

A convolution with zero padding is a part of the matrix of the same convolution on an *enclosing
torus*: an image of $n$ entries with $p$ zeros on both sides lies, padding and all, on a circle of
$N \ge n + 2 p$ entries, where no window meets itself, so leaving out columns (where the image is
zero) and rows (windows that do not count) gives the layer; and a part of a matrix has no larger
norm. On the torus the convolution falls apart, frequency by frequency
(`vademecum.convolution.conv_singular_values`), and its norm is exact. With stride $s$ the circle
has a multiple of $s$ entries.

The reshaped kernel, on which `torch.nn.utils.parametrizations.spectral_norm` iterates, has the norm
of one window: it is no upper bound, and an iteration that has not converged is below even that.
Beyond what a decomposition can do $\|A\|_2 \le \sqrt{\|A\|_1 \|A\|_\infty}$ is used.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.convolution import conv_singular_values
from vademecum.robustness.bounds._affine_steps import AffineStep
from vademecum.robustness.bounds._network import Network, Step
from vademecum.robustness.bounds._pooling_steps import PoolStep
from vademecum.robustness.bounds._rounding import full_precision

__all__ = ["layer_norms", "network_norm"]

_LARGEST = 4096  # rows or columns of a matrix that is decomposed
_MOST = 2e10  # multiplications for all frequencies of a convolution, about a minute
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def network_norm(network: Network, norm: str) -> tuple[float, list[tuple[str, float]]]:
    """An upper bound on a network's Lipschitz constant, and those of its steps.

    Constants are multiplied along chains; for branches that are summed they are added, and for
    branches side by side the norm of their constants is taken.
    """
    constants, table = {network.source: 1.0}, []
    with full_precision():
        for step in network.steps:
            own = layer_norms(step, norm, network.shapes)
            before = [constants[name] for name in step.inputs]
            if len(own) > 1 and isinstance(step, AffineStep) and step.moves:
                total = _side_by_side([a * b for a, b in zip(own, before, strict=True)], norm)
            else:
                total = sum(a * b for a, b in zip(own, before, strict=True))
            constants[step.output] = total * (1 + 2.0**-48)
            table.append((step.name, max(own)))
    return constants[network.result], table


def _side_by_side(each: list[float], norm: str) -> float:
    return {"linf": max(each), "l2": math.hypot(*each), "l1": sum(each)}[norm]


def layer_norms(step: Step, norm: str, shapes: dict[int, tuple]) -> list[float]:
    """Upper bounds on the Lipschitz constants of a step, one for each of its inputs."""
    if isinstance(step, PoolStep):
        times = step.overlap
        return [{"linf": 1.0, "l2": math.sqrt(times), "l1": float(times)}[norm]]
    if not isinstance(step, AffineStep):
        return [float(torch.as_tensor(step.unit.steep).max())]
    if step.moves and step.form.back == 0:
        return [1.0] * len(step.inputs)
    rows = _row_sums(step)
    if norm == "linf":
        return rows
    columns = _column_sums(step, shapes[step.output])
    if norm == "l1":
        return columns
    safe = [math.sqrt(a * b) for a, b in zip(rows, columns, strict=True)]
    exact = _largest_singular_value(step)
    return safe if exact is None else [min(exact, safe[0])]


def _row_sums(step: AffineStep) -> list[float]:
    """The largest sums of moduli along rows, for each input."""
    found = []
    for i in range(len(step.shapes)):
        ones = [step.like.new_full((1, *s), float(i == j)) for j, s in enumerate(step.shapes)]
        found.append(_above(step.map.radius(*ones), step.form.terms))
    return found


def _column_sums(step: AffineStep, shape: tuple[int, ...]) -> list[float]:
    """The largest sums of moduli along columns, for each input."""
    ones = step.like.new_ones(1, 1, *shape)
    return [_above(each, step.form.back) for each in step.pull(ones, moduli=True)]


def _above(sums: Tensor, terms: int) -> float:
    return float(sums.abs().max()) * (1 + 2 * (terms + 8) * torch.finfo(sums.dtype).eps)


def _largest_singular_value(step: AffineStep) -> float | None:
    """The Euclidean norm of a dense layer, or that of a convolution on its torus, if at hand."""
    if step.matrix is not None and len(step.shapes[0]) == 1:
        matrix = step.matrix
        if max(matrix.shape) > _LARGEST:
            return None
        top = float(torch.linalg.matrix_norm(matrix.double(), 2))
        return top * (1 + 64 * max(matrix.shape) * 2.0**-52)
    return None if step.weight is None else _on_torus(step)


def _on_torus(step: AffineStep) -> float | None:
    assert step.weight is not None
    stride, padding, dilation, groups = step.options
    weight, sizes, pads = step.weight, [], []
    even = [d * (k - 1) % 2 and s % 2 for k, s, d in zip(weight.shape[2:], stride, dilation,
                                                         strict=True)]  # fmt: skip
    if any(even):  # one more tap, of zero, lets the padding be the same on both sides
        weight = nn.functional.pad(weight, [p for e in reversed(even) for p in (0, int(bool(e)))])
    for n, k, s, p, d in zip(step.shapes[0][1:], weight.shape[2:], stride, padding, dilation,
                             strict=True):  # fmt: skip
        around = s * -(-max(n + 2 * p, d * (k - 1) + 1) // s)
        sizes.append(around)
        pads.append(max(0, -(-(d * (k - 1) + 1 - s) // 2)))
    work = math.prod(sizes) * weight.shape[0] * weight.shape[1] * min(weight.shape[:2])
    if work > _MOST:
        return None
    kind: Any = _CONVOLUTIONS[weight.ndim - 3]
    layer = kind(
        weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), tuple(stride),
        tuple(pads), tuple(dilation), groups, bias=False, padding_mode="circular",
        dtype=torch.float64, device=weight.device,
    )  # fmt: skip
    layer.weight.data = weight.double()
    found = conv_singular_values(layer.requires_grad_(False), (layer.in_channels, *sizes), k=1)
    if not found.exact:
        return None
    return float(found.values[0]) * (1 + 64 * weight[0].numel() * 2.0**-52)
