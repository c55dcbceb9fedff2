r"""Huffman's code: the shortest prefix code of a law.

A binary prefix code with word lengths $\ell_x$ exists exactly if $\sum_x 2^{-\ell_x} \le 1$
(Kraft), so its mean length under $p$ is at least $H_2(p)$ bits. Huffman's code, which joins the two
least probable nodes until one is left, is optimal, with

$$H_2(p) \le \sum_x p_x \ell_x < H_2(p) + 1,$$

and $\ell_x = -\log_2 p_x$ for a dyadic law. Coding symbols of $p$ by the code of $q$ costs about
$\mathrm{KL}_2(p \| q)$ bits a symbol more, exactly that for dyadic $q$.

Exact, up to the rounding of sums of probabilities. Of the optimal codes it is one whose longest
word is shortest; words are assigned canonically, by length and then by symbol.
"""

import heapq
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, probabilities
from vademecum.results import one_line

__all__ = ["HuffmanCode", "huffman_code"]


class HuffmanCode(NamedTuple):
    """A binary prefix code.

    Example:
        >>> huffman_code(torch.tensor([0.5, 0.5])).words
        ('0', '1')
    """

    lengths: Int[Tensor, " n"]
    """The length of each symbol's word."""
    words: tuple[str, ...]
    """The words themselves, of zeros and ones."""

    __repr__ = one_line


def huffman_code(p: Float[Tensor, " n"]) -> HuffmanCode:
    """Huffman's code of a law: a binary prefix code with the least mean length.

    Args:
        p: The probabilities of the symbols; those of probability zero get a word too.

    Returns:
        Lengths and words. The word of a symbol that is alone is empty: there is nothing to tell.

    Raises:
        ValueError: If `p` is no law, or has more than one axis.

    References:
        Huffman, A method for the construction of minimum-redundancy codes, Proceedings of the IRE,
        1952.

    Example:
        >>> code = huffman_code(torch.tensor([0.25, 0.5, 0.125, 0.125]))
        >>> code.words
        ('10', '0', '110', '111')
        >>> code.lengths
        tensor([2, 1, 3, 3])
    """
    weights = probabilities("p", floats("p", p, ndim=1)).tolist()
    n = len(weights)
    heap = [(weight, node) for node, weight in enumerate(weights)]  # of equals, leaves come first
    heapq.heapify(heap)
    parent = [0] * (2 * n - 1)
    for node in range(n, 2 * n - 1):
        (lighter, a), (heavier, b) = heapq.heappop(heap), heapq.heappop(heap)
        parent[a] = parent[b] = node
        heapq.heappush(heap, (lighter + heavier, node))
    depth = [0] * (2 * n - 1)
    for node in range(2 * n - 3, -1, -1):
        depth[node] = depth[parent[node]] + 1
    return HuffmanCode(torch.tensor(depth[:n], device=p.device), _canonical(depth[:n]))


def _canonical(lengths: list[int]) -> tuple[str, ...]:
    words, value, last = [""] * len(lengths), 0, 0
    for x in sorted(range(len(lengths)), key=lengths.__getitem__):
        value <<= lengths[x] - last
        last = lengths[x]
        words[x] = f"{value:0{last}b}" if last else ""
        value += 1
    return tuple(words)
