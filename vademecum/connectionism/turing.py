r"""Turing's unorganised machines: randomly wired NAND units on a common clock.

Unit $j$ of $n$ has $k$ source units $s_{j1}, \dots, s_{jk}$ (two, with Turing). In a machine of
type A all units answer at once,

$$x_j(t + 1) = \mathrm{NAND}\big(x_{s_{j1}}(t), \dots, x_{s_{jk}}(t)\big).$$

In a machine of type B each connection has a switch $c$ built of two NAND gates,

$$A(c, x) = \mathrm{NAND}(c, \mathrm{NAND}(x, x)) = \bar c \vee x,$$

which passes the signal if $c = 1$ and else gives 1, the neutral input of a NAND. Setting the
switches selects the wiring: education. Here, as in the course, a switch acts within the tick; one
made of clocked units would answer later.

Everything is exact but `TuringMachine.educate` on machines with many switches, a search that says
how many mismatches remain. These are the machines of "Intelligent Machinery" (1948), not the tape
machines of 1936. The claims `connectionism.turing_a_type` and `connectionism.turing_b_type` check
them by exhaustion.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from vademecum import arguments

__all__ = ["Cycle", "Education", "TuringMachine"]


class Cycle(NamedTuple):
    """How a run ends: after `preperiod` steps it repeats itself every `period` steps.

    Example:
        >>> TuringMachine(torch.tensor([[0, 0]])).cycle(torch.tensor([False]))
        Cycle(preperiod=tensor(0), period=tensor(2))
    """

    preperiod: Int[Tensor, " *batch"]
    period: Int[Tensor, " *batch"]


class Education(NamedTuple):
    """The best switches found, and how many output bits they still get wrong.

    If `exhaustive`, no setting does better. `tried` counts the settings that were looked at.

    Example:
        >>> machine = TuringMachine(torch.tensor([[0, 0], [0, 1]]), torch.ones(2, 2).bool())
        >>> examples, wanted = torch.tensor([[0], [1]]).bool(), torch.tensor([[1], [0]]).bool()
        >>> found = machine.educate(examples, wanted, inputs=[0], outputs=[1], steps=1)
        >>> found.mismatches, found.tried, found.exhaustive
        (0, 16, True)
    """

    switches: Bool[Tensor, " n k"]
    mismatches: int
    tried: int
    exhaustive: bool


class TuringMachine(nn.Module):
    """A machine of NAND units wired at will, of type A, or of type B if it has switches.

    Args:
        sources: For each unit the numbers of the units that it listens to, counted from 0.
        switches: For each of these connections whether it is on; without them all are, for good.

    Raises:
        ValueError: If a source is no unit, or the switches do not match the sources.

    References:
        Turing, Intelligent Machinery, National Physical Laboratory, 1948.

        Copeland and Proudfoot, On Alan Turing's Anticipation of Connectionism, Synthese, 1996.

    Example:
        >>> ring = TuringMachine(torch.tensor([[1, 1], [0, 0]]))
        >>> ring.run(torch.tensor([False, False]), 3).int().tolist()
        [[0, 0], [1, 1], [0, 0], [1, 1]]
    """

    sources: Int[Tensor, " n k"]
    switches: Bool[Tensor, " n k"] | None

    def __init__(
        self, sources: Shaped[Tensor, " n k"], switches: Shaped[Tensor, " *shape"] | None = None
    ):
        super().__init__()
        n, whole = len(sources), not torch.is_floating_point(sources)
        whole = whole and not sources.is_complex() and sources.dtype != torch.bool
        if not (whole and sources.numel() and 0 <= int(sources.min()) <= int(sources.max()) < n):
            raise ValueError(f"sources must be units below {n}, got {sources.tolist()}")
        if switches is not None:
            switches = _match("switches", switches, sources).clone()
        self.register_buffer("sources", sources.long().clone())
        self.register_buffer("switches", switches)

    @classmethod
    def random(
        cls,
        n: int,
        kind: Literal["A", "B"] = "A",
        *,
        inputs: int = 2,
        generator: torch.Generator | None = None,
    ) -> "TuringMachine":
        """A machine of `n` units with random sources, and random switches if it is of type B.

        Args:
            n: The number of units.
            kind: The type, "A" or "B".
            inputs: How many sources each unit has.
            generator: Where to draw from; its device will be the machine's.
        """
        n, inputs = arguments.whole("n", n, low=1), arguments.whole("inputs", inputs, low=1)
        arguments.choice("kind", kind, ("A", "B"))
        draw = {"generator": generator, "device": generator.device if generator else None}
        sources = torch.randint(n, (n, inputs), **draw)
        return cls(sources, torch.randint(2, (n, inputs), **draw).bool() if kind == "B" else None)

    @property
    def kind(self) -> str:
        """The type: "A", or "B" if there are switches."""
        return "A" if self.switches is None else "B"

    def forward(self, states: Shaped[Tensor, " *batch n"]) -> Bool[Tensor, " *batch n"]:
        """One tick of the clock, for each of a batch of states."""
        return self.step(states)

    def step(self, states: Shaped[Tensor, " *batch n"]) -> Bool[Tensor, " *batch n"]:
        """One tick of the clock, for each of a batch of states: all units answer at once."""
        return _tick(_match("states", states, self.sources[:, 0]), self.sources, self.switches)

    def run(
        self, states: Shaped[Tensor, " *batch n"], steps: int
    ) -> Bool[Tensor, " times *batch n"]:
        """The states at the times 0, ..., `steps`."""
        states = _match("states", states, self.sources[:, 0])
        path = [states]
        for _ in range(arguments.whole("steps", steps, low=0)):
            path.append(_tick(path[-1], self.sources, self.switches))
        return torch.stack(path)

    def cycle(self, states: Shaped[Tensor, " *batch n"], *, limit: int = 10**6) -> Cycle:
        """When each run begins to repeat itself, and how often, by Brent's algorithm.

        Args:
            states: Where the runs start.
            limit: The number of steps after which to give up.

        Raises:
            RuntimeError: If some run has not closed its cycle within the limit.

        References:
            Brent, An Improved Monte Carlo Factorization Algorithm, BIT, 1980.
        """
        mark = _match("states", states, self.sources[:, 0])
        period = torch.zeros(mark.shape[:-1], dtype=torch.long, device=mark.device)
        hare, since, power = mark, 0, 1
        for _ in range(arguments.whole("limit", limit, low=1)):
            hare, since = self.step(hare), since + 1
            period = torch.where((period == 0) & (hare == mark).all(-1), since, period)
            if period.all():
                return Cycle(self._preperiod(states, period), period)
            if since == power:
                mark, since, power = hare, 0, 2 * power
        raise RuntimeError(f"some run has no cycle within {limit} steps")

    def _preperiod(self, tortoise: Tensor, period: Tensor) -> Tensor:
        hare, steps = tortoise, torch.zeros_like(period)
        for ahead in range(int(period.max())):
            hare = torch.where((ahead < period)[..., None], self.step(hare), hare)
        while (apart := (hare != tortoise).any(-1)).any():
            steps = steps + apart
            hare, tortoise = self.step(hare), self.step(tortoise)
        return steps

    def educate(
        self,
        examples: Shaped[Tensor, " m i"],
        wanted: Shaped[Tensor, " rows o"],
        *,
        inputs: list[int],
        outputs: list[int],
        steps: int,
        tries: int = 2**16,
        generator: torch.Generator | None = None,
    ) -> Education:
        """Look for switches that make the machine answer examples as wanted.

        The input units hold an example's bits from the start and at every tick, all other units
        start at 0, and the output units are read after some steps. If all settings of the switches
        can be tried they are; else 64 random settings are improved by simulated annealing, one
        switch at a time. The machine itself is left as it is.

        Args:
            examples: The bits of the input units, one example a row.
            wanted: The bits that the output units should have.
            inputs: The numbers of the input units.
            outputs: The numbers of the output units.
            steps: How many ticks to wait for the answer.
            tries: How many settings to look at, at most.
            generator: Where the search draws from.

        Raises:
            ValueError: If the machine is of type A, or an argument does not fit it.
        """
        if self.switches is None:
            raise ValueError("a machine of type A has no switches to educate")
        n = len(self.sources)
        for name, units, rows in (("inputs", inputs, examples), ("outputs", outputs, wanted)):
            if not len(set(units) & set(range(n))) == len(units) == rows.shape[1]:
                raise ValueError(f"{name} must be {rows.shape[1]} units below {n}, got {units}")
            arguments.bits("examples" if rows is examples else "wanted", rows)
        if len(examples) != len(wanted):
            raise ValueError(f"wanted must have {len(examples)} rows, got {len(wanted)}")
        arguments.whole("steps", steps, low=1)
        lesson = _Lesson(self.sources, examples.bool(), wanted.bool(), inputs, outputs, steps)
        if 2 ** self.switches.numel() <= arguments.whole("tries", tries, low=64):
            return _exhaust(lesson)
        return _anneal(lesson, tries // 64, generator)


class _Lesson(NamedTuple):
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
            states = _tick(states, self.sources, switches[:, None])
            states[..., self.inputs] = self.examples
        return (states[..., self.outputs] != self.wanted).sum((1, 2))


def _exhaust(lesson: _Lesson, chunk: int = 1024) -> Education:
    bits = lesson.sources.numel()
    digits = torch.arange(bits, device=lesson.sources.device)
    best = Education(lesson.sources.bool(), lesson.wanted.numel() + 1, 2**bits, True)
    for start in range(0, 2**bits, chunk):
        codes = torch.arange(start, min(start + chunk, 2**bits), device=digits.device)
        settings = ((codes[:, None] >> digits) & 1).bool().view(-1, *lesson.sources.shape)
        wrong, at = lesson.mismatches(settings).min(0)
        if int(wrong) < best.mismatches:
            best = best._replace(switches=settings[at].clone(), mismatches=int(wrong))
    return best


def _anneal(lesson: _Lesson, rounds: int, generator: torch.Generator | None) -> Education:
    chains, bits, device = 64, lesson.sources.numel(), lesson.sources.device
    draw = {"generator": generator, "device": generator.device if generator else device}
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
    i = int(least.argmin())
    return Education(best[i].view_as(lesson.sources), int(least[i]), tried, False)


def _tick(states: Tensor, sources: Tensor, switches: Tensor | None) -> Tensor:
    answer = torch.ones_like(states)
    for i in range(sources.shape[1]):
        signal = states[..., sources[:, i]]
        answer = answer & (signal if switches is None else signal | ~switches[..., i])
    return ~answer


def _match(name: str, x: Tensor, like: Tensor) -> Tensor:
    if x.dtype != torch.bool or x.shape[-like.ndim :] != like.shape:
        raise ValueError(
            f"{name} must be bool of shape (..., {', '.join(map(str, like.shape))}), "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
    return x
