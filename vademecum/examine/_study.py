"""A network under examination, with its data: what every section is given.

All sections see the same examples, in one order that the seed alone decides: the first m of it are
the m examples that a section takes which has no time for more. A section's random numbers depend on
the seed and its name, not on which sections ran before.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.examine._costs import called, free_memory, graph_bytes, multiply_adds
from vademecum.examine._data import Data, taken
from vademecum.examine._first_look import (
    FirstLook,
    finite_outputs,
    first_look,
    insist_on_one_number,
    refuse_labels,
    with_an_axis_of_examples,
)
from vademecum.examine._guard import guarded
from vademecum.examine._task import Aim, aim_of, flat_scores
from vademecum.models import (
    Loss,
    Output,
    evaluation,
    fingerprint,
    map_tensors,
    unwrapped,
)

__all__ = ["Study", "named_seed"]

_PROBE = 4  # examples for a first look
_BATCH = 128  # examples in a forward pass
_ENTRIES = 2**27  # of outputs that are kept: half a gigabyte in single precision
_PASS, _LEAST = 2**32, 64  # multiply-adds of a pass that is repeated, and examples of it at least


class Study:
    """A network under examination.

    Args:
        model: Any module; compiled ones are unwrapped.
        x: Inputs, or a loader.
        y: Targets, or None.
        test: Fresh examples: a pair of inputs and targets, or a loader.
        loss: A function of outputs and targets.
        task: What it is for, if that is not to be guessed.
        output: What counts of its output.
        memory: The bytes that a section may use beyond inputs and results.
        seed: What all random numbers come from.

    Attributes:
        model: The network as it is.
        network: The network, or a module around it that gives a tensor where it does not.
        output: What counts of what `model` gives, as instruments take it.
        loss_output: What the loss takes of that: the same, or the output as a whole.
        data: The examples.
        test: Fresh ones, or None.
        aim: Task, loss, targets, classes.
        memory: What instruments are to be told.
        batch: How many examples go through the network at a time.

    Raises:
        ValueError: For whatever cannot be examined, in words.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        y: Any = None,
        *,
        test: Any = None,
        loss: Loss | None = None,
        task: str | None = None,
        output: Output = None,
        memory: int | None = None,
        seed: int = 0,
    ):
        self.model, self.seed, self.memory, self.batch = unwrapped(model), seed, memory, _BATCH
        given = taken("x", x, y, self.model)
        fresh = None if test is None else taken("test", *_pair(test), self.model)
        look, given = self._looked(given, output)
        self.network, self.output, self.counted = look.network, look.output, look.counted
        self.aim: Aim = aim_of(look.z, given.x, given.y, task=task, loss=loss)
        self._given = given._replace(y=self.aim.y)
        self._fresh = fresh and fresh._replace(
            y=aim_of(look.z, fresh.x, fresh.y, task=task, loss=loss).y
        )
        self.loss_output = self._checked(look, output)
        self.data, self.test = self._given.copied(), self._fresh and self._fresh.copied()
        self._marks = self._seen()
        self._cache: dict[str, Any] = {}
        draw = torch.Generator().manual_seed(named_seed(seed, "order"))
        self.order = torch.randperm(given.n or 1, generator=draw)

    # what sections ask for

    @property
    def n(self) -> int | None:
        """How many examples there are; None where they cannot be told apart."""
        return self.data.n

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """What the network computes in."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    def take(self, m: int | None = None) -> tuple[Any, Any]:
        """The first m examples in the order of the seed; all of them where they are one whole."""
        if self.n is None:
            return self.data.x, self.data.y
        return self.data.rows(self.order[: self.n if m is None else m])

    def generator(self, name: str) -> torch.Generator:
        """Random numbers for a section, the same whatever ran before."""
        return torch.Generator().manual_seed(named_seed(self.seed, name))

    def outputs(self, which: str = "data") -> Any:
        """What the network gives for the examples in their own order, or for the fresh ones.

        These are all examples unless their outputs are very large, as the scores of all words at
        all positions are; then they are the first ones, as many as there is room for.

        Args:
            which: "data" or "test".
        """
        if which not in self._cache:
            data = self.data if which == "data" else self.test
            if data is None:
                raise ValueError("test must be given")
            what = "example" if which == "data" else "fresh example"
            self._cache[which] = finite_outputs(self._passed(data), what)
        return self._cache[which]

    def scores(self, which: str = "data") -> tuple[Tensor, Tensor]:
        """Scores (m, k) and classes (m,) of all positions with a target, of `outputs`."""
        data = self.data if which == "data" else self.test
        if data is None or self.aim.task not in ("classification", "sequence") or data.y is None:
            raise ValueError("there must be classes as targets")
        found = self.outputs(which)
        z, y = flat_scores(found, data.y[: len(found)])
        kept = y >= 0
        return z[kept], y[kept]

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """Half as much at a time for a while, after memory has run out."""
        memory, batch = self.memory, self.batch
        self.memory = (memory or free_memory(self.device)) // 2
        self.batch = max(batch // 2, 1)
        try:
            yield
        finally:
            self.memory, self.batch = memory, batch

    @property
    def room(self) -> int:
        """The bytes for a section: those given, or half a gigabyte (GPU: four) and some models."""
        if self.memory is not None:
            return self.memory
        own = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return 2**32 + 8 * own if self.device.type == "cuda" else 2**29 + 40 * own

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained, each once; all of them where none is."""
        every = list(self.model.parameters())
        return [p for p in every if p.requires_grad] or every

    @property
    def frozen(self) -> bool:
        """Whether parameters without a gradient are to count: where there are no others."""
        return not any(p.requires_grad for p in self.model.parameters())

    @property
    def multiply_adds(self) -> int:
        """What one example takes, at least 1; all of them where they are one whole."""
        if "multiply_adds" not in self._cache:
            few = 1 if self.n is None else min(_PROBE, self.n)  # the network may not take only one
            found = multiply_adds(self.model, self.take(_PROBE)[0])
            self._cache["multiply_adds"] = max(found // few, 1)
        return self._cache["multiply_adds"]

    def planned(self, most: int) -> int:
        """How many examples a section is for which passes them again and again.

        Of a large network they are fewer: as many as one pass with 2^32 multiply-adds takes, but
        64 at least. This does not depend on the clock.

        Args:
            most: How many there are at most.
        """
        return min(most, max(_LEAST, _PASS // self.multiply_adds))

    def fitting(self, times: float) -> int | None:
        """How many examples have graphs that fit into the room so many times, at least 2.

        None where examples cannot be told apart.
        """
        if self.n is None:
            return None
        if "bytes" not in self._cache:
            few = min(_PROBE, self.n)  # as of multiply_adds
            self._cache["bytes"] = max(graph_bytes(self.network, self.take(few)[0]) // few, 1)
        return min(self.n, max(2, int(self.room / (times * self._cache["bytes"]))))

    def whole(self) -> bool:
        """Whether the data are as they were; if not, they are made so."""
        same = self._seen() == self._marks
        if not same:
            self.data, self.test = self._given.copied(), self._fresh and self._fresh.copied()
        return same

    def _seen(self) -> list[int]:
        return [int(fingerprint(d.x, None)) for d in (self.data, self.test) if d is not None]

    def mark(self) -> str:
        """What two examinations have in common that saw the same examples in the same order."""
        data = [self.data, *([] if self.test is None else [self.test])]
        found = [fingerprint(d.x, (d.y, torch.arange(d.n or 1, device=self.device))) for d in data]
        return "-".join(f"{int(each) % 2**64:016x}" for each in found)

    def _passed(self, data: Data) -> Any:
        with torch.no_grad(), evaluation(self.model, fused=True):
            if data.n is None:
                return map_tensors(called(self.network, data.copied().x), Tensor.detach)
            parts, entries = [], 0
            for i in range(0, data.n, self.batch):
                x, _ = data.rows(slice(i, i + self.batch))
                parts.append(called(self.network, map_tensors(x, Tensor.clone)))
                if not parts[-1].ndim:
                    from vademecum.examine._section import NotApplicable

                    raise NotApplicable("because it gives one number, not a row for each example")
                entries += parts[-1].numel()
                if entries >= _ENTRIES:
                    break
        return torch.cat(parts).detach()  # views of parameters have gradients in any mode

    def _looked(self, given: Data, output: Output) -> tuple[FirstLook, Data]:
        """A first look by a few examples; by all of them where the network takes no few."""
        few = given.copied() if given.n is None else Data(*given.rows(slice(_PROBE)), None, "")
        with guarded(self.model):
            try:
                look = first_look(self.model, few.copied().x, output)
                if given.n is not None:
                    one = Data(*given.rows(slice(1)), None, "").copied().x
                    look = with_an_axis_of_examples(look, self.model, one)
                return look, given
            except ValueError:
                if given.n is None or given.n <= _PROBE:
                    raise
                with suppress(ValueError):
                    look = first_look(self.model, given.copied().x, output)
                    return look, given._replace(n=None, of=f"{given.of}, which go only together")
                raise

    def _checked(self, look: FirstLook, output: Output) -> Output:
        """What a loss takes of the output, after a look at targets and loss."""
        for name, data in (("y", self._given), ("targets of test", self._fresh)):
            y, k = None if data is None else data.y, self.aim.classes
            if k is not None and isinstance(y, Tensor) and not y.is_floating_point():
                refuse_labels(name, y, k, ignored=self.aim.task == "sequence")
        if self.aim.loss is None or (self.aim.y is None and self.aim.task != "density"):
            return self.output
        few = self._given.rows(slice(_PROBE))[1] if self._given.n else self._given.y
        return output if insist_on_one_number(self.aim.loss, look, few) else self.output


def named_seed(seed: int, name: str) -> int:
    """A seed of its own for each name.

    Example:
        >>> named_seed(0, "a") == named_seed(0, "a") != named_seed(0, "b")
        True
    """
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _pair(test: Any) -> tuple[Any, Any]:
    if type(test) in (tuple, list) and len(test) == 2:
        return test[0], test[1]
    return test, None
