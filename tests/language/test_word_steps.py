"""Steps of word vectors: against autograd, and shortened as the definition says."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vademecum.language._corpora import Portion
from vademecum.language.word2vec._feeding import Feed
from vademecum.language.word2vec._steps import LOSSES, STEPS, Block, Table
from vademecum.language.word2vec._windows import band, offsets, piece


def some_block(V=9, pieces=2, c=3, k=4, noise=7, eta=2.0**-20):
    N = pieces * piece(c)
    texts = torch.arange(N + 2 * c) // 11
    reach = torch.randint(0, c + 1, (N,))
    pairs = band(texts, reach, offsets(c, torch.device("cpu")), c)
    words, far = torch.randint(V, (N + 2 * c,)), torch.randint(V, (pieces, noise))
    return Block(words, pairs, far, k, torch.tensor(eta))


@pytest.mark.parametrize("objective", STEPS)
def test_steps_follow_the_gradients_of_losses(objective):
    block, eta = some_block(), 2.0**-20
    rows = [torch.randn(9, 5).double().requires_grad_() for _ in range(2)]
    terms = int((block.pairs > 0).sum() if objective == "cbow" else block.pairs.sum())
    loss = LOSSES[objective](Table(rows[0]), Table(rows[1]), block)
    wanted = torch.autograd.grad(-terms * loss, rows)
    x, z = (Table(r.detach().clone()) for r in rows)
    STEPS[objective](x, z, block)
    for table, row, slope in zip((x, z), rows, wanted, strict=True):
        torch.testing.assert_close((table.rows - row.detach()) / eta, slope, rtol=1e-6, atol=1e-7)


def test_loss_of_a_bag_of_words():
    """By the definition, word by word."""
    X, Z = torch.randn(4, 2).double(), torch.randn(4, 2).double()
    words = [0, 1, 2, 1, 3]
    feed = Feed(16, 2, 2, 3, 1, torch.device("cpu"))
    far = torch.tensor([[[3, 0]]])
    padded = np.pad(words, 2), np.pad(np.zeros(5, int), 2, constant_values=-1)
    feed.fill(Portion(*padded), torch.full((5,), 2), far, np.ones(1))
    total = 0.0
    for t, word in enumerate(words):
        near = [words[s] for s in range(5) if 0 < abs(s - t) <= 2]
        h = X[near].mean(0)
        total -= float(F.logsigmoid(h @ Z[word]) + 1.5 * F.logsigmoid(-Z[[3, 0]] @ h).sum())
    found = LOSSES["cbow"](Table(X), Table(Z), feed.block())
    assert math.isclose(float(found), total / 5, rel_tol=1e-12)


def test_rows_that_are_pulled_too_hard_move_less():
    table = Table(torch.zeros(3, 1))
    words, change = torch.tensor([0, 1, 1]), torch.ones(3, 1)
    table.move(words, change.clone(), torch.tensor([1.0, 3.0, 1.0]))
    assert table.rows.flatten().tolist() == [1.0, 1.0, 0.0]  # 4 / 2 is twice too hard
    table.move(words, change.clone(), torch.ones(3))  # nothing is remembered
    assert table.rows.flatten().tolist() == [2.0, 3.0, 0.0]


def shortened(objective, block, X, Z, pulls):
    """What a step makes of the tables if each row is pulled at as given, by autograd."""
    rows = [X.clone().requires_grad_(), Z.clone().requires_grad_()]
    terms = (block.pairs > 0).sum() if objective == "cbow" else block.pairs.sum()
    slopes = torch.autograd.grad(
        -terms * LOSSES[objective](Table(rows[0]), Table(rows[1]), block), rows
    )
    slow = [(pull / 2).clamp(min=1)[:, None] for pull in pulls]
    assert all(s.min() == 1 < s.max() for s in slow)
    return X + block.eta * slopes[0] / slow[0], Z + block.eta * slopes[1] / slow[1]


def check(objective, block, X, Z, pulls):
    x, z = Table(X.clone()), Table(Z.clone())
    STEPS[objective](x, z, block)
    wanted = shortened(objective, block, X, Z, pulls)
    torch.testing.assert_close((x.rows, z.rows), wanted, rtol=1e-6, atol=1e-7)


def mean_square(rows):
    return rows.square().sum(1).mean()


def near(block, i, t):
    """The neighbours of the word t of piece i."""
    return block.around[i * block.L :][: block.L + 2 * block.c][block.band[i, t]]


def test_steps_of_pairs_are_shortened_by_the_definition():
    """Weights of scores times the mean square of the vectors on the other side, score by score."""
    block, k, eta = some_block(k=4, eta=0.02), 4, 0.02
    X, Z, pull = torch.randn(9, 5).double(), torch.randn(9, 5).double(), torch.zeros(2, 9).double()
    met: list[int] = []
    for i, own in enumerate(block.words.view(-1, block.L)):
        far = block.noise[i]
        met += [*block.around[i * block.L :][: block.L + 2 * block.c].tolist(), *far.tolist()]
        for t, w in enumerate(own):
            seen = near(block, i, t)
            weights = [(v, torch.sigmoid(-X[w] @ Z[v])) for v in seen]
            share = k * len(seen) / len(far)
            weights += [(v, share * torch.sigmoid(X[w] @ Z[v])) for v in far]
            for v, weight in weights:
                pull[0, w] += eta * weight
                pull[1, v] += eta * weight
    check(
        "sgns", block, X, Z, (pull[0] * mean_square(Z[met]), pull[1] * mean_square(X[block.words]))
    )


def test_steps_of_bags_are_shortened_by_the_definition():
    block, k, eta = some_block(k=4, eta=0.1), 4, 0.1
    (X, Z), pull = torch.randn(2, 9, 5).double(), torch.zeros(2, 9).double()
    X *= 4  # so that means of them are long enough
    wanted, drawn, bags = mean_square(Z[block.words]), mean_square(Z[block.noise.flatten()]), []
    for i, own in enumerate(block.words.view(-1, block.L)):
        far = block.noise[i]
        for t, w in enumerate(own):
            bag = near(block, i, t)
            bags.append(X[bag].sum(0) / max(len(bag), 1))
            if not len(bag):
                continue
            mine = eta * torch.sigmoid(-bags[-1] @ Z[w])
            theirs = eta * k / len(far) * torch.sigmoid(Z[far] @ bags[-1])
            pull[1].index_add_(0, torch.cat((own[t : t + 1], far)), torch.cat((mine[None], theirs)))
            each = (mine * wanted + theirs.sum() * drawn) / len(bag)
            pull[0].index_add_(0, bag, each.expand(len(bag)))
    check("cbow", block, X, Z, (pull[0], pull[1] * mean_square(torch.stack(bags))))
