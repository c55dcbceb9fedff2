"""What stacks of blocks share: a cache for each layer of attention."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from vademecum.attention.caches import KeyValueCache

__all__ = ["caches_for", "insist_on_caches", "sources_for"]


def caches_for(
    blocks: Iterable[Any], n: int, capacity: int, *, all_slots: bool
) -> list[KeyValueCache]:
    """A cache for the self-attention of each block."""
    return [block.self_attn.cache(n, capacity, all_slots=all_slots) for block in blocks]


def sources_for(
    blocks: Iterable[Any], source: Tensor, lengths: Tensor | None
) -> list[KeyValueCache]:
    """A frozen cache of a source for the cross-attention of each block."""
    return [block.multihead_attn.remember(source, lengths=lengths) for block in blocks]


def insist_on_caches(cache: Sequence[KeyValueCache] | None, count: int) -> None:
    """Refuse anything but a cache for each layer of attention, or none at all."""
    if isinstance(cache, KeyValueCache) or (cache is not None and len(cache) != count):
        given = 1 if isinstance(cache, KeyValueCache) else len(cache)
        raise ValueError(f"cache must hold {count} caches, one for each attention, got {given}")
