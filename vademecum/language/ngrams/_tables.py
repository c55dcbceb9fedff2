r"""Sorted tables of n-grams: each one is a number, found from that of its prefix.

An n-gram of order $k$ is its first $k - 1$ tokens, which have a number $p$ in the table before, and
a last token $w$; its key is $p V + w$. Keys are sorted, and the place of a key is the number of its
n-gram, so that

- all continuations of a context stand together, from the first key $\ge p V$ on;
- a text is looked up order by order, each with one binary search for all of its positions.

Building sorts the text's keys once an order; what stays is a few numbers for each n-gram.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["Table", "extended", "numbers", "tables"]


class Table(NamedTuple):
    """The n-grams of one order."""

    keys: Int[Tensor, " grams"]
    """The sorted keys."""
    starts: Int[Tensor, " contexts+1"]
    """For each n-gram of the order before, where its continuations start; and where all end."""
    counts: Int[Tensor, " grams"]
    """How often each n-gram occurs."""
    before: Int[Tensor, " grams"]
    """How many different tokens stand before each n-gram, the beginning of a text as one."""


def tables(tokens: Int[Tensor, " T"], texts: Int[Tensor, " T"], order: int, V: int) -> list[Table]:
    """The tables of all orders up to the highest; n-grams do not reach across texts."""
    places = torch.arange(len(tokens), device=tokens.device)
    opening = texts.diff(prepend=texts[:1] - 1) != 0
    depth = places - torch.where(opening, places, 0).cummax(0).values
    found, grams, contexts = [], torch.zeros_like(tokens), 1
    for k in range(1, order + 2):  # one more, for what stands before the highest
        ends = (depth >= k - 1).nonzero()[:, 0]
        prefixes = grams[ends - 1]
        keys, which, counts = torch.unique(
            prefixes * V + tokens[ends], return_inverse=True, return_counts=True
        )
        if k > 1:  # each key is one more token before its suffix
            suffixes = torch.empty_like(keys).scatter_(0, which, grams[ends])
            found[-1].before.add_(suffixes.bincount(minlength=contexts))
        if k <= order:
            starts = torch.searchsorted(keys, V * torch.arange(contexts + 1, device=keys.device))
            grams = torch.full_like(tokens, -1).scatter_(0, ends, which)
            before = torch.zeros_like(counts)
            before[grams[depth == k - 1]] = 1
            found.append(Table(keys, starts, counts, before))
            contexts = len(keys)
    return found


def extended(keys: Int[Tensor, " grams"], prefixes: Tensor, tokens: Tensor, V: int) -> Tensor:
    """The numbers of prefixes with a token behind; -1 where there is none such.

    A prefix -1, one that was not found, gives a negative key, and so -1 again.
    """
    if not len(keys):
        return torch.full_like(prefixes, -1)
    wanted = prefixes * V + tokens
    places = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[places] == wanted, places, -1)


def numbers(keys: list[Tensor], tokens: Int[Tensor, " n T"], V: int) -> list[Tensor]:
    """For each order from 0 on, the number of the n-gram that ends at each place, or -1."""
    grams = [torch.zeros_like(tokens)]
    for k, one in enumerate(keys):
        prefixes = (
            grams[-1] if k == 0 else torch.nn.functional.pad(grams[-1][:, :-1], (1, 0), value=-1)
        )
        grams.append(extended(one, prefixes, tokens, V))
    return grams
