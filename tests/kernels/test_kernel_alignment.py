"""Kernel alignment against the definition in full matrices."""

import pytest
import torch

from vademecum.kernels import empirical_ntk, kernel_alignment


def cosine(K, T):
    return float((K * T).sum() / (K.norm() * T.norm()))


def semidefinite(n):
    A = torch.randn(n, n + 1).double()
    return A @ A.T


@pytest.mark.parametrize("centered", [False, True])
def test_numbers_and_classes(centered):
    K, Y, classes = semidefinite(6), torch.randn(6, 3).double(), torch.tensor([0, 2, 1, 0, 2, 2])
    H = torch.eye(6).double() - (1 / 6 if centered else 0.0)
    for y, columns in (
        (Y, Y), (Y[:, 0], Y[:, :1]), (classes, torch.eye(3).double()[classes]),
    ):  # fmt: skip
        found = kernel_alignment(K, y, centered=centered)
        wanted = cosine(H @ K @ H, H @ columns @ columns.T @ H)
        assert float(found) == pytest.approx(wanted, rel=1e-12)
        assert 0 <= float(found) <= 1


@pytest.mark.parametrize("centered", [False, True])
def test_tangent_kernels_of_several_outputs(centered):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    K, Y = empirical_ntk(net.double(), torch.randn(5, 3).double()), torch.randn(5, 2).double()
    H = torch.kron(torch.eye(5) - (1 / 5 if centered else 0.0), torch.eye(2)).double()
    flat, y = H @ K.transpose(1, 2).reshape(10, 10) @ H, H @ Y.reshape(10)
    found = kernel_alignment(K, Y, centered=centered)
    assert float(found) == pytest.approx(cosine(flat, torch.outer(y, y)), rel=1e-12)
    assert float(kernel_alignment(K, torch.tensor([0, 1, 1, 0, 1]))) > 0


def test_a_class_may_be_absent():
    """Classes of a tangent kernel are those of its outputs, not those that occur."""
    A = torch.randn(8, 9).double()
    K = (A @ A.T).view(4, 2, 4, 2).transpose(1, 2)
    found = kernel_alignment(K, torch.zeros(4, dtype=torch.long))
    y = torch.tensor([1.0, 0.0]).double().repeat(4)
    assert float(found) == pytest.approx(cosine(A @ A.T, torch.outer(y, y)), rel=1e-12)


def test_the_kernel_of_the_targets_has_one_and_no_other():
    y = torch.randn(5).double()
    assert float(kernel_alignment(3 * torch.outer(y, y), y)) == pytest.approx(1.0)
    assert float(kernel_alignment(3 * torch.outer(y, y), -y)) == pytest.approx(1.0)
    shifted = torch.outer(y, y) + 1.0
    assert float(kernel_alignment(shifted, y + 7, centered=True)) == pytest.approx(1.0)
    assert float(kernel_alignment(semidefinite(5), y)) < 1.0


def test_gradients_flow():
    K, y = semidefinite(4), torch.randn(4).double()
    assert torch.autograd.gradcheck(
        lambda A: kernel_alignment(A + A.T, y), K.clone().requires_grad_()
    )


REFUSED = [
    (lambda: kernel_alignment(torch.ones(2, 3), torch.ones(2)),
     r"K must have shape \(n, n\) or \(n, n, k, k\), got \(2, 3\)"),
    (lambda: kernel_alignment(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.ones(2)),
     "K must be symmetric"),
    (lambda: kernel_alignment(torch.eye(2), torch.ones(3)), "y must have 2 rows, got shape"),
    (lambda: kernel_alignment(torch.ones(2, 2, 3, 3), torch.ones(2, 2)),
     r"y must have shape \(2, 3\), got shape \(2, 2\)"),
    (lambda: kernel_alignment(torch.zeros(2, 2), torch.ones(2)), "K must not be zero"),
    (lambda: kernel_alignment(torch.eye(2), torch.zeros(2)), "y must not be zero"),
    (lambda: kernel_alignment(torch.ones(2, 2), torch.tensor([1.0, 2.0]), centered=True),
     "K must not be constant"),
    (lambda: kernel_alignment(torch.eye(2), torch.ones(2), centered=True),
     "y must not be constant"),
    (lambda: kernel_alignment(torch.eye(7), torch.full((7,), 0.1), centered=True),  # but rounding
     "y must not be constant"),
    (lambda: kernel_alignment(torch.full((7, 7), 0.1), torch.arange(7.0), centered=True),
     "K must not be constant"),
    (lambda: kernel_alignment(torch.eye(2), torch.tensor([True, False])),
     "y must be numbers or classes 0, 1, ..., got torch.bool"),
    (lambda: kernel_alignment(torch.eye(2), torch.tensor([0, -1])), "y must be numbers or classes"),
    (lambda: kernel_alignment(torch.eye(2) * torch.nan, torch.ones(2)), "K must be finite"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
