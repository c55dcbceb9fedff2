r"""The education of a machine of type B: a search among the settings of its switches.

If all settings can be tried they are, and the answer is exact. Else 64 chains take turns of
simulated annealing, from a temperature of one mismatch to a fiftieth; the best setting that any of
them met is the answer, and its number of mismatches an upper bound on the least.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Education", "Lesson", "anneal", "exhaust", "tick"]


class Education(NamedTuple):
    """The best switches found.

    Example:
        >>> from vademecum.connectionism import TuringMachine
        >>> machine = TuringMachine(torch.tensor([[0, 0], [0, 1]]), torch.ones(2, 2).bool())
        >>> examples, wanted = torch.tensor([[0], [1]]).bool(), torch.tensor([[1], [0]]).bool()
        >>> found = machine.educate(examples, wanted, inputs=[0], outputs=[1], steps=1)
        >>> found.mismatches, found.n_iter, found.exhaustive
        (0, 16, True)
    """

    switches: Bool[Tensor, " n k"]
    """For each connection whether it is on."""
    mismatches: int
    """How many output bits they still get wrong."""
    n_iter: int
    """How many settings were looked at."""
    exhaustive: bool
    """Whether these were all there are, so that none does better."""
    converged: bool
    """Whether the search ended by itself: without mismatches, or having tried everything."""

    __repr__ = one_line


class Lesson(NamedTuple):
    """What a machine is to answer, and how it is asked."""

    sources: Tensor
    examples: Tensor
    wanted: Tensor
    inputs: list[int]
    outputs: list[int]
    steps: int

    def mismatches(self, switches: Bool[Tensor, " c n k"]) -> Int[Tensor, " c"]:
        """How many output bits each of the settings gets wrong."""
        shape = (len(switches), len(self.examples), len(self.sources))
        states = torch.zeros(shape, dtype=torch.bool, device=switches.device)
        states[..., self.inputs] = self.examples
        for _ in range(self.steps):
            states = tick(states, self.sources, switches[:, None])
            states[..., self.inputs] = self.examples
        return (states[..., self.outputs] != self.wanted).sum((1, 2))


def exhaust(lesson: Lesson, chunk: int = 1024) -> Education:
    """Try all settings of the switches."""
    bits = lesson.sources.numel()
    digits = torch.arange(bits, device=lesson.sources.device)
    best = Education(lesson.sources.bool(), lesson.wanted.numel() + 1, 2**bits, True, True)
    for start in range(0, 2**bits, chunk):
        codes = torch.arange(start, min(start + chunk, 2**bits), device=digits.device)
        settings = ((codes[:, None] >> digits) & 1).bool().view(-1, *lesson.sources.shape)
        wrong, at = lesson.mismatches(settings).min(0)
        if int(wrong) < best.mismatches:
            best = best._replace(switches=settings[at].clone(), mismatches=int(wrong))
    return best


def anneal(lesson: Lesson, rounds: int, generator: torch.Generator | None) -> Education:
    """Improve 64 random settings, one switch at a time, by simulated annealing."""
    chains, bits, device = 64, lesson.sources.numel(), lesson.sources.device
    draw = source(generator, device)
    settings = torch.randint(2, (chains, bits), **draw).to(device).bool()
    wrong = lesson.mismatches(settings.view(chains, *lesson.sources.shape))
    row = torch.arange(chains, device=device)
    best, least, tried = settings.clone(), wrong.clone(), chains
    for t in range(1, rounds):
        if int(least.min()) == 0:
            break
        temperature = 0.02 ** (t / rounds)  # from one mismatch to a fiftieth
        trial = settings.clone()
        trial[row, torch.randint(bits, (chains,), **draw).to(device)] ^= True
        after = lesson.mismatches(trial.view(chains, *lesson.sources.shape))
        luck = torch.rand(chains, **draw).to(device)
        accepted = luck < torch.exp((wrong - after) / temperature)
        settings = torch.where(accepted[:, None], trial, settings)
        wrong, tried = torch.where(accepted, after, wrong), tried + chains
        best = torch.where((wrong < least)[:, None], settings, best)
        least = torch.minimum(wrong, least)
    wrong, i = least.min(0)
    switches = best[i].view_as(lesson.sources)
    return Education(switches, int(wrong), tried, False, converged=int(wrong) == 0)


def tick(states: Tensor, sources: Tensor, switches: Tensor | None) -> Tensor:
    """The states one tick later."""
    answer = torch.ones_like(states)
    for i in range(sources.shape[1]):
        signal = states[..., sources[:, i]]
        answer = answer & (signal if switches is None else signal | ~switches[..., i])
    return ~answer
