r"""Backpropagation laid bare: what flows forward and back through each layer of a network.

For $F = F_k \circ \dots \circ F_1$ with activations $z_l = F_l(z_{l-1})$, $z_0 = x$, and a loss
$\ell$:

1. forward, $z_1, \dots, z_k$ are computed and stored;
2. backward, the error vectors $\xi_{k+1} = \partial \ell(z_k)$ and
   $\xi_l = \xi_{l+1}\, \partial F_l(z_{l-1})$: the sensitivity of the loss to $z_{l-1}$;
3. locally, the gradients $\nabla_{\theta_l} \ell = \xi_{l+1} \cdot F_l'(z_{l-1})$.

Each layer is differentiated by itself, at its stored input; the recursion between the layers is
this module's. Exact up to rounding, for layers of any kind.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import (
    Loss,
    aliases,
    call_arguments,
    call_with,
    described,
    loss_for,
    map_tensors,
    refuse_nan,
    tensor_places,
    untouched,
    unwrapped,
)
from vademecum.randomness import own_randomness, source
from vademecum.results import one_line

__all__ = ["Backprop", "LayerNorms", "LayerTrace", "backprop"]


class LayerNorms(NamedTuple):
    """The norms of what passed a layer, over all examples.

    Example:
        >>> layer = nn.Sequential(nn.Flatten())
        >>> backprop(layer, torch.tensor([[3.0]]), torch.tensor([[1.0]])).norms
        (LayerNorms(name='0', layer='Flatten', activation=3.0, error=4.0, gradient=0.0),)
    """

    name: str
    """The place of the layer in the model."""
    layer: str
    """The name of its class."""
    activation: float
    """The norm of its output."""
    error: float
    """The norm of the loss's gradient there."""
    gradient: float
    """The norm of the loss's gradient in its parameters, 0 if it has none."""

    __repr__ = one_line


class LayerTrace(NamedTuple):
    """One layer: its place, itself, its output, the loss's gradient there, and in its parameters.

    Example:
        >>> found = backprop(nn.Sequential(nn.Tanh()), torch.zeros(1, 1), torch.ones(1, 1))
        >>> found.layers[0].name, found.layers[0].layer, found.layers[0].error
        ('0', Tanh(), tensor([[-2.]]))
    """

    name: str
    """The place of the layer in the model."""
    layer: nn.Module
    """The layer itself."""
    activation: Tensor
    """Its output $z_l$."""
    error: Tensor
    r"""The loss's gradient there, $\xi_{l+1}$."""
    gradients: dict[str, Tensor]
    """The loss's gradient in the layer's parameters, by their names in it."""

    __repr__ = one_line


class Backprop(NamedTuple):
    r"""The three passes: the loss, its gradient in the input ($\xi_1$), and every layer.

    Example:
        >>> found = backprop(nn.Sequential(nn.Tanh()), torch.zeros(1, 1), torch.ones(1, 1))
        >>> found.loss, found.input_error
        (tensor(1.), tensor([[-2.]]))
    """

    loss: Tensor
    """The loss."""
    input_error: Tensor | None
    r"""Its gradient in the input, $\xi_1$; None for inputs that are no tensor of real numbers."""
    layers: tuple[LayerTrace, ...]
    """What passed each layer, from the first to the last."""

    __repr__ = one_line

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The gradients by the names of the parameters, added up where these are tied."""
        first: dict[int, str] = {}
        total: dict[str, Tensor] = {}
        for trace in self.layers:
            for name, p in trace.layer.named_parameters():
                key = first.setdefault(id(p), f"{trace.name}.{name}")
                total[key] = (
                    total[key] + trace.gradients[name] if key in total else trace.gradients[name]
                )
        return total

    @property
    def norms(self) -> tuple[LayerNorms, ...]:
        """The Euclidean norms of activation, error and gradient, layer by layer."""
        return tuple(
            LayerNorms(
                trace.name,
                type(trace.layer).__name__,
                _norm(trace.activation),
                _norm(trace.error),
                _norm(*trace.gradients.values()),
            )
            for trace in self.layers
        )

    def table(self) -> str:
        """The norms as text, from the input to the loss.

        Example:
            >>> found = backprop(nn.Sequential(nn.Tanh()), torch.zeros(1, 1), torch.ones(1, 1))
            >>> print(found.table())
            layer          activation       error    gradient
            0 Tanh                  0           2           -
        """
        wide = max([14, *(len(f"{n.name} {n.layer}") for n in self.norms)])
        lines = [f"{'layer':{wide}} {'activation':>10}  {'error':>10}  {'gradient':>10}"]
        for n, trace in zip(self.norms, self.layers, strict=True):
            gradient = f"{n.gradient:10.3g}" if trace.gradients else f"{'-':>10}"
            lines.append(
                f"{f'{n.name} {n.layer}':{wide}} {n.activation:10.3g}  {n.error:10.3g}  {gradient}"
            )
        return "\n".join(lines)


def backprop(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    loss: Loss | None = None,
    generator: torch.Generator | None = None,
) -> Backprop:
    r"""Backpropagation through a sequential network, with all that it computes on the way.

    The model is taken in the mode in which it is (batch normalisation and dropout as in training,
    if that is it) and left as it was, and so is torch's global generator.

    Args:
        model: An `nn.Sequential`, nested ones taken apart; any other module is one layer.
        x: Inputs, one example a row; a tensor, or any structure of tensors (see `functional`) that
            the first layer takes.
        y: Targets for the loss.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The loss, the error vectors $\xi_{l+1}$ with the activations $z_l$ layer by layer, and the
        local gradients, of frozen parameters too.

    Raises:
        ValueError: If the model is not sequential, a layer's output is not one floating-point
            tensor, targets do not fit the outputs, or the loss is not one number.

    References:
        Rumelhart, Hinton and Williams, Learning representations by back-propagating errors,
        Nature, 1986.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Tanh())
        >>> _ = nn.init.ones_(model[0].weight)
        >>> found = backprop(model, torch.ones(1, 1), None, loss=lambda z, y: z.sum())
        >>> [layer.error for layer in found.layers]
        [tensor([[0.4200]]), tensor([[1.]])]
        >>> found.gradients
        {'0.weight': tensor([[0.4200]])}
    """
    model = unwrapped(model)
    layers, modules = list(_layers(model)), list(model.modules())
    refuse_nan(x)
    loss = loss_for(y, loss)
    with own_randomness(_seed(generator)), untouched(modules), torch.enable_grad():
        local = [_forward(*layers[0], x)]
        for name, layer in layers[1:]:
            local.append(_forward(name, layer, local[-1][-1].detach()))
        activations = [out.detach() for *_, out in local]
        z = activations[-1].clone().requires_grad_()
        value = loss(z, y)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ValueError(f"loss must give one differentiable number, got {described(value)}")
        xi: Tensor | None = _pull(value, [z], torch.ones_like(value))[0]
        traces = []
        for (name, layer), (z, theta, out) in zip(reversed(layers), reversed(local), strict=True):
            assert xi is not None
            error = xi
            inputs = [z] if isinstance(z, Tensor) and z.requires_grad else []
            pulled = _pull(out, [*inputs, *theta.values()], xi)
            xi = pulled.pop(0) if inputs else None
            gradients = dict(zip(theta, pulled, strict=True))
            traces.append(LayerTrace(name, layer, activations.pop(), error, gradients))
    return Backprop(value.detach(), xi, tuple(reversed(traces)))


def _seed(generator: torch.Generator | None) -> int | None:
    """A seed from a generator, for layers that draw from torch's global one; None to keep that."""
    if generator is None:
        return None
    return int(torch.randint(2**62, (), **source(generator, None)))


def _layers(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers in the order of their calls, those used twice twice."""
    if type(model).forward is not nn.Sequential.forward:
        raise ValueError(f"model must be an nn.Sequential, got {type(model).__name__}")
    found = False
    for name, child in model.named_modules(remove_duplicate=False):
        if name and "." not in name:
            found = True
            if type(child).forward is nn.Sequential.forward and len(list(child.children())):
                yield from _layers(child, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", child
    if not found:
        raise ValueError("model must have layers, got an empty nn.Sequential")


def _forward(name: str, layer: nn.Module, z: Any) -> tuple[Any, dict[str, Tensor], Tensor]:
    """A layer's input, parameters and output, with a graph between them and to nothing else."""
    z = map_tensors(z, Tensor.detach)
    if isinstance(z, Tensor) and (z.is_floating_point() or z.is_complex()):
        z.requires_grad_()
    theta = {key: p.detach().clone().requires_grad_() for key, p in layer.named_parameters()}
    names = {id(p): key for key, p in layer.named_parameters()}
    tensors = {place: theta[names[id(p)]] for place, p in tensor_places(layer, "parameters")}
    copies = {id(b): b.clone() for b in layer.buffers()}
    tensors |= {place: copies[id(b)] for place, b in tensor_places(layer, "buffers")}
    args, kwargs = call_arguments(map_tensors(z, Tensor.clone))  # a copy for layers in place
    out = call_with(layer, tensors, args, kwargs, also=aliases(layer))
    if not isinstance(out, Tensor) or not (out.is_floating_point() or out.is_complex()):
        raise ValueError(f"layer {name} must give one floating-point tensor, got {described(out)}")
    if not out.requires_grad:
        raise ValueError(f"layer {name} must be differentiable, got a {type(layer).__name__}")
    return z, theta, out


def _pull(out: Tensor, leaves: list[Tensor], xi: Tensor) -> list[Tensor]:
    if not leaves:
        return []
    found = torch.autograd.grad(out, leaves, xi, materialize_grads=True)
    return [g.to_dense() for g in found]  # those of embeddings may be sparse


def _norm(*tensors: Tensor) -> float:
    return sum(float(torch.linalg.vector_norm(t)) ** 2 for t in tensors) ** 0.5
