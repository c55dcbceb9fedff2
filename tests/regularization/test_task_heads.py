"""Several heads on one trunk."""

import pytest
import torch
from torch import nn

from vademecum.regularization import MultiTask
from vademecum.testing import check_part


class Counted(nn.Linear):
    """A layer that counts its calls."""

    calls = 0

    def forward(self, input):
        self.calls += 1
        return super().forward(input)


def test_multi_task_shares_its_trunk():
    trunk, heads = Counted(3, 4), {"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)}
    model, x = MultiTask(trunk, heads), torch.randn(5, 3)
    found = model(x)
    assert trunk.calls == 1
    assert list(found) == ["a", "b"]
    for name, head in heads.items():
        assert torch.equal(found[name], head(trunk(x)))
        assert torch.equal(model(x, task=name), found[name])
    total = found["a"].square().sum() + found["b"].square().sum()
    (joint,) = torch.autograd.grad(total, trunk.weight)
    parts = [torch.autograd.grad(model(x, task=t).square().sum(), trunk.weight)[0] for t in "ab"]
    torch.testing.assert_close(joint, parts[0] + parts[1])
    named = MultiTask(trunk, heads)(input=x)  # what the trunk takes by name
    assert torch.equal(named["a"], found["a"])
    assert set(model.state_dict()) >= {"trunk.weight", "heads.a.weight", "heads.b.bias"}


def test_multi_task_keeps_the_laws_of_parts():
    heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)}
    check_part(MultiTask(nn.Linear(3, 4), heads), torch.randn(5, 3))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({}, "heads must hold at least one module, got none"),
        ({"double": nn.ReLU()}, "names that nn.ModuleDict can hold, got 'double'"),
        ({"training": nn.ReLU()}, "got 'training'"),  # what instances have
        ({"a.b": nn.ReLU()}, "got 'a.b'"),
        ({"": nn.ReLU()}, "got ''"),
        ({3: nn.ReLU()}, "got 3"),
    ],
)
def test_bad_heads(heads, message):
    with pytest.raises(ValueError, match=message):
        MultiTask(nn.ReLU(), heads)


def test_unknown_task():
    with pytest.raises(ValueError, match="task must be one of"):
        MultiTask(nn.ReLU(), {"a": nn.ReLU()})(torch.ones(1), task="b")
