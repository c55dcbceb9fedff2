"""The same on a GPU."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from tests.train.fitted import assert_same, fitted, network, weights
from tests.train.test_guard import Odd
from vademecum.errors import UsageError
from vademecum.train import Supervised

pytestmark = pytest.mark.gpu


def on_gpu(**options: Any) -> Any:
    return fitted(network(dropout=options.pop("dropout", 0.0)), device="cuda", **options)


def test_training_on_a_gpu_is_that_on_the_cpu():
    run, other = on_gpu(), fitted(network(dropout=0.0))
    assert next(run.objective.parameters()).is_cuda
    assert (weights(run).cpu() - weights(other)).abs().max() < 1e-4


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_run_that_is_resumed_has_the_same_bits(precision, tmp_path):
    options: dict[str, Any] = {"precision": precision, "deterministic": True, "dropout": 0.2}
    whole = on_gpu(**options)
    on_gpu(folder=tmp_path, steps=5, **options)
    again = on_gpu(folder=tmp_path, resume=True, change=["steps"], **options)
    assert weights(whole).equal(weights(again))


def test_evaluations_leave_training_as_it_is():
    def evaluate(objective: Any) -> dict[str, float]:
        return {"drawn": float(torch.rand((), device="cuda"))}

    plain = on_gpu(dropout=0.2, deterministic=True)
    looked = on_gpu(dropout=0.2, deterministic=True, evaluate=evaluate, evaluate_every=2)
    assert_same(plain, looked)


fused = partial(torch.optim.AdamW, lr=1e-2, fused=True)


def test_numbers_that_are_read_late_are_those_of_the_cpu():
    run, other = on_gpu(optimizer=fused, clip=0.1), fitted(network(dropout=0.0), clip=0.1)
    assert (weights(run).cpu() - weights(other)).abs().max() < 1e-4
    for name in ("loss", "norm", "rate"):
        assert torch.allclose(run.history[name], other.history[name], rtol=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_changes_no_weight(what, value, tmp_path):
    objective = Odd(what, value)
    named = "the loss of 'model'" if what == "loss" else r"the gradient of model\.3\.bias"
    with pytest.raises(UsageError, match=rf"{named} must be finite, got {value}.* in step 4, "):
        fitted(objective, device="cuda", optimizer=fused, folder=tmp_path, deterministic=True)
    assert objective.step == 4  # the fifth step had begun
    good = fitted(device="cuda", optimizer=fused, steps=3, deterministic=True)
    own = torch.cat([p.detach().flatten().double() for p in objective.state_dict().values()])
    assert own.equal(weights(good))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_steps_do_not_wait_for_the_gpu():
    """Between two steps the host must not ask for a number that a kernel is to compute."""
    modes = []

    class Asks(Supervised):
        def before_step(self, step: int) -> None:
            modes.append(torch.cuda.get_sync_debug_mode())
            torch.cuda.set_sync_debug_mode("error" if 0 < step < 5 else "default")

    try:
        fitted(Asks(network(dropout=0.0).model), device="cuda", optimizer=fused, steps=6)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert modes[2:] == [2] * 4
