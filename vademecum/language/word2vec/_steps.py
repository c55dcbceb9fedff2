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
all words of a piece: the expectation is that of $k$ words drawn for each pair, at a fraction of the
cost.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.language.word2vec._windows import unfold

__all__ = ["LOSSES", "STEPS", "Block", "Table"]


STABLE = 2.0  # how hard a row may be pulled at before its step is shortened: beyond, it swings


class Block:
    """The words of a block, which pairs count, noise, and the rate.

    Args:
        around: The words and the c before and after them, (N + 2 c,).
        band: Which pairs count, (N / L, L, L + 2 c).
        noise: The words drawn from the noise law for each piece, (N / L, M).
        negatives: The k.
        eta: The rate, a tensor without axes.
    """

    def __init__(self, around: Tensor, band: Tensor, noise: Tensor, negatives: int, eta: Tensor):
        self.around, self.band, self.noise, self.eta = around, band, noise, eta
        self.L, self.c = band.shape[1], (band.shape[2] - band.shape[1]) // 2
        self.words = around[self.c : len(around) - self.c]
        self.pairs = band.sum(2).flatten()
        self.each = negatives / noise.shape[1]

    def windows(self, rows: Tensor) -> Tensor:
        """The rows within reach of each piece."""
        return unfold(rows, self.L, self.c)

    def pieces(self, rows: Tensor) -> Tensor:
        """The rows of the words, piece by piece, of numbers a column."""
        return rows.view(len(self.noise), self.L, -1)


class Table:
    r"""The vectors of all words, and how hard a block pulls at each of them.

    A pull is a bound on $\eta$ times the curvature of what is maximised: of a score with weight
    $\lambda$ it is $\lambda \sigma (1 - \sigma) \le \lambda \sigma$ times the square of the other
    vector, for which stands the mean over the block. Where the pulls of a row add up to more than
    is stable, the whole of its step is shortened, whose direction stays.

    Args:
        rows: The vectors, (V, d).
    """

    def __init__(self, rows: Tensor):
        self.rows, self._pull = rows, rows.new_zeros(len(rows))

    def __getitem__(self, words: Tensor) -> Tensor:
        return self.rows.index_select(0, words.flatten()).view(*words.shape, -1)

    def move(self, words: Tensor, change: Tensor, pull: Tensor) -> None:
        """Add to the rows of words, where they may come many times, no more than is stable.

        Args:
            words: The words, (n,).
            change: What is to be added, (n, d).
            pull: How hard each is pulled at, (n,).
        """
        self._pull.index_add_(0, words, pull)
        slow = self._pull.index_select(0, words).div_(STABLE).clamp_(min=1)
        self.rows.index_add_(0, words, change.div_(slow[:, None]))
        self._pull.index_fill_(0, words, 0)


def _sgns(X: Table, Z: Table, block: Block) -> None:
    met = torch.cat((block.windows(block.around), block.noise), 1)
    x, z = block.pieces(X[block.words]), Z[met]
    scores = torch.bmm(x, z.mT)
    near, far = scores.split((block.band.shape[2], block.noise.shape[1]), 2)
    near.neg_()
    scores.sigmoid_()
    near.mul_(block.band * block.eta)
    far.mul_(block.pieces(block.pairs * (-block.each * block.eta)))
    change, moved = torch.bmm(scores, z), torch.bmm(scores.mT, x)
    sizes = scores.abs_()
    Z.move(met.flatten(), moved.flatten(0, 1), sizes.sum(1).flatten() * _square(x))
    X.move(block.words, change.flatten(0, 1), sizes.sum(2).flatten() * _square(z))


def _softmax(X: Table, Z: Table, block: Block) -> None:
    x, near = X[block.words], Z[block.around]
    centres, windows = block.pieces(x), block.windows(near)
    seen = block.band.to(x.dtype).mul_(block.eta)
    expected = torch.softmax(x @ Z.rows.T, 1).mul_((block.pairs * block.eta)[:, None])
    change = torch.bmm(seen, windows).view_as(x).addmm_(expected, Z.rows, alpha=-1)
    pull = block.pairs * (block.eta * _square(Z.rows))
    rise = torch.bmm(seen.mT, centres).flatten(0, 1), seen.sum(1).flatten()
    fall = (expected.T @ x).neg_(), expected.sum(0)
    everyone = torch.arange(len(Z.rows), device=x.device)
    words = torch.cat((block.windows(block.around).flatten(), everyone))
    Z.move(words, torch.cat((rise[0], fall[0])), torch.cat((rise[1], fall[1])) * _square(x))
    X.move(block.words, change, pull)


def _cbow(X: Table, Z: Table, block: Block) -> None:
    share = _shares(X.rows, block)
    wanted, far, windows = Z[block.words], Z[block.noise], block.windows(X[block.around])
    means = torch.bmm(share, windows)
    h, some = means.flatten(0, 1), (block.pairs > 0) * block.eta
    seen = (h * wanted).sum(1).neg_().sigmoid_().mul_(some)[:, None]
    drawn = torch.bmm(means, far.mT).sigmoid_().mul_(block.pieces(some * block.each))
    change = block.pieces(seen * wanted).baddbmm_(drawn, far, alpha=-1)
    pull = block.pieces(seen * _square(wanted)) + drawn.sum(2, keepdim=True) * _square(far)
    pulls = torch.cat((seen[:, 0], drawn.sum(1).flatten())) * _square(h)
    words = torch.cat((block.words, block.noise.flatten()))
    fall = torch.bmm(drawn.mT, means).neg_().flatten(0, 1)
    Z.move(words, torch.cat((seen * h, fall)), pulls)
    rise, pulled = (torch.bmm(share.mT, v).flatten(0, 1) for v in (change, pull))
    X.move(block.windows(block.around).flatten(), rise, pulled.flatten())


def _square(rows: Tensor) -> Tensor:
    """The mean of the squared lengths of rows."""
    return torch.linalg.vector_norm(rows).square() / rows[..., 0].numel()


def _shares(X: Tensor, block: Block) -> Tensor:
    """The weights of the words in a window, the same for each of them."""
    return block.band / block.pairs.clamp(min=1).to(X.dtype).view(-1, block.L, 1)


STEPS = {"sgns": _sgns, "softmax": _softmax, "cbow": _cbow}
"""What moves the tables X and Z along the gradient of a block, in place."""


def _sgns_loss(X: Table, Z: Table, block: Block) -> Tensor:
    x = block.pieces(X[block.words])
    scores = torch.bmm(x, block.windows(Z[block.around]).mT)
    far = _noise_loss(x, Z, block)
    seen = F.softplus(-scores).mul(block.band).sum()
    return (seen + (far * block.pairs).sum()) / block.pairs.sum()


def _noise_loss(x: Tensor, Z: Table, block: Block) -> Tensor:
    """Of each word, (N,), for vectors piece by piece."""
    return F.softplus(torch.bmm(x, Z[block.noise].mT)).sum(2).flatten() * block.each


def _softmax_loss(X: Table, Z: Table, block: Block) -> Tensor:
    x = X[block.words]
    scores = torch.bmm(block.pieces(x), block.windows(Z[block.around]).mT)
    normaliser = (x @ Z.rows.T).logsumexp(1)
    return ((normaliser * block.pairs).sum() - scores.mul(block.band).sum()) / block.pairs.sum()


def _cbow_loss(X: Table, Z: Table, block: Block) -> Tensor:
    wanted, some = Z[block.words], block.pairs > 0
    h = torch.bmm(_shares(X.rows, block), block.windows(X[block.around]))
    each = F.softplus(-(h.flatten(0, 1) * wanted).sum(1)) + _noise_loss(h, Z, block)
    return each.mul(some).sum() / some.sum()


LOSSES = {"sgns": _sgns_loss, "softmax": _softmax_loss, "cbow": _cbow_loss}
"""Minus what is maximised on a block, over the number of its terms."""
