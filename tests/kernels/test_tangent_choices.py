"""What tangent operators, spectra and drifts look at: parameters, outputs, portions, precision."""

from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tests.kernels.test_tangent_kernel import close, rows
from vademecum.kernels import ntk_drift, ntk_operator, ntk_spectrum


class Pair(nn.Module):
    """Two outputs by name, and a first layer that does not train."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5).double(), nn.Linear(5, 2).double()
        self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.last(self.first(x).tanh())
        return {"a": z, "b": z.sin()[:, :1]}


def wanted(net: Pair, x: Tensor, name: str, *, frozen: bool) -> Tensor:
    """The matrix of the kernel from gradients of each output in those parameters."""
    some = list((net if frozen else net.last).parameters())
    before = [p.requires_grad for p in some]
    for p in some:
        p.requires_grad_()
    gradients = [
        torch.cat([g.flatten() for g in torch.autograd.grad(z, some, retain_graph=True)])
        for z in net(x)[name].flatten()
    ]
    for p, trains in zip(some, before, strict=True):
        p.requires_grad_(trains)
    J = torch.stack(gradients)
    return J @ J.T


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("frozen", [None, True, False])
def test_parameters_and_outputs_that_count(name, frozen):
    net, other, x = Pair(), Pair(), torch.randn(4, 3).double()
    options: Any = {"output": name} | ({} if frozen is None else {"frozen": frozen})
    counts = frozen is not False
    K, L = (wanted(n, x, name, frozen=counts) for n in (net, other))
    close(ntk_operator(net, x, **options).dense(), K)
    values = torch.linalg.eigvalsh(K).flip(0)
    whole, few = ntk_spectrum(net, x, **options), ntk_spectrum(net, x, count=2, **options)
    close(whole.eigenvalues, values)
    close(few.eigenvalues, values[:2], 1e-7)
    for found in (whole, few):
        assert found.trace == pytest.approx(float(K.trace()), rel=1e-10)
    drift = ntk_drift(net, x, other, **options)
    assert drift.absolute == pytest.approx(float((K - L).norm()), rel=1e-10)


def test_drift_is_that_of_all_pairs_by_default():
    net, x = Pair(), torch.randn(3, 3).double()
    other = Pair()
    found = ntk_drift(net, x, other, output="a")
    assert found == ntk_drift(net, x, other, output="a", outputs="full")
    assert found != ntk_drift(net, x, other, output="a", outputs="trace")


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e30])
def test_drifts_of_kernels_of_any_size(size):
    """Squares of such numbers leave the range of single precision."""
    K = size * torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    found = ntk_drift(3 * K, None, K)
    assert found.relative == pytest.approx(2.0, rel=1e-6)
    assert found.cosine == pytest.approx(1.0, rel=1e-6)
    assert found.absolute == pytest.approx(2 * size * 10**0.5, rel=1e-6)


def test_the_same_numbers_in_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"start must have the kernel's shape \(2, 2\)"):
        ntk_drift(torch.eye(2), None, torch.ones(4, 1))


def test_a_limit_of_memory_makes_portions():
    """As many examples go through at a time as the memory has room for."""
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, v = torch.randn(12, 3).double(), torch.randn(24).double()
    J = rows(net, x).flatten(0, 1)
    with pytest.raises(ValueError, match="bytes for one example") as refused:
        ntk_operator(net, x, memory=1)
    least = int(str(refused.value).split(">= ")[1].split()[0])
    for room in (5, 12):
        op, seen = ntk_operator(net, x, memory=room * least), list[int]()

        def note(_: nn.Module, args: tuple[Tensor, ...], seen: list[int] = seen) -> None:
            seen.append(len(args[0]))

        _ = op @ v  # a graph is made by the first product
        hook = net.register_forward_pre_hook(note)
        close(op @ v, J @ (J.T @ v))
        hook.remove()
        assert max(seen, default=0) == (4 if room == 5 else 0)  # thrice four, or it is kept


def test_eigenvalues_that_were_not_reached():
    net = nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 1)).double()
    x = torch.randn(60, 3).double()
    with pytest.warns(ConvergenceWarning):
        found = ntk_spectrum(net, x, count=3, tol=1e-14, max_iter=4)
    assert not found.converged
    loose = ntk_spectrum(net, x, count=1, tol=1e-3)
    J = rows(net, x).flatten(0, 1)
    u, largest = loose.eigenvectors, loose.eigenvalues
    assert float((J @ (J.T @ u) - u * largest).norm()) <= 1e-3 * float(largest)


def test_eigenvalues_of_a_kernel_of_low_rank_are_not_negative():
    x = torch.randn(40, 2)
    found = ntk_spectrum(nn.Linear(2, 1, bias=False), x, count=6)
    assert float(found.eigenvalues.min()) >= 0
    wanted = torch.linalg.svdvals(x.double()).square()
    close(found.eigenvalues[:2], wanted, 1e-5)


def test_small_eigenvalues_in_single_precision():
    """The matrix is exact; its decomposition in single precision would be off by some 0.1."""
    x = torch.tensor([[1000.0, 0.0], [1000.0, 1.0], [1000.0, -1.0]])
    found = ntk_spectrum(nn.Linear(2, 1, bias=False), x)
    wanted = torch.linalg.svdvals(x.double()).square().float()  # 3,000,000 and 2
    torch.testing.assert_close(found.eigenvalues[:2], wanted)


@pytest.mark.parametrize("count", [0, 5])
def test_as_many_eigenvalues_as_there_are(count):
    with pytest.raises(ValueError, match="count must be"):
        ntk_spectrum(nn.Linear(2, 2), torch.randn(2, 2), count=count)
