"""Convolutions of constants against torch's own, up to third derivatives."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients.jacobian_operator import jacobian
from vademecum.models import constant_inputs

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")

BIAS = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, -1.0], dtype=torch.float64)
CALLS = [  # convolution, shapes of input and kernel, further arguments, whether it is replaced
    (F.conv1d, (2, 4, 7), (6, 4, 3), (), True),
    (F.conv1d, (2, 4, 7), (6, 4, 3), (BIAS,), True),
    (F.conv1d, (2, 4, 7), (6, 4, 3), (None, 2), True),
    (F.conv1d, (2, 4, 7), (6, 4, 3), (None, 1, 2), True),
    (F.conv1d, (2, 4, 7), (6, 4, 3), (None, 1, 0, 3), True),
    (F.conv1d, (2, 4, 7), (6, 2, 3), (BIAS, 2, 1, 2, 2), True),
    (F.conv2d, (2, 4, 6, 7), (6, 4, 2, 3), (None, [2], [1]), True),
    (F.conv2d, (2, 4, 6, 7), (6, 2, 2, 3), (BIAS, (2, 3), (0, 2), (3, 1), 2), True),
    (F.conv3d, (2, 2, 4, 3, 5), (6, 2, 2, 1, 3), (BIAS, (1, 2, 2), 1), True),
    (F.conv1d, (4, 7), (6, 4, 3), (), False),  # without an axis of examples
    (F.conv2d, (2, 4, 6, 5), (6, 4, 2, 2), (None, 1, "same"), False),
]


def derivatives(convolution, x, w, rest):
    """The value, and the derivatives of a function of it along a direction, to the third."""
    y = convolution(x, w, *rest)
    values, value = [y], y.sin().sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(value, w, create_graph=True)
        values.append(g)
        value = (g * torch.linspace(-1, 1, w.numel(), dtype=w.dtype).view_as(w)).sum()
    return values


@pytest.mark.parametrize(("convolution", "input", "kernel", "rest", "replaced"), CALLS)
def test_equal_torch(convolution, input, kernel, rest, replaced):
    x = torch.randn(input, dtype=torch.float64)
    w = torch.randn(kernel, dtype=torch.float64, requires_grad=True)
    with constant_inputs():
        found = derivatives(convolution, x, w, rest)
        plain = convolution(x, w, None, *rest[1:])
    assert ("_Convolution" in plain.grad_fn.name()) is replaced
    for one, other in zip(found, derivatives(convolution, x, w, rest), strict=True):
        # Three sums, one in the other, of at most two hundred products.
        atol = 600 * torch.finfo(w.dtype).eps * float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def test_options_by_keyword_and_inputs_that_are_no_constants():
    x, w = torch.randn(2, 4, 7).double(), torch.randn(6, 4, 3).double().requires_grad_()
    with constant_inputs():
        assert torch.equal(F.conv1d(x, w, stride=2), torch.conv1d(x, w, None, 2))
        x.requires_grad_()
        found = torch.autograd.grad(F.conv1d(x, w).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(F.conv1d(x, w).sum(), x), rtol=0, atol=0)


def test_a_kernel_that_is_called_by_hand():
    class Edges(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.tensor([[[1.0, -1.0]]]))

        def forward(self, x):
            return F.conv1d(x, self.kernel)

    x = torch.tensor([[[1.0, 2.0, 4.0]], [[0.0, 3.0, 5.0]]])
    J = jacobian(Edges(), x)
    assert (J @ torch.tensor([1.0, 10.0])).tolist() == [21, 42, 30, 53]
    assert (J.T @ torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [17, 39]
