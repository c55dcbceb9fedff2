r"""The transformer: an encoder of the source, and a decoder of the target that looks at it.

Both work on vectors: an embedding of tokens, positions added to it and a map to logits stand before
and after, as in the claim `transformer`. With the usual sizes it has 44,140,544 parameters, and it
computes what `nn.Transformer` does with the same weights.
"""

from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.attention.transformer._blocks import Activation
from vademecum.attention.transformer.decoder import TransformerDecoder
from vademecum.attention.transformer.encoder import TransformerEncoder

__all__ = ["Transformer"]


class Transformer(nn.Module):
    """An encoder and a decoder.

    Parameters have the names and shapes of `nn.Transformer` and its initial law; its state dicts
    load as they are. The decoder is causal without being told.

    Args:
        d: How wide a token is.
        heads: How many heads attention has.
        depth: How many blocks the encoder and the decoder have; a pair where they differ.
        hidden: How wide the network of a position is within; `4 * d` by default.
        dropout: How many numbers are dropped while training.
        activation: What is between the two maps of a position's network.
        norm_first: Whether normalisations come before the sublayers, or after their sums.
        layer_norm_eps: What normalisations add to the variance.
        bias: Whether linear maps and normalisations have constants.

    References:
        Vaswani et al., Attention is all you need, 2017.

    Example:
        >>> with torch.device("meta"):
        ...     net = Transformer()
        >>> sum(p.numel() for p in net.parameters())
        44140544
        >>> net = Transformer(16, 4, depth=(1, 2))
        >>> source, target = torch.randn(3, 7, 16), torch.randn(3, 5, 16)
        >>> net(source, target, source_lengths=torch.tensor([7, 1, 4])).shape
        torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        d: int = 512,
        heads: int = 8,
        *,
        depth: int | tuple[int, int] = 6,
        hidden: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "relu",
        norm_first: bool = False,
        layer_norm_eps: float = 1e-5,
        bias: bool = True,
    ):
        super().__init__()
        both = depth if isinstance(depth, tuple) else (depth, depth)
        if len(both) != 2:
            raise ValueError(f"depth must be a number of blocks or a pair of them, got {depth}")
        sizes = {
            "hidden": hidden, "dropout": dropout, "activation": activation,
            "norm_first": norm_first, "layer_norm_eps": layer_norm_eps, "bias": bias,
        }  # fmt: skip
        self.encoder = TransformerEncoder(d, heads, depth=both[0], **sizes)
        self.decoder = TransformerDecoder(d, heads, depth=both[1], **sizes)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.xavier_uniform_(p)

    def forward(
        self,
        source: Float[Tensor, " n S d"],
        target: Float[Tensor, " n T d"],
        *,
        source_lengths: Integer[Tensor, " n"] | None = None,
        target_lengths: Integer[Tensor, " n"] | None = None,
        causal: bool = True,
    ) -> Float[Tensor, " n T d"]:
        """The target's tokens after the decoder, which has seen the source.

        To generate, encode once and step with caches:
        `cache = net.decoder.cache(net.encoder(source), capacity)`.

        Args:
            source: What is read.
            target: What is written, shifted by one where its next token is to be told.
            source_lengths: How many tokens of each source are real; padding comes after them.
            target_lengths: How many tokens of each target are real.
            causal: Whether a token of the target looks at no later one.
        """
        read = self.encoder(source, lengths=source_lengths)
        return self.decoder(
            target, read, lengths=target_lengths, causal=causal, source_lengths=source_lengths
        )
