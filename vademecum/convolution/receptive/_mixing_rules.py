"""What operations need that mix entries along whole axes: products, norms, sums."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from vademecum.convolution.receptive._adjoint import Found
from vademecum.convolution.receptive._needs import Need, given, matched, mixed, only, whole
from vademecum.models import Call, Value

__all__ = ["MIXES"]


def _everything(call: Call, needs: list[Need | None]) -> Found:
    return [(value, whole(value)) for value in call.tensors]


def _linear(call: Call, needs: list[Need | None]) -> Found:
    """All entries along the last axis."""
    return [(call.tensors[0], mixed(only(needs), [-1]))] if call.places == 1 else _all(call)


def _all(call: Call) -> Found:
    return _everything(call, [])


def _along(call: Call, needs: list[Need | None], *, at: int, otherwise: int | None) -> Found:
    """All entries along an axis that is an argument."""
    axis = given(call, *(["input"] + [""] * (at - 1) + ["dim"])).get("dim", otherwise)
    if axis is None:  # as torch chooses if not told
        axis = 0 if call.tensors[0].tensor.ndim in (0, 1, 3) else 1
    found = [mixed(need, [axis]) for need in needs if need is not None]
    return [(call.tensors[0], need) for need in found]


def _over_shape(call: Call, needs: list[Need | None]) -> Found:
    """All entries along the axes that are normalised, the last ones."""
    shape = given(call, "input", "normalized_shape")["normalized_shape"]
    return [(call.tensors[0], mixed(only(needs), range(-len(shape), 0)))]


def _from(call: Call, needs: list[Need | None], *, axis: int) -> Found:
    """All entries along all axes from one on."""
    need = only(needs)
    return [(call.tensors[0], mixed(need, range(axis, need.mask.ndim)))]


def _channels(call: Call, needs: list[Need | None]) -> Found:
    return [(call.tensors[0], mixed(only(needs), [1]))]


def _batch_norm(call: Call, needs: list[Need | None]) -> Found:
    """The same entries, if statistics are constants."""
    options = given(call, "input", "mean", "var", "weight", "bias", "training")
    need = only(needs)
    own = options.get("training") or options.get("mean", options.get("running_mean")) is None
    return [(call.tensors[0], mixed(need, {0, *range(2, need.mask.ndim)}) if own else need)]


def _instance_norm(call: Call, needs: list[Need | None]) -> Found:
    options = given(call, "input", "mean", "var", "weight", "bias", "use_input_stats")
    if not options.get("use_input_stats", True):
        return [(call.tensors[0], only(needs))]
    return _from(call, needs, axis=2)


def _reduced(call: Call, needs: list[Need | None]) -> Found:
    """Everything along the axes that are gone, or of length 1 now."""
    power = ("p",) if call.name in ("norm", "vector_norm", "linalg_vector_norm") else ()
    options = given(call, "input", *power, "dim", "keepdim")
    x, need = call.tensors[0], only(needs)
    axes = options.get("dim")
    if len(call.tensors) > 1 or isinstance(axes, Value | Tensor):  # the larger of two
        return [(v, matched(need, v.tensor.shape)) for v in call.tensors]
    n = x.tensor.ndim
    axes = range(n) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = sorted(a % n for a in axes) or list(range(n))
    mask, left = need.mask, [a for a in range(n) if a not in gone]
    if mask.ndim == n:  # lengths of 1 stayed
        return [(x, mixed(need, gone))]
    for axis in gone:
        mask = mask.unsqueeze(axis)
    return [(x, Need(mask, {left[a]: s for a, s in need.spans.items()}))]


def _product(call: Call, needs: list[Need | None], *, skip: int = 0) -> Found:
    """Rows of the one factor, columns of the other; what is added, if anything, as it is."""
    need, found = only(needs), []
    factors = list(call.args[skip : skip + 2])
    factors += [v for k, v in call.kwargs.items() if k not in ("alpha", "beta", "out", "bias")]
    if call.name == "rmatmul":
        factors.reverse()
    a, b = factors[:2]
    shapes = [f.tensor.shape if isinstance(f, Value) else f.shape for f in (a, b)]
    mask = need.mask
    if len(shapes[0]) == 1:
        mask = mask.unsqueeze(-2 if len(shapes[1]) > 1 else -1)
    if len(shapes[1]) == 1:
        mask = mask.unsqueeze(-1)
    rows = {k: s for k, s in need.spans.items() if k < need.mask.ndim - 1}
    for factor, axis, shape in zip((a, b), (-1, -2), shapes, strict=True):
        if isinstance(factor, Value):
            own = Need(mask.any(axis, keepdim=True), rows if axis == -1 else {})
            if len(shape) == 1:
                own = Need(own.mask.any((axis, -3 - axis), keepdim=True).flatten()[:1], {})
            else:
                own = matched(own, [n if i < len(shape) - 2 else -1 for i, n in enumerate(shape)])
            found.append((factor, own))
    found += [(c, matched(need, c.tensor.shape)) for c in call.args[:skip] if isinstance(c, Value)]
    return found


def _einsum(call: Call, needs: list[Need | None]) -> Found:
    """Each factor as far as the letters that it shares with the result tell."""
    equation, *factors = call.args
    if len(factors) == 1 and isinstance(factors[0], tuple | list):
        factors = list(factors[0])
    if not isinstance(equation, str) or "." in equation:
        return _all(call)
    left, _, right = equation.replace(" ", "").partition("->")
    if "->" not in equation:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    need, found = only(needs), []
    for letters, factor in zip(left.split(","), factors, strict=True):
        if isinstance(factor, Value) and len(set(letters)) == len(letters):
            gone = [i for i, c in enumerate(right) if c not in letters]
            mask = need.mask.any(gone) if gone else need.mask
            kept = [c for c in right if c in letters]
            order = [kept.index(c) for c in letters if c in kept]
            mask = mask.permute(order)
            for axis, c in enumerate(letters):
                mask = mask if c in kept else mask.unsqueeze(axis)
            spans = {letters.index(right[a]): s for a, s in need.spans.items() if a not in gone}
            found.append((factor, Need(mask, spans)))
        elif isinstance(factor, Value):
            found.append((factor, whole(factor)))
    return found


def _broadcast_back(need: Need, shape: torch.Size) -> Need:
    return matched(need, [n if i < len(shape) - 2 else -1 for i, n in enumerate(shape)])


def _embedding(call: Call, needs: list[Need | None]) -> Found:
    """The index of a vector of which anything is needed."""
    need = only(needs)
    if len(call.tensors) > 1:
        return _all(call)
    last = need.mask.ndim - 1
    return [
        (
            call.tensors[0],
            Need(need.mask.any(-1), {a: s for a, s in need.spans.items() if a != last}),
        )
    ]


def _gated(call: Call, needs: list[Need | None]) -> Found:
    """Both halves along an axis."""
    x, need = call.tensors[0], only(needs)
    axis = given(call, "input", "dim").get("dim", -1) % x.tensor.ndim
    mask = need.mask
    mask = mask if mask.shape[axis] == 1 else torch.cat([mask, mask], axis)
    return [(x, Need(mask, {a: s for a, s in need.spans.items() if a != axis}))]


def _pairs(call: Call, needs: list[Need | None]) -> Found:
    """Distances of the rows of one matrix from those of another."""
    need, found = only(needs), []
    a, b = call.args[:2]
    if isinstance(a, Value):
        found.append(
            (a, _broadcast_back(Need(need.mask.any(-1, keepdim=True), {}), a.tensor.shape))
        )
    if isinstance(b, Value):
        mask = need.mask.any(-2, keepdim=True).mT
        found.append((b, _broadcast_back(Need(mask, {}), b.tensor.shape)))
    return found


MIXES: dict[str, Callable[[Call, list[Need | None]], Found]] = {
    **dict.fromkeys(("linear", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _linear),
    **dict.fromkeys(("matmul", "rmatmul", "mm", "bmm", "mv", "dot"), _product),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), partial(_product, skip=1)),
    "einsum": _einsum,
    "cdist": _pairs,
    **dict.fromkeys(
        ("softmax", "log_softmax", "softmin"),
        partial(_along, at=1, otherwise=None),
    ),
    "gumbel_softmax": partial(_along, at=4, otherwise=-1),
    "normalize": partial(_along, at=2, otherwise=1),
    **dict.fromkeys(("sort", "argsort"), partial(_along, at=1, otherwise=-1)),
    "topk": partial(_along, at=2, otherwise=-1),
    **dict.fromkeys(("layer_norm", "rms_norm"), _over_shape),
    "group_norm": partial(_from, axis=1),
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "local_response_norm": _channels,
    **dict.fromkeys(
        (
            "sum", "mean", "var", "std", "amax", "amin", "max", "min", "prod", "norm", "logsumexp",
            "median", "argmax", "argmin", "all", "any", "vector_norm", "linalg_vector_norm",
            "nansum", "nanmean", "count_nonzero",
        ),
        _reduced,
    ),
    **dict.fromkeys(("embedding", "one_hot"), _embedding),
    "glu": _gated,
    **dict.fromkeys(
        (
            "grid_sample", "bilinear", "embedding_bag", "fft_fft", "fft_fft2", "fft_fftn",
            "fft_rfft", "fft_rfft2", "fft_rfftn", "fft_ifft", "fft_ifft2", "fft_ifftn",
            "fft_irfft", "fft_irfft2", "fft_irfftn", "std_mean", "var_mean", "tensordot", "kron",
        ),
        _everything,
    ),
}  # fmt: skip
"""What these operations need, by their names."""
