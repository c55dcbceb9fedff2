"""What the course claims of automatic differentiation: its two modes and what they cost."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients.tape import Tape

Program = Callable[[Any], Any]


def random_program(inputs: int = 3, steps: int = 8) -> Program:
    """A random expression graph with shared nodes, two outputs and values of moderate size."""
    kinds = torch.randint(0, 5, (steps,)).tolist()
    places = [torch.randint(0, inputs + k, (2,)).tolist() for k in range(steps)]

    def program(x: Any) -> Any:
        v = [x[i : i + 1] for i in range(inputs)]
        for kind, (i, j) in zip(kinds, places, strict=True):
            a, b = v[i], v[j]
            v.append(
                a + b if kind == 0
                else a * torch.sin(b) if kind == 1
                else torch.sin(a) if kind == 2
                else torch.exp(torch.sin(a)) if kind == 3
                else torch.tanh(a * b)
            )  # fmt: skip
        return torch.cat([v[-1] + v[0], v[-1] * v[-2]])

    return program


@claim(
    by="identity",
    sources=("A-095", "A-096", "B-157"),
    budget=0.5,
    full={"graphs": 200, "steps": 30},
)
def forward_mode(primal: bool = True, graphs: int = 15, steps: int = 8):
    r"""Forward-mode automatic differentiation.

    Forward mode evaluates a program, seen as a directed acyclic graph of elementary operations, on
    dual numbers $v + \dot v \epsilon$: tangents travel together with the primal values from inputs
    to outputs, and one pass gives one Jacobian-vector product. No separate backward pass and no
    stored tape are needed, but the primal values are: the tangent of $\sin v$ is $\cos(v)\,\dot v$.
    """
    for k in range(graphs):
        f, x, t = random_program(steps=steps), torch.randn(3), torch.randn(3)
        pushed = Tape(f, x if primal else torch.zeros(3)).push(t)
        yield equals(pushed.tangent, complex_step(f, x, t), graph=k)
    for x in (0.5, 1.0):
        at = torch.tensor(x if primal else 0.0)
        found = Tape(lambda v: torch.sin(v * v), at).push(torch.tensor(1.0)).tangent
        yield equals(found, 2 * x * torch.tensor(x * x).cos(), x=x)


forward_mode.erratum(
    "B-157",
    printed="For each parameter, compute the derivatives starting from the parameter (no forward "
    "pass here!)",
    right="What is avoided is a prior, stored forward pass: values and tangents go together.",
    why="without values the tangents of $\\sin(x^2)$ at two points would be the same",
    weight="soft",
    primal=False,
)


def pulled(tape: Tape, u: Tensor) -> Tensor:
    """The adjoint of the first input, by the engine."""
    return tape.pull(u).gradients[0]


def assigned(tape: Tape, u: Tensor) -> Tensor:
    """The same with a fault: a node keeps the last contribution to its adjoint only."""
    values: list[Any] = []
    for step in tape.steps:
        x = [values[p] for p in step.parents]
        values.append(step.operation.value(*x, **step.knobs) if step.parents else step.value)
    adjoints = {tape.end: u}
    for i in range(tape.end, -1, -1):
        step = tape.steps[i]
        for k, p in enumerate(step.parents):
            arguments = [values[q] for q in step.parents]
            adjoints[p] = step.pull(k, adjoints[i], arguments, values[i])
    return adjoints[0]


@claim(
    by="identity",
    sources=("A-095", "A-097", "B-156"),
    budget=0.5,
    full={"graphs": 200, "steps": 30},
)
def reverse_mode(pull: Callable[[Tape, Tensor], Tensor] = pulled, graphs: int = 15, steps: int = 8):
    r"""Reverse-mode automatic differentiation.

    Reverse mode first evaluates and records the graph, then propagates adjoints $\bar v =
    \partial f / \partial v$ from the output to the inputs, adding up the contributions of all uses
    of a node; one pass gives a whole vector-Jacobian product, and $\bar u^T (J \dot x) =
    (J^T \bar u)^T \dot x$. Backpropagation is the case of a scalar loss on a layered graph.
    """
    for k in range(graphs):
        f, x = random_program(steps=steps), torch.randn(3)
        t, u = torch.randn(3), torch.randn(2)
        tape = Tape(f, x)
        gradient = pull(tape, u)
        yield equals(gradient, complex_step(f, x).T @ u, graph=k)
        yield equals(gradient @ t, u @ tape.push(t).tangent, graph=k)
    x = torch.randn(3)
    yield equals(pull(Tape(lambda x: (x * x).sum(), x), torch.ones(())), 2 * x)


reverse_mode.foil("adjoints assigned, not added: $x \\cdot x$ would have slope $x$", pull=assigned)


def layered(n: int, m: int, *, steps: int = 6, width: int = 4) -> tuple[Program, int]:
    """A random graph from n numbers to m, every node of which is used, and its count of edges."""
    first, last = torch.randn(n, width) / n**0.5, torch.randn(width, m) / width**0.5
    kinds = torch.randint(0, 3, (steps,)).tolist()
    places = [int(torch.randint(0, k + 1, ())) for k in range(steps)]

    def program(x: Any) -> Any:
        v = [x @ first.to(x.dtype)]
        for kind, i in zip(kinds, places, strict=True):
            a, b = v[-1], v[i]
            v.append(torch.tanh(a) if kind == 0 else torch.sin(a * b) if kind == 1 else a + b)
        return v[-1] @ last.to(x.dtype)

    return program, 2 + sum((1, 3, 2)[kind] for kind in kinds)


@claim(
    by="identity",
    sources=("A-096", "A-097", "B-158", "B-159", "B-160"),
    budget=1.0,
    full={"sizes": (1, 5, 20, 80)},
)
def autodiff_cost(exchanged: bool = False, sizes: tuple[int, ...] = (1, 4, 12)):
    r"""The cost of forward and reverse mode.

    For $f: \mathbb{R}^N \to \mathbb{R}^M$ on a graph with $V$ nodes and $E$ edges the full Jacobian
    takes $N$ forward passes or $M$ reverse passes, each of which visits every edge once: $O(N (V +
    E))$ against $O(M (V + E))$. Training has $M = 1$ and $N$ in the millions, the reverse-mode
    regime; forward mode wins if $N \ll M$.
    """
    for n in sizes:
        for m in sizes:
            f, edges = layered(n, m)
            x = torch.randn(1, n)
            tape = Tape(f, x)
            passes = (m, n) if exchanged else (n, m)
            forward = tape.jacobian("forward")
            yield equals(forward.cost.edges, passes[0] * edges, N=n, M=m)
            reverse = tape.jacobian("reverse")
            yield equals(reverse.cost.edges, passes[1] * edges, N=n, M=m)
            yield equals(forward.matrix, complex_step(f, x).view(m, n), N=n, M=m)
            yield equals(reverse.matrix, forward.matrix, N=n, M=m)


autodiff_cost.foil("forward mode does not scale with the outputs", exchanged=True)


def sines(x: Any, k: int) -> Any:
    """A chain of k sines."""
    for _ in range(k):
        x = torch.sin(x)
    return x


@claim(by="identity", sources=("A-097", "B-161"), budget=0.5, full={"lengths": (10, 100, 1000)})
def reverse_memory(growth: int = 1, keeps: str = "s", lengths: tuple[int, ...] = (10, 30, 100)):
    r"""The memory price of reverse mode.

    Reverse mode has to keep (or recompute) the intermediate values of the forward pass until the
    backward pass has used them: on a chain of $k$ operations such as sines its peak number of live
    intermediates grows like $k$, while forward mode needs a constant number.
    """
    peaks, x = [], torch.randn(())
    for k in lengths:
        tape = Tape(lambda x, k=k: sines(x, k), x)
        tape.steps = tuple(
            step._replace(operation=step.operation._replace(keeps=keeps)) if step.parents else step
            for step in tape.steps
        )
        value, slope = x, torch.ones(())
        for _ in range(k):
            value, slope = value.sin(), slope * value.cos()
        push = tape.push()
        yield equals(push.tangent, slope, k=k)
        try:
            pull = tape.pull()
        except AttributeError:  # a local derivative asked for a value that is gone
            yield equals(0, 1, k=k)
            return
        yield equals(pull.gradients[0], slope, k=k)
        peaks.append((k, push.cost.live, pull.cost.live))
    for k, forward, reverse in peaks[1:]:
        yield equals(forward, peaks[0][1], k=k)
        yield equals(reverse - peaks[0][2], growth * (k - peaks[0][0]), k=k)


reverse_memory.foil("a constant number of values is not enough", growth=0)
reverse_memory.foil("values freed in the forward pass are missed in the backward one", keeps="")


def product(factors: list[Tensor], order: str) -> tuple[Tensor, int]:
    """The product of matrices from one end, and its number of multiplications."""
    work = 0
    total, *rest = factors if order == "left" else factors[::-1]
    for factor in rest:
        a, b = (total, factor) if order == "left" else (factor, total)
        work += a.shape[0] * a.shape[1] * b.shape[1]
        total = a @ b
    return total, work


@claim(by="identity", sources=("B-152",), budget=0.5, full={"k": 30, "n": 100})
def multiplication_order(order: str = "left", matrix_power: int = 3, k: int = 10, n: int = 30):
    r"""Multiplying the Jacobian chain from the loss side.

    Because $\partial \ell$ is a row vector, evaluating $\partial \ell \cdot \partial F_k \cdots
    \partial F_1$ from the left needs vector-matrix products only, $\sum_l n_l n_{l-1}$
    multiply-adds, against matrix-matrix products from the right: for $k$ layers of width $n$ the
    ratio is $\frac{(k - 1) n + 1}{k}$. This order is backpropagation: a pull does it.
    """
    row = torch.randn(1, n)
    factors = [torch.randn(n, n) / n**0.5 for _ in range(k)]
    left, left_work = product([row, *factors], order)
    right, right_work = product([row, *factors], "right")
    yield equals(left, right, k=k)
    yield equals(left_work, k * n**2, k=k)
    yield equals(right_work, (k - 1) * n**matrix_power + n**2, k=k)
    yield equals(right_work * k, left_work * ((k - 1) * n + 1), k=k)

    def loss(x: Any) -> Any:
        for factor in factors[::-1]:
            x = factor @ x
        return row @ x

    pull = Tape(loss, torch.randn(n, 1)).pull(torch.ones(1, 1))
    yield equals(pull.gradients[0].T, left, k=k)
    yield equals(pull.cost.work, 2 * (left_work + n), k=k)  # one half for the values


multiplication_order.foil("from the right it is not as cheap", order="right")
multiplication_order.foil("a matrix-matrix product costs more than $n^2$", matrix_power=2)
