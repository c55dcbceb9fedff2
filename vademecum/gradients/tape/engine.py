r"""A tape: forward and reverse mode on one recorded graph, with every cost counted.

A program $y = f(x_1, \dots)$ is recorded as a directed acyclic graph of elementary operations, each
node $v$ with its parents. **Forward mode** evaluates it on dual numbers $v + \dot v \epsilon$,
$\epsilon^2 = 0$: value and tangent travel together, and both can go as soon as their last user
has had them. **Reverse mode** evaluates first, keeps what the local derivatives need, and then
pulls the adjoints $\bar v = \partial y / \partial v$ back from the output, adding up over the users
of $v$:

$$\dot v = \sum_{p \to v} \frac{\partial v}{\partial p}\, \dot p, \qquad
\bar p = \sum_{p \to v} \Big(\frac{\partial v}{\partial p}\Big)^T \bar v.$$

A push gives $J \dot x$, a pull $J^T \bar y$, each for one visit of every edge: the Jacobian of
$f: \mathbb{R}^N \to \mathbb{R}^M$ takes $N$ pushes or $M$ pulls. Edges are counted that inputs or
parameters reach. Both modes are exact up to rounding.

References:
    Griewank and Walther, Evaluating Derivatives, SIAM, 2008.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.gradients.tape._cost import Cost, Pull, Push, Store, TapeJacobian
from vademecum.gradients.tape._operations import Vertex
from vademecum.gradients.tape._recording import Node, Recording

__all__ = ["Tape"]


class Tape:
    r"""The graph of a computation on tensors, at the point where it was recorded.

    Args:
        f: A function of as many arguments as there are inputs, in torch's syntax; its steps may
            depend on the values (`node.value`), and the tape holds those of this point. Tensors
            that require gradients and are met on the way, such as a module's parameters, become
            leaves like the inputs.
        *inputs: Where to record it.

    Attributes:
        steps: The vertices in the order of their evaluation, those only that the output needs.
        end: The index of the output.
        leaves: The indices of the inputs, then of the parameters in the order of their first use.
        parameters: The tensors that were met and require gradients, in that order.
        edges: The number of edges that depend on inputs or parameters.

    Raises:
        ValueError: If an input is no finite floating-point tensor, a step has no rule, or the
            output does not depend on inputs or parameters.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 3.0])
        >>> tape = Tape(lambda x: (x * x).sum(), x)
        >>> tape.push(torch.tensor([1.0, 0.0, 0.0])).tangent
        tensor(2.)
        >>> tape.pull().gradients[0]
        tensor([2., 4., 6.])
        >>> [tape.jacobian(mode=mode).cost.edges for mode in ("forward", "reverse")]
        [9, 3]
    """

    def __init__(self, f: Callable[..., Any], *inputs: Tensor):
        recording = Recording()
        nodes = [recording.leaf("input", floats("inputs", x)) for x in inputs]
        kinds = {str(x.dtype) for x in inputs}
        if len(kinds) > 1 or any(x.is_complex() for x in inputs):
            raise ValueError(f"inputs must be real and of one dtype, got {', '.join(kinds)}")
        with torch.enable_grad():  # to tell parameters from constants
            output = f(*nodes)
        if not isinstance(output, Node) or output.recording is not recording:
            kind = type(output).__name__
            raise ValueError(f"f must give one tensor that depends on its inputs, got {kind}")
        self._arrange(recording, len(nodes), output.index)

    def _arrange(self, recording: Recording, inputs: int, output: int) -> None:
        """Leave out what the output does not need, but for the inputs."""
        needed, steps = {output, *range(inputs)}, recording.steps
        for i in range(output, -1, -1):
            needed |= set(steps[i].parents) if i in needed else set()
        place = {old: new for new, old in enumerate(sorted(needed))}
        self.steps: tuple[Vertex, ...] = tuple(
            steps[i]._replace(parents=tuple(place[p] for p in steps[i].parents)) for i in place
        )
        met = [(t, node.index) for t, node in recording.captured.values() if t.requires_grad]
        met = [(tensor, place[i]) for tensor, i in met if i in place]
        self.inputs, self.end = inputs, place[output]
        self.parameters = tuple(tensor for tensor, _ in met)
        self.leaves = (*range(inputs), *(i for _, i in met))
        self.edges = sum(1 for i in self._operations() for _ in self._edges(i))
        last = {p: i for i in self._operations() for p in self.steps[i].parents}
        self._done = {i: [p for p, user in last.items() if user == i] for i in self._operations()}

    def __repr__(self) -> str:
        return f"Tape({len(self.steps)} nodes, {self.edges} edges, {len(self.leaves)} leaves)"

    def push(self, *tangents: Float[Tensor, " ..."] | None) -> Push:
        r"""Forward mode: values and tangents together, $J \dot x$.

        Args:
            *tangents: The direction $\dot x$, one tensor for each leaf, or for the inputs only;
                None stands for zeros. Without any, all ones.

        Example:
            >>> tape = Tape(lambda x, w: x @ w, torch.ones(2), torch.tensor([3.0, 4.0]))
            >>> tape.push(torch.tensor([1.0, 10.0]), None).tangent
            tensor(43.)
        """
        store, visits, work = Store(), 0, 0
        moves: dict[int, Tensor] = self._directions(tangents)
        for i in self._operations():
            y, x, amount = self._evaluate(i, store)
            parts = []
            for k, p in self._edges(i):
                t = moves[p] if p in moves else store.tensors["tangent", p]
                parts.append(self.steps[i].push(k, t, x, y))
            store.put(("tangent", i), sum(parts[1:], start=parts[0]))
            visits, work = visits + len(parts), work + amount * (1 + len(parts))
            store.drop(*self._done[i], *(("tangent", p) for p in self._done[i]))
        output, cost = self._value(self.end, store), self._cost(visits, work, store)
        tangent = moves[self.end] if self.end in moves else store.tensors["tangent", self.end]
        return Push(output, tangent, cost)

    def pull(self, adjoint: Float[Tensor, " ..."] | None = None) -> Pull:
        r"""Reverse mode: evaluate, then pull an adjoint back to all leaves, $J^T \bar y$.

        Args:
            adjoint: $\bar y$, shaped like the output; one by default for a single number.

        Example:
            >>> tape = Tape(lambda x, w: x * w, torch.tensor([2.0]), torch.tensor([5.0]))
            >>> tape.pull(torch.tensor([1.0])).gradients
            (tensor([5.]), tensor([2.]))
        """
        store, amounts = Store(), {}
        needs = {i: [self.steps[i].needs(k, i) for k, _ in self._edges(i)]
                 for i in self._operations()}  # fmt: skip
        kept = set().union(*(nodes for each in needs.values() for nodes in each))
        for i in self._operations():
            *_, amounts[i] = self._evaluate(i, store)
            store.drop(*(p for p in self._done[i] if p not in kept))
        output = self._value(self.end, store)
        ends: dict[int, Tensor] = {i: torch.zeros_like(self._value(i, store)) for i in self.leaves}
        self._add(self.end, self._adjoint(adjoint, output), ends, store)
        for i in reversed(self._operations()):
            step = self.steps[i]
            for (k, p), need in zip(self._edges(i), needs[i], strict=True):
                x, y = ([self._value(q, store) if q in need else None for q in nodes]
                        for nodes in (step.parents, (i,)))  # fmt: skip
                self._add(p, step.pull(k, store.tensors["adjoint", i], x, y[0]), ends, store)
            store.drop(("adjoint", i), i)
        work = sum(amount * (1 + len(needs[i])) for i, amount in amounts.items())
        cost = self._cost(self.edges, work, store)
        return Pull(output, tuple(ends[i] for i in self.leaves), cost)

    def jacobian(self, *, mode: Literal["forward", "reverse"] = "reverse") -> TapeJacobian:
        r"""The Jacobian of the flattened output in the flattened inputs, pass by pass.

        Args:
            mode: "forward" for one push for each entry of the inputs, that is by columns,
                "reverse" for one pull for each entry of the output, by rows.

        Example:
            >>> tape = Tape(lambda x: 2 * x, torch.ones(2))
            >>> tape.jacobian(mode="forward").matrix
            tensor([[2., 0.], [0., 2.]])
        """
        if choice("mode", mode, ("forward", "reverse")) == "forward":
            leaves = [self.steps[i].shape for i in range(self.inputs)]
            like = self._value(0, Store())
            sizes = [shape.numel() for shape in leaves]
            passes = [
                self.push(*(t.reshape(s) for t, s in zip(e.split(sizes), leaves, strict=True)))
                for e in torch.eye(sum(sizes), dtype=like.dtype, device=like.device)
            ]
            matrix = torch.stack([each.tangent.flatten() for each in passes], 1)
        else:
            shape, like = self.steps[self.end].shape, self._value(self.leaves[0], Store())
            eye = torch.eye(shape.numel(), dtype=like.dtype, device=like.device)
            passes = [self.pull(e.reshape(shape)) for e in eye]
            matrix = torch.stack(
                [torch.cat([g.flatten() for g in p.gradients[: self.inputs]]) for p in passes]
            )
        counts = list(zip(*(each.cost for each in passes), strict=True))
        return TapeJacobian(matrix, Cost(*map(sum, counts[:3]), *map(max, counts[3:])))

    def _operations(self) -> list[int]:
        return [i for i, step in enumerate(self.steps) if step.operation]

    def _edges(self, i: int) -> list[tuple[int, int]]:
        """The edges into a node that derivatives travel: place of the argument, and parent."""
        parents = enumerate(self.steps[i].parents)
        return [(k, p) for k, p in parents if self.steps[p].active]

    def _value(self, i: int, store: Store) -> Tensor:
        value = self.steps[i].value
        return store.tensors[i] if value is None else value

    def _evaluate(self, i: int, store: Store) -> tuple[Tensor, list[Tensor], int]:
        """A node's value, its arguments, and the work done."""
        step = self.steps[i]
        x = [self._value(p, store) for p in step.parents]
        assert step.operation is not None
        y = step.operation.value(*x, **step.knobs)
        store.put(i, y)
        return y, x, step.operation.work(x, y, **step.knobs)

    def _add(self, i: int, adjoint: Tensor, ends: dict[int, Tensor], store: Store) -> None:
        """Add to the adjoint of a node, which has one contribution from each user."""
        if i in ends:
            ends[i] = ends[i] + adjoint
        else:
            total = store.tensors.get(("adjoint", i))
            store.put(("adjoint", i), adjoint if total is None else total + adjoint)

    def _directions(self, tangents: tuple[Tensor | None, ...]) -> dict[int, Tensor]:
        values = [self._value(i, Store()) for i in self.leaves]
        if not tangents:
            return {i: torch.ones_like(x) for i, x in zip(self.leaves, values, strict=True)}
        if len(tangents) not in (self.inputs, len(values)):
            raise ValueError(
                f"tangents must be one for each of {self.inputs} inputs, or of {len(values)}"
                f" leaves, got {len(tangents)}"
            )
        given = [*tangents, *[None] * (len(values) - len(tangents))]
        return {
            i: torch.zeros_like(x) if t is None else _shaped("tangents", t, x)
            for i, x, t in zip(self.leaves, values, given, strict=True)
        }

    def _adjoint(self, adjoint: Tensor | None, output: Tensor) -> Tensor:
        if adjoint is not None:
            return _shaped("adjoint", adjoint, output)
        if output.numel() != 1:
            raise ValueError(f"adjoint must be given for outputs of shape {tuple(output.shape)}")
        return torch.ones_like(output)

    def _cost(self, visits: int, work: int, store: Store) -> Cost:
        return Cost(len(self._operations()), visits, work, store.most_live, store.most_numbers)


def _shaped(name: str, given: Tensor, like: Tensor) -> Tensor:
    if floats(name, given).shape != like.shape or given.dtype != like.dtype:
        raise ValueError(
            f"{name} must be {like.dtype} of shape {tuple(like.shape)}, got {given.dtype} of shape"
            f" {tuple(given.shape)}"
        )
    return given
