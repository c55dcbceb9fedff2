"""Reading a network's architecture from its traced code: calls become steps on covariances.

A signal of the code is an `Entry`: a number of the trace that depends on no weight yet, or a
function of each entry of a register with a layout of its axes. Functions are put together until
something needs their covariances, so an activation may be written in any number of calls.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.kernels.wide._duals import known_dual
from vademecum.kernels.wide._layouts import CHANNEL, Layout
from vademecum.kernels.wide._program import Program, Register
from vademecum.kernels.wide._refusals import naming, refused
from vademecum.kernels.wide._series import Series
from vademecum.kernels.wide._steps import Activation, Scale, Source
from vademecum.kernels.wide._unary import IDENTITY, Unary
from vademecum.models import Call, Value, evaluation

__all__ = ["Entry", "Reader"]


class Entry(NamedTuple):
    """A signal of the code."""

    raw: int | None
    """The number in the trace of what depends on no weight, else None."""
    register: int
    layout: Layout
    function: Unary

    def like(self, layout: Layout) -> "Entry":
        """The same with another layout."""
        return self._replace(layout=layout)


class Reader:
    """Makes a program, call by call.

    Args:
        model: The network.
        tol: The tolerance of integrals without closed form.
    """

    def __init__(self, model: nn.Module, tol: float):
        self.program, self.tol = Program(), tol
        self.trains = {id(p): p.requires_grad for p in model.parameters()}
        self.entries: dict[int, Entry] = {}
        self._used: dict[int, str] = {}
        self._made: dict[tuple[int, int], int] = {}
        self._kept: list[Unary] = []  # so that no other gets their ids

    def entry(self, value: Value) -> Entry:
        """The signal that a tensor of the trace is."""
        return self.entries[value.index]

    def register_of(self, entry: Entry) -> Register:
        """The register that an entry is a function of."""
        return self.program.registers[entry.register]

    def lifted(self, call: Call, entry: Entry, channel: int, shape: torch.Size) -> Entry:
        """A signal as a register: products of inputs, if it depends on no weight yet."""
        if entry.raw is None:
            return self.settled(call, entry)
        if len(shape) < 2:
            raise refused(call, f"inputs must have features, got shape {tuple(shape[1:])}")
        channel %= len(shape)
        sizes = [s for i, s in enumerate(shape) if i not in (0, channel)]
        source = Source(entry.raw, channel)
        register = Register(tuple(sizes), False, frozenset((-1 - entry.raw,)), False)
        number = self.program.add(source, (), register)
        places = iter(range(len(sizes)))
        layout = tuple(
            (CHANNEL,) if i == channel else (next(places),) for i in range(1, len(shape))
        )
        return Entry(None, number, layout, IDENTITY)

    def settled(self, call: Call, entry: Entry) -> Entry:
        """A signal as a register, with the function of its entries done."""
        function, base = entry.function, self.register_of(entry)
        if function is IDENTITY:
            return entry
        key = (entry.register, id(function))
        if key not in self._made:
            self._kept.append(function)
            if function.linear is not None:
                number = self.program.add(Scale(function.linear), (entry.register,), base)
            else:
                number = self._activated(call, entry, base)
            self._made[key] = number
        return Entry(None, self._made[key], entry.layout, IDENTITY)

    def _activated(self, call: Call, entry: Entry, base: Register) -> int:
        if base.uneven:
            self.no_tangent(call, base.uneven)
        function = entry.function
        with naming(function.last):
            dual = known_dual(function.call, function.inner) or Series(function.call, self.tol)
        register = Register(base.axes, False, base.layers, False)
        return self.program.add(Activation(dual, function.last), (entry.register,), register)

    def no_tangent(self, call: Call, reason: str) -> None:
        """Note why there is no tangent kernel; covariances there are."""
        self.program.no_tangent = self.program.no_tangent or str(refused(call, reason))

    def fresh(self, call: Call, weight: Any, bias: Any) -> tuple[bool, bool]:
        """Whether weights and biases train; each must be a parameter that is used once."""
        trains = []
        for name, tensor in (("weight", weight), ("bias", bias)):
            if tensor is None:
                continue
            if id(tensor) not in self.trains:
                tensor = _coordinate(call.module, name, tensor)
            if id(tensor) not in self.trains:
                raise refused(
                    call, f"its {name} is computed from others, so that it has no law of its own"
                )
            assert tensor is not None
            key = tensor.data_ptr() if tensor.device.type != "meta" else id(tensor)
            if key in self._used:
                raise refused(
                    call,
                    f"it shares its {name} with {self._used[key]}, and shared weights make layers"
                    " depend on each other",
                )
            self._used[key] = str(call)
            trains.append(self.trains[id(tensor)])
        return trains[0], len(trains) > 1 and trains[1]

    def trained(self, tensors: list[Tensor]) -> bool:
        """Whether some tensor is a parameter that trains."""
        return any(self.trains.get(id(t), False) for t in tensors)


def _coordinate(module: nn.Module | None, name: str, tensor: Tensor) -> Tensor | None:
    """The parameter that a tensor is a multiple of, as in NTK coordinates."""
    chains: Any = getattr(module, "parametrizations", {})
    found = getattr(chains[name], "original", None) if name in chains else None
    if module is None or not isinstance(found, Tensor) or found.shape != tensor.shape:
        return None
    twice = 2 * found.detach()
    with evaluation(module), torch.no_grad():
        for part in chains[name]:
            twice = part(twice)
    if not torch.allclose(twice, 2 * tensor, rtol=1e-5, atol=0):  # divided by its own norm
        return None
    omega, w = found.detach().flatten().double(), tensor.detach().flatten().double()
    factor = omega @ w / (omega @ omega).clamp(min=1e-300)
    return found if torch.allclose(w, factor * omega, rtol=1e-5, atol=0) else None
