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
from vademecum.connectionism._education import Education, Lesson, anneal, exhaust, tick
from vademecum.estimators import warn_unconverged
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["TuringMachine"]


class Cycle(NamedTuple):
    """How a run ends: after `preperiod` steps it repeats itself every `period` steps.

    Example:
        >>> TuringMachine(torch.tensor([[0, 0]])).cycle(torch.tensor([False]))
        Cycle(preperiod=tensor(0), period=tensor(2), converged=tensor(True))
    """

    preperiod: Int[Tensor, " *batch"]
    """The number of steps before the cycle; -1 where none was found."""
    period: Int[Tensor, " *batch"]
    """The length of the cycle; 0 where none was found."""
    converged: Bool[Tensor, " *batch"]
    """Whether the cycle was found within `max_iter` steps."""

    __repr__ = one_line


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
        *,
        kind: Literal["A", "B"] = "A",
        inputs: int = 2,
        generator: torch.Generator | None = None,
    ) -> "TuringMachine":
        """A machine of `n` units with random sources, and random switches if it is of type B.

        Args:
            n: The number of units.
            kind: The type, "A" or "B".
            inputs: How many sources each unit has.
            generator: Where random numbers come from; torch's global generator by default. The
                machine will be where it is.
        """
        n, inputs = arguments.whole("n", n, low=1), arguments.whole("inputs", inputs, low=1)
        arguments.choice("kind", kind, ("A", "B"))
        draw = source(generator, None)
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
        return tick(_match("states", states, self.sources[:, 0]), self.sources, self.switches)

    def run(
        self, states: Shaped[Tensor, " *batch n"], steps: int
    ) -> Bool[Tensor, " times *batch n"]:
        """The states at the times 0, ..., `steps`."""
        states = _match("states", states, self.sources[:, 0])
        path = [states]
        for _ in range(arguments.whole("steps", steps, low=0)):
            path.append(tick(path[-1], self.sources, self.switches))
        return torch.stack(path)

    def cycle(self, states: Shaped[Tensor, " *batch n"], *, max_iter: int = 10**6) -> Cycle:
        """When each run begins to repeat itself, and how often, by Brent's algorithm.

        Args:
            states: Where the runs start.
            max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a tick
                of the clock.

        References:
            Brent, An Improved Monte Carlo Factorization Algorithm, BIT, 1980.
        """
        mark = _match("states", states, self.sources[:, 0])
        period = torch.zeros(mark.shape[:-1], dtype=torch.long, device=mark.device)
        hare, since, power = mark, 0, 1
        for _ in range(arguments.whole("max_iter", max_iter, low=1)):
            hare, since = self.step(hare), since + 1
            period = torch.where((period == 0) & (hare == mark).all(-1), since, period)
            if period.all():
                break
            if since == power:
                mark, since, power = hare, 0, 2 * power
        found = period > 0
        if not found.all():
            runs = int((~found).sum())
            warn_unconverged(f"max_iter={max_iter} reached: {runs} runs have closed no cycle")
        return Cycle(torch.where(found, self._preperiod(states, period), -1), period, found)

    def _preperiod(self, tortoise: Tensor, period: Tensor) -> Tensor:
        hare, steps = tortoise, torch.zeros_like(period)
        for ahead in range(int(period.max())):
            hare = torch.where((ahead < period)[..., None], self.step(hare), hare)
        while (apart := (hare != tortoise).any(-1) & (period > 0)).any():
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
        max_iter: int = 2**16,
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
            max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each looks at
                one setting of the switches.
            generator: Where random numbers come from; torch's global generator by default.

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
        lesson = Lesson(self.sources, examples.bool(), wanted.bool(), inputs, outputs, steps)
        if 2 ** self.switches.numel() <= arguments.whole("max_iter", max_iter, low=64):
            return exhaust(lesson)
        found = anneal(lesson, max_iter // 64, generator)
        if not found.converged:
            warn_unconverged(f"max_iter={max_iter} reached with {found.mismatches} mismatches left")
        return found


def _match(name: str, x: Tensor, like: Tensor) -> Tensor:
    if x.dtype != torch.bool or x.shape[-like.ndim :] != like.shape:
        raise ValueError(
            f"{name} must be bool of shape (..., {', '.join(map(str, like.shape))}), "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
    return x
