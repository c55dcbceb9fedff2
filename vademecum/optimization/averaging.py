r"""Averages of iterates: the mean of Polyak and Ruppert, and the exponential moving average.

$$\bar\theta_t = (1 - \beta_t)\, \bar\theta_{t - 1} + \beta_t \theta_t, \qquad
\bar\theta_1 = \theta_1,$$

with $\beta_t = 1 / t$ is the arithmetic mean of the iterates $\theta_1, \dots, \theta_t$ that the
steps have led to; a constant $\beta = 1 - \text{decay}$ forgets geometrically.

The parameters always hold the iterate, so that training goes on undisturbed and saves what it
should; `with averaged(model):` shows the mean for a while. Averages are kept in float32 at least.
Exact up to rounding. The claims are `polyak_averaging`, `averaging_long_steps` and `ema`.
"""

import copy
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.models import batches, call_arguments, count_examples, unwrapped

__all__ = ["PolyakAveraging", "averaged"]

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class PolyakAveraging:
    r"""The mean of the iterates of an optimiser, taken after each of its steps.

    Any optimiser goes on as before; `averaged(model)` shows the mean. Of `Nesterov` it is the mean
    of what the parameters hold, the points $y_t$.

    Args:
        optimizer: Any optimiser of torch or of ours.
        kind: Whether all iterates weigh the same, or older ones less and less.
        decay: What the average keeps of itself in a step, if `kind` is exponential.
        start: How many steps to let pass before the first iterate counts.

    References:
        Polyak and Juditsky, Acceleration of stochastic approximation by averaging, SIAM Journal on
        Control and Optimization, 1992.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> averaging = PolyakAveraging(optimizer)
        >>> for value in (1.0, 2.0, 6.0):
        ...     with torch.no_grad():
        ...         _ = model.weight.fill_(value)
        ...     optimizer.step()
        >>> with averaged(model):
        ...     model.weight.item()
        3.0
        >>> model.weight.item()
        6.0
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        kind: Literal["uniform", "exponential"] = "uniform",
        decay: float = 0.999,
        start: int = 0,
    ):
        if not isinstance(optimizer, torch.optim.Optimizer):
            name = type(optimizer).__name__
            raise ValueError(f"optimizer must be a torch.optim.Optimizer, got {name}")
        self._optimizer = weakref.ref(optimizer)
        self._name = type(optimizer).__name__
        self.kind = choice("kind", kind, ("uniform", "exponential"))
        self.decay = number("decay", decay, low=0, below=1)
        self.start = whole("start", start, low=0)
        self.t = -self.start
        self._known: dict[int, weakref.ref[Tensor]] = {}
        self._means: dict[int, Tensor] = {}
        self._shown = False
        optimizer.register_step_pre_hook(self._refuse_while_shown)
        optimizer.register_step_post_hook(self._after_step)
        self._params()

    def __repr__(self) -> str:
        decay = f", decay={self.decay}" if self.kind == "exponential" else ""
        return f"PolyakAveraging({self._name}, kind={self.kind!r}{decay})"

    @property
    def weight(self) -> float:
        r"""The weight $\beta_t$ of the newest iterate in the average; 0 before there is one."""
        if self.t < 1:
            return 0.0
        return 1 / self.t if self.kind == "uniform" or self.t == 1 else 1 - self.decay

    def mean(self, p: Tensor) -> Tensor:
        """The average of a parameter so far, a copy of it.

        Args:
            p: A parameter of the optimiser.
        """
        if not self._has(p):
            why = "is none of the optimizer's" if id(p) not in self._known else "has no average yet"
            raise ValueError(f"p must be a parameter with an average, got one that {why}")
        return self._means[id(p)].clone()

    def state_dict(self) -> dict[str, Any]:
        """The averages in the order of the parameters, and how many iterates they hold, copied."""
        means = [self._means.get(id(p)) for p in self._params()]
        return copy.deepcopy({"t": self.t, "means": means})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state.

        Args:
            state_dict: What `state_dict` gave; it is copied.
        """
        params, means = self._params(), state_dict["means"]
        if len(means) != len(params):
            raise ValueError(
                f"state_dict must hold {len(params)} averages, one a parameter, got {len(means)}"
            )
        for p, mean in zip(params, means, strict=True):
            if mean is not None and mean.shape != p.shape:
                raise ValueError(
                    "state_dict must hold averages in the shapes of the parameters, got"
                    f" {tuple(mean.shape)} for {tuple(p.shape)}"
                )
        self.t = state_dict["t"]
        kept = [(p, x) for p, x in zip(params, means, strict=True) if x is not None]
        self._means = {id(p): x.detach().to(p.device, _wide(p), copy=True) for p, x in kept}

    def _params(self) -> list[Tensor]:
        """The optimiser's parameters, also when it is gone itself."""
        optimizer = self._optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        for p in (p for group in groups for p in group["params"]):
            if id(p) not in self._known:
                self._known[id(p)] = weakref.ref(p)
                _AVERAGINGS.setdefault(id(p), []).append(self)
                weakref.finalize(p, _forget, id(p)).atexit = False
        return [p for known in self._known.values() if (p := known()) is not None]

    def _has(self, p: Tensor) -> bool:
        return id(p) in self._means and self._known[id(p)]() is p

    def _refuse_while_shown(self, *_: Any) -> None:
        if self._shown:
            raise ValueError("a step must wait until the parameters hold the iterate again")

    @torch.no_grad()
    def _after_step(self, *_: Any) -> None:
        self.t += 1
        if self.t < 1:
            return
        params = [p for p in self._params() if p.requires_grad]
        for p in params:
            mean = self._means.get(id(p))
            if mean is None:  # at first, or of a group that was added later
                self._means[id(p)] = p.detach().to(_wide(p), copy=True)
            else:
                mean.lerp_(p.to(mean.dtype), self.weight)


_AVERAGINGS: dict[int, list[PolyakAveraging]] = {}
"""Who averages a parameter, by its address, as long as it lives."""


def _forget(address: int) -> None:
    for averaging in _AVERAGINGS.pop(address, []):
        averaging._known.pop(address, None)
        averaging._means.pop(address, None)


def _wide(p: Tensor) -> torch.dtype:
    return torch.promote_types(p.dtype, torch.float32)


@contextmanager
def averaged(
    model: nn.Module, x: Any = None, *, by: PolyakAveraging | None = None
) -> Iterator[None]:
    """Let a model hold the averages of its parameters for a while, then the iterates again.

    Args:
        model: A model, some of whose parameters are averaged.
        x: Inputs or a `DataLoader` from which batch normalisation takes its statistics anew, with
            all else in evaluation mode; None leaves them as they are.
        by: Whose averages; that of the model's one averaging by default.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> _ = PolyakAveraging(optimizer)
        >>> for value in (1.0, 3.0):
        ...     _ = model.weight.data.fill_(value)
        ...     optimizer.step()
        >>> with averaged(model):
        ...     model.weight.item()
        2.0
    """
    model = unwrapped(model)
    averaging = _averaging_of(model) if by is None else by
    shown = [(p, averaging.mean(p)) for p in model.parameters() if averaging._has(p)]
    if not shown:
        raise ValueError("model must have averages, and no step has been averaged yet")
    before = [(p, p.detach().clone()) for p, _ in shown]
    before += [(buffer, buffer.clone()) for buffer in model.buffers() if x is not None]
    was, averaging._shown = averaging._shown, True
    try:
        _put(shown)
        if x is not None:
            _take_statistics(model, x)
        yield
    finally:
        _put(before)
        averaging._shown = was


@torch.no_grad()
def _put(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for tensor, value in pairs:
        tensor.copy_(value)


def _averaging_of(model: nn.Module) -> PolyakAveraging:
    all_ = [a for p in model.parameters() for a in _AVERAGINGS.get(id(p), ())]
    found = list(dict.fromkeys(all_))
    if len(found) != 1:
        raise ValueError(
            f"model must be averaged by one PolyakAveraging, got {len(found)}"
            + (": say by which" if found else "")
        )
    return found[0]


@torch.no_grad()
def _take_statistics(model: nn.Module, x: Any) -> None:
    """Statistics of batch normalisation over data, batches weighted by their examples."""
    modules = list(model.modules())
    norms = [m for m in modules if isinstance(m, _NORMS) and m.running_mean is not None]
    training, momenta = [m.training for m in modules], [m.momentum for m in norms]
    device = next((p.device for p in model.parameters()), None)
    count = 0
    try:
        for module in modules:
            module.training = module in norms
        for norm in norms:
            norm.reset_running_stats()
        with closing(batches(x, device=device)) as all_:
            for inputs, _ in all_:
                n = count_examples(inputs)
                count += n
                for norm in norms:
                    norm.momentum = n / count
                arguments, options = call_arguments(inputs)
                model(*arguments, **options)
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    if not count:
        raise ValueError("x must hold batches, got an empty DataLoader")
