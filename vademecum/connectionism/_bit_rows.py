r"""Rows of bits: the AND of some rows, how many of them are set, and setting single bits.

A binary matrix with rows $w_i \in \{0, 1\}^m$ lies packed in bytes, bit $j$ of a row in byte
$\lfloor j / 8 \rfloor$ at the place $j \bmod 8$, and each row is padded to whole words of 64 bits.
For a set $A$ of rows,

$$\Big(\bigwedge_{i \in A} w_i\Big)_j = 1 \iff \sum_{i \in A} w_{ij} = |A|$$

costs $|A|$ operations per 64 columns. To ask whether the sum is at least a smaller $\theta$, the
sums of all columns are counted side by side in $L = \lceil \log_2 \theta \rceil$ bit planes that
start at $2^L - \theta$: a column has reached $\theta$ once its counter overflows.

Everything is integer arithmetic, so exact; nothing is ever unpacked but the answers.
"""

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "active_units", "all_set", "at_least_set", "byte_width", "count_set", "pack", "set_bits",
    "true_entries", "unpack",
]  # fmt: skip

_CELLS = 2**20  # index entries made at a time: 8 MiB


def byte_width(m: int) -> int:
    """The number of bytes in a row of `m` bits, padded to whole words of 64 bits."""
    return -(-m // 64) * 8


def active_units(
    x: Bool[Tensor, " batch n"],
) -> tuple[Int64[Tensor, " most batch"], Int64[Tensor, " batch"]]:
    """The active units of each pattern, one column each, and how many there are.

    A column shorter than the longest repeats its first unit; that of an empty pattern is arbitrary.

    Example:
        >>> units, counts = active_units(torch.tensor([[0, 1, 1], [0, 0, 1]]).bool())
        >>> units.T.tolist(), counts.tolist()
        ([[1, 2], [2, 2]], [2, 1])
    """
    batch = len(x)
    row, unit = true_entries(x)
    counts = torch.bincount(row, minlength=batch)
    first = counts.cumsum(0) - counts
    units = pad(unit, (0, 1))[first].repeat(int(counts.max()), 1)
    units[torch.arange(len(row), device=x.device) - first[row], row] = unit
    return units, counts


def true_entries(
    x: Bool[Tensor, " batch n"],
) -> tuple[Int64[Tensor, " entries"], Int64[Tensor, " entries"]]:
    """The rows and the columns of the true entries, in order; fast when they are few."""
    flat = x.contiguous().view(-1)
    if flat.numel() % 8 or flat.storage_offset() % 8:
        flat = pad(flat, (0, -flat.numel() % 8))
    words = flat.view(torch.int64)
    some = words.nonzero().squeeze(1)
    which, place = words[some].view(torch.bool).view(-1, 8).nonzero().unbind(1)
    entry = 8 * some[which] + place
    return entry // x.shape[1], entry % x.shape[1]


def all_set(
    rows: UInt8[Tensor, " n bytes"], units: Int64[Tensor, " most batch"]
) -> UInt8[Tensor, " batch bytes"]:
    """The AND of the rows that each column of `units` names; naming one twice does no harm."""
    words = rows.view(torch.int64)
    both = words.index_select(0, units[0])
    row = torch.empty_like(both)
    for unit in units[1:]:
        both &= torch.index_select(words, 0, unit, out=row)
    return both.view(torch.uint8)


def at_least_set(
    rows: UInt8[Tensor, " n bytes"],
    units: Int64[Tensor, " most batch"],
    counts: Int64[Tensor, " batch"],
    theta: int,
) -> UInt8[Tensor, " batch bytes"]:
    """The columns in which at least `theta` of the first `counts` named rows are set."""
    words = rows.view(torch.int64)
    reached = words.new_zeros(len(counts), words.shape[1])
    start = -theta % (1 << (theta - 1).bit_length())
    planes = [
        torch.full_like(reached, -(start >> level & 1)) for level in range((theta - 1).bit_length())
    ]
    for k, unit in enumerate(units):
        carry = words.index_select(0, unit)
        carry.masked_fill_((counts <= k)[:, None], 0)
        for plane in planes:
            plane ^= carry  # the carry is where a set bit has just turned to 0
            carry &= ~plane
        reached |= carry
    return reached.view(torch.uint8)


def set_bits(
    rows: UInt8[Tensor, " n bytes"],
    units: Int64[Tensor, " most batch"],
    owner: Int64[Tensor, " entries"],
    column: Int64[Tensor, " entries"],
) -> None:
    """Set, for every entry, bit `column` in all the rows named by column `owner` of `units`.

    Entries that fall on one byte are written together if they set the same bit of it, so that
    whichever write comes last writes the same value.
    """
    flat, width = rows.view(-1), rows.shape[1]
    for bit in range(8):
        here = (column & 7 == bit).nonzero().squeeze(1)
        for entries in here.split(max(1, _CELLS // len(units))):
            byte = (units[:, owner[entries]] * width + (column[entries] >> 3)).view(-1)
            flat[byte] = flat[byte] | (1 << bit)


def unpack(rows: UInt8[Tensor, " batch bytes"], m: int) -> Bool[Tensor, " batch m"]:
    """The first `m` bits of each row as booleans; fast when few bits are set.

    Example:
        >>> unpack(torch.tensor([[5, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.uint8), 3)
        tensor([[ True, False,  True]])
    """
    value = torch.arange(256, device=rows.device)[:, None]
    spread = (value >> torch.arange(8, device=rows.device) & 1).bool().view(torch.int64)  # (256, 1)
    words = rows.view(torch.int64).view(-1)
    some = words.nonzero().squeeze(1)
    chosen = words[some].view(torch.uint8)
    byte = chosen.nonzero().squeeze(1)
    bits = words.new_zeros(rows.numel())
    bits[8 * some[byte >> 3] + (byte & 7)] = spread.view(-1)[chosen[byte].int()]
    return bits.view(rows.shape).view(torch.bool)[:, :m].contiguous()


def pack(x: Bool[Tensor, " batch m"]) -> UInt8[Tensor, " batch bytes"]:
    """The rows of a boolean matrix as bits, the inverse of `unpack`.

    Example:
        >>> pack(torch.tensor([[True, False, True]]))
        tensor([[5, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.uint8)
    """
    rows = torch.zeros(len(x), byte_width(x.shape[1]), dtype=torch.uint8, device=x.device)
    set_bits(rows, torch.arange(len(x), device=x.device)[None], *true_entries(x))
    return rows


def count_set(rows: UInt8[Tensor, " batch bytes"]) -> Int64[Tensor, " batch"]:
    """The number of set bits in each row: in pairs of bits, then fours, eights and whole words."""
    v = rows.view(torch.int64)
    v = v - (v >> 1 & 0x5555555555555555)
    v = (v & 0x3333333333333333) + (v >> 2 & 0x3333333333333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (v * 0x0101010101010101 >> 56).sum(1)
