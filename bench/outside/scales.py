r"""The instruments of `regularization` on scales and units, against scaled twins and outputs.

What is said to be scale invariant is multiplied by 3/2 in the twin, with batch normalisation as in
training and next to no $\delta$: the loss must stay. Units that clip, such as ReLU6, are invariant
until they do; so a factor close to 1 decides where the loss has moved, with as much less allowed.
A network with other units must give the same outputs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bench.outside.answers import complaint
from bench.outside.cases import Subject
from bench.outside.derivatives import Check
from bench.outside.oracles import Oracle
from vademecum.regularization import permute_units, rescale_units, scale_invariance

__all__ = ["SCALES"]

_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_NONE = "model must have units that can change, got none"


def _loss(o: Oracle) -> float:
    """That of the twin, by statistics of the batch, which are not kept."""
    norms = [m for m in o.model.modules() if "norm" in type(m).__name__.lower()]
    kept = [dict(vars(m)) for m in norms]
    for module in norms:
        if isinstance(module, _BATCH):
            module.train()
            module.momentum = 0.0
        for key in ("eps", "variance_epsilon"):
            if isinstance(vars(module).get(key), float):
                setattr(module, key, 1e-12)
    try:
        return float(o.loss().detach())
    finally:
        for module, before in zip(norms, kept, strict=True):
            vars(module).update(before)


def _invariance(s: Subject, o: Oracle) -> Iterator[str]:
    output = s.output if s.whole is ... else s.whole
    found = scale_invariance(s.model, s.x, s.y, loss=s.loss, output=output)
    places = dict(o.model.named_parameters(remove_duplicate=False))
    before = _loss(o)
    said = [row for row in found.tensors if row.invariant in ("units", "tensor", "no gradient")]
    for row in said[:: max(len(said) // 5, 1)]:
        factors = (1.5, 1 + 2**-10) if o.case.coarse == torch.float64 else (1.5,)
        moves = [_scaled_loss(o, places[row.name], factor) - before for factor in factors]
        allowed = 1e-3 * abs(before) + 1e-6
        if not any(abs(m) <= 2 * (c - 1) * allowed for c, m in zip(factors, moves, strict=True)):
            yield f"{row.name} times {factors} changes the loss of {before:.6g} by {moves}"


def _scaled_loss(o: Oracle, p: nn.Parameter, factor: float) -> float:
    own = p.detach().clone()
    try:
        with torch.no_grad():
            p.mul_(factor)
        return _loss(o)
    finally:
        with torch.no_grad():
            p.copy_(own)


def _changed(change: Callable[..., Any]) -> Check:
    def check(s: Subject, o: Oracle) -> Iterator[str]:
        with torch.random.fork_rng(devices=[]):
            try:
                found = change(s.model, s.x)
            except ValueError as error:
                if str(error).startswith(_NONE):  # which says why, layer by layer
                    return
                raise
        twin, o.model = o.model, found.model.eval()
        try:
            yield complaint("outputs", o.output_of().detach(), o.output, o.case.coarse)
        finally:
            o.model = twin

    return check


SCALES: dict[str, Check] = {
    "scale_invariance": _invariance,
    "permute_units": _changed(permute_units),
    "rescale_units": _changed(rescale_units),
}
"""What asks each instrument."""
