r"""Encoder and decoder: one recurrent network reads a sequence, another one writes the answer.

The encoder maps $x^1, \dots, x^T$ to its last state $z = z^T$; the decoder starts from $z$ and is
fed with its own outputs, $p(y \mid x) = \prod_s p(y^s \mid z, y^{1:s-1})$, until the end symbol
comes. So without attention all that the answer knows of the source is $z$, of one size for all
lengths; with attention each output looks back at $z^1, \dots, z^T$.

Exact: a source that is padded gives what it gives alone, up to rounding. Checked by
`recurrence.encoder_decoder`, `recurrence.encoder_bottleneck`.

References:
    Sutskever, Vinyals and Le, Sequence to sequence learning with neural networks, NeurIPS, 2014.
    Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP, 2014.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vademecum.arguments import choice, whole
from vademecum.recurrence.sequences._decoder import Decoder, Look, Start, recurrent
from vademecum.recurrence.sequences._output_model import Lengths, OutputModel
from vademecum.recurrence.sequences._symbols import check_symbols, lengths_of, within

__all__ = ["Seq2Seq"]


class Seq2Seq(OutputModel):
    """A model of answers to a sequence: both are symbols, and of any length.

    Args:
        vocabulary: How many symbols a source has.
        k: How many symbols an answer has, the end symbol among them.
        dimension: The width of the embeddings.
        width: The width of both recurrent networks.
        layers: How many layers each of them has.
        cell: Their kind.
        attention: How the decoder looks back at the source: not at all, by products of states, or
            by a small network.
        end: The symbol that ends an answer.
        padding: A symbol that fills up short sources, from which lengths are then told where they
            are not given; by default lengths must be given.

    Raises:
        ValueError: If a number is below 1, or a symbol is not in its vocabulary.

    Example:
        >>> model = Seq2Seq(9, 5, dimension=4, width=6, attention="dot")
        >>> x = torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1]])
        >>> model(x, torch.tensor([[3, 1, 0], [2, 0, 0]]), lengths=[4, 2]).shape
        torch.Size([2, 3, 5])
        >>> alone = model.generate(x[1:, :2], 7)
        >>> torch.equal(model.generate(x, 7, lengths=[4, 2])[1:, : alone.shape[1]], alone)
        True
    """

    def __init__(
        self,
        vocabulary: int,
        k: int,
        *,
        dimension: int = 64,
        width: int = 128,
        layers: int = 1,
        cell: Literal["gru", "lstm"] = "gru",
        attention: Look = "none",
        end: int = 0,
        padding: int | None = None,
    ):
        super().__init__()
        choice("cell", cell, ("gru", "lstm"))
        self.vocabulary, self.k = whole("vocabulary", vocabulary, low=1), whole("k", k, low=1)
        self.end = whole("end", end, low=0, high=k - 1)
        self.padding = padding
        if padding is not None:
            whole("padding", padding, low=0, high=vocabulary - 1)
        dimension = whole("dimension", dimension, low=1)
        self.embedding = nn.Embedding(vocabulary, dimension)
        self.encoder = recurrent(cell, dimension, width, layers)
        self.decoder = Decoder(k, dimension=dimension, width=width, layers=layers, cell=cell,
                               attention=attention)  # fmt: skip

    def code(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The code of each source: all numbers of the encoder's last state, one vector.

        Args:
            x: The sources, (n, T).
            lengths: How long each source is, where some are padded.
        """
        return torch.cat([part.flatten(1) for part in self._start(x, lengths).hidden], 1)

    def _start(self, x: Tensor, lengths: Lengths) -> Start:
        found = self._lengths(x, lengths)
        inside = None
        if found is not None:
            inside = within(found, x.shape[1], x.device)
            x = torch.where(inside, x, 0)
        hint = "" if found is not None else "; are these padded? Then lengths must be given"
        x = check_symbols("x", x, self.vocabulary, hint).long()
        states, last = self._encoded(self.embedding(x), found)
        last = last if isinstance(last, tuple) else (last,)
        look = self.decoder.attention
        seen = None if look is None else look.remember(states, inside)
        return Start(tuple(part.transpose(0, 1) for part in last), None, seen)

    def _encoded(self, words: Tensor, lengths: Tensor | None) -> tuple[Tensor, Any]:
        if lengths is None:
            return self.encoder(words)
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        return pad_packed_sequence(states, batch_first=True, total_length=words.shape[1])[0], last

    def _lengths(self, x: Tensor, lengths: Lengths) -> Tensor | None:
        shaped = isinstance(x, Tensor) and x.ndim == 2 and x.numel()
        if lengths is not None and shaped:
            return lengths_of(lengths, *x.shape)
        if self.padding is None or not shaped:
            return None
        filled = x == self.padding
        found = (~filled).sum(1)
        if bool((filled != ~within(found, x.shape[1], x.device)).any()) or not bool(found.all()):
            raise ValueError(
                f"x must have its padding ({self.padding}) at the end only, and more than that"
            )
        return found.cpu()
