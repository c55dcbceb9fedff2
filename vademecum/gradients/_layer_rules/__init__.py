r"""Per-example gradients of single layers, from what went in and what comes back.

A layer maps the activations $a_i$ of example $i$ to $z_i$. Let $b_i = \partial \ell_i / \partial
z_i$ be what the backward pass brings to it. Then the gradient of $\ell_i$ in the layer's parameters
needs $a_i$ and $b_i$ alone. With $t$ for further axes (time, positions):

- linear, $z_{it} = W a_{it} + c$: $\nabla_W \ell_i = \sum_t b_{it} a_{it}^T$ and $\nabla_c \ell_i
  = \sum_t b_{it}$;
- convolution: the same with the patch that the kernel sees at position $t$ for $a_{it}$, group by
  group;
- normalisation with scale and shift, $z = \gamma \odot \hat a + \beta$: $\sum_t b_{it} \odot \hat
  a_{it}$ and $\sum_t b_{it}$, where $\hat a$ comes from fixed statistics (batch normalisation in
  evaluation) or from the example's own (layer, group, root-mean-square normalisation);
- embedding: $b_{it}$ is added to the row of the token $a_{it}$;
- a tensor that all examples share, with a copy $z_i$ for each: $b_i$ itself.

A rule serves $g$ backward passes at once: $b$ has the shape `(g, n, ...)` where $a$ has `(n, ...)`.
All of this is exact up to rounding.

References:
    Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
    Rochette, Manoel and Tramel, Efficient per-example gradient computations in convolutional neural
    networks, arXiv:1912.06015, 2019.
"""

from vademecum.gradients._layer_rules.gram import gram_is_smaller, squared_norm
from vademecum.gradients._layer_rules.table import (
    COPY,
    EMBEDDING,
    LINEAR,
    TRANSPOSED,
    Rule,
    rule_for,
)

__all__ = [
    "COPY", "EMBEDDING", "LINEAR", "TRANSPOSED", "Rule", "gram_is_smaller", "rule_for",
    "squared_norm",
]  # fmt: skip
