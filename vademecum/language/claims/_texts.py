"""Texts by hand: positions that are near each other, and words counted one pair at a time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["counted", "near_pairs"]


def near_pairs(T: int, R: int, least: int = 1) -> list[tuple[int, int]]:
    """All ordered pairs of positions at distances from `least` to R."""
    return [(i, j) for i in range(T) for j in range(T) if least <= abs(i - j) <= R]


def counted(text: Sequence[Any], pairs: list[tuple[int, int]]) -> Counter[tuple[Any, Any]]:
    """How often each ordered pair of words stands at the positions."""
    return Counter((text[i], text[j]) for i, j in pairs)
