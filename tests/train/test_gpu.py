"""The same on a GPU."""

from typing import Any

import pytest
import torch

from tests.train.fitted import assert_same, fitted, network, weights

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
