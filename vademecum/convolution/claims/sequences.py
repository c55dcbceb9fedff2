"""Convolutions over time: sentences, phrases and deep residual stacks."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from scipy.signal import correlate2d
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.convolution import CausalConv1d, TextCNN


@claim(
    by="identity",
    sources=("D-251", "D-252"),
    short=r"(N, L, C) \to (N, L - K + 1, F),\quad"
    r" y_{t f} = \textstyle\sum_{k, c} w_{f c k}\, x_{t + k,\, c}",
)
def temporal_conv(
    layout: Literal["NCL", "NLC"] = "NCL",
    length: Callable[[int, int], int] = lambda n, k: n - k + 1,
):
    r"""A temporal convolution slides along time only, and sums over all channels.

    For a sequence stored as (batch, length, channels) it equals a 2-d convolution whose kernel
    spans the whole channel axis. The output length is $L - K + 1$ without padding. (PyTorch wants
    batch, channels, length.) A causal one has $K - 1$ outputs more, at the beginning.

    Knobs:
        layout: The order of axes in which a square sequence is given to torch's layer.
        length: The length of the output, from $L$ and $K$.
    """
    for n, L, channels, k in ((2, 9, 5, 3), (3, 6, 6, 2), (2, 4, 4, 4)):
        x, layer = torch.randn(n, L, channels), nn.Conv1d(channels, 4, k)
        assert layer.bias is not None
        square = channels == L
        y = layer(x if square and layout == "NLC" else x.mT).mT
        yield equals("length of the output", y.shape[1], length(L, k), L=L, K=k)
        kernels = layer.weight.detach().mT.numpy()
        by_hand = (
            torch.stack(
                [
                    torch.stack(
                        [torch.from_numpy(correlate2d(one, w, "valid"))[:, 0] for w in kernels]
                    )
                    for one in x.numpy()
                ]
            ).mT
            + layer.bias
        )
        yield equals("values against a 2-d kernel over all channels", y, by_hand, tol=1e-12,
                     L=L, C=channels, K=k)  # fmt: skip
        causal = CausalConv1d(channels, 4, k)
        causal.load_state_dict(layer.state_dict())
        yield equals("causal convolution from its time $K - 1$ on", causal(x.mT).mT[:, k - 1 :],
                     by_hand, tol=1e-12, L=L, K=k)  # fmt: skip


temporal_conv.foil("axes the other way round, which only a square shape allows", layout="NLC")
temporal_conv.foil("$L - K$ outputs", length=lambda n, k: n - k)


def pooled(word: str, letters: str, sequences: Tensor) -> Tensor:
    """The strongest answer of a filter that counts agreements with a word, for each sequence."""
    net = TextCNN(len(letters), dimension=len(letters), sizes=(len(word),), width=1,
                  embeddings=torch.eye(len(letters)), freeze=True)  # fmt: skip
    (conv,) = (m for m in net.modules() if isinstance(m, nn.Conv1d))
    assert conv.bias is not None
    with torch.no_grad():
        conv.weight.zero_()
        conv.bias.zero_()
        for k, letter in enumerate(word):
            conv.weight[0, letters.index(letter), k] = 1
        return net.features(sequences)[:, 0]


@claim(
    by="exhaustion",
    sources=("D-253",),
    short=r"\max_t \sum_k [x_{t + k} = w_k] = K \iff w\ \text{occurs in}\ x",
)
def ngram_detection(pieces: Callable[[str], tuple[str, ...]] = lambda word: (word,), size: int = 1):
    r"""A filter of width $K$ with max-over-time pooling detects a $K$-gram exactly.

    Over one-hot embeddings, with weight 1 on the required token at each offset, the pooled value
    reaches $K$ if and only if the $K$-gram occurs: tried on all $3^6$ sequences of length 6 over
    three tokens, for words of two, three and four. Width 1 with pooling is a bag-of-words model,
    invariant to permuting the tokens, and cannot.

    Knobs:
        pieces: What is looked for in place of a word; all of it must be found.
        size: The width of the filters that are said to ignore the order.
    """
    letters = "abc"
    words = ["".join(letter) for letter in itertools.product(letters, repeat=6)]
    x = torch.tensor([[letters.index(letter) for letter in word] for word in words])
    for word in ("abc", "aba", "cb", "aabb"):
        answers = [pooled(piece, letters, x) >= len(piece) - 0.5 for piece in pieces(word)]
        found = torch.stack(answers).all(0)
        wanted = torch.tensor([word in sequence for sequence in words])
        wrong = [sequence for sequence, bad in zip(words, found != wanted, strict=True) if bad]
        yield equals("sequences judged wrongly", len(wrong), 0, word=word,
                     such_as=wrong[0] if wrong else "")  # fmt: skip
    net = TextCNN(3, dimension=4, sizes=(size,), width=8).eval()
    orders = torch.tensor([list(p) for p in itertools.permutations((0, 0, 1, 1, 2))])
    with torch.no_grad():
        features = net.features(orders)
    yield equals("features of a permuted sequence", features, features[:1].expand_as(features))


ngram_detection.foil(
    "the word's bigrams, as in aaabbc without abc", pieces=lambda w: (w[:-1], w[1:]),
    refuted_by="sequences judged wrongly",
)  # fmt: skip
ngram_detection.foil("filters of two words ignore the order", size=2)


@claim(
    by="identity",
    sources=("D-255", "D-256", "D-257"),
    short=r"h_f = \max_t \big(w_f \cdot E_{t : t + K} + b_f\big),\quad K \in \{2, 3, 4\}",
)
def textcnn(
    margin: int = 3,
    order: Callable[[Tensor], Tensor] = lambda phrase: phrase,
    features: Callable[[TextCNN, Tensor], Tensor] = TextCNN.features,
) -> Iterator[Evidence]:
    r"""A convolutional classifier of sentences finds phrases wherever they stand.

    A sentence is the (length $\times$ dimension) matrix of its (often pre-trained and frozen) word
    embeddings; parallel filters over 2, 3 and 4 words with max-over-time pooling detect phrases
    independently of their position, and the pooled features of all widths are concatenated for a
    linear classifier. A phrase of four words that is moved within constant padding leaves the
    features as they are while 3 padding tokens remain on each side. A frozen table has no gradient
    and is not changed by training.

    Knobs:
        margin: How many padding tokens remain on each side of the phrase.
        order: What is done to the words of the phrase that is moved.
        features: What is said to be independent of the position.
    """
    table = torch.randn(11, 5)
    net = TextCNN(11, 3, dimension=5, width=40, embeddings=table, freeze=True, dropout=0.0)
    x = torch.randint(11, (4, 9))
    one_hot = torch.nn.functional.one_hot(x, 11).to(table)
    yield equals("lookup against one-hot times table", net.embedding(x), one_hot @ table, tol=0.0)
    yield equals("number of features", net.features(x).shape[1], 3 * 40)
    by_hand = torch.cat([strongest(net.embedding(x), conv) for conv in convolutions(net)], 1)
    yield equals("features against windows one by one", net.features(x), by_hand, tol=1e-12)
    phrase, length = torch.tensor([1, 2, 3, 4]), 16
    wanted = features(net, placed(phrase, 6, length))
    for start in (margin, length - 4 - margin):
        moved = features(net, placed(order(phrase), start, length))
        yield equals("features of a phrase that moved", moved, wanted, tol=1e-12, start=start)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 2, 0])).backward()
    sgd.step()
    yield equals("frozen table after a step", net.embedding.weight, table, tol=0.0)


textcnn.foil("no padding left before it", margin=0)
textcnn.foil("the words of the phrase in reverse", order=lambda phrase: phrase.flip(0))


def flattened(net: TextCNN, x: Tensor) -> Tensor:
    """All answers of the filters, place by place, with no pooling."""
    words = net.embedding(x).mT
    return torch.cat([conv(words).relu().flatten(1) for conv in convolutions(net)], 1)


textcnn.foil("features without pooling", features=flattened)


def strongest(words: Tensor, conv: nn.Conv1d) -> Tensor:
    """The largest answer of each filter over the windows of a sentence, one by one, rectified."""
    assert conv.bias is not None
    windows = words.unfold(1, conv.kernel_size[0], 1).unbind(1)
    answers = [torch.einsum("ndk,fdk->nf", window, conv.weight) + conv.bias for window in windows]
    return torch.stack(answers).amax(0).relu()


def convolutions(net: nn.Module) -> list[nn.Conv1d]:
    """The convolutions of a network."""
    return [m for m in net.modules() if isinstance(m, nn.Conv1d)]


def placed(phrase: Tensor, start: int, length: int) -> Tensor:
    """A sentence of padding, 0, with a phrase from some place on."""
    sentence = torch.zeros(1, length, dtype=torch.long)
    sentence[0, start : start + len(phrase)] = phrase
    return sentence


class Copy(nn.Module):
    """A branch that gives a multiple of its input."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """The multiple."""
        return self.factor * x


@claim(
    by="identity",
    sources=("D-263",),
    short=r"\|J_{g_l}\| \le \epsilon: (1 - \epsilon)^L \le \sigma_i \le (1 +"
    r" \epsilon)^L;\ \text{plain: } \sigma_i \le \epsilon^L",
)
def wavenet_residual(
    residual: bool = True, depth: int = 30, epsilon: float = 0.1
) -> Iterator[Evidence]:
    r"""Residual connections keep deep stacks trainable.

    If every layer's branch $g_l$ has Lipschitz constant at most $\varepsilon < 1$, the input-output
    Jacobian of $L$ residual layers $x + g_l(x)$ has all singular values in
    $[(1 - \varepsilon)^L, (1 + \varepsilon)^L]$, while the plain stack of the same branches has
    norm at most $\varepsilon^L$. Both ends are attained, by $g_l(x) = \mp \varepsilon x$. This is
    why WaveNet-like stacks carry residual and skip connections.

    Branches are causal convolutions with dilations 1, 2, 4 whose matrices are scaled to the norm
    $\varepsilon$, and tanh. Singular values are compared by their logarithms.

    Knobs:
        residual: Whether the layers that are said to keep the singular values have shortcuts.
        depth: The number $L$ of layers.
        epsilon: The Lipschitz constant.
    """
    x = torch.randn(3 * 8)
    branches = [scaled_branch(2 ** (i % 3), epsilon) for i in range(depth)]
    low, high = depth * math.log(1 - epsilon), depth * math.log(1 + epsilon)
    found = torch.linalg.svdvals(stack_jacobian(branches, x, residual=residual)).log()
    yield at_least("log of a singular value", found, low - 1e-9)
    yield at_most("log of a singular value", found, high + 1e-9)
    rows = stack_jacobian(branches, x, residual=False)
    scale = float(rows.abs().max())
    norm = torch.linalg.svdvals(rows / scale)[0].log() + math.log(scale)
    yield at_most("log of the norm without shortcuts", norm, depth * math.log(epsilon) + 1e-9)
    for sign, end in ((-1, low), (1, high)):
        copies = stack_jacobian([Copy(sign * epsilon)] * depth, x, residual=residual)
        yield equals("log of the singular values for multiples of the identity",
                     torch.linalg.svdvals(copies).log(), end, tol=1e-9, sign=sign)  # fmt: skip


wavenet_residual.foil("the bounds hold for the plain stack", residual=False)


def scaled_branch(dilation: int, epsilon: float) -> nn.Module:
    """A causal convolution over 8 times, its matrix scaled to a norm, and tanh."""
    conv = CausalConv1d(3, 3, 2, dilation=dilation, bias=False)
    matrix = torch.func.jacrev(lambda x: conv(x.view(1, 3, 8)).flatten())(torch.zeros(24))
    with torch.no_grad():
        conv.weight *= epsilon / torch.linalg.matrix_norm(matrix, 2)
    return nn.Sequential(nn.Unflatten(0, (1, 3, 8)), conv, nn.Tanh(), nn.Flatten(0))


def stack_jacobian(branches: list[nn.Module], x: Tensor, *, residual: bool) -> Tensor:
    """The Jacobian of a stack at a point, layer by layer."""
    total = torch.eye(len(x))
    for branch in branches:
        total = (torch.func.jacrev(branch)(x) @ total + residual * total).detach()
        x = (branch(x) + residual * x).detach()
    return total
