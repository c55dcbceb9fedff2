r"""What the calls of a network's graph do to units: which compute, pass on, add up or read them.

| call | permuting | scaling by $c > 0$ |
|---|---|---|
| linear, convolution | computes units (rows, bias), reads others (columns) | the same |
| convolution of each channel alone | passes units on, with rows of its own | fixes them |
| embedding | computes units (columns) | the same |
| batch normalisation | passes units on, with tensors of its own | computes units (its scale and shift), and fixes what it reads |
| layer normalisation over the units | passes units on | computes units, and fixes what it reads |
| functions of each entry, dropout | pass units on | only ReLU, leaky ReLU and abs do, for $\phi(c z) = c \phi(z)$ |
| sums | make units one group | the same |
| products | make units one group | fix them |
| pooling, means, sums over positions, padding, cutting, flattening, turning axes | pass units on | the same |
| everything else | fixes the units that it meets | the same |
"""  # noqa: E501

from collections.abc import Callable
from typing import Any

from torch import Tensor

from vademecum.models.inputs import named_tensors
from vademecum.models.tracing import Call, Value
from vademecum.models.units._groups import UnitGroup, UnitMember, Units
from vademecum.models.units._moves import MOVES, given

__all__ = ["Graph"]

_SAME = {
    "contiguous", "clone", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout",
    "float", "double", "to", "neg", "abs", "relu", "leaky_relu",
}  # fmt: skip
_POINTWISE = _SAME | {
    "gelu", "silu", "mish", "elu", "selu", "celu", "relu6", "hardtanh", "hardsigmoid", "hardswish",
    "tanh", "sigmoid", "softplus", "softsign", "logsigmoid", "exp", "sin", "cos", "square", "pow",
    "sqrt", "erf", "tanhshrink", "softshrink", "hardshrink", "clamp", "alpha_dropout",
    "feature_alpha_dropout", "rrelu", "threshold",
}  # fmt: skip
_SUMS = {"add", "iadd", "radd", "sub", "isub"}
_PRODUCTS = {"mul", "imul", "rmul", "div", "truediv", "itruediv"}
_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}


class Graph:
    """The units of a network, found call by call.

    Args:
        owned: The parameters and buffers by their identities.
        scaling: Whether units are to be scaled rather than permuted.
    """

    def __init__(self, owned: set[int], *, scaling: bool):
        self.owned, self.scaling = owned, scaling
        self.units: dict[int, Units] = {}
        self.groups: list[UnitGroup] = []
        self.by_axis: dict[tuple[int, int], UnitGroup] = {}
        self.strange: dict[int, str] = {}  # where tensors lie that are used in unknown ways

    def follow(self, call: Call) -> None:
        """Note what a call does to the units of its inputs."""
        rule = self._rule(call.name)
        made = rule(call) if rule is not None else None
        if made is None:
            for value in call.tensors:
                self.fix(value, f"they are read by {call}")
            for tensor in constants(call):
                self.strange[tensor.untyped_storage().data_ptr()] = f"{call} uses their weights"
        elif len(call.outputs) == 1 and call.outputs[0] is not None:
            self.units[call.outputs[0].index] = made

    def fix(self, value: Value, reason: str) -> None:
        """Say that the units of a tensor cannot change."""
        if value.index in self.units:
            self.units[value.index].group.fix(reason)

    def found(self) -> list[UnitGroup]:
        """All groups, fixed where a tensor of theirs is used in an unknown way."""
        roots = {id(group.root()): group.root() for group in self.groups}
        for group in roots.values():
            for member in group.members.values():
                reason = self.strange.get(member.tensor.untyped_storage().data_ptr())
                if reason is not None:
                    group.fix(reason)
        return list(roots.values())

    def _rule(self, name: str) -> Callable[[Call], Units | None] | None:
        if name in _POINTWISE:
            return self._pointwise
        if name in _SUMS | _PRODUCTS:
            return self._combined
        if name in MOVES:
            return self._moved
        name = "convolution" if name in _CONVOLUTIONS else name
        name = "transposed" if name in _TRANSPOSED else name
        return getattr(self, f"_{name}", None)

    # layers with parameters

    def _linear(self, call: Call) -> Units | None:
        x, w, b = given(call, "input", "weight", "bias")
        if not self._are_own(w, b) or not self._reads(x, w, 1, x.tensor.ndim - 1, call):
            return None
        return Units(self._written(call, (w, 0), (b, 0)), x.tensor.ndim - 1)

    def _convolution(self, call: Call) -> Units | None:
        names = "input", "weight", "bias", "stride", "padding", "dilation", "groups"
        x, w, b, *_, groups = given(call, *names)
        axis = x.tensor.ndim - _CONVOLUTIONS[call.name] - 1
        if not self._are_own(w, b):
            return None
        if groups in (None, 1):
            if not self._reads(x, w, 1, axis, call):
                return None
            return Units(self._written(call, (w, 0), (b, 0)), axis)
        before = self.units.get(x.index)
        alone = groups == w.shape[0] and w.shape[1] == 1
        if not alone or before is None or before[1:] != (axis, 1):
            return None
        if self.scaling:  # a channel has a scale of its own on either side
            return None
        self._add(before.group, call, (w, 0), (b, 0))
        return before

    def _transposed(self, call: Call) -> Units | None:
        names = "input", "weight", "bias", "stride", "padding", "output_padding", "groups"
        x, w, b, *_, groups = given(call, *names)
        axis = x.tensor.ndim - _TRANSPOSED[call.name] - 1
        one = groups in (None, 1) and self._are_own(w, b)
        if not one or not self._reads(x, w, 0, axis, call):
            return None
        return Units(self._written(call, (w, 1), (b, 0)), axis)

    def _embedding(self, call: Call) -> Units | None:
        _, w = given(call, "input", "weight")
        out = call.outputs[0]
        if out is None or not self._are_own(w):
            return None
        return Units(self._written(call, (w, 1)), out.tensor.ndim - 1)

    def _batch_norm(self, call: Call) -> Units | None:
        x, mean, var, w, b = given(call, "input", "running_mean", "running_var", "weight", "bias")
        return self._normalised(call, x, 1, (w, b), (mean, var))

    _instance_norm = _batch_norm

    def _layer_norm(self, call: Call) -> Units | None:
        x, shape, w, b = given(call, "input", "normalized_shape", "weight", "bias")
        return self._normalised(call, x, x.tensor.ndim - 1, (w, b), ()) if len(shape) == 1 else None

    def _normalised(
        self, call: Call, x: Value, axis: int, affine: tuple[Any, ...], others: tuple[Any, ...]
    ) -> Units | None:
        before = self.units.get(x.index)
        if before is None or before[1:] != (axis, 1) or not self._are_own(*affine, *others):
            return None
        if not self.scaling:
            self._add(before.group, call, *((t, 0) for t in (*affine, *others)))
            return before
        before.group.fix(f"they are normalised by {call}")
        if affine[0] is None:
            return None
        return Units(self._written(call, *((t, 0) for t in affine)), axis)

    def _prelu(self, call: Call) -> Units | None:
        x, w = given(call, "input", "weight")
        before = self.units.get(x.index)
        if before is None or not self._are_own(w) or before.repeat != 1:
            return None
        if w.numel() > 1:
            if before.axis != 1:
                return None
            self._add(before.group, call, (w, 0), power=0)
        return before

    # calls without parameters

    def _pointwise(self, call: Call) -> Units | None:
        if len(call.tensors) != 1 or any(t.numel() > 1 for t in constants(call)):
            return None
        value = call.tensors[0]
        if self.scaling and call.name not in _SAME:
            self.fix(value, f"they are read by {call}, which does not scale with them")
            return None
        return self.units.get(value.index)

    def _combined(self, call: Call) -> Units | None:
        if len(call.args) < 2:
            return None
        first, second = call.args[:2]
        if not isinstance(first, Value) or not isinstance(second, Value):
            return self._with_number(call, first, second)
        units = [self.units.get(v.index) for v in (first, second)]
        same = first.tensor.ndim == second.tensor.ndim
        if units[0] is None or units[1] is None or not same or units[0][1:] != units[1][1:]:
            return None
        units[0].group.join(units[1].group, f"they meet others in {call}")
        if self.scaling and call.name in _PRODUCTS:
            return None
        return units[0]

    def _with_number(self, call: Call, first: Any, second: Any) -> Units | None:
        value, number = (first, second) if isinstance(first, Value) else (second, first)
        alone = not isinstance(number, Tensor) or (
            number.numel() == 1 and not number.requires_grad and id(number) not in self.owned
        )
        scales = call.name in _PRODUCTS and (value is first or "div" not in call.name)
        if not isinstance(value, Value) or not alone or (self.scaling and not scales):
            return None
        return self.units.get(value.index)

    def _moved(self, call: Call) -> Units | None:
        first = call.args[0] if call.args else None
        if not isinstance(first, Value) or len(call.tensors) > 1 or len(call.outputs) > 1:
            return None
        before = self.units.get(first.index)
        return None if before is None else MOVES[call.name](call, before)

    # groups

    def _are_own(self, *tensors: Any) -> bool:
        return all(t is None or (isinstance(t, Tensor) and id(t) in self.owned) for t in tensors)

    def _reads(self, x: Any, w: Tensor, axis: int, at: int, call: Call) -> bool:
        """Note that the units of an input meet an axis of a weight, if they lie there."""
        if not isinstance(x, Value):
            return False
        before = self.units.get(x.index)
        if before is None:  # inputs of the model, or what has become of units that are fixed
            others = UnitGroup(
                w.shape[axis], fixed=f"{call} reads something else by the same weights"
            )
            self._add(others, call, (w, axis), power=-1)
            return True
        if before.axis != at or before.group.root().size * before.repeat != w.shape[axis]:
            return False
        self._add(before.group, call, (w, axis), repeat=before.repeat, power=-1)
        return True

    def _written(self, call: Call, *places: tuple[Tensor | None, int]) -> UnitGroup:
        tensor, axis = places[0]
        assert tensor is not None
        group = UnitGroup(tensor.shape[axis], layers=[call.path])
        self.groups.append(group)
        self._add(group, call, *places)
        return group.root()

    def _add(
        self,
        group: UnitGroup,
        call: Call,
        *places: tuple[Tensor | None, int],
        repeat: int = 1,
        power: int = 1,
    ) -> None:
        """Note members, and become one with the group that has had them already."""
        for tensor, axis in places:
            if tensor is None:
                continue
            if tensor.shape[axis] != group.root().size * repeat:
                group.fix(f"they are read by {call}")
                continue
            key = id(tensor), axis
            if key in self.by_axis:
                self.by_axis[key].join(group, f"they share {call}")
            self.by_axis[key] = group.root()
            group.add(UnitMember(tensor, axis, repeat, power if self.scaling else 0))


def constants(call: Call) -> list[Tensor]:
    """The tensors among a call's arguments that do not depend on the input."""
    return [t for _, t in named_tensors((call.args, call.kwargs))]
