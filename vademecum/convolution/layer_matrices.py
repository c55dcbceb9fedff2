r"""The matrix of a convolution or pooling layer.

A layer without its bias is a linear map from inputs of $c \times n$ entries to outputs of
$c' \times m$. Its matrix has a row for each output, in the order of `flatten`, with the kernel's
weights at the inputs of that output's window: a Toeplitz matrix for one channel, stride 1 and zeros
around, a circulant one if the input repeats itself. Padding by repetition adds weights up where
several places of a window show the same input. The transposed layer has the transposed matrix, the
mean over a window the weights $1/|\text{window}|$.

Products are those of torch's layers, adjoints those of the transposed layers and of the padding;
the sparse matrix is built from the windows. All of it is exact. The claim is `toeplitz`.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Inexact
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.convolution._layer_geometry import Geometry, Layer, Shape, read_layer
from vademecum.convolution._layer_windows import entries
from vademecum.foundations import LinearOperator

__all__ = ["ConvMatrix", "conv_matrix"]

_CONV: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: Any = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_POOL: Any = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class ConvMatrix(LinearOperator):
    """The matrix of a layer as an operator: see `conv_matrix`.

    Attributes:
        in_shape: Channels and sizes of the input, whose entries in their order are the columns.
        out_shape: Those of the output, whose entries are the rows.
        bias: What the layer adds to each entry of the output, or None.

    Example:
        >>> layer = nn.Conv1d(1, 1, 2).requires_grad_(False)
        >>> layer.weight.data = torch.tensor([[[1.0, 2.0]]])
        >>> conv_matrix(layer, (1, 3)).dense()
        tensor([[1., 2., 0.],
                [0., 1., 2.]])
    """

    def __init__(self, geometry: Geometry):
        self.in_shape, self.out_shape = geometry.source, geometry.target
        self._geometry = geometry
        shape = (math.prod(self.out_shape), math.prod(self.in_shape))
        kind = {"dtype": geometry.dtype, "device": geometry.device}
        super().__init__(shape, self._push, self._pull, **kind)

    @property
    def bias(self) -> Float[Tensor, " m"] | None:
        """The constant part of the layer, for each entry of the output."""
        bias, places = self._geometry.bias, math.prod(self.out_shape[1:])
        return None if bias is None else bias.repeat_interleave(places)

    def to_sparse(self, *, memory: int | None = None) -> Inexact[Tensor, " m n"]:
        """The matrix as a sparse tensor (COO, coalesced); gradients reach the weights.

        Args:
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
                Here the result counts, too, as it is larger than all else.

        Raises:
            ValueError: If the matrix is beyond `memory`.
        """
        g = self._geometry
        weights = math.prod(g.kernel) * (1 if g.weight is None else g.weight.shape[1])
        places = g.source if g.kind == "transposed" else g.target
        _refuse_beyond(memory, math.prod(places) * weights * (16 + g.dtype.itemsize))
        rows, columns, values = entries(g)
        found = torch.stack((rows, columns))
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # says so, or torch warns
            return torch.sparse_coo_tensor(found, values, self.shape).coalesce()

    def dense(self, *, memory: int | None = None) -> Inexact[Tensor, " m n"]:
        """The matrix with all its zeros.

        Args:
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
                Here the result counts, too.

        Raises:
            ValueError: If the matrix is beyond `memory`.
        """
        _refuse_beyond(memory, math.prod(self.shape) * self.dtype.itemsize)
        return self.to_sparse().to_dense()

    def _push(self, x: Tensor) -> Tensor:
        return forward(self._geometry, x.T.reshape(-1, *self.in_shape)).flatten(1).T

    def _pull(self, y: Tensor) -> Tensor:
        return adjoint(self._geometry, y.T.reshape(-1, *self.out_shape)).flatten(1).T


def conv_matrix(layer: Layer, x: Shape) -> ConvMatrix:
    r"""The exact matrix of a layer, without its bias, for inputs of one size.

    Args:
        layer: A `Conv`, `ConvTranspose` or `AvgPool` layer of torch in one to three dimensions,
            with any stride, dilation, groups, padding mode, `output_padding`, `ceil_mode` and
            `count_include_pad`; or a `CausalConv1d`.
        x: An input, with or without batch, or its shape $(c, n_1, \dots)$ without batch; only the
            shape counts (and for pooling, which has no weights, dtype and device).

    Returns:
        A `ConvMatrix`: an operator that is never formed. `A @ v`, `A.T @ u` take flattened inputs
        and outputs, `A.to_sparse()` and `A.dense()` are the matrix, `A.bias` is the constant part.

    Raises:
        ValueError: If the layer is of another kind, or the input does not fit it.

    Example:
        >>> A = conv_matrix(nn.AvgPool2d(2), (1, 4, 4))
        >>> A
        LinearOperator(4 x 16, torch.float32, cpu)
        >>> A @ torch.ones(16)
        tensor([1., 1., 1., 1.])
    """
    return ConvMatrix(read_layer(layer, x))


def forward(g: Geometry, x: Tensor) -> Tensor:
    """The layer without its bias, on a batch."""
    if g.kind == "pool":
        padding, extra = [left for left, _ in g.pads], {}
        if g.divisor is not None:
            extra["divisor_override"] = g.divisor
        kernel, mode = (g.kernel, g.stride, padding), (g.ceil_mode, g.include_pad)
        return _POOL[g.axes](x, *kernel, *mode, **extra)
    if g.kind == "transposed":
        padding = [left for left, _ in g.pads]
        knobs = (None, g.stride, padding, g.output_padding, g.groups, g.dilation)
        return _TRANSPOSED[g.axes](x, g.weight, *knobs)
    x = F.pad(x, _flat(g.pads), g.mode) if any(map(any, g.pads)) else x
    return _CONV[g.axes](x, g.weight, None, g.stride, 0, g.dilation, g.groups)


def adjoint(g: Geometry, y: Tensor) -> Tensor:
    """The adjoint of the layer without its bias, on a batch."""
    zeros = y.new_zeros(len(y), *g.source)
    if g.kind == "pool":
        return torch.func.vjp(lambda x: forward(g, x), zeros)[1](y)[0]
    assert g.weight is not None
    weight = g.weight.conj().resolve_conj()
    if g.kind == "transposed":
        padding = [left for left, _ in g.pads]
        x = _CONV[g.axes](y, weight, None, g.stride, padding, g.dilation, g.groups)
        return x[(..., *(slice(n) for n in g.source[1:]))]
    shared = [min(both) if g.mode == "constant" else 0 for both in g.pads]
    pads = [(a - c, b - c) for (a, b), c in zip(g.pads, shared, strict=True)]
    sizes = zip(g.source[1:], g.target[1:], g.spans, g.stride, pads, shared, strict=True)
    rest = [n + sum(both) + 2 * c - span - (m - 1) * s for n, m, span, s, both, c in sizes]
    x = _TRANSPOSED[g.axes](y, weight, None, g.stride, shared, rest, g.groups, g.dilation)
    if not any(map(any, pads)):
        return x
    return torch.func.vjp(lambda x: F.pad(x, _flat(tuple(pads)), g.mode), zeros)[1](x)[0]


def _flat(pads: tuple[tuple[int, int], ...]) -> list[int]:
    """As torch's padding takes them: of the last axis first."""
    return [width for both in reversed(pads) for width in both]


def _refuse_beyond(memory: int | None, needed: int) -> None:
    if memory is not None and needed > whole("memory", memory, low=1):
        raise ValueError(f"memory must be at least the {needed} bytes of the matrix, got {memory}")
