r"""Text from a language model: one token after the other.

$$x_{t+1} \sim p(\cdot \mid x_{\le t}) ,$$

at a temperature, among the `top_k` most probable tokens, among the most probable that make up
`top_p`; by temperature 0 always the most probable one; or by beam search the string whose
log-probability is largest among those looked at.

Rows of unequal length go together, and each gets the tokens it would get alone: greedily, by beam
search, and by drawing too, as far as its random numbers are its own. They are uniform numbers
$u_{it}$, drawn for all rows $i$ and steps $t$ before the first one, and what row $i$ gets is a
function of its prompt and its $u_i$; were it alone, it would be given the first numbers of the
generator, which here are those of the first row. Up to rounding: in other company a kernel may add
in another order.

With a cache (`GPT`) a step reads one token; it gives what reading all gives, up to rounding. On a
CUDA device one graph serves all steps of a batch size. The claim is `gpt`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.language._token_rows import (
    Rows,
    context_of,
    device_of,
    insist_on_tokens,
    rows_of,
    vocabulary_of,
)
from vademecum.language.generation._beams import searched
from vademecum.language.generation._choices import Choice
from vademecum.language.generation._runs import Plan, Run
from vademecum.models import evaluation, unwrapped
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Generated", "generate", "stream_tokens"]


class Generated(NamedTuple):
    """What a language model goes on with.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.eye(3).roll(1, 1))  # 0, 1, 2, 0, ...
        >>> generate(model, [[0], [0, 1]], max_new_tokens=2, temperature=0).lengths
        tensor([2, 2])
    """

    tokens: Int[Tensor, " n T"]
    """The new tokens of each row, without the prompt; after a stop token they go on with it."""
    lengths: Int[Tensor, " n"]
    """How many tokens each row got, the stop token included."""
    log_probs: Float[Tensor, " n"]
    """The log-probabilities of what each row got, under the model itself, at temperature 1."""

    __repr__ = one_line


@torch.no_grad()
def generate(
    model: nn.Module,
    tokens: Rows,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    beam: int | None = None,
    stop: int | Sequence[int] | None = None,
    truncate: bool = False,
    context: int | None = None,
    cache: bool = True,
    generator: torch.Generator | None = None,
) -> Generated:
    """Let a language model go on from prompts.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V) that looks back alone, taken in
            evaluation mode.
        tokens: The prompts: tokens (T,) or (n, T), or a list of rows of unequal length.
        max_new_tokens: The most tokens that a row gets.
        temperature: What logits are divided by; with 0 the most probable token is taken.
        top_k: How many of the most probable tokens may be drawn; all by default.
        top_p: The probability that the tokens which may be drawn make up, above 0 and at most 1.
        beam: How many strings beam search keeps for each row, without drawing; None for none.
        stop: The token that ends a row, or several.
        truncate: Whether the oldest tokens are forgotten where a row outgrows the context, at the
            price of reading all of the others at every step; otherwise that is an error.
        context: How many tokens the model sees at once; by default what it says of itself, else
            everything.
        cache: Whether a cache is used if the model offers one.
        generator: Where random numbers come from; torch's global generator by default. As many are
            drawn as there are rows times `max_new_tokens`, whenever rows end.

    Returns:
        A `Generated`: the new tokens of all rows, how many they are, and their log-probabilities.

    Raises:
        ValueError: If a number is out of its range, tokens are, a prompt is empty, a row would
            outgrow the context, or the model gives NaN.

    References:
        Holtzman et al., The curious case of neural text degeneration, ICLR, 2020 (top-p). Fan,
        Lewis and Dauphin, Hierarchical neural story generation, ACL, 2018 (top-k).

    Example:
        >>> chain = torch.tensor([[0.1, 0.6, 0.3], [0.0, 0.2, 0.8], [0.5, 0.2, 0.3]]).log()
        >>> model = nn.Embedding.from_pretrained(chain)  # the next token by the last
        >>> found = generate(model, [[0], [2, 1]], max_new_tokens=3, temperature=0, stop=2)
        >>> found.tokens.tolist(), found.lengths.tolist()
        ([[1, 2], [2, 2]], [2, 1])
        >>> found.log_probs.exp()  # 0.6 * 0.8, and 0.8
        tensor([0.4800, 0.8000], dtype=torch.float64)
    """
    plan = _planned(
        model, tokens, max_new_tokens, Choice(temperature, top_k, top_p), stop, truncate, context,
        cache, generator, beam,
    )  # fmt: skip
    if beam is not None:
        with evaluation(plan.model, fused=True), torch.inference_mode():
            found = searched(plan, beam)
        return _finite(Generated(*(x.clone() for x in found)))
    run = Run(plan)
    with evaluation(plan.model, fused=True), torch.inference_mode():
        tape = run.advance()
        while run.more():
            tape = run.advance()
    lengths = tape.lengths.clone()
    longest = int(lengths.max())
    return _finite(Generated(tape.tokens[:, :longest].clone(), lengths, tape.log_probs.clone()))


def stream_tokens(
    model: nn.Module,
    tokens: Rows,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    truncate: bool = False,
    context: int | None = None,
    cache: bool = True,
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, " n"]]:
    """What `generate` gives, one token for each row at a time, as soon as it is known.

    Between two tokens the model is as it was; it must not change until the last one.

    Args:
        model: Any module from tokens (n, T) to logits (n, T, V) that looks back alone, taken in
            evaluation mode.
        tokens: The prompts: tokens (T,) or (n, T), or a list of rows of unequal length.
        max_new_tokens: The most tokens that a row gets.
        temperature: What logits are divided by; with 0 the most probable token is taken.
        top_k: How many of the most probable tokens may be drawn; all by default.
        top_p: The probability that the tokens which may be drawn make up, above 0 and at most 1.
        stop: The token that ends a row, or several; a row that has ended repeats it.
        truncate: Whether the oldest tokens are forgotten where a row outgrows the context.
        context: How many tokens the model sees at once; by default what it says of itself, else
            everything.
        cache: Whether a cache is used if the model offers one.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        An iterator over tokens (n,), one for each row.

    Raises:
        ValueError: If a number is out of its range, tokens are, a prompt is empty, or a row would
            outgrow the context.

    Example:
        >>> model = nn.Embedding.from_pretrained(torch.eye(3).roll(1, 1))  # 0, 1, 2, 0, ...
        >>> [int(t) for t in stream_tokens(model, [0], max_new_tokens=4, temperature=0)]
        [1, 2, 0, 1]
    """
    plan = _planned(
        model, tokens, max_new_tokens, Choice(temperature, top_k, top_p), stop, truncate, context,
        cache, generator, None,
    )  # fmt: skip
    return _streamed(plan)


def _streamed(plan: Plan) -> Iterator[Tensor]:
    run = Run(plan)
    while run.more():
        with evaluation(plan.model, fused=True), torch.inference_mode():
            tape = run.advance()
        ended = bool(plan.stop) and bool(tape.ended.all())
        yield tape.last.clone()
        if ended:
            return


def _planned(
    model: nn.Module,
    tokens: Any,
    max_new_tokens: int,
    choice: Choice,
    stop: Any,
    truncate: bool,
    context: int | None,
    cache: bool,
    generator: torch.Generator | None,
    beam: int | None,
) -> Plan:
    model, choice = unwrapped(model), choice.checked()
    count = whole("max_new_tokens", max_new_tokens, low=1)
    rows, context, V = rows_of("tokens", tokens), context_of(model, context), vocabulary_of(model)
    insist_on_tokens("tokens", rows, V)
    ends = () if stop is None else (stop,) if not isinstance(stop, Sequence) else tuple(stop)
    ends = tuple(whole("stop", s, low=0, high=None if V is None else V - 1) for s in ends)
    if beam is not None:
        whole("beam", beam, low=1)
        if choice != Choice(1.0, None, None):
            raise ValueError(f"beam must be None with {choice}: it draws nothing")
        if len(ends) > 1:
            raise ValueError(f"stop must be one token with beam, got {ends}")
    longest = max(len(row) for row in rows)
    slides = context is not None and longest + count - 1 > context
    if slides and not truncate:
        raise ValueError(
            f"tokens and max_new_tokens must fit into the context = {context}, got {longest} +"
            f" {count}; with truncate=True the oldest tokens are forgotten"
        )
    device = device_of(model, rows[0])
    uniform = None
    if choice.draws and beam is None:
        size, where = (len(rows), count), source(generator, device)
        uniform = torch.rand(size, dtype=torch.float64, **where).to(device)
    return Plan(model, rows, count, choice, ends, uniform, context, slides, cache, device)


def _finite(found: Generated) -> Generated:
    if bool(found.log_probs.isnan().any()):
        row = int(found.log_probs.isnan().nonzero()[0])
        raise ValueError(f"model must not give NaN, got it for row {row}")
    return found
