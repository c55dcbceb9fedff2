"""Tangent kernels as operators and their spectra, against the kernel's matrix."""

import pytest
import torch
from torch import nn

from tests.gradients.nets import NETS, make
from tests.kernels.test_tangent_kernel import close, kernel, rows
from vademecum.foundations import cg
from vademecum.kernels import NTKSpectrum, ntk_operator, ntk_spectrum
from vademecum.testing import check_instrument
from vademecum.testing.laws import changes, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")


def matrix(J, L):
    return J.flatten(0, 1) @ L.flatten(0, 1).T


@pytest.mark.parametrize("name", ["residual", "tied", "norms", "language", "keywords", "attention"])
def test_products(name):
    net, x, _ = make(name, 5)
    other = NETS[name][1](4)
    J, L = rows(net, x), rows(net, other)
    u, v = torch.randn(15, 2).double(), torch.randn(12).double()
    before = snapshot(net.train())
    one, two = ntk_operator(net, x), ntk_operator(net, x, other)
    assert two.shape == (15, 12)
    close(one @ u, matrix(J, J) @ u)
    close(one.T @ u, matrix(J, J) @ u)
    close(two @ v, matrix(J, L) @ v)
    close(two.T @ u[:, 0], matrix(L, J) @ u[:, 0])
    assert not list(changes(before, snapshot(net)))


def test_portions_that_keep_to_memory():
    net, x, _ = make("planar", 7)
    J, v = rows(net, x), torch.randn(21).double()
    with pytest.raises(ValueError, match="memory must be >= ") as refused:
        ntk_operator(net, x, memory=1)
    least = int(str(refused.value).split(">= ")[1].split()[0])
    for memory in (least, 3 * least, 100 * least):
        close(ntk_operator(net, x, memory=memory) @ v, matrix(J, J) @ v)


class Centred(nn.Module):
    """Examples influence each other, which an operator does not mind."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2).double()

    def forward(self, x):
        return (self.layer(x) - self.layer(x).mean(0)).tanh()


def test_examples_may_influence_each_other():
    net, x = Centred(), torch.randn(5, 3).double()
    J = rows(net, x)
    close(ntk_operator(net, x).dense(), matrix(J, J))


def test_it_solves_with_conjugate_gradients():
    net = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 1)).double()
    x, y = torch.randn(6, 4).double(), torch.randn(6).double()
    K = kernel(rows(net, x), rows(net, x), "trace")
    found = cg(ntk_operator(net, x), y, tol=1e-12)
    close(found.x, torch.linalg.solve(K, y), 1e-8)


def test_the_whole_spectrum():
    net, x, _ = make("residual", 5)
    J = rows(net, x)
    found = ntk_spectrum(net, x)
    values = torch.linalg.svdvals(J.flatten(0, 1)).square()
    close(found.eigenvalues, values)
    close(matrix(J, J) @ found.eigenvectors, found.eigenvectors * found.eigenvalues)
    close(found.eigenvectors.T @ found.eigenvectors, torch.eye(15).double())
    assert found.trace == pytest.approx(float(J.square().sum()), rel=1e-12)
    assert found.effective_rank == pytest.approx(found.trace / float(values[0]), rel=1e-12)
    assert found.converged


def test_the_largest_eigenvalues():
    net = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 2)).double()
    x = torch.randn(40, 4).double()
    J = rows(net, x)
    values = torch.linalg.svdvals(J.flatten(0, 1)).square()
    found = ntk_spectrum(net, x, count=3, generator=torch.Generator().manual_seed(1))
    close(found.eigenvalues, values[:3], 1e-8)
    assert found.trace == pytest.approx(float(J.square().sum()), rel=1e-10)
    assert found.effective_rank == pytest.approx(found.trace / float(values[0]), rel=1e-8)
    residual = matrix(J, J) @ found.eigenvectors - found.eigenvectors * found.eigenvalues
    assert float(residual.norm()) <= 1e-6 * float(values[0])
    assert found.converged


def test_rounding_below_zero_is_zero():
    found = ntk_spectrum(nn.Linear(2, 1), torch.randn(9, 2))
    assert float(found.eigenvalues.min()) == 0.0
    assert float(found.eigenvalues[3]) <= 1e-5 * float(found.eigenvalues[0])


def test_a_kernel_that_is_zero():
    net = nn.Linear(2, 1, bias=False)
    assert ntk_spectrum(net, torch.zeros(3, 2)).effective_rank == 0.0


@pytest.mark.parametrize("count", [None, 2])
def test_laws(count):
    without = {"no_parameters": "there is nothing to differentiate in"}

    def instrument(model, x):
        return ntk_spectrum(model, x, count=count)[:1]

    check_instrument(instrument, nn.Linear(5, 3), torch.randn(6, 5), skip=without)


def test_laws_of_the_operator():
    without = {"no_parameters": "there is nothing to differentiate in"}

    def instrument(model, x):
        op = ntk_operator(model, x)
        return op @ torch.ones(op.shape[0])

    check_instrument(instrument, nn.Linear(5, 3), torch.randn(6, 5), skip=without)


def test_it_prints_on_one_line():
    text = repr(NTKSpectrum(torch.ones(2), torch.ones(2, 2), 2.0, 2.0, True))
    assert text.startswith("NTKSpectrum(eigenvalues=tensor([1., 1.]),")
    assert "\n" not in text
