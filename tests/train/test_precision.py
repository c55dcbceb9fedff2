"""Narrow numbers, scaled losses, compiled losses and deterministic kernels."""

import os

import pytest
import torch
from torch import nn

from tests.train.fitted import assert_same, fitted, network, points, weights
from vademecum.errors import UsageError
from vademecum.train import Supervised
from vademecum.train._precision import PRECISIONS, compiled, exactly_repeatable, scaler_for


class Seen(Supervised):
    """Remembers in which dtype its model has answered."""

    def losses(self, batch):
        self.dtype = self.model(batch[0]).dtype
        return super().losses(batch)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_the_model_computes_in_that_precision(precision):
    objective = Seen(network().model)
    run = fitted(objective, precision=precision, steps=20)
    assert objective.dtype == getattr(torch, precision)
    assert {p.dtype for p in objective.parameters()} == {torch.float32}
    exact = fitted(Seen(network().model), steps=20)
    assert (weights(run) - weights(exact)).abs().max() < (1e-7 if precision == "float32" else 0.05)


def test_functions_are_called_in_that_precision_as_well():
    class Later(Seen):
        def losses(self, batch):
            return {"model": lambda: super(Later, self).losses(batch)["model"]}

    objective = Later(network().model)
    fitted(objective, precision="bfloat16", steps=1)
    assert objective.dtype == torch.bfloat16


class Steep(nn.Module):
    """A loss whose gradient is 200: scaled by 2^16 it is beyond float16."""

    def __init__(self, slope: float):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.slope = slope

    def losses(self, batch):
        return {"model": (self.w.half() * self.slope).float().sum()}


def test_steps_that_overflow_in_float16_are_left_out_and_the_scale_falls():
    objective = Steep(200.0)
    run = fitted(
        objective, torch.ones(4), precision="float16", steps=12, schedule="linear",
        optimizer=lambda p: torch.optim.SGD(p, lr=1e-3),
    )  # fmt: skip
    norms = run.history["norm"]
    assert not norms.isfinite().all()
    assert norms[-1] == 200
    taken = int(norms.isfinite().sum())
    factors = [1 - t / 12 for t in range(taken)]
    assert objective.w.item() == pytest.approx(1 - 0.2 * sum(factors), rel=1e-5)


def test_what_no_scale_helps_is_refused():
    class Root(Steep):
        def losses(self, batch):
            return {"model": (self.w - 1).sqrt().sum()}  # at 1, where it is infinitely steep

    with pytest.raises(
        UsageError, match=r"the gradient of w must be finite, got inf .* in step 17"
    ):
        fitted(Root(0.0), torch.ones(4), precision="float16", steps=100)  # the scale was 2 ** 16


def test_precisions_by_name():
    with pytest.raises(
        ValueError, match="precision must be one of 'float32', 'bfloat16', 'float16'"
    ):
        fitted(precision="double")


def test_compiled_losses_train_the_plain_module(monkeypatch):
    calls = []

    def compiler(function):
        calls.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compiler)
    objective = network()
    run = fitted(objective, compile=True)
    assert calls == [objective.losses]
    assert_same(run, fitted())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_losses_are_the_same_up_to_rounding():
    run = fitted(network(dropout=0.0), points(48), compile=True, steps=6)
    other = fitted(network(dropout=0.0), points(48), steps=6)
    assert (weights(run) - weights(other)).abs().max() < 1e-5
    assert not any("_orig_mod" in name for name in run.objective.state_dict())


def test_deterministic_kernels_for_a_while():
    seen = []

    class Asks(Supervised):
        def losses(self, batch):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return super().losses(batch)

    fitted(Asks(network().model), deterministic=True, steps=1)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.fixture
def as_before():
    """Torch's switches, given back after a test."""
    known = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(known[0])
    torch.backends.cudnn.benchmark = known[1]


@pytest.mark.parametrize("before", [False, True])
def test_switches_of_torch_are_given_back(before, as_before):
    torch.backends.cudnn.benchmark = before
    torch.use_deterministic_algorithms(before)
    with exactly_repeatable(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark is before
    assert torch.are_deterministic_algorithms_enabled() is before
    with exactly_repeatable(False):
        assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize(("given", "expected"), [(None, ":4096:8"), (":16:8", ":16:8")])
def test_a_workspace_of_cublas_is_set_unless_there_is_one(given, expected, monkeypatch, as_before):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is given back
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    if given is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", given)
    with exactly_repeatable(True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == expected


def test_losses_are_scaled_in_float16_alone():
    enabled = {p: scaler_for(p, torch.device("cpu")).is_enabled() for p in PRECISIONS}
    assert enabled == {"float32": False, "bfloat16": False, "float16": True}


def test_losses_must_be_a_method():
    class Named(nn.Linear):
        losses = "none"

    with pytest.raises(ValueError, match=r"must have a method losses\(batch\) .*, got Named"):
        compiled(Named(1, 1), compile=False)
