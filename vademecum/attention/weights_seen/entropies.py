r"""How widely heads look: the entropy of the weights that a query gives to the keys.

$$H(A_t) = -\sum_s A_{ts} \log A_{ts}$$

is zero for a query that looks at one key alone, and $\log S$ for one that looks at $S$ keys alike.
Maps are never whole in memory: a block of rows is computed and reduced at a time. Exact up to
rounding.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.attention.weights_seen._passes import Layers, catch
from vademecum.attention.weights_seen._seen_calls import Seen
from vademecum.attention.weights_seen._tables import by_head
from vademecum.results import one_line

__all__ = ["AttentionEntropy", "attention_entropy"]


class AttentionEntropy(NamedTuple):
    """How widely each head looks, in nats.

    Example:
        >>> x = torch.zeros(1, 3, 4)  # all keys are alike: log 3
        >>> attention_entropy(nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x)).by_head
        tensor([[1.0986, 1.0986]])
    """

    names: tuple[str, ...]
    """The modules whose code called attention, in order."""
    entropy: tuple[Tensor, ...]
    """For each call the mean entropy of the queries, of shape (n, heads); a query without keys
    does not count."""
    unseen: tuple[str, ...]
    """Modules that are called attention and of which no call was seen."""

    __repr__ = one_line

    @property
    def by_head(self) -> Float[Tensor, " layers heads"]:
        """The means over the examples; NaN where a layer has fewer heads than another."""
        return by_head(self.entropy)


def attention_entropy(
    model: nn.Module, x: Any, *, layers: Layers = None, memory: int | None = None
) -> AttentionEntropy:
    """How widely every head of every layer looks, for any model.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its input: a tensor, a tuple or a dict.
        layers: Which calls to look at: names of modules (also of those that contain them), or
            numbers of calls from 0; all by default.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. What
            the model's own pass takes is its business.

    Raises:
        ValueError: If no call can be seen, or none of those that are asked for.

    Example:
        >>> from vademecum.attention import TransformerEncoder
        >>> model = TransformerEncoder(8, 2, depth=3)
        >>> attention_entropy(model, torch.randn(5, 7, 8)).by_head.shape
        torch.Size([3, 2])
    """

    def entropies(seen: Seen) -> Tensor:
        n, heads, _, _ = seen.shape
        total = torch.zeros(2, n, heads, dtype=torch.float64, device=seen.device)
        for block in seen.blocks(memory):
            rows = seen.rows(block)
            total[1][block[:2]] += (rows.amax(3) > 0).sum(2)
            logarithms = rows.clamp(min=torch.finfo(rows.dtype).tiny).log_()
            total[0][block[:2]] -= logarithms.mul_(rows).sum((2, 3))
            del rows, logarithms  # before the next block
        return (total[0] / total[1].clamp(min=1)).to(seen.dtype)

    calls, unseen = catch(model, x, layers, entropies)
    return AttentionEntropy(
        tuple(seen.name for seen in calls), tuple(seen.value for seen in calls), unseen
    )
