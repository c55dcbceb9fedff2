"""The laws of instruments: measure any module, and leave it as it was found.

An instrument is called as `instrument(model, data)`, on the models given and on a zoo of awkward
ones. All calls are made on deep copies of the models.

| law | an instrument keeps it if |
|---|---|
| finite | it gives numbers, all finite |
| untouched | parameters, gradients, buffers, every training and requires_grad flag, the number of hooks, all other attributes of modules, the random states and the data are afterwards what they were, and `torch.save` takes the model if it did before |
| repeatable | asked again, after reseeding, it gives the same bits |
| batch_split | (per example) two halves of the data give the two halves of the result |
| permutation | (per example) permuted data give the permuted result |
"""  # noqa: E501

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.randomness import own_randomness, reseed
from vademecum.testing import laws

__all__ = ["INSTRUMENT_LAWS", "awkward_models", "check_instrument"]

Data = Tensor | tuple[Any, ...]


def check_instrument(
    instrument: Callable[[nn.Module, Any], Any],
    models: Mapping[str, nn.Module] | list[nn.Module] | tuple[nn.Module, ...] | nn.Module,
    data: Data,
    *,
    per_example: bool = False,
    outputs: int | None = 3,
    skip: Mapping[str, str] | None = None,
    tol: float | None = None,
) -> tuple[str, ...]:
    """Hold an instrument to its laws, on the models given and on awkward ones.

    Args:
        instrument: A function of a module and data; fix its knobs with `functools.partial`.
        models: A module, several, or several by name.
        data: A tensor with one example a row, or a tuple that starts with one.
        per_example: Whether the result has one row for each example. If so, the models are also
            asked in eval mode about parts and permutations of the data.
        outputs: How many numbers the awkward models give for an example; None for no such models.
        skip: Reasons by the names of laws, or of awkward models, to leave out.
        tol: What results that should agree may differ by, in place of the rounding that is
            expected of their dtype.

    Returns:
        The names of the laws that were checked and hold.

    Raises:
        BrokenLaw: At the first law that does not hold.
        ValueError: If `skip` names what is neither a law nor an awkward model.

    Example:
        >>> def scale(model, x):
        ...     with torch.no_grad():
        ...         return model.eval()(x).norm(dim=1)
        >>> check_instrument(scale, nn.Dropout(), torch.randn(4, 3))
        Traceback (most recent call last):
        vademecum.testing.laws.BrokenLaw: scale on Dropout breaks the law 'untouched': training
        flag of the module itself changed from True to False
    """
    x = data[0] if isinstance(data, tuple) else data
    zoo = {} if outputs is None else awkward_models(x, outputs=outputs)
    wanted = {k: v for k, v in INSTRUMENT_LAWS.items() if per_example or v not in _PER_EXAMPLE}
    name = getattr(instrument, "__name__", type(instrument).__name__)
    others = (*zoo, *INSTRUMENT_LAWS)
    held: tuple[str, ...] = ()
    for at, model in [*_named(models), *((k, v) for k, v in zoo.items() if k not in (skip or {}))]:
        case = _Measurement(instrument, model, data, tol)
        held = laws.enforce(wanted, case, f"{name} on {at}", skip, also=others)
    return held


def _named(models: Any) -> list[tuple[str, nn.Module]]:
    if isinstance(models, nn.Module):
        models = [models]
    if isinstance(models, Mapping):
        return list(models.items())
    return [(type(model).__name__, model) for model in models]


def awkward_models(x: Tensor, *, outputs: int = 3) -> dict[str, nn.Module]:
    """Small models for rows shaped like those of `x`, each with something that trips instruments.

    They have random weights and gradients, and come in a mixture of train and eval mode.

    Args:
        x: Floating-point examples; the models are made in its dtype and on its device.
        outputs: How many numbers they give for each example.

    Example:
        >>> list(awkward_models(torch.zeros(2, 5)))
        ['batch_norm', 'tied', 'frozen', 'dropout', 'nested', 'no_parameters']
    """
    if not x.is_floating_point() or x.ndim < 2:
        raise ValueError(
            f"awkward models need rows of floats, got {x.dtype} of shape {tuple(x.shape)}; "
            "outputs=None leaves them out"
        )
    d, h = prod(x.shape[1:]), 4
    with own_randomness():
        tied = [nn.Linear(h, h), nn.Linear(h, h)]
        tied[1].weight = tied[0].weight
        zoo = {
            "batch_norm": _net(d, nn.BatchNorm1d(h), nn.Linear(h, outputs)),
            "tied": _net(d, tied[0], nn.Tanh(), tied[1], nn.Linear(h, outputs)),
            "frozen": _net(d, nn.Linear(h, outputs)),
            "dropout": _net(d, nn.Dropout(0.5), nn.Linear(h, outputs)),
            "nested": _net(d, nn.Sequential(nn.Sequential(nn.ReLU(), nn.Linear(h, outputs)))),
            "no_parameters": nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(outputs)),
        }
        zoo["frozen"][1].requires_grad_(False)
        zoo["tied"][2].eval()
        zoo["nested"].eval()
        for model in zoo.values():
            model.to(x.device, x.dtype)
            for p in model.parameters():
                p.grad = torch.randn_like(p)
    return dict(zoo)


def _net(d: int, *layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(d, 4), nn.Tanh(), *layers)


@dataclass
class _Measurement:
    instrument: Callable[[nn.Module, Any], Any]
    model: nn.Module
    data: Data
    tol: float | None

    def copy(self) -> nn.Module:
        model = deepcopy(self.model)
        for p, q in zip(model.parameters(), self.model.parameters(), strict=True):
            p.grad = None if q.grad is None else q.grad.detach().clone()
        return model

    def ask(self, model: nn.Module, data: Data | None = None) -> list[tuple[str, Tensor]]:
        result = self.instrument(model, self.rows() if data is None else data)
        return [(name, x.detach()) for name, x in laws.named_tensors(result, "result")]

    def rows(self, index: Tensor | None = None) -> Data:
        """A copy of the data, or of those examples."""
        n = self.examples
        many = isinstance(self.data, tuple)
        part = tuple(
            (x.clone() if index is None or x.shape[:1] != (n,) else x[index.to(x.device)])
            if isinstance(x, Tensor)
            else x
            for x in (self.data if many else (self.data,))
        )
        return part if many else part[0]

    @property
    def examples(self) -> int:
        return len(self.data[0] if isinstance(self.data, tuple) else self.data)

    @cached_property
    def first(self) -> tuple[list[tuple[str, Tensor]], list[str]]:
        """What the instrument answers, and what it changed."""
        model, data = self.copy(), self.rows()
        before = laws.snapshot(model)
        result = self.ask(model, data)
        changed = list(laws.changes(before, laws.snapshot(model)))
        for old, new in zip(_tensors(self.data), _tensors(data), strict=True):
            changed += [] if laws.same(old, new) else ["the data were changed in place"]
        return result, changed

    def allowed(self, result: Tensor) -> float:
        if self.tol is not None:
            return self.tol
        given = list(laws.named_tensors(self.data))
        entries = sum(x.numel() for _, x in given) // self.examples
        size = sum(p.numel() for p in self.model.parameters())
        return laws.rounding(entries + size, given)(result)


def _tensors(data: Data) -> list[Tensor]:
    return [x for _, x in laws.named_tensors(data)]


def _finite(case: _Measurement) -> Iterator[str]:
    result, _ = case.first
    if not result:
        yield "its result holds no number"
    for name, x in result:
        bad = int((~torch.isfinite(x)).sum())
        if bad:
            yield f"{bad} of {x.numel()} entries of {name} are not finite"


def _untouched(case: _Measurement) -> Iterator[str]:
    yield from case.first[1]


def _repeatable(case: _Measurement) -> Iterator[str]:
    model, answers = case.copy(), []
    for _ in range(2):
        reseed(0)
        answers.append(case.ask(model))
    for complaint in laws.differences(answers[1], answers[0], lambda _: 0.0):
        yield f"{complaint} between two calls"


def _batch_split(case: _Measurement) -> Iterator[str]:
    model, n = case.copy().eval(), case.examples
    full = case.ask(model)
    for name, x in full:
        if x.shape[:1] != (n,):
            yield f"{name} has shape {tuple(x.shape)} for {n} examples"
    for index in torch.arange(n).tensor_split(2):
        wanted = [(name, x[index.to(x.device)]) for name, x in full]
        for complaint in laws.differences(case.ask(model, case.rows(index)), wanted, case.allowed):
            yield f"{complaint} between {len(index)} examples and the same among {n}"


def _permutation(case: _Measurement) -> Iterator[str]:
    model, index = case.copy().eval(), torch.arange(case.examples).roll(1).flip(0)
    wanted = [(name, x[index.to(x.device)]) for name, x in case.ask(model)]
    found = case.ask(model, case.rows(index))
    for complaint in laws.differences(found, wanted, case.allowed):
        yield f"{complaint} when the examples are permuted"


_PER_EXAMPLE = (_batch_split, _permutation)
INSTRUMENT_LAWS = {
    law.__name__[1:]: law for law in (_finite, _untouched, _repeatable, *_PER_EXAMPLE)
}
"""The laws of instruments by name, the last two of which hold per example."""
