"""The rules by type of layer, and whether a layer keeps to its rule."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from vademecum.gradients._layer_rules import convolutions, gram, normalisation, products

__all__ = ["COPY", "EMBEDDING", "LINEAR", "TRANSPOSED", "Rule", "rule_for"]


class Rule(NamedTuple):
    """How the gradients of a layer come about.

    `gradient(layer, a, b, out, add=...)` fills, or adds to, the tensors `(n, g, *shape)`;
    `factors(layer, a, b)` are those whose products add up to the gradient in the weight, over as
    many `times` as the axes of `b` say. Of the layer they ask for `settings` alone, if these are
    given: layers that agree in them can be taken together.
    """

    gradient: Callable[..., None]
    factors: Callable[..., gram.Factors] | None = None
    times: slice = slice(2, -1)
    settings: tuple[str, ...] | None = None


LINEAR = Rule(products.linear, gram.of_linear, settings=())
"""z = W a + c."""
TRANSPOSED = Rule(products.transposed, gram.of_transposed, settings=())
"""z = W^T a + c."""
EMBEDDING = Rule(products.embedding, gram.of_embedding)
"""z = W[a]."""
COPY = Rule(products.copy)
"""A tensor of which every example has a copy."""
_CONVOLUTION = Rule(convolutions.convolution, gram.of_convolution, slice(3, None))
_RULES: dict[type, Rule] = {
    nn.Linear: LINEAR,
    nn.Embedding: EMBEDDING,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _CONVOLUTION),
    **dict.fromkeys(
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), Rule(normalisation.batch_norm)
    ),
    nn.GroupNorm: Rule(normalisation.group_norm),
    nn.LayerNorm: Rule(normalisation.layer_norm, settings=("normalized_shape", "eps")),
    nn.RMSNorm: Rule(normalisation.rms_norm, settings=("normalized_shape", "eps")),
}
_FOREIGN = {("transformers.pytorch_utils", "Conv1D"): TRANSPOSED}  # where these are imported


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for a layer, as it is set up, if there is one.

    There is none for weights in disguise (pruned, or normalised by hooks), other parameters, or a
    `forward` of its own.
    """
    rule = _RULES.get(type(module)) or _foreign(type(module))
    if rule is _CONVOLUTION and getattr(module, "padding_mode", None) != "zeros":
        return None
    own = {name for name, p in module._parameters.items() if p is not None}
    return rule if own <= {"weight", "bias"} and "forward" not in vars(module) else None


def _foreign(kind: type[Any]) -> Rule | None:
    rule = _FOREIGN.get((kind.__module__, kind.__name__))
    home = sys.modules.get(kind.__module__)
    return rule if rule and getattr(home, kind.__name__, None) is kind else None
