r"""Evaluation mode for a while: batch normalisation by its statistics, dropout as the identity.

The code of a model may keep what it likes in attributes: a longest length so far, the weight that
it has just computed. Afterwards all attributes of all modules are what they were, tensors among
them have the values that they had, and lists, dicts and sets hold what they held.

Meanwhile torch computes by its plain operations where its fast ones lack a derivative or have a
wrong one: attention, cuDNN's recurrent layers, compiled code, and weight normalisation
$w = g v / \|v\|$. Its transformer layers never take their fast path, which gives zeros where a mask
hides a token, and nested tensors between layers.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from operator import is_, itemgetter
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode

from vademecum.models._modules import Modules, named_modules
from vademecum.models.inputs import Entangled

__all__ = ["INTERNAL", "evaluation", "refuse_batch_statistics", "untouched"]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_CONTAINERS = {list, dict, set, OrderedDict, defaultdict, deque}
INTERNAL = frozenset(vars(nn.Module()))
"""The attributes that every module has."""
_TABLES = [key for key, value in vars(nn.Module()).items() if type(value) in _CONTAINERS]
_tables_of = itemgetter(*_TABLES)


@contextmanager
def evaluation(model: nn.Module | Modules, *, fused: bool = False) -> Iterator[None]:
    """Evaluation mode for a while, with kernels that can be differentiated twice.

    Random numbers are the same each time, and torch's generators are where they were afterwards.

    Args:
        model: The module, or what `named_modules` gave for it.
        fused: Whether attention may use fused kernels, where nothing is differentiated twice.
    """
    modules = [module for _, module in named_modules(model)]
    attention = nullcontext() if fused else _PLAIN_ATTENTION
    with untouched(modules), _PLAIN_LAYERS, attention, ExitStack() as stack:
        for context in _plain_kernels(modules):
            stack.enter_context(context)
        for module in modules:
            if module.training:
                module.training = False
            if isinstance(module, _EMBEDDINGS) and module.sparse:
                module.sparse = False  # sparse gradients have no place in a vector
        yield


@contextmanager
def untouched(modules: list[nn.Module]) -> Iterator[None]:
    """Give modules their attributes back afterwards, and torch's generators their states."""
    before: list[tuple[Any, Any]] = []
    tables: list[tuple[dict[str, Any], int, list[tuple[Any, Any]]]] = []
    buffers: list[tuple[Any, Any]] = []
    copies: dict[int, Tensor] = {}
    for module in modules:
        own = vars(module)
        before.append((own, own.copy()))
        if own["_buffers"]:
            buffers.append((own["_buffers"], own["_buffers"].copy()))
        filled = [(table, table.copy()) for table in filter(None, _tables_of(own))]
        tables.append((own, sum([len(table) for table, _ in filled]), filled))
        for key in own.keys() - INTERNAL:
            value, kind = own[key], type(own[key])
            if kind in _CONTAINERS:
                before.append((value, value.copy()))
                for place, entry in _entries(value):
                    if type(entry) is Tensor:
                        value[place] = copies.setdefault(id(entry), entry.clone())
            elif kind is Tensor:  # which code may write into
                own[key] = copies.setdefault(id(value), value.clone())
    random = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(random)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        for now, then in reversed(before):  # modules may share what they hold
            if len(now) != len(then) or not _alike(now, then):
                _refill(now, then)
        for own, size, filled in tables:  # whose entries nobody replaces, but buffers
            if sum(map(len, _tables_of(own))) != size:
                for key in _TABLES:
                    own[key].clear()
                for now, then in filled:
                    now.update(then)
        for now, then in buffers:
            if not _alike(now, then):
                _refill(now, then)


def _entries(value: Any) -> list[tuple[Any, Any]]:
    """What a list or a dict holds, with the places."""
    if isinstance(value, dict):
        return list(value.items())
    return [] if isinstance(value, set) else list(enumerate(value))


def _alike(now: Any, then: Any) -> bool:
    """Whether two lists, dicts or sets of one length hold the same things, not just equal ones."""
    if isinstance(now, dict):
        return all(map(is_, now.values(), then.values())) and all(map(is_, now, then))
    return now == then if isinstance(now, set) else all(map(is_, now, then))


def _refill(now: Any, then: Any) -> None:
    now.clear()
    (now.update if isinstance(now, dict | set) else now.extend)(then)


def _plain_kernels(modules: list[nn.Module]) -> Iterator[AbstractContextManager[Any]]:
    """Contexts in which what these modules use is computed in the plain way."""
    kinds = set(map(type, modules))
    if torch.backends.cudnn.enabled and any(issubclass(kind, nn.RNNBase) for kind in kinds):
        # It has no backward pass in evaluation mode, and no second one ever.
        others = ("benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
        keep: dict[str, Any] = dict.fromkeys(others)
        yield torch.backends.cudnn.flags(enabled=False, **keep)
    names = {kind.__name__ for kind in kinds}
    if "OptimizedModule" in names or any(vars(m).get("_compiled_call_impl") for m in modules):
        yield torch.compiler.set_stance("force_eager")
    hooks = [
        hook for m in modules if m._forward_pre_hooks for hook in m._forward_pre_hooks.values()
    ]
    if "_WeightNorm" in names or any(isinstance(hook, WeightNorm) for hook in hooks):
        yield _PlainWeightNorm()


class _Shared:
    """A setting of torch until the last of all threads that asked for it leaves: it is global."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]):
        self._make, self._lock, self._inside, self._flags = make, Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._flags.enter_context(self._make())

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._flags.close()


@contextmanager
def _no_fast_path() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


_PLAIN_ATTENTION = _Shared(lambda: sdpa_kernel(SDPBackend.MATH))
_PLAIN_LAYERS = _Shared(_no_fast_path)


class _PlainWeightNorm(TorchFunctionMode):
    """Weight normalisation by its formula: the fused kernel has a wrong second derivative."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") != "_weight_norm":
            return func(*args, **(kwargs or {}))
        v, g, dim = args if len(args) == 3 else (*args, 0)
        axes = [axis for axis in range(v.ndim) if axis != dim]  # all of them for -1
        return v * (g / torch.linalg.vector_norm(v, dim=axes, keepdim=True))


def refuse_batch_statistics(model: nn.Module | Modules) -> None:
    """Refuse batch normalisation by the statistics of the batch itself, which ties its examples."""
    for name, module in named_modules(model):
        if isinstance(module, _BATCH_NORMS) and module.running_mean is None:
            raise Entangled(
                "model must treat examples independently in evaluation mode, but"
                f" {type(module).__name__} {name[:-1]!r} has no running statistics"
            )
