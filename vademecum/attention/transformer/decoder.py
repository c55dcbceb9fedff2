r"""The decoder of a transformer: tokens look at earlier ones, and at a source.

$$x \leftarrow \mathrm{norm}(x + \mathrm{causal\ attention}(x)), \quad
x \leftarrow \mathrm{norm}(x + \mathrm{attention}(x, z)), \quad
x \leftarrow \mathrm{norm}(x + F(x))$$

in every block, where $z$ is what the encoder made of the source; or with the normalisations before
the sublayers. Step by step, caches keep the keys and values of earlier tokens and of the source,
and give what all tokens at once give, up to rounding. The claim is `transformer`.
"""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.attention.caches import KeyValueCache
from vademecum.attention.transformer._blocks import Activation, DecoderBlock, Sizes
from vademecum.attention.transformer._stacks import (
    caches_for,
    insist_on_caches,
    sources_for,
)

__all__ = ["TransformerDecoder"]


class TransformerDecoder(nn.Module):
    """A stack of transformer blocks over a sequence and a source.

    Parameters have the names and shapes of `nn.TransformerDecoder`, whose state dicts load as they
    are. It is causal unless told otherwise.

    Args:
        d: How wide a token is.
        heads: How many heads attention has.
        depth: How many blocks there are.
        hidden: How wide the network of a position is within; `4 * d` by default.
        dropout: How many numbers are dropped while training: weights of attention, hidden units,
            and what sublayers add.
        activation: What is between the two maps of a position's network.
        norm_first: Whether normalisations come before the sublayers, or after their sums.
        final_norm: Whether the last output is normalised (once more).
        kv_heads: How many heads keys and values have; as many as `heads` by default.
        layer_norm_eps: What normalisations add to the variance.
        bias: Whether linear maps and normalisations have constants.

    Raises:
        ValueError: If a size is below 1 or does not divide where it must.

    Example:
        >>> decoder = TransformerDecoder(16, 4, depth=2).eval()
        >>> x, source = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
        >>> cache = decoder.cache(source, 5)
        >>> with torch.no_grad():
        ...     steps = [decoder(x[:, t : t + 1], cache=cache) for t in range(5)]
        >>> torch.allclose(torch.cat(steps, 1), decoder(x, source), atol=1e-5)
        True
    """

    def __init__(
        self,
        d: int,
        heads: int,
        *,
        depth: int = 6,
        hidden: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "relu",
        norm_first: bool = False,
        final_norm: bool = True,
        kv_heads: int | None = None,
        layer_norm_eps: float = 1e-5,
        bias: bool = True,
    ):
        super().__init__()
        hidden = 4 * whole("d", d, low=1) if hidden is None else hidden
        sizes = Sizes(
            d, heads, kv_heads, hidden, dropout, activation, norm_first, layer_norm_eps, bias
        ).checked()
        blocks = [DecoderBlock(sizes) for _ in range(whole("depth", depth, low=1))]
        self.layers = nn.ModuleList(blocks)
        self.norm = sizes.norm() if final_norm else None

    def forward(
        self,
        x: Float[Tensor, " n T d"],
        source: Float[Tensor, " n S d"] | None = None,
        *,
        mask: Bool[Tensor, " ..."] | None = None,
        lengths: Integer[Tensor, " n"] | None = None,
        causal: bool = True,
        source_mask: Bool[Tensor, " ..."] | None = None,
        source_lengths: Integer[Tensor, " n"] | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, " n T d"]:
        """The tokens after all blocks; what comes out at padding means nothing.

        Args:
            x: The tokens.
            source: What they look at, as an encoder made it; left out with caches, which hold it.
            mask: True where tokens may look at tokens: (T, T), (n, T, T) or (n, heads, T, T).
            lengths: How many tokens of each row are real; padding comes after them.
            causal: Whether a token looks at no later one.
            source_mask: True where tokens may look at the source: (T, S), (n, T, S) or with heads.
            source_lengths: How many tokens of the source are real in each row; with caches these
                know it.
            cache: What earlier tokens left, two caches for each block, as `cache` makes them.
        """
        insist_on_caches(cache, 2 * len(self.layers))
        if (source is None) == (cache is None):
            raise ValueError("either source or a cache that holds it must be given, and not both")
        how = {"mask": mask, "lengths": lengths, "causal": causal}
        across = {"keys": source, "mask": source_mask, "lengths": source_lengths}
        for i, block in enumerate(self.layers):
            own, theirs = (None, None) if cache is None else (cache[2 * i], cache[2 * i + 1])
            x = block(x, how | {"cache": own}, across | {"cache": theirs})
        return x if self.norm is None else self.norm(x)

    def cache(
        self,
        source: Float[Tensor, " n S d"],
        capacity: int,
        *,
        lengths: Integer[Tensor, " n"] | None = None,
        all_slots: bool = False,
    ) -> list[KeyValueCache]:
        """Two caches for each block: for the tokens to come, and of the source.

        Args:
            source: What the tokens look at; its keys and values are computed here, once.
            capacity: How many tokens a row holds at most.
            lengths: How many tokens of the source are real in each row.
            all_slots: Whether no shape changes as rows grow, as CUDA graphs need it.
        """
        own = caches_for(self.layers, len(source), capacity, all_slots=all_slots)
        theirs = sources_for(self.layers, source, lengths)
        return [cache for pair in zip(own, theirs, strict=True) for cache in pair]
