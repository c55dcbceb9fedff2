"""Random machines of binary units, and all of their states."""

import itertools

import torch


def drawn(m, d, scale=1.0):
    return tuple(scale * torch.randn(*shape).double() for shape in ((m, d), (d,), (m,)))


def bits(k):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=k))).double()


def table(W, a, b):
    """All unnormalised probabilities, (visible, hidden), from the definition."""
    v, h = bits(len(a)), bits(len(b))
    return torch.exp((v @ a)[:, None] + h @ b + v @ W.T @ h.T)
