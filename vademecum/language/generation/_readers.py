r"""Reading rows of tokens step by step: with a cache where a model offers one, else from the start.

A reader has the logits that follow the last token of every row. Rows have their own lengths: in a
cache each has its own place, and without one rows are padded at their ends and read at their own
last token. Either way a row reads as it would alone, up to rounding.

A model offers a cache if it has `make_cache(n, capacity, all_slots=...)` and takes `cache=`,
`lengths=` and `last=`, as `GPT` does.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.language._token_rows import logits_of, padded
from vademecum.language.networks._token_steps import token_step

__all__ = ["CachedReader", "Reader", "WholeReader", "offers_cache"]


def offers_cache(model: nn.Module) -> bool:
    """Whether a model can go on from what it kept of earlier tokens."""
    return callable(getattr(model, "make_cache", None))


class WholeReader:
    """Reads all tokens of a row at every step, or the last ones that fit into the context."""

    def __init__(self, model: Any, context: int | None, room: int, device: torch.device):
        self.model, self._context, self._room, self._device = model, context, room, device

    def read(self, rows: Sequence[Tensor]) -> Tensor:
        """The logits (n, V) after rows of tokens."""
        self._lengths = torch.tensor([len(row) for row in rows], device=self._device)
        self._longest = max(len(row) for row in rows)
        self._tokens = nn.functional.pad(padded(rows, self._device), (0, self._room))
        return self._logits()

    def step(self, tokens: Tensor) -> Tensor:
        """The logits (n, V) after one more token for each row."""
        self._tokens.scatter_(1, self._lengths[:, None], tokens[:, None])
        self._lengths = self._lengths + 1
        self._longest += 1
        return self._logits()

    def reorder(self, rows: Tensor) -> None:
        """Let row i be what row `rows[i]` was."""
        self._tokens, self._lengths = self._tokens[rows], self._lengths[rows]

    def _logits(self) -> Tensor:
        width = self._longest
        seen, ends = self._tokens[:, :width], self._lengths - 1
        if self._context is not None and width > self._context:
            width = self._context
            begins = (self._lengths - width).clamp(min=0)
            places = begins[:, None] + torch.arange(width, device=self._device)
            seen, ends = self._tokens.gather(1, places), ends - begins
        return _at_ends(logits_of(self.model, seen), ends)


class CachedReader:
    """Reads every token once, and keeps what later ones need of it."""

    def __init__(self, model: Any, n: int, capacity: int, device: torch.device):
        self.model: Any = model
        self._device = device
        fixed = device.type == "cuda"  # no shape changes, so that steps can be captured
        self.caches = model.make_cache(n, capacity, all_slots=fixed)
        self._step = token_step(model, self.caches)

    def read(self, rows: Sequence[Tensor]) -> Tensor:
        """The logits (n, V) after rows of tokens."""
        for cache in self.caches:
            cache.clear()
        tokens = padded(rows, self._device)
        lengths = torch.tensor([len(row) for row in rows])
        if bool((lengths == tokens.shape[1]).all()):
            return self.model(tokens, cache=self.caches, last=True)[:, 0]
        found = self.model(tokens, cache=self.caches, lengths=lengths.to(self._device), last=True)
        return found[:, 0]

    def step(self, tokens: Tensor) -> Tensor:
        """The logits (n, V) after one more token for each row."""
        if self._step is not None:
            return self._step(tokens)
        return self.model(tokens[:, None], cache=self.caches)[:, 0]

    def reorder(self, rows: Tensor) -> None:
        """Let row i be what row `rows[i]` was."""
        for cache in self.caches:
            cache.reorder(rows)

    def let_go(self) -> None:
        """Hold neither the model nor its weights; whoever reads again gives it a model."""
        self.model = self._step = None


Reader = WholeReader | CachedReader


def _at_ends(logits: Tensor, ends: Tensor) -> Tensor:
    return logits[torch.arange(len(ends), device=logits.device), ends]
