r"""The keys and values of all tokens so far, in memory that is given once.

Row $b$ of a batch holds $\ell_b$ keys, in the slots $0, \dots, \ell_b - 1$; a new token of that row
is written to slot $\ell_b$, which is also its position. So rows of unequal length live in one
cache: each continues as it would alone.

One slot more than the capacity is kept: what is padding is written there, and never read.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from vademecum.arguments import row_lengths, whole
from vademecum.results import one_line

__all__ = ["KeyValueCache", "KeysAndValues"]

_INDICES = (torch.int64, torch.int32)


class KeysAndValues(NamedTuple):
    """What attention looks at, as a cache hands it out.

    Example:
        >>> KeyValueCache(2, 8, kv_heads=1, d_k=4).contents().keys.shape
        torch.Size([2, 1, 0, 4])
    """

    keys: Float[Tensor, " n kv_heads S d_k"]
    """The keys, by heads: at least as many slots as the longest row needs."""
    values: Float[Tensor, " n kv_heads S d_v"]
    """The values in the same slots."""

    __repr__ = one_line


class KeyValueCache:
    """Keys and values of earlier tokens, for one layer of attention.

    Usually made by `MultiHeadAttention.cache`, which knows its sizes.

    Args:
        n: How many rows the batch has.
        capacity: How many tokens a row holds at most.
        kv_heads: How many heads the keys have.
        d_k: How wide a key is, in a head.
        d_v: How wide a value is; as a key by default.
        all_slots: Whether all slots are handed out at every step, the empty ones masked, so that no
            shape changes as rows grow: what CUDA graphs and compiled steps need. By default only
            the slots that are filled, which is faster elsewhere.
        dtype: That of the numbers; torch's default.
        device: Where they are; torch's default.

    Raises:
        ValueError: If a size is below 1.

    Example:
        >>> cache = KeyValueCache(2, 8, kv_heads=1, d_k=4)
        >>> prompts = torch.randn(2, 1, 3, 4)  # of lengths 3 and 1
        >>> keys, values = cache.append(prompts, prompts, lengths=torch.tensor([3, 1]))
        >>> cache.lengths.tolist(), keys.shape[2]
        ([3, 1], 3)
    """

    def __init__(
        self,
        n: int,
        capacity: int,
        *,
        kv_heads: int,
        d_k: int,
        d_v: int | None = None,
        all_slots: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        n, kv_heads = whole("n", n, low=1), whole("kv_heads", kv_heads, low=1)
        self.capacity = whole("capacity", capacity, low=1)
        d_k = whole("d_k", d_k, low=1)
        d_v = d_k if d_v is None else whole("d_v", d_v, low=1)
        shape = (n, kv_heads, capacity + 1)
        self.keys = torch.zeros(*shape, d_k, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, d_v, dtype=dtype, device=device)
        self.lengths = torch.zeros(n, dtype=torch.long, device=self.keys.device)
        self.all_slots = all_slots
        self.frozen = False
        self._longest = 0  # no row is longer: known without asking the device
        self._even = not all_slots  # whether all rows are as long as the longest
        self._empty = True

    def append(
        self,
        keys: Float[Tensor, " n kv_heads T d_k"],
        values: Float[Tensor, " n kv_heads T d_v"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
        slots: Int[Tensor, " n 1 T 1"] | None = None,
    ) -> KeysAndValues:
        """Write the keys and values of new tokens, and return all: (n, kv_heads, S, d) each.

        Args:
            keys: Of T new tokens.
            values: Of the same tokens.
            lengths: How many of them are real in each row; the others come after them, and are
                forgotten. All by default.
            slots: What `slots_for` says of them, where it was asked before: the caches of all
                layers say the same.

        Raises:
            ValueError: If they do not fit the cache, there is no room, or they want gradients.
        """
        self._insist_on_shapes(keys, values)
        T = keys.shape[2]
        if lengths is not None:
            lengths = row_lengths("lengths", lengths, len(self.lengths), T, self.lengths.device)
        if slots is None:
            slots = self.slots_for(T, lengths)
        self._even, self._empty = self._even and lengths is None, False
        if self._even:
            now = slice(self._longest, self._longest + T)
            self.keys[:, :, now], self.values[:, :, now] = keys, values
        else:
            assert slots is not None
            self.keys.scatter_(2, slots.expand_as(keys), keys)
            self.values.scatter_(2, slots.expand_as(values), values)
        self.lengths.add_(T if lengths is None else lengths)
        self._longest = 0 if self.all_slots else self.slots(T)
        return self.contents()

    def slots_for(
        self, T: int, lengths: Integer[Tensor, " n"] | None = None
    ) -> Int[Tensor, " n 1 T 1"] | None:
        """Where T further tokens will be written; None where they follow in all rows alike.

        Args:
            T: How many tokens come.
            lengths: How many of them are real in each row.

        Raises:
            ValueError: If there is no room.
        """
        if lengths is not None:
            lengths = row_lengths("lengths", lengths, len(self.lengths), T, self.lengths.device)
        self._insist_on_room(T, lengths)
        if self._even and lengths is None:
            return None
        slots = self.positions(T)
        if lengths is not None:
            real = torch.arange(T, device=slots.device) < lengths[:, None]
            slots = torch.where(real, slots, self.capacity)
        return slots.clamp(max=self.capacity)[:, None, :, None]

    @property
    def filled(self) -> int | None:
        """How many tokens every row holds; None where the device alone knows, or rows differ."""
        if self._empty:
            return 0
        return self._longest if self._even else None

    def contents(self) -> KeysAndValues:
        """All keys and values, (n, kv_heads, S, d) each.

        There are as many slots as the longest row needs, or more where padding came with it, since
        how long rows are is known to the device alone.
        """
        S = self.slots(0)
        return KeysAndValues(self.keys[:, :, :S], self.values[:, :, :S])

    def slots(self, T: int) -> int:
        """How many slots are handed out after T further tokens."""
        return self.capacity if self.all_slots else min(self._longest + T, self.capacity)

    def positions(self, T: int) -> Int[Tensor, " n T"]:
        """The positions that the next T tokens of each row will have."""
        return self.lengths[:, None] + torch.arange(T, device=self.lengths.device)

    def admitted(self, positions: Int[Tensor, " n T"], *, causal: bool) -> Tensor | None:
        """The mask (n, 1, T or 1, S) over the contents; None where causality alone decides.

        Args:
            positions: Those of the queries.
            causal: Whether a query looks at no key after its own position.
        """
        if self._even:
            return None
        slots = torch.arange(self.slots(0), device=self.lengths.device)
        if causal:
            return (slots <= positions[..., None])[:, None]
        return (slots < self.lengths[:, None])[:, None, None]

    def reserve(self, T: int) -> None:
        """Insist that T further tokens fit into each row.

        A step that was captured as a CUDA graph, or compiled, cannot check this itself.

        Raises:
            ValueError: If they do not.
        """
        self._insist_on_room(whole("T", T, low=0), None)

    def reorder(self, rows: Int[Tensor, " m"]) -> None:
        """Let row $i$ be what row `rows[i]` was, as beams ask for.

        As many rows as there were are written in place; for another number memory is taken anew.

        Args:
            rows: The places of the rows to keep, as often as they are wanted.
        """
        n = len(self.lengths)
        if not isinstance(rows, Tensor) or rows.ndim != 1 or rows.dtype not in _INDICES:
            given = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else repr(rows)
            raise ValueError(f"rows must be a vector of integers, got {given}")
        if rows.device.type == "cpu" and (not len(rows) or rows.amin() < 0 or rows.amax() >= n):
            raise ValueError(f"rows must be between 0 and {n - 1}, got {rows.tolist()}")
        rows = rows.to(self.lengths.device)
        if len(rows) == n:
            for memory in (*self.contents(), self.lengths):
                memory.copy_(memory.index_select(0, rows))
        else:
            self.keys, self.values = self.keys[rows], self.values[rows]
            self.lengths = self.lengths[rows]

    def clear(self) -> None:
        """Forget all tokens, in the same memory; no NaN of theirs stays there."""
        for memory in (self.keys, self.values, self.lengths):
            memory.zero_()
        self._longest, self._even, self._empty = 0, not self.all_slots, True

    def _insist_on_room(self, T: int, lengths: Tensor | None) -> None:
        captured = self.lengths.is_cuda and torch.cuda.is_current_stream_capturing()
        known = not self.all_slots and self._longest + T <= self.capacity
        even = self._even and lengths is None  # then the longest is known without asking
        if known or (not even and (captured or torch.compiler.is_compiling())):
            return
        new = T if lengths is None else lengths
        longest = self._longest + T if even else int((self.lengths + new).max())
        if longest > self.capacity:
            raise ValueError(f"the cache is full: {longest} tokens exceed capacity={self.capacity}")

    def _insist_on_shapes(self, keys: Tensor, values: Tensor) -> None:
        if self.frozen:
            raise ValueError("the cache must not be frozen to take new keys")
        for name, x, memory in (("keys", keys, self.keys), ("values", values, self.values)):
            n, heads, _, d = memory.shape
            if x.ndim != 4 or x.shape[:2] != (n, heads) or x.shape[3] != d:
                wanted = f"({n}, {heads}, T, {d})"
                raise ValueError(f"{name} must have the shape {wanted}, got {tuple(x.shape)}")
            if (x.dtype, x.device) != (memory.dtype, memory.device):
                wanted = f"{memory.dtype} on {memory.device}"
                raise ValueError(f"{name} must be {wanted}, got {x.dtype} on {x.device}")
            if x.shape[2] != keys.shape[2]:
                counts = f"{x.shape[2]} and {keys.shape[2]}"
                raise ValueError(f"there must be as many values as keys, got {counts}")
            if x.requires_grad and torch.is_grad_enabled():
                raise ValueError(f"{name} must not want gradients: use a cache under no_grad")

    def __repr__(self) -> str:
        n, heads, _, d = self.keys.shape
        return f"KeyValueCache({n}, {self.capacity}, kv_heads={heads}, d_k={d})"
