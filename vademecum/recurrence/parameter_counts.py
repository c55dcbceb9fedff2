r"""How many parameters recurrent layers have.

A block is a matrix on $[x; h]$, with $d$ inputs and $m$ units $m (d + m)$ weights. A simple layer
has one block, a GRU three (two gates and a candidate), an LSTM four (three gates and a candidate):

$$m (d + m), \qquad 3 m (d + m), \qquad 4 m (d + m).$$

A block has no constants, $m$ of them, or $2 m$ as in torch, whose two always occur as their sum
(but for the candidate of a GRU). The sheets' LSTM has $m^2$ more for $U$, and an output matrix
$k m$. A projection to $p$ replaces $d + m$ by $d + p$ and costs $p m$. Layers above the first have
as many inputs as the directions below them give.

Exact; the claim `recurrence.gated_parameter_count` counts the entries of layers.
"""

from typing import Literal, NamedTuple

from vademecum.arguments import choice, whole
from vademecum.results import one_line

__all__ = ["RecurrentCount", "count_recurrent_params"]

_BLOCKS = {"simple": 1, "gru": 3, "lstm": 4}


class RecurrentCount(NamedTuple):
    """The parameters of a recurrent network.

    Example:
        >>> count_recurrent_params("gru", 2, 3, biases=0)
        RecurrentCount(matrices=3, weights=45, biases=0, total=45)
    """

    matrices: int
    """How many matrices there are, one for each block on $[x; h]$."""
    weights: int
    """How many entries the matrices have."""
    biases: int
    """How many constants there are."""
    total: int
    """Both together."""

    __repr__ = one_line


def count_recurrent_params(
    kind: Literal["simple", "gru", "lstm"],
    d: int,
    m: int,
    *,
    biases: Literal[0, 1, 2] = 2,
    layers: int = 1,
    bidirectional: bool = False,
    projection: int = 0,
    mixing: bool = False,
    k: int | None = None,
) -> RecurrentCount:
    """Count the parameters of a recurrent network by formula.

    Args:
        kind: Its units.
        d: The number of inputs.
        m: The number of units of a layer and direction.
        biases: How many constants a unit has in each block: 2 in torch's layers.
        layers: How many layers there are.
        bidirectional: Whether each layer also runs from the end.
        projection: To how many numbers the states of an LSTM are projected; 0 for no projection.
        mixing: Whether each LSTM has the sheets' matrix $U$ between cell and exposed state.
        k: The number of outputs of a matrix $W$ on top of the last states, without constants; by
            default there is none.

    Raises:
        ValueError: If a size is out of its range, or a GRU or simple layer is to have what only an
            LSTM can have.

    Example:
        >>> count_recurrent_params("lstm", 128, 256).total  # 4 * 256 * (128 + 256) + 8 * 256
        395264
        >>> sum(p.numel() for p in nn.LSTM(128, 256).parameters())
        395264
        >>> count_recurrent_params("lstm", 3, 4, mixing=True, k=2, biases=1).matrices
        6
    """
    blocks = _BLOCKS[choice("kind", kind, tuple(_BLOCKS))]
    d, m, layers = (whole(*size, low=1) for size in (("d", d), ("m", m), ("layers", layers)))
    each = whole("biases", biases, low=0, high=2)
    projection = whole("projection", projection, low=0, high=m - 1)
    if kind != "lstm" and (projection or mixing):
        name, given = ("projection", projection) if projection else ("mixing", mixing)
        raise ValueError(f"{name} must be left out unless kind is 'lstm', got {name}={given}")
    ways, p = 1 + bool(bidirectional), projection or m
    inputs = [d, *[ways * p] * (layers - 1)]
    extra = (m * m if mixing else 0) + p * m * bool(projection)
    weights = sum(ways * (blocks * m * (size + p) + extra) for size in inputs)
    matrices = layers * ways * (blocks + bool(mixing) + bool(projection))
    if k is not None:
        weights, matrices = weights + whole("k", k, low=1) * ways * p, matrices + 1
    constants = layers * ways * blocks * m * each
    return RecurrentCount(matrices, weights, constants, weights + constants)
