"""Codes: how many bits a wrong model costs."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import claim, equals, lowest
from vademecum.foundations import cross_entropy as cross
from vademecum.foundations import entropy as shannon
from vademecum.foundations import huffman_code
from vademecum.foundations import kl_divergence as kl


@claim(
    by="identity",
    sources=("D-133",),
    budget=0.5,
    full={"trees": 300, "leaves": 30},
    short=r"\textstyle\sum_x p(x)\,(-\log_2 q(x)) = H_2(p) + \mathrm{KL}_2(p \| q)",
)
def kl_code_length(
    excess: Callable[[Tensor, Tensor], Tensor] = lambda p, q: kl(p, q, base=2),
    trees: int = 6,
    leaves: int = 8,
):
    r"""The KL divergence as excess code length.

    Coding data from $p$ with the code that is ideal for $q$ (lengths $-\log_2 q(x)$) costs
    $H_2(p) + \mathrm{KL}_2(p \| q)$ bits a symbol on average: KL is the information lost by using
    the model $q$ for the truth $p$. For a dyadic $q$ a prefix code, Huffman's, attains these
    lengths exactly.

    Checked on Huffman's codes of random dyadic laws: their lengths, that no word begins another,
    that texts are read back, and the mean length under other laws.

    Knobs:
        excess: What the mean length is said to exceed the entropy by, in bits.
        trees: How many binary trees are drawn.
        leaves: How many leaves each has.
    """
    lowest("leaves", leaves, 2)
    pairs = [(torch.tensor([1, 2, 2]), torch.tensor([1.0, 1.0, 6.0]))]
    for _ in range(trees):
        depths = [0]
        while len(depths) < leaves:
            depth = depths.pop(int(torch.randint(len(depths), ()))) + 1
            depths += [depth, depth]
        pairs.append((torch.tensor(depths), torch.randint(9, (leaves,)) + torch.eye(leaves)[0]))
    for tree, (depths, weights) in enumerate(pairs):
        q, p = 0.5 ** depths.double(), weights / weights.sum()
        code = huffman_code(q)
        yield equals("lengths of the words", code.lengths, depths, tree=tree)
        spelt = [len(word) for word in code.words]
        yield equals("lengths of the words as spelt", spelt, depths, tree=tree)
        begun = [sum(other.startswith(word) for other in code.words) for word in code.words]
        yield equals("words that begin with a word, itself included", begun, 1, tree=tree)
        mean = p @ code.lengths.double()
        plain = -torch.special.xlogy(p, p).sum() / math.log(2)
        yield equals("mean length beyond the entropy", mean - plain, excess(p, q), tree=tree)
        yield equals("cross-entropy in bits", cross(p, q, base=2), mean, tree=tree)
        yield equals("entropy in bits", shannon(p, base=2), plain, tree=tree)
        text = torch.randint(len(p), (30,)).tolist()
        read = _decoded("".join(code.words[x] for x in text), code.words)
        yield equals("letters read back", read, text, tree=tree)


def _decoded(stream: str, words: tuple[str, ...]) -> list[int]:
    text, word = [], ""
    for bit in stream:
        word += bit
        if word in words:
            text.append(words.index(word))
            word = ""
    return text


kl_code_length.foil("the reversed divergence", excess=lambda p, q: kl(q, p, base=2))
kl_code_length.foil(
    "the excess over the entropy of the model",
    excess=lambda p, q: cross(p, q, base=2) - shannon(q, base=2),
)
