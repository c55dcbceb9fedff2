r"""BERT: a transformer whose tokens look at all tokens, left and right.

$$z_0 = \mathrm{LN}(E[x] + P + S[\mathrm{segment}]), \qquad z_{l+1} = \mathrm{block}_l(z_l), \qquad
\mathrm{pooled} = \tanh(W z_L^{\mathrm{[CLS]}} + b) ,$$

and for pre-training the logits of hidden tokens, $E\,\mathrm{LN}(\mathrm{gelu}(W' z_L + b')) + c$
with the table $E$ of the input, and two of the pooled vector that tell whether the second sentence
follows the first. Padding is not computed: all maps see the real tokens of all rows one after the
other, and attention sees each row alone. The claims are `bert_encoder` and
`next_sentence_prediction`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vademecum.arguments import choice, number, row_lengths, whole
from vademecum.language.networks._bert_blocks import (
    Block,
    Body,
    Embeddings,
    Heads,
    Pooler,
    Sizes,
    Stack,
)
from vademecum.language.networks._packing import Packing
from vademecum.language.networks._tokens import insist_on_tokens
from vademecum.results import one_line

__all__ = ["BERT", "BERTOutput", "BERTPretraining"]

_NAMED = {"bert-base": (768, 12, 12), "bert-large": (1024, 24, 16)}
"""Width, blocks and heads."""


class BERTOutput(NamedTuple):
    """What BERT makes of texts.

    Example:
        >>> BERT(V=9, d=4, layers=1, heads=2)(torch.zeros(2, 3, dtype=torch.long)).pooled.shape
        torch.Size([2, 4])
    """

    hidden: Float[Tensor, " n T d"]
    """The vectors of tokens after the last block; zeros at padding."""
    pooled: Float[Tensor, " n d"]
    """A vector of each row, made of that of its first token."""

    __repr__ = one_line


class BERTPretraining(NamedTuple):
    """What BERT makes of texts, with the logits of both tasks of its pre-training.

    Example:
        >>> model = BERT(V=9, d=4, layers=1, heads=2, pretraining=True)
        >>> model(torch.zeros(2, 3, dtype=torch.long)).next_logits.shape
        torch.Size([2, 2])
    """

    hidden: Float[Tensor, " n T d"]
    """The vectors of tokens after the last block; zeros at padding."""
    pooled: Float[Tensor, " n d"]
    """A vector of each row, made of that of its first token."""
    logits: Float[Tensor, " *places V"]
    """Of the token at each place, zeros at padding; or at the places asked for, (m, V)."""
    next_logits: Float[Tensor, " n 2"]
    """Whether the second sentence follows the first, and whether it does not."""

    __repr__ = one_line


class BERT(Body):
    """A bidirectional encoder of texts.

    Parameters have the names and shapes of transformers' `BertModel`, with the heads those of
    `BertForPreTraining`, so that state dicts fit both ways; `load_weights` also takes files with or
    without `bert.`, with `gamma` and `beta`, and with heads that are not needed.

    Args:
        V: How many tokens the vocabulary has.
        d: How wide a token is.
        layers: How many blocks there are.
        heads: How many heads attend.
        context: How many tokens a row has at most.
        segments: How many kinds of segments there are.
        hidden: How wide the network of a position is within; `4 * d` by default.
        dropout: How many numbers are dropped while training: of embeddings and of what sublayers
            add.
        attention_dropout: How many weights of attention are dropped; as many as `dropout` by
            default.
        layer_norm_eps: What normalisations add to the variance.
        pretraining: Whether there are heads for both tasks of pre-training.
        checkpointing: Whether a backward pass computes each block again instead of keeping what is
            inside it: less memory, a third more time.

    Raises:
        ValueError: If a size is below 1, or heads do not divide the width.

    References:
        Devlin et al., BERT: pre-training of deep bidirectional transformers for language
        understanding, NAACL, 2019.

    Example:
        >>> model = BERT(V=65, d=12, layers=2, heads=3, context=8, pretraining=True).eval()
        >>> tokens = torch.randint(65, (2, 5))
        >>> found = model(tokens, lengths=torch.tensor([5, 3]))
        >>> found.hidden.shape, found.pooled.shape, found.logits.shape
        (torch.Size([2, 5, 12]), torch.Size([2, 12]), torch.Size([2, 5, 65]))
        >>> torch.allclose(found.hidden[1, :3], model(tokens[1:, :3]).hidden[0], atol=1e-5)
        True
    """

    def __init__(
        self,
        *,
        V: int = 30522,
        d: int = 768,
        layers: int = 12,
        heads: int = 12,
        context: int = 512,
        segments: int = 2,
        hidden: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        layer_norm_eps: float = 1e-12,
        pretraining: bool = False,
        checkpointing: bool = False,
    ):
        super().__init__()
        self.V, self.context = whole("V", V, low=1), whole("context", context, low=1)
        self.d, self.heads = whole("d", d, low=1), whole("heads", heads, low=1)
        if d % heads:
            raise ValueError(f"heads must divide the width d = {d}, got {heads}")
        most = dropout if attention_dropout is None else attention_dropout
        sizes = Sizes(
            V, d, heads, 4 * d if hidden is None else whole("hidden", hidden, low=1), context,
            whole("segments", segments, low=1), number("dropout", dropout, low=0, below=1),
            number("attention_dropout", most, low=0, below=1),
            number("layer_norm_eps", layer_norm_eps, low=0),
        )  # fmt: skip
        self.checkpointing, self.pretraining = checkpointing, pretraining
        body = Body() if pretraining else self
        body.embeddings = Embeddings(sizes)
        body.encoder = Stack([Block(sizes) for _ in range(whole("layers", layers, low=1))])
        body.pooler = Pooler(sizes)
        if pretraining:
            self.bert = body
            self.cls = Heads(sizes, body.embeddings.word_embeddings.weight)
        self.apply(_draw)

    @property
    def old_names(self) -> tuple[tuple[str, str], ...]:
        """How names in files become ours, for `load_weights`."""
        prefix = (r"^(?=(?:embeddings|encoder|pooler)\.)", "bert.")
        return (
            (r"\bLayerNorm\.gamma$", "LayerNorm.weight"),
            (r"\bLayerNorm\.beta$", "LayerNorm.bias"),
            prefix if self.pretraining else (r"^bert\.", ""),
        )

    @property
    def unneeded_names(self) -> tuple[str, ...]:
        """Which names in files hold nothing that this model needs, for `load_weights`."""
        heads = () if self.pretraining else (r"^cls\.",)
        return (r"embeddings\.position_ids$", *heads)

    @classmethod
    def named(cls, name: str, **options: Any) -> "BERT":
        """One of the published sizes, with random weights.

        Args:
            name: Which one: "bert-base" or "bert-large".
            options: Further arguments, as `pretraining=True`.

        Example:
            >>> with torch.device("meta"):
            ...     model = BERT.named("bert-base")
            >>> sum(p.numel() for p in model.parameters())
            109482240
        """
        d, layers, heads = _NAMED[choice("name", name, tuple(_NAMED))]
        return cls(**{"d": d, "layers": layers, "heads": heads, **options})

    def forward(
        self,
        tokens: Integer[Tensor, " n T"],
        segments: Integer[Tensor, " n T"] | None = None,
        *,
        lengths: Integer[Tensor, " n"] | None = None,
        where: Bool[Tensor, " n T"] | None = None,
    ) -> BERTOutput | BERTPretraining:
        """The vectors of all tokens, and one of each row; with heads also the logits.

        Args:
            tokens: The tokens, the first of each row [CLS].
            segments: To which sentence each belongs; all to the first by default.
            lengths: How many tokens of each row are real; padding, any token, comes after them.
                On the CPU they are known without waiting for another device.
            where: True at the places whose logits are wanted, those of hidden tokens, say; they
                are then (m, V), in the order of `tokens[where]`.
        """
        self._insist(tokens, segments, where)
        n, T = tokens.shape
        if lengths is not None:
            lengths = row_lengths("lengths", lengths, n, T)
        packing = Packing(n, T, lengths, tokens.device)
        body: Body = self.bert if self.pretraining else self
        x = body.embeddings(tokens, segments, packing)
        for block in body.encoder.layer:
            x = self._through(block, x, packing)
        hidden, pooled = packing.unpack(x), body.pooler(x[packing.first])
        if not self.pretraining:
            return BERTOutput(hidden, pooled)
        read = self.cls.predictions
        logits = packing.unpack(read(x)) if where is None else read(hidden[where])
        return BERTPretraining(hidden, pooled, logits, self.cls.seq_relationship(pooled))

    def _through(self, block: nn.Module, x: Tensor, packing: Packing) -> Tensor:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, packing, use_reentrant=False)  # pyright: ignore[reportReturnType]
        return block(x, packing)

    def _insist(self, tokens: Tensor, segments: Tensor | None, where: Tensor | None) -> None:
        insist_on_tokens(tokens, self.context)
        if segments is not None:
            insist_on_tokens(segments, name="segments")
            if segments.shape != tokens.shape:
                shapes = f"{tuple(tokens.shape)}, got {tuple(segments.shape)}"
                raise ValueError(f"segments must have the shape of tokens, {shapes}")
        if where is not None:
            if not self.pretraining:
                raise ValueError("where must be None without pretraining=True: there are no logits")
            known = isinstance(where, Tensor)
            if not known or where.dtype != torch.bool or where.shape != tokens.shape:
                given = f"{where.dtype} of shape {tuple(where.shape)}" if known else repr(where)
                raise ValueError(f"where must be boolean, of the shape of tokens, got {given}")


@torch.no_grad()
def _draw(module: nn.Module) -> None:
    """Normal numbers of deviation 0.02, and zeros."""
    if isinstance(module, nn.Linear | nn.Embedding) and not module.weight.is_meta:
        nn.init.normal_(module.weight, 0, 0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
