r"""GPT: a transformer that predicts each token from those before it.

$$z_0 = E[x] + P, \qquad z_{l+1} = \mathrm{block}_l(z_l), \qquad
\log p(x_{t+1} = v \mid x_{\le t}) = \mathrm{log\,softmax}_v\bigl(E\,\mathrm{LN}(z_L)_t\bigr) ,$$

with learned positions $P$, and the table $E$ of tokens used at both ends. Causal attention makes
the predictions at all positions one parallel pass, and the chain rule makes them a distribution
over sequences. With a cache a token costs one step; rows of unequal length each continue as they
would alone, up to rounding. The claim is `gpt`.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vademecum.arguments import choice, number, row_lengths, whole
from vademecum.attention import KeyValueCache
from vademecum.language.networks._gpt_blocks import Body, CausalBlock, Map, Sizes
from vademecum.language.networks._reading import Reading
from vademecum.language.networks._tokens import insist_on_tokens, looked_up

__all__ = ["GPT"]

_NAMED = {
    "gpt2": (768, 12, 12),
    "gpt2-medium": (1024, 24, 16),
    "gpt2-large": (1280, 36, 20),
    "gpt2-xl": (1600, 48, 25),
}
"""Width, blocks and heads."""


class GPT(nn.Module):
    """A causal language model, from tokens to logits of the next ones.

    Parameters have the names and shapes of transformers' `GPT2LMHeadModel`, so that state dicts fit
    both ways; `load_weights` also takes the published files, which leave out `transformer.` and the
    head and hold masks.

    Args:
        V: How many tokens the vocabulary has.
        d: How wide a token is.
        layers: How many blocks there are.
        heads: How many heads attend.
        context: How many tokens a row has at most.
        hidden: How wide the network of a position is within; `4 * d` by default.
        dropout: How many numbers are dropped while training: of embeddings and of what sublayers
            add.
        attention_dropout: How many weights of attention are dropped; as many as `dropout` by
            default.
        layer_norm_eps: What normalisations add to the variance.
        checkpointing: Whether a backward pass computes each block again instead of keeping what is
            inside it: less memory, a third more time.

    Raises:
        ValueError: If a size is below 1, or heads do not divide the width.

    References:
        Radford et al., Language models are unsupervised multitask learners, 2019.

    Example:
        >>> model = GPT(V=65, d=12, layers=2, heads=3, context=8).eval()
        >>> tokens = torch.randint(65, (2, 5))
        >>> model(tokens).shape
        torch.Size([2, 5, 65])
        >>> cache = model.make_cache(2, 8)
        >>> with torch.no_grad():
        ...     steps = [model(tokens[:, t : t + 1], cache=cache) for t in range(5)]
        >>> torch.allclose(torch.cat(steps, 1), model(tokens), atol=1e-5)
        True
    """

    old_names = ((r"^(?=(?:wte|wpe|h|ln_f)\.)", "transformer."),)
    unneeded_names = (r"\.attn\.(?:masked_)?bias$",)  # causal masks, which hold no weights

    def __init__(
        self,
        *,
        V: int = 50257,
        d: int = 768,
        layers: int = 12,
        heads: int = 12,
        context: int = 1024,
        hidden: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        layer_norm_eps: float = 1e-5,
        checkpointing: bool = False,
    ):
        super().__init__()
        self.V, self.context = whole("V", V, low=1), whole("context", context, low=1)
        self.d, self.heads = whole("d", d, low=1), whole("heads", heads, low=1)
        if d % heads:
            raise ValueError(f"heads must divide the width d = {d}, got {heads}")
        hidden = 4 * d if hidden is None else whole("hidden", hidden, low=1)
        self.dropout = number("dropout", dropout, low=0, below=1)
        most = dropout if attention_dropout is None else attention_dropout
        self.attention_dropout = number("attention_dropout", most, low=0, below=1)
        self.checkpointing = checkpointing
        eps = number("layer_norm_eps", layer_norm_eps, low=0)
        sizes = Sizes(d, heads, hidden, dropout, eps)
        blocks = [CausalBlock(sizes) for _ in range(whole("layers", layers, low=1))]
        self.transformer = Body(V, context, blocks, nn.LayerNorm(d, eps))
        self.lm_head = nn.Linear(d, V, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self._draw()

    @classmethod
    def named(cls, name: str, **options: Any) -> "GPT":
        """One of the published sizes, with random weights.

        Args:
            name: Which one: "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl".
            options: Further arguments, as `checkpointing=True`.

        Example:
            >>> with torch.device("meta"):
            ...     model = GPT.named("gpt2")
            >>> sum(p.numel() for p in model.parameters())
            124439808
        """
        d, layers, heads = _NAMED[choice("name", name, tuple(_NAMED))]
        return cls(**{"d": d, "layers": layers, "heads": heads, **options})

    def forward(
        self,
        tokens: Integer[Tensor, " n T"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
        cache: Sequence[KeyValueCache] | None = None,
        last: bool = False,
    ) -> Float[Tensor, " n S V"]:
        """The logits of the token after each, S = T of them; those at padding mean nothing.

        Args:
            tokens: The tokens.
            lengths: How many tokens of each row are real; padding, any token, comes after them.
            cache: What earlier tokens left, as `make_cache` makes it; these join them.
            last: Whether only the logits after the last real token of each row are wanted:
                (n, 1, V).
        """
        x = self.embed(tokens, lengths=lengths, cache=cache)
        if last:
            x = x[:, -1:] if lengths is None else _at(x, lengths)
        return self.lm_head(x)

    def embed(
        self,
        tokens: Integer[Tensor, " n T"],
        *,
        lengths: Integer[Tensor, " n"] | None = None,
        cache: Sequence[KeyValueCache] | None = None,
    ) -> Float[Tensor, " n T d"]:
        """What the head reads: the normalised outputs of the last block.

        Args:
            tokens: The tokens.
            lengths: How many tokens of each row are real.
            cache: What earlier tokens left.
        """
        insist_on_tokens(tokens, self.context)
        self._insist_on_caches(cache, len(tokens))
        if lengths is not None:
            n, T = tokens.shape
            lengths = row_lengths("lengths", lengths, n, T, tokens.device)
        dropout = self.attention_dropout if self.training else 0.0
        reading = Reading(tokens.shape[1], lengths, cache, dropout)
        x = looked_up("tokens", tokens, self.transformer.wte.weight)
        x = x + reading.positions(self.transformer.wpe.weight)
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        again = self.checkpointing and cache is None and torch.is_grad_enabled()
        for layer, block in enumerate(self.transformer.h):
            if again:
                x = checkpoint(block, x, layer, reading, use_reentrant=False)
            else:
                x = block(x, layer, reading)
        return self.transformer.ln_f(x)

    def make_cache(self, n: int, length: int, *, all_slots: bool = False) -> list[KeyValueCache]:
        """Memory for what n rows of up to `length` tokens leave, a cache for each block.

        Its numbers are those of the model; where `torch.autocast` is on, those that it casts to.

        Args:
            n: How many rows there are.
            length: How many tokens a row holds at most; no more than the context. With `all_slots`
                on CUDA devices, kernels copy less where it is a multiple of 16.
            all_slots: Whether no shape changes as rows grow, as CUDA graphs need it.
        """
        whole("length", length, low=1, high=self.context)
        like = self.transformer.wte.weight
        kind, dtype = like.device.type, like.dtype
        if torch.is_autocast_enabled(kind) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(kind)
        return [
            KeyValueCache(
                n, length, kv_heads=self.heads, d_k=self.d // self.heads, all_slots=all_slots,
                dtype=dtype, device=like.device,
            )
            for _ in range(len(self.transformer.h))
        ]  # fmt: skip

    def _insist_on_caches(self, cache: Sequence[KeyValueCache] | None, n: int) -> None:
        if cache is None:
            return
        count = len(self.transformer.h)
        if isinstance(cache, KeyValueCache) or len(cache) != count:
            raise ValueError(f"cache must hold {count} caches, one for each block, got {cache}")
        if cache[0].capacity > self.context or len(cache[0].lengths) != n:
            raise ValueError(
                f"cache must hold at most {self.context} tokens in {n} rows, got {cache[0]}"
            )

    @torch.no_grad()
    def _draw(self) -> None:
        """Normal numbers of deviation 0.02, smaller where many blocks add up."""
        for name, module in self.named_modules():
            if isinstance(module, Map | nn.Embedding) and not module.weight.is_meta:
                added = name.endswith("c_proj")
                layers = len(self.transformer.h)
                nn.init.normal_(module.weight, 0, 0.02 / math.sqrt(2 * layers) if added else 0.02)

    def extra_repr(self) -> str:
        """What the parts do not tell."""
        again = ", checkpointing=True" if self.checkpointing else ""
        rates = f"dropout={self.dropout}, attention_dropout={self.attention_dropout}"
        return f"heads={self.heads}, {rates}{again}"


def _at(x: Tensor, lengths: Tensor) -> Tensor:
    """The vectors of the last real token of each row, or of the first where none is: (n, 1, d)."""
    places = (lengths.long().to(x.device) - 1).clamp(0, x.shape[1] - 1)
    return x.gather(1, places[:, None, None].expand(-1, 1, x.shape[2]))
