"""The real tokens of all rows, one after the other: padding is not computed.

Rows are ordered by their length, so that rows of one length are a batch without a gap. Maps of each
token alone take all tokens at once; attention takes them row by row: on the CPU a batch for each
length, on CUDA devices in half precision one kernel for all (`varlen_attn`), and there otherwise
attention alone is padded and masked.
"""

from itertools import groupby

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["Packing"]


class Packing:
    """Where the real tokens of n rows of at most T are.

    Args:
        n: How many rows there are.
        T: How many places a row has.
        lengths: How many tokens of each row are real, at least one; all by default. They are
            looked at, which waits for the device they are on.
        device: Where the tokens are.
    """

    def __init__(self, n: int, T: int, lengths: Tensor | None, device: torch.device):
        self.n, self.T = n, T
        self.lengths, self.index, self.groups = lengths, None, [(n, T)]
        self.first = torch.arange(n, device=device) * T
        self.places = torch.arange(T, device=device)
        if lengths is None:
            return
        known = lengths.cpu()
        if known.amin() < 1:
            raise ValueError(f"lengths must be >= 1, got {known.tolist()}")
        known, order = known.sort(descending=True, stable=True)
        self.groups = [(len(list(rows)), size) for size, rows in groupby(known.tolist())]
        places = torch.arange(T)
        real = places < known[:, None]
        self.index = (order[:, None] * T + places)[real].to(device)
        self.places = places.expand(n, T)[real].to(device)
        self.ends = known.cumsum(0)
        self.first = torch.empty_like(order).scatter_(0, order, self.ends - known).to(device)

    def pack(self, x: Tensor) -> Tensor:
        """The real ones of (n, T, ...) as (N, ...)."""
        flat = x.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def unpack(self, x: Tensor) -> Tensor:
        """Real ones (N, ...) in their places in (n, T, ...), with zeros at padding."""
        if self.index is not None:
            x = x.new_zeros(self.n * self.T, *x.shape[1:]).index_copy(0, self.index, x)
        return x.unflatten(0, (self.n, self.T))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        """Attention within each row, of packed queries, keys and values (N, heads, d) each."""
        if len(self.groups) == 1 or not q.is_cuda:
            return self._by_length(q, k, v, dropout)
        half = q.dtype in (torch.bfloat16, torch.float16) and q.shape[2] % 8 == 0
        if half and not dropout and torch.cuda.get_device_capability(q.device) >= (8, 0):
            ends = torch.nn.functional.pad(self.ends, (1, 0)).to(q.device, torch.int32)
            longest = self.groups[0][1]
            y = varlen_attn(q, k, v, ends, ends, longest, longest)
            assert isinstance(y, Tensor)  # and no pair, which was not asked for
            return y.flatten(1)
        return self._padded(q, k, v, dropout)

    def _by_length(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        found, sizes = [], [count * size for count, size in self.groups]
        pieces = zip(self.groups, *(x.split(sizes) for x in (q, k, v)), strict=True)
        for group, *qkv in pieces:
            q, k, v = (x.unflatten(0, group).transpose(1, 2) for x in qkv)
            y = scaled_dot_product_attention(q, k, v, None, dropout)
            found.append(y.transpose(1, 2).flatten(2).flatten(0, 1))
        return found[0] if len(found) == 1 else torch.cat(found)

    def _padded(self, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        assert self.lengths is not None
        q, k, v = (self.unpack(x).transpose(1, 2) for x in (q, k, v))
        lengths = self.lengths.to(q.device)
        real = (torch.arange(self.T, device=q.device) < lengths[:, None])[:, None, None]
        y = scaled_dot_product_attention(q, k, v, real, dropout)
        return self.pack(y.transpose(1, 2)).flatten(1)
