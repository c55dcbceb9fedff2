r"""Exact traces of a network's curvature, parameter by parameter, from rules of its layers.

Of examples that do not influence each other the Gauss-Newton matrix is $\sum_i J_i^T \Lambda_i
J_i$, with the Jacobian $J_i$ of example $i$ and the $k \times k$ Hessian $\Lambda_i = \sum_c
w_{ic}\, q_{ic} q_{ic}^T$ of the loss in its outputs, in terms of its eigenvectors. So the trace
over any parameters $W$ is

$$\operatorname{tr} G_W = \sum_{i, c} w_{ic}\, \Big\| \frac{\partial \langle q_{ic}, f_i
\rangle}{\partial W} \Big\|^2:$$

squared norms of per-example gradients, from at most $k$ backward passes (for the cross-entropy $k -
1$, since $\Lambda_i$ annihilates the ones). The rules of `vademecum.gradients._layer_rules` give
these from what went into a layer and what comes back to it.

The Hessian has the same diagonal blocks, layer by layer, where the outputs are piecewise affine in
each layer's own parameters: all operations but products with a weight that is used once are
piecewise linear. Autograd's graph tells. Everything is exact up to rounding.

References:
    Dangel, Kunstner and Hennig, BackPACK: packing more into backprop, ICLR, 2020. Dangel, Harmeling
    and Hennig, Modular block-diagonal curvature approximations for feedforward architectures,
    AISTATS, 2020.
"""

from collections import Counter
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from vademecum.arrays import portions
from vademecum.gradients._compared_passes import record
from vademecum.gradients._independent_rows import portions_of, study
from vademecum.gradients._layer_rules import gram_is_smaller, squared_norm
from vademecum.gradients._recorded_pass import LayerCall, Pass
from vademecum.gradients.network_function import Functional
from vademecum.models import Entangled, Loss, described, differentiable_output, loss_for
from vademecum.optimization.sharpest_direction import NotFinite

__all__ = ["NoRule", "exact_traces"]

_PORTION = 2**25  # bytes of gradients at a time
_LINEAR = {  # operations that are piecewise linear, in all their arguments together
    "AccumulateGrad", "Add", "Alias", "Cat", "Clone", "ConstantPadNd", "Copy", "Embedding",
    "Expand", "Hardtanh", "LeakyRelu", "Mean", "Narrow", "Neg", "Permute", "Relu", "Repeat",
    "ReshapeAlias", "Select", "Slice", "Split", "Squeeze", "Stack", "Sub", "Sum", "T", "Threshold",
    "ToCopy", "Transpose", "Unbind", "Unfold", "UnsafeView", "Unsqueeze", "View",
}  # fmt: skip
_POOLS = ("AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "MaxPool", "UpsampleNearest")
_BILINEAR = {  # and products, with the places of their factors
    "Addmm": (1, 2), "Addmv": (1, 2), "Baddbmm": (1, 2), "Bmm": (0, 1), "Convolution": (0, 1),
    "CudnnBatchNorm": (0, 1), "Div": (0, 1), "Mm": (0, 1), "Mul": (0, 1), "Mv": (0, 1),
    "NativeBatchNorm": (0, 1),
}  # fmt: skip


class NoRule(ValueError):
    """A network whose trace the layers' rules do not give."""


def exact_traces(
    f: Functional,
    x: Any,
    y: Any,
    *,
    loss: Loss | None,
    hessian: bool,
    most: int,
    memory: int | None = None,
) -> Float[Tensor, " parameters"]:
    """The traces of the blocks of all parameters, in the order of `f.parameters`.

    Args:
        f: The network.
        x: Its inputs.
        y: The targets.
        loss: A function of outputs and targets with one number for all.
        hessian: Whether the trace is to be that of the Hessian, not just of Gauss-Newton.
        most: The most backward passes to make.
        memory: Bytes to use at most, as far as an estimate goes.

    Raises:
        NoRule: If it cannot be had in this way, or not with so few passes.
        NotFinite: If the loss has no finite curvature in the outputs.
    """
    with torch.no_grad():
        output = f(f.theta, x)
    if not isinstance(output, Tensor):
        raise NoRule("model must give a tensor")
    try:
        plan = study(f, x)
    except Entangled as error:
        raise NoRule(str(error)) from error
    if not plan.covered or (hessian and plan.shared):
        raise NoRule("the layers' rules do not cover model")
    output = differentiable_output(output, graph=False)
    if output[0].numel() > most:
        raise NoRule(f"model must have at most {most} outputs, got {output[0].numel()}")
    q, w = _eigenvectors(output, y, loss)
    step = plan.step(f.device)
    if memory is not None:
        step = min(step, plan.portion(len(q), f.size * f.dtype.itemsize, memory, mapped=False))
    total = torch.zeros(len(f.parameters), dtype=torch.float64, device=f.device)
    for here in portions_of(slice(0, len(output)), step):
        found = record(f, plan, x, here)
        if found is None or (hessian and not _is_multilinear(found[0])):
            raise NoRule("the layers' rules do not cover model")
        done, same = found
        b = done.backward(q[:, here].reshape(-1, *done.output.shape)) if len(q) else []
        if not same():
            raise NoRule("other examples change what layers see")
        total += _by_parameter(f, done, b, w[here]) if len(q) else 0
    return total


def _eigenvectors(output: Tensor, y: Any, loss: Loss | None) -> tuple[Tensor, Tensor]:
    """The vectors q, (c, n, k), and their eigenvalues w, (n, c), as few as there need to be."""
    z = output.detach().requires_grad_()
    with torch.enable_grad():
        value = loss_for(y, loss)(z, y)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ValueError(f"loss must give one differentiable number, got {described(value)}")
        (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    n, k = len(z), z[0].numel()

    def product(v: Tensor) -> Tensor:
        if not slope.requires_grad:  # the loss is linear
            return torch.zeros(n, k, dtype=z.dtype, device=z.device)
        v = v.to(z.dtype).reshape(z.shape)
        found = torch.autograd.grad(slope, z, v, retain_graph=True, materialize_grads=True)[0]
        return found.reshape(n, k)

    eye = torch.eye(k, dtype=z.dtype, device=z.device)
    curvature = torch.stack([product(e.expand(n, k)) for e in eye], -1).double()
    weights = (1 + torch.arange(n, device=z.device)).cos()[:, None]  # tell examples apart
    together = product(weights.expand(n, k)).double()
    if not curvature.isfinite().all():
        raise NotFinite("the loss's curvature must be finite, got NaN or infinity")
    gap = (together - weights * curvature.sum(-1)).abs().max()
    if gap > torch.finfo(z.dtype).eps ** 0.5 * curvature.abs().max():
        raise NoRule("loss must be a sum over examples")
    w, Q = torch.linalg.eigh((curvature + curvature.mT) / 2)
    kept = (w.abs() > k * torch.finfo(z.dtype).eps * w.abs().max()).any(0)
    return Q[..., kept].movedim(-1, 0).to(z.dtype), w[:, kept]


def _is_multilinear(done: Pass) -> bool:
    """Whether outputs are piecewise affine in the parameters of each layer by themselves."""
    uses = Counter(name for call in done.calls for name in call.names.values())
    if max(uses.values(), default=0) > 1:
        return False
    active = 0
    for node in _nodes(get_gradient_edge(done.output).node):
        name = node.name().removeprefix("torch::autograd::").partition("Backward")[0]
        if name in _BILINEAR:
            inputs = [child for child, _ in node.next_functions]
            factors = [i for i in _BILINEAR[name] if i < len(inputs) and inputs[i] is not None]
            if name == "Div" and 1 in factors:
                return False
            active += len(factors) > 1
        elif name not in _LINEAR and not name.startswith(_POOLS):
            return False
    weights = [call for call in done.calls if "weight" in call.names and call.a.requires_grad]
    return active == len(weights)


def _nodes(first: Node) -> set[Node]:
    seen, ahead = {first}, [first]
    while ahead:
        for child, _ in ahead.pop().next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                ahead.append(child)
    return seen


class _Use(NamedTuple):
    """One use of a parameter, with what went in and what came back."""

    call: LayerCall
    own: str
    a: Tensor
    b: Tensor


def _by_parameter(
    f: Functional, done: Pass, found: list[Tensor | None], w: Tensor
) -> Float[Tensor, " parameters"]:
    wide = torch.promote_types(f.dtype, torch.float32)
    uses: dict[str, list[_Use]] = {name: [] for name in f.parameters}
    for call, b in zip(done.calls, found, strict=True):
        if b is not None:
            a = call.a.detach()
            a = a.to(wide) if a.is_floating_point() else a
            for own, name in call.names.items():
                uses[name].append(_Use(call, own, a, b.to(wide)))
    traces = [
        (w * _squares(each, f.shapes[name])).sum() if each else w.new_zeros(())
        for name, each in uses.items()
    ]
    return torch.stack(traces)


def _squares(uses: list[_Use], shape: torch.Size) -> Float[Tensor, " n c"]:
    """The squared norms of a parameter's gradients, for all examples and backward passes."""
    times = sum(prod(use.b.shape[use.call.rule.times]) for use in uses)
    if gram_is_smaller(times, shape.numel()) and all(
        use.own == "weight" and use.call.rule.factors for use in uses
    ):
        return torch.stack([_by_gram(uses, c) for c in range(len(uses[0].b))], 1).double()
    (c, n), like = uses[0].b.shape[:2], uses[0].b
    squares = torch.empty(n, c, dtype=torch.float64, device=like.device)
    for here in portions(n, each=c * like.itemsize * shape.numel(), memory=_PORTION):
        out = like.new_empty(here.stop - here.start, c, *shape)
        for i, (call, own, a, b) in enumerate(uses):
            call.rule.gradient(call.layer, a[here], b[:, here], {own: out}, add=i > 0)
        squares[here] = out.flatten(2).square().sum(2)
    return squares


def _by_gram(uses: list[_Use], c: int) -> Tensor:
    factors = (use.call.rule.factors for use in uses)
    pairs = zip(uses, factors, strict=True)
    return squared_norm([of(use.call.layer, use.a, use.b[c : c + 1]) for use, of in pairs if of])
