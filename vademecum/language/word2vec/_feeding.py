"""Blocks of words where a step finds them: in buffers that stay where they are.

A step reads the block that a counter points to, and moves the counter, so that on CUDA devices it
can be captured once as a graph and replayed for every block (`vademecum.models.Replay`).
"""

import numpy as np
import torch
from torch import Tensor

from vademecum.language._corpora import Portion
from vademecum.language.word2vec._steps import Block
from vademecum.language.word2vec._windows import band, offsets, piece

__all__ = ["Feed"]


class Feed:
    """Up to `blocks` blocks of N words, with the c words before and after each.

    Args:
        N: How many words a block has.
        c: How far windows reach at most.
        M: How many words of the noise serve a piece.
        k: How many words of the noise a pair is set against.
        blocks: How many blocks there is room for.
        device: Where the buffers are.
    """

    def __init__(self, N: int, c: int, M: int, k: int, blocks: int, device: torch.device):
        self.N, self.c, self.M, self.k, self.blocks = N, c, M, k, blocks
        where = {"dtype": torch.int64, "device": device}
        self._words, self._texts = (torch.zeros(blocks * N + 2 * c, **where) for _ in range(2))
        self._reach = torch.zeros(blocks * N, **where)
        self._noise = torch.zeros(blocks, N // piece(c), M, **where)
        self._eta = torch.zeros(blocks, device=device)
        self._distance = offsets(c, device)
        self._span = torch.arange(N + 2 * c, device=device)
        self.at = torch.zeros(1, **where)

    def fill(self, stretch: Portion, reach: Tensor, noise: Tensor, eta: np.ndarray) -> None:
        """Put in a stretch of words, and point to its first block.

        What is left of the last block is no word: it reaches nowhere.
        """
        n = len(stretch.ids)
        for buffer, values in ((self._words, stretch.ids), (self._texts, stretch.texts)):
            buffer[:n] = torch.from_numpy(values)
            buffer[n:] = -1 if buffer is self._texts else 0
        self._reach[: len(reach)] = reach
        self._reach[n - 2 * self.c :] = 0
        self._noise[: len(noise)] = noise
        self._eta[: len(eta)] = torch.from_numpy(eta)
        self.at.zero_()

    def block(self) -> Block:
        """The block that is pointed to."""
        c, place = self.c, self._span + self.at * self.N
        texts, words = self._texts.index_select(0, place), self._words.index_select(0, place)
        reach = self._reach.index_select(0, place[: self.N])
        pairs = band(texts, reach, self._distance, c)
        noise = self._noise.index_select(0, self.at)[0]
        return Block(words, pairs, noise, self.k, self._eta.index_select(0, self.at))
