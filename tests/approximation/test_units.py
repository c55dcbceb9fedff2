"""The absolute value and maxout against loops, torch's own units and autograd."""

import pytest
import torch
from torch import nn

from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.foundations.convexity import convexity_violation
from vademecum.foundations.regions import Box


def test_abs_unit():
    x = torch.tensor([-2.0, -0.0, 3.0], requires_grad=True)
    AbsUnit()(x).sum().backward()
    assert x.grad is not None
    assert AbsUnit()(x).tolist() == [2.0, 0.0, 3.0]
    assert x.grad.tolist() == [-1.0, 0.0, 1.0]
    assert AbsUnit()(torch.tensor([-3, 4])).tolist() == [3, 4]


@pytest.mark.parametrize("bias", [True, False])
def test_maxout_by_loops(bias):
    layer = Maxout(3, 4, 5, bias=bias).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    found = layer(x)
    assert found.shape == (2, 6, 4)
    for i in range(4):
        rows = range(5 * i, 5 * i + 5)
        shift = layer.linear.bias if bias else torch.zeros(20)
        pieces = torch.stack([x @ layer.linear.weight[r] + shift[r] for r in rows])
        torch.testing.assert_close(found[..., i], pieces.max(0).values)
        torch.testing.assert_close(layer.affine_pieces(x)[..., i, :], pieces.movedim(0, -1))


def test_relu_is_a_maxout():
    relu = Maxout(2, 1, 2)
    relu.linear.weight.data[0], relu.linear.bias.data[0] = 0.0, 0.0
    x = torch.randn(50, 2)
    plain = x @ relu.linear.weight[1] + relu.linear.bias[1]
    torch.testing.assert_close(relu(x)[:, 0], plain.relu())


def test_maxout_is_convex():
    layer = Maxout(2, 1, 4).double()
    box = Box(-torch.ones(2).double(), torch.ones(2).double())
    assert not convexity_violation(lambda x: layer(x)[:, 0], box, chords=256, steps=20).found
    assert convexity_violation(lambda x: -layer(x)[:, 0], box, chords=256, steps=20).found


def test_gradient_of_a_tie_is_that_of_one_piece():
    layer = Maxout(1, 1, 2, bias=False)
    layer.linear.weight.data = torch.tensor([[2.0], [3.0]])
    x = torch.zeros(1, 1, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 2.0


def test_units_have_exact_affine_maps():
    model = nn.Sequential(Maxout(3, 4, 3), AbsUnit(), Maxout(4, 2, 2)).double()
    x = torch.randn(7, 3, dtype=torch.float64)
    A, b = local_affine_map(model, x)
    jacobian = torch.stack([torch.func.jacrev(model)(point) for point in x])
    torch.testing.assert_close(A, jacobian)
    torch.testing.assert_close(torch.einsum("noi,ni->no", A, x) + b, model(x))


ERRORS = [
    (lambda: Maxout(0, 1), "in_features must be >= 1, got 0"),
    (lambda: Maxout(1, 0), "out_features must be >= 1, got 0"),
    (lambda: Maxout(1, 1, 0), "pieces must be >= 1, got 0"),
    (lambda: Maxout(1, 1, 2.5), "pieces must be an integer, got 2.5"),  # type: ignore[arg-type]
    (lambda: Maxout(3, 1)(torch.ones(2, 2)), r"x must be 3 wide, got shape \(2, 2\)"),
    (lambda: Maxout(3, 1)(torch.tensor(1.0)), r"x must be 3 wide, got shape \(\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
