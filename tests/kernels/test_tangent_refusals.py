"""What tangent kernels refuse, and how they say so."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.kernels import empirical_ntk, ntk_operator, ntk_spectrum

NET, X = nn.Linear(3, 2), torch.randn(4, 3)


class Given(nn.Module):
    """Gives what a function makes of a linear layer's output."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.make = nn.Linear(3, 2), make

    def forward(self, x):
        return self.make(self.layer(x))


REFUSED = [
    (lambda: empirical_ntk(NET, X, outputs="all"),
     "outputs must be one of 'full', 'diagonal', 'trace', 'sum', got 'all'"),
    (lambda: empirical_ntk(NET, X, torch.randn(4, 2)),
     r"x2 must have the shape of an example of x1, \(3,\), got \(2,\)"),
    (lambda: empirical_ntk(NET, X, X.double()),
     "x2 must have the dtype of x1, torch.float32, got torch.float64"),
    (lambda: empirical_ntk(NET, X, X.to("meta")),
     "x2 must hold numbers, got a tensor on the device meta"),
    (lambda: empirical_ntk(NET, (X,), (X, X)),
     "x1 and x2 must hold equally many tensors, got 1 and 2"),
    (lambda: empirical_ntk(NET, X * torch.nan), r"x1 must be finite, got nan at \(0, 0\)"),
    (lambda: empirical_ntk(NET, X, X / 0), "x2 must be finite, got"),
    (lambda: empirical_ntk(NET, {"input": X * torch.nan}), r"x1\['input'\] must not hold NaN"),
    (lambda: empirical_ntk(NET, X[:0]), r"x1 must not be empty, got shape \(0, 3\)"),
    (lambda: empirical_ntk(NET, DataLoader(TensorDataset(X))),
     "x1 must be data at hand, got a DataLoader"),
    (lambda: empirical_ntk(NET, X, memory=0), "memory must be >= 1, got 0"),
    (lambda: empirical_ntk(NET, X, out=torch.empty(4, 4)),
     r"out must have shape \(4, 4, 2, 2\), got \(4, 4\)"),
    (lambda: empirical_ntk(nn.ReLU(), X), "model must have parameters to differentiate, got none"),
    (lambda: empirical_ntk(Given(lambda z: (z, z)), X), "model must give a tensor, got tuple"),
    (lambda: empirical_ntk(Given(lambda z: z.argmax(1)), X),
     "outputs of model must be floating point, got torch.int64"),
    (lambda: empirical_ntk(Given(lambda z: z.detach()), X),
     "outputs of model must be differentiable, and these are constants"),
    (lambda: empirical_ntk(Given(lambda z: z / 0), X),
     "outputs of model must be finite, and those of example 0 are not"),
    (lambda: empirical_ntk(Given(lambda z: z - z.mean(0)), X),
     "model must treat examples independently in evaluation mode"),
    (lambda: empirical_ntk(Given(lambda z: z.sum()), X),
     "model must give one output for each of 3 examples"),
    (lambda: ntk_operator(NET, X, torch.randn(4, 2)),
     "x2 must have the shape of an example of x1"),
    (lambda: ntk_operator(NET, X, memory=0), "memory must be >= 1, got 0"),
    (lambda: ntk_operator(nn.ReLU(), X), "model must have parameters to differentiate, got none"),
    (lambda: ntk_spectrum(NET, X, count=9), "count must be <= 8, got 9"),
    (lambda: ntk_spectrum(NET, X, count=0), "count must be >= 1, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
