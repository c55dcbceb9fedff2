"""What `lazy_ratio` asks of its eigenvalue solver, and makes of both ends of a spectrum."""

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

import vademecum.kernels.laziness
from vademecum.foundations import eigsh
from vademecum.kernels import lazy_ratio


class Form(nn.Module):
    """The quadratic form of some eigenvalues, which are those of its Hessian."""

    def __init__(self, values: Tensor):
        super().__init__()
        self.values = values
        self.theta = nn.Parameter(torch.ones_like(values))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.values * self.theta.square()).sum() / 2


@pytest.fixture
def asked(monkeypatch):
    """What came of each call of the solver, with its options."""
    seen = []

    def solve(op, k, **options):
        seen.append((eigsh(op, k, **options), options))
        return seen[-1][0]

    monkeypatch.setattr(vademecum.kernels.laziness, "eigsh", solve)
    return seen


ONE = torch.ones(1, 1, dtype=torch.float64)


def test_one_end_that_does_not_converge(asked):
    e = torch.cat([torch.tensor([10.0]), torch.linspace(-1, 0, 299)]).double()
    with pytest.warns(ConvergenceWarning):
        found = lazy_ratio(Form(e), ONE, tol=1e-6, max_iter=20)
    assert found.hessian_norm.item() == pytest.approx(10)
    assert [each.converged for each, _ in asked] == [True, False]
    assert not found.converged
    assert found.applications == sum(each.applications for each, _ in asked)


@pytest.mark.parametrize("size", [20, 26])  # as many as a basis holds
def test_few_parameters_are_asked_for_once(size, asked):
    e = torch.linspace(-3, 2, size).double()
    found = lazy_ratio(Form(e), ONE)
    assert found.hessian_norm.item() == pytest.approx(3)
    assert found.applications == size  # a matrix, whose both ends are known
    assert len(asked) == 1


@pytest.mark.parametrize("vectors", [5, 9, 40])
def test_memory_is_for_the_basis_and_two_more(vectors, asked):
    e = torch.linspace(-3, 2, 100).double()
    lazy_ratio(Form(e), ONE, memory=vectors * 100 * 8 + 799)
    assert {options["subspace"] for _, options in asked} == {min(vectors - 2, 26)}


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_squares_that_leave_the_range(unit):
    """Of c |theta|^2 / 2 at theta = (1, 1) the curvature is c, and the slope 2^(1/2) c."""
    found = lazy_ratio(Form(torch.full((2,), unit)), torch.ones(1, 1))
    assert found.gradient_norm.item() == pytest.approx(2**0.5 * unit)
    assert found.ratio.item() == pytest.approx(0.5 / unit)


def test_memory_that_ran_out_is_told():
    class Greedy(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if len(input) < 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(input)

    with pytest.raises(torch.OutOfMemoryError):
        lazy_ratio(Greedy(4, 3), torch.ones(3, 4))
