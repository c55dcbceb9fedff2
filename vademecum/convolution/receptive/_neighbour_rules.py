"""What sums over bags of rows and products with sparse matrices need: rows that indices name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.convolution.receptive._adjoint import Found, NoValues
from vademecum.convolution.receptive._mixing_rules import MIXES
from vademecum.convolution.receptive._needs import Need, given, only
from vademecum.models import Call, Value

__all__ = ["NEIGHBOURS"]


def _tensor(a: Any) -> Any:
    return a.tensor if isinstance(a, Value) else a


def _rows(call: Call, needs: list[Need | None], n: int) -> Tensor:
    """Which of n rows of the output are needed."""
    mask = only(needs).mask
    return mask.flatten(1).any(1).expand(n) if mask.ndim > 1 else mask.expand(n)


def _at(rows: Tensor, n: int, ndim: int) -> Need:
    """Some rows, given by their numbers, of a tensor of so many axes."""
    mask = torch.zeros(n, dtype=torch.bool)
    mask[rows.cpu()] = True
    return Need(mask.view(n, *(1,) * (ndim - 1)), {})


def _bags(call: Call, needs: list[Need | None]) -> Found:
    """Rows of a table in the bags that are needed, and the weights of these entries."""
    options = given(call, "input", "weight", "offsets", "max_norm", "norm_type",
                    "scale_grad_by_freq", "mode", "sparse", "per_sample_weights")  # fmt: skip
    index, table, offsets = (_tensor(options.get(k)) for k in ("input", "weight", "offsets"))
    if index.is_meta or (offsets is not None and offsets.is_meta):
        raise NoValues(f"{call.place} needs values")
    (out, *_) = [o for o in call.outputs if o is not None]
    n = len(out.tensor)
    if offsets is None:
        sizes = torch.full((n,), index.shape[1])
    else:
        sizes = torch.cat([offsets.cpu()[:n], torch.tensor([index.numel()])]).diff()
    wanted = _rows(call, needs, n).repeat_interleave(sizes)
    found: Found = []
    if isinstance(options["weight"], Value):
        found.append((options["weight"], _at(index.cpu().flatten()[wanted], len(table), 2)))
    if isinstance(each := options.get("per_sample_weights"), Value):
        found.append((each, Need(wanted.view(each.tensor.shape), {})))
    return found


def _sparse_product(call: Call, needs: list[Need | None]) -> Found:
    """Rows of the right factor where rows of a sparse left one that are needed have entries."""
    left, right = call.args[:2]
    matrix = _tensor(left)
    if not isinstance(matrix, Tensor) or matrix.layout == torch.strided or call.name == "rmatmul":
        return MIXES["matmul"](call, needs)
    rows = _rows(call, needs, len(matrix))
    entries = matrix.detach().cpu().to_sparse_coo().coalesce().indices()
    found: Found = []
    if isinstance(left, Value):
        found.append((left, Need(rows[:, None], {})))
    if isinstance(right, Value):
        wide = right.tensor
        found.append((right, _at(entries[1][rows[entries[0]]], len(wide), wide.ndim)))
    return found


def _sparse_matrix(call: Call, needs: list[Need | None]) -> Found:
    """The entries of needed rows, of a matrix that is made of them."""
    rows_first = call.name == "sparse_coo_tensor"
    names = ("indices", "values") if rows_first else ("crow_indices", "col_indices", "values")
    options = given(call, *names)
    values, where = options["values"], _tensor(options[names[0]])
    if not isinstance(values, Value):
        return []
    (out, *_) = [o for o in call.outputs if o is not None]
    rows = _rows(call, needs, len(out.tensor))
    wanted = rows[where.cpu()[0]] if rows_first else rows.repeat_interleave(where.cpu().diff())
    return [(values, Need(wanted, {}))]


NEIGHBOURS: dict[str, Callable[[Call, list[Need | None]], Found]] = {
    "embedding_bag": _bags,
    **dict.fromkeys(("sparse_mm", "mm", "matmul"), _sparse_product),
    **dict.fromkeys(("sparse_csr_tensor", "sparse_coo_tensor"), _sparse_matrix),
}
"""What these operations need, by their names."""
