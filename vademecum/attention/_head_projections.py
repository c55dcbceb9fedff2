"""The maps of multi-head attention: from tokens to queries, keys and values, head by head.

Under the names of `nn.MultiheadAttention`: the rows of `in_proj_weight` are the queries' of all
heads, then the keys', then the values', so that one product makes all of them of one input. Where
keys or values come from sequences of another width, each of the three has a matrix of its own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole

__all__ = ["HeadProjections", "insist_on_width"]


class HeadProjections(nn.Module):
    """The parameters of multi-head attention, and what they make of tokens."""

    in_proj_weight: nn.Parameter | None
    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    out_proj: nn.Linear

    def __init__(
        self,
        d: int,
        heads: int,
        kv_heads: int | None,
        inner: tuple[int | None, int | None],
        outer: tuple[int | None, int | None],
        *,
        bias: bool,
    ):
        super().__init__()
        self.d, self.heads = whole("d", d, low=1), whole("heads", heads, low=1)
        self.kv_heads = heads if kv_heads is None else whole("kv_heads", kv_heads, low=1)
        if heads % self.kv_heads:
            raise ValueError(f"heads must be divisible by kv_heads = {kv_heads}, got {heads}")
        if None in inner and d % heads:
            raise ValueError(f"d must be divisible by heads = {heads}, got {d}")
        self.d_k, self.d_v = (
            d // heads if size is None else whole(name, size, low=1)
            for name, size in zip(("d_k", "d_v"), inner, strict=True)
        )
        self.kdim, self.vdim = (
            d if size is None else whole(name, size, low=1)
            for name, size in zip(("kdim", "vdim"), outer, strict=True)
        )
        self._parameters_of(bias)

    def _parameters_of(self, bias: bool) -> None:
        """The parameters under the names of `nn.MultiheadAttention`, and by its law."""
        rows, widths = self.rows, (self.d, self.kdim, self.vdim)
        together = widths == (self.d,) * 3
        whole = nn.Parameter(torch.empty(sum(rows), self.d)) if together else None
        self.register_parameter("in_proj_weight", whole)
        for letter, count, width in zip("qkv", rows, widths, strict=True):
            own = None if together else nn.Parameter(torch.empty(count, width))
            self.register_parameter(f"{letter}_proj_weight", own)
        zeros = nn.Parameter(torch.zeros(sum(rows))) if bias else None
        self.register_parameter("in_proj_bias", zeros)
        self.out_proj = nn.Linear(self.heads * self.d_v, self.d, bias=bias)
        for weight in (whole, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    @property
    def rows(self) -> tuple[int, int, int]:
        """How many numbers the queries, keys and values of a token are."""
        return self.heads * self.d_k, self.kv_heads * self.d_k, self.kv_heads * self.d_v

    def _projected(
        self, x: Tensor, keys: Tensor | None, values: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by heads."""
        rows = self.rows
        if keys is None:
            q, k, v = F.linear(x, *self._pieces(sum(rows))[0]).split(rows, -1)
        elif values is None and self.in_proj_weight is not None:
            queries, both = self._pieces(rows[0], sum(rows[1:]))
            q, (k, v) = F.linear(x, *queries), F.linear(keys, *both).split(rows[1:], -1)
        else:
            inputs = x, keys, keys if values is None else values
            pieces = zip(inputs, self._pieces(*rows), strict=True)
            q, k, v = (F.linear(z, *piece) for z, piece in pieces)
        return self._split(q, self.heads), self._split(k), self._split(v)

    def _queries(self, x: Tensor) -> Tensor:
        """Queries by heads, alone."""
        return self._split(F.linear(x, *self._pieces(*self.rows)[0]), self.heads)

    def _memories(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values by heads, alone."""
        _, for_keys, for_values = self._pieces(*self.rows)
        return self._split(F.linear(keys, *for_keys)), self._split(F.linear(values, *for_values))

    def _pieces(self, *sizes: int) -> list[tuple[Tensor, Tensor | None]]:
        """The matrices of the first maps and their constants, cut into pieces of so many rows."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is not None and len(sizes) == 1:
            return [(weight, bias)]
        own = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        weights = own if weight is None else weight.split(sizes)
        biases = (None,) * len(sizes) if bias is None else bias.split(sizes)
        return list(zip(weights, biases, strict=True))  # pyright: ignore[reportReturnType]

    def _split(self, x: Tensor, heads: int | None = None) -> Tensor:
        """The numbers of tokens by heads: (n, heads, T, ...)."""
        return x.unflatten(-1, (self.kv_heads if heads is None else heads, -1)).transpose(1, 2)

    def _insist_on_memory(self, n: int, keys: Tensor, values: Tensor | None) -> None:
        """Refuse keys and values of wrong shapes."""
        insist_on_width("keys", keys, n, None, self.kdim)
        if values is not None or self.vdim != self.kdim:
            insist_on_width("values", values, n, keys.shape[1], self.vdim)


def insist_on_width(name: str, x: Tensor | None, n: int | None, T: int | None, width: int) -> None:
    """Refuse what is no sequence of n rows of T tokens of this width; None is any number."""
    shape = list(x.shape) if isinstance(x, Tensor) else []
    fits = len(shape) == 3 and shape[2] == width and shape[1] != 0
    if not fits or n not in (None, shape[0]) or T not in (None, shape[1]):
        wanted = f"({n or 'n'}, {T or 'T'}, {width})"
        given = tuple(shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must have the shape {wanted}, got {given}")
