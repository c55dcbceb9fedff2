"""Two ways to fit vectors to counts: the whole matrix, or a stream of pairs."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import claim, equals
from vademecum.language import SkipGram, cooccurrence

Border = Literal["kept", "dropped"]


def streamed(text: Tensor, R: int, chunk: int, border: Border) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of near words, some at a time; no more of the text is held than a chunk and a window.

    With `border` dropped, pairs are lost whose words lie in two chunks.
    """
    held = text[:0]
    for start in range(0, len(text), chunk):
        old = len(held) if border == "kept" else 0
        held = torch.cat((held[len(held) - old :], text[start : start + chunk]))
        for r in range(1, R + 1):
            first = max(old - r, 0)
            one, other = held[first : max(len(held) - r, 0)], held[first + r :]
            yield torch.cat((one, other)), torch.cat((other, one))
        held = held[max(len(held) - R, 0) :]


@claim(
    by="identity",
    sources=("E-214", "E-215"),
    budget=0.5,
    short=r"\text{matrix: } V^2 \text{ numbers};\quad \text{skip-gram: } 2 d V"
    r"\text{, one pair after the other}",
)
def factorisation_cost(border: Border = "kept", vectors: int = 2):
    r"""Skip-gram avoids the co-occurrence matrix.

    The dense matrix has $V^2$ entries, and its eigendecomposition costs $O(V^3)$ (quoted).
    Skip-gram streams over the text and updates vectors pair by pair, so that it stores
    $2 d V$ numbers only, two vectors for each word. For $V = 10^6$ and $d = 300$ these are
    $10^{12}$ entries against $6 \cdot 10^8$.

    Numbers are counted as allocated by `SkipGram` and as a dense matrix, at a million words without
    memory behind them. Both see the
    same: the gradient of $\sum_{(i, j) \in C_R} \log \sigma(x_{w_i}^\top z_{w_j})$, added up over
    pairs from a stream, equals the one from the counts,
    $\sum_w C_{vw}\, \sigma(-x_v^\top z_w)\, z_w$. Checked for chunks shorter and longer than the
    window.

    Knobs:
        border: What happens to pairs whose words lie in two chunks of the stream.
        vectors: How many vectors each word has.
    """
    for V, d in ((100, 20), (200, 7), (400, 11)):
        words = [f"word{i}" for i in range(V)]
        model = SkipGram(d=d, min_count=1, subsample=0, epochs=1, random_state=0).fit([words])
        stored = model.vectors_.numel() + model.contexts_.numel()
        yield equals("numbers of skip-gram", stored, vectors * d * V, V=V, d=d)
        entries = cooccurrence([words], window=2).counts.toarray().size
        yield equals("numbers of the matrix", entries, V**2, V=V)
    V, d = 10**6, 300
    large = (torch.empty(V, V, device="meta"), torch.empty(vectors, V, d, device="meta"))
    numbers = [table.numel() for table in large]
    yield equals("numbers for a million words", numbers, [10**12, 6 * 10**8])
    for V, d, T, R, chunk in ((9, 4, 200, 3, 25), (6, 5, 90, 4, 3), (5, 2, 40, 2, 100)):
        text, at = torch.randint(V, (T,)), {"V": V, "R": R, "chunk": chunk}
        x, z = torch.randn(V, d, requires_grad=True), torch.randn(V, d)
        total = torch.zeros(V, d)
        for words, contexts in streamed(text, R, chunk, border):
            loss = nn.functional.logsigmoid((x[words] * z[contexts]).sum(1)).sum()
            total += torch.autograd.grad(loss, x)[0]
        C = torch.from_numpy(cooccurrence(text, window=R, vocabulary=V).counts.toarray())
        whole = (C / (1 + (x.detach() @ z.T).exp())) @ z
        yield equals("gradient from the stream", total, whole, tol=1e-12 * T * R, **at)


factorisation_cost.foil("pairs across chunks lost", border="dropped")
factorisation_cost.foil("one vector for each word", vectors=1)
