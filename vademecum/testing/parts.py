"""The laws of parts: what any module owes to whoever builds with it.

Every law works on deep copies, with generators seeded beforehand and given back afterwards, so that
the module under test is left as it was.

| law | a module keeps it if |
|---|---|
| finite | its output is finite, in eval and in train mode |
| batch | each output has as many examples as the inputs |
| gradient | a gradient that is finite and not zero reaches every parameter that requires one |
| determinism | eval mode gives the same bits twice; so does train mode after reseeding |
| dtype | it works in float32 and float64 and answers in the dtype it was given |
| device | it works on every device, answers there, and the answers agree (compared in float64) |
| save_load | its state dict, written and read, makes an overwritten copy answer the same |
| repr | its repr names the class and holds no memory address |
| independence | in eval mode no example's output depends on the other examples |
| untouched | a forward pass in eval mode changes neither module, inputs nor random states |
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.randomness import reseed
from vademecum.testing import laws

__all__ = ["PART_LAWS", "check_part"]

Dims = int | None | tuple[int | None, ...]


def check_part(
    module: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    *,
    skip: Mapping[str, str] | None = None,
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    devices: Sequence[str] | None = None,
    tol: float | None = None,
) -> tuple[str, ...]:
    """Hold a module to the laws of parts.

    Args:
        module: Any module, in any mode; its parameters must have been made (no lazy ones).
        inputs: What to call it with: a tensor, or a tuple of positional arguments; two or more
            examples, so that their independence can be seen.
        skip: Reasons by the names of laws not to check.
        in_dims: The batch's axis in every input, or one for each; None where there is no batch.
        out_dims: The same for the output's tensors, in the order in which they appear.
        devices: Where to run: by default the CPU and a CUDA device if there is one. On "meta" only
            the device and the shape are compared, which finds forgotten buffers without a GPU.
        tol: What results that should agree may differ by, in place of the rounding that is
            expected of their dtype.

    Returns:
        The names of the laws that were checked and hold.

    Raises:
        BrokenLaw: At the first law that does not hold.
        ValueError: If `skip` names an unknown law, or the inputs do not have a batch.

    Example:
        >>> check_part(nn.Linear(3, 2), torch.randn(4, 3))[:3]
        ('finite', 'batch', 'gradient')
        >>> check_part(nn.Softmax(dim=0), torch.randn(4, 3))
        Traceback (most recent call last):
        vademecum.testing.laws.BrokenLaw: Softmax breaks the law 'independence': ...
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    axes = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(given)
    if len(axes) != len(given):
        raise ValueError(f"in_dims must have one axis for each of {len(given)} inputs, got {axes}")
    cuda = ("cuda",) if torch.cuda.is_available() else ()
    wide = "dtype" not in (skip or {})
    part = _Part(module, given, axes, out_dims, tuple(devices or ("cpu", *cuda)), tol, wide)
    if part.examples < (1 if "independence" in (skip or {}) else 2):
        raise ValueError(f"inputs must hold at least 2 examples, got {part.examples}")
    return laws.enforce(PART_LAWS, part, type(module).__name__, skip)


@dataclass(frozen=True)
class _Part:
    module: nn.Module
    inputs: tuple[Any, ...]
    in_dims: tuple[int | None, ...]
    out_dims: Dims
    devices: tuple[str, ...]
    tol: float | None
    wide: bool

    @property
    def examples(self) -> int:
        sizes = {
            x.shape[dim]
            for x, dim in zip(self.inputs, self.in_dims, strict=True)
            if isinstance(x, Tensor) and dim is not None
        }
        if len(sizes) != 1:
            raise ValueError(f"inputs must agree in the size of the batch, got {sorted(sizes)}")
        return sizes.pop()

    def copy(self, *, training: bool = False) -> nn.Module:
        return deepcopy(self.module).train(training)

    def call(self, module: nn.Module, inputs: tuple[Any, ...] | None = None) -> list:
        result = module(*(self.fresh() if inputs is None else inputs))
        return [(name, x.detach()) for name, x in laws.named_tensors(result)]

    def fresh(self, **to: Any) -> tuple[Any, ...]:
        """Copies of the inputs, with `dtype` for floating-point ones and on `device`."""
        dtype, device = to.get("dtype"), to.get("device")
        return tuple(
            x.detach().clone().to(device, dtype if x.is_floating_point() else None)
            if isinstance(x, Tensor)
            else x
            for x in self.inputs
        )

    def rows(self, index: Tensor) -> tuple[Any, ...]:
        pairs = zip(self.fresh(), self.in_dims, strict=True)
        return tuple(_rows(x, dim, index) if isinstance(x, Tensor) else x for x, dim in pairs)

    def axes(self, outputs: laws.Named) -> tuple[int | None, ...]:
        dims = self.out_dims
        dims = dims if isinstance(dims, tuple) else (dims,) * len(outputs)
        if len(dims) != len(outputs):
            raise ValueError(f"out_dims must have one axis for each of {len(outputs)} outputs")
        return dims

    def allowed(self, result: Tensor) -> float:
        if self.tol is not None:
            return self.tol
        given = list(laws.named_tensors(self.inputs))
        entries = sum(x.numel() for _, x in given) // self.examples
        return laws.rounding(entries + _size(self.module), given)(result)


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _rows(x: Tensor, dim: int | None, index: Tensor) -> Tensor:
    return x if dim is None else x.index_select(dim, index.to(x.device))


def _finite(part: _Part) -> Iterator[str]:
    for training in (False, True):
        outputs = part.call(part.copy(training=training))
        if not outputs:
            yield "its output holds no tensor"
        for name, x in outputs:
            bad = int((~torch.isfinite(x)).sum())
            mode = "train" if training else "eval"
            if bad:
                yield f"{bad} of {x.numel()} entries of {name} are not finite in {mode} mode"


def _batch(part: _Part) -> Iterator[str]:
    outputs = part.call(part.copy())
    for (name, x), dim in zip(outputs, part.axes(outputs), strict=True):
        if dim is not None and (x.ndim <= dim or x.shape[dim] != part.examples):
            yield f"{name} has shape {tuple(x.shape)} for a batch of {part.examples} on axis {dim}"


def _gradient(part: _Part) -> Iterator[str]:
    module = part.copy(training=True)
    wanted = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not wanted:
        return
    outputs = [x for _, x in laws.named_tensors(module(*part.fresh())) if x.requires_grad]
    if not outputs:
        yield f"its output depends on none of its {len(wanted)} parameters differentiably"
    weights = [torch.randn_like(x) for x in outputs]  # a plain sum would hide a softmax's gradient
    grads = torch.autograd.grad(outputs, list(wanted.values()), weights, allow_unused=True)
    for name, grad in zip(wanted, grads, strict=True):
        if grad is None:
            yield f"no gradient reaches {name}"
        elif not torch.isfinite(grad).all():
            yield f"the gradient of {name} is not finite"
        elif not grad.any():
            yield f"the gradient of {name} is zero in all {grad.numel()} entries"


def _determinism(part: _Part) -> Iterator[str]:
    for training in (False, True):
        first, again = part.copy(training=training), part.copy(training=training)
        mode = "in train mode after reseeding" if training else "between two calls in eval mode"
        reseed(1)
        wanted = part.call(first)
        if training:
            reseed(1)
        found = part.call(again if training else first)
        for complaint in laws.differences(found, wanted, lambda _: 0.0):
            yield f"{complaint}, {mode}"


def _dtype(part: _Part) -> Iterator[str]:
    for dtype in (torch.float32, torch.float64):
        module = part.copy()
        module = module.double() if dtype == torch.float64 else module.float()
        for name, x in part.call(module, part.fresh(dtype=dtype)):
            inexact = x.is_floating_point() or x.is_complex()
            if inexact and x.dtype not in (dtype, dtype.to_complex()):
                yield f"{name} is {x.dtype} for inputs and parameters of {dtype}"


def _device(part: _Part) -> Iterator[str]:
    wide = torch.float64 if part.wide else None  # there no TF32 blurs the comparison
    start = part.copy().double() if part.wide else part.copy()
    wanted = part.call(deepcopy(start).cpu(), part.fresh(device="cpu", dtype=wide))
    for device in part.devices:
        found = part.call(deepcopy(start).to(device), part.fresh(device=device, dtype=wide))
        for name, x in found:
            if x.device.type != torch.device(device).type:
                yield f"{name} is on {x.device} for inputs and parameters on {device}"
        values = [(name, x.cpu()) for name, x in found] if device != "meta" else _zeros(found)
        target = wanted if device != "meta" else _zeros(wanted)
        for complaint in laws.differences(values, target, part.allowed):
            yield f"{complaint} between cpu and {device}"


def _zeros(results: laws.Named) -> laws.Named:
    return [(name, torch.zeros_like(x, device="cpu")) for name, x in results]


def _save_load(part: _Part) -> Iterator[str]:
    trained, fresh = part.copy(training=True), part.copy()
    part.call(trained)  # so that state which training changes differs from that of the copy
    with torch.no_grad():
        for x in fresh.state_dict().values():
            if isinstance(x, Tensor):
                _scramble(x)
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    found, wanted = part.call(fresh), part.call(trained.eval())
    for complaint in laws.differences(found, wanted, lambda _: 0.0):
        yield f"{complaint} after saving and loading"


def _scramble(x: Tensor) -> None:
    if x.is_floating_point() or x.is_complex():
        x.normal_()
    elif x.dtype == torch.bool:
        x.logical_not_()
    else:
        x.add_(1)


def _repr(part: _Part) -> Iterator[str]:
    text, name = repr(part.module), type(part.module).__name__
    if name not in text:
        yield f"{text!r} does not name the class {name}"
    if address := re.search(r"\b0x[0-9a-fA-F]{6,}", text):
        yield f"{text!r} holds the memory address {address.group()}"


def _independence(part: _Part) -> Iterator[str]:
    n, full = part.examples, part.call(part.copy())
    for index in (torch.tensor([n - 1]), torch.arange(n // 2, -1, -1)):
        pairs = zip(full, part.axes(full), strict=True)
        wanted = [(name, _rows(x, dim, index)) for (name, x), dim in pairs if dim is not None]
        found = part.call(part.copy(), part.rows(index))
        found = [x for x, dim in zip(found, part.axes(found), strict=True) if dim is not None]
        for complaint in laws.differences(found, wanted, part.allowed):
            yield f"{complaint} between {len(index)} of {n} examples and the same within the batch"


def _untouched(part: _Part) -> Iterator[str]:
    module, inputs = part.copy(), part.fresh()
    before = laws.snapshot(module, attributes=False)
    module(*inputs)
    yield from laws.changes(before, laws.snapshot(module, attributes=False))
    given = [list(laws.named_tensors(x, "the input")) for x in (part.inputs, inputs)]
    for (name, old), (_, new) in zip(*given, strict=True):
        if not laws.same(old, new):
            yield f"{name} was changed in place"


_LAWS = (
    *(_finite, _batch, _gradient, _determinism, _dtype, _device),
    *(_save_load, _repr, _independence, _untouched),
)
PART_LAWS = {law.__name__[1:]: law for law in _LAWS}
"""The laws of parts by name, in the order in which they are checked."""
