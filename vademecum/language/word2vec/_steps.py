r"""A step of each objective, on a block of words at once, worked out by hand.

The words $w_t$ of a block have vectors $x$ and, as what is predicted, $z$. With the pairs $(t, s)$
of the band (`vademecum.language.word2vec._windows`), $n_t$ of them at $t$, what is maximised is

- of `sgns`, $\sum_{(t, s)} \log \sigma(x_t^\top z_s)
  + \sum_t \frac{k\, n_t}{M} \sum_{m \le M} \log \sigma(-x_t^\top z_{v_m})$,
- of `softmax`, $\sum_{(t, s)} \log \mathrm{softmax}(Z x_t)_s$,
- of `cbow`, $\sum_t \log \sigma(h_t^\top z_t)
  + \frac kM \sum_t \sum_{m \le M} \log \sigma(-h_t^\top z_{v_m})$ with
  $h_t = \frac1{n_t} \sum_s x_s$.

Gradients are dense products of gathered rows. The $M$ words $v_m$ drawn from the noise law serve
all words of a block: the expectation is that of $k$ words drawn for each pair, at a fraction of the
cost.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.language.word2vec._windows import fold, unfold

__all__ = ["LOSSES", "STEPS", "Block"]


class Block:
    """The words of a block, which pairs count, noise, and the rate.

    Args:
        around: The words and the c before and after them, (N + 2 c,).
        band: Which pairs count, (N / L, L, L + 2 c).
        noise: The words drawn from the noise law, (M,).
        negatives: The k.
        eta: The rate, a tensor without axes.
    """

    def __init__(self, around: Tensor, band: Tensor, noise: Tensor, negatives: int, eta: Tensor):
        self.around, self.band, self.noise, self.eta = around, band, noise, eta
        self.L, self.c = band.shape[1], (band.shape[2] - band.shape[1]) // 2
        self.words = around[self.c : len(around) - self.c]
        self.pairs = band.sum(2).flatten()
        self.each = negatives / len(noise)

    def windows(self, rows: Tensor) -> Tensor:
        """The rows within reach of each piece."""
        return unfold(rows, self.L, self.c)

    def pieces(self, rows: Tensor) -> Tensor:
        """The rows of the words, piece by piece."""
        return rows.view(-1, self.L, rows.shape[1])


def _sgns(X: Tensor, Z: Tensor, block: Block) -> None:
    x, near = X.index_select(0, block.words), Z.index_select(0, block.around)
    far = Z.index_select(0, block.noise)
    centres, windows = block.pieces(x), block.windows(near)
    seen = torch.bmm(centres, windows.mT).neg_().sigmoid_().mul_(block.band).mul_(block.eta)
    drawn = (x @ far.T).sigmoid_()
    drawn.mul_((block.pairs * (block.each * block.eta))[:, None])
    ascent = torch.bmm(seen, windows).view_as(x).addmm_(drawn, far, alpha=-1)
    Z.index_add_(0, block.around, fold(torch.bmm(seen.mT, centres), block.c))
    Z.index_add_(0, block.noise, drawn.T @ x, alpha=-1)
    X.index_add_(0, block.words, ascent)


def _softmax(X: Tensor, Z: Tensor, block: Block) -> None:
    x, near = X.index_select(0, block.words), Z.index_select(0, block.around)
    centres, windows = block.pieces(x), block.windows(near)
    seen = block.band * block.eta
    expected = torch.softmax(x @ Z.T, 1).mul_((block.pairs * block.eta)[:, None])
    ascent = torch.bmm(seen, windows).view_as(x).addmm_(expected, Z, alpha=-1)
    Z.addmm_(expected.T, x, alpha=-1)
    Z.index_add_(0, block.around, fold(torch.bmm(seen.mT, centres), block.c))
    X.index_add_(0, block.words, ascent)


def _cbow(X: Tensor, Z: Tensor, block: Block) -> None:
    share = _shares(X, block)
    wanted, far = Z.index_select(0, block.words), Z.index_select(0, block.noise)
    windows = block.windows(X.index_select(0, block.around))
    h = torch.bmm(share, windows).view_as(wanted)
    some = (block.pairs > 0) * block.eta
    seen = (h * wanted).sum(1).neg_().sigmoid_().mul_(some)[:, None]
    drawn = (h @ far.T).sigmoid_().mul_((some * block.each)[:, None])
    ascent = (seen * wanted).addmm_(drawn, far, alpha=-1)
    Z.index_add_(0, block.words, seen * h)
    Z.index_add_(0, block.noise, drawn.T @ h, alpha=-1)
    X.index_add_(0, block.around, fold(torch.bmm(share.mT, block.pieces(ascent)), block.c))


def _shares(X: Tensor, block: Block) -> Tensor:
    """The weights of the words in a window, the same for each of them."""
    return block.band / block.pairs.clamp(min=1).to(X.dtype).view(-1, block.L, 1)


STEPS = {"sgns": _sgns, "softmax": _softmax, "cbow": _cbow}
"""What moves the vectors X and Z along the gradient of a block, in place."""


def _sgns_loss(X: Tensor, Z: Tensor, block: Block) -> Tensor:
    x = X.index_select(0, block.words)
    scores = torch.bmm(block.pieces(x), block.windows(Z.index_select(0, block.around)).mT)
    far = F.softplus(x @ Z.index_select(0, block.noise).T).sum(1) * block.each
    seen = F.softplus(-scores[block.band]).sum()
    return (seen + (far * block.pairs).sum()) / block.pairs.sum()


def _softmax_loss(X: Tensor, Z: Tensor, block: Block) -> Tensor:
    x = X.index_select(0, block.words)
    scores = torch.bmm(block.pieces(x), block.windows(Z.index_select(0, block.around)).mT)
    normaliser = (x @ Z.T).logsumexp(1)
    return ((normaliser * block.pairs).sum() - scores[block.band].sum()) / block.pairs.sum()


def _cbow_loss(X: Tensor, Z: Tensor, block: Block) -> Tensor:
    wanted, some = Z.index_select(0, block.words), block.pairs > 0
    h = torch.bmm(_shares(X, block), block.windows(X.index_select(0, block.around))).view_as(wanted)
    far = F.softplus(h @ Z.index_select(0, block.noise).T).sum(1) * block.each
    each = F.softplus(-(h * wanted).sum(1)) + far
    return each[some].mean()


LOSSES = {"sgns": _sgns_loss, "softmax": _softmax_loss, "cbow": _cbow_loss}
"""Minus what is maximised on a block, over the number of its terms."""
