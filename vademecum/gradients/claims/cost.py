"""What it costs: automatic differentiation counted as torch runs it."""

import weakref
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from vademecum.claims import claim, complex_step, equals
from vademecum.gradients import Tape

PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "__rmatmul__", "multiply"}


class Watch(TorchFunctionMode):
    """Counts the products that torch is asked for, and the tensors that live at once."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.live = self.most_live = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function and count."""
        out = func(*args, **(kwargs or {}))
        self.products += func.__name__ in PRODUCTS
        if isinstance(out, Tensor):
            self.live += 1
            self.most_live = max(self.most_live, self.live)
            weakref.finalize(out, self._gone)
        return out

    def _gone(self) -> None:
        self.live -= 1


def watched(work: Callable[[], Any]) -> tuple[Any, Watch]:
    """What a function gives, and what was counted while it ran."""
    with Watch() as watch:
        result = work()
    return result, watch


def multiplications(work: Callable[[], Any]) -> tuple[Any, int]:
    """What a function gives, and torch's count of the multiplications in matrix products."""
    with FlopCounterMode(display=False) as counter:
        result = work()
    return result, counter.get_total_flops() // 2  # an addition goes with each


def layered(x: Tensor, m: int, *, steps: int = 4, width: int = 3) -> tuple[Callable, int, int]:
    """A random graph of products from n numbers to m, with its counts of nodes and of edges.

    At x the first values are between 0.8 and 1.2 in size, so that no product is tiny or huge.
    """
    first, last = torch.randn(x.shape[1], width), torch.randn(width, m)
    start = (0.8 + 0.4 * torch.rand(1, width)) * torch.randn(width).sign()
    first = first + x.T @ (start - x @ first) / x.square().sum()
    places = [int(torch.randint(0, k + 1, ())) for k in range(steps)]

    def program(x: Any) -> Any:
        v = [x @ first.to(x.dtype)]
        for i in places:
            v.append(v[-1] * v[i])
        return v[-1] @ last.to(x.dtype)

    return program, steps + 2, 2 * steps + 2


@claim(
    by="identity", sources=("A-096", "A-097", "B-158", "B-159", "B-160"), budget=1.0,
    full={"sizes": (1, 5, 20, 80)},
    short=r"f: \mathbb{R}^N \to \mathbb{R}^M: \quad O(N (V + E)) \text{ forward},"
    r" \quad O(M (V + E)) \text{ reverse}",
)  # fmt: skip
def autodiff_cost(exchanged: bool = False, sizes: tuple[int, ...] = (1, 4, 12)):
    r"""The cost of forward and reverse mode.

    For $f: \mathbb{R}^N \to \mathbb{R}^M$ on a graph with $V$ nodes and $E$ edges the full Jacobian
    takes $N$ forward passes or $M$ reverse passes, each of which visits every edge once: $O(N (V +
    E))$ against $O(M (V + E))$. Training has $M = 1$ and $N$ in the millions, the reverse-mode
    regime; forward mode wins if $N \ll M$.

    *Check.* On graphs all of whose nodes are products a pass has one product for each node and one
    for each edge. They are counted as torch is asked for them, and not by the engine.

    Knobs:
        exchanged: Whether the numbers of passes of the two modes change places.
        sizes: The numbers $N$ of inputs and $M$ of outputs, each with each.
    """
    for n in sizes:
        for m in sizes:
            x, at = torch.randn(1, n), {"N": n, "M": m}
            f, nodes, edges = layered(x, m)
            tape, wanted = Tape(f, x), complex_step(f, x).view(m, n)
            pairs = (m, n) if exchanged else (n, m)
            for mode, passes in zip(("forward", "reverse"), pairs, strict=True):
                found, watch = watched(lambda mode=mode, tape=tape: tape.jacobian(mode=mode))
                name = f"products in {mode} mode"
                yield equals(name, watch.products, passes * (nodes + edges), **at)
                name = f"edges visited in {mode} mode, as the engine says"
                yield equals(name, found.cost.edges, passes * edges, **at)
                yield equals(f"Jacobian in {mode} mode", found.matrix, wanted, **at)


autodiff_cost.foil("forward mode does not scale with the outputs", exchanged=True)


def sines(x: Any, k: int) -> Any:
    """A chain of k sines."""
    for _ in range(k):
        x = torch.sin(x)
    return x


@claim(
    by="identity", sources=("A-097", "B-161"), budget=1.0, full={"lengths": (10, 100, 1000)},
    short=r"\text{live values on a chain of } k \text{ operations: } O(k) \text{ in reverse mode,"
    r" } O(1) \text{ forward}",
)  # fmt: skip
def reverse_memory(
    growth: int = 1,
    kept: Literal["all", "last"] = "all",
    lengths: tuple[int, ...] = (5, 15, 40),
):
    r"""The memory price of reverse mode.

    Reverse mode has to keep (or recompute) the intermediate values of the forward pass until the
    backward pass has used them: on a chain of $k$ operations such as sines its peak number of live
    intermediates grows like $k$, while forward mode needs a constant number.

    *Check.* Tensors are counted as torch makes them and as they die, and not by the engine alone.

    Knobs:
        growth: How many more values reverse mode keeps for each further operation.
        kept: Which values the local derivatives of reverse mode are taken at: each at its own, or
            all at the last one, since no other is there any more.
        lengths: The numbers $k$ of operations in the chains.
    """
    peaks, x = [], 0.5 + torch.rand(())  # where a sine is far from linear, and its slope from 0
    for k in lengths:
        tape, values = Tape(lambda x, k=k: sines(x, k), x), [x]
        for _ in range(k):
            values.append(values[-1].sin())
        left = values[:-1] if kept == "all" else values[-1:] * k
        slope, stated = (torch.stack(used).cos().prod() for used in (values[:-1], left))
        push, forward = watched(tape.push)
        pull, reverse = watched(tape.pull)
        name = "derivative in {} mode, in units of the product of the local ones"
        yield equals(name.format("forward"), push.tangent / slope, 1.0, k=k)
        yield equals(name.format("reverse"), pull.gradients[0] / stated, 1.0, k=k)
        peaks.append((k, forward.most_live, push.cost.live, reverse.most_live, pull.cost.live))
    shortest = peaks[0]
    for k, *counts in peaks[1:]:
        more = [count - first for count, first in zip(counts, shortest[1:], strict=True)]
        per_operation = growth * (k - shortest[0])
        yield equals("further live tensors in forward mode", more[0], 0, k=k)
        yield equals("further live values in forward mode, as the engine says", more[1], 0, k=k)
        yield equals("further live tensors in reverse mode", more[2], per_operation, k=k)
        name = "further live values in reverse mode, as the engine says"
        yield equals(name, more[3], per_operation, k=k)


reverse_memory.foil("a constant number of values is not enough", growth=0)
reverse_memory.foil("values freed in the forward pass are missed in the backward one", kept="last")


def product(factors: list[Tensor], order: str) -> Tensor:
    """The product of matrices from one end."""
    total, *rest = factors if order == "left" else factors[::-1]
    for factor in rest:
        total = total @ factor if order == "left" else factor @ total
    return total


@claim(
    by="identity", sources=("B-152",), budget=0.5, full={"k": 30, "n": 100},
    short=r"\partial \ell \cdot \partial F_k \cdots \partial F_1 \text{ from the left: }"
    r" \sum_l n_l n_{l-1} \text{ multiply-adds}",
)  # fmt: skip
def multiplication_order(
    order: Literal["left", "right"] = "left", matrix_power: int = 3, k: int = 10, n: int = 30
):
    r"""Multiplying the Jacobian chain from the loss side.

    Because $\partial \ell$ is a row vector, evaluating $\partial \ell \cdot \partial F_k \cdots
    \partial F_1$ from the left needs vector-matrix products only, $\sum_l n_l n_{l-1}$
    multiply-adds, against matrix-matrix products from the right: for $k$ layers of width $n$ the
    ratio is $\frac{(k - 1) n + 1}{k}$. This order is backpropagation: a pull does it.

    *Check.* The multiplications are those that torch counts while it runs.

    Knobs:
        order: From which side the product is taken that should be taken from the left.
        matrix_power: The power of $n$ that a product of two matrices costs.
        k: How many layers there are.
        n: How wide they are.
    """
    for widths in ((n,) * (k + 1), (7, 5, 2, 11, 3)):
        row = torch.randn(1, widths[-1])
        sizes = list(zip(widths[1:], widths[:-1], strict=True))[::-1]  # from the loss to the input
        factors = [torch.randn(a, b) / b**0.5 for a, b in sizes]
        at = {"layers": len(factors), "widths": "equal" if len(set(widths)) == 1 else "different"}
        left, left_work = multiplications(lambda f=factors, r=row: product([r, *f], order))
        right, right_work = multiplications(lambda f=factors, r=row: product([r, *f], "right"))
        yield equals("the product from the left and from the right", left, right, **at)
        needed = sum(a * b for a, b in sizes)
        yield equals("multiplications from the left", left_work, needed, **at)
        if at["widths"] == "equal":
            stated = (k - 1) * n**matrix_power + n**2
            yield equals("multiplications from the right", right_work, stated, **at)
            name = "multiplications from the right, times $k$"
            yield equals(name, right_work * k, left_work * ((k - 1) * n + 1), **at)

        def loss(x: Any, row: Tensor = row, factors: list[Tensor] = factors) -> Any:
            for factor in factors[::-1]:
                x = factor @ x
            return row @ x

        tape = Tape(loss, torch.randn(widths[0], 1))
        pull, work = multiplications(lambda tape=tape: tape.pull(torch.ones(1, 1)))
        yield equals("gradient by a pull", pull.gradients[0].T, right, **at)
        both = 2 * (needed + widths[-1])  # one half for the values; the loss is a factor, too
        yield equals("multiplications of values and pull", work, both, **at)
        name = "multiplications of values and pull, as the engine says"
        yield equals(name, pull.cost.work, both, **at)


multiplication_order.foil("from the right it is not as cheap", order="right")
multiplication_order.foil("a matrix-matrix product costs more than $n^2$", matrix_power=2)
