r"""Stacks of dense layers for many weights at once: a product of matrices a layer, forth and back.

For C chains the first layer is one product of the (C m, d) matrix of all weights with the (d, n)
matrix of inputs, which chains share; the others are C products side by side. Signals are kept as
(C, m, n). Backwards with $\delta = \partial E / \partial z$

$$\nabla_W E = \delta h^\top, \qquad \nabla_b E = \delta \mathbf 1, \qquad \delta \leftarrow
\phi'(z) \odot W^\top \delta ,$$

where torch knows $\phi'$. Nothing is approximated; sums run in another order than the model's own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["DenseStack", "dense_stack"]

_ELEMENTWISE = (
    nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Softsign,
    nn.Mish, nn.SELU, nn.Hardtanh, nn.ReLU6,
)  # fmt: skip
_NOTHING = (nn.Identity, nn.Dropout)


class _Layer(NamedTuple):
    """A dense layer: where weights and biases begin in a row of parameters, and what follows."""

    rows: int
    columns: int
    weight: int
    bias: int | None
    activation: nn.Module | None


class DenseStack:
    """What a stack of dense layers gives for rows of parameters, and the gradient of a slope."""

    def __init__(self, layers: list[_Layer]):
        self._layers = layers

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs (chains, n, k) for inputs (n, d), or (chains, n, d)."""
        return self._forward(theta, x, None)

    def pulled_back(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """Outputs, and a function that turns their slopes into gradients of the parameters."""
        kept: list[tuple[Tensor, Tensor, Tensor | None]] = []
        z = self._forward(theta, x, kept)
        return z, lambda slope: self._backward(theta, slope.mT, kept)

    def _forward(self, theta: Tensor, x: Tensor, kept: list | None) -> Tensor:
        C, h = len(theta), x.mT
        for layer in self._layers:
            W = self._weights(theta, layer)
            b = None if layer.bias is None else theta[:, layer.bias : layer.bias + layer.rows, None]
            inputs = h
            if h.ndim == 2:  # the inputs, which all chains share
                z = (W.reshape(-1, layer.columns) @ h).view(C, layer.rows, -1)
                z = z if b is None else z + b
            else:
                z = W @ h if b is None else torch.baddbmm(b, W, h)
            h, leaf, out = self._activated(layer, z, kept is not None)
            if kept is not None:
                kept.append((inputs, leaf, out))
        return h.mT

    def _activated(
        self, layer: _Layer, z: Tensor, differentiate: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What follows a layer, with what torch needs to differentiate it."""
        if layer.activation is None:
            return z, None, None
        if not differentiate:
            return layer.activation(z.clone() if _in_place(layer) else z), None, None
        if type(layer.activation) is nn.Tanh:  # whose derivative is known from its value
            out = z.tanh()
            return out, None, out
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            out = layer.activation(leaf.clone() if _in_place(layer) else leaf)
        return out.detach(), leaf, out

    def _backward(self, theta: Tensor, delta: Tensor, kept: list) -> Tensor:
        C, found = len(theta), torch.empty_like(theta)
        for i in reversed(range(len(kept))):
            layer, (h, leaf, out) = self._layers[i], kept[i]
            if leaf is not None:
                (delta,) = torch.autograd.grad(out, leaf, delta)
            elif out is not None:
                delta = torch.addcmul(delta, delta * out, out, value=-1)
            size = layer.rows * layer.columns
            slopes = delta.reshape(C * layer.rows, -1) @ h.mT if h.ndim == 2 else delta @ h.mT
            found[:, layer.weight : layer.weight + size] = slopes.view(C, size)
            if layer.bias is not None:
                found[:, layer.bias : layer.bias + layer.rows] = delta.sum(-1)
            if i:
                delta = self._weights(theta, layer).mT @ delta
        return found

    def _weights(self, theta: Tensor, layer: _Layer) -> Tensor:
        size = layer.rows * layer.columns
        return theta[:, layer.weight : layer.weight + size].view(-1, layer.rows, layer.columns)


def dense_stack(model: nn.Module, offsets: Mapping[str, int], x: Any) -> DenseStack | None:
    """A model as a stack of dense layers, if it is one and its parameters stand at these places.

    Args:
        model: Any module.
        offsets: Where each parameter begins in a row of parameters.
        x: The inputs.
    """
    named = list(_flat("", model))
    modules = [module for _, module in named]
    if modules and type(modules[0]) is nn.Flatten and modules[0].start_dim == 1:
        named = named[1:]
    elif not isinstance(x, Tensor) or x.ndim != 2:
        return None
    if not isinstance(x, Tensor) or any(m._forward_hooks or m._forward_pre_hooks for m in modules):
        return None
    layers: list[_Layer] = []
    for name, module in named:
        if type(module) is nn.Linear:
            layer = _linear(name, module, offsets)
            if layer is None:
                return None
            layers.append(layer)
        elif type(module) in _ELEMENTWISE and layers and layers[-1].activation is None:
            layers[-1] = layers[-1]._replace(activation=module)
        elif type(module) not in _NOTHING:
            return None
    places = [p for layer in layers for p in (layer.weight, layer.bias) if p is not None]
    return DenseStack(layers) if layers and len(set(places)) == len(places) else None


def _linear(name: str, module: nn.Linear, offsets: Mapping[str, int]) -> _Layer | None:
    weight, bias = offsets.get(f"{name}weight"), offsets.get(f"{name}bias")
    if weight is None or (module.bias is not None and bias is None):
        return None  # frozen, or shared with another place
    return _Layer(module.out_features, module.in_features, weight, bias, None)


def _flat(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in the order in which a sequence calls them, with the prefixes of their names."""
    if type(module) is not nn.Sequential or module._forward_hooks or module._forward_pre_hooks:
        yield prefix, module
        return
    for name, child in module.named_children():
        yield from _flat(f"{prefix}{name}.", child)


def _in_place(layer: _Layer) -> bool:
    return bool(getattr(layer.activation, "inplace", False))
