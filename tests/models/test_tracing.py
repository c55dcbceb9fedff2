"""The calls of foreign code: shapes are plain numbers, values are not asked for."""

import functools
import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vademecum.models import Trace

A, B = torch.randn(2, 4), torch.randn(3, 4)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.shift = nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = self.inner(x)
        h += self.shift
        unused = torch.tanh(h)  # noqa: F841
        return torch.relu(h).view(h.size(0), -1)


def test_calls_with_their_places():
    model = Branches()
    trace = Trace(model, A, B)
    assert [call.name for call in trace.calls] == ["linear", "relu", "add", "relu", "view"]
    names = [str(call) for call in trace.calls]
    assert names[:3] == [
        "submodule 'inner.0' (Linear)", "submodule 'inner.1' (ReLU)", "add in the model",
    ]  # fmt: skip
    assert trace.calls[-1].place.startswith("view in the model (line ")
    assert "return torch.relu(h).view(h.size(0), -1)" in trace.calls[-1].place
    added = trace.calls[2]
    assert added.args[1] is model.shift
    assert [v.tensor.shape for v in added.tensors] == [(2, 4)]
    for n in (1, 5):
        h = torch.randn(n, 4)
        assert torch.equal(added.bind()(h), h + 1)
        assert trace.calls[-1].bind()(h.view(n, 2, 2)).shape == (n, 4)
    assert "forward" not in vars(model)


@dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple


def decorated(function):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return inner


class Foreign(nn.Module):
    """Checks, options, data classes and buffers, as other people's models have them."""

    places: torch.Tensor

    def __init__(self):
        super().__init__()
        self.channels, self.head = 4, nn.Linear(6, 2)
        self.register_buffer("places", torch.arange(6.0), persistent=False)
        self.norm = nn.BatchNorm1d(6).eval()

    @decorated
    def forward(self, x, mask=None, *, return_dict=True, **options):
        if x.shape[1] != self.channels or not isinstance(x, torch.Tensor):
            raise ValueError("wrong channels")
        torch._assert(x.abs().max() < 1e6, "too large")
        if not torch.jit.is_scripting() and x.dtype == self.head.weight.dtype:
            x = x.to(x.device)
        more = math.ceil(int(x.shape[-1]) * 1.5) - len(x[0])
        h = F.pad(x, (0, more)) + torch.arange(x.shape[1] + more) + self.places
        h = h if mask is None else h * mask
        h = self.norm(h + torch.zeros(x.shape[0], 6, device=x.device))
        y = self.head(h.reshape(h.numel() // 6, 6))
        return Result(y, (h,)) if return_dict else (y, h)


def test_foreign_code_runs_as_it_is():
    model = Foreign()
    seen = []
    model.norm.register_forward_hook(lambda module, given, out: seen.append(out.sum().item()))
    model.head.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    trace = Trace(model, A, B)
    assert len(seen) == 4
    assert [call.name for call in trace.calls][-3:] == ["batch_norm", "reshape", "linear"]
    hidden = Trace(model, A, B, output=lambda y: y.hidden[0])
    assert hidden.calls[-1].name == "batch_norm"


def replay(trace, x):
    values = {trace.sources[0].index: x}
    for call in trace.calls:
        made = call.bind()(*(values[v.index] for v in call.tensors))
        for value, tensor in zip(call.outputs, made if call.several else [made], strict=True):
            if value is not None:
                values[value.index] = tensor
    return values[trace.result.index]


def test_replayed_for_any_batch():
    model = Foreign()
    trace = Trace(model, A, B)
    for n in (1, 2, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(replay(trace, x), model(x).logits)


class Choosy(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Leaving(nn.Module):
    def forward(self, x):
        return x * float(x.sum())


class ByBatch(nn.Module):
    def forward(self, x):
        return x if len(x) == 2 else -x


class Several(nn.Module):
    def forward(self, x):
        return x, x


class Constant(nn.Module):
    def forward(self, x):
        return torch.zeros(len(x), 1)


class Flat(nn.Module):
    def forward(self, x):
        return x.view(-1).relu()


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(4, 4))

    def forward(self, x):
        return self.inner(x)


REFUSED = [
    (Choosy(), r"must be traceable, got bool in the model \(line \d+ of test_tracing.py: return x"),
    (Leaving(), "must be traceable, got float in the model"),
    (ByBatch(), "code must do the same for every batch"),
    (Several(), "must give a tensor that depends on its input, got tuple: say which part counts"),
    (Constant(), "must give a tensor that depends on its input, got Tensor"),
    (Flat(), r"first axis throughout, got a tensor of shape \(8,\) for 2 examples from view"),
    (Scripted(), "scripted"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED)
def test_code_that_cannot_be_traced(model, message):
    with pytest.raises(ValueError, match=message):
        Trace(model, A, B)
    assert "forward" not in vars(model)


class Broken(nn.Module):
    def forward(self, x):
        raise torch.OutOfMemoryError("no memory")


def test_tracing_hides_no_lack_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        Trace(Broken(), A, B)


class Transposed(nn.Module):
    def forward(self, x):
        torch.sin(x)  # on which nothing depends
        return torch.tanh(x.mT).cos().mT


def test_calls_are_asked_about_before_their_shapes():
    asked = []

    def check(call):
        asked.append(call.name)
        if call.name == "cos":
            raise ValueError("no cosine")

    with pytest.raises(ValueError, match="no cosine"):
        Trace(Transposed(), A, B, check=check)
    assert asked == ["mT", "tanh", "cos"]


def test_the_first_call_that_moves_examples_is_named():
    with pytest.raises(ValueError, match=r"of shape \(4, 2\) for 2 examples from mT in the model"):
        Trace(Transposed(), A, B)


def test_a_forward_of_an_instance_is_given_back():
    model = nn.Linear(4, 4)
    own = vars(model)["forward"] = lambda x: x + 1
    assert Trace(model, A, B).calls[0].name == "add"
    assert model.forward is own


def test_constants_in_the_dtype_or_shape_of_what_depends_on_the_input_stay_constants():
    class Shifted(nn.Module):
        def forward(self, x):
            scale = torch.arange(4).to(x) + torch.ones(4, dtype=torch.long).type_as(x)
            return torch.tanh(x.to(scale) * scale.expand_as(x) + torch.ones(1, 4).view_as(x[:1]))

    trace = Trace(Shifted(), A, B)
    assert [call.name for call in trace.calls] == ["to", "mul", "add", "tanh"]
    torch.testing.assert_close(trace.calls[1].args[1].row, torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
