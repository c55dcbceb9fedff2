"""What forward code does in the wild, each habit in a model of a few lines."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bench.outside.cases import EXAMPLES, Case, Subject

__all__ = ["CASES"]

N, D, K = 5, 4, 2
DOUBLE = torch.float64


class Code(nn.Module):
    """Two dense layers with some code between them."""

    calls: Tensor

    def __init__(self, between: Callable[["Code", Tensor], Tensor], *more: nn.Module):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(D, D), between, nn.Linear(D, K)
        self.more = nn.ModuleList(more)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: Any = None
        self.scale = nn.ParameterDict({"a": nn.Parameter(torch.ones(D))})

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x) * self.scale["a"]))


def _counts(self: Code, z: Tensor) -> Tensor:
    """Keeps what it saw, and counts."""
    self.calls += 1
    self.seen, self.n_seen = z, len(z)  # pyright: ignore
    return z.tanh() / (1 + 0 * self.calls)


def _in_place(self: Code, z: Tensor) -> Tensor:
    return F.relu_(z)


def _spectrum(self: Code, z: Tensor) -> Tensor:
    return torch.fft.fft(z).abs()


def _branches(self: Code, z: Tensor) -> Tensor:
    return z.sin() if bool(self.last.weight[0, 0] > 0) else z.cos()


def _whole_batch(self: Code, z: Tensor) -> Tensor:
    """Looks at all examples where there are more than four."""
    return z / z.abs().max() if len(z) > 4 else z


def _always_drops(self: Code, z: Tensor) -> Tensor:
    return F.dropout(z, 0.5, training=True)


def _recomputes(self: Code, z: Tensor) -> Tensor:
    found = checkpoint(torch.tanh, z, use_reentrant=False)
    assert isinstance(found, Tensor)
    return found


def _sorts(self: Code, z: Tensor) -> Tensor:
    return z.sort(1).values.cumsum(1)


def _double_backward_of_norms(self: Code, z: Tensor) -> Tensor:
    return z / z.norm(dim=1, keepdim=True)


def _code(between: Callable[[Code, Tensor], Tensor], *more: Callable[[], nn.Module]) -> Any:
    def make() -> Subject:
        model = Code(between, *(build() for build in more)).to(DOUBLE)
        x = torch.randn(N, D, dtype=DOUBLE)
        return Subject(model, x, torch.randn(N, K, dtype=DOUBLE))

    return make


def _hidden() -> Subject:
    """A last layer of zeros hides from outputs that a layer mixes examples."""
    subject = _code(lambda self, z: self.more[0](z), lambda: nn.BatchNorm1d(D, affine=False))()
    norm = subject.model.more[0]
    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    nn.init.zeros_(subject.model.last.weight)
    return subject


def _hooked() -> Subject:
    subject = _code(lambda self, z: z.tanh())()
    subject.model.first.register_forward_hook(lambda m, args, z: 2 * z)
    subject.model.last.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return subject


def _locked() -> Subject:
    subject = _code(lambda self, z: z.tanh())()
    subject.model.lock = threading.Lock()
    return subject


def _twice() -> Subject:
    """A layer that is called twice and has two names."""
    subject = _code(lambda self, z: self.more[0](self.more[0](z).tanh()), lambda: nn.Linear(D, D))()
    subject.model.again = subject.model.more[0]
    return subject


_RANDOM = dict.fromkeys(EXAMPLES, "independent|chance|example")
_ENTANGLED: dict[str, Any] = {"separate": False, "only": (*EXAMPLES, "gradient", "jacobian_theta")}

CASES = [
    Case("keeps what it saw", _code(_counts), skip={"tape": "calls the model as it is"}),
    Case("in place", _code(_in_place), kinks=True),
    Case("spectrum", _code(_spectrum)),
    Case("branches on a weight", _code(_branches)),
    Case("sorts", _code(_sorts), kinks=True, refused={"[lrd]*_*": "sort", "a*": "sort",
                                                      "certify*": "sort"}),
    Case("normalises rows", _code(_double_backward_of_norms)),
    Case("hooks", _hooked),
    Case("cannot be copied", _locked),
    Case("called twice, two names", _twice),
    Case("looks at the whole batch", _code(_whole_batch), **_ENTANGLED),
    Case("mixes examples behind zeros", _hidden, **_ENTANGLED),
    Case("drops always", _code(_always_drops), only=EXAMPLES, refused=_RANDOM),
    Case("recomputes", _code(_recomputes), only=("functional", "gradient", "jacobian_theta",
                                                  *EXAMPLES),
         skip={"lazy_ratio": "checkpoints have no second derivatives"}),
]  # fmt: skip
"""One model for each habit."""
