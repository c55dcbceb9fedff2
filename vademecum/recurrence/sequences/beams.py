r"""Beam search: the most probable strings of a model that is asked symbol by symbol.

A model gives $\log p(y_t \mid y_{<t})$ for all symbols at once. Of all strings of $t$ symbols the
search keeps the $B$ with the largest score

$$s(y_{1:t}) = \frac{1}{t^\alpha} \sum_{i \le t} \log p(y_i \mid y_{<i}) ,$$

continues each of them by every symbol, and keeps the best $B$ again. A string that has come to its
end symbol stays as it is, with its own length for $t$, and competes with the others.

$B = 1$ is the greedy choice. Exact where nothing is ever dropped, so for $B \ge |V|^T$; else an
approximation, since the prefix of a good string may look bad. All hypotheses of all starts are one
batch; the device is waited for once a step, to see whether all have ended, and not even then if
there is no end symbol. Checked by `recurrence.autoregressive_factorisation` and by enumeration.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.models import map_tensors, named_tensors
from vademecum.results import one_line

__all__ = ["Beams", "beam_search"]

_ABOVE_ZERO = 0.01  # by which rounding may lift a log-probability: 1 + 2^-8 in bfloat16


class Beams(NamedTuple):
    """The strings that a beam search ends with, the best of each start first.

    Example:
        >>> law = torch.tensor([0.2, 0.8]).log()
        >>> found = beam_search(lambda y, s: (law.expand(len(y), 2), s), torch.tensor([0]),
        ...                     beam=4, max_length=2)
        >>> found.tokens[0].tolist()
        [[1, 1], [1, 0], [0, 1], [0, 0]]
    """

    tokens: Int[Tensor, " n beams T"]
    """The strings, without the start; after the end symbol they go on with it."""
    scores: Float[Tensor, " n beams"]
    """What they are ordered by; minus infinity where there are no more strings."""
    log_probs: Float[Tensor, " n beams"]
    """Their log-probabilities: the scores without the penalty for length."""
    lengths: Int[Tensor, " n beams"]
    """How many symbols they have, the end symbol included."""

    __repr__ = one_line


Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


@torch.no_grad()
def beam_search(
    step: Step,
    start: Int[Tensor, " n"],
    *,
    beam: int,
    max_length: int,
    state: Any = None,
    end: int | None = None,
    length_penalty: float = 0.0,
) -> Beams:
    r"""Find the most probable continuations of each start.

    Ties go to the continuation of the better prefix, then to the smaller symbol, on every device.

    Args:
        step: The model, `step(tokens, state) -> (log-probabilities, state)`: from the last symbol
            of each of r strings and their state to an (r, k) tensor. It is called with the n starts
            first, then with the strings of the first start, those of the second, and so on.
        start: The symbol before the first, of each of n searches.
        beam: How many strings $B$ to keep for each start.
        max_length: The most symbols $T$ of a string.
        state: What the first step gets: tensors with one row for each start, in any structure
            (tuples, lists, dicts, dataclasses), among anything else.
        end: The symbol that ends a string; None if all of them have `max_length` symbols.
        length_penalty: The exponent $\alpha$; above 0 it favours longer strings.

    Raises:
        ValueError: If a number is out of its range, `step` gives NaN or positive numbers (logits?),
            or a tensor of the state does not have a row for each string.

    Example:
        >>> law = torch.tensor([[0.55, 0.45], [0.1, 0.9]]).log()
        >>> chain = lambda tokens, state: (law[tokens], state)
        >>> for beam in (1, 2):
        ...     found = beam_search(chain, torch.tensor([0]), beam=beam, max_length=2)
        ...     print(found.tokens[0, 0].tolist(), f"{found.scores[0, 0].exp():.4f}")
        [0, 0] 0.3025
        [1, 1] 0.4050
    """
    _check(start)
    beam, max_length = whole("beam", beam, low=1), whole("max_length", max_length, low=1)
    number("length_penalty", length_penalty)
    if end is not None:
        end = whole("end", end, low=0)
    strings, tokens = _Strings(len(start), beam, end, length_penalty), start
    for _ in range(max_length):
        log_probs, state = step(tokens, state)
        _check_step(log_probs, state, tokens, end)
        rows = strings.extend(log_probs)
        state = map_tensors(state, partial(_reordered, rows=rows))
        tokens = strings.tokens[-1].flatten()
        if strings.finished():
            break
    return strings.collected()


class _Strings:
    """The hypotheses of all starts, as last symbols and the places of their prefixes."""

    def __init__(self, n: int, beam: int, end: int | None, penalty: float):
        self.n, self.beam, self.end, self.penalty = n, beam, end, penalty
        self.tokens: list[Tensor] = []
        self.parents: list[Tensor] = []

    def extend(self, log_probs: Tensor) -> Tensor:
        """Continue all strings, keep the best, and say from which rows they come."""
        values, symbols = _largest(log_probs, min(self.beam, log_probs.shape[1]))
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        if not self.tokens:
            self._begin(values)
        shape = (self.n, -1, values.shape[1])
        values, symbols = values.view(shape), symbols.view(shape)
        live = torch.where(self.ended, 0, values[:, :, 0])
        self.top = torch.maximum(self.top, live.amax(1))  # also NaN
        totals = self.log_probs[:, :, None] + values
        stay = torch.full_like(values[0, 0], -torch.inf)
        stay[0] = 0  # one way to stay as it is
        ended = self.ended[:, :, None]
        totals = torch.where(ended, self.log_probs[:, :, None] + stay, totals)
        symbols = torch.where(ended, self.end or 0, symbols)
        lengths = self.lengths + ~self.ended
        scores = totals / lengths[:, :, None].clamp(min=1).to(totals) ** self.penalty
        return self._keep(scores.flatten(1), totals.flatten(1), symbols.flatten(1), lengths)

    def _begin(self, like: Tensor) -> None:
        self.log_probs = like.new_zeros(self.n, 1)
        self.lengths = torch.zeros(self.n, 1, dtype=torch.long, device=like.device)
        self.ended = torch.zeros(self.n, 1, dtype=torch.bool, device=like.device)
        self.top = like.new_zeros(self.n)
        self.first = torch.arange(self.n, device=like.device)[:, None]

    def _keep(self, scores: Tensor, totals: Tensor, symbols: Tensor, lengths: Tensor) -> Tensor:
        ranked, order = scores.sort(dim=1, descending=True, stable=True)
        self.scores, order = ranked[:, : self.beam], order[:, : self.beam]
        width = lengths.shape[1]
        parents = order // (scores.shape[1] // width)
        tokens = symbols.gather(1, order)
        self.log_probs = totals.gather(1, order)
        dead = self.log_probs == -torch.inf
        self.ended = self.ended.gather(1, parents) | dead
        if self.end is not None:
            self.ended = self.ended | (tokens == self.end)
        self.lengths = torch.where(dead, 0, lengths.gather(1, parents))
        self.tokens.append(torch.where(dead, self.end or 0, tokens))
        self.parents.append(parents)
        return (self.first * width + parents).flatten()

    def finished(self) -> bool:
        """Whether all strings have ended; waits for the device."""
        if self.end is None:
            return False
        done, top = torch.stack([self.ended.all().to(self.top), self.top.amax()]).tolist()
        if not top <= _ABOVE_ZERO:
            self._refuse()
        return bool(done)

    def collected(self) -> Beams:
        """The strings, followed back from their last symbols."""
        if not bool((self.top <= _ABOVE_ZERO).all()):
            self._refuse()
        place = torch.arange(self.scores.shape[1], device=self.scores.device)
        place = place.expand(self.n, -1)
        symbols: list[Tensor] = []
        for tokens, parents in zip(self.tokens[::-1], self.parents[::-1], strict=True):
            symbols.append(tokens.gather(1, place))
            place = parents.gather(1, place)
        tokens = torch.stack(symbols[::-1], 2)
        return Beams(tokens, self.scores, self.log_probs, self.lengths)

    def _refuse(self) -> None:
        place = int((~(self.top <= _ABOVE_ZERO)).nonzero()[0])
        raise ValueError(
            "log-probabilities of step must be <= 0 and not NaN, got"
            f" {float(self.top[place]):.4g} for start {place}"
        )


def _reordered(x: Tensor, rows: Tensor) -> Tensor:
    return x.index_select(0, rows) if x.ndim else x


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row and their places, ties by place.

    torch leaves open which of several equal entries it takes. Where the last one taken has equals
    that were not, which one entry more tells, those with the smallest places are chosen anew; on a
    GPU always, since to ask would be to wait.
    """
    more = min(k + 1, x.shape[1])
    values, places = x.topk(more, dim=1)
    if more > k and (x.is_cuda or bool((values[:, k - 1] == values[:, k]).any())):
        values, last = values[:, :k], values[:, k - 1 : k]
        falling = torch.arange(x.shape[1], 0, -1, device=x.device)
        first = torch.where(x == last, falling, 0).topk(k, dim=1).indices
        above = ~(values <= last)  # also NaN, which is said later
        turn = torch.arange(k, device=x.device) - above.sum(1, keepdim=True)
        places = torch.where(above, places[:, :k], first.gather(1, turn.clamp(min=0)))
    places = places[:, :k]
    places = places.sort(1).values
    values, order = x.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)


def _check(start: Any) -> None:
    if not isinstance(start, Tensor) or start.ndim != 1 or not start.numel():
        given = tuple(start.shape) if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start must be a vector of symbols, got {given}")
    if start.is_floating_point() or start.is_complex() or start.dtype == torch.bool:
        raise ValueError(f"start must be integers, got {start.dtype}")


def _check_step(log_probs: Tensor, state: Any, tokens: Tensor, end: int | None) -> None:
    rows = len(tokens)
    if not isinstance(log_probs, Tensor) or not log_probs.is_floating_point():
        given = log_probs.dtype if isinstance(log_probs, Tensor) else type(log_probs).__name__
        raise ValueError(f"log-probabilities of step must be floating point, got {given}")
    if log_probs.ndim != 2 or len(log_probs) != rows or not log_probs.shape[1]:
        shape = tuple(log_probs.shape)
        raise ValueError(f"log-probabilities of step must have the shape ({rows}, k), got {shape}")
    if end is not None:
        whole("end", end, high=log_probs.shape[1] - 1)
    for name, x in named_tensors(state, "state"):
        if x.ndim and len(x) != rows:
            raise ValueError(f"{name} must have {rows} rows, got shape {tuple(x.shape)}")
