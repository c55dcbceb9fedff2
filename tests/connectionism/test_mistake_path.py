"""The perceptron rule step by step, by hand, and its loss."""

import inspect
import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.mistake_path import perceptron_loss, perceptron_path


def test_path_by_hand():
    x = torch.tensor([[1, 0], [0, 1], [-1, -1]])
    path = perceptron_path(x, torch.tensor([1, 1, -1]))
    assert path.weights.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert path.examples.tolist() == [0, 1]
    assert path.margins.tolist() == [0, 0]
    assert path.converged
    other = perceptron_path(x, torch.tensor([1, 1, -1]), order=torch.tensor([2, 1, 0]))
    assert other.weights.tolist() == [[0, 0], [1, 1]]
    none = perceptron_path(x, torch.tensor([1, 1, -1]), mistake=lambda margin: margin < 0)
    assert none.examples.tolist() == []
    assert none.converged
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached with 1 mistakes left"):
        cut = perceptron_path(x, torch.tensor([1, 1, -1]), max_iter=1)
    assert cut.weights.tolist() == [[0, 0], [1, 0]]
    assert not cut.converged
    worst = perceptron_path(
        torch.tensor([[1], [5]]), torch.tensor([1, 1]), order="worst", theta0=torch.tensor([-9])
    )
    assert worst.examples.tolist() == [1, 1]
    assert (
        perceptron_path(
            torch.tensor([[100]]).to(torch.int8), torch.tensor([1]), theta0=torch.tensor([-150])
        ).weights[-1]
        == 50
    )


def test_path_of_a_shuffled_order_sees_each_example_once_an_epoch():
    torch.manual_seed(0)
    x, y = torch.ones(6, 1), torch.ones(6)
    options = {"order": "shuffled", "mistake": lambda margin: margin > -1, "max_iter": 18}
    paths = []
    for seed in (0, 0, 1):
        dice = torch.Generator().manual_seed(seed)
        with pytest.warns(ConvergenceWarning, match="max_iter=18 reached with 6 mistakes left"):
            paths.append(perceptron_path(x, y, generator=dice, **options).examples)
    for epoch in paths[0].view(3, 6):
        assert sorted(epoch.tolist()) == list(range(6))
    assert paths[0].equal(paths[1])
    assert not paths[0].equal(paths[2])


def test_loss_values_and_gradients():
    theta = torch.tensor([1.0, -1.0], requires_grad=True)
    x = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    y = torch.tensor([1, 1, -1])
    loss = perceptron_loss(theta, x, y)
    assert loss.tolist() == [0.0, 2.0, 0.0]
    (gradient,) = torch.autograd.grad(loss.sum(), theta)
    assert gradient.tolist() == [1.0, -1.0]  # -(0, 2) of the mistake and +(1, 1) of the tie


@pytest.mark.parametrize(("n", "labels"), [((), 3), ((3,), 1), ((2, 3), 2)])
def test_loss_wants_one_label_an_example(n, labels):
    with pytest.raises(ValueError, match=r"y must have shape .*, got"):
        inspect.unwrap(perceptron_loss)(torch.ones(2), torch.ones(*n, 2), torch.ones(labels))


PATH_ERRORS = [
    ({"x": torch.zeros(2)}, "x must have 2 axes"),
    ({"x": torch.zeros(2, 2, dtype=torch.bool)}, "x must be a real matrix, got torch.bool"),
    ({"x": torch.full((2, 2), math.inf)}, "x must be finite"),
    ({"y": torch.tensor([0, 1])}, "entries of y must be -1 or"),
    ({"y": torch.tensor([1])}, "y must be 2 wide"),
    ({"theta0": torch.zeros(3)}, r"theta0 must be torch.float32 of shape \(2,\), got .*\(3,\)"),
    ({"theta0": torch.zeros(2, dtype=torch.int64)}, "theta0 must be torch.float32"),
    ({"order": "random"}, "order must be one of 'cyclic'"),
    ({"order": torch.tensor([0, 0])}, r"order must hold every index from 0 to 1, got \[0, 0\]"),
    ({"max_iter": -1}, "max_iter must be >= 0, got -1"),
]


@pytest.mark.parametrize(("change", "message"), PATH_ERRORS)
def test_path_errors(change, message):
    arguments = {"x": torch.eye(2), "y": torch.tensor([1, -1])} | change
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(perceptron_path)(**arguments)  # without the tests' check of annotations
