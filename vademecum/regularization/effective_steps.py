r"""Which tensors of a network are scale invariant, and how long a step in them really is.

Batch normalisation divides what it is given by its own standard deviation, so weights $w$ before it
can be multiplied by any $c > 0$ and the loss stays: $L(c w) = L(w)$. The derivative at $c = 1$ says

$$w \cdot \nabla_w L = 0, \qquad \nabla L(c w) = \tfrac1c \nabla L(w),$$

so that gradient descent turns $w$ by $\eta / \|w\|^2$ times the slope on the unit sphere: this is
the *effective step*. Weight decay changes nothing but that. Batch and weight normalisation make
each unit's weights invariant by themselves, layer normalisation a layer's as a whole, with its
bias.

The $w \cdot \nabla_w L$ are computed in double precision, with the $\delta$ of normalisation
layers times $2^{-40}$, for they are invariant only without it. The gradient is computed once more,
in single precision and with the $\delta$ that they have: the difference $d$ holds what rounding of
$2^{-24}$ and $\delta$ do to it, so rounding of $2^{-53}$ and $2^{-40} \delta$ do about
$2^{-29} d$, and

$$|w \cdot \nabla_w L| \le 16 \cdot 2^{-29} \|w\| \|d\| + \sqrt P\, 2^{-52} \|w\| \|\nabla_w L\|$$

is zero up to rounding, where $d$ is a unit's own or, if that is larger, the share of the tensor's
that belongs to its gradient: one unit's $d$ is one draw of an error and may be small by chance. The
factor 16 is for safety; the second term is that of adding up $P$ products. A gradient that is no
longer than $16 \cdot 2^{-29} \|d\|$ is none. Checked by the claim `scale_invariance`.

References:
    van Laarhoven, L2 regularization versus batch and weight normalization, arXiv:1706.05350, 2017.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.gradients.loss_gradient import loss_of
from vademecum.models import (
    Loss,
    Output,
    call_arguments,
    chosen_output,
    count_examples,
    evaluation,
    map_tensors,
    mean_over_batches,
    named_modules,
    refuse_nan,
    run_with,
    tensor_places,
    unwrapped,
)
from vademecum.regularization._scaled_slopes import Slopes
from vademecum.results import one_line

__all__ = ["ScaleInvariance", "TensorScale", "scale_invariance"]

Kind = Literal["units", "tensor", "layer", "none", "no gradient"]
_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_BY_BATCH = (*_BATCH, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_DELTAS = ("eps", "variance_epsilon")  # what torch and transformers call it
_SHRUNK = 2.0**-40


class TensorScale(NamedTuple):
    """What a loss does when a tensor of a network is scaled.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Flatten(0))
        >>> row = scale_invariance(model, torch.ones(2, 1), torch.zeros(2)).tensors[0]
        >>> row.invariant, round(row.cosine, 6) in (-1.0, 1.0)
        ('none', True)
    """

    name: str
    """The parameter."""
    invariant: Kind
    """What can be scaled without changing the loss: the weights of each unit (a row) by factors of
    their own, the tensor as a whole, only the layer with its bias, or nothing; or there is no
    gradient, where nothing can be told."""
    cosine: float
    r"""The cosine of the angle between $w$ and its gradient, zero where it is invariant."""
    tolerance: float
    """Up to what the cosine is zero by rounding."""
    with_delta: float
    r"""The cosine with the $\delta$ that normalisation layers have, in single precision: how far
    that spoils the invariance."""
    norm: Tensor
    r"""The $\|w\|$ of what can be scaled: of each unit, of the tensor, or of the layer."""
    effective_step: Tensor | None
    r"""The $\eta / \|w\|^2$ of the same; None where nothing can be scaled."""

    __repr__ = one_line


class ScaleInvariance(NamedTuple):
    """The parameters of a network, and which of them are scale invariant.

    Example:
        >>> layers = nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)
        >>> x, y = torch.randn(9, 3), torch.randn(9, 1)
        >>> for row in scale_invariance(nn.Sequential(*layers), x, y).tensors:
        ...     print(row.name, row.invariant)
        0.weight units
        0.bias no gradient
        1.weight none
        1.bias none
        2.weight none
        2.bias none
    """

    tensors: list[TensorScale]
    """A row for each parameter, shared ones once."""
    batch_norms: int
    """How many layers of batch normalisation used the statistics of the batch."""

    __repr__ = one_line


def scale_invariance(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    eta: float = 1.0,
    output: Output = None,
) -> ScaleInvariance:
    r"""Find the tensors that can be scaled without changing the loss, and their effective steps.

    Layers of batch normalisation (torch's) normalise by the statistics of the batch, **as in
    training**, since with running averages nothing is invariant; everything else, dropout among it,
    is in evaluation mode. The model is never changed, and its running averages stay. It costs two
    forward and backward passes, one of them in double precision.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors; or a `DataLoader` of batches.
        y: The targets.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        eta: The step size $\eta$ of gradient descent.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there are no parameters, or one example for batch normalisation, or the loss
            is not one differentiable number, or gradients are not finite.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2), nn.Linear(2, 1))
        >>> model[0].weight.data = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
        >>> x, y = torch.randn(8, 2), torch.randn(8, 1)
        >>> scale_invariance(model, x, y, eta=0.5).tensors[0].effective_step  # 0.5 / 25, 0.5 / 4
        tensor([0.0200, 0.1250])
    """
    eta = number("eta", eta, above=0)
    model = unwrapped(model)
    names = {id(p): place for place, p in reversed([*tensor_places(model, "parameters")])}
    own = {names[id(p)]: p for p in model.parameters() if p.is_floating_point()}
    if not own:
        raise ValueError("model must have parameters to scale, got none")
    found = []
    for dtype, shrunk in ((torch.float64, _SHRUNK), (torch.float32, 1.0)):
        slope = partial(_slope, model, own, dtype, shrunk, loss, output)
        device = next(iter(own.values())).device
        found.append(mean_over_batches(x, y, slope, device=device).double())
    fine, coarse = found
    if not fine.isfinite().all():
        raise ValueError("the gradients of model must be finite, got NaN or infinity")
    coarse = coarse.where(coarse.isfinite(), 0)
    sizes = [p.numel() for p in own.values()]
    parts = zip(own.items(), fine.split(sizes), (fine - coarse).split(sizes), strict=True)
    measured = {name: Slopes(p.detach().double(), g, d) for (name, p), g, d in parts}
    layers = dict(_joint(model, names, measured))
    rows = [_row(name, s, layers.get(name), eta) for name, s in measured.items()]
    return ScaleInvariance(rows, sum(isinstance(m, _BATCH) for m in model.modules()))


def _slope(
    model: nn.Module,
    own: dict[str, nn.Parameter],
    dtype: torch.dtype,
    shrunk: float,
    loss: Loss | None,
    output: Output,
    x: Any,
    y: Any,
) -> Tensor:
    """The gradient in all parameters as one vector, in another precision."""
    refuse_nan(x)
    _refuse_one(model, x)
    made: dict[int, Tensor] = {}
    for kind in ("parameters", "buffers"):
        for _, t in tensor_places(model, kind):
            made[id(t)] = _copied(t.detach(), dtype)
    leaves = [made[id(p)].requires_grad_() for p in own.values()]
    places = [*tensor_places(model, "parameters"), *tensor_places(model, "buffers")]
    tensors = {place: made[id(t)] for place, t in places}
    x, y = (map_tensors(v, lambda t: _copied(t, dtype)) for v in (x, y))
    args, kwargs = call_arguments(x)
    with evaluation(model), torch.enable_grad():
        for _, module in named_modules(model):
            _as_in_training(module, shrunk)
        z = run_with(model, tensors, lambda: chosen_output(model(*args, **kwargs), output))
        value = loss_of(z, y, loss)
        grads = torch.autograd.grad(value, leaves, allow_unused=True)
    zero = [torch.zeros_like(p) if g is None else g for p, g in zip(leaves, grads, strict=True)]
    return torch.cat([g.flatten() for g in zero])


def _copied(t: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy, since layers may work in place; of floating-point numbers in that dtype."""
    return t.to(dtype, copy=True) if t.is_floating_point() else t.clone()


def _as_in_training(module: nn.Module, shrunk: float) -> None:
    """Statistics of the batch, and another delta; `evaluation` gives both back."""
    if isinstance(module, _BY_BATCH):
        module.training = True
    if "norm" in type(module).__name__.lower():
        for key in _DELTAS:
            if isinstance(delta := vars(module).get(key), float):
                setattr(module, key, shrunk * delta)


def _refuse_one(model: nn.Module, x: Any) -> None:
    for name, module in named_modules(model):
        if isinstance(module, _BATCH):
            if (n := count_examples(x)) < 2:
                raise ValueError(
                    f"x must hold at least 2 examples for the batch statistics of"
                    f" {type(module).__name__} {name[:-1]!r}, got {n}"
                )
            return


def _joint(
    model: nn.Module, names: dict[int, str], measured: dict[str, Slopes]
) -> Iterator[tuple[str, Slopes]]:
    """For each tensor of a layer with several, all of them as one."""
    for _, module in named_modules(model):
        inside = dict.fromkeys(names[id(p)] for p in module.parameters(recurse=False))
        parts = [measured[name].whole() for name in inside if name in measured]
        if len(parts) > 1:
            joined = Slopes(*(torch.cat(each, 1) for each in zip(*parts, strict=True)))
            yield from ((name, joined) for name in inside)


def _row(name: str, s: Slopes, layer: Slopes | None, eta: float) -> TensorScale:
    rows, whole = s.rows(), s.whole()
    still = rows.flat() | (rows.w.norm(dim=1) == 0)
    kind, scaled = "none", whole
    if whole.flat().all():
        kind = "no gradient"
    elif s.w.ndim > 1 and (rows.invariant() | still).all() and not still.all():
        kind, scaled = "units", rows
    elif whole.invariant().all():
        kind = "tensor"
    elif layer is not None and layer.invariant().all():
        kind, scaled = "layer", layer
    norm = scaled.w.norm(dim=1) if kind == "units" else scaled.w.norm()
    step = None if kind in ("none", "no gradient") else eta / norm.square()
    cosine, tolerance, coarse = whole.cosine(), whole.tolerance(), whole.coarse().cosine()
    place = s.w.new_zeros((), dtype=torch.get_default_dtype())
    step = None if step is None else step.to(place)
    numbers = float(cosine), float(tolerance), float(coarse)
    return TensorScale(name, kind, *numbers, norm.to(place), step)
