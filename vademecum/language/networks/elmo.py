r"""ELMo: words in their sentences, by two language models that read from either end.

A network of characters gives the words' vectors $x_t$. A stack of LSTMs reads them from left to
right, another one from right to left,

$$f^j_t = \mathrm{LSTM}(f^{j-1}_{\le t}), \qquad
b^j_t = \mathrm{LSTM}(b^{j-1}_{\ge t}), \qquad
f^0 = b^0 = x ,$$

each layer after the first added to what it reads. One softmax predicts the next word from
$f^L_t$ and the previous one from $b^L_t$. A task sees

$$\gamma \sum_{j=0}^{L} s_j\, h^j_t, \qquad
h^j_t = [f^j_t, b^j_t], \quad s = \mathrm{softmax}(w) ,$$

and learns the $L + 2$ numbers $w$ and $\gamma$. The published network also clips what cells hold,
which is left out here. The claims are `elmo`, `elmo_characters` and `elmo_mixing`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import number, row_lengths, whole
from vademecum.language.networks._character_cnn import CharacterCNN, spelled
from vademecum.language.networks._tokens import insist_on_tokens
from vademecum.results import one_line

__all__ = ["ELMo", "ELMoOutput", "ELMoPredictions", "ELMoWords"]

_KEPT = dict.fromkeys(("deterministic", "allow_tf32", "fp32_precision"))
_WITHOUT_ONEDNN: dict[str, Any] = {"enabled": False, **_KEPT}  # it knows no projections, and warns
_FILTERS = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}


class ELMoWords(NamedTuple):
    """Sentences as characters.

    Example:
        >>> ELMo.encode([["an", "ant"], ["ants"]]).lengths
        tensor([2, 1])
    """

    characters: Integer[Tensor, " n T W"]
    """Those of each word, from 1 to 258; zeros after words and sentences."""
    lengths: Integer[Tensor, " n"]
    """How many words each sentence has."""

    __repr__ = one_line


class ELMoOutput(NamedTuple):
    """The vectors of words in their sentences.

    Example:
        >>> net = ELMo(d=6, hidden=8, layers=2, filters={1: 4}, d_characters=3)
        >>> net(ELMo.encode([["a", "bee"]]).characters).layers.shape
        torch.Size([1, 3, 2, 12])
    """

    mixed: Float[Tensor, " n T two_d"]
    """What a task sees: all layers, mixed."""
    layers: Float[Tensor, " n layers T two_d"]
    """The words' own vectors, twice; then each layer's states from the left and from the right."""

    __repr__ = one_line


class ELMoPredictions(NamedTuple):
    """Logits of neighbouring words.

    Example:
        >>> net = ELMo(V=9, d=6, hidden=8, filters={1: 4}, d_characters=3)
        >>> net.predictions(ELMo.encode([["a", "bee"]]).characters).following.shape
        torch.Size([1, 2, 9])
    """

    following: Float[Tensor, " n T V"]
    """Of the word after each, by what is up to it."""
    preceding: Float[Tensor, " n T V"]
    """Of the word before each, by what is from it on."""

    __repr__ = one_line


class ELMo(nn.Module):
    """Contextual vectors of words, from their characters.

    Args:
        V: How many words are predicted in training; None for no prediction.
        d: How wide a word is, and a state in each direction.
        hidden: How many cells an LSTM has; states are mapped to d where there are more.
        layers: How many LSTMs there are in each direction.
        d_characters: How wide a character is.
        filters: How many filters there are of each width; the published ones by default.
        highways: How many highway layers follow them.
        dropout: How many numbers are dropped while training, before each LSTM.

    Raises:
        ValueError: If a size is below 1, or there are fewer cells than d.

    References:
        Peters et al., Deep contextualized word representations, NAACL, 2018.

    Example:
        >>> net = ELMo(d=6, hidden=8, filters={1: 4, 3: 5}, d_characters=3)
        >>> words = ELMo.encode([["the", "river", "bank"], ["a", "bank"]])
        >>> net(words.characters, lengths=words.lengths).mixed.shape
        torch.Size([2, 3, 12])
    """

    def __init__(
        self,
        *,
        V: int | None = None,
        d: int = 512,
        hidden: int = 4096,
        layers: int = 2,
        d_characters: int = 16,
        filters: Mapping[int, int] | None = None,
        highways: int = 2,
        dropout: float = 0.0,
    ):
        super().__init__()
        filters = dict(_FILTERS if filters is None else filters)
        if not filters:
            raise ValueError("filters must name a width or more, got none")
        for width, count in filters.items():
            whole("widths of filters", width, low=1)
            whole("counts of filters", count, low=1)
        self.V = None if V is None else whole("V", V, low=1)
        self.d, self.dropout = whole("d", d, low=1), number("dropout", dropout, low=0, below=1)
        whole("hidden", hidden, low=d)
        self.words = CharacterCNN(
            d, whole("d_characters", d_characters, low=1), filters,
            whole("highways", highways, low=0),
        )  # fmt: skip
        size = d if hidden > d else 0
        self.from_left, self.from_right = (
            nn.ModuleList(
                nn.LSTM(d, hidden, proj_size=size, batch_first=True)
                for _ in range(whole("layers", layers, low=1))
            )
            for _ in range(2)
        )
        self.head = None if V is None else nn.Linear(d, V)
        self.weights = nn.Parameter(torch.zeros(layers + 1))
        self.gamma = nn.Parameter(torch.ones(()))

    @staticmethod
    def encode(sentences: Sequence[Sequence[str]]) -> ELMoWords:
        """The characters of sentences.

        Args:
            sentences: The words of each; any strings.
        """
        if isinstance(sentences, str) or not sentences or not all(map(len, sentences)):
            raise ValueError("sentences must be lists of words, none of them empty")
        for words in sentences:
            if isinstance(words, str) or not all(isinstance(w, str) for w in words):
                raise ValueError(f"sentences must be lists of words, got {words!r}")
        rows = [spelled(words) for words in sentences]
        T, W = max(map(len, rows)), max(len(word) for row in rows for word in row)
        characters = torch.zeros(len(rows), T, W, dtype=torch.long)
        for i, row in enumerate(rows):
            for t, word in enumerate(row):
                characters[i, t, : len(word)] = torch.tensor(word)
        return ELMoWords(characters, torch.tensor([len(row) for row in rows]))

    def forward(
        self,
        characters: Integer[Tensor, " n T W"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
    ) -> ELMoOutput:
        """The vectors of words in their sentences; those at padding mean nothing.

        Args:
            characters: Those of each word, as `encode` makes them.
            lengths: How many words of each sentence are real; all by default.
        """
        left, right = self._states(characters, lengths)
        layers = torch.stack([torch.cat(pair, -1) for pair in zip(left, right, strict=True)], 1)
        shares = self.weights.softmax(0)
        return ELMoOutput(self.gamma * torch.einsum("l,nltd->ntd", shares, layers), layers)

    def predictions(
        self,
        characters: Integer[Tensor, " n T W"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
    ) -> ELMoPredictions:
        """The logits of the words after and before each.

        Args:
            characters: Those of each word.
            lengths: How many words of each sentence are real; all by default.
        """
        if self.head is None:
            raise ValueError("V must be given to the constructor for predictions, got None")
        left, right = self._states(characters, lengths)
        return ELMoPredictions(self.head(left[-1]), self.head(right[-1]))

    def loss(
        self,
        characters: Integer[Tensor, " n T W"],
        targets: Integer[Tensor, " n T"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """The mean cross-entropies of both directions, added.

        Args:
            characters: Those of each word.
            targets: The words as numbers below V.
            lengths: How many words of each sentence are real; all by default.
        """
        found = self.predictions(characters, lengths=lengths)
        insist_on_tokens(targets, name="targets")
        if targets.shape != characters.shape[:2] or targets.shape[1] < 2:
            shape = tuple(characters.shape[:2])
            raise ValueError(
                f"targets must have the shape {shape}, T >= 2, got {tuple(targets.shape)}"
            )
        pairs = torch.ones_like(targets[:, 1:], dtype=torch.bool)
        if lengths is not None:
            real = lengths[:, None].to(pairs.device)
            pairs = torch.arange(1, targets.shape[1], device=pairs.device) < real
            if lengths.device.type == "cpu" and not pairs.any():
                raise ValueError(f"lengths must be > 1 somewhere, got {lengths.tolist()}")
        after = _cross_entropy(found.following[:, :-1][pairs], targets[:, 1:][pairs])
        before = _cross_entropy(found.preceding[:, 1:][pairs], targets[:, :-1][pairs])
        return after + before

    def freeze(self) -> "ELMo":
        """Keep everything as it is but the mix of layers, which a task learns."""
        for p in self.parameters():
            p.requires_grad_(p is self.weights or p is self.gamma)
        return self

    def _states(
        self, characters: Tensor, lengths: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Words and the states of all layers, from the left and from the right."""
        if characters.ndim != 3 or characters.is_floating_point() or not characters.numel():
            given = f"{characters.dtype} of shape {tuple(characters.shape)}"
            raise ValueError(f"characters must be integers of shape (n, T, W), got {given}")
        n, T, _ = characters.shape
        places = torch.arange(T, device=characters.device).expand(n, T)
        last = places.new_full((n, 1), T - 1)
        if lengths is not None:
            last = row_lengths("lengths", lengths, n, T, characters.device)[:, None] - 1
        turned = torch.where(places <= last, last - places, places)[..., None].expand(
            -1, -1, self.d
        )
        words = self.words(characters)
        left = self._read(self.from_left, words)
        right = self._read(self.from_right, words.gather(1, turned))
        return left, [x.gather(1, turned) for x in right]

    def _read(self, stack: nn.ModuleList, x: Tensor) -> list[Tensor]:
        found = [x]
        for layer in stack:
            with torch.backends.mkldnn.flags(**_WITHOUT_ONEDNN):
                new, _ = layer(F.dropout(x, self.dropout, self.training))
            x = new if len(found) == 1 else new + x
            found.append(x)
        return found


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over rows; on the CPU what is out of range is told, elsewhere the device stops."""
    try:
        return F.cross_entropy(logits, targets.long())
    except IndexError:
        low, high = targets.amin().item(), targets.amax().item()
        V = logits.shape[1]
        raise ValueError(
            f"targets must be between 0 and {V - 1}, got {low if low < 0 else high}"
        ) from None
