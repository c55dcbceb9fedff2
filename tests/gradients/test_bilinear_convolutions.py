"""Convolutions that are bilinear against torch's own, up to third derivatives."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients.jacobian_operator import jacobian
from vademecum.models import bilinear_convolutions

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
        found = torch.autograd.grad(
            value, [t for t in (x, w) if t.requires_grad], create_graph=True
        )
        values += found
        waves = (torch.linspace(-1, 1, g.numel(), dtype=w.dtype).view_as(g) for g in found)
        value = torch.stack([(g * a).sum() for g, a in zip(found, waves, strict=True)]).sum()
    return values


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("convolution", "input", "kernel", "rest", "replaced"), CALLS)
def test_equal_torch(convolution, input, kernel, rest, replaced, constant):
    x = torch.randn(input, dtype=torch.float64, requires_grad=not constant)
    w = torch.randn(kernel, dtype=torch.float64, requires_grad=True)
    with bilinear_convolutions():
        found = derivatives(convolution, x, w, rest)
        plain = convolution(x, w, None, *rest[1:])
    assert ("_Convolution" in plain.grad_fn.name()) is replaced
    for one, other in zip(found, derivatives(convolution, x, w, rest), strict=True):
        # Three sums, one in the other, of at most two hundred products, for inputs and kernels.
        atol = 1200 * torch.finfo(w.dtype).eps * float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


def test_options_by_keyword():
    x, w = torch.randn(2, 4, 7).double(), torch.randn(6, 4, 3).double().requires_grad_()
    with bilinear_convolutions():
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
