r"""A network as a function $f(\theta, x)$ of one parameter vector and of its inputs.

The parameters $W_1, \dots, W_L$ of a module, flattened and joined in the order of
`named_parameters`, are one vector

$$\theta = (\operatorname{vec} W_1, \dots, \operatorname{vec} W_L) \in \mathbb{R}^P,$$

with `ravel` and `unravel` for the two directions. The function is the network in evaluation mode:
batch normalisation with its running statistics, dropout as the identity. It is pure: the inputs and
the module's parameters, gradients, buffers, hooks, flags and other attributes are after a call what
they were before, and any of torch's transforms (`torch.func.grad`, `vmap`, ...) may go through it.
What `torch.compile` made of a module is left aside.

A parameter that several submodules share is one part of $\theta$. Where parameters differ in dtype
$\theta$ has the dtype that holds them all, and each gets its own back. Nothing is approximated.
"""

from collections.abc import Collection, Mapping
from copy import copy
from functools import cached_property, reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.models import (
    Modules,
    Output,
    aliases,
    call_arguments,
    call_with,
    chosen_output,
    evaluation,
    map_tensors,
    named_modules,
    tensor_homes,
    tensor_places,
    unwrapped,
)

__all__ = ["Functional", "functional"]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


class Functional:
    r"""The function $f(\theta, x)$ that a module computes in evaluation mode: see `functional`.

    Attributes:
        model: The module, which stays as it is.
        modules: Its submodules by name, as they were when this was made.
        parameters: Those of its parameters that count, by name.
        all_parameters: Those that do not count, as well.
        shapes: The shapes of the parameters by name.

    Example:
        >>> f = Functional(nn.Linear(2, 1))
        >>> f.shapes
        {'weight': torch.Size([1, 2]), 'bias': torch.Size([1])}
        >>> f.unravel(torch.tensor([[1.0, 2.0, 3.0]]))["weight"]
        tensor([[[1., 2.]]])
    """

    def __init__(self, model: nn.Module, *, frozen: bool = True, output: Output = None):
        model = unwrapped(model)
        self.modules = named_modules(model)
        _refuse_oddities(self.modules)
        self.model, self._output = model, output
        self.parameters: dict[str, Tensor] = {}
        names: dict[int, str] = {}
        self._places: dict[str, str] = {}
        self.all_parameters: list[Tensor] = []
        for place, p in tensor_places(self.modules, "parameters"):
            if p.is_complex():
                raise ValueError(f"parameters of model must be real, got {p.dtype} for {place}")
            self.all_parameters.append(p)
            if p.is_floating_point() and (frozen or p.requires_grad):
                name = self._places[place] = names.setdefault(id(p), place)
                self.parameters[name] = p
        self._aliases, self._homes = aliases(self.modules), tensor_homes(self.modules)
        self._buffers = [place for place, _ in tensor_places(self.modules, "buffers")]
        self._describe()

    def _describe(self) -> None:
        self.shapes = {name: p.shape for name, p in self.parameters.items()}
        dtypes = {p.dtype for p in self.parameters.values()} or {torch.get_default_dtype()}
        devices = [p.device for p in self.parameters.values()] or [torch.get_default_device()]
        self.dtype, self.device = reduce(torch.promote_types, dtypes), devices[0]
        self._sizes = [shape.numel() for shape in self.shapes.values()]
        self._one_kind = len(dtypes) == len(set(devices)) == 1
        self.size = sum(self._sizes)

    @cached_property
    def theta(self) -> Float[Tensor, " P"]:
        """A copy of the parameters as one vector, from when it is first asked for."""
        return self.ravel({name: p.detach() for name, p in self.parameters.items()})

    @property
    def values(self) -> dict[str, Tensor]:
        """The parameters by name: those of `theta` once that was asked for, else as they are."""
        return self.unravel(self.theta) if "theta" in vars(self) else self.parameters

    def part(self, names: Collection[str]) -> "Functional":
        """The same function of some of the parameters alone; the others are constants."""
        some = copy(self)
        vars(some).pop("theta", None)
        some._places = {place: name for place, name in self._places.items() if name in names}
        some.parameters = {name: p for name, p in self.parameters.items() if name in names}
        some._describe()
        return some

    def __repr__(self) -> str:
        return f"Functional({type(self.model).__name__}, {self.size} parameters)"

    def __call__(self, theta: Float[Tensor, " P"], x: Any) -> Any:
        """What the network gives for the inputs `x` with the parameters `theta`."""
        if theta.ndim != 1:
            raise ValueError(f"theta must have 1 axis, got shape {tuple(theta.shape)}")
        return self.call(self.unravel(theta), x)

    def call(self, parameters: Mapping[str, Tensor], x: Any) -> Any:
        """What the network gives with these parameters, given by name."""
        tensors = {place: parameters[name] for place, name in self._places.items()}
        buffers = {place: self.model.get_buffer(place) for place in self._buffers}
        copies = {id(b): b.detach().clone() for b in buffers.values()}
        tensors |= {place: copies[id(b)] for place, b in buffers.items()}
        args, kwargs = call_arguments(map_tensors(x, Tensor.clone))  # some layers work in place
        modules = named_modules(self.model)
        homes = self._homes if modules == self.modules else None  # the model may have changed
        with evaluation(modules):
            result = call_with(self.model, tensors, args, kwargs, also=self._aliases, homes=homes)
        return chosen_output(result, self._output)

    def ravel(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " *batch P"]:
        """Join tensors, given by the names of the parameters, to a vector (or a batch of them)."""
        if set(parameters) != set(self.shapes):
            odd = sorted(set(parameters) ^ set(self.shapes))
            raise ValueError(f"parameters must have the names of the model's, not so: {odd}")
        flat = []
        for name, shape in self.shapes.items():
            p = parameters[name]
            batch = p.shape[: p.ndim - len(shape)]
            if p.shape != (*batch, *shape):
                raise ValueError(f"{name} must have the shape {tuple(shape)}, got {tuple(p.shape)}")
            flat.append(p.reshape((*batch, shape.numel())).to(self.device, self.dtype))
        return torch.cat(flat, -1) if flat else torch.empty(0, **self._like())

    def unravel(self, theta: Float[Tensor, " *batch P"]) -> dict[str, Float[Tensor, " ..."]]:
        """The parameters by name, each in its shape and dtype; leading axes are kept."""
        if theta.ndim == 0 or theta.shape[-1] != self.size or theta.dtype != self.dtype:
            raise ValueError(
                f"theta must be {self.size} wide and of dtype {self.dtype}, got shape"
                f" {tuple(theta.shape)} and {theta.dtype}"
            )
        found, batch = {}, theta.shape[:-1]
        parts = theta.split(self._sizes, -1)
        for (name, p), part in zip(self.parameters.items(), parts, strict=True):
            part = part.view(batch + p.shape)
            found[name] = part if self._one_kind else part.to(p.device, p.dtype)
        return found

    def _like(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "device": self.device}


def functional(model: nn.Module, *, frozen: bool = True, output: Output = None) -> Functional:
    r"""A network as a pure function $f(\theta, x)$ of its parameters, as one vector, and inputs.

    Args:
        model: Any module. It is never changed.
        frozen: Whether parameters that require no gradient are a part of $\theta$, too; else they
            are constants.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        The function `f(theta, x)`, a `Functional`, where `x` is a mapping of keyword arguments, a
        tuple of positional ones, or else the one argument: a tensor, a packed sequence, a list, a
        dataclass, any object. It carries `theta`, a copy of the model's parameters as one vector,
        `size`, its length, `shapes`, those of the parameters by name, `ravel` (tensors by name to a
        vector) and `unravel` (back), which take batches as well.

    Raises:
        ValueError: If the model is not initialised, is scripted or quantised, or has complex
            parameters, or embeddings that renormalise their weights in place or scale their
            gradients.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1), nn.Dropout())
        >>> f = functional(model)
        >>> f(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[10.0, 100.0]]))
        tensor([[213.]])
        >>> gradient = torch.func.grad(lambda theta, x: f(theta, x).sum())
        >>> gradient(f.theta, torch.tensor([[10.0, 100.0]]))
        tensor([ 10., 100.,   1.])
    """
    f = Functional(model, frozen=frozen, output=output)
    assert len(f.theta) == f.size  # a copy as of now
    return f


def _refuse_oddities(modules: Modules) -> None:
    for prefix, module in modules:
        if not isinstance(module, _EMBEDDINGS):
            continue
        name = prefix[:-1]
        if module.max_norm is not None:
            raise ValueError(f"model must not renormalise its weights, got max_norm in {name!r}")
        if module.scale_grad_by_freq:  # then what autograd gives is no derivative
            raise ValueError(f"model must not have scale_grad_by_freq, which is set in {name!r}")
