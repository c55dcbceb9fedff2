r"""One call of attention as it was seen: what its weights are made of, a few rows at a time.

Rows $t$ of the weights are $\mathrm{softmax}(c\, q_t K^\top + m_t)$, in float32 or better. A row
that may look at no key is zero.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions

__all__ = ["Block", "Seen"]

Block = tuple[slice, slice, slice]
"""Some examples, heads and queries."""
_FASTEST = 2**26  # bytes of a block without a limit: larger ones gain nothing on a CPU


class Seen:
    """A call of attention: queries and keys, or the weights themselves where the model has them.

    Args:
        name: The path of the module whose code made the call.
        shape: Examples, heads, queries and keys.
        q: Queries (n, h, T, d).
        k: Keys (n, h_k, S, d).
        masks: With four axes that broadcast; boolean ones allow, others are added to the scores.
        scale: What scores are multiplied by.
        causal: Whether the query t sees the keys up to t.
        weights: The weights, in place of all that.
        alone: With four axes that broadcast; where True, queries whose weights are zero.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int, int, int],
        *,
        q: Tensor | None = None,
        k: Tensor | None = None,
        masks: tuple[Tensor, ...] = (),
        scale: float = 1.0,
        causal: bool = False,
        weights: Tensor | None = None,
        alone: Tensor | None = None,
    ):
        self.name, self.shape, self.scale, self.causal = name, shape, scale, causal
        self.q, self.k, self.masks, self.weights = q, k, masks, weights
        self.alone = alone
        self.value: Any = None
        self.before: Tensor | None = None
        self.after: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """What its weights are computed in."""
        given = self.weights if self.q is None else self.q
        assert given is not None
        return torch.promote_types(given.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        """Where it was made."""
        given = self.weights if self.q is None else self.q
        assert given is not None
        return given.device

    def release(self) -> None:
        """Let go of the tensors."""
        self.q = self.k = self.weights = self.alone = None
        self.masks = ()

    def rows(self, block: Block) -> Tensor:
        """The weights of some examples, heads and queries."""
        if self.weights is not None:
            found = self.weights[block].to(self.dtype)
        else:
            found = self._softmax(block)
        if self.alone is not None:
            found = found.masked_fill(self.alone.expand(*self.shape[:3], 1)[block], 0)
        return found

    def _softmax(self, block: Block) -> Tensor:
        assert self.q is not None
        assert self.k is not None
        _, h, T, S = self.shape
        ns, hs, ts = block
        group = h // self.k.shape[1]
        k = self.k[ns, hs] if group == 1 else self.k[ns, [i // group for i in range(h)[hs]]]
        scores = (self.q[block].to(self.dtype) * self.scale) @ k.to(self.dtype).mT
        if self.causal:
            times = torch.arange(T, device=scores.device)[ts, None]
            later = torch.arange(S, device=scores.device) > times
            scores.masked_fill_(later, -torch.inf)
        for mask in self.masks:
            part = mask.expand(self.shape)[block]
            if mask.dtype == torch.bool:
                scores.masked_fill_(~part, -torch.inf)
            else:
                scores += part
        top = scores.amax(-1, keepdim=True)
        alone = top == -torch.inf
        scores.sub_(top.masked_fill_(alone, 0)).exp_()
        return scores.div_(scores.sum(-1, keepdim=True).masked_fill_(alone, 1))

    def blocks(self, memory: int | None) -> Iterator[Block]:
        """All of the call, in blocks whose weights keep to a limit in bytes."""
        n, h, T, _ = self.shape
        row, limit = self.bytes_of_row, self.limit(memory)
        if row * h * T <= limit:
            for ns in portions(n, each=row * h * T, memory=limit):
                yield ns, slice(0, h), slice(0, T)
            return
        whole_maps = row * T <= limit
        for i in range(n):
            for hs in portions(h, each=row * T, memory=limit):
                for ts in [slice(0, T)] if whole_maps else portions(T, each=row, memory=limit):
                    yield slice(i, i + 1), hs, ts

    @property
    def bytes_of_row(self) -> int:
        """What it takes to compute one row: the scores, what is in passing, masks, queries."""
        _, _, _, S = self.shape
        width = 0 if self.q is None else self.q.shape[3]
        return (3 * S + 2 * width) * self.dtype.itemsize + 2 * S

    def limit(self, memory: int | None) -> int:
        """How many bytes blocks may take, beside the keys of a head in the wider dtype.

        Raises:
            ValueError: If there is no room for a row.
        """
        if memory is None:
            return _FASTEST
        keys = 0 if self.k is None else self.k[0, 0].numel() * self.dtype.itemsize
        least = keys + self.bytes_of_row
        if whole("memory", memory, low=1) < least:
            raise ValueError(
                f"memory must be >= {least} bytes for one row of {self.name!r}, got {memory}"
            )
        return memory - keys
