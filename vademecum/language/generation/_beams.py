"""Beam search through a language model, by the search of `recurrence`.

Its state is where each string's row is: after the search has kept the best strings, the reader's
rows follow.
"""

import torch
from torch import Tensor

from vademecum.language.generation._runs import Plan, reader_for
from vademecum.recurrence import beam_search

__all__ = ["searched"]


def searched(plan: Plan, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best string of each row, how long it is, and its log-probability."""
    reader = reader_for(plan)
    first = reader.read(plan.rows)

    def step(tokens: Tensor, places: Tensor | None) -> tuple[Tensor, Tensor]:
        if places is None:
            logits = first
        else:
            reader.reorder(places)
            logits = reader.step(tokens)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return wide.log_softmax(1), torch.arange(len(tokens), device=tokens.device)

    start = torch.zeros(len(plan.rows), dtype=torch.long, device=plan.device)
    end = plan.stop[0] if plan.stop else None
    found = beam_search(step, start, beam=beam, max_length=plan.max_new_tokens, end=end)
    lengths = found.lengths[:, 0]
    tokens = found.tokens[:, 0, : int(lengths.max())]
    return tokens, lengths, found.log_probs[:, 0].double()
