r"""The encoder of a transformer: a stack of self-attention and networks of each position.

$$x \leftarrow \mathrm{norm}(x + \mathrm{attention}(x)), \qquad
x \leftarrow \mathrm{norm}(x + F(x))$$

in every block, or with the normalisations before the sublayers. With `causal=True` it is the stack
of a decoder without an encoder, as in GPT, and takes caches. It computes what torch's stack does,
in both modes by the same operations, and returns as many positions as it was given, also where some
are padding in every row. The claims are `transformer` and `position_wise_ffn`.
"""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.attention.caches import KeyValueCache
from vademecum.attention.transformer._blocks import Activation, EncoderBlock, Sizes
from vademecum.attention.transformer._stacks import caches_for, insist_on_caches

__all__ = ["TransformerEncoder"]


class TransformerEncoder(nn.Module):
    """A stack of transformer blocks over one sequence.

    Parameters have the names and shapes of `nn.TransformerEncoder`, whose state dicts load as they
    are; the blocks are drawn one by one, not as copies of the first.

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
        rotary: The base of rotary positions, usually 10000; None for none.
        layer_norm_eps: What normalisations add to the variance.
        bias: Whether linear maps and normalisations have constants.

    Raises:
        ValueError: If a size is below 1 or does not divide where it must.

    Example:
        >>> encoder = TransformerEncoder(16, 4, depth=2)
        >>> x = torch.randn(3, 5, 16)
        >>> encoder(x, lengths=torch.tensor([5, 2, 4])).shape
        torch.Size([3, 5, 16])
        >>> layer = nn.TransformerEncoderLayer(16, 4, 64, batch_first=True)
        >>> peer = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        >>> encoder.load_state_dict(peer.state_dict())
        <All keys matched successfully>
        >>> torch.allclose(encoder.eval()(x), peer.eval()(x), atol=1e-5)
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
        rotary: float | None = None,
        layer_norm_eps: float = 1e-5,
        bias: bool = True,
    ):
        super().__init__()
        hidden = 4 * whole("d", d, low=1) if hidden is None else hidden
        sizes = Sizes(
            d, heads, kv_heads, hidden, dropout, activation, norm_first, layer_norm_eps, bias,
            rotary,
        ).checked()  # fmt: skip
        blocks = [EncoderBlock(sizes) for _ in range(whole("depth", depth, low=1))]
        self.layers = nn.ModuleList(blocks)
        self.norm = sizes.norm() if final_norm else None

    def forward(
        self,
        x: Float[Tensor, " n T d"],
        *,
        mask: Bool[Tensor, " ..."] | None = None,
        lengths: Integer[Tensor, " n"] | None = None,
        causal: bool = False,
        positions: Shaped[Tensor, " *rows T"] | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, " n T d"]:
        """The tokens after all blocks; what comes out at padding means nothing.

        Args:
            x: The tokens.
            mask: True where attention is allowed: (T, T), (n, T, T) or (n, heads, T, T), any of
                which may be 1; padding that a mask (n, T) tells is `mask[:, None]`.
            lengths: How many tokens of each row are real; padding comes after them.
            causal: Whether a token looks at no later one.
            positions: Those of the tokens for rotary positions; 0, 1, ... by default.
            cache: What earlier tokens left, a cache for each block, as `cache` makes them.
        """
        insist_on_caches(cache, len(self.layers))
        how = {"mask": mask, "lengths": lengths, "causal": causal, "positions": positions}
        for i, block in enumerate(self.layers):
            x = block(x, cache=None if cache is None else cache[i], **how)
        return x if self.norm is None else self.norm(x)

    def cache(self, n: int, capacity: int, *, all_slots: bool = False) -> list[KeyValueCache]:
        """Memory for what n rows of up to `capacity` tokens leave, a cache for each block.

        Args:
            n: How many rows there are.
            capacity: How many tokens a row holds at most.
            all_slots: Whether no shape changes as rows grow, as CUDA graphs need it.
        """
        return caches_for(self.layers, n, capacity, all_slots=all_slots)
