r"""Memory networks: attention that asks again with what it has found.

A memory holds facts, sentences of words. Each has a key and a value, sums of learned vectors of its
words, with a table of vectors for every place in the sentence; the question $q$ is such a sum, too.
A hop recalls by content and combines what it finds with the query:

$$a = \mathrm{softmax}(\beta K u), \qquad u \leftarrow H u + V^\top a, \qquad u_0 = q ,$$

the same maps at every hop, so that this is a recurrent network whose input is chosen by attention.
Hard recall reads the best matching fact alone, $a = e_{\arg\max_i (K u)_i}$, the limit of $\beta
\to \infty$ if there is one such fact, and else the first of them; its gradient is taken to be that
of the softmax. Logits are a linear map of the last $u$. A question whose answer chains $k$ facts
needs $k$ hops. Checked by `attention.memory_network`.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.attention.dense import attention
from vademecum.results import one_line

__all__ = ["MemoryNetwork", "MemoryReading"]


class MemoryReading(NamedTuple):
    """What a memory network has found, and where.

    Example:
        >>> net, fact = MemoryNetwork(5, hops=3), torch.tensor([[[0, 1]]])
        >>> net.read(fact, torch.tensor([[0]])).weights.tolist()  # a single fact, three hops
        [[[1.0], [1.0], [1.0]]]
    """

    state: Float[Tensor, " n width"]
    """The query after the last hop, which the answer is made of."""
    weights: Float[Tensor, " n hops facts"]
    """How much each hop read of each fact."""

    __repr__ = one_line


class MemoryNetwork(nn.Module):
    r"""Answers questions about facts in a memory of any size, hop by hop.

    Args:
        vocabulary: How many words there are.
        num_classes: How many answers there are; as many as words by default.
        hops: How many facts are read one after the other.
        fact_words: How many words a fact has; fill shorter ones up with a word of its own.
        question_words: How many words a question has.
        width: How many features keys, values and queries have.
        recall: Whether a hop reads an average of the facts, or the best matching one.
        beta: The inverse temperature $\beta$ of recall.

    Raises:
        ValueError: If a number is out of range.

    References:
        Weston, Chopra, Bordes, Memory networks, ICLR, 2015. Sukhbaatar, Szlam, Weston, Fergus,
        End-to-end memory networks, NeurIPS, 2015.

    Example:
        >>> net = MemoryNetwork(10, hops=2)
        >>> facts = torch.tensor([[[3, 4], [4, 7], [1, 2]]])  # 3 -> 4, 4 -> 7, 1 -> 2
        >>> net(facts, torch.tensor([[3]])).shape
        torch.Size([1, 10])
    """

    def __init__(
        self,
        vocabulary: int,
        num_classes: int | None = None,
        *,
        hops: int = 1,
        fact_words: int = 2,
        question_words: int = 1,
        width: int = 32,
        recall: Literal["softmax", "hard"] = "softmax",
        beta: float = 1.0,
    ):
        super().__init__()
        self.vocabulary = whole("vocabulary", vocabulary, low=1)
        answers = vocabulary if num_classes is None else whole("num_classes", num_classes, low=1)
        self.hops, width = whole("hops", hops, low=1), whole("width", width, low=1)
        self.recall = choice("recall", recall, ("softmax", "hard"))
        self.beta = number("beta", beta, above=0)
        facts = whole("fact_words", fact_words, low=1)
        self.keys, self.values = self._tables(facts, width), self._tables(facts, width)
        self.question = self._tables(whole("question_words", question_words, low=1), width)
        self.combine = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.combine.weight)
        self.answer = nn.Linear(width, answers)

    def forward(
        self,
        facts: Int[Tensor, " n facts words"],
        question: Int[Tensor, " n question_words"],
        *,
        mask: Bool[Tensor, " n facts"] | None = None,
    ) -> Float[Tensor, " n k"]:
        """The logits of the answers.

        Args:
            facts: The numbers of their words.
            question: The numbers of its words.
            mask: True where there is a fact; everywhere by default. A row without facts answers
                from the question alone.
        """
        return self.answer(self.read(facts, question, mask=mask).state)

    def read(
        self,
        facts: Int[Tensor, " n facts words"],
        question: Int[Tensor, " n question_words"],
        *,
        mask: Bool[Tensor, " n facts"] | None = None,
    ) -> MemoryReading:
        """What is found after all hops, and which facts each of them read.

        Args:
            facts: The numbers of their words.
            question: The numbers of its words.
            mask: True where there is a fact; everywhere by default.
        """
        self._check(facts, question)
        keys, values = _encoded(self.keys, facts), _encoded(self.values, facts)
        u, admitted, looked = _encoded(self.question, question), None, []
        if mask is not None:
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise ValueError(f"mask must be boolean, True where there is a fact, got {kind}")
            if mask.shape != facts.shape[:2]:
                wanted, given = tuple(facts.shape[:2]), tuple(mask.shape)
                raise ValueError(f"mask must have the shape {wanted}, got {given}")
            admitted = mask[:, None]
        for _ in range(self.hops):
            found, weights = attention(u[:, None], keys, values, mask=admitted, scale=self.beta)
            if self.recall == "hard":
                weights = _best(u, keys, admitted) + (weights - weights.detach())
                found = weights @ values
            u = self.combine(u) + found[:, 0]
            looked.append(weights[:, 0])
        return MemoryReading(u, torch.stack(looked, 1))

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        return f"{self.vocabulary}, hops={self.hops}, recall={self.recall!r}, beta={self.beta:g}"

    def _tables(self, words: int, width: int) -> nn.ModuleList:
        tables = nn.ModuleList(nn.Embedding(self.vocabulary, width) for _ in range(words))
        for table in tables:
            nn.init.normal_(table.weight, std=width**-0.5)  # pyright: ignore
        return tables

    def _check(self, facts: Tensor, question: Tensor) -> None:
        wanted = {"facts": (facts, ("n", "facts", len(self.keys))),
                  "question": (question, ("n", len(self.question)))}  # fmt: skip
        for name, (x, shape) in wanted.items():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            if not isinstance(x, Tensor) or kind not in (torch.int64, torch.int32):
                raise ValueError(f"{name} must be numbers of words, int64 or int32, got {kind}")
            if x.ndim != len(shape) or x.shape[-1] != shape[-1] or not x.numel():
                form = f"({', '.join(map(str, shape))})"
                raise ValueError(f"{name} must have the shape {form}, got {tuple(x.shape)}")
            if x.is_meta or torch.compiler.is_compiling():
                continue
            low, high = torch.stack(torch.aminmax(x)).tolist()  # waits for a GPU, as lookups crash
            if low < 0 or high >= self.vocabulary:
                worst = low if low < 0 else high
                raise ValueError(f"{name} must be from 0 to {self.vocabulary - 1}, got {worst}")
        if len(facts) != len(question):
            raise ValueError(
                f"question must have one row for each of {len(facts)} memories, got {len(question)}"
            )


def _encoded(tables: nn.ModuleList, words: Tensor) -> Tensor:
    """The sums of the words' vectors, each of the table of its place."""
    vectors = [table(words[..., place]) for place, table in enumerate(tables)]
    return torch.stack(vectors).sum(0)


def _best(u: Tensor, keys: Tensor, admitted: Tensor | None) -> Tensor:
    """One for the best match that is admitted, if any is; weights would round small leads away."""
    wide = torch.promote_types(u.dtype, torch.float32)
    scores = u[:, None].to(wide) @ keys.to(wide).mT
    if admitted is not None:
        scores = scores.masked_fill(~admitted, -torch.inf)
    best = torch.zeros_like(scores).scatter(2, scores.argmax(2, keepdim=True), 1)
    return (best if admitted is None else best * admitted).to(u.dtype)
