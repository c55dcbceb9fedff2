"""Random strings, and features of words by hand."""

import torch
from torch import Tensor

from vademecum.language import ELMo

__all__ = ["pooled_by_hand", "strings", "without_end"]

LETTERS = "abcdefghijklmnopqrstuvwxyzéß-"


def strings(count: int, low: int, high: int) -> list[str]:
    """Random strings of low to high letters."""
    lengths = torch.randint(low, high + 1, (count,)).tolist()
    return ["".join(LETTERS[i] for i in torch.randint(len(LETTERS), (n,))) for n in lengths]


def without_end(words: list[str]) -> Tensor:
    """The characters of words, one sentence, without the marks at their ends."""
    characters = ELMo.encode([words]).characters
    return torch.where(characters == 258, 0, characters)


def pooled_by_hand(net: ELMo, word: str) -> list[float]:
    """The largest answer of every filter to a window of a word between its marks, or zero."""
    characters = [257, *(byte + 1 for byte in word.encode()), 258]
    state, found = net.words.state_dict(), []
    for i in range(len(net.words.filters)):
        kernels, constants = state[f"filters.{i}.weight"], state[f"filters.{i}.bias"]
        width = kernels.shape[2]
        rows = [state["embedding.weight"][c] for c in characters]
        rows += [torch.zeros(kernels.shape[1])] * (width - len(rows))
        for kernel, constant in zip(kernels, constants, strict=True):
            answers = [
                float(sum(rows[t + s] @ kernel[:, s] for s in range(width)) + constant)
                for t in range(len(rows) - width + 1)
            ]
            found.append(max(0.0, *answers))
    return found
