"""What a PAC-Bayes certificate cannot be of, refused with the reason."""

from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.models import (
    call_arguments,
    chosen_output,
    count_examples,
    differentiable_output,
    evaluation,
    insist_on_same_outputs,
    map_tensors,
    named_modules,
    refuse_batch_statistics,
)
from vademecum.models.outputs import Output
from vademecum.randomness import source

__all__ = ["examples_of", "halves", "refuse_entangled_examples", "refuse_training_modes"]

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
             nn.FeatureAlphaDropout)  # fmt: skip


def refuse_training_modes(model: nn.Module) -> None:
    """Refuse batch normalisation and dropout that are in training mode."""
    for prefix, module in named_modules(model):
        where = f"{type(module).__name__} {prefix[:-1]!r}"
        if not module.training:
            continue
        if isinstance(module, _BATCH_NORMS):
            raise ValueError(
                f"model must not have {where} in training mode: the loss of an example would depend"
                " on the others, and the bound needs independent losses; call model.eval() or use"
                " another normalisation"
            )
        rate = module.p if isinstance(module, _DROPOUTS) else getattr(module, "dropout", 0.0)
        if isinstance(rate, int | float) and rate > 0:
            raise ValueError(
                f"model must not have {where} with dropout {rate:g} in training mode: its masks are"
                " random and no part of the posterior; call model.eval() or set it to 0"
            )
    refuse_batch_statistics(model)


def examples_of(x: Any, y: Any) -> int:
    """The number of examples, with a label for each."""
    if isinstance(x, DataLoader):
        raise ValueError(
            "x must hold the examples themselves, got a DataLoader: it may augment them, and a"
            " bound needs each example as it was drawn"
        )
    if not isinstance(y, Tensor) or y.ndim != 1 or y.dtype.is_floating_point or y.is_complex():
        given = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y)
        raise ValueError(f"y must hold one integer for each example, got {given}")
    n = count_examples(x, y)
    if n < 2:
        raise ValueError(f"x must hold at least 2 examples, got {n}")
    return n


@torch.no_grad()
def refuse_entangled_examples(
    model: nn.Module, x: Any, y: Tensor, output: Output, batch_size: int
) -> None:
    """Refuse models that answer by chance or by company, and labels that they cannot give.

    Of each batch, in the order given, both ends are asked by themselves, too: if all depend on one
    example, wherever it is, not both are that one.
    """
    n = min(len(y), 8)
    some, parts = slice(n), (slice(n // 2), slice(n // 2, n))  # all may depend on one example
    with evaluation(model, fused=True):
        z, *others, again = (
            _called(model, map_tensors(x, itemgetter(here)), output)
            for here in (some, *parts, some)
        )
    z = differentiable_output(z, n, graph=False)
    if z.ndim != 2:
        raise ValueError(f"model must give a score for each class, got shape {tuple(z.shape)}")
    k, low, high = z.shape[1], int(y.min()), int(y.max())
    if low < 0 or high >= k:
        raise ValueError(
            f"y must be classes of model, from 0 to {k - 1}, got {low if low < 0 else high}"
        )
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    if not again.equal(z):
        raise ValueError(
            "model must not draw random numbers in evaluation mode (augmentation, dropout): they"
            " are no part of the posterior, and a bound needs each example as it was drawn"
        )
    for here, other in zip(parts, others, strict=True):
        insist_on_same_outputs(other, z[here], dtypes)
    with evaluation(model, fused=True):
        for start in range(0, len(y), batch_size):
            batch = slice(start, start + batch_size)
            z = _called(model, map_tensors(x, itemgetter(batch)), output)
            for i in (0, len(z) - 1):
                end = slice(start + i, start + i + 1)
                alone = _called(model, map_tensors(x, itemgetter(end)), output)
                insist_on_same_outputs(alone, z[i : i + 1], dtypes)


def _called(model: nn.Module, x: Any, output: Output) -> Any:
    args, kwargs = call_arguments(map_tensors(x, Tensor.clone))  # some models work in place
    return chosen_output(model(*args, **kwargs), output)


def halves(
    n: int, prior: Tensor | None, bound: Tensor | None, *, split: bool,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The examples of the prior and those of the bound, in ascending order and on the CPU.

    Args:
        n: The number of examples.
        prior: The examples that the prior may see; by default half of them, at random.
        bound: The examples of the bound; by default all others.
        split: Whether the prior is to have examples.
        generator: Where random numbers come from.
    """
    given = [None if t is None else _indices(name, t, n)
             for name, t in (("prior_index", prior), ("bound_index", bound))]  # fmt: skip
    one, other = given
    if one is None and other is not None and split:
        one = _others(other, n)
    elif one is None and split:
        one = torch.randperm(n, **source(generator, "cpu")).cpu()[: n // 2].sort().values
    elif one is None:
        one = torch.empty(0, dtype=torch.long)
    if other is None:
        other = _others(one, n)
    common = one[torch.isin(one, other)]
    if len(common):
        raise ValueError(
            "prior_index and bound_index must be disjoint, or the prior has seen the examples of"
            f" the bound, got {int(common[0])} in both"
        )
    for name, t in (("prior_index", one), ("bound_index", other)):
        if not len(t) and (split or name == "bound_index"):
            raise ValueError(f"{name} must leave examples for it, got none of {n}")
    return one, other


def _indices(name: str, index: Any, n: int) -> Tensor:
    if not isinstance(index, Tensor) or index.ndim != 1 or index.dtype != torch.long:
        given = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else (
            type(index).__name__)  # fmt: skip
        raise ValueError(f"{name} must be a vector of torch.int64, got {given}")
    index = index.detach().cpu().sort().values
    if len(index) and (index[0] < 0 or index[-1] >= n):
        bad = index[0] if index[0] < 0 else index[-1]
        raise ValueError(f"{name} must be between 0 and {n - 1}, got {int(bad)}")
    if (index[1:] == index[:-1]).any():
        twice = index[1:][index[1:] == index[:-1]][0]
        raise ValueError(f"{name} must not repeat an example, got {int(twice)} twice")
    return index


def _others(index: Tensor, n: int) -> Tensor:
    left = torch.ones(n, dtype=torch.bool)
    left[index] = False
    return left.nonzero()[:, 0]
