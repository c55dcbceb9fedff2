r"""Tasks whose answer lies many steps back: latch, adding, copying.

| task | input at a step | target | trivial answer | its loss |
|---|---|---|---|---|
| latch | a number and a mark; the first number is a sign | the sign, $\pm 1$ | 0 | 1 |
| adding | $u_t \sim U(0, 1)$ and a mark, 1 at two steps | $u_a + u_b$ | its mean, 1 | $1/6$ |
| copying | one of 8 letters, a blank or a bell | 10 letters | blanks, then any letter | see below |

The loss is the mean squared error for the first two, where the trivial answer is the best one that
does not look at the input: the variance of a sign is 1, that of a uniform number $1/12$. It is the
mean cross-entropy over all steps for the third, $10 \ln 8 / (T + 20)$: $\ln 8$ for each of ten
letters of which nothing is known, and nothing for the $T + 10$ steps at which a blank is wanted.

Exact: the claim `recurrence.long_lag_latch` uses the first; tests check the losses by enumeration.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import place, source
from vademecum.results import one_line

__all__ = ["SequenceTask", "adding_task", "copying_task", "latch_task"]

_LETTERS, _WORD = 8, 10  # as Hochreiter and Schmidhuber's task is posed since Arjovsky et al.
_BLANK, _BELL = _LETTERS, _LETTERS + 1


class SequenceTask(NamedTuple):
    """Sequences with their targets, and what an answer is worth that ignores the input.

    Example:
        >>> adding_task(5, 30)
        SequenceTask(x=float32[5, 30, 2], y=float32[5, 1], trivial_loss=0.16666666666666666)
    """

    x: Float[Tensor, " n steps d"]
    """The inputs."""
    y: Float[Tensor, " n 1"] | Int64[Tensor, " n steps"]
    """The targets: a number after the last step, or a class at each step."""
    trivial_loss: float
    """The expected loss of the best answer that is the same for all sequences."""

    __repr__ = one_line


def latch_task(
    n: int,
    T: int,
    *,
    distractors: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> SequenceTask:
    r"""Remember the sign of the first input, whatever comes after it.

    The first channel is $\pm 1$ at the first step and Gaussian after it; the second is 1 at the
    first step and 0 after it.

    Args:
        n: The number of sequences.
        T: The number of steps.
        distractors: The standard deviation of what comes after the first step.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the sequences are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    References:
        Bengio, Simard and Frasconi, Learning long-term dependencies with gradient descent is
        difficult, IEEE Transactions on Neural Networks, 1994.

    Example:
        >>> x, y, loss = latch_task(4, 50, distractors=0.1)
        >>> x[:, 0, 0].equal(y[:, 0]), x[0, :3, 1].tolist(), loss
        (True, [1.0, 0.0, 0.0], 1.0)
    """
    n, T = whole("n", n, low=1), whole("T", T, low=1)
    number("distractors", distractors, low=0)
    dtype, device = place(generator, dtype, device)
    drawn = source(generator, device)
    sign = 2.0 * torch.randint(2, (n, 1), **drawn) - 1
    x = torch.zeros(n, T, 2, dtype=dtype, device=drawn["device"])
    x[:, :, 0] = distractors * torch.randn(n, T, dtype=dtype, **drawn)
    x[:, :1, 0] = sign.to(dtype)
    x[:, 0, 1] = 1
    return SequenceTask(x.to(device), sign.to(device, dtype), 1.0)


def adding_task(
    n: int,
    T: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> SequenceTask:
    r"""Add two numbers that are marked, one in each half of the sequence.

    Args:
        n: The number of sequences.
        T: The number of steps, at least 2; the first mark is among the first `T // 2`.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype; torch's default if None.
        device: Where the sequences are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    References:
        Hochreiter and Schmidhuber, Long short-term memory, Neural Computation, 1997; in the form of
        Le, Jaitly and Hinton, A simple way to initialize recurrent networks of rectified linear
        units, 2015.

    Example:
        >>> x, y, loss = adding_task(4, 100)
        >>> torch.allclose((x[:, :, 0] * x[:, :, 1]).sum(1, keepdim=True), y), round(6 * loss, 9)
        (True, 1.0)
    """
    n, T = whole("n", n, low=1), whole("T", T, low=2)
    dtype, device = place(generator, dtype, device)
    drawn = source(generator, device)
    first = torch.randint(T // 2, (n,), **drawn)
    second = torch.randint(T // 2, T, (n,), **drawn)
    values = torch.rand(n, T, dtype=dtype, **drawn)
    marks, rows = torch.zeros_like(values), torch.arange(n, device=values.device)
    marks[rows, first] = marks[rows, second] = 1
    y = (values[rows, first] + values[rows, second])[:, None]
    return SequenceTask(torch.stack((values, marks), 2).to(device), y.to(device), 1 / 6)


def copying_task(
    n: int,
    T: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> SequenceTask:
    r"""Repeat ten letters after a pause.

    Ten letters out of eight are shown, then $T - 1$ blanks, a bell, and ten blanks; the answer is
    $T + 10$ blanks and then the letters. There are $T + 20$ steps; classes 0 to 7 are the letters,
    8 is the blank, and 9, which is never wanted, the bell.

    Args:
        n: The number of sequences.
        T: How many steps after the last letter the bell rings.
        generator: Where random numbers come from; torch's global generator by default.
        dtype: A floating dtype for the inputs, which are indicators; torch's default if None.
        device: Where the sequences are; on the device of `generator`, or torch's default, if None.

    Raises:
        ValueError: Where an argument is out of its range.

    References:
        Hochreiter and Schmidhuber, Long short-term memory, Neural Computation, 1997; in the form of
        Arjovsky, Shah and Bengio, Unitary evolution recurrent neural networks, ICML 2016.

    Example:
        >>> x, y, loss = copying_task(3, 30)
        >>> x.shape, x[:, :10].argmax(2).equal(y[:, -10:]), round(loss, 6)
        (torch.Size([3, 50, 10]), True, 0.415888)
    """
    n, T = whole("n", n, low=1), whole("T", T, low=1)
    dtype, device = place(generator, dtype, device)
    letters = torch.randint(_LETTERS, (n, _WORD), **source(generator, device)).to(device)
    shown = letters.new_full((n, T + 2 * _WORD), _BLANK)
    y = shown.clone()
    shown[:, :_WORD] = y[:, -_WORD:] = letters
    shown[:, T + _WORD - 1] = _BELL
    x = torch.nn.functional.one_hot(shown, _LETTERS + 2).to(dtype)
    return SequenceTask(x, y, _WORD * math.log(_LETTERS) / (T + 2 * _WORD))
