r"""Language models that count: the next token from the few before it.

An n-gram model of order $n$ predicts a token from the $n - 1$ before it. By relative frequencies,
$P(w | h) = C(h w) / C(h)$, it has the largest likelihood on its own text, and probability 0 for
what it never saw. *Kneser and Ney* take a discount $D$ from every count and give it to a shorter
context,

$$P_k(w | h) = \frac{c(h w) - D}{c(h)} + \frac{D\, N(h)}{c(h)}\, P_{k - 1}(w | h'),$$

with $N(h)$ the number of different tokens after $h$, and $h'$ without its first token; below the
highest order an n-gram counts once for each different token before it, so that *Francisco*, however
frequent, is not expected after anything but *San*. The recursion ends at $P_0 = 1 / V$.

At the beginning of a text there are fewer tokens before, and the order is as high as they allow.
Exact up to rounding. The claim is `ngram_model`.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.language._corpora import Numbering, numbered
from vademecum.language.ngrams._shares import shares
from vademecum.language.ngrams._tables import numbers, tables
from vademecum.randomness import categorical, source

__all__ = ["NGramModel"]


class NGramModel(nn.Module):
    r"""A language model of counted n-grams, smoothed by Kneser and Ney's interpolation.

    A module from tokens to logits as any other language model here, and much cheaper to ask for the
    probabilities of a text (`log_prob`). It has no parameters: its tables are buffers.

    Args:
        texts: Texts of ids to count, from a list or an iterator; or one text as a tensor or array.
            N-grams do not reach across texts.
        order: How many tokens an n-gram has, $n$; one less are looked back at.
        V: How many ids there are; by default one more than the largest.
        smoothing: "kneser_ney", "add_one" (to every count) or "none" (relative frequencies).
        discount: What Kneser and Ney take from each count; by default the three amounts that Chen
            and Goodman estimate, for counts of 1, 2 and more.

    References:
        Kneser and Ney, Improved backing-off for m-gram language modeling, ICASSP, 1995.
        Chen and Goodman, An empirical study of smoothing techniques for language modeling, Computer
        Speech and Language, 1999.

    Example:
        >>> text = torch.tensor([0, 1, 0, 1, 0, 2])
        >>> model = NGramModel(text, 2, smoothing="none")
        >>> model.log_prob(torch.tensor([0, 1, 0])).exp()  # 3 of 6; 2 of 3 after a 0; always
        tensor([0.5000, 0.6667, 1.0000], dtype=torch.float64)
        >>> model(torch.tensor([[0]])).exp()
        tensor([[[0.0000, 0.6667, 0.3333]]], dtype=torch.float64)
    """

    def __init__(
        self,
        texts: Any,
        order: int = 5,
        *,
        V: int | None = None,
        smoothing: str = "kneser_ney",
        discount: float | None = None,
    ):
        super().__init__()
        self.order = whole("order", order, low=1)
        self.smoothing = choice("smoothing", smoothing, ("kneser_ney", "add_one", "none"))
        if discount is not None:
            number("discount", discount, low=0, high=1)
        tokens, places, self.V = _read(texts, V)
        for k, table in enumerate(tables(tokens, places, order, self.V), 1):
            lower = smoothing == "kneser_ney" and k < order
            counts = table.before if lower else table.counts
            share, rest = shares(table, counts, smoothing, discount, self.V)
            self.register_buffer(f"keys_{k}", table.keys)
            self.register_buffer(f"starts_{k}", table.starts)
            self.register_buffer(f"share_{k}", share)
            self.register_buffer(f"rest_{k}", rest)

    def forward(self, tokens: Int[Tensor, " n T"]) -> Float[Tensor, " n T V"]:
        """The log-probabilities of all tokens, after each token and those before it in its row."""
        tokens = self._checked(tokens)
        n, T = tokens.shape
        grams = numbers(self._all("keys"), tokens, self.V)
        known = torch.arange(1, T + 1, device=tokens.device).repeat(n)
        laws = self._laws([gram.flatten() for gram in grams[:-1]], known)
        return laws.unflatten(0, (n, T)).log()

    def log_prob(self, tokens: Int[Tensor, " *n T"]) -> Float[Tensor, " *n T"]:
        """The log-probability of each token, given those before it in its row."""
        rows = self._checked(tokens[None] if tokens.ndim == 1 else tokens)
        grams = numbers(self._all("keys"), rows, self.V)
        known = torch.arange(rows.shape[1], device=rows.device)
        p = self._uniform(rows.shape)
        for k, (share, rest) in enumerate(zip(self._all("share"), self._all("rest"), strict=True)):
            contexts = grams[k]
            if k:
                contexts = nn.functional.pad(contexts[:, :-1], (1, 0), value=-1)
            here = _at(share, grams[k + 1], 0.0) + self._left(rest, contexts) * self._below(p)
            p = torch.where(known >= k, here, p)
        return p.log().reshape(tokens.shape)

    def sample(
        self,
        n: int,
        T: int,
        *,
        prompt: Int[Tensor, " t"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, " n T"]:
        """Draw texts.

        Args:
            n: How many texts.
            T: How many tokens each is to have, those of the prompt not counted.
            prompt: What stands before them; by default nothing.
            generator: Where random numbers come from; torch's global generator by default.

        Raises:
            ValueError: If the model knows no next token: without smoothing, after a context that
                was never seen to go on.

        Example:
            >>> NGramModel(torch.tensor([0, 1, 2, 0, 1, 2]), 2, smoothing="none").sample(
            ...     1, 4, prompt=torch.tensor([0]))
            tensor([[1, 2, 0, 1]])
        """
        whole("n", n, low=1)
        whole("T", T, low=1)
        device = self._all("keys")[0].device
        start = torch.zeros(0, dtype=torch.long) if prompt is None else prompt
        drawn = (self._checked(start[None]) if len(start) else start[None]).to(device).expand(n, -1)
        first = drawn.shape[1]
        for _ in range(T):
            recent = drawn[:, max(drawn.shape[1] - self.order + 1, 0) :]
            grams = numbers(self._all("keys"), recent, self.V)[: self.order]
            ends = [g[:, -1] if g.shape[1] else g.new_zeros(n) for g in grams]
            law = self._laws(ends, torch.full((n,), recent.shape[1], device=device))
            if not (law.sum(1) > 0).all():
                raise ValueError("the model must know a next token, got an unseen context")
            uniform = torch.rand(n, dtype=torch.float64, **source(generator, device)).to(device)
            drawn = torch.cat((drawn, categorical(law.log(), uniform)[:, None]), 1)
        return drawn[:, first:]

    def extra_repr(self) -> str:
        """The sizes."""
        grams = sum(len(keys) for keys in self._all("keys"))
        return f"order={self.order}, V={self.V}, smoothing={self.smoothing!r}, {grams} n-grams"

    def _laws(self, contexts: list[Tensor], known: Tensor) -> Float[Tensor, " m V"]:
        """Laws of next tokens after contexts: of each order its number, and how many tokens."""
        p = self._uniform((len(known), self.V))
        for k, context in enumerate(contexts):
            rows = (known >= k).nonzero()[:, 0]
            here = context[rows]
            rest = self._left(self._all("rest")[k], here)
            p[rows] = rest[:, None] * self._below(p[rows])
            row, gram = self._continuations(k, rows, here)
            tokens = self._all("keys")[k][gram] % self.V
            p.index_put_((row, tokens), self._all("share")[k][gram], accumulate=True)
        return p

    def _continuations(self, k: int, rows: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """All n-grams that go on from contexts, each with the row of its context."""
        starts = self._all("starts")[k]
        rows, contexts = rows[contexts >= 0], contexts[contexts >= 0]
        lengths = starts[contexts + 1] - starts[contexts]
        ends = lengths.cumsum(0)
        total = int(ends[-1]) if len(ends) else 0
        offsets = (starts[contexts] - (ends - lengths)).repeat_interleave(lengths)
        return rows.repeat_interleave(lengths), offsets + torch.arange(total, device=rows.device)

    def _all(self, name: str) -> list[Tensor]:
        return [getattr(self, f"{name}_{k}") for k in range(1, self.order + 1)]

    def _left(self, rest: Tensor, contexts: Tensor) -> Tensor:
        return _at(rest, contexts, 0.0 if self.smoothing == "none" else 1.0)

    def _below(self, p: Tensor) -> Any:
        return p if self.smoothing == "kneser_ney" else 1 / self.V

    def _uniform(self, shape: tuple[int, ...]) -> Tensor:
        return self._all("share")[0].new_full(shape, 1 / self.V)

    def _checked(self, tokens: Any) -> Tensor:
        if not isinstance(tokens, Tensor) or tokens.ndim != 2 or not tokens.numel():
            shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"tokens must have the shape (n, T), not empty, got {shape}")
        if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            raise ValueError(f"tokens must be integers, got {tokens.dtype}")
        low, high = (int(x) for x in tokens.aminmax())
        if low < 0 or high >= self.V:
            raise ValueError(f"tokens must be between 0 and {self.V - 1}, got {low} to {high}")
        return tokens.long()


def _at(values: Tensor, places: Tensor, missing: float) -> Tensor:
    if not len(values):
        return torch.full(places.shape, missing, dtype=values.dtype, device=values.device)
    return torch.where(places >= 0, values[places.clamp(min=0)], missing)


def _read(texts: Any, V: int | None) -> tuple[Tensor, Tensor, int]:
    """All tokens, the number of each one's text, and how many ids there are."""
    numbering = Numbering(None if V is None else whole("V", V, low=1, high=2**31))
    portions = list(numbered(texts, numbering))
    if not sum(len(portion.ids) for portion in portions):
        raise ValueError("texts must hold a token, got none")
    if not isinstance(numbering.words, range):
        raise ValueError("texts must hold ids, got words")
    device = texts.device if isinstance(texts, Tensor) else "cpu"
    parts = (np.concatenate(part) for part in zip(*portions, strict=True))
    tokens, places = (torch.from_numpy(part).to(device) for part in parts)
    return tokens, places, len(numbering)
