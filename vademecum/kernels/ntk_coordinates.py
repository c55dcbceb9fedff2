r"""A network in NTK coordinates: the same function, of parameters whose size knows no width.

With $m$ the fan-in of a layer, the number of terms in each of its sums, its weights and biases are

$$w = \frac{\sigma_w}{\sqrt m}\, \omega, \qquad b = \sigma_b\, \beta,$$

and $\omega, \beta$ are what is trained. The function is the same, since $\omega = w \sqrt m /
\sigma_w$; gradient descent is not: a step of size $\eta$ in $\omega$ is one of size $\eta\,
\sigma_w^2 / m$ in $w$. So the tangent kernel, $\sum_\omega (\partial f / \partial \omega)^2 =
\frac{\sigma_w^2}m \sum_w (\partial f / \partial w)^2$ layer by layer, has a limit as $m$ grows. A
bias is one term of a sum and has no width factor.

The fan-in is the number of inputs of a `Linear`, channels in a group times kernel of a convolution,
and 1 for an `Embedding`, which is linear in one-hot vectors. Up to the rounding of one product
nothing changes that the network computes. The claim is `ntk_parametrisation`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils import parametrize

from vademecum.arguments import number, whole
from vademecum.kernels._width_scales import Scaled, become, remove_scales, scaled_tensors
from vademecum.models import aliases, named_modules, named_tensors, unwrapped

__all__ = ["ntk_parametrize"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_KNOWN = (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED, *_EMBEDDINGS, nn.MultiheadAttention)
_PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class _Shared(NamedTuple):
    """A parameter with all its places."""

    tensor: Tensor
    names: list[str]
    places: list[tuple[nn.Module, str]]


def ntk_parametrize(
    model: nn.Module,
    *,
    weight_variance: float = 2.0,
    bias_variance: float = 1.0,
    fan_in: Mapping[str, int] | None = None,
    remove: bool = False,
) -> nn.Module:
    r"""Put a model in NTK coordinates: the same function, trained as the NTK supposes.

    The model itself is changed, by `torch.nn.utils.parametrize`: its layers' `weight` is computed
    from the parameter `parametrizations.weight.original`, which is the coordinate. Parameters stay
    the objects that they were, so that an optimiser which has them goes on with their coordinates.
    Other parameters with one axis, such as the scales of normalisation, stay as they are.

    Args:
        model: Any module whose parameters with two axes or more are weights of `Linear`, of
            convolutions, `Embedding` and `MultiheadAttention`.
        weight_variance: The variance $\sigma_w^2$: coordinates of weights that were drawn with
            variance $\sigma_w^2 / m$ have variance 1, as in `infinite_width`.
        bias_variance: The variance $\sigma_b^2$; with 1 biases are their own coordinates.
        fan_in: The fan-in of further parameters by their names, or of such as several layers with
            different fan-ins share.
        remove: Whether to go back: the parameters are again what the model computes with, at the
            values that they have now. The other arguments play no part.

    Returns:
        The model.

    Raises:
        ValueError: If the fan-in of a parameter is not known, or a layer has a parametrisation of
            another kind, or there is none to remove.

    References:
        Jacot, Gabriel and Hongler, Neural tangent kernel, NeurIPS 2018.

    Example:
        >>> model = nn.Linear(8, 1)
        >>> with torch.no_grad():
        ...     _ = model.weight.fill_(3.0)
        >>> ntk_parametrize(model, weight_variance=2.0).parametrizations.weight.original  # 3 / 0.5
        Parameter containing:
        tensor([[6., 6., 6., 6., 6., 6., 6., 6.]], requires_grad=True)
        >>> ntk_parametrize(model, remove=True).weight.data
        tensor([[3., 3., 3., 3., 3., 3., 3., 3.]])
    """
    inner = unwrapped(model)
    if remove:
        found = scaled_tensors(inner)
        if not found:
            raise ValueError("model must be in NTK coordinates for remove=True, and is not")
        remove_scales(found)
        return model
    weight = math.sqrt(number("weight_variance", weight_variance, above=0))
    bias = math.sqrt(number("bias_variance", bias_variance, above=0))
    known = _tensors(inner)
    _insist_on_names(known, fan_in or {})
    scaled = [(t, s) for t in known if (s := _scale(t, weight, bias, fan_in or {})) is not None]
    _refuse_aliases(inner, [shared for shared, _ in scaled])
    for shared, scale in scaled:
        coordinate = shared.tensor.detach() / scale
        for module, key in shared.places:  # each of which divides what all of them share
            parametrize.register_parametrization(module, key, Scaled(scale))
        become(shared.tensor, coordinate, scale)
    return model


def _tensors(model: nn.Module) -> list[_Shared]:
    """The parameters with their places."""
    found: dict[int, _Shared] = {}
    for prefix, module in named_modules(model):
        if isinstance(module, parametrize.ParametrizationList):
            kind = ", ".join(type(part).__name__ for part in module)
            already = " in NTK coordinates" if isinstance(module[0], Scaled) else ""
            raise ValueError(
                f"model must not be parametrised already, and {prefix[:-1]} is{already}: {kind}"
            )
        for key, p in module._parameters.items():
            if p is not None and p.is_floating_point():
                shared = found.setdefault(id(p), _Shared(p, [], []))
                shared.names.append(prefix + key)
                shared.places.append((module, key))
    if not found:
        raise ValueError("model must have parameters, got none")
    return list(found.values())


def _scale(shared: _Shared, weight: float, bias: float, fan_in: Mapping[str, int]) -> float | None:
    """What the coordinates of a parameter are multiplied with; None for one that is its own."""
    given = {name: fan_in[name] for name in shared.names if name in fan_in}
    fans: dict[str, int | None] = {
        name: given.get(name, _fan_in(name, *place, shared.tensor, known=bool(given)))
        for name, place in zip(shared.names, shared.places, strict=True)
    }
    counted = set((given or fans).values())
    if len(counted) > 1:
        raise ValueError(
            f"layers that share a parameter must have one fan-in, got {fans}: say which counts with"
            " fan_in="
        )
    fan = counted.pop()
    if fan is not None:
        return weight / math.sqrt(whole(f"fan_in[{shared.names[0]!r}]", fan, low=1))
    is_bias = [isinstance(module, _KNOWN) and "bias" in key for module, key in shared.places]
    return bias if all(is_bias) and bias != 1 else None


def _fan_in(name: str, module: nn.Module, key: str, p: Tensor, *, known: bool) -> int | None:
    """The terms of a sum that a weight is in; None for what is no weight."""
    if key == "weight" and isinstance(module, _KNOWN):
        if isinstance(module, _EMBEDDINGS):
            return 1
        if isinstance(module, _TRANSPOSED):  # (in, out / groups, *kernel)
            return p[:, 0].numel() // module.groups
        return p[0].numel()
    if key in _PROJECTIONS and isinstance(module, nn.MultiheadAttention):
        return p.shape[1]
    if p.ndim > 1 and not known:
        raise ValueError(
            f"the fan-in of {name} in {type(module).__name__} is not known: say it with"
            f" fan_in={{{name!r}: ...}}"
        )
    return None


def _insist_on_names(known: list[_Shared], fan_in: Mapping[str, int]) -> None:
    names = {name for shared in known for name in shared.names}
    if odd := sorted(set(fan_in) - names):
        raise ValueError(f"fan_in must name parameters of model, not so: {odd}")


def _refuse_aliases(model: nn.Module, scaled: list[_Shared]) -> None:
    """Refuse modules that hold parameters elsewhere, too, and would compute with coordinates."""
    names = {id(shared.tensor): shared.names[0] for shared in scaled}
    for module, key in aliases(model):
        for _, t in named_tensors(getattr(module, key)):
            if id(t) in names:
                raise ValueError(
                    f"parameters must be used by their names, and {type(module).__name__} keeps"
                    f" {names[id(t)]} in {key}, too"
                )
