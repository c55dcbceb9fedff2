r"""Hiding tokens, which a model then fills in: the task of BERT's pre-training.

Every token that is not special is selected with probability $r = 0.15$, each for itself. A selected
one is replaced by [MASK] with probability 0.8, by a token drawn evenly from all $V$ with 0.1, and
stays with 0.1; a model has to tell what it was, and the loss is the cross-entropy at selected
places alone. The claim is `masked_language_model`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Integer, UInt8
from torch import Tensor

from vademecum.arguments import number, row_lengths, whole
from vademecum.language._token_rows import insist_on_tokens
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["MaskedTokens", "mask_tokens"]

_WIDE = (torch.int64, torch.int32)
_INTEGERS = (*_WIDE, torch.int16, torch.int8, torch.uint8)


class MaskedTokens(NamedTuple):
    """Tokens some of which are hidden.

    Example:
        >>> hidden = mask_tokens(torch.tensor([[5, 6]]), mask=3, V=9, rate=1, shares=(1, 0, 0))
        >>> hidden.tokens, hidden.labels
        (tensor([[3, 3]]), tensor([[5, 6]]))
    """

    tokens: Integer[Tensor, " *shape"]
    """What the model sees."""
    labels: Integer[Tensor, " *shape"]
    """What it has to tell: tokens at selected places, and -100 elsewhere, which torch's
    `cross_entropy` leaves out."""
    decisions: UInt8[Tensor, " *shape"]
    """0 where a token was not selected, 1 where it was masked, 2 replaced, 3 kept."""

    __repr__ = one_line


def mask_tokens(
    tokens: Integer[Tensor, " *shape"],
    *,
    mask: int,
    V: int,
    special: Sequence[int] = (),
    lengths: Integer[Tensor, " n"] | None = None,
    rate: float = 0.15,
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
    generator: torch.Generator | None = None,
) -> MaskedTokens:
    """Hide some tokens, for a model to fill in.

    Args:
        tokens: The tokens.
        mask: The token that stands for a hidden one.
        V: How many tokens there are: a replacement is one of 0, ..., V - 1.
        special: Tokens that are never selected, as [CLS], [SEP] and padding; `mask` is one of them.
        lengths: How many tokens of each row (n, T) are real; padding is never selected.
        rate: The probability that a token is selected.
        shares: The probabilities that a selected token is masked, replaced at random, and kept.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If tokens are out of range, or probabilities are none.

    References:
        Devlin et al., BERT: pre-training of deep bidirectional transformers for language
        understanding, NAACL, 2019.

    Example:
        >>> tokens = torch.randint(5, 100, (8, 50))
        >>> hidden = mask_tokens(tokens, mask=4, V=100, special=(0, 1, 2))
        >>> torch.equal(hidden.tokens[hidden.decisions != 1], tokens[hidden.decisions != 1])
        False
        >>> torch.equal(hidden.labels[hidden.labels != -100], tokens[hidden.decisions > 0])
        True
    """
    V, mask = whole("V", V, low=1), whole("mask", mask, low=0)
    rate = number("rate", rate, low=0, high=1)
    if len(shares) != 3 or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-9:  # also for NaN
        raise ValueError(f"shares must be three probabilities that sum to one, got {shares}")
    if not isinstance(tokens, Tensor) or tokens.dtype not in _INTEGERS:
        given = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of integers, got {given}")
    tokens = tokens if tokens.dtype in _WIDE else tokens.long()  # bytes hold no -100
    insist_on_tokens("tokens", [tokens.flatten()], V)
    where, first = source(generator, tokens.device), shares[0]
    u, v = torch.rand((2, *tokens.shape), **where).to(tokens.device)
    others = torch.randint(V, tokens.shape, **where).to(tokens)
    never = torch.tensor([mask, *special], device=tokens.device)
    selected = (u < rate) & ~torch.isin(tokens, never)
    if lengths is not None:
        if tokens.ndim != 2:
            raise ValueError(f"tokens must be (n, T) with lengths, got {tuple(tokens.shape)}")
        n, T = tokens.shape
        real = row_lengths("lengths", lengths, n, T, tokens.device)[:, None]
        selected &= torch.arange(T, device=tokens.device) < real
    kinds = 1 + (v >= first).byte() + (v >= first + shares[1]).byte()
    decisions = torch.where(selected, kinds, torch.zeros_like(kinds))
    seen = torch.where(decisions == 1, mask, torch.where(decisions == 2, others, tokens))
    return MaskedTokens(seen, torch.where(selected, tokens, -100), decisions)
