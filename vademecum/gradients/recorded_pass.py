r"""One forward pass that remembers, and backward passes that stop at the layers.

Hooks note for every call of a layer its input $a$ and the place of its output $z$ in autograd's
graph; they are gone when the pass is over. A backward pass then asks for $b = \partial \langle u, f
\rangle / \partial z$ alone, so that no parameter's gradient is ever summed over the examples.

Whether the layers' rules tell the whole story is found out on two and on three of the examples:

- in autograd's graph every use of a parameter must be one of the recorded calls (so weights that
  are tied, shared or used by hand are seen);
- the first axis of every input and output must be as long as there are examples, and an example
  must have the same output in any company and at any place: the gradient of a sum over examples can
  be taken apart only if they do not influence each other;
- if example $i$ is weighted by $r_i$, what comes back to row $i$ of a layer must grow by $r_i$: a
  model may sort the examples on the way. Where indexing could do so, each pass is examined.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from vademecum.gradients.functional import Functional
from vademecum.gradients.inputs import Entangled, count_examples, rows
from vademecum.gradients.layer_rules import known

__all__ = ["Call", "Pass", "Plan", "differentiable", "record", "study"]

_PORTION = {"cpu": 2**24}  # bytes for going back, beyond which larger portions do not pay
_MOVERS = (  # operations that may send rows to other places
    "Index", "Gather", "Scatter", "Flip", "Roll", "Sort", "Take", "MaskedSelect", "MaskedScatter",
)  # fmt: skip


class Call(NamedTuple):
    """One call of a layer: its input, where its output is in the graph, and its parameters."""

    module: nn.Module
    names: dict[str, str]  # of its parameters, as the module and as the model calls them
    a: Tensor
    version: int  # of the input, which an operation in place would move on
    z: GradientEdge
    lengths: tuple[int, int]  # of the first axes of input and output


class Pass(NamedTuple):
    """A forward pass: the parameters and the output, and the calls in between."""

    parameters: dict[str, Tensor]
    output: Tensor
    calls: list[Call]

    def backward(self, u: Float[Tensor, " g n *shape"]) -> list[Tensor | None]:
        """What comes back to each call from `g` cotangents, (g, n, ...); None where nothing does.

        On a CPU one pass follows the other, for the caches. Elsewhere they go together if they can,
        which saves the time between small operations. The graph is gone afterwards.
        """
        edges = [call.z for call in self.calls]
        pull = partial(torch.autograd.grad, self.output, edges, allow_unused=True)
        if len(u) > 1 and u.device.type != "cpu":
            with suppress(RuntimeError):  # an operation whose backward pass cannot be mapped
                return list(pull(u, retain_graph=True, is_grads_batched=True))
        found = [pull(v, retain_graph=i < len(u) - 1) for i, v in enumerate(u)]
        return [_stacked(list(each)) for each in zip(*found, strict=True)]


def _stacked(each: list[Tensor | None]) -> Tensor | None:
    some = [b for b in each if b is not None]
    return None if len(some) < len(each) else some[0][None] if len(some) == 1 else torch.stack(some)


class Plan(NamedTuple):
    """What is known of a network: whether rules cover it, bytes and outputs for one example."""

    covered: bool
    saved: int
    shape: torch.Size

    def step(self, device: torch.device) -> int:
        """How many examples to take at a time, for speed."""
        return max(1, _PORTION.get(device.type, 2**32) // self.saved)


def study(f: Functional, x: Any, *, wrt: Literal["theta", "x"] = "theta") -> Plan:
    """How a network treats examples, from two passes with few of them.

    Raises:
        ValueError: If there is nothing to differentiate, or the examples influence each other.
    """
    n = count_examples(x)
    few = [0, n // 2, n - 1]
    two, two_bytes = _weighed(f, rows(x, itemgetter(few[:0:-1])), wrt)
    three, three_bytes = _weighed(f, rows(x, itemgetter(few)), wrt)
    _insist_on_independence(f, differentiable(three.output, 3)[1:], differentiable(two.output, 2))
    alike = [c.module for c in two.calls] == [c.module for c in three.calls]
    covered = alike and _covers(two) and _covers(three) and _separate(three.output, _edges(three))
    if not covered:
        done = three if wrt == "x" else _run_inputs(f, rows(x, itemgetter(few)))
        if done.parameters and not _separate(done.output, list(done.parameters.values())):
            raise Entangled(
                "model must treat examples independently in evaluation mode, but outputs have"
                " derivatives in the inputs of other examples"
            )
    return Plan(covered, max(three_bytes - two_bytes, 1), three.output.shape[1:])


def record(f: Functional, x: Any) -> Pass | None:
    """A forward pass with all that the layers' rules need, or None if they do not cover it."""
    done = _run(f, x)
    differentiable(done.output, count_examples(x))
    return done if _covers(done) else None


def _weighed(f: Functional, x: Any, wrt: str) -> tuple[Pass, int]:
    """A pass, and the bytes that autograd keeps for going back, with those of the parameters."""
    kept: dict[int, int] = {}

    def weigh(t: Tensor) -> Tensor:
        place = t.untyped_storage().data_ptr()
        kept[place] = max(kept.get(place, 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda t: t):
        done = _run(f, x) if wrt == "theta" else _run_inputs(f, x)
    return done, sum(kept.values())


def differentiable(output: Any, n: int | None = None, *, graph: bool = True) -> Tensor:
    """The output of a network if it is a real tensor with a derivative, with `n` rows if given.

    Args:
        output: What the network gave.
        n: The number of rows that it must have.
        graph: Whether autograd must know where it came from.
    """
    if not isinstance(output, Tensor):
        raise ValueError(f"model must give a tensor, got {type(output).__name__}")
    if not output.is_floating_point():
        raise ValueError(f"outputs of model must be floating point, got {output.dtype}")
    if graph and not output.requires_grad:
        raise ValueError(
            "outputs of model must be differentiable, and these are constants"
            + (" in torch.inference_mode()" if torch.is_inference_mode_enabled() else "")
        )
    if n is not None and output.shape[:1] != (n,):
        raise Entangled(
            f"model must give one output for each of {n} examples, got shape {tuple(output.shape)}"
        )
    return output


def _owners(f: Functional) -> dict[nn.Module, dict[str, str]]:
    """The submodules with parameters of their own, and how the model calls these."""
    names = {id(p): name for name, p in f.parameters.items()}
    owned = {
        module: {
            own: names[id(p)] for own, p in module.named_parameters(recurse=False) if id(p) in names
        }
        for module in f.model.modules()
    }
    return {module: own for module, own in owned.items() if own}


def _run(f: Functional, x: Any) -> Pass:
    if not f.size:
        raise ValueError("model must have parameters to differentiate, got none")
    parameters = {name: p.detach().requires_grad_() for name, p in f.parameters.items()}
    calls: list[Call] = []

    def note(names: dict[str, str], module: Any, args: Any, z: Any) -> None:
        a = args[0] if args else None
        if isinstance(a, Tensor) and a.ndim and z.requires_grad:
            lengths = len(a), len(z)
            calls.append(Call(module, names, a, a._version, get_gradient_edge(z), lengths))

    with ExitStack() as stack, torch.enable_grad():
        for module, names in _owners(f).items():
            if known(module):  # and first, since other hooks may change the output
                hook = module.register_forward_hook(partial(note, names), prepend=True)
                stack.callback(hook.remove)
        return Pass(parameters, f.call(parameters, x), calls)


def _run_inputs(f: Functional, x: Any) -> Pass:
    """A pass with the floating-point inputs as parameters, or with none if they do not matter."""
    leaves: dict[str, Tensor] = {}

    def leaf(t: Tensor) -> Tensor:
        if t.is_floating_point():
            t = leaves[str(len(leaves))] = t.detach().clone().requires_grad_()
        return t

    with torch.enable_grad():
        output = f(f.theta, rows(x, leaf))
    return Pass(leaves if output.requires_grad else {}, output, [])


def _insist_on_independence(f: Functional, large: Tensor, small: Tensor) -> None:
    """Two examples must have the same outputs in other company and order, up to rounding."""
    large, small, gap = large.detach(), small.detach().flip(0), float("inf")
    if large.shape == small.shape:
        gap = float((large - small).abs().max())
    dtypes = {torch.float32, large.dtype, *(p.dtype for p in f.parameters.values())}
    rounding = max(torch.finfo(dtype).eps for dtype in dtypes)  # of the coarsest one on the way
    if gap > rounding**0.5 * (1 + float(large.abs().max())):
        raise Entangled(
            "model must treat examples independently in evaluation mode, but other examples, or"
            f" another order, moved an output by {gap:.3g}"
        )


def _edges(done: Pass) -> list[GradientEdge]:
    return [call.z for call in done.calls]


def _separate(output: Tensor, variables: Sequence[Tensor] | Sequence[GradientEdge]) -> bool:
    """Whether row i of all variables matters for the output of example i alone, up to rounding."""
    n, like = len(output), {"dtype": output.dtype, "device": output.device}
    # Weights that are powers of two change no rounding, in whatever precision the model computes.
    r = torch.tensor([2.0 ** (16 * (0.618 * i % 1) // 1 - 8) for i in range(n)], **like)
    u = (1 + torch.arange(output.numel() // n, **like)).cos().expand(n, -1)
    plain, weighted = (
        torch.autograd.grad(
            output, variables, each.reshape(output.shape), retain_graph=True, allow_unused=True
        )
        for each in (u, r[:, None] * u)
    )
    off = []
    for b, c in zip(plain, weighted, strict=True):
        if b is not None and c is not None:
            gap = (c / r.to(b.dtype).view(-1, *[1] * (b.ndim - 1)) - b).abs()
            off.append((gap > torch.finfo(b.dtype).eps ** 0.5 * b.abs().max()).any())
    return not off or not bool(torch.stack(off).any())


def _covers(done: Pass) -> bool:
    """Whether all uses of the parameters are recorded calls with the examples along the first axis.

    And with inputs that nothing has changed in place since, and rows that stay where they are.
    """
    leaves = {get_gradient_edge(p).node: name for name, p in done.parameters.items()}
    uses: Counter[str] = Counter()
    start = get_gradient_edge(done.output).node
    seen: set[Node] = {start}
    ahead = [start]
    while ahead:
        for node, _ in ahead.pop().next_functions:
            if node in leaves:
                uses[leaves[node]] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                ahead.append(node)
    live = [call for call in done.calls if call.z.node in seen]
    recorded = Counter(name for call in live for name in call.names.values())
    n = len(done.output)
    if uses != recorded or not all(
        call.lengths == (n, n) and call.a._version == call.version for call in live
    ):
        return False
    movers = any(node.name().startswith(_MOVERS) for node in seen)
    return not movers or _separate(done.output, _edges(done))
