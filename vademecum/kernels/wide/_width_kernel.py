"""The kernel of a network of infinite width, as an object like all kernels of the room."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vademecum.kernels._kernel import Kernel, positive
from vademecum.kernels._tiles import tiles_of
from vademecum.kernels.wide._architecture import Network
from vademecum.kernels.wide._program import Known, Program
from vademecum.kernels.wide._workspace import Workspace

__all__ = ["WidthKernel"]

_BUFFERS = 8  # blocks of covariances that a step holds at most
_CACHED = 2**18  # entries of a block on the CPU; 2**20 takes as long, 2**16 twice as long
_ON_DEVICE = 2**27  # and on CUDA
_STEP = 1e-4  # of a logarithm, in central differences: their error is about its square


class _Side(NamedTuple):
    """Inputs, with what they need to meet others."""

    raw: dict[int, Tensor]
    known: Known

    def part(self, some: slice) -> "_Side":
        """Some of the inputs."""
        raw = {i: x[some] for i, x in self.raw.items()}
        return _Side(raw, {i: tuple(t[some] for t in each) for i, each in self.known.items()})


@final
class WidthKernel(Kernel):
    """The covariances of outputs of a network of infinite width, or its tangent kernel."""

    def __init__(
        self,
        network: Network,
        tangent: bool,
        weight_variance: float | Tensor,
        bias_variance: float | Tensor,
    ):
        self.network, self.tangent = network, tangent
        self.weight_variance = positive("weight_variance", weight_variance)
        self.bias_variance = positive("bias_variance", bias_variance, zero=True)

    def identity(self) -> str:
        """Its name, and the layers and trained parameters of the network."""
        model = self.network.model
        learned = [name for name, p in model.named_parameters() if p.requires_grad]
        return f"{self!r} {model} {learned}"

    def __repr__(self) -> str:
        kind = type(self.network.model).__name__
        variances = f"weight_variance={float(self.weight_variance):g}, bias_variance="
        name = "ntk" if self.tangent else "nngp"
        return f"{name} of {kind}({variances}{float(self.bias_variance):g})"

    def hyperparameters(self) -> dict[str, float | Tensor]:
        """Both variances, as far as they are positive."""
        found: dict[str, float | Tensor] = {"weight_variance": self.weight_variance}
        if float(self.bias_variance) > 0:
            found["bias_variance"] = self.bias_variance
        return found

    def _at(self, values: dict[str, float | Tensor]) -> "WidthKernel":
        bias = values.get("bias_variance", self.bias_variance)
        return WidthKernel(self.network, self.tangent, values["weight_variance"], bias)

    def diagonals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances and tangent kernels of inputs with themselves."""
        _, k, theta = self._alone(self._program(x), x, tangent=True)
        assert theta is not None
        return k.to(x.dtype), theta.to(x.dtype)

    def _diagonal(self, x: Tensor) -> Tensor:
        _, k, theta = self._alone(self._program(x), x, tangent=self.tangent)
        return (k if theta is None else theta).to(x.dtype)

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        variances = [self.weight_variance, self.bias_variance]
        if torch.is_grad_enabled() and any(
            isinstance(v, Tensor) and v.requires_grad for v in variances
        ):
            tensors = [torch.as_tensor(v, dtype=x1.dtype, device=x1.device) for v in variances]
            return _Differentiable.apply(*tensors, self, x1.detach(), x2)  # pyright: ignore[reportReturnType]
        with torch.no_grad():
            return self._values(x1.detach(), None if x2 is None else x2.detach())

    def _program(self, x: Tensor) -> Program:
        program = self.network.program(x)
        if self.tangent and program.no_tangent:
            raise ValueError(program.no_tangent)
        return program

    def _alone(
        self, program: Program, x: Tensor, *, tangent: bool
    ) -> tuple[Known, Tensor, Tensor | None]:
        memory = self.network.memory or (2**28 if x.device.type == "cpu" else 2**32)
        variances = float(self.weight_variance), float(self.bias_variance)
        with torch.no_grad():
            return program.alone(x.detach(), *variances, tangent=tangent, memory=memory)

    def _values(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        program = self._program(x1)
        dtype = torch.promote_types(x1.dtype, torch.float32)
        sides, diagonal = [], None
        for x in (x1, x2):
            if x is not None:
                same = self.tangent and x2 is None
                known, k, theta = self._alone(program, x, tangent=same)
                known = {i: tuple(t.to(dtype) for t in each) for i, each in known.items()}
                sides.append(_Side(program.prepared(x.to(dtype)), known))
                diagonal = k if theta is None else theta
        out = x1.new_empty(len(x1), len(x1 if x2 is None else x2))
        for rows, columns, block in self._blocks(program, sides[0], sides[-1], x2 is None, out):
            out[rows, columns] = block
            if x2 is None and rows.start != columns.start:
                out[columns, rows] = block.mT
        if x2 is None and diagonal is not None:
            out.diagonal().copy_(diagonal)
        return out

    def _blocks(
        self, program: Program, one: _Side, other: _Side, symmetric: bool, out: Tensor
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        side = self._tile(program, out)
        known = float(self.weight_variance), float(self.bias_variance), Workspace()
        for rows, columns in tiles_of(*out.shape, tile=side, symmetric=symmetric):
            a, b = one.part(rows), other.part(columns)
            sides = (a.raw, b.raw), (a.known, b.known)
            yield rows, columns, program.block(*sides, *known, tangent=self.tangent)

    def _tile(self, program: Program, out: Tensor) -> int:
        """How many inputs a side of a block has."""
        entries = program.entries()
        room = _CACHED if out.device.type == "cpu" else _ON_DEVICE
        if self.network.memory is not None:
            room = min(room, self.network.memory // (8 * _BUFFERS))
        return max(1, math.isqrt(room // entries))


class _Differentiable(torch.autograd.Function):
    """Kernel matrices with derivatives in both variances, by central differences."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor, kernel: WidthKernel, x1: Tensor, x2: Tensor | None
    ) -> Tensor:
        ctx.kernel, ctx.inputs = kernel, (x1, x2)
        ctx.save_for_backward(weight, bias)
        return kernel._values(x1, x2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x1 = ctx.inputs[0].double()
        x2 = None if ctx.inputs[1] is None else ctx.inputs[1].double()
        values, found = [float(v) for v in ctx.saved_tensors], []
        for i, like in enumerate(ctx.saved_tensors):
            if not ctx.needs_input_grad[i]:
                found.append(None)
                continue
            ends = []
            for sign in (1, -1):
                moved = [v * math.exp(sign * _STEP) if i == j else v for j, v in enumerate(values)]
                kernel = WidthKernel(ctx.kernel.network, ctx.kernel.tangent, *moved)
                ends.append(kernel._values(x1, x2))
            slope = (ends[0] - ends[1]) / (2 * math.sinh(_STEP) * values[i])
            found.append((grads[0].double() * slope).sum().to(like.dtype))
        return *found, None, None, None
