r"""Which parameters of a model are matrices of hidden layers, for optimisers that want only those.

A parameter goes with **the rest** if

1. it has fewer than two axes longer than one (biases, gains of normalisations, class tokens), or
   is the kernel of a convolution of each channel by itself, whose rows have nothing in common;
2. it belongs to an embedding (`nn.Embedding`, `nn.EmbeddingBag`), or its name has `embed` in it;
3. it belongs to the head, the module that holds the last matrix in the order of registration;
4. it is shared with one of those, as the head of a language model often is;
5. its name matches a pattern in `skip`.

All others are matrices, also those of frozen layers, which an optimiser passes over. Those that are
stored with the axis of inputs first (transposed convolutions; `Conv1D` of transformers' GPT-2) come
in a group of their own with the option `transposed`, for the factor $\sqrt{d_{out} / d_{in}}$ of
`Muon` to stand the right way up. Names say what a rule cannot see: a second head must be skipped.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import Tensor, nn

from vademecum.results import one_line

__all__ = ["MatrixParameters", "matrix_parameters"]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class MatrixParameters(NamedTuple):
    """The parameters of a model, split in two.

    Example:
        >>> matrix_parameters(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
        MatrixParameters(matrices=list of 1, rest=list of 3)
    """

    matrices: list[dict[str, Any]]
    """Groups for `Muon`, also for torch's: matrices of hidden layers; empty if there are none."""
    rest: list[nn.Parameter]
    """The other parameters, for AdamW or the like."""

    __repr__ = one_line


def matrix_parameters(
    model: nn.Module, *, head: bool = True, skip: Sequence[str] = ()
) -> MatrixParameters:
    """Split the parameters of a model into matrices of hidden layers and the rest.

    Args:
        model: Any module; it is never changed.
        head: Whether the model ends with a head, which goes with the rest.
        skip: Patterns of names that go with the rest, such as `"critic.*"`.

    Returns:
        Groups of matrices and a list of the other parameters; each parameter occurs once.

    Raises:
        ValueError: If a pattern in `skip` matches no parameter.

    Example:
        >>> hidden = [nn.Linear(4, 5), nn.LayerNorm(5)]
        >>> net = nn.Sequential(nn.Embedding(9, 4), *hidden, nn.Linear(5, 9))
        >>> matrices, rest = matrix_parameters(net)
        >>> [tuple(p.shape) for group in matrices for p in group["params"]]
        [(5, 4)]
        >>> [tuple(p.shape) for p in rest]
        [(9, 4), (5,), (5,), (5,), (9, 5), (9,)]
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a module, got {type(model).__name__}")
    places = list(_places(model))
    for pattern in skip:
        if not any(fnmatchcase(name, pattern) for name, _, _ in places):
            raise ValueError(f"skip must name parameters of the model, got {pattern!r}")
    last = next((m for _, m, p in reversed(places) if head and _is_matrix(p)), None)
    out = {
        id(p)
        for name, module, p in places
        if not _is_matrix(p)
        or _is_depthwise(module)
        or module is last
        or isinstance(module, _EMBEDDINGS)
        or "embed" in name.rpartition(".")[2]
        or any(fnmatchcase(name, pattern) for pattern in skip)
    }
    rest, plain, turned = {}, {}, {}
    for _, module, p in places:
        where = rest if id(p) in out else turned if _is_transposed(module) else plain
        where[id(p)] = p
    groups: list[dict[str, Any]] = [{"params": list(plain.values())}] if plain else []
    if turned:
        groups.append({"params": list(turned.values()), "transposed": True})
    return MatrixParameters(groups, list(rest.values()))


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Every place of a parameter: its name, the module that holds it, and the parameter."""
    for prefix, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False):
            yield f"{prefix}.{name}" if prefix else name, module, p


def _is_matrix(p: Tensor) -> bool:
    return sum(size > 1 for size in p.shape) >= 2


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, _CONVOLUTIONS) and module.groups == module.in_channels > 1


def _is_transposed(module: nn.Module) -> bool:
    """A transposed convolution, or transformers' `Conv1D`, which is not imported to find out."""
    kind = type(module)
    foreign = kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")
    return foreign or isinstance(module, _TRANSPOSED)
