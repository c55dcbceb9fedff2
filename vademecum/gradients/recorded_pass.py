r"""One forward pass that remembers, and backward passes that stop at the layers.

Hooks note for every call of a layer its input $a$ and the place of its output $z$ in autograd's
graph; they are gone when the pass is over. A backward pass then asks for $b = \partial \langle u, f
\rangle / \partial z$ alone, so that no parameter's gradient is ever summed over the examples.

Whether the layers' rules tell the whole story is found out on the first few examples:

- in autograd's graph every use of a parameter must be one of the recorded calls (so weights that
  are tied, shared or used by hand are seen);
- with two and with three examples the first axis of every input and output must be that long, and
  the first example must have the same output in both companies: the gradient of a sum over
  examples can be taken apart only if they do not influence each other.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from vademecum.gradients.functional import Functional
from vademecum.gradients.inputs import count_examples, rows
from vademecum.gradients.layer_rules import known

__all__ = ["Call", "Pass", "Plan", "Entangled", "cotangents", "differentiable", "record", "study"]

_PORTION = {"cpu": 2**24}  # bytes for going back, beyond which larger portions do not pay


class Entangled(ValueError):
    """Examples that influence each other, or of which there is no telling."""


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

        The graph is gone afterwards.
        """
        return cotangents(self.output, [call.z for call in self.calls], u)


def cotangents(
    output: Tensor,
    variables: Sequence[Tensor] | Sequence[GradientEdge],
    u: Float[Tensor, " g *shape"],
    *,
    keep: bool = False,
) -> list[Tensor | None]:
    """What comes back from `g` cotangents of an output to variables in its graph, stacked.

    On a CPU one pass follows the other, for the caches. Elsewhere they go together if they can,
    which saves the time between small operations. The graph is gone afterwards unless kept.
    """
    if len(u) > 1 and u.device.type != "cpu":
        with suppress(RuntimeError):  # an operation whose backward pass cannot be mapped
            return list(
                torch.autograd.grad(
                    output, variables, u, retain_graph=True, allow_unused=True,
                    is_grads_batched=True,
                )
            )  # fmt: skip
    found = [
        torch.autograd.grad(
            output, variables, v, retain_graph=keep or i < len(u) - 1, allow_unused=True
        )
        for i, v in enumerate(u)
    ]
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
    count = count_examples(x)
    two, two_bytes = _weighed(f, rows(x, lambda t: t[:1].expand(2, *t.shape[1:])), wrt)
    three, three_bytes = _weighed(f, rows(x, lambda t: t[[i % count for i in range(3)]]), wrt)
    _insist_on_independence(differentiable(three.output, 3), differentiable(two.output, 2))
    alike = [c.module for c in two.calls] == [c.module for c in three.calls]
    covered = alike and _covers(two) and _covers(three)
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
        raise ValueError("outputs of model must be differentiable, and these are constants")
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
        if isinstance(a, Tensor) and isinstance(z, Tensor) and z.requires_grad and a.ndim * z.ndim:
            lengths = len(a), len(z)
            calls.append(Call(module, names, a, a._version, get_gradient_edge(z), lengths))

    with ExitStack() as stack, torch.enable_grad():
        for module, names in _owners(f).items():
            if known(module):  # and first, since other hooks may change the output
                hook = module.register_forward_hook(partial(note, names), prepend=True)
                stack.callback(hook.remove)
        return Pass(parameters, f.call(parameters, x), calls)


def _run_inputs(f: Functional, x: Tensor) -> Pass:
    with torch.enable_grad():
        return Pass({}, f(f.theta, x.detach().clone().requires_grad_()), [])


def _insist_on_independence(large: Tensor, small: Tensor) -> None:
    """The first example must have the same output whatever the others are, up to rounding."""
    one, other = large[0].detach(), small[0].detach()
    allowed = torch.finfo(one.dtype).eps ** 0.5 * (1 + float(one.abs().max()))
    gap = float((one - other).abs().max()) if one.shape == other.shape else float("inf")
    if gap > allowed:
        raise Entangled(
            "model must treat examples independently in evaluation mode, but other examples"
            f" moved the output of the first by {gap:.3g}"
        )


def _covers(done: Pass) -> bool:
    """Whether all uses of the parameters are recorded calls with the examples along the first axis.

    And with inputs that nothing has changed in place since.
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
    return uses == recorded and all(
        call.lengths == (n, n) and call.a._version == call.version for call in live
    )
