"""Steps that are taken many times."""

import pytest
import torch

from vademecum.models import Replay

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[CUDA, pytest.mark.gpu])])
def test_a_step_begins_where_its_state_stands(device):
    x, count = torch.ones(3, device=device), torch.zeros(1, device=device)

    def step():
        x.mul_(2)
        count.add_(1)

    replay = Replay(step, [x, count])
    assert x.tolist() == [1, 1, 1]
    for _ in range(5):
        replay()
    assert x.tolist() == [32, 32, 32]
    assert count.item() == 5
    x.fill_(3)
    replay()
    assert x.tolist() == [6, 6, 6]


@pytest.mark.gpu
def test_tensors_that_only_the_step_holds_stay_alive():
    x = torch.ones(3, device="cuda")

    def made() -> Replay:
        factor = torch.full((3,), 2.0, device="cuda")
        return Replay(lambda: x.mul_(factor), [x])

    replay = made()
    others = [torch.full((3,), 7.0, device="cuda") for _ in range(50)]  # memory that was freed
    replay()
    assert x.tolist() == [2, 2, 2]
    assert len(others) == 50


def test_a_step_without_state_is_refused():
    with pytest.raises(ValueError, match="state must name the tensors that a step changes"):
        Replay(lambda: None, [])
