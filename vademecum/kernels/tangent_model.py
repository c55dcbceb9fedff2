r"""A network linearised in its parameters, as a module that trains.

Around $\theta_0$ the first-order Taylor model of a network is

$$h(\beta)(x) = f_{\theta_0}(x) + J_{\theta_0}(x)\, \beta, \qquad \beta = \theta - \theta_0.$$

It is linear in $\beta$, so that its tangent kernel $J J^\top$ is the network's at $\theta_0$ and
stays so in training, and a loss that is convex in the outputs is convex in $\beta$. It equals the
network at $\beta = 0$ and differs from it by $O(\|\beta\|^2)$.

Both terms come from one pass of forward-mode differentiation: some two forward passes for a value,
and one backward pass for the gradient in $\beta$. No Jacobian is held. Where an operation of the
network has no forward mode, $J \beta$ is a backward pass through a backward pass, with a
`SlowPathWarning`. Exact up to rounding. The claims are `linearised_network`,
`linearised_training_convex` and `span_of_tangent_features`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.gradients import functional
from vademecum.models import (
    Output,
    aliases,
    call_with,
    cannot_be_mapped,
    chosen_output,
    differentiable_output,
    evaluation,
    map_tensors,
    tensor_places,
    warn_of_slow_path,
)

__all__ = ["LinearizedNetwork"]

Tensors = dict[str, Tensor]
_ATEN = torch.ops.aten.embedding  # what exported programs call
_LOOKS_UP: dict[Any, tuple[str, str, str]] = {
    F.embedding: ("input", "weight", "padding_idx"),
    **dict.fromkeys((torch.embedding, _ATEN, _ATEN.default), ("weight", "indices", "padding_idx")),
}


class LinearizedNetwork(nn.Module):
    r"""The network $f_{\theta_0}(x) + J_{\theta_0}(x)\, \beta$, whose parameters are $\beta$.

    It is called as the model is, and gives what the model gives in evaluation mode (batch
    normalisation with its running statistics, dropout as the identity), whatever its own mode. The
    model stays as it is, and what happens to it later has no effect: $\theta_0$ and the model's
    buffers are copied, and travel with the module's `state_dict` and to its device.

    Args:
        model: Any module that gives one tensor of floating-point numbers.
        frozen: Whether parameters that require no gradient get a $\beta$, too; by default they are
            constants, as when the model itself is trained.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Attributes:
        beta: A tree of modules with the parameters $\beta$, zero at first, under the names of the
            model's: `beta.0.weight`. In their order they are `functional(model).theta`'s.
        origin: Such a tree with $\theta_0$ and the model's buffers.

    Raises:
        ValueError: If nothing is to be trained, or the outputs are no tensor.

    References:
        Lee, Xiao, Schoenholz, Bahri, Novak, Sohl-Dickstein and Pennington, Wide neural networks of
        any depth evolve as linear models under gradient descent, NeurIPS 2019.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> h = LinearizedNetwork(nn.Sequential(model, nn.Softplus()))
        >>> with torch.no_grad():
        ...     _ = model.weight.fill_(0.0), model.bias.fill_(5.0)  # later: it has no effect
        ...     _ = h.origin.get_submodule("0").weight.fill_(0.0)
        ...     _ = h.origin.get_submodule("0").bias.fill_(0.0)
        ...     _ = h.beta.get_submodule("0").bias.fill_(0.1)
        >>> h(torch.ones(1, 1))  # log 2 + 0.1 / 2
        tensor([[0.7431]], grad_fn=<AddBackward0>)
    """

    def __init__(self, model: nn.Module, *, frozen: bool = False, output: Output = None):
        super().__init__()
        f = functional(model, frozen=frozen, output=output)
        if not f.size:
            raise ValueError("model must have parameters that require a gradient, got none")
        self._held, self._output, self._slow = _Held(f.model), output, False
        self._places: dict[str, str] = {}
        names: dict[int, str] = {}
        origin: Tensors = {}
        for kind in ("parameters", "buffers"):
            for place, t in tensor_places(f.model, kind):
                name = self._places[place] = names.setdefault(id(t), place)
                origin.setdefault(name, t.detach().clone())
        self._counters = {names[id(t)] for _, t in tensor_places(f.model, "buffers")}
        self._moving = list(f.parameters)
        self.origin = _tree(origin)
        self.beta = _tree({name: nn.Parameter(torch.zeros_like(origin[name])) for name in f.shapes})

    def forward(self, *args: Any, **kwargs: Any) -> Float[Tensor, " ..."]:
        r"""What the model gives at $\theta_0$, plus what it moves by along $\beta$.

        Args:
            args: What the model is called with.
            kwargs: What it is called with by name.
        """
        origin = {name: _at(self.origin, name) for name in dict.fromkeys(self._places.values())}
        theta = {name: origin[name] for name in self._moving}
        beta = {name: _at(self.beta, name) for name in self._moving}

        def f(theta: Tensors) -> Tensor:
            return self._called(origin | theta, args, kwargs)

        with evaluation(self._held.model):
            if not self._slow:
                try:
                    return torch.add(*torch.func.jvp(f, (theta,), (beta,)))
                except RuntimeError as error:
                    if not (isinstance(error, NotImplementedError) or cannot_be_mapped(error)):
                        raise
                    warn_of_slow_path("the tangent is a backward pass's backward pass", error)
                    self._slow = True
            return _by_backward_passes(f, theta, beta)

    def _called(self, tensors: Tensors, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        for name in self._counters:  # which code may write into
            tensors[name] = tensors[name].clone()
        used = {place: tensors[name] for place, name in self._places.items()}
        args, kwargs = map_tensors((args, kwargs), Tensor.clone)  # some layers work in place
        with _PaddingStays():
            found = call_with(self._held.model, used, args, kwargs, also=self._held.aliases)
        return differentiable_output(chosen_output(found, self._output), graph=False)

    def __repr__(self) -> str:
        size = sum(p.numel() for p in self.parameters())
        return f"LinearizedNetwork({type(self._held.model).__name__}, {size} parameters)"


class _PaddingStays(TorchFunctionMode):
    """A context in which padding of embeddings is constant forwards, as it is backwards."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        z = func(*args, **kwargs)
        if func not in _LOOKS_UP:
            return z
        given = dict(zip(_LOOKS_UP[func], args, strict=False)) | kwargs
        padding = given.get("padding_idx")
        if padding is None or (padding < 0 and func is not F.embedding):  # of torch's own: none
            return z
        ids = given["input" if func is F.embedding else "indices"]
        padded = ids == padding % len(given["weight"])
        return torch.where(padded[..., None], z.detach(), z)


class _Held:
    """The model, whose code is run with other tensors; it is not a submodule, and never copied."""

    def __init__(self, model: nn.Module):
        self.model, self.aliases = model, aliases(model)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Held":
        return self


def _tree(tensors: Mapping[str, Tensor]) -> nn.Module:
    """Modules that hold parameters, or buffers, under these names."""
    root = nn.Module()
    for name, t in tensors.items():
        *path, key = name.split(".")
        module = root
        for step in path:
            if step not in module._modules:
                module.register_module(step, nn.Module())
            module = module.get_submodule(step)
        if isinstance(t, nn.Parameter):
            module.register_parameter(key, t)
        else:
            module.register_buffer(key, t)
    return root


def _at(tree: nn.Module, name: str) -> Tensor:
    path, _, key = name.rpartition(".")
    return getattr(tree.get_submodule(path), key)


def _by_backward_passes(f: Callable[[Tensors], Tensor], theta: Tensors, beta: Tensors) -> Tensor:
    """The sum, with J beta the derivative in u of J^T u along beta, which is linear in u."""
    with torch.enable_grad():
        at = {name: t.detach().requires_grad_() for name, t in theta.items()}
        z = differentiable_output(f(at))
        u = torch.zeros_like(z, requires_grad=True)
        pulled = torch.autograd.grad(
            z, list(at.values()), u, create_graph=True, materialize_grads=True
        )
        parts = [(g * beta[name]).sum() for name, g in zip(at, pulled, strict=True)]
        along = torch.stack(parts).sum()
    (moved,) = torch.autograd.grad(
        along, u, create_graph=torch.is_grad_enabled(), materialize_grads=True
    )
    return z.detach() + moved
