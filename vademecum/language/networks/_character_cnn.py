r"""The vector of a word, made of its characters.

A filter of width $w$ looks at every window of $w$ neighbouring characters of a word, and the
largest of its answers is kept:

$$f_j = \max\Bigl(0,\; \max_t \langle W_j, (c_t, \dots, c_{t+w-1}) \rangle + b_j\Bigr) .$$

Windows are complete, except in words shorter than the filter, whose one window ends in zeros. Two
highway layers, $x \leftarrow g \odot \max(0, A x + a) + (1 - g) \odot x$ with a gate
$g = \sigma(G x + h)$, and a linear map follow. So every string has a vector. The claim is
`elmo_characters`.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vademecum.language.networks._tokens import looked_up

__all__ = ["ALPHABET", "CharacterCNN", "spelled"]

ALPHABET = 258
"""256 bytes and two marks, for the begin and the end of a word; 0 is padding."""
_BEGIN, _END = 257, 258


def spelled(words: Sequence[str], *, marks: bool = True) -> list[list[int]]:
    """The characters of words: the bytes of their UTF-8, plus one, between two marks."""
    bytes_of = ([byte + 1 for byte in word.encode()] for word in words)
    return [[_BEGIN, *word, _END] if marks else word for word in bytes_of]


class CharacterCNN(nn.Module):
    """Characters of words (..., W), padded by zeros, to vectors (..., d)."""

    def __init__(self, d: int, d_characters: int, filters: Mapping[int, int], highways: int):
        super().__init__()
        m = sum(filters.values())
        self.embedding = nn.Embedding(ALPHABET + 1, d_characters, padding_idx=0)
        self.filters = nn.ModuleList(
            nn.Conv1d(d_characters, count, width) for width, count in filters.items()
        )
        self.highways = nn.ModuleList(nn.Linear(m, 2 * m) for _ in range(highways))
        self.projection = nn.Linear(m, d)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.features(characters)
        for layer in self.highways:
            bent, gate = layer(x).chunk(2, -1)
            x = torch.lerp(x, bent.relu(), gate.sigmoid())
        return self.projection(x)

    def features(self, characters: Tensor) -> Tensor:
        """The largest answers of all filters, where they are positive: (..., m)."""
        flat = characters.flatten(0, -2)
        lengths = (flat != 0).sum(-1)
        widest = max(layer.kernel_size[0] for layer in self._convolutions)
        flat = nn.functional.pad(flat, (0, max(0, widest - flat.shape[-1])))
        x, found = looked_up("characters", flat, self.embedding.weight, 0).mT, []
        for layer in self._convolutions:
            answers = layer(x)
            starts = (lengths - layer.kernel_size[0] + 1).clamp(min=1)[:, None, None]
            within = torch.arange(answers.shape[-1], device=x.device) < starts
            found.append(answers.masked_fill(~within, -torch.inf).amax(-1))
        return torch.cat(found, -1).relu().unflatten(0, characters.shape[:-1])

    @property
    def _convolutions(self) -> list[nn.Conv1d]:
        return [layer for layer in self.filters if isinstance(layer, nn.Conv1d)]
