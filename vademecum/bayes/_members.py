"""What many weights of one network give: outputs of draws, whatever the draws come from.

Draws that are vectors of parameters go through the network together, by `torch.func.vmap`, in
portions of examples and of draws that keep to a memory limit; networks with statistics of their own
go one by one.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.arrays import portions
from vademecum.gradients import functional
from vademecum.models import (
    Output,
    call_arguments,
    cannot_be_mapped,
    chosen_output,
    evaluation,
    map_tensors,
    named_tensors,
    twice_differentiable,
    warn_of_slow_path,
)
from vademecum.models.second_derivatives import weighing

__all__ = ["Members", "members_of_modules", "members_of_vectors"]

_PORTION = 2**27  # bytes at a time where there is no limit: beyond that caches do not help


class Members(NamedTuple):
    """Outputs of all draws for some examples, (S, n, ...), the draws' shares, and bytes each."""

    outputs: Callable[[Any], Tensor]
    weights: Tensor
    bytes_each: int  # of the outputs of all draws for an example


def members_of_vectors(
    model: nn.Module, theta: Tensor, weights: Tensor | None, x: Any, *, memory: int | None,
    frozen: bool, output: Output,
) -> Members:  # fmt: skip
    """Draws as the rows of a matrix, (S, P)."""
    f = functional(model, frozen=frozen, output=output)
    if theta.shape[-1] != f.size:
        raise ValueError(
            f"samples must be of the model's {f.size} parameters, got draws of {theta.shape[-1]}"
        )
    floats("samples", theta)
    weights, top = _shares(weights, theta), theta[0].detach().to(f.device, f.dtype)
    with torch.no_grad():
        one = _tensor(f(top, _first(x, 1)))
    passing = _passing(lambda n: f(top.clone().requires_grad_(), _first(x, n)), x)
    mapped = True

    def outputs(x: Any) -> Tensor:
        nonlocal mapped
        n = len(next(_tensors(x)))
        each = f.size * f.dtype.itemsize + n * (passing + one.nbytes)
        with torch.no_grad():
            found = []
            for here in portions(len(theta), each=each, memory=memory or _PORTION):
                some = theta[here].to(f.device, f.dtype)
                if mapped:
                    try:
                        found.append(torch.func.vmap(f, (0, None))(some, x))
                        continue
                    except RuntimeError as error:
                        if not cannot_be_mapped(error):
                            raise
                        warn_of_slow_path("draws are asked one by one", error)
                        mapped = False
                found.extend(f(one, x)[None] for one in some)
            return torch.cat(found)

    return Members(outputs, weights.to(one), len(theta) * one.nbytes)


def members_of_modules(
    modules: list[Any], weights: Tensor | None, x: Any, *, output: Output
) -> Members:
    """Networks, or functions without arguments that make them, one after the other."""

    def ask(module: Any, x: Any) -> Tensor:
        module = module if isinstance(module, nn.Module) else module()
        args, kwargs = call_arguments(map_tensors(x, Tensor.clone))
        with torch.no_grad(), evaluation(module):
            return _tensor(chosen_output(module(*args, **kwargs), output))

    one = ask(modules[0], _first(x, 1))
    shares = _shares(weights, one.new_empty(len(modules)))

    def outputs(x: Any) -> Tensor:
        return torch.stack([ask(module, x) for module in modules])

    return Members(outputs, shares, len(modules) * one.nbytes)


def _shares(weights: Tensor | None, draws: Tensor) -> Tensor:
    if weights is None:
        return torch.full(draws.shape[:1], 1 / len(draws), dtype=draws.dtype, device=draws.device)
    return weights.to(draws)


def _tensor(z: Any) -> Tensor:
    if not isinstance(z, Tensor) or not z.is_floating_point() or z.ndim == 0:
        kind = f"{z.dtype} of shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"model must give a tensor of real numbers, got {kind}: set output")
    return z


def _first(x: Any, n: int) -> Any:
    return map_tensors(x, itemgetter(slice(n)))


def _tensors(x: Any) -> Any:
    return (t for _, t in named_tensors(x))


def _passing(run: Callable[[int], Any], x: Any) -> int:
    """The bytes that activations of an example take, by what a graph keeps for two and for one."""
    kept = []
    for n in (1, min(2, len(next(_tensors(x))))):
        with weighing() as found, twice_differentiable():
            made = run(n)
        kept.append(sum(found.values()))
        del made
    return max(kept[1] - kept[0], 0)
