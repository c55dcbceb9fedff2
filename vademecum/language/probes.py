r"""Linear probes: what can be read off a layer by a linear map.

The representation $h_l(x)$ of layer $l$ is frozen; a linear map is fitted from it to a property
$y$ of the input, by softmax regression for classes and by ridge regression for numbers, on a part
of the examples, and scored on the others: the share of right answers, or $R^2$. By data processing
no layer knows more of $y$ than the one before, $I(y; h_{l+1}) \le I(y; h_l)$; what can be read
*linearly* may well grow with depth.

A probe may also learn by heart. So it is fitted to a *control task*, too: labels drawn at random,
for each kind of token where inputs are tokens that are labelled one by one, else for each example.
What a probe reads of the property and not of the control is in the layer, and not in the probe.

Features are scaled to mean 0 and variance 1 on what is fitted to. Scores are those of one split of
the examples. The claim is `layer_probe`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.linear import RidgeRegression, SoftmaxRegression
from vademecum.models import (
    batches,
    call_arguments,
    chosen_output,
    evaluation,
    named_modules,
    named_tensors,
    refuse_nan,
    unwrapped,
)
from vademecum.randomness import given_back, source
from vademecum.results import one_line

__all__ = ["LinearProbe", "linear_probe"]

_LISTS = (nn.ModuleList, nn.Sequential)


class LinearProbe(NamedTuple):
    """What a linear map reads off the layers of a model.

    Example:
        >>> x = torch.randn(60, 3)
        >>> linear_probe(nn.Sequential(nn.Identity(), nn.Tanh()), x, x[:, 0] > 0).names
        ('0', '1')
    """

    names: tuple[str, ...]
    """The layers, by the names of their modules, in the order in which they are called."""
    scores: Float[Tensor, " layers"]
    """The share of right answers on examples held out; for numbers $R^2$."""
    control: Float[Tensor, " layers"]
    """The same for random labels."""
    chance: float
    """What the most frequent class alone would score; 0 for numbers."""

    __repr__ = one_line

    @property
    def selectivity(self) -> Float[Tensor, " layers"]:
        """What the scores are above those of the control task."""
        return self.scores - self.control


def linear_probe(
    model: nn.Module,
    x: Any,
    y: Tensor | None = None,
    *,
    layers: Sequence[str] | str | None = None,
    reduce: Callable[[Tensor], Tensor] | None = None,
    held_out: float | Bool[Tensor, " n"] = 0.5,
    weight_decay: float = 1e-3,
    ignore_index: int = -100,
    generator: torch.Generator | None = None,
) -> LinearProbe:
    r"""Fit a linear map from every layer of a model to a property of its inputs.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its inputs: a tensor, a tuple or a dict; or a `DataLoader` of inputs and labels.
        y: The property: integers for classes, or numbers; of shape (n,) for one an input, or (n, T)
            for one a token. All axes of a layer's output beyond those of y are its features.
        layers: The names of modules to look at; by default the entries of the longest list of
            modules that are called (the blocks of a transformer), or else all children.
        reduce: What to make of each layer's output first, such as `lambda h: h.mean(1)` for a label
            an input; nothing by default.
        held_out: The share of inputs to score on, or which ones.
        weight_decay: The factor of $\frac12 \|W\|^2$ beside the mean loss.
        ignore_index: The class of tokens that count for nothing, as torch's losses have it.
        generator: Where random numbers come from; torch's global generator by default. For the
            split and the control task.

    Raises:
        ValueError: If no module has that name or is called, an output is no tensor with the axes of
            y, or labels have one class or numbers one value, held out or not.

    References:
        Alain and Bengio, Understanding intermediate layers using linear classifier probes, 2016.
        Hewitt and Liang, Designing and interpreting probes with control tasks, EMNLP, 2019.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).repeat(8, 1)
        >>> hidden, relu = nn.Linear(2, 2), nn.ReLU()
        >>> hidden.weight.data, hidden.bias.data = torch.ones(2, 2), torch.tensor([0.0, -1.0])
        >>> test = torch.arange(32) < 16
        >>> found = linear_probe(nn.Sequential(hidden, relu), x, x.sum(1) == 1, held_out=test)
        >>> bool(found.scores[0] <= 0.75), float(found.scores[1])  # parity, after one ReLU layer
        (True, 1.0)
    """
    number("weight_decay", weight_decay, above=0)
    model = unwrapped(model)
    names = _names(model, layers)
    features, inputs, labels = _collected(model, x, y, names, reduce, asked=layers is not None)
    with given_back(generator):
        test = _split(held_out, len(labels), generator)
        classes = not labels.is_floating_point()
        counted = labels != ignore_index if classes else torch.ones_like(labels, dtype=torch.bool)
        control = _control(inputs, labels, counted, generator)
    held, rest = (labels[part][counted[part]] for part in (test, ~test))
    if min(len(part.unique()) for part in (held, rest)) < 2:
        what = "classes" if classes else "values"
        raise ValueError(f"y must have 2 {what} or more, held out and not, got one")
    scores = [
        [_score(h, target, test, counted, weight_decay) for target in (labels, control)]
        for h in features.values()
    ]
    found = torch.tensor(scores, dtype=torch.float64)
    chance = float(held.unique(return_counts=True)[1].max()) / held.numel()
    return LinearProbe(tuple(features), found[:, 0], found[:, 1], chance if classes else 0.0)


def _names(model: nn.Module, layers: Sequence[str] | str | None) -> list[str]:
    """The names of the modules to look at."""
    known = {name[:-1]: module for name, module in named_modules(model)}
    if layers is not None:
        asked = [layers] if isinstance(layers, str) else list(layers)
        for name in asked:
            if name not in known:
                raise ValueError(f"layers must be names of modules, got {name!r}")
        if not asked:
            raise ValueError("layers must name a module or more, got none")
        return asked
    lists = {name: m for name, m in known.items() if isinstance(m, _LISTS) and len(m) > 1}
    longest = max(lists, key=lambda name: len(lists[name]), default="")  # pyright: ignore
    inner = known[longest]
    own = [name for name, _ in inner.named_children()] or [""]
    return [f"{longest}.{name}" if longest and name else name or longest for name in own]


def _collected(
    model: nn.Module,
    x: Any,
    y: Any,
    names: list[str],
    reduce: Callable[[Tensor], Tensor] | None,
    *,
    asked: bool,
) -> tuple[dict[str, Tensor], Any, Tensor]:
    """The outputs of the layers by name, in the order of calls; the inputs; and the labels."""
    parts: dict[str, list[Tensor]] = {}
    inputs: list[Any] = []
    labels: list[Tensor] = []
    device = next((p.device for p in model.parameters()), None)
    with evaluation(model, fused=True), torch.no_grad(), ExitStack() as stack:
        now: dict[str, Any] = {}
        for name in names:
            hook = model.get_submodule(name).register_forward_hook(_noting(now, name))
            stack.callback(hook.remove)
        each = stack.enter_context(closing(batches(x, y, device=device)))
        for some, target in each:
            _insist_on_labels(target)
            refuse_nan(some)
            now.clear()
            args, kwargs = call_arguments(some)
            model(*args, **kwargs)
            for name, h in now.items():
                parts.setdefault(name, []).append(_rows(name, h, target, reduce))
            inputs.append(some)
            labels.append(target)
    missed = [name for name in names if name not in parts]
    if not parts or (asked and missed):
        raise ValueError(f"layers must be called when the model runs, got {missed[0]!r}")
    alone = inputs[0] if len(inputs) == 1 else _joined(inputs)
    return {name: torch.cat(h) for name, h in parts.items()}, alone, torch.cat(labels)


def _noting(now: dict[str, Any], name: str) -> Callable[..., None]:
    def note(module: nn.Module, args: Any, result: Any) -> None:
        now[name] = result  # of several calls the last

    return note


def _rows(name: str, h: Any, y: Tensor, reduce: Callable[[Tensor], Tensor] | None) -> Tensor:
    """The output of a layer as features: all axes beyond those of y are one."""
    h = chosen_output(h)
    if isinstance(h, tuple | list) and h:
        h = h[0]
    if isinstance(h, Tensor) and reduce is not None:
        h = reduce(h)
    if isinstance(h, Tensor) and y.ndim > 1 and h.shape[:1] == (y.numel(),):
        h = h.reshape(*y.shape, *h.shape[1:])  # tokens of all inputs, packed
    if not isinstance(h, Tensor) or h.shape[: y.ndim] != y.shape:
        given = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        raise ValueError(
            f"outputs of layer {name!r} must begin with the axes {tuple(y.shape)} of y, got"
            f" {given}: reduce= says what to make of them"
        )
    h = h.detach().reshape(*y.shape, -1)
    return h.to(torch.promote_types(h.dtype, torch.float32))


def _joined(inputs: list[Any]) -> Any:
    return torch.cat(inputs) if all(isinstance(x, Tensor) for x in inputs) else None


def _insist_on_labels(y: Any) -> None:
    if not isinstance(y, Tensor) or not y.ndim or y.is_complex():
        given = type(y).__name__ if not isinstance(y, Tensor) else f"{y.dtype} {tuple(y.shape)}"
        raise ValueError(f"y must be labels or numbers, one for each input, got {given}")
    if y.is_floating_point() and not bool(y.isfinite().all()):
        raise ValueError("y must be finite")


def _split(held_out: Any, n: int, generator: torch.Generator | None) -> Tensor:
    """Which inputs are held out."""
    if isinstance(held_out, Tensor):
        if held_out.dtype != torch.bool or held_out.shape != (n,):
            given = f"{held_out.dtype} of shape {tuple(held_out.shape)}"
            raise ValueError(f"held_out must be a share or {n} booleans, got {given}")
        test = held_out.cpu()
    else:
        share = number("held_out", held_out, above=0, below=1)
        order = torch.randperm(n, **source(generator, "cpu")).cpu()
        test = order < round(n * share)
    if not bool(test.any()) or bool(test.all()):
        raise ValueError(f"held_out must leave inputs on both sides, of {n}")
    return test


def _control(inputs: Any, y: Tensor, counted: Tensor, generator: torch.Generator | None) -> Tensor:
    """Random labels with the law of y: for each kind of token, or for each example."""
    x = inputs if isinstance(inputs, Tensor) else None
    if x is None:
        x = next((t for _, t in named_tensors(inputs) if t.shape == y.shape), None)
    tokens = x is not None and x.shape == y.shape and not x.is_floating_point()
    pool = y[counted]
    count = int(x.max()) + 1 if tokens and x is not None else y.numel()
    drawn = torch.randint(pool.numel(), (count,), **source(generator, "cpu")).to(y.device)
    if tokens and x is not None:
        return pool[drawn][x.to(y.device)]
    return pool[drawn].view_as(y)


def _score(h: Tensor, y: Tensor, test: Tensor, counted: Tensor, weight_decay: float) -> float:
    """How well a linear map that is fitted to one part of the inputs does on the other."""
    test, counted, y = (t.to(h.device) for t in (test, counted, y))
    (x, fresh), (own, wanted) = ([v[part][counted[part]] for part in (~test, test)] for v in (h, y))
    mean, scale = x.mean(0), x.std(0, correction=0)
    scale = torch.where(scale > 0, scale, 1)
    x, fresh = (x - mean) / scale, (fresh - mean) / scale
    if y.is_floating_point():
        fit = RidgeRegression(alphas=weight_decay * len(x)).fit(x, own.to(x.dtype))
        wanted = wanted.to(x.dtype)
        spread = (wanted - wanted.mean()).square().sum()
        if not bool(spread):  # a control task may have drawn one number alone
            return 0.0
        return float(1 - (fit.predict(fresh) - wanted).square().sum() / spread)
    if len(own.unique()) == 1:  # a control task may have drawn one class alone
        return float((wanted == own[0]).double().mean())
    fit = SoftmaxRegression(weight_decay=weight_decay, tol=1e-4).fit(x, own.long())
    return float((fit.predict(fresh) == wanted).double().mean())
