r"""The pseudo-likelihood of a text under a model that fills gaps.

$$\log \mathrm{PL}(x) = \sum_i \log p(x_i \mid x_{-i}) ,$$

each token hidden in turn and guessed from all others, one pass for each. Products of such
conditionals need not sum to one over all texts, and conditionals need not belong to any
distribution: it compares texts, and is no probability. Exact; the claim is `masked_conditionals`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.language._token_rows import (
    Rows,
    context_of,
    device_of,
    insist_on_tokens,
    rows_of,
    vocabulary_of,
)
from vademecum.language.networks import BERT
from vademecum.models import Output, chosen_output, evaluation, unwrapped
from vademecum.results import one_line

__all__ = ["PseudoLikelihood", "pseudo_likelihood"]

_LOGITS = 2**26
"""How many logits are computed in a pass by default: 256 MB in single precision."""


class PseudoLikelihood(NamedTuple):
    """How well the tokens of texts can be told from all others.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.zeros(5, 4))  # all four alike
        >>> pseudo_likelihood(model, torch.tensor([0, 3, 1]), mask=4)
        PseudoLikelihood(log_likelihood=tensor([-4.1589]), log_probs=tensor([[-1.3863, ...]]))
    """

    log_likelihood: Float[Tensor, " n"]
    """The sum of the logarithms, one for each row."""
    log_probs: Float[Tensor, " n T"]
    """The logarithm of each token's probability given all others; 0 where none was asked for."""

    __repr__ = one_line


def pseudo_likelihood(
    model: nn.Module,
    x: Rows,
    *,
    mask: int,
    special: Sequence[int] = (),
    output: Output = None,
    memory: int | None = None,
) -> PseudoLikelihood:
    """The pseudo-log-likelihood of texts under a model that fills gaps.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V), taken in evaluation mode.
        x: Tokens (T,) or (n, T), or a list of rows of unequal length.
        mask: The token that stands for a hidden one.
        special: Tokens that are not hidden and not counted, as [CLS] and [SEP].
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. They
            are those of logits: what else a pass takes is the model's business.

    Raises:
        ValueError: If tokens are out of range, or rows longer than what the model takes.

    References:
        Besag, Statistical analysis of non-lattice data, The Statistician, 1975. Salazar et al.,
        Masked language model scoring, ACL, 2020.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
        >>> found = pseudo_likelihood(model, [[0, 1], [1]], mask=2)  # sigmoids of -1 and 1
        >>> found.log_likelihood
        tensor([-1.6265, -0.3133])
    """
    model, mask = unwrapped(model), whole("mask", mask, low=0)
    if memory is not None:
        whole("memory", memory, low=1)
    rows, V, most = rows_of("x", x), vocabulary_of(model), context_of(model, None)
    insist_on_tokens("x", rows, V)
    longest = max(map(len, rows))
    if most is not None and longest > most:
        raise ValueError(f"rows of x must be at most context = {most} long, got {longest}")
    device = device_of(model, rows[0])
    never = torch.tensor([*special], dtype=torch.long)
    found = None
    with evaluation(model, fused=True), torch.no_grad():
        for parts in _hidden(rows, mask, never, V, memory):
            copies, own, i, t = (part.to(device) for part in parts)
            logits = _at(model, copies, t, output)
            if logits.dtype in (torch.float16, torch.bfloat16):  # sums would lose their digits
                logits = logits.float()
            new = logits.log_softmax(-1).gather(-1, own[:, None])[:, 0]
            if found is None:
                found = new.new_zeros(len(rows), longest)
            found[i, t] = new
    if found is None:
        raise ValueError("x must have tokens that are not special")
    return PseudoLikelihood(found.sum(1), found)


def _hidden(
    rows: list[Tensor], mask: int, never: Tensor, V: int | None, memory: int | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Rows of one length with one token hidden each, the token, which row it was, and where."""
    for T in sorted({len(row) for row in rows}):
        same = [i for i, row in enumerate(rows) if len(row) == T]
        tokens = torch.stack([rows[i].cpu() for i in same])
        which, places = (~torch.isin(tokens, never)).nonzero(as_tuple=True)
        budget = _LOGITS if memory is None else memory // 8
        count = max(1, budget // (T * (V or 2**15)))
        for i, t in zip(which.split(count), places.split(count), strict=True):
            if len(i):
                copies = tokens[i]
                copies[torch.arange(len(i)), t] = mask
                yield copies, tokens[i, t], torch.tensor(same)[i], t


def _at(model: nn.Module, copies: Tensor, t: Tensor, output: Output) -> Tensor:
    """The logits at one place of each row."""
    rows = torch.arange(len(t), device=t.device)
    knobs: dict[str, Any] = {}
    if isinstance(model, BERT) and output is None:  # which computes no others
        where = torch.zeros_like(copies, dtype=torch.bool)
        where[rows, t] = True
        knobs["where"] = where
    logits = chosen_output(model(copies, **knobs), output)
    if not isinstance(logits, Tensor) or logits.ndim != (2 if knobs else 3):
        given = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"model must give logits {(*copies.shape, 'V')}, got {given}")
    return logits if knobs else logits[rows, t]
