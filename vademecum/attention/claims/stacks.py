"""Transformers: networks of single positions, encoder and decoder."""

from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.attention import Transformer, TransformerEncoder, sinusoidal_encoding
from vademecum.attention.claims._by_hand import moved, with_normal_weights
from vademecum.claims import claim, equals


class Flattened(nn.Module):
    """A dense layer on the whole sequence."""

    def __init__(self, T: int, d: int):
        super().__init__()
        self.linear = nn.Linear(T * d, T * d)

    def forward(self, x: Tensor) -> Tensor:
        """All positions from all positions."""
        return self.linear(x.flatten(1)).view_as(x)


@claim(
    by="identity",
    sources=("B-403", "C-162"),
    budget=0.4,
    short=r"F(Y) = (F(y_1), \dots, F(y_T)),\quad F(y) = W_2\, \sigma(W_1 y + b_1) + b_2",
)
def position_wise_ffn(network: Literal["each position", "the sequence"] = "each position"):
    r"""After mixing, the same network is applied to each position separately.

    $F(Y) = (F(y_1), \dots, F(y_T))$ with $F(y) = W_2\, \sigma(W_1 y + b_1) + b_2$: it commutes with
    permutations of positions, and changing one position changes no other output. It is a
    convolution with kernels of size 1. Tokens interact in the attention layers only: with their
    last maps set to zero, no output of an encoder changes with another token.

    The network is that of a block of `TransformerEncoder`, with ReLU; all positions of 6 and of 4
    are changed one by one. Rows at the edge of a matrix product may be rounded in another way, so
    permuted ones are compared up to rounding.

    Knobs:
        network: What the network is applied to.
    """
    for T, d, hidden in ((6, 4, 27), (4, 6, 25)):
        encoder = with_normal_weights(TransformerEncoder(d, 2, depth=2, hidden=hidden))
        block, at = encoder.layers[0], {"T": T, "d": d}
        flat = with_normal_weights(Flattened(T, d))
        net = block.feed_forward if network == "each position" else flat
        assert callable(net)
        x, state = torch.randn(1, T, d), block.state_dict()
        maps = [state[f"linear{i}.{name}"] for i in (1, 2) for name in ("weight", "bias")]
        a, b, c, e = maps
        one_by_one = torch.stack([c @ (a @ y + b).clamp(min=0) + e for y in x[0]])
        yield equals("row by row", net(x)[0], one_by_one, tol=1e-12, **at)
        inner = F.conv1d(x.mT, a[:, :, None], b).relu()
        yield equals("as a convolution", net(x), F.conv1d(inner, c[:, :, None], e).mT,
                     tol=1e-12, **at)  # fmt: skip
        alone = torch.eye(T, dtype=torch.bool)
        yield equals("outputs that change with a position", moved(net, x), alone, **at)
        order = torch.randperm(T)
        yield equals("permuted positions", net(x[:, order]), net(x)[:, order], tol=1e-12, **at)
        seen = moved(encoder, x)
        yield equals("outputs of an encoder that change with a token", int(seen.sum()), T * T, **at)
        for name, p in encoder.named_parameters():
            if "out_proj" in name:
                p.zero_()
        silent = moved(encoder, x)
        yield equals("the same without attention", silent, alone, **at)


position_wise_ffn.foil("a dense layer on the whole sequence", network="the sequence",
                       refuted_by="outputs that change with a position")  # fmt: skip


class Translator(nn.Module):
    """A transformer over symbols: tables, positions, encoder and decoder, logits."""

    def __init__(self, source: int, target: int, d: int):
        super().__init__()
        self.source, self.target = nn.Embedding(source, d), nn.Embedding(target + 1, d)
        self.net = Transformer(d, 2, depth=(2, 2), hidden=2 * d)
        self.logits = nn.Linear(d, target)

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        """Learned vectors with positions added."""
        return table(tokens) + sinusoidal_encoding(tokens.shape[1], table.embedding_dim)

    def decode(self, z: Tensor, target: Tensor, *, causal: bool) -> Tensor:
        """Logits of what follows each token of the target, given what the encoder made."""
        return self.logits(self.net.decoder(self.embed(self.target, target), z, causal=causal))


def parameters_by_sum(d: int, hidden: int, depth: int) -> int:
    """Four square maps an attention, two maps a network, two numbers a normalised feature."""
    one, network, norm = 4 * (d * d + d), 2 * d * hidden + hidden + d, 2 * d
    encoder, decoder = one + network + 2 * norm, 2 * one + network + 3 * norm
    return depth * (encoder + decoder) + 2 * norm


def torch_s(net: Transformer, d: int) -> nn.Transformer:
    """The same network of torch's."""
    theirs = nn.Transformer(d, 2, 2, 2, 2 * d, batch_first=True)
    theirs.load_state_dict(net.state_dict())
    return theirs.eval().requires_grad_(False)


@claim(
    by="identity",
    sources=("B-397", "B-402", "B-403"),
    budget=1.0,
    short=r"p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x):"
    r"\ \text{encoder unmasked, decoder causal, attention across}",
)
def transformer(decoder_masked: bool = True, encoder_masked: bool = False):
    r"""A transformer: an encoder that sees all, a decoder that sees the past and the encoder.

    Tokens are mapped to learned vectors and positions are added; encoder blocks apply
    self-attention and a position-wise network, decoder blocks masked self-attention,
    cross-attention to the encoder output and a position-wise network. Attention thus has three
    uses: queries and keys come from the same sequence in the first two and from different ones in
    the third, and only the decoder's self-attention is masked. So logits at $t$ depend on all
    source tokens and on target tokens up to $t$, and the products of the next-token probabilities
    of all targets of a length sum to one.

    A random model with 2 + 2 blocks, symbol by symbol; step by step, with the keys and values of
    earlier tokens kept, its logits are the same. With the same weights it gives the numbers of
    `nn.Transformer`, and with the usual sizes it has 44,140,544 parameters, as a closed sum says.

    Knobs:
        decoder_masked: Whether the decoder's self-attention is causal.
        encoder_masked: Whether the encoder's is.
    """
    net = with_normal_weights(Translator(5, 3, 8))
    x, y = torch.randint(5, (1, 4)), torch.cat([torch.full((1, 1), 3), torch.randint(3, (1, 3))], 1)
    table, one_hot = net.source.weight, F.one_hot(x, 5).double()
    yield equals("embedding", net.source(x), one_hot @ table, tol=0.0)
    source, target = net.embed(net.source, x), net.embed(net.target, y)

    def encode(z: Tensor) -> Tensor:
        return net.net.encoder(z, causal=encoder_masked)

    def decode(z: Tensor) -> Tensor:
        return net.logits(net.net.decoder(z, encode(source), causal=decoder_masked))

    full, later = torch.ones(4, 4, dtype=torch.bool), torch.ones(4, 4, dtype=torch.bool).triu()
    yield equals("encoder outputs that change with a source token", moved(encode, source), full)
    yield equals("logits that change with a target token", moved(decode, target), later)
    across = moved(lambda z: net.logits(net.net.decoder(target, encode(z))), source)
    yield equals("logits that change with a source token", across, full)
    z = encode(source)
    for length in (2, 3):
        all_targets = torch.tensor(list(product(range(3), repeat=length)))
        n = len(all_targets)
        given = torch.cat([torch.full((n, 1), 3), all_targets[:, :-1]], 1)
        z_n = z.expand(n, -1, -1)
        logits = net.decode(z_n, given, causal=decoder_masked)
        p = logits.softmax(2).gather(2, all_targets[:, :, None])[:, :, 0].prod(1)
        yield equals("probabilities of all targets together", p.sum(), 1.0, tol=1e-12, T=length)
    caches = net.net.decoder.cache(z, 4)
    steps = [net.net.decoder(target[:, t : t + 1], cache=caches) for t in range(4)]
    stepped = net.logits(torch.cat(steps, 1))
    yield equals("logits step by step", stepped, decode(target), tol=1e-11)
    ours = net.net(source, target)
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)
    yield equals("output of torch's", ours, torch_s(net.net, 8)(source, target, tgt_mask=hidden),
                 tol=1e-11)  # fmt: skip
    with torch.device("meta"):
        usual = Transformer()
    size = sum(p.numel() for p in usual.parameters())
    yield equals("parameters", size, parameters_by_sum(512, 2048, 6))
    yield equals("parameters, as stated", size, 44_140_544)


transformer.foil("a decoder without its mask", decoder_masked=False)
transformer.foil("a mask in the encoder", encoder_masked=True)
